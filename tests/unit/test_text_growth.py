"""What pages and answers cost grows as they do, whatever they are made of: each part that reads text of others, with
text that was made to be slow. Four times the text may cost four times the time, and nothing near sixteen times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from providers.text.passages import best_passages
from providers.text.relevance import relevance
from proxy.answering.announced_search import announces_search
from proxy.answering.citations import Citer
from proxy.answering.exact_words import ExactWords
from proxy.answering.foreign_links import ForeignLinks
from proxy.answering.plain_support import plain_source
from proxy.answering.sentences import sentence_places
from proxy.answering.source_texts import SourceText, SourceTexts
from proxy.dialects.responses.custom_input import CustomInput
from proxy.serving.forwarded_stream import ForwardedStream
from proxy.upstreams.calls import ArgumentReader, Calls
from proxy.upstreams.chunk_stream import ChunkStream
from proxy.upstreams.chunks import ChunkReader
from proxy.upstreams.leaks import LeakReader, recovered
from proxy.upstreams.learned import Sent
from proxy.upstreams.prompted_calls import PromptedCallReader
from proxy.upstreams.quoting import quotes
from proxy.upstreams.repairs import AnswerRepair
from proxy.upstreams.server_json import has_too_many_parts, parse
from proxy.upstreams.thinking import ThoughtReader, without_thinking
from proxy.values.events import Event, Finished, TextDelta
from proxy.values.secrets import masked
from proxy.values.sse import SSEDecoder
from tools.clean import clean
from tools.ledger import Ledger
from tools.pages import without_comments
from tools.provenance import urls_in
from tools.render import escape

SMALL = 2000  # characters
TIMES = 4
MOST = 9.0  # times the cost for four times the text: linear is 4, the square 16
NOTHING = 0.003  # seconds: what takes less is quick enough, however it grows
TOOLS: dict[str, dict[str, Any]] = {"web_search": {"type": "object", "properties": {"query": {"type": "string"}}}}
LONGEST = 1_000_000

SHAPES = {
    "backticks": "`",
    "backticks and words": "`a",
    "runs of backticks": "` `` ``` ",
    "fences": "```\n",
    "tildes": "~",
    "blanks": " ",
    "tabs": "\t",
    "line feeds": "\n",
    "blank lines": " \n",
    "carriage returns": "\r",
    "angles": "<",
    "tags": "<a ",
    "attributes": '<a b="',
    "comments that open": "<!-- ",
    "comments": "<!---->",
    "comments that end nothing": "<!-->",
    "calls that open": "<tool_call>",
    "calls with blanks": "<tool_call> ",
    "calls of nothing": "<tool_call></tool_call>",
    "calls half written": '<tool_call>{"name":',
    "names": "web_search[",
    "brackets": "[",
    "markers": "[1]",
    "link markers": "[[1]](https://example.org/) ",
    "half links": "[1](",
    "lenticular brackets": "【1†",
    "parentheses": "f(",
    "emphasis": "**a",
    "underlines": "_",
    "cells": "| a |\n",
    "backslashes": "\\",
    "formulas": "$a",
    "quotes": '"',
    "quotations": "“a b c d",
    "braces": '{"a":',
    "values": "a,b,",
    "digits": "1",
    "numbers": "123.456,",
    "dates": "1 April ",
    "schemes": "http://",
    "addresses": "https://a.org/ ",
    "hosts": "www.",
    "entities": "&#12",
    "stops": ". ",
    "initials": "A. ",
    "dots": ".",
    "colons": ":\n",
    "items": "- a\n",
    "headings": "# a\n",
    "rules": "---\n",
    "quoted lines": "> ",
    "zero width": "\u200b",
    "joiners": "👨\u200d",
    "marks in the wrong order": "\u0315\u0300",
    "marks that are two": "\u0f73",
    "syllables": "\u1100\u1161",
    "Chinese": "日本。",
    "words": "solar panel ",
}
ENDS = ("", "x<tool_call>no</tool_call>\n[1] -->")  # what stands behind them, and may send a reader back to look again


def grown(shape: str, size: int, end: str) -> str:
    return (shape * (size // len(shape) + 1))[:size] + end


def cost(run: Callable[[str], object], text: str, runs: int) -> float:
    """Seconds of CPU time, the least of several runs: what else is at work on the machine does not count."""
    best = float("inf")
    for _ in range(runs):
        began = time.thread_time()
        run(text)
        best = min(best, time.thread_time() - began)
    return best


def growth(run: Callable[[str], object], make: Callable[[int], str], size: int = SMALL) -> float:
    small, large = make(size), make(TIMES * size)
    for runs in (1, 3, 9):  # what looks bad is looked at again
        later = cost(run, large, runs)
        if later < NOTHING:
            return 1.0
        ratio = later / cost(run, small, 2 * runs)
        if ratio < MOST:
            break
    return ratio


def pieces(text: str, size: int) -> Iterable[str]:
    return (text[at : at + size] for at in range(0, len(text), size)) if size else [text]


def fed(make: Callable[[], Any], size: int = 0, begun: str = "") -> Callable[[str], None]:
    """A reader of text that comes in pieces of this size; 0: all at once."""

    def run(text: str) -> None:
        reader = make()
        for piece in pieces(begun + text, size):
            reader.feed(piece)
        getattr(reader, "flush", None) and reader.flush()

    return run


def sources() -> Ledger:
    ledger = Ledger()
    ledger.add("https://example.org/", "Panels")
    ledger.give(1, "Solar panels turn light into power. In 2024 they were cheap.", "page")
    return ledger


def citer() -> Citer:
    return Citer(sources().get, texts=SourceTexts())


def marking_citer() -> Citer:
    ledger, texts = sources(), SourceTexts()
    made = Citer(ledger.get, texts=texts)
    made.mark_sentences(lambda sentence: plain_source(sentence, texts, ledger.given()))
    return made


def read_source(text: str) -> None:
    ledger = Ledger()
    ledger.add("https://a.org/", "Title")
    SourceText(ledger.give(1, text, "page")).read()


class Repaired:
    def __init__(self, *, prompted: bool) -> None:
        self._repair = AnswerRepair(TOOLS, prompted_form=prompted)

    def feed(self, text: str) -> list[Event]:
        return self._repair.feed([TextDelta(text)])

    def flush(self) -> list[Event]:
        return self._repair.feed([Finished("stop")])


class Linked:
    def __init__(self) -> None:
        self._links = ForeignLinks(lambda host: host == "example.org", lambda url, host: False)

    def feed(self, text: str) -> None:
        self._links.feed([TextDelta(text)])

    def flush(self) -> None:
        self._links.flush()


PARTS: dict[str, Callable[[str], object]] = {
    "leaked calls": fed(lambda: LeakReader(TOOLS)),
    "leaked calls in pieces": fed(lambda: LeakReader(TOOLS), 5),
    "failed generation": lambda text: recovered(text, TOOLS),
    "prompted calls": fed(PromptedCallReader),
    "prompted calls in pieces": fed(PromptedCallReader, 5),
    "a prompted call in pieces": fed(PromptedCallReader, 5, "<tool_call>"),
    "repairs of a prompted model": fed(lambda: Repaired(prompted=True), 5),
    "repairs": fed(lambda: Repaired(prompted=False), 5),
    "thoughts in pieces": fed(ThoughtReader, 5, "<think>"),
    "thoughts of a history": lambda text: without_thinking(text + "</think>"),
    "citer": fed(citer, begun="So [1]. "),  # plain text alone would be read later
    "citer in pieces": fed(citer, 5, "So [1]. "),
    "marks of sentences in pieces": fed(marking_citer, 5),
    "foreign links": fed(Linked),
    "foreign links in pieces": fed(Linked, 5),
    "announced searches": announces_search,
    "a request beside an error": lambda text: Sent({"messages": [{"role": "user", "content": text}]}).holds("41234"),
    "errors without keys": lambda text: masked(text, [text[:100] + "1"]),
    "exact words": lambda text: ExactWords([text]).read(),
    "exact words of a sentence": lambda text: ExactWords(["In 2024 it was 5 million."]).missing(text),
    "sentences": sentence_places,
    "source": read_source,
    "clean": lambda text: clean(text, LONGEST),
    "escape": escape,
    "comments": without_comments,
    "passages": lambda text: best_passages(text, "solar panel 1 a storage", 20_000),
    "relevance": lambda text: relevance("solar panels", [text]),
    "quotes": lambda text: quotes("solar panels 2024", [(1, "Title", text)]),
    "addresses": urls_in,
    "custom input": fed(CustomInput, 5, '{"input": "'),
    "arguments": fed(ArgumentReader, 5, '{"a": '),
}


@pytest.mark.parametrize("part", PARTS)
def test_no_shape_of_a_text_costs_more_than_its_length(part: str) -> None:
    slow = {}
    for name, shape in SHAPES.items():
        for end in ENDS:
            ratio = growth(PARTS[part], lambda size, shape=shape, end=end: grown(shape, size, end))  # type: ignore[misc]
            if ratio >= MOST:
                slow[name, end] = round(ratio, 1)
    assert slow == {}


# Bytes of a stream


def event(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n"


@pytest.mark.parametrize(
    "make", [SSEDecoder, lambda: ChunkStream(ChunkReader()), ForwardedStream], ids=["events", "chunks", "forwarded"]
)
def test_a_long_event_in_small_reads_costs_its_length(make: Callable[[], Any]) -> None:
    def run(text: str) -> None:
        reader, data = make(), event(text)
        for at in range(0, len(data), 16):
            reader.feed(data[at : at + 16])

    assert growth(run, lambda size: "word " * (size // 5), 100_000) < MOST


def test_an_event_of_very_many_parts_is_none() -> None:
    """To read it would take a tenth of a second, in which everybody waits."""
    many = b'{"choices": [' + b"[]," * 300_000 + b"[]]}"
    assert has_too_many_parts(many)
    assert parse(many) is None
    said = event("[{" * 100_000)[6:]  # brackets in a text are no parts
    assert not has_too_many_parts(said)
    assert parse(said)["choices"][0]["delta"]["content"] == "[{" * 100_000
    assert growth(lambda text: has_too_many_parts(text.encode()), lambda size: '"\\"[' * (size // 4), 400_000) < MOST


# Many tools


def tools(count: int) -> dict[str, dict[str, Any]]:
    return {f"tool_{number}": {"type": "object", "properties": {}} for number in range(count)}


@pytest.mark.parametrize(
    "opener",
    ["<tool_call>tool_x ", '<tool_call>{"name": "tool_x"} ', "<function=tool_x> ", "<|channel|>commentary to=x "],
)
def test_what_looks_like_a_call_costs_the_same_however_many_tools_are_offered(opener: str) -> None:
    few, many = tools(100), tools(3200)
    text = opener * 2000
    cheap = cost(fed(lambda: LeakReader(few)), text, 3)
    assert cost(fed(lambda: LeakReader(many)), text, 3) < 4 * cheap


def test_names_of_calls_cost_the_same_however_many_tools_are_offered() -> None:
    def run(names: Iterable[str]) -> None:
        calls = Calls(names=list(names))
        for number in range(900):
            calls.feed({"index": number, "id": f"call_{number}", "function": {"name": "weather"}})
        calls.flush()

    few, many = tools(100), tools(3200)
    cheap = cost(lambda _: run(few), "", 3)
    assert cost(lambda _: run(many), "", 3) < 4 * cheap
