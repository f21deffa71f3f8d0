"""Where a shared store is, as an operator writes it: the URL of a Redis or a Valkey. Handed that; hands on its parts,
or says what is wrong with it without showing it.
"""

from __future__ import annotations

import re
from dataclasses import field
from urllib.parse import unquote, urlsplit

from providers.records import dataclass

PORT = 6379

_SCHEMES = {"redis": False, "valkey": False, "rediss": True}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    host: str
    port: int
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: str = ""  # more authorities, besides the system's

    @classmethod
    def read(cls, url: str) -> RedisAddress:
        """A `ValueError` says what is wrong with the URL without showing it: it may hold a password."""
        if re.search(r"[\s\x00-\x1f]", url) or url.partition("://")[0].lower() not in _SCHEMES:
            raise ValueError("must be memory, or the URL of a Redis server such as redis://127.0.0.1:6379/0")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            host, port = "", None
        if not host or port == 0:
            raise ValueError(
                "must be redis://host:port/0, redis://:password@host:port/0 or redis://user:password@host:port/0; "
                "in a password, special characters are written as %XX"
            )
        if parts.query or parts.fragment or not re.fullmatch(r"/?|/\d{1,5}", parts.path):
            raise ValueError("may end in nothing but the number of a database, as in redis://host:6379/0")
        return cls(
            host,
            port or PORT,
            int(parts.path.strip("/") or 0),
            unquote(parts.username) if parts.username else None,
            unquote(parts.password) if parts.password else None,
            _SCHEMES[parts.scheme],
        )
