"""The page's Markdown in a real browser: what it draws, that it draws the same however the text is cut, that nothing a
model writes becomes more than text and a few harmless elements, and that a long answer costs no more than its length.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text
from tests.fakes.page_tab import NEEDS_BROWSER, ONE_LOOP, Page

pytestmark = [NEEDS_BROWSER, ONE_LOOP]

# Draws a text that comes in the given pieces, with chips at the given places; hands on what stands there then.
DRAW = """import('/page/markdown.js').then(({Markdown}) => {
  const root = document.createElement('div');
  const markdown = new Markdown(root, (url) => url === 'https://source.example/');
  for (const piece of %s) markdown.write(piece);
  for (const at of %s) {
    const chip = document.createElement('b');
    chip.textContent = at;
    markdown.cite(at, chip);
  }
  markdown.end();
  return root.innerHTML;
})"""
ALLOWED = {
    *("P", "H3", "H4", "H5", "H6", "UL", "OL", "LI", "BLOCKQUOTE", "HR", "PRE", "CODE", "SPAN", "BR", "EM", "STRONG"),
    *("DEL", "DIV", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD", "A", "BUTTON"),
}


async def drawn(page: Page, *pieces: str, chips: list[int] | None = None) -> str:
    html: str = await page.run(DRAW % (json.dumps(pieces), json.dumps(chips or [])))
    return html


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def _opened(page: Page, proxy: Groundwire, _without_problems: None) -> None:
    await page.open(proxy)


WRITTEN = {
    "Plain words.": "<p>Plain words.</p>",
    "One\ntwo  \nthree\n\nfour": "<p>One\ntwo  <br>three</p><p>four</p>",
    "# Title\ntext": "<h3>Title</h3><p>text</p>",
    "**bold** and *thin* and ***both*** and __bold__ and ~~gone~~": (
        "<p><strong>bold</strong> and <em>thin</em> and <em><strong>both</strong></em> and <strong>bold</strong>"
        " and <del>gone</del></p>"
    ),
    "2 * 3 * 4, snake_case_name, 5*3, ~5 and a ** b": "<p>2 * 3 * 4, snake_case_name, 5*3, ~5 and a ** b</p>",
    "**open and `code` and ``a ` b``": "<p>**open and <code>code</code> and <code>a ` b</code></p>",
    "\\*no\\* &amp; &lt;b&gt;": "<p>*no* &amp; &lt;b&gt;</p>",
    "- a\n- b\n  - c\n\n  more of b\n- d": (
        "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul><p>more of b</p></li><li><p>d</p></li></ul>"
    ),
    "1. a\n   - b\n2. c\n\nend": "<ol><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p></li></ol><p>end</p>",
    "3. a\n4. b": '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>',
    "It was\n1986. Then": "<p>It was\n1986. Then</p>",
    "> quoted\n> - item\n\nout": "<blockquote><p>quoted</p><ul><li><p>item</p></li></ul></blockquote><p>out</p>",
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "a<br>b\\\nc <https://x.example/>": "<p>a<br>b<br>c &lt;https://x.example/&gt;</p>",
}


@pytest.mark.parametrize("written", WRITTEN)
async def test_markdown_is_drawn(page: Page, written: str) -> None:
    assert await drawn(page, written) == WRITTEN[written]


async def test_code_is_drawn_as_it_stands(page: Page) -> None:
    html = await drawn(page, "```python\nif x < 1:\n    **y**\n\n```\nafter")
    assert html == (
        '<pre tabindex="0" role="region" aria-label="Code, python"><code><span>'
        "if x &lt; 1:\n    **y**\n\n</span></code></pre><p>after</p>"
    )


async def test_an_unfinished_fence_is_code(page: Page) -> None:
    assert "<code><span>a\nb</span></code>" in await drawn(page, "```\na\nb")


async def test_a_table_is_drawn(page: Page) -> None:
    html = await drawn(page, "| a | b |\n|---|--:|\n| 1 | `x|y` |\n| 2 |\n\nend")
    assert html.count("<tr>") == 3
    assert '<th scope="col">a</th><th class="right" scope="col">b</th>' in html
    assert '<td>1</td><td class="right"><code>x|y</code></td>' in html
    assert html.endswith("<p>end</p>")


async def test_chips_stand_where_the_citations_are(page: Page) -> None:
    written = "The **sky is blue** here.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| c | d |\n"
    places = [written.index(words) + len(words) for words in ("blue", "here", "one", "two", "| c", "d")]
    html = await drawn(page, written, chips=places)
    for words, at in zip(("sky is blue", " here", "one", "two", "c", "d"), places, strict=True):
        assert f"{words}<b>{at}</b>" in html, html


async def test_a_chip_can_come_while_its_line_is_not_known_yet(page: Page) -> None:
    assert await drawn(page, "a\n\n- ", "b c", chips=[6]) == "<p>a</p><ul><li><p>b<b>6</b> c</p></li></ul>"


# A text is drawn whole, in single characters, and in two pieces cut at every place.
ALIKE = """import('/page/markdown.js').then(({Markdown}) => {
  const draw = (pieces) => {
    const root = document.createElement('div');
    const markdown = new Markdown(root, () => false);
    for (const piece of pieces) markdown.write(piece);
    markdown.end();
    root.normalize();
    return root.innerHTML;
  };
  const different = [];
  for (const text of %s) {
    const whole = draw([text]);
    const ways = [[...text], ...[...text].map((_, at) => [text.slice(0, at), text.slice(at)])];
    const odd = ways.find((pieces) => draw(pieces) !== whole);
    if (odd) different.push([odd, draw(odd), whole]);
  }
  return different;
})"""
PIECES = [
    *(
        "a",
        "bc ",
        "\n",
        "\n\n",
        "  ",
        "    ",
        "- ",
        "* ",
        "1. ",
        "2) ",
        "> ",
        "# ",
        "### ",
        "---\n",
        "***",
        "**",
        "*",
        "_",
        "__",
    ),
    *(
        "`",
        "``",
        "```",
        "```py\n",
        "~~~",
        "~~",
        "|",
        "| a | b |\n",
        "|---|---|\n",
        "[x](u)",
        "[",
        "](",
        ")",
        "!",
        "<br>",
        "&amp;",
        "\\",
    ),
    *("\t", "😀", "é", "[ ] ", "<https://a.b>", "x", "."),
]


async def test_however_a_text_is_cut_the_same_is_drawn(page: Page) -> None:
    chance = random.Random(14)
    texts = ["".join(chance.choice(PIECES) for _ in range(chance.randrange(2, 14))) for _ in range(1500)]
    assert await page.run(ALIKE % json.dumps([*WRITTEN, *texts])) == []


HOSTILE = [
    "<script>window.hacked = 1</script>",
    '<img src=x onerror="window.hacked = 1">',
    "<svg/onload=window.hacked=1>",
    "[click](javascript:window.hacked=1)",
    "[click](data:text/html,<script>window.hacked=1</script>)",
    "[click](https://evil.example/?q=secret)",
    "![pixel](https://evil.example/pixel.png)",
    "![alt](javascript:alert(1))",
    "[![nested](https://evil.example/a.png)](https://evil.example/)",
    "<https://evil.example/>",
    "https://evil.example/ bare",
    '<a href="javascript:window.hacked=1">a</a>',
    "<iframe src=https://evil.example></iframe>",
    "<style>*{display:none}</style>",
    "```html\n<script>window.hacked = 1</script>\n```",
    "| <script>a</script> | ![x](https://evil.example/b.png) |\n|---|---|\n| [c](javascript:d) | <b>e</b> |",
    "[x]: https://evil.example/ref\n[x]",
    "`<img src=x onerror=window.hacked=1>`",
]


async def test_nothing_that_a_model_writes_runs_or_leads_away(
    page: Page, proxy: Groundwire, model: ModelServer
) -> None:
    model.script(call("web_search", {"query": "sky blue"}), text(*(f"{line}\n\n" for line in HOSTILE), "Blue [1]."))
    await page.open(proxy)
    await page.ready()
    said = await page.answer("Why?")
    for shown in ("<script>window.hacked = 1</script>", "pixel", "<iframe", "<style>"):
        assert shown in said
    assert await page.run("window.hacked") is None
    script = "[...document.querySelectorAll('.answer *')].map(e => [e.tagName, ...e.getAttributeNames()])"
    found: list[list[str]] = await page.run(script)
    assert {tag for tag, *_ in found} <= ALLOWED
    attributes = {name for _, *names in found for name in names}
    assert attributes <= {"class", "title", "tabindex", "role", "aria-label", "scope", "href", "target", "rel"}
    links = await page.run("[...document.querySelectorAll('.answer a')].map(a => [a.href, a.rel, a.className])")
    assert links == [["https://library.example/sky.md", "noopener noreferrer", "chip"]]


async def test_a_link_to_a_source_is_a_link(page: Page) -> None:
    html = await drawn(page, "[one](https://source.example/) [other](https://other.example/)")
    assert html.count("<a ") == 1
    assert 'href="https://source.example/"' in html
    assert '<span title="https://other.example/">other</span>' in html


DEEP = {
    "lists": "".join("  " * depth + f"- item {depth}\n" for depth in range(1000)),
    "lists in a line": "- " * 1000 + "end",
    "quotations": "> " * 1000 + "end",
    "emphasis": "*a " * 1000 + "end" + "*" * 1000,
    "brackets": "[" * 3000 + "end" + "](u)" * 3000,
    "images": "![" * 3000 + "end" + "](u)" * 3000,
    "backticks": " ".join("`" * length for length in range(1, 120)),
    "stars": "*" * 20_000,
    "dashes": "-" * 20_000 + " end",
    "blanks": "](" + " " * 20_000 + "end",
}


@pytest.mark.parametrize("name", DEEP)
async def test_deep_and_dense_markup_is_drawn_in_no_time(page: Page, name: str) -> None:
    """The depth is bounded, so that no later layout can suffer from it either."""
    script = """(async () => {
      const {Markdown} = await import('/page/markdown.js');
      const root = document.createElement('div');
      const markdown = new Markdown(root, () => false);
      const began = performance.now();
      for (let at = 0; at < TEXT.length; at += 50) markdown.write(TEXT.slice(at, at + 50));
      markdown.end();
      const depth = (node) => 1 + Math.max(0, ...[...node.children].map(depth));
      return {depth: depth(root), text: root.textContent.includes(END), ms: performance.now() - began};
    })()""".replace("TEXT", json.dumps(DEEP[name]))
    seen = await page.run(script.replace("END", json.dumps("end" if "end" in DEEP[name] else DEEP[name].strip()[-1])))
    assert seen["text"]
    assert seen["depth"] < 80
    assert seen["ms"] < 5000  # what is quadratic takes minutes


LONG = {
    "prose": "The sky is **blue** because air scatters it, as `code` says. " * 40 + "\n\n",
    "one paragraph": "Words without an end, *some* of them leaning, ",
    "table": "| a | b | c |\n|---|---|---|\n" + "| one | **two** | three |\n" * 60,
    "code": "```\nline = of(code)\n" + "another = line\n" * 60,
    "list": "- an item\n  - and another\n" * 20,
}


@pytest.mark.parametrize("name", LONG)
async def test_each_piece_of_a_long_answer_costs_what_it_holds(page: Page, name: str) -> None:
    """200 kB in pieces of 20 characters: what changes in the page with each piece does not grow with what is there."""
    script = """(async () => {
      const {Markdown} = await import('/page/markdown.js');
      const root = document.createElement('div');
      document.body.append(root);
      const markdown = new Markdown(root, () => false);
      const text = PART.repeat(Math.ceil(200_000 / PART.length)).slice(0, 200_000);
      const seen = new MutationObserver(() => {});
      seen.observe(root, {subtree: true, childList: true, characterData: true});
      const counts = [];
      let slowest = 0;
      for (let at = 0; at < text.length; at += 20) {
        const began = performance.now();
        markdown.write(text.slice(at, at + 20));
        slowest = Math.max(slowest, performance.now() - began);
        counts.push(seen.takeRecords().reduce((sum, {addedNodes}) => sum + 1 + addedNodes.length, 0));
      }
      markdown.end();
      const length = root.textContent.length;
      root.remove();
      const half = counts.length / 2;
      const worst = (part) => part.reduce((most, count) => Math.max(most, count), 0);
      return {first: worst(counts.slice(0, half)), second: worst(counts.slice(half)), length, slowest};
    })()""".replace("PART", json.dumps(LONG[name]))
    seen: dict[str, Any] = await page.run(script)
    assert seen["length"] > 80_000
    assert seen["first"] < 1500
    assert seen["second"] <= seen["first"] * 1.2
