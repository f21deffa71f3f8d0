"""The metrics, in the form that Prometheus reads. A listener that counts what observers tell it, in plain numbers that
several processes can add up; `exposition` writes them out when somebody asks. One of several workers adds what the
others have told (`snapshot`) to its own, so that it does not matter which of them is asked.

No label can grow with what clients send: upstreams, providers and tools are the operator's names, everything else is a
word of a closed list. A model's name is the client's, so it is no label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from providers.base import ProviderCall

from .metric_parts import SHORT_SECONDS, Count, Spread
from .observer import Hearer, Listener, Observer
from .steps import (
    TOOLS,
    Decided,
    FirstContent,
    Forwarded,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelLeft,
    Operation,
    Queued,
    Retried,
    Step,
    Tokens,
)

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"

_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
# What others keep, by the names of their families.
_GAUGES = {
    "groundwire_streams": "Answers of models under way, streamed or not.",
    "groundwire_connections": "Connections that clients hold.",
    "groundwire_waiting": "Who waits for a turn or for a place.",
}
_TOTALS = {
    "groundwire_connections_turned_away": "Connections that found no place, or no file descriptor.",
    "groundwire_log_dropped": "Lines of the log that were lost, because nobody took them.",
    "groundwire_audit_dropped": "Requests that are missing in the audit, because their lines could not be written.",
}

Others = Callable[[], Iterable[tuple[bytes, bool]]]


class Metrics(Listener):
    """What it is handed are numbers that others keep: of this process, but for `workers`, how many serve, and
    `restarts`, how often one took the place of another. `others` are the snapshots of the other workers, each with
    whether its process is still there."""

    def __init__(
        self,
        *,
        log_dropped: Callable[[], int] = int,
        audit_dropped: Callable[[], int] = int,
        connections: Callable[[], int] = int,
        turned_away: Callable[[], int] = int,
        waiting: Callable[[], int] = int,
        workers: Callable[[], int] = lambda: 1,
        restarts: Callable[[], int] = int,
        others: Others = tuple,
    ) -> None:
        self._workers, self._restarts = workers, restarts
        self._others = others
        self._before: Counter[str] = Counter()  # totals of who was here before us
        self.changed = True  # since the last snapshot
        self._requests = Count(
            "groundwire_requests",
            "Requests that have ended, by the upstream that was asked last and by how they ended.",
            ("dialect", "upstream", "outcome"),
        )
        self._rounds = Count("groundwire_rounds", "Questions to a model, forwarded requests too.", ("upstream",))
        self._failures = Count(
            "groundwire_model_failures",
            "Questions to a model that failed, by the kind of status.",
            ("upstream", "status"),
        )
        self._retries = Count(
            "groundwire_retries",
            "Models that failed before they had said anything, by whether they were asked again.",
            ("upstream", "outcome"),
        )
        self._calls = Count(
            "groundwire_tool_calls",
            "Calls of providers on behalf of a tool, by what became of them.",
            ("tool", "provider", "outcome"),
        )
        self._cache = Count(
            "groundwire_cache_answers", "Calls of providers by whether the cache had the answer.", ("tool", "result")
        )
        self._cooldowns = Count(
            "groundwire_provider_cooldowns", "Times that a provider began to be left alone.", ("provider",)
        )
        self._tokens = Count("groundwire_tokens", "Tokens as the models' servers counted them.", ("upstream", "type"))
        self._costs = Count(
            "groundwire_cost",
            "What requests cost by the prices of the configuration, in their currency.",
            ("kind", "source"),
        )
        self._citations = Count("groundwire_citations", "Citations in answers.", ("dialect",))
        self._provider_seconds = Spread(
            "groundwire_provider_seconds",
            "How long providers took that were asked, with the wait for their turn; without what the cache answered.",
            ("tool", "provider"),
        )
        self._first_token = Spread(
            "groundwire_first_token_seconds",
            "Streamed answers: from the request's arrival to the first text, thought or call of the answer.",
            ("dialect", "upstream"),
        )
        self._overhead = Spread(
            "groundwire_overhead_seconds",
            "What we add: from the request's arrival to the first question to a model or a provider, less the wait "
            "for its body. Nothing that a client, a model or a provider takes is in it.",
            ("dialect",),
            SHORT_SECONDS,
        )
        self._duration = Spread(
            "gen_ai_client_operation_duration_seconds",
            "How long one question to a model took, from asking to the end of its answer, where that did not fail.",
            ("gen_ai_operation_name", "gen_ai_provider_name"),
        )
        self._token_usage = Spread(
            "gen_ai_client_token_usage",
            "Tokens of one question to a model and of its answer.",
            ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_token_type"),
            _TOKENS,
        )
        self._lag = Spread(
            "groundwire_loop_lag_seconds",
            "How late the event loop was when it was looked at, ten times a second.",
            (),
            SHORT_SECONDS,
        )
        self._queue = Spread(
            "groundwire_queue_seconds",
            "How long requests waited that had to: for their turn, for a place on the server or at an upstream.",
            ("queue",),
            SHORT_SECONDS,
        )
        self._shed = Count("groundwire_shed", "Requests that were refused because they had waited.", ("reason",))
        self._answering: set[Observer] = set()
        self._parts = [part for part in vars(self).values() if isinstance(part, Count | Spread)]
        self._gauges = {
            "groundwire_streams": lambda: len(self._answering),
            "groundwire_connections": connections,
            "groundwire_waiting": waiting,
        }
        self._totals = {
            "groundwire_connections_turned_away": turned_away,
            "groundwire_log_dropped": log_dropped,
            "groundwire_audit_dropped": audit_dropped,
        }

    # As a listener

    def hearers(self) -> Mapping[type[Step], Hearer]:
        return {
            Decided: self._decided,
            ModelAsked: self._asked,
            ModelAnswered: self._answered,
            ModelFailed: self._failed,
            Retried: self._retried,
            ProviderCall: self._called,
            FirstContent: self._content_began,
            Forwarded: self._forwarded,
            ModelLeft: self._left,
            Queued: self._queued,
        }

    def ended(self, request: Observer) -> None:
        self.changed = True
        self._answering.discard(request)
        summary = request.summary
        self._requests[request.dialect, summary.upstream, request.ending] += 1
        if summary.citations:
            self._citations[request.dialect,] += summary.citations
        if summary.costs:
            for source, cost in summary.costs.items():
                self._costs[source] += cost
        if summary.overhead is not None:
            self._overhead.add(summary.overhead, request.dialect)

    def _decided(self, request: Observer, step: Decided) -> None:
        self.changed = True
        self._answering.add(request)

    def _asked(self, request: Observer, step: ModelAsked) -> None:
        self.changed = True
        self._answering.add(request)
        self._rounds[step.upstream,] += 1

    def _answered(self, request: Observer, step: ModelAnswered) -> None:
        self._count("chat", step.upstream, step.seconds, step.tokens)

    def _failed(self, request: Observer, step: ModelFailed) -> None:
        self.changed = True
        self._failures[step.upstream, f"{step.status // 100}xx"] += 1

    def _retried(self, request: Observer, step: Retried) -> None:
        self.changed = True
        self._retries[step.upstream, step.outcome] += 1

    def _forwarded(self, request: Observer, step: Forwarded) -> None:
        if step.status < 400:
            self._count(step.operation, step.upstream, step.seconds, step.tokens)

    def _left(self, request: Observer, step: ModelLeft) -> None:
        self._count("", step.upstream, 0.0, step.tokens)

    def _count(self, operation: Operation, upstream: str, seconds: float, tokens: Tokens) -> None:
        """A question whose operation has no name has tokens alone. Those that we guess are no metric."""
        self.changed = True
        if operation:
            self._duration.add(seconds, operation, upstream)
        if tokens.estimated:
            return
        for kind, number in (("input", tokens.input), ("output", tokens.output)):
            if number:
                self._tokens[upstream, kind] += number
                if operation:
                    self._token_usage.add(number, operation, upstream, kind)

    def _called(self, request: Observer, step: ProviderCall) -> None:
        self.changed = True
        tool = TOOLS[step.role]
        self._calls[tool, step.provider, step.outcome] += 1
        if step.outcome == "cooling_down":  # nobody was asked, and no cache either
            return
        self._cache[tool, "hit" if step.cached else "miss"] += 1
        if not step.cached:
            self._provider_seconds.add(step.seconds, tool, step.provider)

    def _content_began(self, request: Observer, step: FirstContent) -> None:
        self.changed = True
        self._first_token.add(request.seconds, request.dialect, request.summary.upstream)

    def _queued(self, request: Observer, step: Queued) -> None:
        self.changed = True
        self._queue.add(step.seconds, step.queue)
        if step.shed:
            self._shed[step.shed,] += 1

    # Told by others

    def cooled_down(self, provider: str, seconds: float) -> None:
        self._cooldowns[provider,] += 1

    def lagged(self, seconds: float) -> None:
        self._lag.add(seconds)

    # Written out

    def exposition(self) -> bytes:
        from .exposition import written

        return written(self.families())

    def families(self) -> Iterator[Metric]:
        from . import exposition

        parts = [part.copied() for part in self._parts]
        totals, gauges = self._read_totals(), self._read_gauges()
        for data, is_there in self._others():
            if data:
                told = orjson.loads(data)
                _add_all(parts, told)
                totals.update(told["totals"])
                gauges.update(told["gauges"] if is_there else {})
        yield from map(exposition.family, parts)
        for name, text in _GAUGES.items():
            yield exposition.gauge(name, text, gauges[name])
        for name, text in _TOTALS.items():
            yield exposition.total(name, text, totals[name])
        yield exposition.gauge("groundwire_workers", "Processes that serve.", self._workers())
        restarts = "Workers that took the place of one that had ended."
        yield exposition.total("groundwire_worker_restarts", restarts, self._restarts())

    def _read_totals(self) -> Counter[str]:
        return self._before + Counter({name: read() for name, read in self._totals.items()})

    def _read_gauges(self) -> Counter[str]:
        return Counter({name: read() for name, read in self._gauges.items()})

    # For the other workers

    def snapshot(self) -> bytes:
        """All that was counted so far, for who counts it together with its own."""
        self.changed = False
        parts = {part.name: part.told() for part in self._parts}
        return orjson.dumps({"parts": parts, "totals": self._read_totals(), "gauges": self._read_gauges()})

    def take_over(self, data: bytes) -> None:
        """Goes on from where another one was: counters must not fall because a process was replaced."""
        if data:
            told = orjson.loads(data)
            _add_all(self._parts, told)
            self._before = Counter(told["totals"])


def _add_all(parts: Iterable[Count | Spread], told: dict[str, Any]) -> None:
    for part in parts:
        part.add_told(told["parts"].get(part.name, []))
