"""The upstreams that may serve one request, in order. Handed a body, asks the first; if it fails before anything was
said, the next one is asked, with its own key and its own name for the model. Once one has spoken, the request stays.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from ..config.upstreams import UpstreamConfig
from ..values.events import Begun, Event, Failed
from .client import ToolMode, UpstreamClient, tools_not_taken, tools_refused

log = logging.getLogger("groundwire")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An upstream, the model's name there, and the headers that may go there: no other one sees a client's own key."""

    upstream: UpstreamClient
    model: str
    headers: Mapping[str, str]

    @property
    def settings(self) -> UpstreamConfig:
        return self.upstream.config.of(self.model)


class FallbackPlan:
    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = list(candidates)
        self._settled = len(self._candidates) == 1

    @property
    def candidates(self) -> Sequence[Candidate]:
        return tuple(self._candidates)

    @property
    def current(self) -> Candidate:
        return self._candidates[0]

    @property
    def tool_mode(self) -> ToolMode:
        return self.current.upstream.tool_mode(self.current.model)

    async def look_up(self) -> ToolMode:
        return await self.current.upstream.look_up(self.current.model)

    def stream(
        self, body: dict[str, Any], known_tools: Sequence[Any] | None = None
    ) -> AsyncGenerator[list[Event], None]:
        """Asks the model once, as `UpstreamClient.stream`."""
        if self._settled:  # nobody else is left to ask: nothing stands between the upstream and the loop
            candidate = self.current
            return candidate.upstream.stream({**body, "model": candidate.model}, candidate.headers, known_tools)
        return self._try_in_order(body, known_tools)

    async def _try_in_order(
        self, body: dict[str, Any], known_tools: Sequence[Any] | None
    ) -> AsyncGenerator[list[Event], None]:
        while True:
            candidate, failed = self.current, None
            early: list[Event] = []  # what was said before the first content
            asked = {**body, "model": candidate.model}
            async with aclosing(candidate.upstream.stream(asked, candidate.headers, known_tools)) as batches:
                async for batch in batches:
                    if not self._settled:
                        last = batch[-1]
                        silent = all(isinstance(event, Begun) for event in batch[:-1])
                        if isinstance(last, Failed) and silent and _may_go_on(last):
                            failed = last
                            break
                        early += batch
                        if silent and isinstance(last, Begun):
                            continue
                        self._settled = not isinstance(last, Failed)
                        batch, early = early, []
                    yield batch
            if failed is None:
                if early:
                    yield early
                return
            del self._candidates[0]
            self._settled = len(self._candidates) == 1
            mode = await self.look_up()
            log.warning(
                "upstream %s failed (HTTP %d): trying %s",
                candidate.upstream.name,
                failed.status,
                self.current.upstream.name,
            )
            if mode == "none" and body.get("tools"):  # this one wants to be searched for first
                yield [tools_not_taken(failed)]
                return


def is_servers_trouble(status: int) -> bool:
    """Is it the server that failed, not the request? Then another server may do better."""
    return status >= 500 or status in (408, 429)


def _may_go_on(failed: Failed) -> bool:
    return is_servers_trouble(failed.status) and not tools_refused(failed)
