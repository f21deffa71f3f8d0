"""The end of a response that is written by somebody else than who worked on it: its process died, or was too slow to
stop. Handed the object as it was last stored; hands on the one that says so, and the events that a stream of it ends
with.
"""

from __future__ import annotations

from typing import Any

from .frames import end_frame, frame

_ERROR = {
    "code": "server_error",
    "message": "The process that worked on this response stopped before it was done: ask again.",
    "type": "server_error",
}


def abandoned(response: dict[str, Any]) -> dict[str, Any]:
    return {**response, "status": "failed", "error": _ERROR}


def cancelled(response: dict[str, Any]) -> dict[str, Any]:
    return {**response, "status": "cancelled"}


def last_frames(response: dict[str, Any], number: int) -> bytes:
    """`number` is that of the first of them."""
    if response["status"] == "cancelled":
        return end_frame(response, number)
    return frame("error", number, error={**_ERROR, "param": None}) + end_frame(response, number + 1)
