"""How asking a model fails, in the same words for every transport, and without the keys that were sent along. Handed
what went wrong, by the transport that met it; hands on `Failed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..values.errors import failure
from ..values.events import Failed

SHORTEST_SECRET = 16  # shorter ones are words like `ollama`, put there because some client wants a key


def timed_out(upstream: str) -> Failed:
    return failure(504, f"Upstream '{upstream}' did not answer in time.", code="upstream_timeout")


def unreachable(upstream: str) -> Failed:
    text = f"Could not connect to upstream '{upstream}'. Is it running, and is its `base_url` right?"
    return failure(502, text, code="upstream_unreachable", retry=True)


def hung_up(upstream: str) -> Failed:
    return failure(502, f"Upstream '{upstream}' closed the connection without an answer.", code="upstream_unreachable")


def key_refused(upstream: str, status: int, variable: str) -> Failed:
    """The key is the operator's: the client cannot be blamed for it, nor do anything about it."""
    text = (
        f"The model's server refused the key that Groundwire holds for upstream '{upstream}' (HTTP {status}). "
        f"Set `api_key` of this upstream in the config file, or {variable}."
    )
    return failure(502, text, code="upstream_auth")


def masked(text: str, secrets: Iterable[str], shortest: int = SHORTEST_SECRET) -> str:
    """Servers like to repeat a key that they complain about."""
    for secret in secrets:
        if len(secret) >= shortest:
            text = text.replace(secret, "***")
    return text


def masked_failure(failed: Failed, secrets: Iterable[str]) -> Failed:
    known = list(secrets)
    said = failed.error.items()
    return replace(failed, error={k: masked(v, known) if isinstance(v, str) else v for k, v in said})
