"""The guard at the door, in pure ASGI: Host, keys, content type, request ids, and the way out at shutdown. Handed every
request before a route sees it; makes its context and hands on the ones that may enter. Refusals that any room raises
become their HTTP answer here, dressed in the dialect of the path.
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
from ..config.settings import ServerConfig
from ..context import RequestContext, attach
from ..values.dialect import Dialect
from ..values.errors import RequestError, crashed, refuse, shutting_down
from ..values.events import Failed
from ..watching.contents import printable
from ..watching.observer import Listener, Observer
from .delivery import send_failure

log = logging.getLogger("groundwire")

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 compared with, not bound
_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::[0-9]*)?")
_UPLOADS = ("/v1/audio/", "/v1/images/")  # where OpenAI's own API takes forms

Headers = dict[bytes, list[bytes]]


class Edge:
    """`dialect_of` names the dialect of a path; `listeners` are told of every request, let in or not."""

    def __init__(
        self,
        app: ASGIApp,
        server: ServerConfig,
        keys: ClientKeys,
        dialect_of: Callable[[str], Dialect],
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._app = app
        self._keys = keys
        self._dialect_of = dialect_of
        self._listeners = tuple(listeners)
        self._request_timeout = server.request_timeout
        # Bound to every address, the names a machine is called by cannot be known; then the keys are the guard.
        self._any_host = server.host in _ANY_ADDRESS and not server.allowed_hosts
        self._hosts = _LOOPBACK_NAMES | {server.host} | set(server.allowed_hosts)
        self._under_way: set[asyncio.Task[None]] = set()
        self.draining = False
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = self._dialect_of(scope["path"])
        request_id = "req_" + secrets.token_hex(12)
        observer = Observer(
            self._listeners,
            request_id=request_id,
            method=scope["method"],
            path=_path(scope),
            dialect=dialect.name,
        )

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                observer.status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        async def answer_failure(failed: Failed) -> None:
            observer.fail(failed.error.get("code"))
            await send_failure(send_marked, dialect, failed)

        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            headers = _headers(scope)
            caller = await self._admit(scope, headers)
            observer.caller = caller.name
            if scope["method"] == "POST":
                self._check_content_type(scope["path"], headers)
            attach(scope, self._context(request_id, dialect, observer, caller, headers))
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

    def _context(
        self, request_id: str, dialect: Dialect, observer: Observer, caller: Caller, headers: Headers
    ) -> RequestContext:
        deadline = asyncio.get_running_loop().time() + self._request_timeout
        readable = {name.decode("latin-1"): values[-1].decode("latin-1") for name, values in headers.items()}
        return RequestContext(request_id, dialect, deadline, observer, caller, readable)

    def stop_now(self) -> None:
        """Ends what is under way: streams say so in an error event, the rest gets 503."""
        self.draining = self.stopping = True
        for task in self._under_way:
            task.cancel()

    async def _admit(self, scope: Scope, headers: Headers) -> Caller:
        self._check_host(headers)
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise refuse(400, "Send either Content-Length or Transfer-Encoding, not both.", code="bad_request")
        return Caller() if scope["path"] in OPEN_PATHS else await self._keys.identify(headers)

    def _check_host(self, headers: Headers) -> None:
        given = headers.get(b"host", [])
        if len(given) != 1:
            raise refuse(400, "Send exactly one Host header.", code="bad_host")
        if self._any_host:
            return
        host = given[0].decode("latin-1").lower()
        read = _HOST.fullmatch(host)
        name = (read["address"] or read["name"]) if read else host
        if name.rstrip(".") not in self._hosts:
            text = f"The host '{name}' is not served here. Add it to `server.allowed_hosts` if it should be."
            raise refuse(403, text, code="host_not_allowed")

    def _check_content_type(self, path: str, headers: Headers) -> None:
        """A web page can post a form to a loopback server without asking anybody; it cannot post JSON."""
        kind = headers.get(b"content-type", [b""])[0].split(b";")[0].strip().lower()
        if kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json")):
            return
        upload = kind == b"multipart/form-data" and path.startswith(_UPLOADS)
        if not upload or (b"origin" in headers and not self._keys.required):
            text = "Send the body as JSON, with `Content-Type: application/json`."
            raise refuse(415, text, code="unsupported_media_type")


def _headers(scope: Scope) -> Headers:
    headers: Headers = {}
    for key, value in scope["headers"]:
        headers.setdefault(key, []).append(value)
    return headers


def _path(scope: Scope) -> str:
    """The path as it was sent: decoded, it could hold line breaks, and with them lines of its own in the log."""
    return str(scope["raw_path"].decode("latin-1"))
