"""The built-in demo model: it cannot think, it can only look up and quote, and it says so. Handed a Chat Completions
body, hands on events like every upstream: a search, then the best page, then the sentences that match the question.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from providers.text.relevance import relevance
from providers.text.words import terms
from tools.base import OPEN_PAGE, WEB_SEARCH

from ..values.events import Begun, Event, Finished, TextDelta, ToolCallDelta, UsageSeen
from ..values.messages import text_of

CREATED = 1767225600  # 2026-01-01: `models` wants a date, and a model without weights has none of its own
MAX_QUERY = 400
MAX_QUOTES = 4
LONGEST_QUOTE = 400

HONEST = "From the sources (Groundwire's built-in demo model only quotes; connect a real model for reasoning):"
NO_QUESTION = "This is Groundwire's built-in demo model. Ask it a question in words, and it looks the answer up."
NO_TOOLS = (
    "This is Groundwire's built-in demo model. It knows nothing by itself and can only quote what a search finds, but "
    "no search is offered in this request. Turn search on (`tools.mode: auto`), or connect a real model."
)
SEARCH_FAILED = (
    "The search failed, and Groundwire's built-in demo model knows nothing by itself. `groundwire check` shows which "
    "search provider has trouble; a real model could answer from its own knowledge."
)
NO_MATCH = (
    "The search found nothing that matches the question, and Groundwire's built-in demo model only quotes. "
    "Ask in other words, or connect a real model."
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One source as a tool result showed it: a search hit, or a page that was opened."""

    n: int
    title: str
    url: str
    text: str
    opened: bool = False


class DemoTransport:
    def __init__(self, name: str = "demo", delay: float = 0.02) -> None:
        self.name = name
        self._delay = delay

    async def stream(
        self, body: dict[str, Any], headers: Mapping[str, str] | None = None, names: Collection[str] = ()
    ) -> AsyncGenerator[list[Event], None]:
        yield [Begun(model=str(body.get("model") or self.name))]
        messages = body.get("messages") or []
        reply = respond(messages, offered_tools(body))
        if isinstance(reply, ToolCallDelta):
            yield [reply, UsageSeen(_usage(messages, reply.arguments)), Finished("tool_calls")]
            return
        for word in re.findall(r"\S+\s*", reply):
            await asyncio.sleep(self._delay)
            yield [TextDelta(word)]
        yield [UsageSeen(_usage(messages, reply)), Finished("stop")]

    async def models(self) -> list[dict[str, Any]]:
        return [{"id": self.name, "object": "model", "created": CREATED, "owned_by": "groundwire"}]

    async def aclose(self) -> None:
        pass


def respond(messages: Sequence[Mapping[str, Any]], tools: Mapping[str, str]) -> ToolCallDelta | str:
    """The next step as a model would take it: a call, or the answer's text. Equal input gives equal output."""
    question, results = _asked(messages)
    if not terms(question):
        return NO_QUESTION
    step = sum(message.get("role") == "tool" for message in messages)
    if not results:
        search = tools.get(WEB_SEARCH)
        return _call(step, search, {"query": _cut(question, MAX_QUERY)}) if search is not None else NO_TOOLS
    readings = [reading for result in results for reading in read_result(result)]
    if not readings:
        return SEARCH_FAILED
    if OPEN_PAGE in tools and len(results) == 1:
        return _call(step, tools[OPEN_PAGE], {"url": _best(question, readings).url})
    return compose(question, readings)


def _asked(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """The last question of the user, and what the tools answered since."""
    asked = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=None)
    if asked is None:
        return "", []
    results = [text_of(message, "\n") for message in messages[asked + 1 :] if message.get("role") == "tool"]
    return " ".join(text_of(messages[asked], "\n").split()), results


def _best(question: str, readings: Sequence[Reading]) -> Reading:
    """The engine has seen the whole pages: its own order counts beside what little we see of them."""
    scores = relevance(question, [f"{reading.title}\n{reading.text}" for reading in readings])
    return readings[max(range(len(readings)), key=lambda at: scores[at] / (1 + at / 3))]


def offered_tools(body: Mapping[str, Any]) -> dict[str, str]:
    """Our tools among those offered, by our name, with the name the wire gives them. Empty if none may be called."""
    if body.get("tool_choice") == "none":
        return {}
    names = [str((tool.get("function") or {}).get("name")) for tool in body.get("tools") or ()]
    return {ours: name for ours in (WEB_SEARCH, OPEN_PAGE) for name in names if ours in name}


_FENCED = re.compile(r"^<<<(web-[0-9a-f]+)\n(.*?)\n\1>>>$", re.MULTILINE | re.DOTALL)
_PAGE = re.compile(r"Page \[(\d+)\]: ([^\n]*)\nURL: (\S+)\n(?:Date: [^\n]*\n)?\n(.*)", re.DOTALL)
_HIT = re.compile(r"\[(\d+)\] (.*)\nURL: (\S+)(?:\nDate: .*)?(?:\n(.+))?")


def read_result(result: str) -> Iterator[Reading]:
    """The sources in a tool's result, read from the layout that every model gets."""
    for fenced in _FENCED.finditer(result):
        if page := _PAGE.match(fenced[2]):
            yield Reading(int(page[1]), page[2], page[3], page[4], opened=True)
            continue
        for block in fenced[2].split("\n\n"):
            if hit := _HIT.match(block):
                yield Reading(int(hit[1]), hit[2], hit[3], hit[4] or "")


def compose(question: str, readings: Sequence[Reading]) -> str:
    """The sentences that match best, in the order they stand in their sources, each with its source's number."""
    quotes = _quotes(readings)
    chosen = _chosen(question, [sentence for _, sentence in quotes])
    if not chosen:
        return NO_MATCH
    return HONEST + "\n\n" + " ".join(f"{quotes[at][1]} [{quotes[at][0]}]" for at in sorted(chosen))


def _quotes(readings: Sequence[Reading]) -> list[tuple[int, str]]:
    """Every sentence with its source's number: of an opened page those of the page alone, torn ones only in need."""
    opened = {reading.n for reading in readings if reading.opened}
    whole = [reading for reading in readings if reading.opened or reading.n not in opened]
    quotes = [(reading.n, sentence) for reading in whole for sentence in sentences(reading.text)]
    return [quote for quote in quotes if not _is_torn(quote[1])] or quotes


def _chosen(question: str, quotable: Sequence[str]) -> list[int]:
    """The places of the few sentences that match best and do not say the same; the best first."""
    wanted = set(terms(question))
    scores = relevance(question, quotable)
    by_score = sorted(range(len(quotable)), key=lambda at: -scores[at])
    chosen: dict[int, set[str]] = {}  # place → words
    for at in by_score:
        best = next(iter(chosen), at)
        if len(chosen) == MAX_QUOTES or scores[at] < scores[best] / 3:
            break
        words = set(terms(quotable[at]))
        matches = len(words & wanted) >= min(len(wanted), 2)
        if matches and not any(_alike(words, old) for old in chosen.values()):
            chosen[at] = words
    return list(chosen)


_NOISE = re.compile(r"^[ \t]*(?:#{1,6}[ \t].*|[-*_=|: \t]+|\|.*|!\[.*|\[…\])$", re.MULTILINE)
_CODE = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1.*?$|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s\"[^\"]*\")?\)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+|^\s*>\s?", re.MULTILINE)
_EMPHASIS = re.compile(r"(\*\*|__|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w))")
_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)]))\s+(?=[\"'“‘(`]?[^\W_a-z])|(?<=[。！？])")
_SHORTENED = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|approx)|\b[A-Z])\.$")


def sentences(markdown: str) -> list[str]:
    """The whole sentences of a Markdown text: no headings, tables, code or link targets."""
    found: list[str] = []
    text = _NOISE.sub("", _CODE.sub("\n\n", markdown))
    text = _EMPHASIS.sub("", _LINK.sub(r"\1", _ITEM.sub("\n\n", text)))
    for paragraph in re.split(r"\n\s*\n", text):
        begun = ""
        for piece in _SENTENCE_END.split(" ".join(paragraph.split())):
            begun = f"{begun} {piece}".strip()
            if not _SHORTENED.search(begun):
                found.append(begun)
                begun = ""
        found.append(begun)
    return [_balanced(sentence) for sentence in found if _is_quotable(sentence)]


def _is_quotable(sentence: str) -> bool:
    shortest = 6 if sentence.endswith(("。", "！", "？")) else 20  # scripts without blanks say much in few characters
    return shortest <= len(sentence) <= LONGEST_QUOTE


def _balanced(sentence: str) -> str:
    """A lone backtick would make code of everything after it, our marker included."""
    return sentence if sentence.count("`") % 2 == 0 else sentence.replace("`", "")


def _is_torn(sentence: str) -> bool:
    return sentence.startswith(("…", "...")) or sentence.endswith(("…", "..."))


def _alike(one: set[str], other: set[str]) -> bool:
    return len(one & other) >= 0.8 * min(len(one), len(other))


def _call(step: int, name: str, arguments: Mapping[str, str]) -> ToolCallDelta:
    return ToolCallDelta(0, f"call_demo_{step + 1}", name, orjson.dumps(arguments).decode())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0]


def _usage(messages: Sequence[Mapping[str, Any]], reply: str) -> dict[str, int]:
    """Words, counted as words: there is no tokenizer here to pretend with."""
    read, written = sum(len(text_of(message, "\n").split()) for message in messages), len(reply.split())
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
