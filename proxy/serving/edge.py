"""The guard at the door, in pure ASGI: Host, origins, keys, limits, content type, request ids, and the way out at
shutdown. Handed every request before a route sees it; makes its context and hands on the ones that may enter. Refusals
that any room raises become their HTTP answer here, dressed in the dialect of the path.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..callers.caller import Caller
from ..callers.keys import ClientKeys, Identity
from ..callers.limiter import Limiter
from ..callers.limits import KeyLimits
from ..config.settings import Config, ServerConfig
from ..context import RequestContext, attach
from ..values.dialect import Dialect
from ..values.errors import RequestError, refuse
from ..values.events import Failed
from ..values.response_paths import is_about_stored_response
from ..watching.observer import Listener, Observer
from ..watching.prices import NO_PRICES, PriceList
from . import cors, search_engine_clients
from .arrival import Arrival, new_request_id
from .cors import ListedOrigins
from .page_route import is_page
from .pieces import raw_headers
from .refusal import refusal
from .request_head import RawHeaders, head_of

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})  # what holds nobody's data
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 compared with, not bound
_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::[0-9]*)?")
_OF_TRACE = frozenset({b"traceparent", b"tracestate"})
_TOLD_WITHIN = 0.02  # seconds from the end of a request until those who watch hear of it
_MOST_UNTOLD = 64  # requests: to tell of more at once would keep others waiting
_UPLOADS = ("/v1/audio/", "/v1/images/")  # where OpenAI's own API takes forms

Headers = dict[bytes, list[bytes]]
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
        self._playground = server.playground
        # Bound to every address, the names a machine is called by cannot be known; then the keys are the guard.
        self._any_host = server.host in _ANY_ADDRESS and not server.allowed_hosts
        self._hosts = _LOOPBACK_NAMES | {server.host} | set(server.allowed_hosts)
        self._origins = ListedOrigins(server.cors) if server.cors else None
        self._under_way: set[asyncio.Task[None]] = set()
        self._over: list[Observer] = []  # requests of whose end nobody was told yet
        self._tell_timer: asyncio.TimerHandle | None = None
        self.draining = False
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, partial(self._receive_and_tell, receive), send)
            return
        if self._over and scope["method"] == "GET":  # it may ask about those that have ended
            self.tell_ends()
        arrival = self._arrival(scope, send)
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._under_way.add(task)
        try:
            entered = await self._let_in(arrival, receive, loop)
            if entered is not None:
                await self._app(scope, entered, arrival.send)
        except RequestError as error:
            await arrival.refuse(error.failed)
        except Exception:  # the last boundary: whatever it is, the client gets an answer and the log the trace
            broken_off = arrival.is_answered
            await arrival.give_up()
            if broken_off:
                raise  # the server breaks the connection off, so that half an answer does not look whole
        except asyncio.CancelledError:
            if not self.stopping:
                arrival.observer.fail("cancelled")
                raise
            task.uncancel()
            await arrival.break_off()
        finally:
            self._under_way.discard(task)
            self._end(arrival.observer, loop)

    def _end(self, observer: Observer, loop: asyncio.AbstractEventLoop) -> None:
        """Whoever watches hears a little later of many together: one after the other they cost a third of what each
        costs alone, and a client that asks again as soon as it has its answer does not wait for it."""
        observer.stop()
        if not self._over:
            self._tell_timer = loop.call_later(_TOLD_WITHIN, self.tell_ends)
        self._over.append(observer)
        if len(self._over) >= _MOST_UNTOLD:
            self.tell_ends()

    def tell_ends(self) -> None:
        """Tells whoever watches of all that have ended, now."""
        over, self._over = self._over, []
        if self._tell_timer is not None:
            self._tell_timer.cancel()
        for observer in over:
            observer.tell_end()

    async def _receive_and_tell(self, receive: Receive) -> Message:
        """Of the lifespan: when the server ends, whoever watches hears first of every request that has ended."""
        message = await receive()
        self.tell_ends()
        return message

    def _arrival(self, scope: Scope, send: Send) -> Arrival:
        head = head_of(scope)
        if head.dialect is None:
            head.dialect = self._dialect_of(search_engine_clients.known_path(scope), scope["headers"])
            if self._origins:
                head.origin = self._origins.of(scope["headers"])
        request_id = new_request_id()
        dialect, method, path = head.dialect, scope["method"], head.sent_path
        observer = Observer(self._listeners, request_id, method, path, dialect.name, self._prices)
        hides_limits, shared = self._keys.required, self._origins is not None
        return Arrival(scope, head, dialect, send, request_id, observer, hides_limits, shared)

    async def _let_in(self, arrival: Arrival, receive: Receive, loop: asyncio.AbstractEventLoop) -> Receive | None:
        """Hands on where the body of a request that may enter is read; None: it is answered."""
        scope, head, observer = arrival.scope, arrival.head, arrival.observer
        headers: Mapping[str, str] = head.readable
        if not _OF_TRACE.isdisjoint(dict(scope["headers"])):
            trace = _of_trace(scope["headers"])
            headers = {**headers, **{name: values[-1] for name, values in trace.items()}}
            if "traceparent" in trace:
                observer.trace_headers = {name: ",".join(values) for name, values in trace.items()}
        identity = head.identity
        if identity is not None and await self._keys.knows(identity):
            caller = identity.caller  # all else was asked of the request before it on this connection
            observer.caller = caller.name
            if caller.limits is not None:
                await self._take_stock(arrival, caller.limits)
        else:
            entered = await self._ask(arrival, receive)
            if entered is None:
                return None
            caller, receive = entered
        deadline = loop.time() + self._request_timeout
        left = arrival.standing.searches_left if arrival.standing else None
        attach(
            scope,
            RequestContext(arrival.request_id, arrival.dialect, deadline, observer, caller, headers, left, loop),
        )
        return receive

    async def _ask(self, arrival: Arrival, receive: Receive) -> tuple[Caller, Receive] | None:
        """All that is asked of a request, in the order in which the answers are owed: what is refused to anybody comes
        before the key, what a key may not do before what its body would cost."""
        scope, head = arrival.scope, arrival.head
        headers, listed = head.named, bool(head.origin)
        self._check_host(headers)
        if listed and cors.is_preflight(scope["method"], headers):
            await _answer_preflight(arrival.send, headers)
            return None
        search_engine_clients.check_page(scope, headers, listed=listed)
        identity, given = await self._identify(scope, headers, receive)
        arrival.observer.caller = identity.caller.name
        _check_upgrade(scope, headers)
        if identity.caller.limits is not None:
            await self._take_stock(arrival, identity.caller.limits)
        if scope["method"] == "POST":
            self._check_content_type(scope["path"], headers, listed=listed)
        if given is receive:  # else its body holds the key, and the next one's may hold another
            head.identity = identity
        return identity.caller, given

    async def _take_stock(self, arrival: Arrival, limits: KeyLimits) -> None:
        """Where the caller stands with its limits; refuses what is beyond them."""
        if self._limiter is None:
            return
        self.tell_ends()  # what they cost counts: this one may have waited for one of them on its connection
        scope = arrival.scope
        path = search_engine_clients.known_path(scope)
        standing = await self._limiter.admit(limits, scope["method"], path, arrival.dialect.name)
        arrival.standing = standing
        if standing and standing.refusal:
            raise RequestError(standing.refusal)

    def change(self, config: Config) -> None:
        """For the requests to come the keys, groups and prices of this config count."""
        self._keys.change(config.server.keys, config.server.groups)
        self._prices = PriceList(config.prices)

    def refuse_head(self, failed: Failed, method: str, path: str, seconds: float, headers: RawHeaders = ()) -> bytes:
        """The answer to what never became a request, with as many of its headers as were read. Whoever watches is told
        of it like of any other."""
        dialect, request_id = self._dialect_of(path, headers), new_request_id()
        observer = Observer(
            self._listeners, request_id=request_id, method=method or "-", path=path or "-", dialect=dialect.name
        )
        observer.began -= seconds
        observer.status = dialect.status(failed)
        observer.fail(failed.error["code"])
        observer.end()
        said = {**failed.headers, **{name.decode(): request_id for name in dialect.id_headers}}
        if self._origins:
            raw = cors.shared_with(self._origins.of(headers), raw_headers(said))
            said = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
        return refusal(failed, dialect.error(failed), said, status=dialect.status(failed))

    def stop_now(self) -> None:
        """Ends what is under way: streams say so in an error event, the rest gets 503."""
        self.draining = self.stopping = True
        for task in self._under_way:
            task.cancel()

    async def _identify(self, scope: Scope, headers: Headers, receive: Receive) -> tuple[Identity, Receive]:
        """Who asks; and the body, part of which may have been read for it."""
        looks = scope["method"] == "HEAD" and scope["path"] == "/"  # whether anybody is there, which is no secret
        if looks or scope["path"] in OPEN_PATHS or (self._playground and is_page(scope)):
            return self._keys.anybody(), receive
        shown = search_engine_clients.with_password_as_key(scope, headers)
        if self._keys.required:
            shown, receive = await search_engine_clients.with_key_of_body(scope, shown, receive, self._body_timeout)
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


def _check_upgrade(scope: Scope, headers: Headers) -> None:
    """Who wants a WebSocket has no use for any other answer, and clients that can do without one know this status."""
    wanted = headers.get(b"upgrade", [b""])[-1].strip().lower()
    if wanted == b"websocket" and scope["method"] == "GET" and scope["path"] not in OPEN_PATHS:
        text = "WebSockets are not spoken here: send the request as an HTTP POST, with `stream: true` for a stream."
        raise refuse(426, text, code="no_websockets")


def _of_trace(headers: RawHeaders) -> dict[str, list[str]]:
    """What the client says its request is a part of, in the words of W3C's Trace Context."""
    said: dict[str, list[str]] = {}
    for name, value in headers:
        if name in _OF_TRACE:
            said.setdefault(name.decode(), []).append(value.decode("latin-1"))
    return said
