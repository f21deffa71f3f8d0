"""One way to models: an upstream, what the operator said about it, and what it has taught us. Handed a native Chat
Completions body, asks in the form that this model takes (its profile, tools in words if it knows no tools) and hands
on mended events. What a server refuses for its form alone is asked again in another.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, Literal

from ..config.upstreams import UpstreamConfig
from ..values.errors import RequestError
from ..values.events import Event, Failed, Replan, ToolMode
from ..watching.contents import Contents, printable
from .leaks import recovered
from .learned import NOTHING, Learned, Lesson, lesson_in, rate_in, refuses_tools
from .profiles import has_tool_turns, profile_of
from .prompted import prompted
from .repairs import AnswerRepair
from .transport import Forwarding, Transport
from .upstream_limit import UpstreamLimit

log = logging.getLogger("groundwire")

_MOST_LESSONS = 4  # parameters that one request may find out about
_LISTING_PAUSE = 60.0  # after a listing that could not be read
_LISTING_LIMIT = 1.0  # how long a request waits for what the upstream lists
_LONGEST_NAME = 200  # of a model, in the log: clients choose it
_SMALL = 4e9  # parameters: models below that are better at reading than at calling
_SIZE = re.compile(r"(?<![a-z0-9.])e?(\d+(?:\.\d+)?)(b|m)(?![a-z0-9])", re.IGNORECASE)


class UpstreamClient:
    """`limit` is of what may be asked there at once, where there is one."""

    def __init__(self, config: UpstreamConfig, transport: Transport, limit: UpstreamLimit | None = None) -> None:
        self.config = config
        self.limit = limit
        self.transport = transport
        self.forwarding = transport if isinstance(transport, Forwarding) else None  # where bytes can pass as they are
        self._learned = Learned()
        self._next_look = 0.0
        self._looking: dict[str, asyncio.Task[None]] = {}  # model → who is reading the listing for it
        self._off = frozenset(config.without_repairs)

    @property
    def name(self) -> str:
        return self.config.name

    def serves(self, model: str) -> bool:
        return self.config.serves(model)

    async def models(self) -> list[str]:
        """Those that it lists and may serve. Raises `RequestError` where it cannot be asked."""
        return [str(model["id"]) for model in await self.transport.models() if self.serves(model["id"])]

    async def listed(self) -> list[dict[str, Any]]:
        """What it lists; nothing if it cannot be asked, for one that is down must not hide the others."""
        try:
            return await self.transport.models()
        except RequestError:
            return []

    def tool_mode(self, model: str) -> ToolMode:
        """How this model calls tools, as far as it is known by now."""
        said = self.config.of(model).tool_calls
        if said != "auto":
            return said
        return self._learned.of(model).tool_calls or "native"

    def context(self, model: str) -> int:
        """How many tokens the model holds, as the operator or the listing says; 0 if nobody does."""
        return self.config.of(model).context or self._learned.of(model).context

    def token_rate(self, model: str) -> float:
        """How many tokens it makes of text for which one is likely; 0.0 as long as it has not said."""
        return self._learned.of(model).rate

    def note_tokens(self, model: str, body: Mapping[str, Any], tokens: int) -> None:
        """It has counted what it was asked."""
        if rate := rate_in(body, tokens):
            self._learned.keep_rate(model, rate)

    def takes_as_it_is(self, model: str, body: Mapping[str, Any]) -> bool:
        """May a body with the client's own tools go up unchanged, or must they be put in words?"""
        return self.tool_mode(model) == "native" or not (body.get("tools") or has_tool_turns(body["messages"]))

    async def look_up(self, model: str) -> ToolMode:
        """The same, after a look at what the upstream lists: once an hour, and never for long."""
        said = self.config.of(model)
        wanted = (said.tool_calls == "auto" or said.context is None) and not self._learned.of(model).looked
        if wanted and time.monotonic() >= self._next_look:
            task = self._looking.get(model)
            if task is None:
                task = self._looking[model] = asyncio.create_task(self._look(model))
                task.add_done_callback(lambda _: self._looking.pop(model, None))
            with suppress(TimeoutError):  # it goes on by itself, and the next request knows
                async with asyncio.timeout(_LISTING_LIMIT):
                    await asyncio.shield(task)
        return self.tool_mode(model)

    async def _look(self, model: str) -> None:
        try:
            listed = await self.transport.models()
        except RequestError:
            self._next_look = time.monotonic() + _LISTING_PAUSE
            return
        entry = next((entry for entry in listed if entry.get("id") == model), {})
        self._learned.keep(model, Lesson(looked=True, context=listed_context(entry)))
        if self.config.of(model).tool_calls == "auto" and lists_no_tools(entry):
            self._fall(model, entry, "its listing names no tools")

    async def aclose(self) -> None:
        for task in self._looking.values():
            task.cancel()
        await self.transport.aclose()

    async def stream(
        self, body: dict[str, Any], headers: Mapping[str, str], known_tools: Sequence[Any] | None = None
    ) -> AsyncGenerator[list[Event], None]:
        """Asks the model once, as `Transport.stream`. If it turns out to take no tools, that is a `Replan`, and
        `tool_mode` has changed: whoever asks decides how to go on.

        `known_tools` are those that the model has heard of in this request, where they are more than the body offers:
        it may write calls of them as text even now."""
        schemas = _schemas(body if known_tools is None else {"tools": known_tools})
        prompted_form = not self.takes_as_it_is(body["model"], body)
        one = body.get("parallel_tool_calls") is False
        known = self._learned.of(body["model"])  # as this question goes by it
        new, tries, retried = NOTHING, 0, False
        while True:
            asked = new.fitted(self._fitted(body))
            repair = AnswerRepair(schemas, self._off, prompted_form=prompted_form, one=one)
            refused: Failed | None = None
            first = True
            async with aclosing(self.transport.stream(asked, headers, schemas)) as batches:
                async for batch in batches:
                    if first:
                        first = False
                        if isinstance(batch[0], Failed):
                            refused = batch[0]
                            break
                        self._conclude(body["model"], known, new, worked=True)
                    if events := repair.feed(batch):
                        yield events
            if refused is None:
                return
            if self._takes_no_tools(refused, asked):
                yield [Replan(self.tool_mode(body["model"]), refused)]
                return
            lesson = lesson_in(refused, asked) if tries < _MOST_LESSONS else None
            if lesson is None and not retried and self._in_vain(refused, schemas):
                lesson, retried = NOTHING, True
            if lesson is None:
                self._conclude(body["model"], known, new, worked=False)
                yield repair.feed([refused])
                return
            new, tries = new.merged(lesson), tries + 1

    def _fitted(self, body: dict[str, Any]) -> dict[str, Any]:
        model = body["model"]
        config = self.config.of(model)
        fit = body
        if not self.takes_as_it_is(model, body):
            fit = prompted(body)
        fit = profile_of(config.profile, config.type, config.base_url, model).fitted(fit)
        for name in config.drop:
            fit.pop(name, None)
        lesson = self._learned.of(model)
        return lesson.fitted(fit) if lesson.size else fit

    def _takes_no_tools(self, failed: Failed, asked: Mapping[str, Any]) -> bool:
        """Is this a refusal of tools? Then it is known from now on how to ask instead."""
        model = asked["model"]
        if self.config.of(model).tool_calls != "auto" or not refuses_tools(failed, asked):
            return False
        self._fall(model, {}, Contents(failed.error["message"]))
        return True

    def _fall(self, model: str, entry: Mapping[str, Any], why: str) -> None:
        mode = without_calling(model, entry)
        self._learned.keep(model, Lesson(tool_calls=mode, looked=True))
        named = printable(model, _LONGEST_NAME)
        log.info(
            "upstream %s: %s takes no tools, so it is asked with tool_calls: %s (%.200s)", self.name, named, mode, why
        )

    def _in_vain(self, failed: Failed, schemas: Mapping[str, Mapping[str, Any]]) -> bool:
        """Did the model's attempt to call fail so that nothing of it can be used? Then it may try once more."""
        if "failed_generation" in self._off or failed.attempt is None:
            return False
        return not recovered(failed.attempt, schemas)

    def _conclude(self, model: str, known: Lesson, new: Lesson, *, worked: bool) -> None:
        """The model has answered, or refused for good: what was tried is kept or forgotten."""
        untried = bool(known.tool_calls) and not known.proven
        if worked and (new.size or untried):
            self._learned.keep(model, replace(new, proven=untried))
            if new.size:
                choice = ["tool_choice: none"] if new.bare_end else []
                names = ", ".join(sorted({*new.drop, *new.drop_in_messages, *new.rename, *choice}))
                named = printable(model, _LONGEST_NAME)
                log.info("upstream %s: %s refuses %s: left out for an hour", self.name, named, names)
        elif untried and not worked and not self._learned.of(model).proven:
            self._learned.forget_mode(model)


def lists_no_tools(entry: Mapping[str, Any]) -> bool:
    """Does a listing say of a model that it takes no tools? Most say nothing either way.

    Seen: `supported_parameters` (OpenRouter), `capabilities` as a mapping (Mistral) or a list (LM Studio, GitHub),
    `supports_tools` (Hugging Face).
    """
    parameters = entry.get("supported_parameters")
    if isinstance(parameters, list) and parameters:
        return "tools" not in parameters
    able = entry.get("capabilities")
    if isinstance(able, Mapping) and isinstance(able.get("function_calling"), bool):
        return not able["function_calling"]
    if isinstance(able, list) and able:
        return not any("tool" in str(name) or "function" in str(name) for name in able)
    return entry.get("supports_tools") is False


def listed_context(entry: Mapping[str, Any]) -> int:
    """The model's context in tokens. Seen: llama.cpp, vLLM, OpenRouter, Groq, LM Studio and Mistral, in this order."""
    meta = entry.get("meta")
    said = [entry.get("slot_context"), meta.get("n_ctx") if isinstance(meta, Mapping) else None]
    said += [entry.get(key) for key in ("max_model_len", "context_length", "context_window", "max_context_length")]
    return next((size for size in said if isinstance(size, int) and size > 0), 0)


def without_calling(model: str, entry: Mapping[str, Any]) -> Literal["prompted", "none"]:
    """How to ask a model that takes no tools: a small one does better when it is handed what it should read."""
    meta = entry.get("meta")
    size = meta.get("n_params") if isinstance(meta, Mapping) else None  # llama.cpp
    if not isinstance(size, int | float):
        found = _SIZE.findall(model)
        size = float(found[-1][0]) * (1e9 if found[-1][1] in "bB" else 1e6) if found else _SMALL
    return "none" if size < _SMALL else "prompted"


def _schemas(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The tools that a body offers, with what their arguments look like."""
    found: dict[str, Mapping[str, Any]] = {}
    if body.get("tool_choice") == "none":
        return found
    for tool in body.get("tools") or ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            parameters = function.get("parameters")
            found[function["name"]] = parameters if isinstance(parameters, dict) else {}
    return found
