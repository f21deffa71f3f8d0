"""What an observer is told, keeps and hands on, and the figures that come of it."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from providers.base import ProviderCall
from proxy.config.settings import LogConfig
from proxy.watching.log import RequestLog
from proxy.watching.observer import MOST_STEPS, Listener, Observer
from proxy.watching.recording import Recording
from proxy.watching.steps import (
    Cited,
    Decided,
    FirstContent,
    Forwarded,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Received,
    Step,
    Tokens,
    ToolCalled,
    tokens_in,
)
from proxy.watching.summary import MOST_LISTED, TAKERS, Summary


class Notebook(Listener):
    """A listener that takes everything down."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def began(self, request: Observer) -> None:
        self.heard.append("began")

    def told(self, request: Observer, step: Step) -> None:
        assert request.steps[-1][1] is step, "the request has it already"
        self.heard.append(step)

    def ended(self, request: Observer) -> None:
        self.heard.append(f"ended {request.outcome}")


class Clumsy(Listener):
    """A listener that fails at every turn."""

    def began(self, request: Observer) -> None:
        raise KeyError("began")

    def told(self, request: Observer, step: Step) -> None:
        raise KeyError("told")

    def ended(self, request: Observer) -> None:
        raise KeyError("ended")


def summary(*steps: Step, every: float = 1.0) -> Summary:
    """The figures of these steps, one told each second."""
    made = Summary()
    for number, step in enumerate(steps, 1):
        TAKERS[type(step)](made, step, number * every)
    return made


def provider_call(role: Any = "search", *, seconds: float = 0.25, **changes: Any) -> ProviderCall:
    return ProviderCall("library", role, changes.get("outcome", "ok"), changes.get("cached", False), seconds)


# The observer


def test_everybody_hears_of_everything_in_its_order() -> None:
    first, second = Notebook(), Notebook()
    request = Observer([first, second], request_id="req_1", method="POST", path="/v1/x", dialect="chat")
    request.tell(Decided(True, "auto"))
    request.tell(ModelAsked("up", "m"))
    request.status = 200
    request.end()
    assert first.heard == second.heard == ["began", Decided(True, "auto"), ModelAsked("up", "m"), "ended ok"]
    assert [step for _, step in request.steps] == first.heard[1:3]
    assert 0 <= request.steps[0][0] <= request.steps[1][0] <= request.seconds


def test_time_stands_still_when_a_request_has_ended() -> None:
    request = Observer()
    assert request.seconds >= 0
    request.end()
    assert request.seconds == request.seconds == request.ended - request.began


def test_what_is_told_after_the_end_is_no_part_of_it() -> None:
    """Somebody may still be on the way out: who listens has put the request away by then."""
    listener = Notebook()
    request = Observer([listener])
    request.end()
    request.tell(ModelAsked("up", "m"))
    assert listener.heard == ["began", "ended client_left"]
    assert request.steps == []
    assert request.summary.rounds == 0


def test_where_nobody_listens_no_notes_are_taken() -> None:
    request = Observer()
    request.tell(ModelAsked("up", "m"))
    assert request.steps == []
    assert request.summary.rounds == 0


@pytest.mark.parametrize(
    ("status", "failures", "outcome"),
    [
        (200, [], "ok"),
        (204, [], "ok"),
        (0, [], "client_left"),
        (405, [], "http_405"),
        (503, [], "http_503"),
        (200, ["upstream_truncated"], "upstream_truncated"),
        (401, ["invalid_api_key", "other"], "invalid_api_key"),
        (200, [None], "error"),
        (200, [""], "error"),
        (429, [429], "429"),
    ],
)
def test_the_outcome_is_the_first_failure_or_what_the_status_says(
    status: int, failures: list[object], outcome: str
) -> None:
    request = Observer()
    for code in failures:
        request.fail(code)
    request.status = status
    request.end()
    assert request.outcome == outcome


def test_a_listener_that_fails_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    notebook = Notebook()
    with caplog.at_level(logging.ERROR, "groundwire"):
        request = Observer([Clumsy(), notebook])
        request.tell(FirstContent())
        request.end()
    assert notebook.heard == ["began", FirstContent(), "ended client_left"]
    assert [record.getMessage() for record in caplog.records] == ["Clumsy failed while it watched a request"] * 3


def test_steps_are_kept_up_to_a_limit_and_counted_beyond_it() -> None:
    request = Observer([Listener()])
    for n in range(MOST_STEPS + 10):
        request.tell(Cited(n))
    assert len(request.steps) == MOST_STEPS
    assert request.summary.citations == MOST_STEPS + 10


def test_the_listener_in_the_documents_works(caplog: pytest.LogCaptureFixture) -> None:
    page = (Path(__file__).parents[2] / "docs" / "observing.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    made: dict[str, Any] = {}
    exec(code, made)
    request = Observer([made["SlowProviders"]()], request_id="req_1")
    with caplog.at_level(logging.WARNING, "groundwire"):
        request.tell(provider_call(seconds=0.1))
        request.tell(provider_call(seconds=2.5))
        request.end()
    assert [record.getMessage() for record in caplog.records] == ["req_1 waited 2.5 s for library"]


# Its figures


def test_there_is_a_figure_for_every_kind_of_step() -> None:
    assert set(TAKERS) == set(get_args(Step))


def test_an_answer_in_two_rounds() -> None:
    search, page = provider_call(), provider_call("read")
    made = summary(
        Decided(True, "auto"),
        ModelAsked("up", "m"),
        ModelAnswered("up", 0.5, Tokens(10, 5)),
        search,
        page,
        ToolCalled("web_search", True, 0.3, [{"query": "q"}]),
        ModelAsked("up", "m"),
        FirstContent(),
        Cited(1),
        Cited(1),
        ModelAnswered("up", 0.5, Tokens(20, 7)),
    )
    assert (made.search, made.reason) == ("offered", "auto")
    assert (made.upstream, made.model, made.rounds) == ("up", "m", 2)
    assert made.calls == [search, page]
    assert (made.input_tokens, made.output_tokens, made.citations) == (30, 12, 2)
    assert made.first_content == 8.0
    assert made.contents() == [{"tool": "web_search", "query": "q"}]


def test_after_a_fallback_both_upstreams_are_named() -> None:
    failed = ModelFailed("first", 503, "overloaded")
    made = summary(ModelAsked("first", "m"), failed, ModelAsked("second", "other"))
    assert (made.upstream, made.model, made.rounds) == ("second", "other", 2)
    assert made.model_failures == [failed]


def test_forwarded_tokens_count_like_any() -> None:
    made = summary(ModelAsked("up", "m"), Forwarded("up", 200, "chat", 0.5, Tokens(10, 5)))
    assert (made.upstream, made.rounds, made.input_tokens, made.output_tokens) == ("up", 1, 10, 5)


@pytest.mark.parametrize(
    ("decisions", "shown"),
    [
        ([], ("", "")),
        ([Decided(False, "tool_choice_none")], ("off", "tool_choice_none")),
        ([Decided(True, "auto"), Decided(True, "auto", first=True)], ("first", "auto")),
        ([Decided(True, "auto"), Decided(False, "smalltalk")], ("off", "smalltalk")),
    ],
)
def test_what_was_decided_last_holds(decisions: list[Step], shown: tuple[str, str]) -> None:
    made = summary(*decisions)
    assert (made.search, made.reason) == shown


@pytest.mark.parametrize(
    ("steps", "overhead"),
    [
        ([], None),
        ([Decided(False, "off")], None),
        ([ModelAsked("up", "m"), ModelAsked("up", "m")], 1.0),
        ([Received(0.75), ModelAsked("up", "m")], 1.25),
        ([Received(0.75), provider_call(seconds=1.0), ModelAsked("up", "m")], 0.25),
        ([provider_call(seconds=1.5)], 0.0),
    ],
)
def test_overhead_is_what_passes_before_the_first_question_less_the_wait_for_the_client(
    steps: list[Step], overhead: float | None
) -> None:
    assert summary(*steps).overhead == overhead


def test_lists_are_bounded() -> None:
    made = summary(*[provider_call()] * 200, *[ModelFailed("up", 500, "")] * 200, *[ToolCalled("t", True, 0.0)] * 200)
    assert len(made.calls) == len(made.model_failures) == len(made.tools) == MOST_LISTED


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, Tokens(10, 5)),
        ({"input_tokens": 10, "output_tokens": 5}, Tokens(10, 5)),
        ({"prompt_tokens": 3.0, "total_tokens": 3}, Tokens(3, 0)),
        ({"prompt_tokens": None, "input_tokens": 4}, Tokens(4, 0)),
        ({}, Tokens()),
        ({"prompt_tokens": "10", "completion_tokens": [5]}, Tokens()),
        ({"prompt_tokens": True, "completion_tokens": -5}, Tokens()),
        ({"prompt_tokens": math.inf, "completion_tokens": math.nan}, Tokens()),
        ({"prompt_tokens": 10**400, "completion_tokens": 10**13}, Tokens()),
    ],
)
def test_tokens_are_counts_or_nothing(usage: dict[str, Any], tokens: Tokens) -> None:
    assert tokens_in(usage) == tokens


def test_what_listeners_hear_late_of_is_written_down_for_when_it_ended() -> None:
    lines: list[str] = []
    request = Observer([RequestLog(LogConfig(format="json"), write=lines.append)], "req_1", "GET", "/v1/x", "chat")
    request.stop()
    assert request.ended_at == pytest.approx(time.time(), abs=60)
    request.ended_at -= 7200  # as if it was told of two hours later
    request.tell_end()
    told = datetime.fromisoformat(json.loads(lines[0])["time"]).timestamp()
    assert told == pytest.approx(request.ended_at, abs=0.001)
    assert Recording(request, contents=False).ended == request.ended_at
