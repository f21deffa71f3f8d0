"""Events of a response stream as frames for the wire. Handed what an event says and its number; hands on its bytes."""

from __future__ import annotations

from typing import Any

import orjson


def frame(kind: str, number: int, **fields: Any) -> bytes:
    payload = orjson.dumps({"type": kind, "sequence_number": number, **fields})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), payload)


def end_frame(response: dict[str, Any], number: int) -> bytes:
    """The event that a stream ends with. OpenAI has none for a response that was cancelled: clients know
    `response.incomplete` as an end, and its object says what it was."""
    status = response["status"]
    return frame(f"response.{'incomplete' if status == 'cancelled' else status}", number, response=response)
