"""What clients of the Messages API keep for us between requests: `encrypted_content` and `encrypted_index` are handles
that hold what a later request must know. Handed a value, hands on text to give away; handed that text back, hands on
the value, if it was made here for the same caller and nobody has changed it.
"""

from __future__ import annotations

import hmac
import zlib
from base64 import b64decode, urlsafe_b64encode
from typing import Any

import orjson

_FORMAT = b"\x01"
_SIGNATURE = 16  # bytes
_LONGEST = 4 << 20  # characters of a handle that is looked at
MOST_OPENED = 16 << 20  # bytes that the handles of one request hold together: what they hold is packed, and may repeat


class Handles:
    """Of one request. `secret` is the store's, `owner` whose they are: nobody else can open them."""

    def __init__(self, secret: bytes, owner: str) -> None:
        self._key = hmac.digest(secret, b"messages:" + owner.encode(), "sha256")
        self._room = MOST_OPENED

    def seal(self, value: Any) -> str:
        data = _FORMAT + zlib.compress(orjson.dumps(value))
        return urlsafe_b64encode(self._signature(data) + data).decode()

    def open(self, handle: object) -> Any:
        """None: it is not one of these, or there is no room left for what it holds."""
        if not self._room or not isinstance(handle, str) or len(handle) > _LONGEST:
            return None
        try:
            given = b64decode(handle.encode("ascii"), altchars=b"-_", validate=True)
        except (ValueError, UnicodeError):
            return None
        signature, data = given[:_SIGNATURE], given[_SIGNATURE:]
        if not hmac.compare_digest(signature, self._signature(data)) or data[:1] != _FORMAT:
            return None
        held = zlib.decompress(data[1:])
        self._room = max(self._room - len(held), 0)
        return orjson.loads(held)

    def _signature(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")[:_SIGNATURE]
