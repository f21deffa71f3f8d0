"""`open_page` at a session: which pages may be opened, which part of one the model reads, and what it costs."""

from __future__ import annotations

import asyncio
import re

import pytest

from providers.base import Page
from providers.chain import ReadChain
from providers.registry import NamedProvider
from providers.text.cuts import cut
from tests.fakes.toolbox import Bench, one, open_page, search
from tools.base import ToolResult
from tools.ledger import Ledger
from tools.options import SessionOptions, ToolPolicy
from tools.pages import without_comments
from tools.toolbox import Toolbox

# Pages


async def test_search_then_open_keeps_the_number_and_reads_on() -> None:
    bench = Bench()
    session = bench.session(limit=2)
    await one(session, search({"query": "tea"}))
    first = await one(session, open_page({"url": "https://other.net/tea/1", "max_length": 1000}))
    assert first.ok
    assert (
        "Page [2]: Page https://other.net/tea/1\nURL: https://other.net/tea/1\nDate: 2026-05-01\n\nParagraph 0 "
        in first.text
    )
    lengths = re.search(r"content_length: (\d+), original_length: (\d+), truncated: true; .*start=(\d+)", first.text)
    assert lengths is not None
    start, whole = int(lengths[3]), int(lengths[2])
    text = _content(first)
    assert len(text) == int(lengths[1]) <= 1000
    pieces = [text]
    while start:
        part = await one(session, open_page({"url": "https://other.net/tea/1", "max_length": 5000, "start": start}))
        pieces.append(_content(part))
        more = re.search(r"start=(\d+)", part.text)
        start = int(more[1]) if more else 0
    assert "\n\n".join(pieces) == "\n\n".join(
        f"Paragraph {n} speaks of topic{n}. It has a second sentence." for n in range(200)
    )
    assert sum(map(len, pieces)) + 2 * (len(pieces) - 1) == whole
    assert len(bench.shelf.read_urls) == session.pages == 1
    beyond = await one(session, open_page({"url": "https://other.net/tea/1", "start": 10**9}))
    assert not beyond.ok
    assert "beyond its end" in beyond.text


def _content(result: ToolResult) -> str:
    fenced = re.search(r"\n\n(.*)\nweb-[0-9a-f]{16}>>>", result.text, re.DOTALL)
    assert fenced is not None
    return fenced[1]


async def test_query_returns_the_passages_that_matter() -> None:
    session = Bench().session(seen_texts=["https://e.org/p"])
    result = await one(session, open_page({"url": "https://e.org/p", "query": "topic42 topic150", "max_length": 400}))
    content = _content(result)
    assert content.startswith("[…]\n\nParagraph 42 ")
    assert "\n\n[…]\n\nParagraph 150 " in content
    assert content.endswith("\n\n[…]")
    assert len(content) <= 400
    whole = re.search(r"original_length: (\d+)", result.text)
    assert whole is not None
    of = f"({len(content)} of {int(whole[1]):,} characters)"
    assert f'Passages for "topic42 topic150" {of}; read all with start=0\n' in result.text
    nothing = await one(session, open_page({"url": "https://e.org/p", "query": "zebra"}))
    assert "No passage speaks of the query" in nothing.text
    assert "Paragraph 0 " in nothing.text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("One <!-- unseen\n\nwords --> two<!---->.", "One  two."),
        ("```html\n<!-- code -->\n```\n<!-- unseen -->End", "```html\n<!-- code -->\n```\nEnd"),
        ("~~~\n<!-- code -->", "~~~\n<!-- code -->"),
        ("Write `<!-- so -->` <!-- unseen -->here", "Write `<!-- so -->` here"),
        ("Begin with `<!--` or <!-- and go on", "Begin with `<!--` or <!-- and go on"),
        ("a --> b", "a --> b"),
        ("<!--" * 100_000, "<!--" * 100_000),
        ("<!--" * 100_000 + "-->", ""),
    ],
)
def test_comments_are_not_read_but_code_is(text: str, read: str) -> None:
    assert without_comments(text) == read


async def test_several_pages_one_failure() -> None:
    bench = Bench()
    urls = ["https://e.org/p", "https://e.org/blocked", "https://e.org/private", "https://made.up/", "https://f.org/q"]
    session = bench.session(seen_texts=[" ".join(url for url in urls if "made" not in url)])
    result = await one(session, open_page({"urls": urls, "max_length": 3000}))
    assert result.ok
    assert [source.url for source in result.sources] == ["https://e.org/p", "https://f.org/q"]
    [blocked] = re.findall(r"https://e\.org/blocked could not be opened: (.*)", result.text)
    assert "shelf: the page answered with a challenge" in blocked
    assert "https://e.org/private could not be opened: address not allowed." in result.text
    assert "https://made.up/ could not be opened: only URLs from the user's messages" in result.text
    lengths = [int(length) for length in re.findall(r"content_length: (\d+)", result.text)]
    assert len(lengths) == 2
    assert all(300 <= length <= 600 for length in lengths)


async def test_opens_have_a_budget_and_run_together() -> None:
    bench = Bench(ToolPolicy(provenance="open"))
    session = bench.session()
    result = await one(session, open_page({"urls": [f"https://e{at}.org/" for at in range(20)]}))
    assert session.pages == len(bench.shelf.read_urls) == 8
    assert session.spent
    assert result.text.count("are used up") == 12
    assert len(result.sources) == 8


async def test_the_characters_of_a_request_have_a_budget() -> None:
    class Long:
        async def read(self, url: str) -> Page:
            return Page(url, "T", "A sentence of a page. " * 500)

    toolbox = Toolbox(
        None, ReadChain([NamedProvider("l", "l", Long())]), ToolPolicy(max_characters=5000, max_page_length=4000)
    )
    session = toolbox.session(SessionOptions(Ledger(), seen_texts=["https://a.org/1 https://b.org/2 https://c.org/3"]))
    first, second = [await one(session, open_page({"url": f"https://{host}.org/{n}"})) for host, n in ("a1", "b2")]
    assert first.ok
    assert 3500 < len(_content(first)) <= 4000
    assert second.ok
    assert len(_content(second)) <= 1500, "the second page gets what the first has left"
    assert session.spent
    third = await one(session, open_page({"url": "https://c.org/3"}))
    assert not third.ok
    assert "used up" in third.text


async def test_one_site_is_opened_four_times_at_most() -> None:
    bench = Bench(ToolPolicy(provenance="open"))
    result = await one(bench.session(), open_page({"urls": [f"https://e.org/{at}" for at in range(6)]}))
    assert len(bench.shelf.read_urls) == 4
    assert result.text.count("more are not allowed") == 2


async def test_links_of_opened_pages_may_be_followed() -> None:
    bench = Bench()
    session = bench.session(seen_texts=["https://e.org/p"])
    assert not (await one(session, open_page({"url": "https://link.org/x"}))).ok
    assert (await one(session, open_page({"url": "https://e.org/p"}))).ok
    assert (await one(session, open_page({"url": "https://link.org/x", "start": 0, "max_length": 500}))).ok
    strict = Bench(ToolPolicy(provenance="strict")).session(seen_texts=["https://e.org/p"])
    assert (await one(strict, open_page({"url": "https://e.org/p"}))).ok
    assert not (await one(strict, open_page({"url": "https://link.org/x"}))).ok


async def test_sources_of_earlier_answers_may_be_opened_in_context() -> None:
    bench = Bench()
    bench.ledger.restore(3, "https://e.org/cited", "Cited")
    result = await one(bench.session(), open_page({"url": "https://e.org/cited"}))
    assert result.ok
    assert result.sources[0].n == 3


async def test_a_redirect_is_one_page() -> None:
    bench = Bench()
    session = bench.session(seen_texts=["https://e.org/moved/a"])
    first = await one(session, open_page({"url": "https://e.org/moved/a"}))
    again = await one(session, open_page({"url": "https://e.org/here/a"}))
    assert [first.sources[0].n, again.sources[0].n] == [1, 1]


CUT_SHORT = "[Cut short: these are the first 200 of 300 pages.]"


async def test_a_page_of_which_more_was_there_says_so() -> None:
    class Half:
        async def read(self, url: str) -> Page:
            text = f"{CUT_SHORT}\n\nPage 0 of the log." + "\n\nThe rain of that year fell on wide fields." * 60
            return Page(url, "Log", text, cut_short=CUT_SHORT)

    toolbox = Toolbox(None, ReadChain([NamedProvider("half", "test", Half())]), ToolPolicy())
    session = toolbox.session(SessionOptions(Ledger(), alone=True))
    (part,) = await session.open_once({"url": "https://e.org/log.pdf"})
    assert part.truncated
    assert part.next_start is None, "there is nothing to read on"
    assert "truncated: true\n" in session.text([part])
    assert CUT_SHORT in session.text([part])
    (picked,) = await session.open_once({"url": "https://e.org/log.pdf", "query": "page of the log", "max_length": 300})
    assert picked.content.startswith(f"{CUT_SHORT}\n\nPage 0 of the log.")
    assert picked.truncated
    assert len(picked.content) <= 300
    (last,) = await session.open_once({"url": "https://e.org/log.pdf", "start": 2000})
    assert last.truncated
    assert CUT_SHORT not in last.content


async def test_a_page_that_only_says_so_is_whole() -> None:
    class Liar:
        async def read(self, url: str) -> Page:
            return Page(url, "Log", f"{CUT_SHORT}\n\nPage 0 of the log.")

    toolbox = Toolbox(None, ReadChain([NamedProvider("liar", "test", Liar())]), ToolPolicy())
    (part,) = await toolbox.session(SessionOptions(Ledger(), alone=True)).open_once({"url": "https://e.org/log.pdf"})
    assert not part.truncated


async def test_parts_asked_for_together_read_the_page_once() -> None:
    bench = Bench()
    session = bench.session(seen_texts=["https://e.org/p"])
    calls = [open_page({"url": "https://e.org/p", "start": start, "max_length": 300}) for start in (0, 300, 600)]
    results = await session.run(calls)
    assert [result.ok for result in results] == [True] * 3
    assert len({result.text for result in results}) == 3
    assert bench.shelf.read_urls == ["https://e.org/p"]


class Endless:
    def __init__(self) -> None:
        self.reading = self.cancelled = 0

    async def read(self, url: str) -> Page:
        self.reading += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Page(url, "", "")


async def test_cancelling_cancels_every_read() -> None:
    reader = Endless()
    toolbox = Toolbox(None, ReadChain([NamedProvider("endless", "test", reader)]), ToolPolicy(provenance="open"))
    calls = [open_page({"urls": ["https://a.org", "https://b.org"]}), open_page({"url": "https://a.org", "start": 5})]
    task = asyncio.create_task(toolbox.session(SessionOptions(Ledger())).run(calls))
    while reader.reading < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (reader.reading, reader.cancelled) == (2, 2)


class Book:
    async def read(self, url: str) -> Page:
        return Page(
            url, "Book", "\n\n".join(f"Chapter {number} tells of hero{number} [1]. " * 20 for number in range(2000))
        )


async def test_a_book_is_cut_and_searched() -> None:
    toolbox = Toolbox(
        None, ReadChain([NamedProvider("book", "test", Book())]), ToolPolicy(provenance="open", max_page_length=3000)
    )
    session = toolbox.session(SessionOptions(Ledger()))
    result = await one(session, open_page({"url": "https://a.org", "query": "hero1234", "max_length": 10**9}))
    assert "Chapter 1234 tells of hero1234 (1)." in result.text
    assert len(_content(result)) <= 3000
    [part] = await session.open_once({"url": "https://a.org"})
    assert part.truncated
    assert 1_000_000 >= part.original_length > 900_000


# Cutting


def test_cut_prefers_paragraph_then_sentence_then_word() -> None:
    assert cut("one two.\n\nthree four", 0, 14) == 10
    assert cut("one two. three four", 0, 12) == 9
    assert cut("one two three", 0, 9) == 8
    assert cut("x" * 50, 0, 9) == 9
    assert cut("short", 0, 9) == 5


@pytest.mark.parametrize("text", ["a" * 1000, "word " * 200, "One. Two. " * 100, "p\n\n" * 300, "中。" * 400])
def test_parts_make_up_the_whole(text: str) -> None:
    start, pieces = 0, []
    while start < len(text):
        end = cut(text, start, 37)
        assert start < end <= start + 37
        pieces.append(text[start:end])
        start = end
    assert "".join(pieces) == text
