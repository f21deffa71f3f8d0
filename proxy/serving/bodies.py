"""Reading a request's body, within the size and time that the server allows. Handed ASGI's `receive`; hands on all of
the body, or refuses and closes the connection. A body of too many parts is refused here too, before anybody parses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

from starlette.types import Receive, Scope

from providers.apart import in_thread, is_worth_a_thread
from providers.deadlines import time_limit

from ..config.settings import ServerConfig
from ..context import context_of
from ..values.errors import RequestError, failure, refuse
from ..values.patient_json import MOST_PARTS, has_too_many_parts
from ..watching.steps import Received
from .exchange import exchange_behind

P = ParamSpec("P")
T = TypeVar("T")


async def read_body(receive: Receive, scope: Scope, server: ServerConfig) -> bytes:
    exchange = exchange_behind(receive)
    body = exchange.whole_body() if exchange else None
    waited = 0.0
    if body is None:  # nearly always it has come with the head
        began = time.perf_counter()
        body = await _awaited(receive, scope, server)
        waited = time.perf_counter() - began
    elif len(body) > server.max_body:
        raise _too_large(server)
    if len(body) > MOST_PARTS and await in_thread(has_too_many_parts, body):
        text = f"The request body holds more than {MOST_PARTS} JSON values: send fewer messages, or shorter lists."
        raise refuse(400, text, code="too_many_parts")
    context_of(scope).observer.tell(Received(waited))
    return body


async def decoded_body(
    receive: Receive,
    scope: Scope,
    server: ServerConfig,
    decode: Callable[Concatenate[bytes, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """What the body says, as an endpoint reads it; what takes long to read is read in a thread."""
    raw = await read_body(receive, scope, server)
    if is_worth_a_thread(raw):
        return await in_thread(decode, raw, *args, **kwargs)
    return decode(raw, *args, **kwargs)


async def _awaited(receive: Receive, scope: Scope, server: ServerConfig) -> bytes:
    length = next((value for key, value in scope["headers"] if key == b"content-length"), b"0")
    if length.isdigit() and int(length) > server.max_body:
        raise _too_large(server)
    async with time_limit(server.body_timeout, too_late()):
        return await _all_parts(receive, server)


async def _all_parts(receive: Receive, server: ServerConfig) -> bytes:
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise refuse(400, "The client left before the body was complete.", code="client_left")
        part = message.get("body", b"")
        size += len(part)
        if size > server.max_body:
            raise _too_large(server)
        parts.append(part)
        more = bool(message.get("more_body"))
    return b"".join(parts)


def too_late() -> RequestError:
    return _hang_up(408, "The request body did not arrive in time.", "request_timeout")


def _too_large(server: ServerConfig) -> RequestError:
    return _hang_up(413, f"The request body is larger than {server.max_body} bytes.", "request_too_large")


def _hang_up(status: int, message: str, code: str) -> RequestError:
    """A refusal that closes the connection with it: nobody waits for the rest of the body."""
    return RequestError(replace(failure(status, message, code=code), headers={"connection": "close"}))
