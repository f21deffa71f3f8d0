"""The built-in demo model: it cannot think, it can only look up and quote, and it says so. Handed a Chat Completions
body, hands on events like every upstream: a search, then the best page, then what in it is about the question.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from providers.records import dataclass
from providers.text.words import terms
from tools.base import OPEN_PAGE, WEB_SEARCH

from ..values.events import Begun, Event, Finished, TextDelta, ToolCallDelta, UsageSeen
from ..values.messages import text_of
from .quoting import asked_for, quotes

CREATED = 1767225600  # 2026-01-01: `models` wants a date, and a model without weights has none of its own
MAX_QUERY = 400
MOST_PAGES = 3

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
    if OPEN_PAGE in tools and (page := _page_to_open(question, readings, len(results) - 1)):
        return _call(step, tools[OPEN_PAGE], {"url": page})
    return compose(question, readings)


def _asked(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """The last question of the user, and what the tools answered since."""
    asked = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=None)
    if asked is None:
        return "", []
    results = [text_of(message, "\n") for message in messages[asked + 1 :] if message.get("role") == "tool"]
    return " ".join(text_of(messages[asked], "\n").split()), results


def _page_to_open(question: str, readings: Sequence[Reading], opened: int) -> str:
    """The page that promises most, and the next ones until all that was asked for is spoken of."""
    hits = [reading for reading in readings if not reading.opened]
    done = [reading for reading in readings if reading.opened]
    wanted = asked_for(question)
    said = {word for _, sentence in _quoted(question, done) for word in terms(sentence)}
    if opened >= MOST_PAGES or wanted <= said:
        return ""
    known = {reading.n for reading in done}

    def promise(at: int) -> float:
        """The engine has seen the whole pages: its own order counts beside what little we see of them. What a title
        says, the page is about."""
        title, text = set(terms(hits[at].title)), set(terms(hits[at].text))
        return (len(wanted & (title | text)) + len(wanted & title)) / (1 + at / 8)

    left = [at for at, hit in enumerate(hits) if hit.n not in known]
    best = max(left, key=promise, default=None)
    return hits[best].url if best is not None and (not opened or promise(best)) else ""


def offered_tools(body: Mapping[str, Any]) -> dict[str, str]:
    """Our tools among those offered, by our name, with the name the wire gives them. Empty if none may be called."""
    if body.get("tool_choice") == "none":
        return {}
    names = [str((tool.get("function") or {}).get("name")) for tool in body.get("tools") or ()]
    return {ours: name for ours in (WEB_SEARCH, OPEN_PAGE) for name in names if ours in name}


_FENCED = re.compile(r"^<<<(web-[0-9a-f]+)\n(.*?)\n\1>>>$", re.MULTILINE | re.DOTALL)
_PAGE = re.compile(r"Page \[([0-9]{1,9})\]: ([^\n]*)\nURL: (\S+)\n(?:Date: [^\n]*\n)?\n(.*)", re.DOTALL)
_HIT = re.compile(r"\[([0-9]{1,9})\] (.*)\nURL: (\S+)(?:\nDate: .*)?(?:\n(.+))?")


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
    """The sentences that are about the question, in the order they stand in their sources, each with its source's
    number. What was opened was chosen from all that was found: hits are quoted only where it says nothing."""
    opened = [reading for reading in readings if reading.opened]
    found = _quoted(question, opened) or _quoted(question, readings)
    return f"{HONEST}\n\n{' '.join(f'{sentence} [{n}]' for n, sentence in found)}" if found else NO_MATCH


def _quoted(question: str, readings: Sequence[Reading]) -> list[tuple[int, str]]:
    return quotes(question, [(reading.n, reading.title, reading.text) for reading in readings])


def _call(step: int, name: str, arguments: Mapping[str, str]) -> ToolCallDelta:
    return ToolCallDelta(0, f"call_demo_{step + 1}", name, orjson.dumps(arguments).decode())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0]


def _usage(messages: Sequence[Mapping[str, Any]], reply: str) -> dict[str, int]:
    """Words, counted as words: there is no tokenizer here to pretend with."""
    read, written = sum(len(text_of(message, "\n").split()) for message in messages), len(reply.split())
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
