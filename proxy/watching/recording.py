"""One request that has ended, as it is kept: little enough that hundreds can be, and without what people wrote unless
that may be kept. Handed its observer; hands on a row for lists and its steps, made when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from providers.base import ProviderCall, Role

from .contents import LONGEST_NAME, printable
from .log import without_secrets
from .observer import Observer
from .reasons import why
from .step_fields import all_fields, milliseconds
from .steps import Cited, ModelAsked, ModelFailed, Step, ToolBegan, ToolCalled
from .summary import Summary

MOST_STEPS = 250  # the first of them
MOST_CONTENTS = 20_000  # characters of a request; what comes behind them is left out
_STEP = 200  # characters of a step, besides what people wrote

Row = dict[str, Any]


class Recording:
    """`contents`: may what was searched for, opened and cited be kept?"""

    __slots__ = (
        "_contents",
        "_dialect",
        "_key",
        "_method",
        "_outcome",
        "_path",
        "_seconds",
        "_status",
        "_steps",
        "_summary",
        "ended",
        "id",
        "weight",
    )

    def __init__(self, request: Observer, contents: bool) -> None:
        self.id = request.id
        self.ended = request.ended_at
        self._contents = contents
        self._key = request.caller
        self._dialect = request.dialect
        self._method = request.method[:LONGEST_NAME]
        self._path = request.path[:LONGEST_NAME]
        self._status = request.status
        self._outcome = request.outcome
        self._seconds = request.seconds
        self._steps, written = _lightened(request.steps, MOST_CONTENTS if contents else 0)
        self.weight = written + len(self._steps) * _STEP  # characters, about
        self._summary = _without_contents(request.summary)

    def row(self) -> Row:
        summary, cost = self._summary, {}
        if summary.prices.set:
            cost = {"cost": round(summary.cost, 8)}
        return {
            "id": self.id,
            "time": datetime.fromtimestamp(self.ended - self._seconds, UTC).isoformat(timespec="milliseconds"),
            "key": self._key,
            "dialect": self._dialect,
            "method": _shown(self._method),
            "path": _shown(self._path),
            "status": self._status,
            "model": _shown(summary.model),
            "upstream": summary.upstream,
            "search": summary.search,
            "reason": summary.reason,
            "why": why(summary, self._outcome),
            "rounds": summary.rounds,
            "retries": summary.retries,
            "searches": self._calls("search"),
            "pages": self._calls("read"),
            "citations": summary.citations,
            "input_tokens": summary.input_tokens,
            "output_tokens": summary.output_tokens,
            **cost,
            "first_token_ms": None if summary.first_content is None else milliseconds(summary.first_content),
            "ms": milliseconds(self._seconds),
            "queued_ms": milliseconds(summary.queued),
            "outcome": without_secrets(self._outcome),
        }

    def steps(self) -> list[Row]:
        told = all_fields(self._steps, contents=self._contents)
        return [{name: _masked(value) for name, value in fields.items()} for fields in told]

    def _calls(self, role: Role) -> list[Row]:
        return [
            {
                "provider": call.provider,
                "cached": call.cached,
                "ms": milliseconds(call.seconds),
                "outcome": call.outcome,
            }
            for call in self._summary.calls
            if call.role == role
        ]


def _shown(text: str) -> str:
    return without_secrets(printable(text, LONGEST_NAME))


def _masked(value: Any) -> Any:
    """A client may have put a key of the operator's anywhere."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, list):
        return [{name: without_secrets(text) for name, text in texts.items()} for texts in value]
    return value


def _without_contents(summary: Summary) -> Summary:
    """The same figures. Most requests have nothing in them that would have to go."""
    heavy = summary.calls or summary.tools or summary.model_failures or len(summary.model) > LONGEST_NAME
    if not heavy:
        return summary
    light = summary.copied()
    light.model = _cut(summary.model)
    light.calls = list(map(_bare_call, summary.calls))
    light.tools = [ToolCalled(tool.tool[:LONGEST_NAME], tool.ok, tool.seconds) for tool in summary.tools]
    light.model_failures = []
    return light


def _lightened(steps: list[tuple[float, Step]], room: int) -> tuple[list[tuple[float, Step]], int]:
    """The same steps, and how many characters people wrote into them: that stays as long as there is room."""
    out, most = steps[:MOST_STEPS], room
    for place, (seconds, step) in enumerate(out):
        if lighten := _LIGHTER.get(type(step)):
            light, weight = lighten(step, room)
            room -= weight
            if light is not step:
                out[place] = seconds, light
    return out, most - room


def _asked(step: ModelAsked, room: int) -> tuple[Step, int]:
    return (step if len(step.model) <= LONGEST_NAME else ModelAsked(step.upstream, _cut(step.model))), 0


def _failed(step: ModelFailed, room: int) -> tuple[Step, int]:
    return (step if len(step.code) <= LONGEST_NAME else ModelFailed(step.upstream, step.status, _cut(step.code))), 0


def _tool_began(step: ToolBegan, room: int) -> tuple[Step, int]:
    weight = _length(step.contents)
    return (step, weight) if weight <= room else (ToolBegan(step.tool), 0)


def _tool_called(step: ToolCalled, room: int) -> tuple[Step, int]:
    weight = _length(step.contents)
    return (step, weight) if weight <= room else (ToolCalled(step.tool, step.ok, step.seconds), 0)


def _called(step: ProviderCall, room: int) -> tuple[Step, int]:
    weight = len(step.asked)
    return (step, weight) if weight <= room else (_bare_call(step), 0)


def _cited(step: Cited, room: int) -> tuple[Step, int]:
    weight = len(step.url) + len(step.title) + len(step.quote)
    return (step, weight) if weight <= room else (Cited(step.n, step.basis), 0)


def _length(contents: Sequence[Mapping[str, str]]) -> int:
    return sum([len(text) for texts in contents for text in texts.values()])


def _bare_call(call: ProviderCall) -> ProviderCall:
    return ProviderCall(
        call.provider, call.role, call.outcome, call.cached, call.seconds, size=call.size, results=call.results
    )


def _cut(text: str) -> str:
    return text[: LONGEST_NAME + 1]


# Every kind of step that holds what others wrote.
_LIGHTER: dict[type, Callable[[Any, int], tuple[Step, int]]] = {
    ModelAsked: _asked,
    ModelFailed: _failed,
    ToolBegan: _tool_began,
    ToolCalled: _tool_called,
    ProviderCall: _called,
    Cited: _cited,
}
