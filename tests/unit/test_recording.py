"""A request that has ended, as it is kept: its row, its steps; neither grows nor tells with what people send."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import orjson
import pytest

from providers.base import ProviderCall
from proxy.config.prices import PricesConfig
from proxy.watching import log, recording
from proxy.watching.observer import Listener, Observer
from proxy.watching.prices import NO_PRICES, PriceList
from proxy.watching.recording import MOST_CONTENTS, MOST_STEPS, Recording
from proxy.watching.steps import (
    Cited,
    Decided,
    FirstContent,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Queued,
    Retried,
    Step,
    Tokens,
    ToolBegan,
    ToolCalled,
)
from proxy.watching.summary import Summary

SECRETIVE = "what-people-wrote"
ADDRESS = f"https://{SECRETIVE}.example/"
CONTENTS = [{"query": SECRETIVE}]

SEARCHED: list[Step] = [
    Queued("server", 0.25),
    Decided(True, "auto"),
    ModelAsked("first", "m"),
    ModelFailed("first", 503, "busy"),
    Retried("first", "asked"),
    ModelAsked("up", "m"),
    ModelAnswered("up", 0.5, Tokens(10, 5)),
    ToolBegan("web_search", CONTENTS),
    ProviderCall("web", "search", "timed_out", False, 1.0, SECRETIVE),
    ProviderCall("ddg", "search", "ok", True, 0.012, SECRETIVE, 900, 5),
    ToolCalled("web_search", True, 1.1, CONTENTS),
    ProviderCall("reader", "read", "ok", False, 0.5, ADDRESS, 9000),
    ModelAsked("up", "m"),
    FirstContent(),
    Cited(1, "page", ADDRESS, SECRETIVE, SECRETIVE),
    ModelAnswered("up", 0.5, Tokens(20, 7)),
]


def observed(*steps: Step, prices: PriceList = NO_PRICES, **said: Any) -> Observer:
    given = {"request_id": "req_1", "method": "POST", "path": "/v1/chat/completions", "dialect": "chat", **said}
    request = Observer([Listener()], prices=prices, **given)
    request.caller, request.status = "alice", 200
    for step in steps:
        request.tell(step)
    request.end()
    return request


def test_the_row_of_a_searched_request() -> None:
    before = time.time()
    row = Recording(observed(*SEARCHED), contents=False).row()
    assert row["time"].startswith(time.strftime("%Y-%m-%dT%H:", time.gmtime(before)))
    assert row["time"].endswith("+00:00")
    assert row.pop("first_token_ms") <= row.pop("ms")
    assert row.pop("time")
    assert "cites what was found" in row.pop("why")
    assert row == {
        "id": "req_1",
        "key": "alice",
        "dialect": "chat",
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "model": "m",
        "upstream": "up",
        "search": "offered",
        "reason": "auto",
        "rounds": 3,
        "retries": 1,
        "searches": [
            {"provider": "web", "cached": False, "ms": 1000.0, "outcome": "timed_out"},
            {"provider": "ddg", "cached": True, "ms": 12.0, "outcome": "ok"},
        ],
        "pages": [{"provider": "reader", "cached": False, "ms": 500.0, "outcome": "ok"}],
        "citations": 1,
        "input_tokens": 30,
        "output_tokens": 12,
        "queued_ms": 250.0,
        "outcome": "ok",
    }


def test_without_a_first_token_there_is_null_and_with_prices_a_cost() -> None:
    prices = PriceList(PricesConfig.model_validate({"models": {"m": {"input": 1000}}}))
    row = Recording(
        observed(ModelAsked("up", "m"), ModelAnswered("up", 0.5, Tokens(10, 5)), prices=prices), contents=False
    ).row()
    assert row["first_token_ms"] is None
    assert row["cost"] == 0.01


def test_contents_are_kept_only_where_they_may_be() -> None:
    request = observed(*SEARCHED)
    bare, whole = (Recording(request, contents=contents) for contents in (False, True))
    assert SECRETIVE not in orjson.dumps([bare.row(), bare.steps(), whole.row()]).decode()
    assert SECRETIVE not in repr([_held(bare, name) for name in Recording.__slots__])
    assert not [part for part in _texts(bare) if SECRETIVE in part]
    assert orjson.dumps(whole.steps()).decode().count(SECRETIVE) == 8
    assert [step["kind"] for step in bare.steps()] == [step["kind"] for step in whole.steps()]
    assert request.summary.contents() == [{"tool": "web_search", "query": SECRETIVE}], "nobody else's is touched"


def _held(record: Recording, name: str) -> object:
    return getattr(record, name)


def _texts(record: Recording) -> list[str]:
    """All that it holds of steps, `repr` or not."""
    held = [step for _, step in record._steps] + [*record._summary.calls, *record._summary.tools]
    return [str(getattr(step, name)) for step in held for name in type(step).__slots__]


def test_a_hostile_request_takes_a_bounded_room() -> None:
    long = "x" * 1_000_000
    steps: list[Step] = [
        ModelAsked("up", long),
        *[ModelFailed("up", 500, long)] * 50,
        *[ToolBegan("web_search", [{"query": long}])] * 50,
        *[ToolCalled("x" * 100, True, 0.1, [{"query": long}])] * 50,
        *[ProviderCall("web", "search", "ok", False, 0.1, long)] * 50,
        *[Cited(1, "page", long, long, long)] * 400,
    ]
    record = Recording(observed(*steps, path="/v1/" + long, method=long), contents=True)
    assert len(record.steps()) == MOST_STEPS
    assert len(orjson.dumps([record.row(), record.steps()])) < 120_000
    assert sum(map(len, _texts(record))) < MOST_CONTENTS + MOST_STEPS * 1000
    many = [ToolBegan("web_search", [{"query": "q" * 1000}])] * 100
    kept = orjson.dumps(Recording(observed(*many), contents=True).steps())
    assert MOST_CONTENTS <= kept.count(b"q" * 100) * 100 <= MOST_CONTENTS + 2000


@pytest.fixture
def key() -> Iterator[str]:
    """One of the operator's, which no line may show."""
    before = log._Lines.secrets
    log.hide(["sk-of-the-operator-0123456789"])
    yield "sk-of-the-operator-0123456789"
    log.hide(before)


def test_what_cannot_be_sent_is_escaped_and_no_key_is_shown(key: str) -> None:
    request = observed(ModelAsked("up", f"\ud800{key}"), ModelFailed("up", 500, key), path=f"/v1/{key}")
    record = Recording(request, contents=True)
    shown = orjson.dumps([record.row(), record.steps()]).decode()
    assert key not in shown
    assert "***" in shown
    cut = Recording(observed(ModelAsked("up", "m" * 184 + key)), contents=True)
    assert key[:16] not in orjson.dumps([cut.row(), cut.steps()]).decode()


def test_a_plain_request_is_kept_without_a_copy() -> None:
    request = observed(Decided(False, "header"), ModelAsked("up", "m"), ModelAnswered("up", 0.1, Tokens(1, 1)))
    record = Recording(request, contents=False)
    assert record._summary is request.summary
    assert [step for _, step in record._steps] == [step for _, step in request.steps]


def test_every_step_that_holds_contents_can_be_emptied() -> None:
    for step in SEARCHED:
        if SECRETIVE in "".join(str(getattr(step, name)) for name in type(step).__slots__):
            assert type(step) in recording._LIGHTER


@pytest.mark.parametrize(
    ("kind", "lightened"),
    [
        (ModelAsked, {"model"}),
        (ModelFailed, {"code"}),
        (ToolBegan, {"contents"}),
        (ToolCalled, {"contents"}),
        (ProviderCall, {"asked"}),
        (Cited, {"url", "title", "quote"}),
    ],
)
def test_of_a_step_only_what_is_heavy_goes(kind: type[Step], lightened: set[str]) -> None:
    held: dict[str, Any] = {field.name: 300 * field.name for field in fields(kind)}
    if "contents" in held:
        held["contents"] = CONTENTS
    light, weight = recording._LIGHTER[kind](kind(**held), 0)
    assert weight == 0
    assert {name for name, value in held.items() if getattr(light, name) != value} == lightened


def test_a_copy_of_a_summary_has_all_that_it_has() -> None:
    summary = observed(*SEARCHED).summary
    copied = summary.copied()
    assert [getattr(copied, name) for name in Summary.__slots__] == [
        getattr(summary, name) for name in Summary.__slots__
    ]
