"""The guard at the door, in pure ASGI: Host, keys, content type, body limits, request ids, and the way out at shutdown.
Handed every request before a route sees it; hands on the ones that may enter. Refusals
that any room raises become their HTTP answer here.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import sys
import time
from contextlib import suppress
from dataclasses import replace

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..config.settings import ServerConfig
from ..values.errors import RequestError, crashed, failure, refuse, shutting_down
from .delivery import send_failure

log = logging.getLogger("groundwire.access")

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 compared with, not bound
_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::[0-9]*)?")
_CREDENTIALS = (b"authorization", b"x-api-key")
_OWN_CREDENTIAL = (b"x-groundwire-key",)
_UPLOADS = ("/v1/audio/", "/v1/images/")  # where OpenAI's own API takes forms


class Edge:
    def __init__(self, app: ASGIApp, server: ServerConfig) -> None:
        self._app = app
        self._keys = [_digest(key.key.get_secret_value().encode()) for key in server.keys]
        # Bound to every address, the names a machine is called by cannot be known; then the keys are the guard.
        self._any_host = server.host in _ANY_ADDRESS and not server.allowed_hosts
        self._hosts = _LOOPBACK_NAMES | {server.host} | set(server.allowed_hosts)
        self._under_way: set[asyncio.Task[None]] = set()
        self.draining = False
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        request_id = "req_" + secrets.token_hex(12)
        notes: list[str] = []
        scope["notes"] = notes  # what a route wants the log to say of this request
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            self._admit(scope)
            await self._app(scope, receive, send_marked)
        except RequestError as error:
            await send_failure(send_marked, error.failed)
        except Exception:  # the last boundary: whatever it is, the client gets an answer and the log the trace
            log.exception("%s %s failed %s", scope["method"], _path(scope), request_id)
            if status:
                raise  # the server breaks the connection off, so that half an answer does not look whole
            await send_failure(send_marked, crashed())
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            task.uncancel()
            if not status:
                await send_failure(send_marked, shutting_down())
        finally:
            self._under_way.discard(task)
            if log.isEnabledFor(logging.INFO):
                spent = (time.perf_counter() - began) * 1000
                line = f"{scope['method']} {_path(scope)} {status or 'left'} {spent:.0f} ms {request_id}"
                _say(" ".join([time.strftime("%H:%M:%S"), line, *notes]))

    def stop_now(self) -> None:
        """Ends what is under way: streams say so in an error event, the rest gets 503."""
        self.draining = self.stopping = True
        for task in self._under_way:
            task.cancel()

    def _admit(self, scope: Scope) -> None:
        headers: dict[bytes, list[bytes]] = {}
        for key, value in scope["headers"]:
            headers.setdefault(key, []).append(value)
        self._check_host(headers)
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise refuse(400, "Send either Content-Length or Transfer-Encoding, not both.", code="bad_request")
        # The client's own key for an upstream; None where that header held the key for this server.
        given = headers.get(b"authorization", [b""])[0]
        if given[:7].lower() == b"bearer ":  # in one spelling, wherever it is looked at
            given = b"Bearer " + _bare(given)
        scope["client_key"] = given.decode("latin-1")
        if self._keys and scope["path"] not in OPEN_PATHS:
            self._check_key(scope, headers)
        if scope["method"] == "POST":
            self._check_content_type(scope["path"], headers)

    def _check_host(self, headers: dict[bytes, list[bytes]]) -> None:
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

    def _check_key(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> None:
        """A key in `X-Groundwire-Key` is ours, and leaves `Authorization` to an upstream that takes clients' keys."""
        names = _OWN_CREDENTIAL if _OWN_CREDENTIAL[0] in headers else _CREDENTIALS
        given = {
            _bare(value) if name == b"authorization" else value.strip()
            for name in names
            for value in headers.get(name, [])
        }
        if len(given) > 1:
            raise refuse(400, "The request carries two different keys; send one.", code="ambiguous_key")
        key = given.pop() if given else b""
        if not self._is_ours(key):
            text = "The API key is missing or not valid for this server. Send it as `Authorization: Bearer …`."
            raise refuse(401, text, kind="authentication_error", code="invalid_api_key")
        scope["credential"] = key.decode("latin-1")
        if names is _CREDENTIALS or self._is_ours(_bare(scope["client_key"].encode("latin-1"))):
            scope["client_key"] = None

    def _is_ours(self, key: bytes) -> bool:
        digest = _digest(key)
        # Every key is compared, found or not, so that the time taken tells nothing.
        return bool(sum(hmac.compare_digest(digest, key) for key in self._keys))

    def _check_content_type(self, path: str, headers: dict[bytes, list[bytes]]) -> None:
        """A web page can post a form to a loopback server without asking anybody; it cannot post JSON."""
        kind = headers.get(b"content-type", [b""])[0].split(b";")[0].strip().lower()
        if kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json")):
            return
        upload = kind == b"multipart/form-data" and path.startswith(_UPLOADS)
        if not upload or (b"origin" in headers and not self._keys):
            raise refuse(
                415, "Send the body as JSON, with `Content-Type: application/json`.", code="unsupported_media_type"
            )


async def read_body(receive: Receive, scope: Scope, server: ServerConfig) -> bytes:
    """The whole body, within the size and time that the server allows."""
    too_long = f"The request body is larger than {server.max_body} bytes."
    length = next((value for key, value in scope["headers"] if key == b"content-length"), b"0")
    if length.isdigit() and int(length) > server.max_body:
        raise _hang_up(413, too_long, "request_too_large")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(server.body_timeout):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise refuse(400, "The client left before the body was complete.", code="client_left")
                part = message.get("body", b"")
                size += len(part)
                if size > server.max_body:
                    raise _hang_up(413, too_long, "request_too_large")
                parts.append(part)
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise _hang_up(408, "The request body did not arrive in time.", "request_timeout") from None


def _hang_up(status: int, message: str, code: str) -> RequestError:
    """A refusal that closes the connection with it: nobody waits for the rest of the body."""
    return RequestError(replace(failure(status, message, code=code), headers={"connection": "close"}))


def _say(line: str) -> None:
    """Straight to the terminal: the logging machinery would cost as much as reading the request did."""
    with suppress(OSError, ValueError):  # nobody reads the log any more; requests go on
        sys.stderr.write(line + "\n")


def _path(scope: Scope) -> str:
    """The path as it was sent: decoded, it could hold line breaks, and with them lines of its own in the log."""
    return str(scope["raw_path"].decode("latin-1"))


def _bare(authorization: bytes) -> bytes:
    return (authorization[7:] if authorization[:7].lower() == b"bearer " else authorization).strip()


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
