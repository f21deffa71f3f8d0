"""Answers as the engine hands them on, each an example of something that a response stream must get right; and ways to
see what the Responses dialect made of them.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from proxy.dialects.responses.encoder import Encoder
from proxy.dialects.responses.request import decode
from proxy.values.events import (
    Begun,
    Citation,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    SearchedFirst,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from tools.ledger import Source

SKY = Source(1, "https://sky.example/a", "Sky", "Why it is blue", "2026-05-01")
SEA = Source(2, "https://sea.example/b", "Sea")
SKY_LINK, SEA_LINK = "[[1]](https://sky.example/a)", "[[2]](https://sea.example/b)"
USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 7,
    "total_tokens": 37,
    "prompt_tokens_details": {"cached_tokens": 12},
    "completion_tokens_details": {"reasoning_tokens": 3},
    "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 1},
}
ERROR = {"message": "gone", "type": "server_error", "param": None, "code": "upstream_truncated"}
SEARCH = ToolStarted("a", "web_search", {"query": "sky"})
FOUND = ToolFinished("a", "web_search", True, "p", (SKY, SEA))
END: list[Event] = [UsageSeen(USAGE), Finished("stop")]
HOSTED = {"type": "web_search"}  # who names it is shown our searches
PATCH = {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}}
AGENTS = {
    "type": "namespace",
    "name": "agents",
    "tools": [{"type": "function", "name": "spawn"}, {**PATCH, "name": "sh"}],
}
SEEK = {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}
TOOLS = [HOSTED, PATCH, AGENTS, SEEK]
REQUEST: dict[str, Any] = {"model": "asked", "input": "Why is the sky blue?", "stream": True, "tools": TOOLS}


def told(*pieces: str | Source) -> list[Event]:
    """Text as the citer hands it on, counted from the start of the whole answer; a source is its marker."""
    out: list[Event] = []
    length = 0
    for piece in pieces:
        text = piece if isinstance(piece, str) else f"[[{piece.n}]]({piece.url})"
        out.append(TextDelta(text))
        if isinstance(piece, Source):
            out.append(Citation(length, length + len(text), piece))
        length += len(text)
    return out


PREAMBLE, *ANSWER = told("Let me look.", "\n\nBlue 😀 ", SKY, " as the sea ", SEA, ".")
SCRIPTS: dict[str, list[Event]] = {
    "plain": [Begun("m"), *told("Hel", "lo."), *END],
    "rounds": [
        Begun("up", {"service_tier": "flex"}),
        ReasoningDelta({"reasoning_content": "I should "}),
        ReasoningDelta({"reasoning_content": "search"}),
        PREAMBLE,
        SEARCH,
        ToolStarted("b", "open_page", {"url": SKY.url}),
        FOUND,
        ToolFinished("b", "open_page", True, "reader", (SKY,)),
        *ANSWER,
        *END,
    ],
    "function": [
        Begun("m"),
        PREAMBLE,
        SEARCH,
        FOUND,
        ReasoningDelta({"reasoning": "and now"}),
        ToolCallDelta(0, "call_1", "weather", '{"city"', {"extra_content": {"google": {"thought_signature": "s"}}}),
        ToolCallDelta(1, "call_2", "clock"),
        ToolCallDelta(0, arguments=': "Bern"}'),
        ToolCallDelta(1, arguments="{}"),
        UsageSeen(USAGE),
        Finished("tool_calls"),
    ],
    "beside": [
        Begun("m"),
        ToolCallDelta(0, "call_1", "weather", "{}"),
        SEARCH,
        FOUND,
        UsageSeen(USAGE),
        Finished("tool_calls"),
    ],
    "custom": [
        Begun("m"),
        PREAMBLE,
        ToolCallDelta(0, "call_1", "patch", '{"input": "*** Begin \\ud83d'),
        ToolCallDelta(0, arguments="\\ude00\\n"),
        ToolCallDelta(1, "call_2", "spawn", '{"task": "look"}'),
        ToolCallDelta(0, arguments='End"}'),
        ToolCallDelta(2, "call_3", "sh", '{"cmd": "ls"}'),
        ToolCallDelta(3, "call_4", "sh"),
        UsageSeen(USAGE),
        Finished("tool_calls"),
    ],
    "tools sought": [
        Begun("m"),
        ToolCallDelta(0, "call_1", "tool_search", '{"query"'),
        ToolCallDelta(0, arguments=': "x"}'),
        UsageSeen(USAGE),
        Finished("tool_calls"),
    ],
    "cut custom call": [Begun("m"), ToolCallDelta(0, "c", "patch", '{"input": "a\\u00'), *END[:1], Finished("length")],
    "failed search": [Begun("m"), SEARCH, ToolFinished("a", "web_search", False), *told("No idea."), *END],
    "search first": [SearchedFirst(True), Begun(), SEARCH, FOUND, *told("Blue ", SKY), *END],
    "refusal": [Begun("m"), ReasoningDelta({"refusal": "I can"}), ReasoningDelta({"refusal": "not."}), *END],
    "cut": [Begun("m"), SEARCH, FOUND, *told("Blue as"), UsageSeen(USAGE), Finished("length")],
    "cut call": [Begun("m"), ToolCallDelta(0, "c", "f", '{"x'), UsageSeen(USAGE), Finished("length")],
    "filtered": [Begun("m"), *told("Blue"), UsageSeen({}), Finished("content_filter")],
    "nothing": [Begun("m"), UsageSeen({}), Finished("stop")],
    "only searched": [Begun("m"), SEARCH, FOUND, TextDelta("\n"), *END],
    "death": [Begun("m"), SEARCH, FOUND, *told("Half an ans"), Failed(502, ERROR)],
    "death in a call": [Begun("m"), ToolCallDelta(0, "c", "f", "{"), Failed(502, {**ERROR, "code": 502})],
    "death in a custom call": [Begun("m"), ToolCallDelta(0, "c", "patch", '{"input": "a'), Failed(502, ERROR)],
    "death in a search": [Begun("m"), PREAMBLE, SEARCH, Failed(504, ERROR)],
    "stillborn": [Failed(429, {"message": "slow down", "type": "", "param": 3, "code": None})],
}
BROKEN = [name for name, events in SCRIPTS.items() if isinstance(events[-1], Failed)]


def request(**more: Any) -> Any:
    return decode(json.dumps({**REQUEST, **more}).encode())


def stream(events: list[Event], cuts: tuple[int, ...] = (), **more: Any) -> list[dict[str, Any]]:
    """The payloads, each of which was sent under its own name."""
    return payloads(wire(events, cuts, **more))


def wire(events: list[Event], cuts: tuple[int, ...] = (), **more: Any) -> bytes:
    encoder = Encoder(request(**more), "resp_1")
    places = [0, *cuts, len(events)]
    return b"".join(encoder.feed(events[a:b]) for a, b in pairwise(places))


def fold(events: list[Event], **more: Any) -> dict[str, Any]:
    """The same events as one object."""
    encoder = Encoder(request(**more), "resp_1")
    encoder.feed(events)
    return encoder.response


def payloads(data: bytes) -> list[dict[str, Any]]:
    *frames, rest = data.decode().split("\n\n")
    assert rest == "", "every event ends with a blank line"
    out = []
    for frame in frames:
        name, payload = frame.split("\n")
        out.append(json.loads(payload.removeprefix("data: ")))
        assert name == f"event: {out[-1]['type']}"
    return out


def short(sent: list[dict[str, Any]]) -> list[str]:
    """Type and place of each event, for what follows what."""
    return [f"{e['type'].removeprefix('response.')} {e.get('output_index', '')}".strip() for e in sent]


def plain(value: Any) -> Any:
    """Without ids and times, which are new every time, and without what a client parsed."""
    if isinstance(value, dict):
        gone = ("created_at", "completed_at", "item_id", "parsed", "parsed_arguments")
        return {k: "…" if k == "id" else plain(v) for k, v in value.items() if k not in gone}
    return [plain(entry) for entry in value] if isinstance(value, list) else value


def messages(response: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in response["output"] if item["type"] == "message"]


def text_of(response: dict[str, Any]) -> str:
    return "\n\n".join(part["text"] for item in messages(response) for part in item["content"])
