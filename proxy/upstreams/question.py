"""One question to one model. Handed a native Chat Completions body, asks in the form that this model takes (its
profile, tools in words if it knows no tools) and hands on mended events. What a server refuses for its form alone is
asked again in another, and that is kept where it has worked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from providers.apart import WORTH_A_THREAD, in_thread

from ..config.upstreams import UpstreamConfig
from ..values.events import Event, EventBatches, Failed, Replan, TakeBatch, feed_of
from ..values.messages import calls_in
from ..values.portions import is_much, portions
from ..watching.contents import LONGEST_NAME, Contents, printable
from .leaks import recovered
from .learned import NOTHING, Lesson, lesson_in, refuses_tools
from .profiles import Profile, speaks_of_tools
from .prompted import prompted
from .repairs import AnswerRepair

if TYPE_CHECKING:
    from .client import UpstreamClient

log = logging.getLogger("groundwire")

_OF_MESSAGE = 300  # characters of text that cost as much as a message, a part of one or a call
_OF_TOOL = 1000  # and as a tool
_MOST_LESSONS = 4  # parameters that one request may find out about


class Question:
    """The batches that it brings. The first decides: from then on all that comes is mended and handed on."""

    __slots__ = (
        *("_batches", "_body", "_client", "_decided", "_headers", "_known_tools", "_model", "_portions", "_repair"),
    )

    def __init__(
        self,
        client: UpstreamClient,
        body: dict[str, Any],
        headers: Mapping[str, str],
        known_tools: Sequence[Any] | None,
    ) -> None:
        self._client = client
        self._body = body
        self._model: str = body["model"]
        self._headers = headers
        self._known_tools = known_tools
        self._batches: EventBatches | None = None
        self._decided = False  # is there an answer, or nothing more to ask?
        self._portions: Iterator[Sequence[Event]] | None = None  # the rest of a batch with much text

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[list[Event]]:
        return self._read_on() if self._decided else self._ask()

    async def feed(self, take: TakeBatch) -> None:
        feed = feed_of(self._batches) if self._decided and self._batches and self._portions is None else None
        if feed is None:
            return
        mend = self._repair.feed

        def take_mended(batch: list[Event]) -> bool:
            if is_much(batch):
                self._portions = portions(batch)
                return False
            events = mend(batch)
            return take(events) if events else True

        await feed(take_mended)

    async def aclose(self) -> None:
        if self._batches is not None:
            await self._batches.aclose()

    async def _read_on(self) -> list[Event]:
        events: list[Event] = []
        while not events:
            if self._portions is not None:
                events = await self._mend_portion(self._portions)
                continue
            assert self._batches is not None
            events = self._begin_to_mend(await self._batches.__anext__())
        return events

    def _begin_to_mend(self, batch: list[Event]) -> list[Event]:
        """All of a batch, or the first portion of one with much text."""
        if not is_much(batch):
            return self._repair.feed(batch)
        self._portions = portions(batch)
        return self._repair.feed(next(self._portions))

    async def _mend_portion(self, rest: Iterator[Sequence[Event]]) -> list[Event]:
        """The next portion, after others have had their turn."""
        portion = next(rest, None)
        if portion is None:
            self._portions = None
            return []
        await asyncio.sleep(0)
        return self._repair.feed(portion)

    async def _ask(self) -> list[Event]:
        """What comes first, after as many attempts as it takes."""
        client, body = self._client, self._body
        settings, known = client.settings(self._model), client.learned.of(self._model)  # as this question goes by them
        in_words = known.tool_mode(settings.tool_calls) != "native" and speaks_of_tools(body)
        fit = await self._fitted(settings, known, in_words=in_words)
        schemas = _schemas(body if self._known_tools is None else {"tools": self._known_tools})
        one = body.get("parallel_tool_calls") is False
        self._repair = AnswerRepair(schemas, client.off, in_words, one)
        new, tries, retried = NOTHING, 0, False
        while True:
            asked = fit if new is NOTHING else new.fitted(fit)
            self._batches = batches = client.transport.stream(asked, self._headers, schemas)
            batch = await batches.__anext__()
            refused = batch[0]
            if type(refused) is not Failed:
                self._conclude(known, new, worked=True)
                break
            await batches.aclose()
            no_tools = self._takes_no_tools(refused, asked)
            if no_tools == "surely":
                client.fall(self._model, {}, Contents(refused.error["message"]))
                self._decided = True
                return [Replan(client.tool_mode(self._model), refused)]
            if no_tools:  # it may only quote the client, and what is learned holds for everybody
                fit = await self._fitted(settings, known, in_words=True)
                self._repair = AnswerRepair(schemas, client.off, True, one)
                continue
            lesson = lesson_in(refused, asked, self._headers.values()) if tries < _MOST_LESSONS else None
            if lesson is None and not retried and self._in_vain(refused, schemas):
                lesson, retried = NOTHING, True
            if lesson is None:
                self._conclude(known, new, worked=False)
                break
            new, tries = new.merged(lesson), tries + 1
        self._decided = True
        return self._begin_to_mend(batch) or await self._read_on()

    async def _fitted(self, settings: UpstreamConfig, known: Lesson, *, in_words: bool) -> dict[str, Any]:
        """The body as this model's server takes it, by all that is known."""
        profile = self._client.profile(self._model)
        make = partial(_fitted, self._body, profile, settings, known, in_words=in_words)
        is_long = (in_words or profile.reads_messages or bool(known.drop_in_messages)) and _is_long(self._body)
        return await in_thread(make) if is_long else make()

    def _takes_no_tools(self, failed: Failed, asked: Mapping[str, Any]) -> Literal["", "perhaps", "surely"]:
        """Is this a refusal of tools?"""
        if self._client.settings(self._model).tool_calls != "auto":
            return ""
        return refuses_tools(failed, asked, self._headers.values())

    def _in_vain(self, failed: Failed, schemas: Mapping[str, Mapping[str, Any]]) -> bool:
        """Did the model's attempt to call fail so that nothing of it can be used? Then it may try once more."""
        if "failed_generation" in self._client.off or failed.attempt is None:
            return False
        return not recovered(failed.attempt, schemas)

    def _conclude(self, known: Lesson, new: Lesson, *, worked: bool) -> None:
        """The model has answered, or refused for good: what was tried is kept or forgotten."""
        untried = bool(known.tool_calls) and not known.proven
        if new is NOTHING and not untried:
            return
        learned, model = self._client.learned, self._model
        if worked and not new.sure:
            new = NOTHING
        if worked and (new.changes_requests or untried):
            learned.keep(model, replace(new, proven=untried))
            if new.changes_requests:
                choice = ["tool_choice: none"] if new.bare_end else []
                names = ", ".join(sorted({*new.drop, *new.drop_in_messages, *new.rename, *choice}))
                named = printable(model, LONGEST_NAME)
                log.info("upstream %s: %s refuses %s: left out for an hour", self._client.name, named, names)
        elif untried and not worked and not learned.of(model).proven:
            learned.forget_mode(model)


def _fitted(
    body: dict[str, Any], profile: Profile, settings: UpstreamConfig, known: Lesson, *, in_words: bool
) -> dict[str, Any]:
    fit = profile.fitted(prompted(body) if in_words else body)
    if settings.drop:
        fit = {key: value for key, value in fit.items() if key not in settings.drop}
    return known.fitted(fit) if known.changes_requests else fit


def _is_long(body: Mapping[str, Any]) -> bool:
    """Does it take some milliseconds to put it in another form?"""
    size = _OF_TOOL * len(body.get("tools") or ())
    for message in body["messages"]:
        content = message.get("content")
        size += _OF_MESSAGE + (len(content) if type(content) is str else _OF_MESSAGE * _count(content))
        for call in calls_in(message):
            function = call.get("function")
            arguments = function.get("arguments") if type(function) is dict else None
            size += _OF_MESSAGE + (len(arguments) if type(arguments) is str else 0)
        if size >= WORTH_A_THREAD:
            return True
    return size >= WORTH_A_THREAD


def _count(entries: object) -> int:
    return len(entries) if type(entries) is list else 0


def _schemas(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The tools that a body offers, with what their arguments look like."""
    found: dict[str, Mapping[str, Any]] = {}
    if body.get("tool_choice") == "none":
        return found
    for tool in body.get("tools") or ():
        function = tool.get("function") if type(tool) is dict else None
        if type(function) is dict and type(name := function.get("name")) is str:
            parameters = function.get("parameters")
            found[name] = parameters if type(parameters) is dict else {}
    return found
