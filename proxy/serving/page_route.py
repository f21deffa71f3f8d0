"""The page at `/` and its files under `/page/`. Handed requests that the edge let in, without a key: they are the same
for everybody. Hands out files from memory, with headers that let the page run nothing but itself and ask nobody but us.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.types import Receive, Scope, Send

from providers.records import dataclass

from ..context import context_of
from ..values.errors import refuse
from .delivery import send_body
from .pieces import raw_headers
from .search_engine_clients import searches_by_get

FOLDER = Path(__file__).parent / "page"
_BELOW = "/page/"
_START = "index.html"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Trusted types: the browser itself refuses to make elements of a text, wherever in the page somebody tries.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "cache-control": "no-cache",  # kept, and asked for again by its tag
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def is_page(scope: Scope) -> bool:
    """Is it the page or a file of it, which anybody may have?"""
    if scope["method"] not in ("GET", "HEAD"):
        return False
    path: str = scope["path"]
    return path.startswith(_BELOW) or (path == "/" and not searches_by_get(scope))


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    headers: dict[str, str]


class PageRoute:
    def __init__(self) -> None:
        self._files = {path.name: _read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in _KINDS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        name = _START if path == "/" else path.removeprefix(_BELOW)
        file = self._files.get(name)
        if file is None:
            raise refuse(404, "The page has no such file. It starts at /.", code="not_found")
        if _is_known(context_of(scope).headers.get("if-none-match", ""), file.headers["etag"]):
            await send({"type": "http.response.start", "status": 304, "headers": raw_headers(file.headers)})
            await send({"type": "http.response.body", "body": b""})
            return
        await send_body(send, 200, file.body, file.headers)


def _read(path: Path) -> _File:
    body = path.read_bytes()
    tag = hashlib.sha256(body).hexdigest()[:24]
    return _File(body, {"content-type": _KINDS[path.suffix], "etag": f'"{tag}"', **_HEADERS})


def _is_known(given: str, tag: str) -> bool:
    """Does the browser hold it already? A weak tag will do."""
    return any(known.strip().removeprefix("W/") in (tag, "*") for known in given.split(","))
