"""The SSE decoder gives the same payloads however the bytes were cut. Rules: the WHATWG event stream format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.values.sse import DONE, EventTooLong, SSEDecoder, encode

STREAMS = [
    (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    (b"data:a\n\n", [b"a"]),
    (b"data:  a\n\n", [b" a"]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    (b": OPENROUTER PROCESSING\n\ndata: a\n\n: ping\n\n", [b"a"]),
    (b"event: error\ndata: a\nid: 7\nretry: 3\n\n", [b"a"]),
    (b"data: a\ndata: b\n\n", [b"a\nb"]),
    (b"data\n\ndata: a\n\n", [b"a"]),
    (b"\n\n\ndata: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
    ("data: é\u2028😀\n\n".encode(), ["é\u2028😀".encode()]),
    (b"data: a\n\ndata: unterminated", [b"a", b"unterminated"]),
    (b"data: a\n\ndata: unterminated\n", [b"a", b"unterminated"]),
    (b"data: a\n\ndata: unterminated\r", [b"a", b"unterminated"]),
    (b"dat", []),
    (b"\xef\xbb", []),
    (b"", []),
]


def read(pieces: list[bytes]) -> list[bytes]:
    decoder = SSEDecoder()
    return [payload for piece in pieces for payload in decoder.feed(piece)] + decoder.flush()


@pytest.mark.parametrize(("stream", "payloads"), STREAMS)
def test_whole_byte_by_byte_and_cut_at_every_place(stream: bytes, payloads: list[bytes]) -> None:
    assert read([stream]) == payloads
    assert read([stream[i : i + 1] for i in range(len(stream))]) == payloads
    for cut in range(len(stream) + 1):
        assert read([stream[:cut], stream[cut:]]) == payloads


@given(
    st.lists(st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b and b"\r" not in b), max_size=8),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from([b"data: ", b"data:"]),
    st.data(),
)
def test_any_events_in_any_encoding_with_any_cuts(
    payloads: list[bytes], newline: bytes, field: bytes, data: st.DataObject
) -> None:
    payloads = [p if field.endswith(b" ") else p.lstrip(b" ") or b"x" for p in payloads]
    comment = data.draw(st.sampled_from([b"", b": ping" + newline * 2]))
    stream = b"".join(comment + field + payload + newline * 2 for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(pieces) == payloads


def test_an_event_without_end_is_refused() -> None:
    decoder = SSEDecoder(limit=100)
    assert decoder.feed(b"data: " + b"x" * 90) == []
    with pytest.raises(EventTooLong):
        decoder.feed(b"x" * 20)


def test_what_is_encoded_is_read_back() -> None:
    assert read([encode(b'{"a":1}') + DONE]) == [b'{"a":1}', b"[DONE]"]
