"""The floor for a proxy in Python: a bare Starlette route on uvicorn (uvloop, httptools) that pumps bytes with aiohttp
and does nothing else. No key is checked, nothing is read, written down or kept. Handed an upstream's address and a
port; serves `POST /v1/…` and `GET /healthz` until it is stopped.

    .venv/bin/python bench/relay.py http://127.0.0.1:9100 8080
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

FORWARDED_UP = ("content-type", "authorization")


class Relayed(Response):
    """An upstream's answer, each piece as it comes. Starlette's own streaming response would start a task group."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answer
        headers = [(b"content-type", answer.headers["content-type"].encode())]
        if answer.content_length is not None:
            headers.append((b"content-length", str(answer.content_length).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for piece in answer.content.iter_any():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def application(upstream: str) -> Starlette:
    session: aiohttp.ClientSession

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        nonlocal session
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield

    async def relay(request: Request) -> Response:
        headers = {name: request.headers[name] for name in FORWARDED_UP if name in request.headers}
        body = await request.body()
        return Relayed(await session.post(upstream + request.url.path, data=body, headers=headers))

    async def health(request: Request) -> Response:
        return PlainTextResponse("ok")

    routes = [Route("/v1/{path:path}", relay, methods=["POST"]), Route("/healthz", health)]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(
        application(sys.argv[1]),
        port=int(sys.argv[2]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
