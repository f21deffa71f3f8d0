"""The answer to whoever never gets as far as a request: plain bytes, because there is no request to answer. Handed a
failure and its body as the dialect dressed it; hands on a whole HTTP answer that closes the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import orjson

from ..values.events import Failed


def refusal(failed: Failed, body: bytes, headers: Mapping[str, str] | None = None, *, status: int = 0) -> bytes:
    """`status` is the dialect's own, where it has one."""
    status = status or failed.status
    said = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **failed.headers,
        **(headers or {}),
        "connection": "close",
    }
    lines = [f"HTTP/1.1 {status} {_phrase(status)}", *(f"{k}: {v}" for k, v in said.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # not every API keeps to the statuses that have a name
        return "Overloaded"


def plain_refusal(failed: Failed) -> bytes:
    """Where not even the path is known, and with it the dialect."""
    return refusal(failed, orjson.dumps({"error": failed.error}))
