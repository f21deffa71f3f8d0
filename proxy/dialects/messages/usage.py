"""What an answer cost, as Anthropic's API counts it. Handed a usage object of Chat Completions; hands on one of
Messages: what came from a cache is no part of `input_tokens` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    given = _mapping(usage.get("prompt_tokens_details"))
    cached, written = _count(given, "cached_tokens"), _count(given, "cache_creation_tokens")
    counted: dict[str, Any] = {
        "input_tokens": max(0, _count(usage, "prompt_tokens") - cached - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": _count(usage, "completion_tokens"),
    }
    used = usage.get("server_tool_use")
    if isinstance(used, Mapping):
        names = ("web_search_requests", "web_fetch_requests")
        counted["server_tool_use"] = {name: _count(used, name) for name in names}
    thought = _count(_mapping(usage.get("completion_tokens_details")), "reasoning_tokens")
    if thought:
        counted["output_tokens_details"] = {"thinking_tokens": thought}
    return counted


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(counts: Mapping[str, Any], name: str) -> int:
    value = counts.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
