"""Failures as Anthropic's clients read them. Handed a `Failed` with its OpenAI error object; hands on the status and
the body that this API has for it, or an event of a stream.
"""

from __future__ import annotations

from typing import Any

import orjson

from ...values.events import Failed

_OVERLOADED = 529
_STATUSES = {503: _OVERLOADED}  # Anthropic's own word for "too much at once, or not there for now"
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    _OVERLOADED: "overloaded_error",
}


def status_of(failed: Failed) -> int:
    return _STATUSES.get(failed.status, failed.status)


def error_object(failed: Failed) -> dict[str, Any]:
    """What of it has no place in this shape, its code and the parameter at fault, stands beside the message: clients
    leave alone what they do not know."""
    status = status_of(failed)
    usual = "api_error" if status >= 500 else "invalid_request_error"
    said = {"type": _KINDS.get(status, usual), "message": str(failed.error.get("message") or "")}
    more = {name: value for name in ("code", "param") if (value := failed.error.get(name)) is not None}
    return {"type": "error", "error": {**said, **more}}


def error_body(failed: Failed) -> bytes:
    return orjson.dumps(error_object(failed))


def error_event(failed: Failed) -> bytes:
    return b"event: error\ndata: " + error_body(failed) + b"\n\n"
