"""A server that speaks TLS and hangs up with its last byte: nothing of what it said is lost, in either event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvloop

from providers.web.connections import Connections
from providers.web.egress import Egress, Proxy
from tests.fakes.egress import Authority, HttpProxy

BODY = bytes(range(256)) * 1200  # more than a read of the network brings, and many times what is held
CLOSES = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
SIZED = CLOSES + b"Content-Length: %d\r\n\r\n" % len(BODY)
LOOPS = [asyncio.run, uvloop.run]  # which end TLS in different ways


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@contextmanager
def hanging_up(said: bytes, tls: ssl.SSLContext | None) -> Iterator[int]:
    """The port of a server that says this to the first who asks, and closes without waiting for a farewell."""

    def serve() -> None:
        connection = listener.accept()[0]
        with tls.wrap_socket(connection, server_side=True) if tls else connection as client:
            client.recv(65536)
            with suppress(OSError):
                client.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        yield listener.getsockname()[1]
        serving.join()


async def read(connections: Connections, pause: float) -> bytes:
    found = b""
    with await connections.ask("GET", "/", {}, b"", 10.0) as answer:
        while data := await answer.read(10.0):
            found += data
            await asyncio.sleep(pause)
    connections.close()
    return found


@pytest.mark.parametrize("run", LOOPS)
@pytest.mark.parametrize("pause", [0.0, 0.01], ids=["read at once", "read slowly"])
@pytest.mark.parametrize("head", [SIZED, CLOSES + b"\r\n"], ids=["sized", "to the end"])
def test_all_of_an_answer_is_read_though_its_server_hangs_up(
    authority: Authority, head: bytes, pause: float, run: Callable[..., Any]
) -> None:
    async def ask(port: int) -> bytes:
        egress = Egress(ca_file=str(authority.file))
        return await read(Connections(f"https://127.0.0.1:{port}", {}, egress, 5.0), pause)

    with hanging_up(head + BODY, authority.server("127.0.0.1")) as port:
        assert run(ask(port)) == BODY


@pytest.mark.parametrize("run", LOOPS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_and_through_a_proxy_behind_tls(authority: Authority, scheme: str, run: Callable[..., Any]) -> None:
    async def ask(proxy: HttpProxy, port: int) -> bytes:
        through = Proxy.read(proxy.url())
        egress = Egress(http=through, https=through, ca_file=str(authority.file))
        return await read(Connections(f"{scheme}://model.example:{port}", {}, egress, 5.0), 0.01)

    tls = authority.server("model.example") if scheme == "https" else None
    with hanging_up(CLOSES + b"\r\n" + BODY, tls) as port:
        names = {"model.example": ("127.0.0.1", port)}
        with HttpProxy(names, tls=authority.server("127.0.0.1")) as proxy:
            assert run(ask(proxy, port)) == BODY


@pytest.mark.parametrize("run", LOOPS)
def test_who_reads_nothing_lets_the_server_wait(authority: Authority, run: Callable[..., Any]) -> None:
    size = 64 << 20
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        with suppress(OSError):
            while sent < size:
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536
        writer.close()

    async def ask() -> None:
        listener = await asyncio.start_server(flood, "127.0.0.1", 0, ssl=authority.server("127.0.0.1"))
        port = listener.sockets[0].getsockname()[1]
        connections = Connections(f"https://127.0.0.1:{port}", {}, Egress(ca_file=str(authority.file)), 5.0)
        try:
            with await connections.ask("GET", "/", {}, b"", 10.0):
                before = -1
                while sent != before:
                    before = sent
                    await asyncio.sleep(0.5)
        finally:  # uvloop never ends with a listener that is open where warnings are errors, as they are here
            listener.close()

    run(ask())
    assert sent < size
