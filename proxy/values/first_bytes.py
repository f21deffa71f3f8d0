"""What a model's server has sent, told by its first bytes: gateways answer JSON where a stream was asked for, and back,
and label either as they like; and some answer with a page. Handed the bytes that are not blank.
"""

from __future__ import annotations

import re

_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[]")
# How the lines of a stream begin (data, comments, event, id, retry), and a page.
_NEVER_JSON = (b"d", b":", b"e", b"i", b"r", b"<")


def is_json(content_type: str, first: bytes) -> bool:
    """`content_type` is believed only where the bytes leave it open."""
    return begins_json(first) or (content_type == "application/json" and _start(first) not in _NEVER_JSON)


def begins_json(first: bytes) -> bool:
    """Do the bytes alone say so?"""
    return _JSON.match(first) is not None


def is_markup(first: bytes) -> bool:
    return _start(first) == b"<"


def _start(first: bytes) -> bytes:
    return first.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
