"""Markdown in pieces: whatever the cuts, each character is in one block, and the blocks one by one say what the whole
text says. What Markdown means is asked of the parser that the terminal's view uses.
"""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from proxy.cli.markdown_blocks import Block, MarkdownBlocks

ANSWER = """\
# Why the sky is blue

Air scatters *blue* light more than red light [1],
which [Rayleigh](https://a.example/r) found.
Second heading
--------------

* one
* two, which is
goes on here

  and has a second part

  ```python
  # no heading

  print("x")
  ```
* three
1. first
2. second
   - nested

     deep

> A quotation
> ```
> code
> ```
lazy

| a | b |
|---|---|
| 1 | 2 |

```js
const a = `x`;

# still code
~~~
```
    not code: a paragraph may not begin like this, but this may

    code

    more code
text

***

~~~text
open at the end
"""


def parts(text: str, *cuts: int) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def blocks(*pieces: str) -> list[Block]:
    machine = MarkdownBlocks()
    found: list[Block] = []
    fed = ""
    for piece in pieces:
        found += machine.feed(piece)
        fed += piece
        assert "".join(block.text for block in found) + machine.rest.text == fed
        assert machine.size == len(machine.rest.text)
    found += machine.flush()
    assert (machine.rest.text, machine.size) == ("", 0)
    return found


def meaning(text: str) -> str:
    """As HTML, less what must differ: where a list begins and ends, and whether its items stand apart."""
    parser = MarkdownIt().enable("table").disable(["html_block", "html_inline", "reference"])
    return re.sub(r"</?(?:[uo]l|li|p)\b[^>]*>|\s", "", str(parser.render(text)))


def test_the_blocks_of_an_answer() -> None:
    assert [block.text.strip().partition("\n")[0] for block in blocks(ANSWER)] == [
        "# Why the sky is blue",
        "Air scatters *blue* light more than red light [1],",
        "* one",
        "* two, which is",
        "* three",
        "1. first",
        "2. second",
        "> A quotation",
        "| a | b |",
        "```js",
        "not code: a paragraph may not begin like this, but this may",
        "text",
        "***",
        "~~~text",
    ]
    assert [block.text[:2] for block in blocks(ANSWER) if block.joined] == ["* ", "* ", "2."]


@pytest.mark.parametrize("cut", range(len(ANSWER)))
def test_an_answer_cut_at_every_place(cut: int) -> None:
    assert blocks(*parts(ANSWER, cut)) == blocks(ANSWER)


def test_an_answer_character_by_character() -> None:
    assert blocks(*ANSWER) == blocks(ANSWER)


def test_what_it_means() -> None:
    assert "".join(meaning(block.text) for block in blocks(ANSWER)) == meaning(ANSWER)


LINES = st.sampled_from(
    [
        "",
        " ",
        "text",
        "  indented",
        "    deep",
        "\tcode",
        "# head",
        "#no head",
        "===",
        "---",
        "***",
        "- item",
        "* other",
        "-",
        "  - nested",
        "- - both",
        "1. one",
        "2) two",
        "7. seven",
        "-     code in item",
        "> quote",
        ">",
        "```",
        "```py",
        "``` x`y",
        "~~~",
        "````",
        "  ```",
        "   ```",
        "- ```",
        "> ```",
        "| a | b |",
        "|---|---|",
        "[a]: https://x.example",
        "<div>",
        "**bold",
        "[1] source",
    ]
)


@given(st.lists(LINES, max_size=12).map("\n".join), st.lists(st.integers(0, 500), max_size=4))
def test_any_lines_cut_anywhere(text: str, cuts: list[int]) -> None:
    whole = blocks(text)
    assert blocks(*parts(text, *cuts)) == whole
    assert "".join(block.text for block in whole) == text
    assert "".join(meaning(block.text) for block in whole) == meaning(text)


@given(st.text(max_size=60), st.lists(st.integers(0, 500), max_size=4))
def test_any_text_cut_anywhere(text: str, cuts: list[int]) -> None:
    assert blocks(*parts(text, *cuts)) == blocks(text)


@pytest.mark.parametrize("unit", ["word ", "word\n", "- item\n", "```\n", "    code\n", "> quote\n", "\n", "  - n\n"])
def test_the_work_grows_with_the_text_alone(unit: str) -> None:
    def steps(length: int) -> float:
        text = unit * (length // len(unit))
        began = time.process_time()
        blocks_of(text)
        return time.process_time() - began

    small, large = min(steps(20_000) for _ in range(3)), min(steps(400_000) for _ in range(2))
    assert large < 20 * small * 5 + 0.05


def blocks_of(text: str) -> int:
    machine = MarkdownBlocks()
    count = sum(1 for at in range(0, len(text), 7) for _ in machine.feed(text[at : at + 7]))
    return count + sum(1 for _ in machine.flush())
