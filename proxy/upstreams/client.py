"""One way to models: an upstream, what the operator said about it, and what it has taught us. Handed a native Chat
Completions body, hands on a `Question` to ask; says of a model how it takes tools and what it holds.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from ..config.upstreams import UpstreamConfig
from ..values.errors import RequestError
from ..values.events import ToolMode
from ..watching.contents import LONGEST_NAME, printable
from .learned import Learned, Lesson, rate_in
from .profiles import Profile, profile_of, speaks_of_tools
from .question import Question
from .transport import Forwarding, Transport
from .upstream_limit import UpstreamLimit

log = logging.getLogger("groundwire")

_LISTING_PAUSE = 60.0  # after a listing that could not be read
_LISTING_LIMIT = 1.0  # how long a request waits for what the upstream lists
_MOST_SETTINGS = 256  # of models that are remembered: clients choose their names
_SMALL = 4e9  # parameters: models below that are better at reading than at calling
_SIZE = re.compile(r"(?<![a-z0-9.])e?(\d+(?:\.\d+)?)(b|m)(?![a-z0-9])", re.IGNORECASE)


class UpstreamClient:
    """`limit` is of what may be asked there at once, where there is one."""

    def __init__(self, config: UpstreamConfig, transport: Transport, limit: UpstreamLimit | None = None) -> None:
        self.config = config
        self.name = config.name
        self.settings = lru_cache(maxsize=_MOST_SETTINGS)(config.of)  # of one model
        self.profile = lru_cache(maxsize=_MOST_SETTINGS)(self._profile)  # how that one's server wants to be asked
        self.off = frozenset(config.without_repairs)
        self.limit = limit
        self.transport = transport
        self.forwarding = transport if isinstance(transport, Forwarding) else None  # where bytes can pass as they are
        self.learned = Learned()
        self._next_look = 0.0
        self._looking: dict[str, asyncio.Task[None]] = {}  # model → who is reading the listing for it

    def serves(self, model: str) -> bool:
        return self.config.serves(model)

    def _profile(self, model: str) -> Profile:
        settings = self.settings(model)
        return profile_of(settings.profile, settings.type, settings.base_url, model)

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
        return self.learned.of(model).tool_mode(self.settings(model).tool_calls)

    def context(self, model: str) -> int:
        """How many tokens the model holds, as the operator or the listing says; 0 if nobody does."""
        return self.settings(model).context or self.learned.of(model).context

    def token_rate(self, model: str) -> float:
        """How many tokens it makes of text for which one is likely; 0.0 as long as it has not said."""
        return self.learned.of(model).rate

    def note_tokens(self, model: str, body: Mapping[str, Any], tokens: int) -> None:
        """It has counted what it was asked."""
        if rate := rate_in(body, tokens):
            self.learned.keep_rate(model, rate)

    def takes_as_it_is(self, model: str, body: Mapping[str, Any]) -> bool:
        """May a body with the client's own tools go up unchanged, or must they be put in words?"""
        return self.tool_mode(model) == "native" or not speaks_of_tools(body)

    async def look_up(self, model: str) -> ToolMode:
        """The same as `tool_mode`, after a look at what the upstream lists: once an hour, and never for long."""
        said, known = self.settings(model), self.learned.of(model)
        wanted = not known.looked and (said.tool_calls == "auto" or said.context is None)
        if wanted and time.monotonic() >= self._next_look:
            await self._wait_for_look(model)
            known = self.learned.of(model)
        return known.tool_mode(said.tool_calls)

    async def _wait_for_look(self, model: str) -> None:
        task = self._looking.get(model)
        if task is None:
            task = self._looking[model] = asyncio.create_task(self._look(model))
            task.add_done_callback(lambda _: self._looking.pop(model, None))
        await asyncio.wait([task], timeout=_LISTING_LIMIT)  # it goes on by itself, and the next request knows
        if task.done():
            task.result()

    async def _look(self, model: str) -> None:
        try:
            listed = await self.transport.models()
        except RequestError:
            self._next_look = time.monotonic() + _LISTING_PAUSE
            return
        entry = next((entry for entry in listed if entry.get("id") == model), {})
        self.learned.keep(model, Lesson(looked=True, context=listed_context(entry)))
        if self.settings(model).tool_calls == "auto" and lists_no_tools(entry):
            self.fall(model, entry, "its listing names no tools")

    async def aclose(self) -> None:
        for task in self._looking.values():
            task.cancel()
        await self.transport.aclose()

    def stream(
        self, body: dict[str, Any], headers: Mapping[str, str], known_tools: Sequence[Any] | None = None
    ) -> Question:
        """Asks the model once, as `Transport.stream`. If it turns out to take no tools, that is a `Replan`, and
        `tool_mode` has changed: whoever asks decides how to go on.

        `known_tools` are those that the model has heard of in this request, where they are more than the body offers:
        it may write calls of them as text even now."""
        return Question(self, body, headers, known_tools)

    def fall(self, model: str, entry: Mapping[str, Any], why: str) -> None:
        """It takes no tools: from now on it is asked in another way."""
        mode = without_calling(model, entry)
        self.learned.keep(model, Lesson(tool_calls=mode, looked=True))
        named = printable(model, LONGEST_NAME)
        log.info(
            "upstream %s: %s takes no tools, so it is asked with tool_calls: %s (%.200s)", self.name, named, mode, why
        )


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
