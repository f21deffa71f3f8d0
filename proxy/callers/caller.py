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
    # Whose stored things it may see: the key's name where it has one, else an HMAC of the credential. It is empty where
    # nobody presents one.
    owner: str = ""
    admin: bool = False  # may it see what others did?
    # The client's own `Authorization`, for an upstream that takes each client's key; None where that opened our door.
    upstream_key: str | None = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)  # what it presented: must not leave in a query
    policy: KeyPolicy = FREE  # what it may do
    limits: KeyLimits | None = None  # how much of it; None: as much as it likes
    former: str = ""  # the HMAC of a caller that has a name: what it stored before it had one is found by this

    # Where it waits; lines take turns. Without keys it is the credential that it happens to send: then only this
    # machine can reach us, and addresses tell nobody apart.
    line: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", self.owner or (self.secrets[0] if self.secrets else ""))


NOBODY = Caller()
