"""Bytes both ways, for whatever gets no tools of ours: chat requests without search, and the other paths of an OpenAI
server. Handed a request that the edge let in and the upstream for it; hands the upstream's answer on as it comes.

The upstream's key is the operator's, so only listed paths pass, spelled so that nobody on the way can read them
otherwise.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from ..answering.preparation import headers_up
from ..context import RequestContext, context_of
from ..house import House
from ..upstreams.client import UpstreamClient
from ..upstreams.directory import own_key
from ..upstreams.fallback import is_servers_trouble
from ..upstreams.transport import Broken, Forwarding
from ..values.errors import refuse, shutting_down, too_long, truncated
from ..values.events import Failed
from ..watching.observer import Observer
from ..watching.steps import FirstContent, Forwarded, ModelFailed, tokens_in
from .bodies import read_body
from .delivery import raw_headers, send_failure, while_connected

_FORWARDED_PATHS = re.compile(r"completions|embeddings|rerank|moderations|images/.+|audio/.+")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_~.:@-]+(?:/[A-Za-z0-9_~.:@-]+)*")  # no escapes: what is checked is what is sent
_ENDS = (b"[DONE]", b'"finish_reason":"', b'"finish_reason": "', b'data: {"error"', b'data:{"error"')
_FORM_MODEL = re.compile(rb'name="model"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,200})\r\n')
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_USAGE_LIMIT = 4096  # bytes of a body's end in which its usage is looked for


class Forwarder:
    """The way through: an upstream's answer, within the time that an answer may take."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping

    async def forward(
        self,
        context: RequestContext,
        send: Send,
        upstream: UpstreamClient,
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
        transport = upstream.transport
        assert isinstance(transport, Forwarding)
        started = streamed = False
        observer, dialect = context.observer, context.dialect

        async def end(failed: Failed | None) -> None:
            """The end of a body; of a stream, with an error event if it is not whole."""
            if failed:
                observer.fail(failed.error.get("code"))
            last_words = b"\n\n" + dialect.error_event(failed) if failed else b""
            await send({"type": "http.response.body", "body": last_words})

        try:
            async with (
                asyncio.timeout_at(context.deadline),
                transport.forward(method, path, up, body, streamed=stream) as reply,
            ):
                if not last and is_servers_trouble(reply.status):
                    observer.tell(ModelFailed(upstream.name, reply.status, ""))
                    return False
                observer.tell(Forwarded(upstream.name, reply.status))
                headers = {**reply.headers, **down}
                streamed = headers.get("content-type", "").startswith("text/event-stream")
                if streamed:
                    headers |= {"cache-control": "no-cache", "x-accel-buffering": "no"}
                await send({"type": "http.response.start", "status": reply.status, "headers": raw_headers(headers)})
                started = True
                # Only the streams of completions say when they are whole.
                tail, complete = b"", not (streamed and path.partition("?")[0].endswith("/completions"))
                async for data in reply.chunks:
                    if not tail:
                        observer.tell(FirstContent())
                    if not complete:
                        window = tail[-40:] + data
                        complete = any(mark in window for mark in _ENDS)
                    tail = (tail + data)[-_USAGE_LIMIT:]
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            _tell_end(observer, reply.status, tail)
            await end(None if complete else truncated())
        except Broken:
            if not streamed:
                raise
            await end(truncated())
        except TimeoutError:
            if not started:
                observer.fail("request_timeout")
                await send_failure(send, dialect, too_long(), down)
            elif streamed:
                await end(too_long())
            else:
                raise Broken from None
        except asyncio.CancelledError:
            if streamed and self._stopping():
                await end(shutting_down())
            raise
        return True


class ForwardRoute:
    """The other paths of an OpenAI server, for the upstream that serves the request's model."""

    def __init__(self, house: House, forwarder: Forwarder) -> None:
        self._house = house
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        path, method = _checked_path(scope), scope["method"]
        standard = method == "POST" and bool(_FORWARDED_PATHS.fullmatch(path))
        listed = [upstream for upstream in self._house.upstreams if _lists(upstream, path)]
        if not listed and not standard:
            text = f"There is no {method} /v1/{path} here. List it in `upstreams[].forward` to pass it on."
            raise refuse(404, text, code="not_found")
        body = await read_body(receive, scope, self._house.config.server)
        named = _model_of(body)
        upstream, model = self._upstream(named, listed, standard=standard)
        if not isinstance(upstream.transport, Forwarding):
            raise refuse(404, f"Upstream '{upstream.name}' serves chat completions only.", code="not_found")
        up = {**headers_up(context.headers), **own_key(upstream, context.caller)}
        if model != named:
            body = _renamed(body, model)
        if "content-type" in context.headers:
            up["content-type"] = context.headers["content-type"]
        query = scope["query_string"].decode("latin-1")
        target = f"/{path}?{query}" if query else f"/{path}"
        forwarded = self._forwarder.forward(context, send, upstream, method, target, up, body, {})
        await while_connected(receive, forwarded, context.observer)

    def _upstream(self, model: str, listed: list[UpstreamClient], *, standard: bool) -> tuple[UpstreamClient, str]:
        """A path that is not standard passes only to an upstream that lists it, whatever model the body names."""
        if standard and (model or not listed):
            return self._house.upstreams.find(model)
        return next((upstream for upstream in listed if model and upstream.serves(model)), listed[0]), model


def _checked_path(scope: Scope) -> str:
    path: str = scope["raw_path"].decode("latin-1").partition("?")[0].removeprefix("/v1/")
    if not _PLAIN_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise refuse(404, "There is nothing at this path.", code="not_found")
    return path


def _tell_end(observer: Observer, status: int, tail: bytes) -> None:
    """What a forwarded answer says of itself at its end."""
    if status >= 400:
        observer.fail(f"http_{status}")
    places = [found.end() for found in _USAGE.finditer(tail)]
    usage = _object_at(tail[places[-1] :].decode("utf-8", "replace")) if places else {}
    if usage:
        observer.tell(tokens_in(usage))


def _object_at(text: str) -> dict[str, Any]:
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


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
