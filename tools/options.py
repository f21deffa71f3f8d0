"""What the tools may do: what the operator allows, and what one request wants and brings along. Plain values: the
toolbox holds the `ToolPolicy`, and is handed `SessionOptions` for each request.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import field
from datetime import date, timedelta
from functools import lru_cache
from typing import Literal

from providers.base import Observe
from providers.chain import Providers
from providers.random_ids import random_id
from providers.records import dataclass

from .ledger import Ledger
from .provenance import Mode

_SECONDS_OF_A_DAY = 86_400
_FIRST_DAY = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    max_results: int = 5
    max_page_length: int = 15000
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    provenance: Mode = "context"
    parameters: Literal["basic", "full"] = "basic"
    max_opens: int = 8
    max_characters: int = 100_000  # of pages, over all calls of one request
    max_opens_per_host: int = 4
    max_searches: int = 20
    read_results: int = 0  # pages of the best hits that a search reads by itself
    max_parallel: int = 8


@dataclass(frozen=True, slots=True)
class Permission:
    """What of the tools one caller may use, within what the operator allows all."""

    providers: Providers = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()


EVERYTHING = Permission()


def day_now() -> str:
    return _day(int(time.time() // _SECONDS_OF_A_DAY))


@lru_cache(maxsize=2)
def _day(number: int) -> str:
    """Counted from the first day of 1970, in UTC."""
    return (_FIRST_DAY + timedelta(days=number)).isoformat()


@dataclass(frozen=True, slots=True)
class SessionOptions:
    ledger: Ledger
    seen_texts: Sequence[str] = ()  # what people and their tools said: the URLs in it may be opened
    found_before: Collection[str] = ()  # the URLs of earlier results in the conversation
    country: str = ""  # ISO 3166 alpha-2
    language: str = ""  # ISO 639-1
    limit: int | None = None  # how many results it wants
    allowed_domains: Sequence[str] = ()
    blocked_domains: Sequence[str] = ()
    page_domains: tuple[Sequence[str], Sequence[str]] | None = None  # allowed and blocked for pages, instead of these
    secrets: Collection[str] = ()  # the keys that came with it
    caller: str = ""  # whose it is: what private providers gave is kept for its caller alone
    today: str = field(default_factory=day_now)  # UTC: for all of a request the day on which it began
    request: str = field(default_factory=random_id)  # which of the caller's, where turns are given
    permission: Permission = EVERYTHING  # what the caller may use
    offered: Collection[str] | None = None  # the tools of ours that may run, by our names; None: all that there are
    names: Sequence[str] = ()  # all tools as the model knows them, the client's too
    room: int | None = None  # how many characters of the web the model can hold
    most_calls: int | None = None  # how many calls the client allows
    most_searches: int | None = None  # how many searches its caller has left
    most_pages: int | None = None  # how many pages the client allows
    assist: bool = False  # for weak models: each search reads its best pages, and the rule for citing comes last
    cite: bool = True  # is the model told how to cite?
    alone: bool = False  # there is no model: somebody asks for the tool itself
    observe: Observe | None = None  # is told of each call of a provider
