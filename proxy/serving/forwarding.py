"""Bytes both ways, for whatever gets no tools of ours: chat requests without search, and the other paths of an OpenAI
server. Handed a request that the edge let in and the upstream for it; hands the upstream's answer on as it comes.

The upstream's key is the operator's, so only listed paths pass, spelled so that nobody on the way can read them
otherwise.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

import orjson
from starlette.types import Receive, Scope, Send

from ..dialects import chat
from ..house import House, own_key
from ..upstreams.client import UpstreamClient
from ..upstreams.fallback import is_servers_trouble
from ..upstreams.transport import Broken, Forwarding
from ..values.errors import refuse, shutting_down, too_long, truncated
from ..values.events import Failed
from ..values.sse import encode
from .delivery import raw_headers, send_failure, while_connected
from .edge import Edge, read_body

_FORWARDED_UP = frozenset({"accept", "openai-beta", "traceparent", "tracestate", "x-title", "http-referer"})
_FORWARDED_PATHS = re.compile(r"completions|embeddings|rerank|moderations|images/.+|audio/.+")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_~.:@-]+(?:/[A-Za-z0-9_~.:@-]+)*")  # no escapes: what is checked is what is sent
_ENDS = (b"[DONE]", b'"finish_reason":"', b'"finish_reason": "', b'data: {"error"', b'data:{"error"')
_FORM_MODEL = re.compile(rb'name="model"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,200})\r\n')


class Forwarder:
    """The way through: an upstream's answer, within the time that an answer may take."""

    def __init__(self, edge: Edge, limit: float) -> None:
        self._edge = edge
        self._limit = limit

    async def forward(
        self,
        send: Send,
        transport: Forwarding,
        method: str,
        path: str,
        up: Mapping[str, str],
        body: bytes,
        down: Mapping[str, str],
        *,
        stream: bool = False,
        last: bool = True,
    ) -> bool:
        """A stream that breaks off ends in an error event, any other body in a broken connection. Where the upstream is
        not the last that could serve, its own trouble is not passed on; then the answer is no."""
        started = streamed = False
        try:
            async with (
                asyncio.timeout(self._limit),
                transport.forward(method, path, up, body, streamed=stream) as reply,
            ):
                if not last and is_servers_trouble(reply.status):
                    return False
                headers = {**reply.headers, **down}
                streamed = headers.get("content-type", "").startswith("text/event-stream")
                if streamed:
                    headers |= {"cache-control": "no-cache", "x-accel-buffering": "no"}
                await send({"type": "http.response.start", "status": reply.status, "headers": raw_headers(headers)})
                started = True
                # Only the streams of completions say when they are whole.
                tail, complete = b"", not (streamed and path.partition("?")[0].endswith("/completions"))
                async for data in reply.chunks:
                    if not complete:
                        tail = tail[-40:] + data
                        complete = any(end in tail for end in _ENDS)
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            await _end(send, None if complete else truncated())
        except Broken:
            if not streamed:
                raise
            await _end(send, truncated())
        except TimeoutError:
            if not started:
                await send_failure(send, too_long(), down)
            elif streamed:
                await _end(send, too_long())
            else:
                raise Broken from None
        except asyncio.CancelledError:
            if streamed and self._edge.stopping:
                await _end(send, shutting_down())
            raise
        return True


class Forward:
    """The other paths of an OpenAI server, for the upstream that serves the request's model."""

    def __init__(self, house: House, forwarder: Forwarder) -> None:
        self._house = house
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("latin-1").partition("?")[0].removeprefix("/v1/")
        if not _PLAIN_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
            raise refuse(404, "There is nothing at this path.", code="not_found")
        method = scope["method"]
        standard = method == "POST" and _FORWARDED_PATHS.fullmatch(path)
        listed = [upstream for upstream in self._house.upstreams if _lists(upstream, path)]
        if not listed and not standard:
            text = f"There is no {method} /v1/{path} here. List it in `upstreams[].forward` to pass it on."
            raise refuse(404, text, code="not_found")
        body = await read_body(receive, scope, self._house.config.server)
        asked = _model_of(body)
        upstream, model = self._upstream(asked, listed, standard=bool(standard))
        if not isinstance(upstream.transport, Forwarding):
            raise refuse(404, f"Upstream '{upstream.transport.name}' serves chat completions only.", code="not_found")
        headers = headers_of(scope)
        up = {**upward(headers), **own_key(upstream, scope["client_key"])}
        if model != asked:
            body = _renamed(body, model)
        if "content-type" in headers:
            up["content-type"] = headers["content-type"]
        query = scope["query_string"].decode("latin-1")
        target = f"/{path}?{query}" if query else f"/{path}"
        forwarder = self._forwarder.forward(send, upstream.transport, method, target, up, body, {})
        await while_connected(receive, forwarder)

    def _upstream(self, model: str, listed: list[UpstreamClient], *, standard: bool) -> tuple[UpstreamClient, str]:
        """A path that is not standard passes only to an upstream that lists it, whatever model the body names."""
        if standard and (model or not listed):
            return self._house.upstream_for(model)
        return next((upstream for upstream in listed if model and upstream.serves(model)), listed[0]), model


def headers_of(scope: Scope) -> dict[str, str]:
    return {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}


def upward(headers: Mapping[str, str]) -> dict[str, str]:
    """The client's headers that an upstream may see."""
    return {key: value for key, value in headers.items() if key in _FORWARDED_UP}


async def _end(send: Send, failed: Failed | None) -> None:
    """The end of a forwarded body; of a stream, with an error event if it is not whole."""
    last = b"\n\n" + encode(chat.error_body(failed)) if failed else b""
    await send({"type": "http.response.body", "body": last})


def _lists(upstream: UpstreamClient, path: str) -> bool:
    return any(fnmatchcase("/v1/" + path, pattern) for pattern in upstream.config.forward)


def _model_of(body: bytes) -> str:
    """The model that a forwarded body names, in JSON or in a form."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = _FORM_MODEL.search(body[:1_000_000])
        return found[1].decode("utf-8", "replace").strip() if found else ""
    model = parsed.get("model") if isinstance(parsed, dict) else None
    return model if isinstance(model, str) else ""


def _renamed(body: bytes, model: str) -> bytes:
    """The body with the model's own name in place of its alias."""
    try:
        return orjson.dumps({**orjson.loads(body), "model": model})
    except orjson.JSONDecodeError:
        found = _FORM_MODEL.search(body)
        assert found is not None
        return body[: found.start(1)] + model.encode() + body[found.end(1) :]
