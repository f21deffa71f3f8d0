"""Every deviation through the pure machines, bytes to mended events: fed whole, byte by byte and cut in two at every
byte, it means the same. Text in which calls or thinking hide is also fed one character per delta.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from proxy.upstreams.chunks import ChunkReader
from proxy.upstreams.repairs import AnswerRepair
from proxy.values.errors import as_error
from proxy.values.events import (
    Begun,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageSeen,
    merge_fields,
)
from proxy.values.sse import SSEDecoder
from tests.fakes.deviations import DEVIATIONS, FOLDER, WEATHER, Deviation
from tests.fakes.model import Turn, chunks

SEARCH = {"properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["query"]}
TOOLS: dict[str, dict[str, Any]] = {"web_search": SEARCH, "open_page": {}, "weather": WEATHER}

Meaning = dict[str, Any]
Payloads = tuple[bytes, ...]


def streamed(batches: Iterable[Payloads], rest: Payloads) -> list[Event]:
    """The events of a body whose payloads came in these network reads."""
    reader, repair = ChunkReader(), AnswerRepair(TOOLS)
    out = [event for batch in batches for event in repair.feed(reader.feed(batch))]
    return out if reader.over else out + repair.feed(reader.flush(rest))


def decoded(pieces: Sequence[bytes]) -> tuple[list[Payloads], Payloads]:
    decoder = SSEDecoder()
    return [tuple(decoder.feed(piece)) for piece in pieces], tuple(decoder.flush())


def whole(deviation: Deviation) -> list[Event]:
    """The events of an answer that is one JSON body, or of a refusal."""
    body = json.loads(deviation.body)
    repair = AnswerRepair(TOOLS)
    if deviation.status == 200:
        return repair.feed(ChunkReader().feed_answer(body))
    failed = as_error(body, deviation.status)
    assert failed is not None
    return repair.feed([failed])


def meaning(events: Sequence[Event]) -> Meaning:
    """What a client would make of these events, all of them well-formed."""
    found: Meaning = {"text": "", "thinking": {}, "calls": [], "extra": {}, "usage": 0, "finish": "", "error": None}
    ids: list[str] = []
    for n, event in enumerate(events):
        if isinstance(event, TextDelta):
            assert event.text
            found["text"] += event.text
        elif isinstance(event, ReasoningDelta):
            merge_fields(found["thinking"], event.fields)
        elif isinstance(event, ToolCallDelta):
            if event.index == len(ids):
                assert event.name
                ids.append(event.id)
                found["calls"].append([event.name, ""])
            else:
                assert (event.id, event.name) == ("", "")
            found["calls"][event.index][1] += event.arguments
            found["extra"] |= event.extra or {}
        elif isinstance(event, UsageSeen):
            found["usage"] = event.usage["total_tokens"]
        elif isinstance(event, Begun):
            assert n == 0
        elif isinstance(event, Finished | Failed):
            assert n == len(events) - 1
            if isinstance(event, Finished):
                found["finish"] = event.reason
            else:
                found["error"] = (event.status, event.error["message"])
    assert all(ids)
    assert len(set(ids)) == len(ids)
    found["calls"] = [(name, read(arguments)) for name, arguments in found["calls"]]
    return found


def read(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def meant(deviation: Deviation) -> Meaning:
    error = deviation.error
    if deviation.retried:
        error = (deviation.status, json.loads(deviation.body)["error"]["message"])
    return {
        "text": deviation.text,
        "thinking": deviation.thinking,
        "calls": list(deviation.calls),
        "extra": deviation.extra,
        "usage": deviation.usage,
        "finish": "" if error else deviation.finish,
        "error": error,
    }


def named(names: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", names)


STREAMED = [name for name, deviation in DEVIATIONS.items() if deviation.streamed]
WHOLE = [name for name, deviation in DEVIATIONS.items() if not deviation.streamed]
IN_TEXT = [n for n in STREAMED if n.startswith("leaks/") or (DEVIATIONS[n].in_text and not n.endswith("then-call"))]


@named(STREAMED)
@pytest.mark.parametrize("theirs", [False, True])
def test_a_stream_means_the_same_wherever_it_is_cut(name: str, theirs: bool) -> None:
    deviation = DEVIATIONS[name].theirs() if theirs else DEVIATIONS[name]
    body, expected = deviation.body, meant(deviation)
    batches, rest = decoded([body])
    assert meaning(streamed(batches, rest)) == expected
    batches, rest = decoded([body[i : i + 1] for i in range(len(body))])
    assert meaning(streamed(batches, rest)) == expected
    tried = set()
    for cut in range(1, len(body)):
        batches, rest = decoded([body[:cut], body[cut:]])
        if (seen := (*batches, rest)) not in tried:  # the machines behind the decoder see no more than these
            tried.add(seen)
            assert meaning(streamed(batches, rest)) == expected, f"cut at {cut}"


@named(WHOLE)
@pytest.mark.parametrize("theirs", [False, True])
def test_a_whole_answer_and_a_refusal(name: str, theirs: bool) -> None:
    deviation = DEVIATIONS[name].theirs() if theirs else DEVIATIONS[name]
    assert meaning(whole(deviation)) == meant(deviation)


@named(IN_TEXT)
@pytest.mark.parametrize("theirs", [False, True])
def test_one_character_per_delta(name: str, theirs: bool) -> None:
    deviation = DEVIATIONS[name].theirs() if theirs else DEVIATIONS[name]
    payloads = [
        json.dumps(chunk).encode() for chunk in chunks(Turn(text=deviation.letters(), finish="stop", usage=None))
    ]
    assert meaning(streamed([(payload,) for payload in payloads], (b"[DONE]",))) == meant(deviation)


def test_every_recording_is_in_the_table() -> None:
    files = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.*") if not path.name.startswith(".")}
    assert {deviation.file for deviation in DEVIATIONS.values()} == files
    assert all(deviation.source for deviation in DEVIATIONS.values())


def test_the_clients_variant_names_no_tool_of_ours() -> None:
    for deviation in DEVIATIONS.values():
        assert b"web_search" not in deviation.theirs().body
        assert (b"web_search" in deviation.body) == (b"weather" in deviation.theirs().body)
