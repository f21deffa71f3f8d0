"""How a provider fails. Every foreign exception is translated into one of these, once, where it is first met.

ProviderError
├── BadRequest      the query or URL itself is wrong: another provider would refuse it too, so nothing falls over
├── NotAllowed      the guard refused the address; says no more than that (no IP, no port, no reason to probe)
├── AuthFailed      the key is missing or refused
├── QuotaExceeded   the plan is used up
├── RateLimited     too many calls; `retry_after` seconds if the service said so
├── TimedOut        no answer in time
├── Unavailable     5xx, connection trouble, an answer nobody can read
│   ├── ProgramFailed  a program that the provider works with, such as a browser, is missing or broken
│   └── ProxyFailed    the proxy on the way there cannot be reached, or does not let us through
├── PageBlocked     the page answered with a challenge, a consent wall, a refusal or an empty shell
└── NoResults       nothing found; counts as failure, so that the next provider is asked
"""

from __future__ import annotations

from typing import ClassVar, Literal

# How a call of a provider ended, in one word for logs and metrics: a closed list.
Outcome = Literal[
    "ok",
    "empty",
    "bad_request",
    "not_allowed",
    "auth_failed",
    "quota_exceeded",
    "rate_limited",
    "timed_out",
    "unavailable",
    "blocked",
    "cooling_down",
    "failed",
]


class ProviderError(Exception):
    """`str(error)` is a sentence for the model and the operator; it never holds a key or an address. `advice` is what
    the operator can do about it: a model could only repeat it to people who cannot.
    """

    falls_over = True
    outcome: ClassVar[Outcome] = "failed"

    def __init__(self, message: str, *, retry_after: float | None = None, advice: str = "") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.advice = advice


class BadRequest(ProviderError):
    falls_over = False
    outcome = "bad_request"


class NotAllowed(ProviderError):
    falls_over = False
    outcome = "not_allowed"


class AuthFailed(ProviderError):
    outcome = "auth_failed"


class QuotaExceeded(ProviderError):
    outcome = "quota_exceeded"


class RateLimited(ProviderError):
    outcome = "rate_limited"


class TimedOut(ProviderError):
    outcome = "timed_out"


class Unavailable(ProviderError):
    outcome = "unavailable"


class ProgramFailed(Unavailable):
    pass


class ProxyFailed(Unavailable):
    pass


class PageBlocked(ProviderError):
    outcome = "blocked"


class NoResults(ProviderError):
    outcome = "empty"
