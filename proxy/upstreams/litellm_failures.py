"""How asking through LiteLLM fails. Handed the exception that it raised, which may be any of its vendors' libraries;
hands on `Failed`: the vendor's own error where it can be found, else what broke on the way, in our words.
"""

from __future__ import annotations

import ast
import logging
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from json import JSONDecoder

import aiohttp
import httpx

from ..values.errors import as_error, failure, too_large, truncated
from ..values.events import Failed
from ..values.secrets import masked
from ..values.sse import EventTooLong
from ..watching.contents import Contents
from .failures import (
    ADVICE,
    hung_up,
    key_refused,
    lacks_descriptors,
    masked_failure,
    not_trusted,
    overloaded,
    timed_out,
    unreachable,
)
from .litellm_session import proxy_failure

log = logging.getLogger("groundwire")

_PREFIX = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?: \w+Error)?(?:: | - ))+")
_SUFFIX = re.compile(r"\.? Handle with `litellm\.\w+`\.$|\.? ?To drop these, set `litellm.*", re.DOTALL)
_BYTES = re.compile(r"\bb(['\"])(?=[{\[])(?:\\.|(?!\1).)*\1", re.DOTALL)
_LONGEST_ERROR = 20_000
_UNREADABLE = (ValueError, SyntaxError, RecursionError, MemoryError)


def litellm_failure(error: Exception, upstream: str, secrets: Sequence[str], *, own_key: bool, begun: bool) -> Failed:
    """`own_key`: the client sent its own; `begun`: the answer had begun."""
    causes = _causes(error)
    error = getattr(error, "original_exception", None) or error  # in the middle of a stream it is wrapped
    chain = [error, *causes]
    text = masked(str(getattr(error, "message", error)), secrets)
    log.warning("upstream %s: %s: %s", upstream, type(error).__name__, Contents(text))
    broken = _broken_line(chain, upstream, begun)
    if broken is not None:
        return broken
    failed = _refusal(chain, text, begun)
    if failed is None:
        # Its word for whatever it did not foresee, a mistake in its own code included.
        return failure(502, "The model's server sent an answer that cannot be read.", code="upstream_bad_response")
    if failed.status in (401, 403) and not own_key:
        return key_refused(upstream, failed.status, "the vendor's own variable")
    advice = next((found for cause in chain if (found := _advice(cause))), {})
    return masked_failure(replace(failed, headers={**failed.headers, **advice}), secrets)


def _causes(error: BaseException) -> list[BaseException]:
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        seen.append(found)
        found = found.__cause__ or found.__context__
    return seen


def _kinds(error: BaseException) -> set[str]:
    """LiteLLM's exceptions by name: it may not be imported for their sake."""
    return {base.__name__ for base in type(error).__mro__}


# On the way


def _broken_line(chain: Sequence[BaseException], upstream: str, begun: bool) -> Failed | None:
    stopped = next((failed for error in chain if (failed := proxy_failure(upstream, error))), None)
    if stopped is not None:
        return stopped
    if "Timeout" in _kinds(chain[0]) or _holds(chain, TimeoutError, httpx.TimeoutException):
        return timed_out(upstream)
    if _holds(chain, EventTooLong):
        return too_large()
    if _holds(chain, ssl.SSLError, aiohttp.ClientSSLError):
        return not_trusted(upstream, chain[0])
    if _holds(chain, httpx.ConnectError, aiohttp.ClientConnectorError):
        return overloaded() if lacks_descriptors(chain) else unreachable(upstream)
    if _holds(chain, httpx.TransportError, aiohttp.ClientPayloadError):
        return truncated() if begun else hung_up(upstream)
    return None


def _holds(chain: Sequence[BaseException], *kinds: type[BaseException]) -> bool:
    return any(isinstance(error, kinds) for error in chain)


# By the vendor


def _refusal(chain: Sequence[BaseException], text: str, begun: bool) -> Failed | None:
    """What the vendor said, or LiteLLM in its place; None if nobody said anything that makes sense."""
    status = _status(chain)
    if not status and "BadRequestError" in _kinds(chain[0]) and not begun:  # LiteLLM itself refused it
        status = 400
    failed = _vendor_error(chain, text, status)
    if failed is not None or not status:
        return failed
    said = _SUFFIX.sub("", _PREFIX.sub("", text)) or f"The model's server answered with HTTP {status}."
    return failure(status, said, retry=True)


def _status(chain: Sequence[BaseException]) -> int:
    """The status that the vendor sent, not the one that LiteLLM read out of its words; 0 if none did."""
    sent = next((e.response.status_code for e in chain if isinstance(e, httpx.HTTPStatusError)), None)
    status = sent or getattr(chain[0], "status_code", None)
    foreseen = sent or not _kinds(chain[0]) & {"APIConnectionError", "BadRequestError"}
    return status if foreseen and isinstance(status, int) and 400 <= status <= 599 else 0


def _vendor_error(chain: Sequence[BaseException], text: str, status: int) -> Failed | None:
    """The vendor's own error: as the OpenAI client kept it, or inside LiteLLM's message, as JSON or as Python prints
    bytes and dictionaries."""
    for body in (getattr(e, "body", None) for e in chain):
        if isinstance(body, dict):
            return as_error({"error": body}, status)
    text = text[:_LONGEST_ERROR]
    if found := _BYTES.search(text):
        with suppress(*_UNREADABLE):
            text = ast.literal_eval(found[0]).decode("utf-8", "replace")
    for at in [match.start() for match in re.finditer(r"[{\[]", text)][:4]:
        with suppress(*_UNREADABLE):
            return as_error(JSONDecoder().raw_decode(text, at)[0], status)
        with suppress(*_UNREADABLE):
            return as_error(ast.literal_eval(text[at:]), status)
    return None


def _advice(error: BaseException) -> dict[str, str]:
    held = (
        getattr(error, "litellm_response_headers", None),
        getattr(getattr(error, "response", None), "headers", None),
    )
    for headers in held:
        found = {key: str(headers[key]) for key in ADVICE if headers and key in headers}
        if found:
            return found
    return {}
