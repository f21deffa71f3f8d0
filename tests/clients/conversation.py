"""Conversations: what the scripts of all clients share. Every client asks two questions in one conversation, and runs
its own function whenever it is called; handed one such player per client, this plays every scenario and prints each as
it ends, on a line of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from seen import BASE_URL, Scenario, Seen, report

QUESTIONS = ("What is the weather in Bern, and why is the sky blue?", "And the sea?")
SCENARIOS = ("mixed", "apart")
MOST_STEPS = 5  # of one question; a conversation that goes on is broken
CLIENT: dict[str, Any] = {"base_url": BASE_URL, "api_key": "sk-client", "timeout": 30}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def weather(city: str) -> str:
    """The weather of a city."""
    return f"Rain in {city}"


def play(clients: Mapping[str, Scenario]) -> None:
    for client, conversation in clients.items():
        for scenario in SCENARIOS:
            report({client: {scenario: conversation}})


def take_call(seen: Seen, index: int, name: str, arguments: str | dict[str, Any], call_id: str) -> str:
    """A call that the client was asked to run, and what its function returns."""
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    seen.setdefault("calls", []).append([index, name, given, call_id])
    return weather(**given) if name == "weather" else f"There is no function {name}."


def take_answer(seen: Seen, text: str, citations: list[dict[str, Any]]) -> None:
    seen.setdefault("answers", []).append({"text": text, "citations": citations})


def take_search(seen: Seen, query: str) -> None:
    """A hosted search, as far as the client shows it."""
    seen.setdefault("searches", []).append(query)


def take_usage(seen: Seen, tokens: int | None) -> None:
    """What one request has used."""
    seen.setdefault("usages", []).append(tokens)
