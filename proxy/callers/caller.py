"""One caller, as every room knows it: by name for people, by owner for what is stored, never by key. Made at the edge
by `keys`, handed on inside the request's context.
"""

from __future__ import annotations

from dataclasses import field

from providers.records import dataclass

from ..config.keys import KeyPolicy
from .limits import KeyLimits

FREE = KeyPolicy()


@dataclass(frozen=True, slots=True)
class Caller:
    name: str = ""  # of the key, as the operator wrote it; empty without keys
    owner: str = ""  # whose stored things it may see: an HMAC of the credential; empty where nobody presents any
    admin: bool = False  # may it see what others did?
    # The client's own `Authorization`, for an upstream that takes each client's key; None where that opened our door.
    upstream_key: str | None = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)  # what it presented: must not leave in a query
    policy: KeyPolicy = FREE  # what it may do
    limits: KeyLimits | None = None  # how much of it; None: as much as it likes

    # Where it waits; lines take turns. Without keys it is the credential that it happens to send: then only this
    # machine can reach us, and addresses tell nobody apart.
    line: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", self.owner or (self.secrets[0] if self.secrets else ""))


NOBODY = Caller()
