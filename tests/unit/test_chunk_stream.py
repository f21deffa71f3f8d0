"""A streamed answer's bytes, read together and one by one: the events are the same, however the network cut them."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstreams.chunk_stream import ChunkStream
from proxy.upstreams.chunks import ChunkReader
from proxy.values.events import Begun, Event, Failed, Finished, TextDelta, ToolCallDelta, UsageSeen
from proxy.values.sse import DONE, EventTooLong, SSEDecoder, encode


def chunk(delta: dict[str, object], reason: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return encode(orjson.dumps({"id": "c1", "model": "m", "choices": [choice], **more}))


def answer(*pieces: str) -> bytes:
    role = chunk({"role": "assistant", "content": ""})
    return role + b"".join(chunk({"content": piece}) for piece in pieces) + chunk({}, "stop") + DONE


def together(data: bytes, *cuts: int) -> list[Event]:
    stream = ChunkStream(ChunkReader())
    events: list[Event] = []
    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        events += stream.feed(data[begin:end])
    return events + stream.flush()


def one_by_one(data: bytes) -> list[Event]:
    decoder, reader = SSEDecoder(), ChunkReader()
    events = reader.feed(decoder.feed(data))
    return events + reader.flush(decoder.flush())


def pieces_of(events: list[Event]) -> list[str]:
    return [piece for event in events if isinstance(event, TextDelta) for piece in event.cut]


def rest_of(events: list[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, TextDelta)]


def same(data: bytes, *cuts: int) -> None:
    read, wanted = together(data, *cuts), one_by_one(data)
    assert pieces_of(read) == pieces_of(wanted)
    assert rest_of(read) == rest_of(wanted)


def test_pieces_that_come_together_travel_together() -> None:
    events = together(answer(*"abcdef"))
    assert [event.cut for event in events if isinstance(event, TextDelta)] == [("a",), ("b", "c", "d", "e", "f")]
    assert [type(event) for event in events] == [Begun, TextDelta, TextDelta, Finished]


ODD = [
    answer("The ", "sky", " is", " blue", "."),
    answer('"', "a", '"', "b", 'c"d', "\\", "e", "\n", "f", "\t", "g"),
    answer("x", '","', "y", '"', "z", "\\", '"', "w"),
    answer("日", "本", "語", "🙂", "é", "\u2028", "k"),
    answer("a", "b").replace(b"\n", b"\r\n"),
    answer("a", "b", "c").replace(b"data: ", b"data:"),
    answer("a", "b", "c").replace(b'"content":', b'"content": '),
    answer("a", "b", "c")[:-20],
    answer("a", "b", "c").removesuffix(b"\n\n"),
    b": hello\n\n" + answer("a", "b", "c") + b": bye\n\n",
    answer("a", "b") + answer("c", "d"),
    chunk({"content": "a"}) + chunk({"content": "b"}) + b"data: {broken\n\n" + chunk({"content": "c"}),
    chunk({"content": "a"})
    + chunk({"content": "b"})
    + encode(b'{"error": {"message": "no"}}')
    + chunk({"content": "c"}),
    b"".join(chunk({"content": piece}, usage={"total_tokens": at}) for at, piece in enumerate("abcd")) + DONE,
    b"".join(chunk({"content": piece}, usage={"total_tokens": 3}) for piece in "abcd") + chunk({}, "stop") + DONE,
    b"".join(chunk({"content": piece, "reasoning": "why"}) for piece in "abcd") + chunk({}, "stop") + DONE,
    b"".join(chunk({"content": piece}, note={"content": "x"}) for piece in "abxd") + chunk({}, "stop") + DONE,
    b"".join(chunk({"content": piece}, padding="p" * at) for at, piece in enumerate("abcdefghijkl")) + DONE,
    b"".join(chunk({"content": piece}, "stop") for piece in "abcd") + DONE,
    # What would be two strings where there is one, and one where there are two.
    b"".join(chunk({"content": piece}) for piece in "ab")
    + chunk({"content": "c"}).replace(b'"c"', b'"c\\"')
    + chunk({"content": "d"}).replace(b'"d"', b'",\\"d"'),
    b"".join(chunk({"content": piece}) for piece in "ab")
    + chunk({"content": "c"}).replace(b'"c"', b'"abc\\"')
    + chunk({"content": "d"}).replace(b'"d"', b'","x"'),
    b"".join(chunk({"content": piece}) for piece in "ab")
    + chunk({"content": "c"}).replace(b'"c"', b'"\\ud83d"')
    + DONE,
    b"".join(chunk({"content": piece}) for piece in "ab") + chunk({"content": "c"}).replace(b'"c"', b'"\xff"') + DONE,
]


@pytest.mark.parametrize("data", ODD)
def test_the_events_are_those_of_each_chunk_read_alone(data: bytes) -> None:
    same(data)


def behind_each_event(data: bytes) -> list[int]:
    """Where the network cuts the answer of a model that writes more slowly than it carries."""
    return [at + 2 for at in range(len(data) - 2) if data[at : at + 2] == b"\n\n"]


@pytest.mark.parametrize("data", ODD)
def test_so_they_are_where_each_comes_alone(data: bytes) -> None:
    same(data, *behind_each_event(data))


def test_a_chunk_that_comes_alone_is_cut_out_and_not_read_in_full() -> None:
    reader = ChunkReader()
    stream = ChunkStream(reader)
    for piece in ("a", "b"):  # the first is read, and the pattern of the second
        assert pieces_of(stream.feed(chunk({"content": piece}))) == [piece]
    reader.feed_noting = None  # type: ignore[assignment, method-assign]
    for piece in (" tok", "\n", '"', "é", "\u2028", "\\"):
        assert pieces_of(stream.feed(chunk({"content": piece}))) == [piece]


@pytest.mark.parametrize("data", ODD[:6] + ODD[11:13])
def test_cut_at_every_place_they_are_the_same(data: bytes) -> None:
    for place in range(1, len(data)):
        same(data, place)


@given(st.lists(st.text(max_size=8), max_size=12), st.data())
def test_any_pieces_in_any_cut(pieces: list[str], cutting: st.DataObject) -> None:
    data = answer(*pieces)
    same(data, *behind_each_event(data))
    same(data, *sorted(cutting.draw(st.lists(st.integers(0, len(data)), max_size=4))))


@given(st.lists(st.sampled_from([b"a", b'"', b"\\", b",", b'","', b'\\"', b"\\\\", b"]", b"\n", b"{}"]), max_size=6))
def test_what_stands_inside_the_strings_cannot_end_them(inside: list[bytes]) -> None:
    odd = [chunk({"content": "c"}).replace(b'"c"', b'"' + part + b'"') for part in inside]
    data = chunk({"content": "a"}) + chunk({"content": "b"}) + b"".join(odd) + chunk({"content": "z"}) + DONE
    same(data)
    same(data, *behind_each_event(data))


def test_calls_and_usage_are_read_between_runs() -> None:
    call = {"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    data = b"".join(chunk({"content": piece}) for piece in "abc") + chunk({"tool_calls": [call]})
    data += b"".join(chunk({"content": piece}) for piece in "def") + chunk({}, "tool_calls", usage={"total_tokens": 7})
    events = together(data + DONE)
    kinds = [Begun, TextDelta, TextDelta, ToolCallDelta, TextDelta, UsageSeen, Finished]
    assert [type(event) for event in events] == kinds
    assert pieces_of(events) == list("abcdef")


def test_a_run_has_an_end() -> None:
    runs = [event.cut for event in together(answer(*["ab"] * 1000)) if isinstance(event, TextDelta)]
    assert sum(map(len, runs)) == 1000
    assert max(map(len, runs)) == 256


def test_an_event_without_an_end_is_refused() -> None:
    stream = ChunkStream(ChunkReader())
    stream.feed(chunk({"content": "a"}))
    with pytest.raises(EventTooLong):
        stream.feed(b"data: " + b"x" * 1_000_001)


def test_an_error_ends_it() -> None:
    events = together(chunk({"content": "a"}) + encode(b'{"error": {"message": "no"}}') + chunk({"content": "b"}))
    assert isinstance(events[-1], Failed)
    assert pieces_of(events) == ["a"]
