"""What clients ask for themselves is told from what people ask: a corpus of both, with no mistake either way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.answering.housekeeping import SIGNALS, Said, Signal, is_housekeeping
from proxy.answering.offer import decide
from proxy.dialects.chat import decode
from proxy.values.messages import text_of

CORPUS = yaml.safe_load((Path(__file__).parents[1] / "data" / "housekeeping.yaml").read_text(encoding="utf-8"))
ORDINARY: list[Any] = CORPUS["ordinary"]
HOUSEKEEPING: list[Any] = [entry for entries in CORPUS["housekeeping"].values() for entry in entries]
TITLE = CORPUS["housekeeping"]["Open WebUI 0.12"][0]


def body_of(entry: Any) -> dict[str, Any]:
    entry = entry if isinstance(entry, dict) else {"user": entry}
    messages = [{"role": "system", "content": entry["system"]}] if "system" in entry else []
    for turn in entry.get("before", ()):
        messages += [{"role": role, "content": text} for role, text in turn.items()]
    if "user" in entry:
        messages.append({"role": "user", "content": entry["user"]})
    if "system_last" in entry:
        messages.append({"role": "system", "content": entry["system_last"]})
    tools = [{"type": "function", "function": {"name": name}} for name in entry.get("tools", ())]
    return {"model": "m", "messages": messages, **({"tools": tools} if tools else {})}


def decided(body: dict[str, Any], mode: str = "auto", header: str = "") -> str:
    return decide(decode(json.dumps(body).encode()), mode, header, True).header


def test_the_corpus_is_large_enough() -> None:
    assert len(ORDINARY) >= 100
    assert len(HOUSEKEEPING) >= 30
    assert len(CORPUS["housekeeping"]) >= 8


def test_nothing_that_people_ask_is_housekeeping() -> None:
    assert [entry for entry in ORDINARY if is_housekeeping(body_of(entry))] == []


def test_everything_that_clients_ask_for_themselves_is() -> None:
    assert [entry for entry in HOUSEKEEPING if not is_housekeeping(body_of(entry))] == []


def test_every_signal_is_shown_by_the_corpus_in_its_place() -> None:
    ends = [(body["messages"][0], body["messages"][-1]) for body in map(body_of, HOUSEKEEPING)]
    said = {"system": [Said(text_of(first)) for first, _ in ends], "last": [Said(text_of(last)) for _, last in ends]}
    unseen = [signal.begins for signal in SIGNALS if not any(map(signal.fits, said[signal.where]))]
    assert unseen == []


def test_signals_are_written_as_they_are_compared() -> None:
    for signal in SIGNALS:
        assert signal.begins == " ".join(signal.begins.lower().split())
        assert signal.holds == signal.holds.lower()


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.begins[:30])
def test_how_a_signal_is_spaced_and_in_what_letters_does_not_matter(signal: Signal) -> None:
    text = " \n" + signal.begins.upper().replace(" ", "\t\u2003\n") + " " + signal.holds
    role = "system" if signal.where == "system" else "user"
    assert is_housekeeping({"messages": [{"role": role, "content": text}]})
    assert is_housekeeping({"messages": [{"role": role, "content": [{"type": "text", "text": text}]}]})
    assert not is_housekeeping({"messages": [{"role": role, "content": "x" + text}]})
    assert not is_housekeeping({"messages": [{"role": "assistant", "content": text}]})


def test_auto_steps_aside_and_says_why() -> None:
    assert decided(body_of(TITLE)) == "off; reason=background"
    assert decided(body_of(TITLE), mode="on_request") == "off; reason=not_requested"


@pytest.mark.parametrize("fields", [{"web_search_options": {}}, {"tools": [{"type": "web_search"}]}])
def test_who_asks_for_search_gets_it(fields: dict[str, Any]) -> None:
    assert decided({**body_of(TITLE), **fields}).startswith("offered")
    assert decided(body_of(TITLE), header="on") == "offered; reason=header"


def test_with_tools_of_the_clients_a_title_is_no_title() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert decided({**body_of(TITLE), "tools": tools}) == "offered; reason=auto"


@pytest.mark.parametrize(
    "messages", [[{}], [{"role": "user"}], [{"role": "user", "content": None}], [{"role": 3}], [{"role": []}]]
)
def test_odd_messages_are_no_signal(messages: list[Any]) -> None:
    assert not is_housekeeping({"messages": messages})
