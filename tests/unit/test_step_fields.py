"""Steps as everybody is shown them: the fields of each kind, and what of them is contents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest

from providers.base import ProviderCall
from proxy.watching.step_fields import _WRITERS, all_fields, fields_of
from proxy.watching.steps import (
    Cited,
    Decided,
    FirstContent,
    Forwarded,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelLeft,
    Queued,
    Received,
    Retried,
    Step,
    Tokens,
    ToolBegan,
    ToolCalled,
)

SECRETIVE = "what-people-wrote"
ADDRESS = f"https://{SECRETIVE}.example/"

# Each kind: the step, what is always said of it, and what only where contents may be shown.
KINDS: list[tuple[Step, dict[str, Any], dict[str, Any]]] = [
    (Queued("server", 0.25, "key"), {"kind": "queued", "ms": 250, "queue": "server", "shed": "key"}, {}),
    (Received(0.5), {"kind": "received", "ms": 500}, {}),
    (ModelAsked("up", "m"), {"kind": "model_asked", "upstream": "up", "model": "m", "round": 3}, {}),
    (
        ModelAnswered("up", 1.5, Tokens(10, 5)),
        {"kind": "model_answered", "ms": 1500, "upstream": "up", "input_tokens": 10, "output_tokens": 5},
        {},
    ),
    (
        ModelLeft("up", Tokens(10, 2)),
        {"kind": "model_left", "upstream": "up", "input_tokens": 10, "output_tokens": 2},
        {},
    ),
    (
        Forwarded("up", 200, "chat", 0.5, Tokens(1, 2)),
        {"kind": "forwarded", "ms": 500, "upstream": "up", "status": 200, "input_tokens": 1, "output_tokens": 2},
        {},
    ),
    (ModelFailed("up", 503, "busy"), {"kind": "model_failed", "upstream": "up", "status": 503, "code": "busy"}, {}),
    (Retried("up", "asked"), {"kind": "retried", "upstream": "up", "outcome": "asked"}, {}),
    (
        ToolBegan("web_search", [{"query": SECRETIVE}]),
        {"kind": "tool_started", "tool": "web_search"},
        {"contents": [{"query": SECRETIVE}]},
    ),
    (
        ProviderCall("web", "search", "ok", True, 0.012, SECRETIVE, 900, 5),
        {
            "kind": "provider_called",
            "ms": 12,
            "tool": "web_search",
            "provider": "web",
            "outcome": "ok",
            "cached": True,
            "bytes": 900,
            "results": 5,
        },
        {"asked": SECRETIVE},
    ),
    (
        ProviderCall("reader", "read", "blocked", False, 2.0, ADDRESS),
        {
            "kind": "provider_called",
            "ms": 2000,
            "tool": "open_page",
            "provider": "reader",
            "outcome": "blocked",
            "cached": False,
            "bytes": 0,
        },
        {"asked": ADDRESS},
    ),
    (
        ToolCalled("open_page", False, 0.1, [{"url": ADDRESS}]),
        {"kind": "tool_finished", "ms": 100, "tool": "open_page", "ok": False},
        {"contents": [{"url": ADDRESS}]},
    ),
    (FirstContent(), {"kind": "first_content"}, {}),
    (
        Cited(2, "page", ADDRESS, SECRETIVE, SECRETIVE),
        {"kind": "cited", "n": 2, "basis": "page"},
        {"url": ADDRESS, "title": SECRETIVE, "cited_text": SECRETIVE},
    ),
    (Cited(2), {"kind": "cited", "n": 2, "basis": None}, {"url": "", "title": "", "cited_text": ""}),
]


@pytest.mark.parametrize(("step", "always", "contents"), KINDS, ids=lambda part: type(part).__name__)
def test_what_is_said_of_each_kind(step: Step, always: dict[str, Any], contents: dict[str, Any]) -> None:
    bare = fields_of(step, 1.2345, rounds=3)
    assert bare == {**always, "at_ms": 1234.5}
    assert SECRETIVE not in orjson.dumps(bare).decode() + repr(step)
    assert fields_of(step, 1.2345, rounds=3, contents=True) == {**bare, **contents}


@pytest.mark.parametrize(
    ("step", "search"),
    [
        (Decided(True, "auto"), "offered"),
        (Decided(True, "auto", first=True), "first"),
        (Decided(False, "tool_choice_none"), "off"),
    ],
)
def test_a_decision_is_told_with_its_reason_in_words(step: Decided, search: str) -> None:
    told = fields_of(step, 0.0)
    assert (told["search"], told["reason"]) == (search, step.reason)
    assert told["why"].endswith(".")
    assert " " in told["why"]


def test_every_kind_of_step_can_be_told_and_is_tested() -> None:
    assert set(_WRITERS) == set(get_args(Step)) == {type(step) for step, _, _ in KINDS} | {Decided}
    kinds = [kind for kind, _ in _WRITERS.values()]
    assert len(set(kinds)) == len(kinds)


def test_rounds_count_on_through_a_request() -> None:
    asked = ModelAsked("up", "m")
    told = all_fields([(0.1, asked), (0.2, ModelFailed("up", 500, "")), (0.3, asked), (0.4, FirstContent())])
    assert [fields.get("round") for fields in told] == [1, None, 2, None]
    assert [fields["at_ms"] for fields in told] == [100, 200, 300, 400]


def test_what_is_told_is_json() -> None:
    steps = [(0.5, step) for step, _, _ in KINDS]
    for contents in (False, True):
        told = all_fields(steps, contents=contents)
        assert orjson.loads(orjson.dumps(told)) == told


def test_what_others_wrote_is_cut_and_can_always_be_sent() -> None:
    half = "\ud83d \u00fc" + "x" * 20_000
    steps: list[Step] = [
        ModelAsked("up", half),
        ModelFailed("up", 500, half),
        ToolBegan("web_search", [{"query": half}]),
        ProviderCall("web", "search", "ok", False, 0.1, half),
        Cited(1, "page", half, half, half),
    ]
    told = orjson.loads(orjson.dumps(all_fields([(0.0, step) for step in steps], contents=True)))
    assert told[0]["model"].startswith("? \u00fcx")
    assert len(told[0]["model"]) == len(told[1]["code"]) == 201
    assert len(told[2]["contents"][0]["query"]) == len(told[3]["asked"]) == len(told[4]["cited_text"]) == 8193


def test_the_page_about_it_explains_every_kind_and_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "observing.md").read_text(encoding="utf-8")
    table = page.partition("| kind | says |")[2].partition("\n\n")[0]
    explained = set(re.findall(r"`(\w+)`", table)) | {"kind", "at_ms", "ms"}
    for step, always, contents in KINDS:
        assert {always["kind"], *always, *contents} <= explained, type(step).__name__
