"""A client that sends whatever it likes: bytes over a bare socket to a running Groundwire, and what comes back."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import Any

from tests.fakes.groundwire import Groundwire

PATIENCE = 20.0  # seconds; a server that does not hang up by then never will


def connect(proxy: Groundwire, *, receive_buffer: int = 0) -> socket.socket:
    host, port = proxy.root.removeprefix("http://").split(":")
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(PATIENCE)
    connection.connect((host, int(port)))
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    """Until the server hangs up."""
    parts = []
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def exchange(proxy: Groundwire, sent: bytes) -> bytes:
    with connect(proxy) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # it hung up on what we were still sending
            connection.sendall(sent)
        return read_to_end(connection)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error_in(answer: bytes) -> dict[str, Any]:
    """The error of an answer in our shape, which says that it is the last one."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower().split(b"\r\n")
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


def chat_request(*headers: str, stream: bool = False, model: str = "m") -> bytes:
    body = json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": "Why?"}]}).encode()
    lines = ["POST /v1/chat/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
