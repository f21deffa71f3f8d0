"""The shape of every error that leaves the house: a status and the OpenAI error object, carried by `Failed`.

Before anything was sent a failure becomes an HTTP status and body; later it becomes one bare error event. Dialects
dress it; nobody else does. `RequestError` is how a room refuses a request by raising.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .events import Failed

NO_RETRY = {
    "x-should-retry": "false"
}  # SDKs retry 408, 409, 429 and 5xx twice, and each would run the whole loop again
_UNNAMED = "The model's server reported an error."


class RequestError(Exception):
    def __init__(self, failed: Failed) -> None:
        super().__init__(str(failed.error.get("message", "")))
        self.failed = failed


def failure(
    status: int, message: str, *, kind: str = "", param: str | None = None, code: str | None = None, retry: bool = False
) -> Failed:
    """A failure in our own words."""
    error = {"message": message, "type": kind or _kind(status), "param": param, "code": code}
    return Failed(status, error, {} if retry or status < 429 else NO_RETRY)


def _kind(status: int) -> str:
    return "server_error" if status >= 500 else "invalid_request_error"


def truncated() -> Failed:
    return failure(502, "The model's server ended the answer before it was complete.", code="upstream_truncated")


def crashed() -> Failed:
    return failure(500, "Something went wrong inside Groundwire; its log says what.", code="internal_error")


def too_long() -> Failed:
    return failure(504, "The answer took longer than this server allows.", code="request_timeout")


def shutting_down() -> Failed:
    return failure(503, "The server is shutting down; ask again in a moment.", code="shutting_down", retry=True)


def refuse(
    status: int, message: str, *, kind: str = "", param: str | None = None, code: str | None = None
) -> RequestError:
    return RequestError(failure(status, message, kind=kind, param=param, code=code))


def as_error(body: object, status: int = 0) -> Failed | None:
    """An upstream's error in any of the shapes servers use, as `Failed`; None if the body holds no error.

    Seen: `{"error": {…}}`, `{"error": "text"}`, `[{"error": …}]` (Gemini), `{"object": "error", "message": …}` (vLLM,
    Mistral), `{"detail": …}` (FastAPI servers), a `code` or `status_code` that is the HTTP status (OpenRouter, Groq).
    """
    found = _error_in(body)
    if found is None:
        return None
    code, attempt = found.get("code"), found.get("failed_generation")
    named = (status, code, found.get("status_code"), found.get("status"))
    stated = next(filter(None, map(_as_status, named)), 502)
    said = next((found[key] for key in ("message", "detail", "error") if found.get(key)), _UNNAMED)
    error = {
        "message": str(said),
        "type": str(found.get("type") or _kind(stated)),
        "param": found.get("param"),
        "code": code if isinstance(code, str | int) else None,
    }
    return Failed(stated, error, attempt=attempt if isinstance(attempt, str) else None)


def _error_in(body: object) -> Mapping[str, Any] | None:
    """The object that describes the error, wherever it stands in the body."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return None
    found = body.get("error")
    if found is None:
        is_one = body.get("object") == "error" or "message" in body or "detail" in body
        return body if is_one else None
    return found if isinstance(found, Mapping) else {"message": found}


def _as_status(value: object) -> int:
    """The HTTP status of an error, as a number or as text; 0 if it is none."""
    is_status = isinstance(value, int | str) and str(value).isdigit() and 400 <= int(value) <= 599
    return int(str(value)) if is_status else 0
