"""The other paths of an OpenAI server, for the upstream that serves the request's model. Handed requests that the edge
let in; lets bytes pass both ways.

The upstream's key is the operator's, so only listed paths pass, spelled so that nobody on the way can read them
otherwise.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import orjson
from starlette.types import Receive, Scope, Send

from providers.apart import in_thread, is_worth_a_thread

from ..answering.preparation import ONLINE, headers_up, without_web_plugin
from ..callers.caller import Caller
from ..callers.permission import check_model, plain_body
from ..config.settings import ServerConfig
from ..context import RequestContext, context_of
from ..dialects.search import take_out_search
from ..upstreams.client import UpstreamClient
from ..upstreams.directory import UpstreamDirectory
from ..upstreams.fallback import FallbackPlan
from ..values.errors import refuse
from ..values.patient_json import loads
from .bodies import decoded_body
from .delivery import while_connected
from .event_stream import EventStream
from .forwarded_answer import ForwardedRequest
from .forwarding import Forwarder

_FORWARDED_PATHS = re.compile(r"completions|embeddings|rerank|moderations|images/.+|audio/.+")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_~.:@-]+(?:/[A-Za-z0-9_~.:@-]+)*")  # no escapes: what is checked is what is sent
_FORM_MODEL = re.compile(rb'(?<![\w-])name="model"\r\n(?:[^\r\n]{1,500}\r\n){0,8}\r\n([^\r\n]{1,200})\r\n')


class ForwardRoute:
    def __init__(self, upstreams: UpstreamDirectory, server: ServerConfig, forwarder: Forwarder) -> None:
        self._upstreams = upstreams
        self._server = server
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        path, method = _checked_path(scope), scope["method"]
        standard = method == "POST" and bool(_FORWARDED_PATHS.fullmatch(path))
        listed = [upstream for upstream in self._upstreams if _lists(upstream, path)]
        if not listed and not standard:
            text = f"There is no {method} /v1/{path} here. List it in `upstreams[].forward` to pass it on."
            raise refuse(404, text, code="not_found")
        kind = context.headers.get("content-type", "")
        body, named, streamed = await decoded_body(receive, scope, self._server, _checked_body, context.caller, kind)
        upstream, model = self._upstream(named, listed, standard=standard)
        if upstream.forwarding is None:
            raise refuse(404, f"Upstream '{upstream.name}' serves chat completions only.", code="not_found")
        up = headers_up(context.headers)
        plan = self._upstreams.plan_alone(
            upstream,
            model,
            up,
            context.caller,
            context.observer,
            deadline=context.deadline,
            repeatable=standard or method == "GET",  # what else the operator lists may make something
        )
        headers = dict(plan.current.headers)
        if "content-type" in context.headers:
            headers["content-type"] = context.headers["content-type"]
        query = scope["query_string"].decode("latin-1")
        target = f"/{path}?{query}" if query else f"/{path}"
        if model != named:
            body = await in_thread(_renamed, body, model) if is_worth_a_thread(body) else _renamed(body, model)
        request = ForwardedRequest(method, target, body, headers, {})
        work = self._forward(context, send, plan, request, streamed=streamed)
        await while_connected(receive, work, context.observer)

    async def _forward(
        self, context: RequestContext, send: Send, plan: FallbackPlan, request: ForwardedRequest, *, streamed: bool
    ) -> None:
        stream = EventStream(send, {}) if streamed and request.completes else None
        try:
            while not await self._forwarder.forward(context, send, plan, request, stream):
                pass
        finally:
            if stream:
                stream.stop()

    def _upstream(self, model: str, listed: list[UpstreamClient], *, standard: bool) -> tuple[UpstreamClient, str]:
        """A path that is not standard passes only to an upstream that lists it, whatever model the body names."""
        if standard and (model or not listed):
            return self._upstreams.find(model)
        return next((upstream for upstream in listed if model and upstream.serves(model)), listed[0]), model


def _checked_path(scope: Scope) -> str:
    path: str = scope["raw_path"].decode("latin-1").partition("?")[0].removeprefix("/v1/")
    if not _PLAIN_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise refuse(404, "There is nothing at this path.", code="not_found")
    return path


def _lists(upstream: UpstreamClient, path: str) -> bool:
    return any(fnmatchcase("/v1/" + path, pattern) for pattern in upstream.config.forward)


def _checked_body(body: bytes, caller: Caller, kind: str) -> tuple[bytes, str, bool]:
    """The body as this caller may send it, the model that it names, and whether it asks for a stream."""
    if caller.policy.search.mode == "off":
        body = _without_search(body)
    named, streamed = _wanted(body)
    check_model(caller, named)
    return plain_body(caller, body, kind), named, streamed


def _without_search(body: bytes) -> bytes:
    """For a key that may not search: the model's server may not do it in its place."""
    try:
        parsed = loads(body)
        if not isinstance(parsed, dict):
            return body
        _, plain = take_out_search(without_web_plugin(parsed))
        if isinstance(plain.get("model"), str):
            plain["model"] = plain["model"].removesuffix(ONLINE)
        return body if plain == parsed else orjson.dumps(plain)
    except (ValueError, orjson.JSONEncodeError):
        return body


def _wanted(body: bytes) -> tuple[str, bool]:
    """The model that a forwarded body names, in JSON or in a form; and whether it asks for a stream."""
    try:
        parsed = loads(body)
    except ValueError:
        found = _FORM_MODEL.search(body[:1_000_000])
        return found[1].decode("utf-8", "replace").strip() if found else "", False
    if not isinstance(parsed, dict):
        return "", False
    model = parsed.get("model")
    return model if isinstance(model, str) else "", parsed.get("stream") is True


def _renamed(body: bytes, model: str) -> bytes:
    """The body with the model's own name in place of its alias. One that can name no model stays as it is."""
    try:
        parsed = loads(body)
        return orjson.dumps({**parsed, "model": model}) if isinstance(parsed, dict) else body
    except ValueError:
        found = _FORM_MODEL.search(body)
        return body[: found.start(1)] + model.encode() + body[found.end(1) :] if found else body
    except orjson.JSONEncodeError:
        raise refuse(400, "The request body is nested too deeply.", code="invalid_json") from None
