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


class RequestError(Exception):
    def __init__(self, failed: Failed) -> None:
        super().__init__(str(failed.error.get("message", "")))
        self.failed = failed


def failure(
    status: int, message: str, *, kind: str = "", param: str | None = None, code: str | None = None, retry: bool = False
) -> Failed:
    """A failure in our own words."""
    kind = kind or ("server_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Failed(status, error, {} if retry or status < 429 else NO_RETRY)


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
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return None
    found: Any = body.get("error")
    if found is None:
        if body.get("object") != "error" and "message" not in body and "detail" not in body:
            return None
        found = body
    if not isinstance(found, Mapping):
        found = {"message": found}
    message = (
        found.get("message") or found.get("detail") or found.get("error") or "The model's server reported an error."
    )
    code = found.get("code")
    stated = next((c for c in (status, code, found.get("status_code"), found.get("status")) if _is_status(c)), 502)
    error = {
        "message": message if isinstance(message, str) else str(message),
        "type": str(found.get("type") or ("server_error" if int(stated) >= 500 else "invalid_request_error")),
        "param": found.get("param"),
        "code": code if isinstance(code, str | int) else None,
    }
    attempt = found.get("failed_generation")
    return Failed(int(stated), error, attempt=attempt if isinstance(attempt, str) else None)


def _is_status(value: object) -> bool:
    return isinstance(value, int | str) and str(value).isdigit() and 400 <= int(value) <= 599
