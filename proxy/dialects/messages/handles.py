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
    """Of one request. `secret` is the store's, `owner` whose they are: nobody else can open them. `former` is what the
    owner was called before its key had a name: clients still hold what was sealed then."""

    def __init__(self, secret: bytes, owner: str, former: str = "") -> None:
        names = (owner, former) if former else (owner,)
        self._keys = [hmac.digest(secret, b"messages:" + name.encode(), "sha256") for name in names]
        self._room = MOST_OPENED

    def seal(self, value: Any) -> str:
        data = _FORMAT + zlib.compress(orjson.dumps(value))
        return urlsafe_b64encode(_signature(self._keys[0], data) + data).decode()

    def open(self, handle: object) -> Any:
        """None: it is not one of these, or there is no room left for what it holds."""
        if not self._room or not isinstance(handle, str) or len(handle) > _LONGEST:
            return None
        try:
            given = b64decode(handle.encode("ascii"), altchars=b"-_", validate=True)
        except (ValueError, UnicodeError):
            return None
        signature, data = given[:_SIGNATURE], given[_SIGNATURE:]
        if not any(hmac.compare_digest(signature, _signature(key, data)) for key in self._keys):
            return None
        if data[:1] != _FORMAT:
            return None
        held = zlib.decompress(data[1:])
        self._room = max(self._room - len(held), 0)
        return orjson.loads(held)


def _signature(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")[:_SIGNATURE]
