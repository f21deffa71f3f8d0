"""The metrics, in the form that Prometheus reads. A listener that counts what observers tell it, in plain numbers that
several processes can add up; `exposition` writes them out when somebody asks.

No label can grow with what clients send: upstreams, providers and tools are the operator's names, everything else is a
word of a closed list. A model's name is the client's, so it is no label.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from providers.base import ProviderCall

from .observer import Listener, Observer
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

__all__ = ["CONTENT_TYPE", "Metrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_SHORT_SECONDS = (0.0005, 0.001, 0.0025, *_SECONDS[:10])  # of what we do ourselves
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)

Labels = tuple[str, ...]


class _Count:
    """A number that only grows, for each set of labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self.values: Counter[Labels] = Counter()

    def add(self, *labels: str, by: float = 1) -> None:
        self.values[labels] += by  # type: ignore[assignment]  # Counter is typed for whole numbers

    def family(self) -> Metric:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family


class _Spread:
    """A histogram, for each set of labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float] = _SECONDS) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._bounds = bounds
        self.counts: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self.sums: Counter[Labels] = Counter()
        if not labels:
            self.counts[()]  # shown from the start

    def add(self, value: float, *labels: str) -> None:
        self.counts[labels][bisect_left(self._bounds, value)] += 1
        self.sums[labels] += value  # type: ignore[assignment]  # Counter is typed for whole numbers

    def family(self) -> Metric:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, counts in self.counts.items():
            family.add_metric(labels, list(self._buckets(counts)), self.sums[labels])
        return family

    def _buckets(self, counts: Sequence[int]) -> Iterator[tuple[str, float]]:
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            total += count
            yield bound, total


class Metrics(Listener):
    """`collect` is what the Prometheus library asks for. What it is handed are numbers that others keep."""

    def __init__(
        self,
        *,
        log_dropped: Callable[[], int] = int,
        audit_dropped: Callable[[], int] = int,
        connections: Callable[[], int] = int,
        turned_away: Callable[[], int] = int,
        waiting: Callable[[], int] = int,
    ) -> None:
        self._log_dropped = log_dropped
        self._audit_dropped = audit_dropped
        self._connections = connections
        self._turned_away = turned_away
        self._waiting = waiting
        self._requests = _Count(
            "groundwire_requests",
            "Requests that have ended, by the upstream that was asked last and by how they ended.",
            ("dialect", "upstream", "outcome"),
        )
        self._rounds = _Count("groundwire_rounds", "Questions to a model, forwarded requests too.", ("upstream",))
        self._failures = _Count(
            "groundwire_model_failures",
            "Questions to a model that failed, by the kind of status.",
            ("upstream", "status"),
        )
        self._retries = _Count(
            "groundwire_retries",
            "Models that failed before they had said anything, by whether they were asked again.",
            ("upstream", "outcome"),
        )
        self._calls = _Count(
            "groundwire_tool_calls",
            "Calls of providers on behalf of a tool, by what became of them.",
            ("tool", "provider", "outcome"),
        )
        self._cache = _Count(
            "groundwire_cache_answers", "Calls of providers by whether the cache had the answer.", ("tool", "result")
        )
        self._cooldowns = _Count(
            "groundwire_provider_cooldowns", "Times that a provider began to be left alone.", ("provider",)
        )
        self._tokens = _Count("groundwire_tokens", "Tokens as the models' servers counted them.", ("upstream", "type"))
        self._costs = _Count(
            "groundwire_cost",
            "What requests cost by the prices of the configuration, in their currency.",
            ("kind", "source"),
        )
        self._citations = _Count("groundwire_citations", "Citations in answers.", ("dialect",))
        self._provider_seconds = _Spread(
            "groundwire_provider_seconds",
            "How long providers took that were asked, with the wait for their turn; without what the cache answered.",
            ("tool", "provider"),
        )
        self._first_token = _Spread(
            "groundwire_first_token_seconds",
            "Streamed answers: from the request's arrival to the first text, thought or call of the answer.",
            ("dialect", "upstream"),
        )
        self._overhead = _Spread(
            "groundwire_overhead_seconds",
            "What we add: from the request's arrival to the first question to a model or a provider, less the wait "
            "for its body. Nothing that a client, a model or a provider takes is in it.",
            ("dialect",),
            _SHORT_SECONDS,
        )
        self._duration = _Spread(
            "gen_ai_client_operation_duration_seconds",
            "How long one question to a model took, from asking to the end of its answer, where that did not fail.",
            ("gen_ai_operation_name", "gen_ai_provider_name"),
        )
        self._token_usage = _Spread(
            "gen_ai_client_token_usage",
            "Tokens of one question to a model and of its answer.",
            ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_token_type"),
            _TOKENS,
        )
        self._lag = _Spread(
            "groundwire_loop_lag_seconds",
            "How late the event loop was when it was looked at, ten times a second.",
            (),
            _SHORT_SECONDS,
        )
        self._queue = _Spread(
            "groundwire_queue_seconds",
            "How long requests waited that had to: for their turn, for a place on the server or at an upstream.",
            ("queue",),
            _SHORT_SECONDS,
        )
        self._shed = _Count("groundwire_shed", "Requests that were refused because they had waited.", ("reason",))
        self._answering: set[Observer] = set()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._tellers: dict[type, Callable[..., None]] = {
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

    # As a listener

    def told(self, request: Observer, step: Step) -> None:
        teller = self._tellers.get(type(step))
        if teller:
            teller(request, step)

    def ended(self, request: Observer) -> None:
        self._answering.discard(request)
        summary = request.summary
        self._requests.add(request.dialect, summary.upstream, _outcome(request))
        if summary.citations:
            self._citations.add(request.dialect, by=summary.citations)
        for (kind, name), cost in summary.costs.items():
            self._costs.add(kind, name, by=cost)
        if summary.overhead is not None:
            self._overhead.add(summary.overhead, request.dialect)

    def _decided(self, request: Observer, step: Decided) -> None:
        self._answering.add(request)

    def _asked(self, request: Observer, step: ModelAsked) -> None:
        self._answering.add(request)
        self._rounds.add(step.upstream)

    def _answered(self, request: Observer, step: ModelAnswered) -> None:
        self._count("chat", step.upstream, step.seconds, step.tokens)

    def _failed(self, request: Observer, step: ModelFailed) -> None:
        self._failures.add(step.upstream, f"{step.status // 100}xx")

    def _retried(self, request: Observer, step: Retried) -> None:
        self._retries.add(step.upstream, step.outcome)

    def _forwarded(self, request: Observer, step: Forwarded) -> None:
        if step.status < 400:
            self._count(step.operation, step.upstream, step.seconds, step.tokens)

    def _left(self, request: Observer, step: ModelLeft) -> None:
        self._count_tokens(step.upstream, step.tokens)

    def _count(self, operation: Operation, upstream: str, seconds: float, tokens: Tokens) -> None:
        counted = self._count_tokens(upstream, tokens)
        if not operation:
            return
        self._duration.add(seconds, operation, upstream)
        for kind, number in counted:
            self._token_usage.add(number, operation, upstream, kind)

    def _count_tokens(self, upstream: str, tokens: Tokens) -> list[tuple[str, int]]:
        """Those that a server has counted: what we guess is no metric."""
        kinds = () if tokens.estimated else (("input", tokens.input), ("output", tokens.output))
        counted = [(kind, number) for kind, number in kinds if number]
        for kind, number in counted:
            self._tokens.add(upstream, kind, by=number)
        return counted

    def _called(self, request: Observer, step: ProviderCall) -> None:
        tool = TOOLS[step.role]
        self._calls.add(tool, step.provider, step.outcome)
        if step.outcome == "cooling_down":  # nobody was asked, and no cache either
            return
        self._cache.add(tool, "hit" if step.cached else "miss")
        if not step.cached:
            self._provider_seconds.add(step.seconds, tool, step.provider)

    def _content_began(self, request: Observer, step: FirstContent) -> None:
        self._first_token.add(request.seconds, request.dialect, request.summary.upstream)

    def _queued(self, request: Observer, step: Queued) -> None:
        self._queue.add(step.seconds, step.queue)
        if step.shed:
            self._shed.add(step.shed)

    # Told by others

    def cooled_down(self, provider: str, seconds: float) -> None:
        self._cooldowns.add(provider)

    def lagged(self, seconds: float) -> None:
        self._lag.add(seconds)

    # Written out

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        counted = [part for part in vars(self).values() if isinstance(part, _Count | _Spread)]
        yield from (part.family() for part in counted)
        yield GaugeMetricFamily(
            "groundwire_streams", "Answers of models under way, streamed or not.", value=len(self._answering)
        )
        yield GaugeMetricFamily("groundwire_connections", "Connections that clients hold.", value=self._connections())
        yield CounterMetricFamily(
            "groundwire_connections_turned_away",
            "Connections that found no place, or no file descriptor.",
            value=self._turned_away(),
        )
        yield CounterMetricFamily(
            "groundwire_log_dropped",
            "Lines of the log that were lost, because nobody took them.",
            value=self._log_dropped(),
        )
        yield CounterMetricFamily(
            "groundwire_audit_dropped",
            "Requests that are missing in the audit, because their lines could not be written.",
            value=self._audit_dropped(),
        )
        yield GaugeMetricFamily("groundwire_waiting", "Who waits for a turn or for a place.", value=self._waiting())


def _outcome(request: Observer) -> str:
    """One of four words: the codes of errors may come from a model's server."""
    if request.outcome in ("ok", "client_left"):
        return request.outcome
    if request.outcome in ("client_stalled", "client_cancelled"):  # it is there, and wants no more
        return "client_left"
    return "refused" if 400 <= request.status < 500 else "failed"
