"""Stand-in until the planner is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Plan:
    query: str = ""
    urls: tuple[str, ...] = ()
    reason: str = ""


def plan(messages: Sequence[Any], *, forced: bool = False) -> Plan:
    return Plan(question(messages)[:400])


def question(messages: Sequence[Any]) -> str:
    return str(messages[-1]["content"])


def rewriting(body: Mapping[str, Any]) -> dict[str, Any]:
    return dict(body)


def rewritten(answer: str, planned: Plan) -> Plan:
    return planned


def with_sources(messages: Sequence[Any], sources: str) -> list[Any]:
    last = messages[-1]
    return [*messages[:-1], {**last, "content": sources + "\n\n" + last["content"]}]
