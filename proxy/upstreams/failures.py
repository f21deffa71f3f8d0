"""How asking a model fails, in the same words for every transport, and without the keys that were sent along. Handed
what went wrong, by the transport that met it; hands on `Failed`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import replace

from providers.text.patterns import pattern
from providers.web.certificate_errors import certificate_trouble
from providers.web.egress import Failing, happening

from ..values.errors import failure
from ..values.events import Failed
from ..values.secrets import masked

ADVICE = ("retry-after", "retry-after-ms", "x-should-retry")  # headers of a failure that are for whoever asks again

_PROXY: dict[Failing, str] = {
    "unreachable": "upstream_proxy_unreachable",
    "credentials": "upstream_proxy_auth",
    "refused": "upstream_proxy_refused",
}
PROXY_CODES = {code: kind for kind, code in _PROXY.items()}

_OVERFLOW = pattern(
    r"context[ _-]?(?:length|size|window|limit)|(?:exceed|larger than|longer than|too (?:long|large|many)).{0,60}"
    r"(?:context|token|prompt|input)|(?:prompt|input|request|message)s?\b.{0,40}(?:too (?:long|large)|exceed)"
    r"|(?:prompt|input) length|token limit|reduce the length|inputs?`? tokens|context shift",
    re.IGNORECASE | re.DOTALL,
)
# The answer that was asked for is too long, not what was handed over.
_ANSWER_TOO_LONG = pattern(
    r"max_(?:\w+_)?tokens\W{0,3}(?:is |are )?(?:too large|too high|exceeds? the model)", re.IGNORECASE
)
_COUNTED = pattern(
    r"(?:request|token count) \((\d{1,9})|(\d{1,9}) in the messages|(?:resulted in|too long:) (\d{1,9}) tokens",
    re.IGNORECASE,
)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_COME_BACK = "10"  # seconds, when descriptors have run out: they come back as answers end


def is_overflow(failed: Failed) -> bool:
    """Does the server say that the model cannot hold so much?"""
    if failed.status not in (400, 413, 422, 500):
        return False
    said = f"{failed.error.get('code')} {failed.error.get('type')} {str(failed.error.get('message'))[:500]}"
    return _OVERFLOW.search(said) is not None and _ANSWER_TOO_LONG.search(said) is None


def tokens_refused(failed: Failed) -> int:
    """How many tokens the server counted in what it cannot hold; 0 where it does not say."""
    if not is_overflow(failed):
        return 0
    found = _COUNTED.search(str(failed.error.get("message"))[:500])
    return int(found[found.lastindex or 0]) if found else 0


def timed_out(upstream: str) -> Failed:
    return failure(504, f"Upstream '{upstream}' did not answer in time.", code="upstream_timeout")


def unreachable(upstream: str) -> Failed:
    text = f"Could not connect to upstream '{upstream}'. Is it running, and is its `base_url` right?"
    return failure(502, text, code="upstream_unreachable", retry=True)


def hung_up(upstream: str) -> Failed:
    text = f"Upstream '{upstream}' closed the connection without an answer."
    return failure(502, text, code="upstream_unreachable", retry=True)


def proxy_failed(upstream: str, kind: Failing, error: BaseException) -> Failed:
    """The proxy on the way to an upstream stopped it, and `error` says so."""
    if kind == "unreachable" and lacks_descriptors([error, *filter(None, [error.__cause__])]):
        return overloaded()
    trouble = certificate_trouble(error)
    happened = trouble.sentence if trouble else happening(kind)
    text = f"The proxy before upstream '{upstream}' {happened}."
    return failure(502, text, code=_PROXY[kind], retry=kind == "unreachable")


def not_trusted(upstream: str, error: BaseException | None = None) -> Failed:
    """`error` says what is wrong with it. What to do about that follows it, as in `unreachable`."""
    trouble = certificate_trouble(error)
    text = f"The certificate of upstream '{upstream}' is not valid"
    if trouble is not None:
        text = f"{text}: {trouble.problem}. {trouble.advice[0].upper()}{trouble.advice[1:]}"
    return failure(502, f"{text}.", code="upstream_tls")


def overloaded() -> Failed:
    """We have no descriptor left for another connection. It is not the upstream that is in trouble."""
    text = "This server has too many connections open; ask again in a moment."
    failed = failure(503, text, code="overloaded", retry=True)
    return replace(failed, headers={"retry-after": _COME_BACK})


def lacks_descriptors(errors: Iterable[BaseException]) -> bool:
    """Did connecting fail for want of a descriptor? Looking up a name fails then in words that say nothing of it, so
    one is tried for."""
    return any(getattr(error, "errno", None) in _NO_DESCRIPTORS for error in errors) or not _has_descriptor()


def _has_descriptor() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _NO_DESCRIPTORS
    return True


def key_refused(upstream: str, status: int, variable: str) -> Failed:
    """The key is the operator's: the client cannot be blamed for it, nor do anything about it."""
    text = (
        f"The model's server refused the key that Groundwire holds for upstream '{upstream}' (HTTP {status}). "
        f"Set `api_key` of this upstream in the config file, or {variable}."
    )
    return failure(502, text, code="upstream_auth")


def masked_failure(failed: Failed, secrets: Iterable[str]) -> Failed:
    """Our own words hold no secret."""
    if not failed.foreign:
        return failed
    known = list(secrets)
    said = failed.error.items()
    return replace(failed, error={k: masked(v, known) if isinstance(v, str) else v for k, v in said})
