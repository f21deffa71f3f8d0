"""What a model's server has sent, told by its first bytes: gateways answer JSON where a stream was asked for, and back,
and label either as they like; and some answer with a page. Handed the bytes that are not blank.
"""

from __future__ import annotations

# How the lines of a stream begin (data, comments, event, id, retry), and a page.
_NEVER_JSON = (b"d", b":", b"e", b"i", b"r", b"<")


def is_json(content_type: str, first: bytes) -> bool:
    """`content_type` is believed only where the bytes leave it open."""
    start = _start(first)
    return start in (b"{", b"[") or (content_type == "application/json" and start not in _NEVER_JSON)


def is_markup(first: bytes) -> bool:
    return _start(first) == b"<"


def _start(first: bytes) -> bytes:
    return first.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
