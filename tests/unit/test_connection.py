"""One connection, fed byte by byte if need be: what is a request is answered the same however it is cut, and what is
none is refused, in our own words, without holding more of it than it may.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from proxy.config.settings import ServerConfig
from proxy.serving.connection import Connection
from proxy.watching.observer import Listener, Observer
from tests.fakes.bad_heads import CHUNKED, GET, HOST, POST, SHAPES
from tests.fakes.wire import Heard, accepted, heard, received, say_back

MAX_HEAD = 2048
ALL_BYTES = st.binary(max_size=200)


@pytest.fixture(autouse=True)
def _no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING):
        yield
    assert not caplog.records


def codes(found: Heard) -> list[str]:
    """The codes of errors, each in our shape."""
    errors = [json.loads(body)["error"] for status, body in found.answers if status >= 400]
    assert all(set(error) == {"message", "type", "param", "code"} for error in errors)
    return [error["code"] for error in errors]


def bytewise(data: bytes) -> list[bytes]:
    return [data[n : n + 1] for n in range(len(data))]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in pairwise(ends) if end > start]


# Requests, however they are cut

tokens = st.text("abcXYZ019-_", min_size=1, max_size=12)
plain = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20)


@st.composite
def chunked(draw: st.DrawFn) -> bytes:
    parts = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
    extension = st.one_of(st.just(""), tokens.map(";{}".format), tokens.map(';a="{}"'.format))
    body = b"".join(b"%x%s\r\n%s\r\n" % (len(part), draw(extension).encode(), part) for part in parts)
    trailers = b"".join(b"X-%s: %s\r\n" % (draw(tokens).encode(), b"t") for _ in range(draw(st.integers(0, 3))))
    return b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n" + trailers + b"\r\n"


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from(["POST", "PUT", "GET"]))
    query = draw(st.one_of(st.just(""), tokens.map("?{}".format)))
    lines = [f"{method} /v1/{draw(tokens)}{query} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"X-{draw(tokens)}: {draw(plain)}" for _ in range(draw(st.integers(0, 4)))]
    head = "".join(line + "\r\n" for line in lines).encode()
    sized = ALL_BYTES.map(lambda body: b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    return head + draw(st.one_of(sized, chunked(), st.just(b"\r\n")))


@settings(max_examples=150, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=3), st.lists(st.integers(0, 5000), max_size=8))
def test_a_request_is_answered_the_same_wherever_it_is_cut(sent: list[bytes], places: list[int]) -> None:
    data = b"".join(sent)
    whole = heard([data])
    assert whole.statuses == [200] * len(sent)
    assert not whole.closed
    assert heard(cut(data, places)).answers == whole.answers
    assert [answer for one in sent for answer in heard([one]).answers] == whole.answers, "and beside others as alone"


@settings(max_examples=25, deadline=None)
@given(requests())
def test_and_byte_by_byte(sent: bytes) -> None:
    assert heard(bytewise(sent)).answers == heard([sent]).answers


# Anything else

GRAMMAR = [
    *(
        GET,
        POST,
        CHUNKED,
        HOST,
        b"\r\n",
        b"\n",
        b"\r",
        b"0\r\n\r\n",
        b"5\r\nhello\r\n",
        b": ",
        b" ",
        b"GET ",
        b"HTTP/1.1",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Expect: 100-continue\r\n",
    ),
    *(
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01",
        b"\x00",
        b"\xff" * 9,
    ),
    *(b"X: " + b"y" * 3000 + b"\r\n", b"X: y\r\n" * 120, b"/" * 3000, b";a" * 1500),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(GRAMMAR), ALL_BYTES), max_size=12))
@example([CHUNKED, b"0\r\n", b"X: y\r\n" * 120, b"\r\n"])
@example([GET, b"\xff", GET])
def test_any_bytes_are_answered_or_refused_and_never_crash(pieces: list[bytes]) -> None:
    for fed in (pieces, [b"".join(pieces)], bytewise(b"".join(pieces)[:600])):
        found = heard(fed, max_head=MAX_HEAD)
        assert all(status == 200 or 400 <= status < 500 for status in found.statuses)
        assert found.held <= 2 * MAX_HEAD
        refused = [code for code in codes(found) if code in ("bad_request", "head_too_large", "too_many_headers")]
        assert not refused or found.closed


# What is refused, and how


@pytest.mark.parametrize("shape", SHAPES)
def test_what_two_servers_could_read_differently_is_refused_and_closed(shape: str) -> None:
    sent = SHAPES[shape]
    for pieces in ([sent + GET], [sent, GET], bytewise(sent)):
        found = heard(pieces)
        assert found.statuses == [400], "and what stands behind it is not answered"
        assert codes(found)[0] in ("bad_request", "bad_host")
        assert found.closed


TOO_LARGE: dict[str, tuple[bytes, int]] = {
    "many headers": (b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 101, 431),
    "header lines": (b"GET / HTTP/1.1\r\n" + HOST + (b"X: " + b"y" * 100 + b"\r\n") * 90, 431),
    "one header": (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 9000, 431),
    "a header's name": (b"GET / HTTP/1.1\r\n" + HOST + b"y" * 9000, 431),
    "an address": (b"GET /" + b"y" * 9000, 414),
    "blank lines": (b"\r\n" * 4500, 431),
    "many trailers": (CHUNKED + b"0\r\n" + b"X: y\r\n" * 102, 431),
    "one trailer": (CHUNKED + b"0\r\nX: " + b"y" * 20_000, 431),
    "an extension": (CHUNKED + b"5;" + b"y" * 20_000, 431),
    "zeros before a chunk's size": (CHUNKED + b"0" * 20_000, 431),
    "tiny chunks": (CHUNKED + b"1\r\n \r\n" * 10_001, 400),
}


@pytest.mark.parametrize("shape", TOO_LARGE)
def test_what_has_no_end_is_given_one(shape: str) -> None:
    sent, status = TOO_LARGE[shape]
    for pieces in ([sent], cut(sent, [*range(0, len(sent), 700)])):
        found = heard(pieces, max_head=8192)
        assert found.statuses == [status]
        assert found.closed
        assert found.held <= 8192
    assert heard(bytewise(sent[:20_000]), max_head=8192).statuses in ([status], [])


def test_the_largest_head_is_served() -> None:
    start = b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: "
    largest = start + b"y" * (MAX_HEAD - len(start) - 4) + b"\r\n\r\n"
    assert len(largest) == MAX_HEAD
    for pieces in ([largest], [largest, largest], bytewise(largest)):
        assert set(heard(pieces, max_head=MAX_HEAD).statuses) == {200}
    larger = largest.replace(b"X: ", b"X: y")
    for pieces in ([larger], bytewise(larger)):
        assert heard(pieces, max_head=MAX_HEAD).statuses == [431]
    most = b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 99 + b"\r\n"
    assert heard([most]).statuses == [200]


def test_a_small_body_in_single_bytes_is_no_offence() -> None:
    body = b" " * 3000
    sized = POST + b"Content-Length: %d\r\n\r\n" % len(body)
    assert heard([sized, *bytewise(body)]).statuses == [200]
    assert heard([CHUNKED + b"1\r\n \r\n" * 3000 + b"0\r\n\r\n"]).statuses == [200]


# A bug of ours


def with_bug_in(callback: str) -> type[Connection]:
    """A protocol whose callback raises what only a bug raises."""

    def broken(self: Connection, *arguments: bytes) -> None:
        raise KeyError("a bug")

    return type("Broken", (Connection,), {callback: broken})


@pytest.mark.parametrize(
    "callback",
    [
        "on_message_begin",
        "on_url",
        "on_header",
        "on_headers_complete",
        "on_chunk_header",
        "on_body",
        "on_message_complete",
    ],
)
async def test_a_bug_in_a_callback_is_a_500_with_a_traceback(callback: str, caplog: pytest.LogCaptureFixture) -> None:
    """Over a socket, as a client sees it: and never as if the client's request were malformed."""
    told = Told()
    connection, _, _ = accepted(ServerConfig(), ServerState(), [told], kind=with_bug_in(callback))
    server = await asyncio.get_running_loop().create_server(lambda: connection, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        while not connection.transport.is_closing():  # it lingers until it has heard that the client is gone
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
    connection.config.app.tell_ends()  # type: ignore[union-attr]
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500 ")
    assert json.loads(body)["error"]["code"] == "internal_error"
    assert [line[2:] for line in told.lines] == [(500, "internal_error")]
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
    assert record.exc_info[2] is not None
    caplog.clear()


# Several on one connection


def test_requests_are_answered_in_order_and_not_too_many_ahead() -> None:
    names = [b"/v1/%d" % n for n in range(17)]
    sent = [b"GET " + name + b" HTTP/1.1\r\n" + HOST + b"\r\n" for name in names]
    found = heard([b"".join(sent)])
    assert [json.loads(body)[1] for _, body in found.answers] == [name.decode() for name in names]
    assert not found.closed
    more = heard([b"".join(sent * 3)])
    assert more.statuses == [200] * 17 + [400]
    assert more.closed


def test_what_comes_behind_a_request_does_not_disturb_its_answer() -> None:
    for garbage in (b"\xff", b"GET / HTTP/1.1\r\n\r\n", b"FOO"):
        found = heard([GET + GET + garbage])
        assert found.statuses == [200, 200, 400]
        assert found.closed
    closing = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert heard([closing + GET]).statuses == [200]


# An upgrade that nobody makes


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
)
def test_an_upgrade_is_ignored_and_the_body_read(framing: bytes) -> None:
    """Java's client asks for HTTP/2 with its first request, whatever that holds."""
    sent = POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n" + framing
    for pieces in ([sent], [sent + GET], [sent, GET], bytewise(sent), [sent[:-7], sent[-7:]]):
        found = heard(pieces)
        ((status, body),) = found.answers
        assert (status, json.loads(body)[3]) == (200, "hello")
        assert found.closed


def test_an_upgrade_behind_an_upgrade_adds_nothing_to_its_body() -> None:
    up = b"Upgrade: websocket\r\nConnection: upgrade\r\n"
    sent = [POST + up + b"Content-Length: 5\r\n\r\n" + body for body in (b"first", b"other")]
    for pieces in ([b"".join(sent)], sent, bytewise(b"".join(sent))):
        found = heard(pieces)
        assert [json.loads(body)[3] for _, body in found.answers] == ["first"]
        assert found.closed


# Who is told


class Told(Listener):
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, int, str]] = []

    def ended(self, request: Observer) -> None:
        self.lines.append((request.method, request.path, request.status, request.outcome))


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (b"\xff", ("-", "-", 400, "bad_request")),
        (b"GET /a?secret HTTP/1.1\r\n\r\n", ("GET", "/a", 400, "bad_host")),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nX: " + b"y" * 3000,
            ("POST", "/v1/chat/completions", 431, "head_too_large"),
        ),
        (CHUNKED + b"zz", ("POST", "/v1/chat/completions", 400, "bad_request")),
        (CHUNKED + b"0\r\nX: " + b"y" * 5000, ("POST", "/v1/chat/completions", 431, "head_too_large")),
    ],
)
def test_whoever_watches_is_told_once(sent: bytes, line: tuple[Any, ...]) -> None:
    told = Told()
    heard([sent], listeners=[told], max_head=MAX_HEAD)
    assert told.lines == [line]


# Before there is anything to read


@pytest.mark.parametrize("way", ["make_room", "head_is_late"])
async def test_one_that_must_go_before_the_loop_has_made_it_is_closed_when_it_is(way: str) -> None:
    """On a machine that is too busy, a second may pass between the two."""
    connection, others, transport = accepted(ServerConfig(), ServerState())
    getattr(connection, way)()
    connection.connection_made(transport)
    assert transport.over
    await asyncio.sleep(0.01)
    assert not len(others)
    assert transport.sent == b""


# When they are begun


def asking(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\n%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        HOST,
        len(body),
        body,
    )


STREAMED, WHOLE = asking(b'{"stream":true}'), asking(b"{}")


async def begun_when(*pieces: bytes) -> list[str]:
    """When the application was begun, where these pieces came together and something else was ready before them."""
    happened: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        happened.append("begun")
        await say_back(scope, receive, send)

    state = ServerState()
    connection, _, transport = accepted(ServerConfig(), state, app=app)
    connection.connection_made(transport)
    await received(connection, *pieces[:-1])
    coming = asyncio.create_task(received(connection, pieces[-1]))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(happened.append, "the rest of this round")
    await coming
    while state.total_requests < 1:
        await asyncio.sleep(0)
    assert transport.sent.startswith(b"HTTP/1.1 200 ")
    transport.close()
    connection.connection_lost(None)
    return happened


async def test_who_asks_for_a_stream_is_served_before_all_else_that_is_ready() -> None:
    assert await begun_when(STREAMED) == ["begun", "the rest of this round"]


async def test_who_does_not_is_served_with_all_else() -> None:
    assert await begun_when(WHOLE) == ["the rest of this round", "begun"]


@pytest.mark.parametrize("place", [1, 40, len(STREAMED) - 1])
async def test_a_stream_is_begun_with_what_has_come_of_its_body(place: int) -> None:
    """Whatever has not come by then it waits for, like any other."""
    assert "begun" in await begun_when(STREAMED[:place], STREAMED[place:])


# Requests that were sent before the answer to the one before them


async def test_who_leaves_is_heard_by_the_answer_under_way_whatever_was_sent_behind_it() -> None:
    heard_by: list[str] = []

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        heard_by.append(scope["path"])

    state = ServerState()
    connection, others, transport = accepted(ServerConfig(), state, app=wait)
    connection.connection_made(transport)
    for path in (b"/first", b"/second", b"/third"):
        connection.data_received(b"GET %b HTTP/1.1\r\n%b\r\n" % (path, HOST))
        await asyncio.sleep(0.01)
    connection.connection_lost(None)
    await asyncio.sleep(0.01)
    assert heard_by == ["/first"]
    assert not state.tasks
    assert not len(others)
