"""The guard at the door, in pure ASGI: Host, origins, keys, limits, content type, request ids, and the way out at
shutdown. Handed every request before a route sees it; makes its context and hands on the ones that may enter. Refusals
that any room raises become their HTTP answer here, dressed in the dialect of the path.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..callers.caller import Caller
from ..callers.keys import ClientKeys
from ..callers.limiter import Limiter
from ..callers.standing import Standing
from ..config.settings import Config, ServerConfig
from ..context import RequestContext, attach
from ..values.dialect import Dialect
from ..values.errors import RequestError, crashed, refuse, shutting_down
from ..values.events import Failed
from ..values.response_paths import is_about_stored_response
from ..watching.contents import printable
from ..watching.observer import Listener, Observer
from ..watching.prices import NO_PRICES, PriceList
from . import cors, engine_doors
from .cors import ListedOrigins
from .delivery import raw_headers, send_failure
from .refusal import refusal

log = logging.getLogger("groundwire")

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 compared with, not bound
_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::[0-9]*)?")
_UPSTREAM_LIMITS = (b"x-ratelimit-", b"anthropic-ratelimit-")
_UPLOADS = ("/v1/audio/", "/v1/images/")  # where OpenAI's own API takes forms

Headers = dict[bytes, list[bytes]]
RawHeaders = Sequence[tuple[bytes, bytes]]
DialectOf = Callable[[str, RawHeaders], Dialect]


class Edge:
    """`dialect_of` names the dialect of a path with these headers; `listeners` hear of every request, let in or not."""

    def __init__(
        self,
        app: ASGIApp,
        server: ServerConfig,
        keys: ClientKeys,
        dialect_of: DialectOf,
        listeners: Sequence[Listener] = (),
        *,
        limiter: Limiter | None = None,
        prices: PriceList = NO_PRICES,
    ) -> None:
        self._app = app
        self._limiter = limiter
        self._prices = prices
        self._keys = keys
        self._dialect_of = dialect_of
        self._listeners = tuple(listeners)
        self._request_timeout = server.request_timeout
        self._body_timeout = server.body_timeout
        # Bound to every address, the names a machine is called by cannot be known; then the keys are the guard.
        self._any_host = server.host in _ANY_ADDRESS and not server.allowed_hosts
        self._hosts = _LOOPBACK_NAMES | {server.host} | set(server.allowed_hosts)
        self._origins = ListedOrigins(server.cors) if server.cors else None
        self._under_way: set[asyncio.Task[None]] = set()
        self.draining = False
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = self._dialect_of(scope["path"], scope["headers"])
        request_id = _new_id()
        observer = Observer(
            self._listeners,
            request_id=request_id,
            method=scope["method"],
            path=_path(scope),
            dialect=dialect.name,
            prices=self._prices,
        )
        standing: Standing | None = None
        origin = self._origins.of(scope["headers"]) if self._origins else b""

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                observer.status = message["status"]
                if self._keys.required:
                    message["headers"] = _with_limits(message["headers"], standing)
                message["headers"] += [(name, request_id.encode()) for name in _id_headers(dialect)]
                if self._origins:
                    message["headers"] = cors.shared_with(origin, message["headers"])
            await send(message)

        async def answer_failure(failed: Failed) -> None:
            observer.fail(failed.error.get("code"))
            await send_failure(send_marked, dialect, failed)

        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            headers = _headers(scope)
            self._check_host(headers)
            if origin and cors.is_preflight(scope["method"], headers):
                await _answer_preflight(send_marked, headers)
                return
            engine_doors.check_page(scope, headers, listed=bool(origin))
            caller, receive = await self._identify(scope, headers, receive)
            observer.caller = caller.name
            if b"upgrade" in headers:
                _refuse_websocket(scope, headers)
            standing = await self._standing(caller, scope, dialect)
            if standing and standing.refusal:
                raise RequestError(standing.refusal)
            if scope["method"] == "POST":
                self._check_content_type(scope["path"], headers, listed=bool(origin))
            left = standing.searches_left if standing else None
            attach(scope, self._context(request_id, dialect, observer, caller, headers, left))
            await self._app(scope, receive, send_marked)
        except RequestError as error:
            await answer_failure(error.failed)
        except Exception:  # the last boundary: whatever it is, the client gets an answer and the log the trace
            log.exception("%s %s failed %s", observer.method, printable(observer.path, 200), request_id)
            observer.fail("internal_error")
            if observer.status:
                raise  # the server breaks the connection off, so that half an answer does not look whole
            await answer_failure(crashed())
        except asyncio.CancelledError:
            if not self.stopping:
                observer.fail("cancelled")
                raise
            task.uncancel()
            if not observer.status:
                await answer_failure(shutting_down())
            observer.fail("shutting_down")
        finally:
            self._under_way.discard(task)
            observer.end()

    async def _standing(self, caller: Caller, scope: Scope, dialect: Dialect) -> Standing | None:
        """Where the caller stands with its limits; None where it has none."""
        if caller.limits is None or self._limiter is None:
            return None
        path = engine_doors.counted_path(scope)
        return await self._limiter.admit(caller.limits, scope["method"], path, dialect.name)

    def _context(
        self,
        request_id: str,
        dialect: Dialect,
        observer: Observer,
        caller: Caller,
        headers: Headers,
        searches_left: int | None,
    ) -> RequestContext:
        deadline = asyncio.get_running_loop().time() + self._request_timeout
        readable = {name.decode("latin-1"): values[-1].decode("latin-1") for name, values in headers.items()}
        return RequestContext(request_id, dialect, deadline, observer, caller, readable, searches_left)

    def change(self, config: Config) -> None:
        """For the requests to come the keys, groups and prices of this config count."""
        self._keys.change(config.server.keys, config.server.groups)
        self._prices = PriceList(config.prices)

    def refuse_head(
        self, failed: Failed, method: str, path: str, seconds: float, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> bytes:
        """The answer to what never became a request, with as many of its headers as were read. Whoever watches is told
        of it like of any other."""
        dialect, request_id = self._dialect_of(path, headers), _new_id()
        observer = Observer(
            self._listeners, request_id=request_id, method=method or "-", path=path or "-", dialect=dialect.name
        )
        observer.began -= seconds
        observer.status = dialect.status(failed)
        observer.fail(failed.error["code"])
        observer.end()
        said = {**failed.headers, **{name.decode(): request_id for name in _id_headers(dialect)}}
        if self._origins:
            raw = cors.shared_with(self._origins.of(headers), raw_headers(said))
            said = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
        return refusal(failed, dialect.error(failed), said, status=dialect.status(failed))

    def stop_now(self) -> None:
        """Ends what is under way: streams say so in an error event, the rest gets 503."""
        self.draining = self.stopping = True
        for task in self._under_way:
            task.cancel()

    async def _identify(self, scope: Scope, headers: Headers, receive: Receive) -> tuple[Caller, Receive]:
        """Who asks; and the body, part of which may have been read for it."""
        looks = scope["method"] == "HEAD" and scope["path"] == "/"  # whether anybody is there, which is no secret
        if looks or scope["path"] in OPEN_PATHS:
            return Caller(), receive
        shown = engine_doors.with_password_as_key(scope, headers)
        if self._keys.required:
            shown, receive = await engine_doors.with_key_of_body(scope, shown, receive, self._body_timeout)
        return await self._keys.identify(shown), receive

    def _check_host(self, headers: Headers) -> None:
        """That there is exactly one was seen to where the head was read (heads.py)."""
        if self._any_host:
            return
        host = headers[b"host"][0].decode("latin-1").lower()
        read = _HOST.fullmatch(host)
        name = (read["address"] or read["name"]) if read else host
        if name.rstrip(".") not in self._hosts:
            text = f"The host '{name}' is not served here. Add it to `server.allowed_hosts` if it should be."
            raise refuse(403, text, code="host_not_allowed")

    def _check_content_type(self, path: str, headers: Headers, *, listed: bool) -> None:
        """A web page can post a form to a loopback server without asking anybody; it cannot post JSON."""
        given = headers.get(b"content-type", [b""])
        if len(given) > 1:
            raise refuse(400, "Send exactly one Content-Type header.", code="bad_request")
        kind = given[0].split(b";")[0].strip().lower()
        if not kind and is_about_stored_response("POST", path):  # it has no body, and names what nobody can guess
            return
        if kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json")):
            return
        upload = kind == b"multipart/form-data" and path.startswith(_UPLOADS)
        foreign = b"origin" in headers and not listed
        if not upload or (foreign and not self._keys.required):
            text = "Send the body as JSON, with `Content-Type: application/json`."
            raise refuse(415, text, code="unsupported_media_type")


async def _answer_preflight(send: Send, headers: Headers) -> None:
    """Whether a page of a listed origin may ask at all: before any key, which a browser does not send with this."""
    await send({"type": "http.response.start", "status": 204, "headers": cors.preflight(headers)})
    await send({"type": "http.response.body", "body": b""})


def _refuse_websocket(scope: Scope, headers: Headers) -> None:
    """Who wants a WebSocket has no use for any other answer, and clients that can do without one know this status."""
    wanted = headers[b"upgrade"][-1].strip().lower()
    if wanted == b"websocket" and scope["method"] == "GET" and scope["path"] not in OPEN_PATHS:
        text = "WebSockets are not spoken here: send the request as an HTTP POST, with `stream: true` for a stream."
        raise refuse(426, text, code="no_websockets")


def _id_headers(dialect: Dialect) -> Sequence[bytes]:
    """Where SDKs look for a request's id; those of Anthropic's API at another place."""
    return (b"x-request-id", b"request-id") if dialect.name == "messages" else (b"x-request-id",)


def _new_id() -> str:
    return "req_" + secrets.token_hex(12)


def _with_limits(headers: list[tuple[bytes, bytes]], standing: Standing | None) -> list[tuple[bytes, bytes]]:
    """Our limits in place of the upstream's: those are about the operator's account, which is nobody else's affair."""
    kept = [header for header in headers if not header[0].startswith(_UPSTREAM_LIMITS)]
    return kept + standing.headers if standing else kept


def _headers(scope: Scope) -> Headers:
    headers: Headers = {}
    for key, value in scope["headers"]:
        headers.setdefault(key, []).append(value)
    return headers


def _path(scope: Scope) -> str:
    """The path as it was sent: decoded, it could hold line breaks, and with them lines of its own in the log."""
    return str(scope["raw_path"].decode("latin-1"))
