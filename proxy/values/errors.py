"""The shape of every error that leaves the house: a status and the OpenAI error object, carried by `Failed`.

Before anything was sent a failure becomes an HTTP status and body; later it becomes one bare error event. Dialects
dress it; nobody else does. `RequestError` is how a room refuses a request by raising.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .events import Failed

NO_RETRY = {
    "x-should-retry": "false"
}  # SDKs retry 408, 409, 429 and 5xx twice, and each would run the whole loop again
_LONGEST_QUOTE = 100  # characters
_UNNAMED = "The model's server reported an error."
_STATUS = re.compile(r"[45][0-9]{2}")
_NO_MONEY = "insufficient_quota"  # a 429 that no wait cures
# The status of an error that names its kind and no number, as it stands inside a 200: OpenAI's words, then vLLM's.
_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    _NO_MONEY: 429,
    "overloaded_error": 503,
    "BadRequestError": 400,
    "NotFoundError": 404,
}


class RequestError(Exception):
    def __init__(self, failed: Failed) -> None:
        super().__init__(str(failed.error.get("message", "")))
        self.failed = failed


def failure(
    status: int, message: str, *, kind: str = "", param: str | None = None, code: str | None = None, retry: bool = False
) -> Failed:
    """A failure in our own words."""
    error = {"message": message, "type": kind or _kind(status), "param": param, "code": code}
    return Failed(status, error, {} if retry or not _asked_again(status) else NO_RETRY)


def _asked_again(status: int) -> bool:
    """Whether clients would try it again by themselves: with a key that was refused Claude Code does, for minutes."""
    return status == 401 or status >= 429


def _kind(status: int) -> str:
    return "server_error" if status >= 500 else "invalid_request_error"


def truncated() -> Failed:
    text = "The model's server ended the answer before it was complete."
    return failure(502, text, code="upstream_truncated", retry=True)


def crashed() -> Failed:
    return failure(500, "Something went wrong inside Groundwire; its log says what.", code="internal_error")


def too_long() -> Failed:
    return failure(504, "The answer took longer than this server allows.", code="request_timeout")


def too_large() -> Failed:
    return failure(502, "The model's server sent more than an answer can hold.", code="upstream_bad_response")


def shutting_down() -> Failed:
    return failure(503, "The server is shutting down; ask again in a moment.", code="shutting_down", retry=True)


def busy(status: int, message: str, *, code: str, wait: float, kind: str = "") -> Failed:
    """Refused for now: the client may come again after `wait` seconds."""
    waits = {"retry-after": str(math.ceil(wait)), "retry-after-ms": str(math.ceil(wait * 1000))}
    return replace(failure(status, message, kind=kind, code=code, retry=True), headers=waits)


def overloaded(wait: float) -> RequestError:
    return RequestError(busy(503, "The server is overloaded: ask again in a moment.", code="overloaded", wait=wait))


def too_many(message: str, wait: float) -> RequestError:
    """One caller has as many of something under way as it may."""
    return RequestError(busy(429, message, code="too_many_requests", wait=wait, kind="rate_limit_error"))


def refuse(
    status: int, message: str, *, kind: str = "", param: str | None = None, code: str | None = None
) -> RequestError:
    return RequestError(failure(status, message, kind=kind, param=param, code=code))


def quoted(said: object) -> str:
    """A client's own word, as it may stand in a refusal: it is no use to send back what is long."""
    if not isinstance(said, str):
        return "that is no text"
    return f"'{said}'" if len(said) <= _LONGEST_QUOTE else f"'{said[:_LONGEST_QUOTE]}…'"


def as_error(body: object, status: int = 0) -> Failed | None:
    """An upstream's error in any of the shapes servers use, as `Failed`; None if the body holds no error.

    Seen: `{"error": {…}}`, `{"error": "text"}`, `[{"error": …}]` (Gemini), `{"object": "error", "message": …}` (vLLM,
    Mistral), `{"detail": …}` (FastAPI servers), a `code` or `status_code` that is the HTTP status (OpenRouter, Groq).
    """
    found = _error_in(body)
    if found is None:
        return None
    code, attempt = _word(found.get("code")), found.get("failed_generation")
    kind = found.get("type") if isinstance(found.get("type"), str) else ""
    named = (status, code, found.get("status_code"), found.get("status"), kind)
    stated = next(filter(None, map(_as_status, named)), 502)
    said = next((found[key] for key in ("message", "detail", "error") if found.get(key)), _UNNAMED)
    error = {
        "message": _text(said),
        "type": kind or _kind(stated),
        "param": _word(found.get("param")),
        "code": code,
    }
    headers = NO_RETRY if _NO_MONEY in (code, kind) else {}
    return Failed(stated, error, headers, attempt=attempt if isinstance(attempt, str) else None, foreign=True)


def _word(value: object) -> str | int | None:
    """Nothing else may stand in a code or a parameter: clients read it, and other shapes cannot always be written."""
    if isinstance(value, str):
        return value
    return value if type(value) is int and abs(value) < 2**63 else None


def _text(said: object) -> str:
    """What a server says that is no text is shown as it is written in Python; a nest too deep for that is not."""
    try:
        return str(said)
    except RecursionError:
        return _UNNAMED


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
    """The HTTP status of an error, as a number, as text or as the word for its kind; 0 if it is none."""
    said = str(value) if isinstance(value, int | str) else ""
    return int(said) if _STATUS.fullmatch(said) else _STATUS_OF.get(said, 0)
