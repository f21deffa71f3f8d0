"""The connections to a model's server, against servers that write exactly what a test tells them."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from providers.web.answer import BrokenOff, HungUp, NotHTTP
from providers.web.connections import Connections, ConnectTimeout, NotConnected, ProxyFailed
from providers.web.egress import DIRECT, Egress, Proxy
from providers.web.wire import ClearWire, Wire
from tests.fakes.scripted_server import CHUNKED, EARLY, SIZED, TO_THE_END, Flood, saying, serving, whole


async def test_a_question_is_written_once_with_what_always_goes_along() -> None:
    async with serving(saying(SIZED)) as server:
        headers = {"authorization": "Bearer theirs", "accept": "text/plain"}
        answer = await server.connections.ask("POST", "/v1/a%2Fb?c=d", headers, b'{"a":1}', 30.0)
        assert await whole(answer) == b"hello world"
    (head,) = server.heads
    assert head.startswith(b"POST /v1/a%2Fb?c=d HTTP/1.1\r\nhost: 127.0.0.1:")
    assert head.count(b"uthorization") == 1
    assert b"authorization: Bearer ours\r\n" in head
    assert b"accept: text/plain\r\n" in head
    assert server.bodies == [b'{"a":1}']


async def test_a_header_cannot_hold_a_second_one() -> None:
    async with serving(saying(SIZED)) as server:
        with pytest.raises(ValueError, match="line break"):
            await server.connections.ask("POST", "/", {"x": "a\r\ny: b"}, b"", 30.0)
    assert server.heads == []


@pytest.mark.parametrize("told", [SIZED, CHUNKED, EARLY + SIZED, EARLY + CHUNKED])
async def test_answers_are_read_however_they_are_cut_and_their_connection_is_kept(told: bytes) -> None:
    cuts = iter(range(1, len(told)))

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cut = next(cuts)
        await saying(told[:cut], told[cut:])(reader, writer)

    async with serving(say) as server:
        for _ in range(1, len(told)):
            answer = await server.ask()
            assert (answer.status, await whole(answer)) == (200, b"hello world")
    assert server.opened == 1


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async with serving(saying(TO_THE_END, close=True)) as server:
        assert await whole(await server.ask()) == b"hello world"
        assert await whole(await server.ask()) == b"hello world"
    assert server.opened == 2


async def test_repeated_headers_are_one_list_in_their_order_and_single_ones_the_last() -> None:
    """RFC 9110, 5.3."""
    lines = b"X-RateLimit-Policy: 1;w=1\r\nRetry-After: 1\r\nx-ratelimit-policy: 9;w=60\r\nRetry-After: 2\r\n"
    async with serving(saying(SIZED.replace(b"\r\n\r\n", b"\r\n" + lines + b"\r\n"))) as server:
        answer = await server.ask()
        assert answer.header(b"x-ratelimit-policy") == "1;w=1, 9;w=60"
        assert answer.header(b"retry-after") == "2"
        assert await whole(answer) == b"hello world"


async def test_repeated_headers_have_an_end() -> None:
    many = b"Link: </x>\r\n" * 201
    async with serving(saying(SIZED.replace(b"\r\n\r\n", b"\r\n" + many + b"\r\n"))) as server:
        with pytest.raises(NotHTTP, match="head is too large"):
            await server.ask()


class BugInParserCallback(ClearWire):
    def on_headers_complete(self) -> None:
        raise KeyError("a bug")


class BugInLoopCallback(ClearWire):
    def buffer_updated(self, nbytes: int) -> None:
        raise KeyError("a bug")


@pytest.mark.parametrize(("kind", "logger"), [(BugInParserCallback, "groundwire"), (BugInLoopCallback, "asyncio")])
async def test_a_bug_in_a_callback_is_not_blamed_on_the_server(
    kind: type[ClearWire], logger: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Connections):
        def _new_wire(self) -> Wire:
            return kind(self._take_back, memoryview(bytearray(1024)))

    async with serving(saying(SIZED)) as server:
        broken = Broken(f"http://127.0.0.1:{server.port}", {}, DIRECT, 5.0)
        with pytest.raises(RuntimeError) as raised:
            await broken.ask("POST", "/", {}, b"{}", 30.0)
        broken.close()
    assert isinstance(raised.value.__cause__, KeyError)
    (record,) = [record for record in caplog.records if record.name == logger]
    assert record.exc_info
    assert isinstance(record.exc_info[1], KeyError)


async def test_headers_are_found_in_lower_case() -> None:
    async with serving(saying(SIZED)) as server:
        with await server.ask() as answer:
            assert (answer.media_type, answer.header(b"content-length"), answer.header(b"x")) == (
                "text/plain",
                "11",
                "",
            )


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP"])
async def test_what_is_packed_without_being_asked_for_is_unpacked(encoding: str) -> None:
    text = b"hello world " * 200_000  # much more than is unpacked at once
    packed = gzip.compress(text) if encoding.lower() == "gzip" else zlib.compress(text)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(packed)}\r\n\r\n".encode()
    async with serving(saying(head, packed[:50], packed[50:])) as server:
        answer = await server.ask()
        pieces = []
        with answer:
            while data := await answer.read(30.0):
                pieces.append(data)
        assert b"".join(pieces) == text
        assert max(map(len, pieces)) <= 1 << 20
        assert await whole(await server.ask()) == text
    assert server.opened == 1


async def test_what_is_packed_in_an_unknown_way_or_half_is_refused() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nab"
    async with serving(saying(head)) as server:
        with pytest.raises(NotHTTP):
            await server.ask()
    half = gzip.compress(b"hello world")[:-4]
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(half)
    async with serving(saying(head, half)) as server:
        with pytest.raises(BrokenOff):
            await whole(await server.ask())


async def test_an_answer_to_head_has_no_body_whatever_it_says() -> None:
    async with serving(saying(SIZED.partition(b"hello")[0])) as server:
        answer = await server.ask("HEAD", b"")
        assert (answer.status, await whole(answer)) == (200, b"")
        answer = await server.ask("HEAD", b"")
        assert (answer.status, await whole(answer)) == (200, b"")


@pytest.mark.parametrize(
    "told",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x-much: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: a\r\n" % n for n in range(300)) + b"\r\n",
    ],
)
async def test_what_is_no_answer_is_said_to_be_none(told: bytes) -> None:
    async with serving(saying(told)) as server:
        with pytest.raises(NotHTTP):
            await whole(await server.ask())
        await server.closed.wait()


async def test_who_hangs_up_before_the_answer_and_in_its_middle() -> None:
    async with serving(saying(close=True)) as server:
        with pytest.raises(HungUp):
            await server.ask()
    for cut in (SIZED[:-1], CHUNKED[:-5], CHUNKED[:-40]):
        async with serving(saying(cut, close=True)) as server:
            with pytest.raises(BrokenOff):
                await whole(await server.ask())


async def test_what_came_before_the_break_is_read_first() -> None:
    async with serving(saying(SIZED[:-1], close=True)) as server:
        with await server.ask() as answer:
            await server.closed.wait()
            assert await answer.read(30.0) == b"hello worl"
            with pytest.raises(BrokenOff):
                await answer.read(30.0)


async def test_silence_has_an_end_before_the_head_and_in_the_body() -> None:
    async with serving(saying(b"HTTP/1.1 200")) as server:
        with pytest.raises(TimeoutError):
            await server.ask(patience=0.05)
        await server.closed.wait()
    async with serving(saying(SIZED[:-1])) as server:
        with await server.ask(patience=30.0) as answer:
            assert await answer.read(0.05) == b"hello worl"
            with pytest.raises(TimeoutError):
                await answer.read(0.05)
        await server.closed.wait()


async def test_a_connection_that_was_closed_while_it_was_free_is_not_used() -> None:
    closing: list[asyncio.StreamWriter] = []

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        closing.append(writer)
        await saying(SIZED)(reader, writer)

    async with serving(say) as server:
        assert await whole(await server.ask()) == b"hello world"
        closing[0].close()
        await closing[0].wait_closed()
        while any(wire.usable for wire in server.connections._free):
            await asyncio.sleep(0)
        assert await whole(await server.ask()) == b"hello world"
    assert server.opened == 2


@pytest.mark.parametrize(("method", "survives"), [("GET", True), ("POST", False)])
async def test_a_question_that_may_be_repeated_survives_a_connection_that_dies_with_it(
    method: str, survives: bool
) -> None:
    asked = 0

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await saying(*(() if asked == 2 else (SIZED,)), close=asked == 2)(reader, writer)

    async with serving(say) as server:
        assert await whole(await server.ask(method, b"")) == b"hello world"
        if survives:
            assert await whole(await server.ask(method, b"")) == b"hello world"
        else:
            with pytest.raises(HungUp):
                await server.ask(method, b"")
    assert len(server.heads) == (3 if survives else 2)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_proxy_that_no_longer_knows_us_is_told_from_the_server_on_a_connection_that_was_kept(
    method: str,
) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno"
    told = iter([SIZED, refusal])

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(next(told))(reader, writer)

    async with serving(say) as server:
        port = server.connections._port
        through = Egress(http=Proxy.read(f"http://127.0.0.1:{port}"))
        connections = Connections("http://model.example", {}, through, 5.0)
        assert await whole(await connections.ask(method, "/", {}, b"", 30.0)) == b"hello world"
        with pytest.raises(ProxyFailed) as failed:
            await connections.ask(method, "/", {}, b"", 30.0)
        assert failed.value.kind == "credentials"
        connections.close()
    assert server.opened == 1


async def test_who_says_more_than_was_asked_is_not_asked_again_there() -> None:
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    async with serving(saying(SIZED + forged)) as server:
        for _ in range(3):
            assert await whole(await server.ask()) == b"hello world"
    assert server.opened == 3


async def test_an_answer_that_is_left_in_its_middle_closes_its_connection() -> None:
    async with serving(saying(SIZED[:-1])) as server:
        with await server.ask():
            pass
        await server.closed.wait()
        with await server.ask():
            pass
    assert server.opened == 2


async def test_a_question_that_is_given_up_closes_its_connection() -> None:
    came = asyncio.Event()

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await reader.read()

    async with serving(say) as server:
        asking = asyncio.create_task(server.ask())
        await came.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.closed.wait()


async def test_questions_that_overlap_have_connections_of_their_own() -> None:
    both = asyncio.Event()
    waiting = 0

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            both.set()
        await both.wait()
        await saying(SIZED)(reader, writer)

    async with serving(say) as server:
        answers = await asyncio.gather(server.ask(), server.ask())
        assert [await whole(answer) for answer in answers] == [b"hello world"] * 2
        assert await whole(await server.ask()) == b"hello world"
    assert server.opened == 2


async def test_who_reads_slowly_lets_the_server_wait() -> None:
    flood = Flood(64 << 20)
    async with serving(flood) as server:
        answer = await server.ask()
        await flood.stuck.wait()
        assert flood.sent < flood.size / 2
        assert len(await whole(answer)) == flood.size


async def test_where_nobody_listens_no_connection_comes_about() -> None:
    async with serving(saying(SIZED)) as server:
        pass
    with pytest.raises(NotConnected):
        await server.ask()


async def test_a_connection_that_takes_too_long_is_given_up() -> None:
    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    connections = Connections(f"https://127.0.0.1:{port}", {}, DIRECT, 0.0)  # less than any handshake takes
    with pytest.raises(ConnectTimeout):
        await connections.ask("GET", "/", {}, b"", 30.0)
    listener.close()


async def test_what_is_said_behind_a_body_is_no_header_of_the_next_answer() -> None:
    told = [CHUNKED.replace(b"End: yes", b"Content-Encoding: br\r\nRetry-After: 9"), SIZED]

    async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(told.pop(0))

    async with serving(say) as server:
        with await server.ask() as answer:
            assert await whole(answer) == b"hello world"
        with await server.ask() as answer:
            assert answer.headers.keys() == {b"content-type", b"content-length"}
            assert await whole(answer) == b"hello world"
    assert server.opened == 1


@pytest.mark.parametrize("fed", [True, False])
@pytest.mark.parametrize("endless", [b"X-%d: %s\r\n", b"more%d and more %s"])
async def test_what_is_said_behind_a_body_has_an_end(endless: bytes, fed: bool) -> None:
    async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nBegin: ")
        for number in range(2000):
            writer.write(endless % (number, b"x" * 1000))
            await writer.drain()
        writer.write(b"\r\n\r\n")

    async with serving(say) as server:
        with await server.ask() as answer, pytest.raises(NotHTTP, match="behind"):
            await (answer.feed(lambda _: True, 30.0) if fed else whole(answer))


async def test_a_status_that_nobody_knows_is_a_servers_trouble() -> None:
    async with serving(saying(SIZED.replace(b"200 OK", b"999 Denied"))) as server:
        with await server.ask() as answer:
            assert (answer.status, await answer.read(30.0)) == (502, b"hello world")


async def test_who_answers_before_it_has_heard_all_is_not_asked_again_there() -> None:
    """It may take the rest of the question for the next one, and somebody else would get the answer to that."""
    talking: list[asyncio.Task[None] | None] = []
    asked_twice = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SIZED)
        await asked_twice.wait()
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1024)
    port = listener.sockets[0].getsockname()[1]
    connections = Connections(f"http://127.0.0.1:{port}", {}, DIRECT, 5.0)
    for _ in range(2):
        assert await whole(await connections.ask("POST", "/", {}, b"x" * (64 << 20), 5.0)) == b"hello world"
    asked_twice.set()
    await asyncio.gather(*filter(None, talking))
    assert len(talking) == 2
    connections.close()
    listener.close()
    await listener.wait_closed()
