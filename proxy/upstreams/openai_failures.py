"""What can go wrong with a server that speaks Chat Completions. Handed its errors and those of the connections; hands
on failures in our words, or in its own without the keys that it was sent.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from providers.web.answer import Answer, BrokenOff, NotHTTP
from providers.web.connections import ConnectTimeout, NotConnected, NotTrusted, ProxyFailed

from ..values.errors import as_error, failure, too_large
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
    proxy_failed,
    timed_out,
    unreachable,
)
from .server_json import parse

log = logging.getLogger("groundwire")


class ServerFailures:
    """Of the upstream of this name. `secrets` are what its server is sent and may repeat; `passed` is the key that a
    client brought for it, if it did."""

    def __init__(self, name: str, secrets: tuple[str, ...]) -> None:
        self._name = name
        self._secrets = secrets

    def refusal(self, response: Answer, body: bytes, passed: str) -> Failed:
        """What an error says. A client's own key that is refused (`passed`) stays its own affair."""
        status = response.status
        if status in (401, 403) and not passed:
            return self._key_refused(status)
        if status < 400:
            return bad_response(f"The model's server answered with HTTP {status}.")
        failed = as_error(parse(body), status) or failure(
            status, f"The model's server answered with HTTP {status}.", retry=True
        )
        advice = {key: said for key in ADVICE if (said := response.header(key.encode()))}
        failed = replace(failed, status=status, headers={**failed.headers, **advice})
        return masked_failure(failed, self._known(passed))

    def unreadable(self, first: bytes, passed: str) -> Failed:
        said = masked(first.decode("utf-8", "replace"), self._known(passed))
        log.warning("upstream %s: expected an answer, got %.200r", self._name, Contents(said))
        return bad_response("The model's server sent a web page instead of an answer.")

    def _key_refused(self, status: int) -> Failed:
        return key_refused(self._name, status, "OPENAI_API_KEY")

    def dressed(self, failed: Failed, passed: str) -> Failed:
        ours = failed.status in (401, 403) and not passed
        return self._key_refused(failed.status) if ours else masked_failure(failed, self._known(passed))

    def without_key(self, data: bytes, passed: str) -> bytes:
        return masked(data.decode("latin-1"), self._known(passed)).encode("latin-1")

    def _known(self, passed: str) -> tuple[str, ...]:
        """The secrets that a server was sent, and may repeat: ours, and the key that the client brought."""
        return (*self._secrets, passed.removeprefix("Bearer "))

    def broken(self, error: Exception, *, begun: bool) -> Failed:
        # The server's own bytes may be in it, and a proxy's, which may repeat what it was sent.
        said = error if isinstance(error, OSError) else Contents(masked(str(error), self._secrets))
        log.warning("upstream %s: %s: %s", self._name, type(error).__name__, said)
        if isinstance(error, ProxyFailed):
            return proxy_failed(self._name, error.kind, error)
        if isinstance(error, ConnectTimeout):
            text = f"Upstream '{self._name}' did not accept a connection in time."
            return failure(504, text, code="upstream_timeout")
        if isinstance(error, TimeoutError):
            return timed_out(self._name)
        if isinstance(error, NotTrusted):
            return not_trusted(self._name, error)
        if isinstance(error, NotConnected):
            return overloaded() if lacks_descriptors([error]) else unreachable(self._name)
        if isinstance(error, EventTooLong):
            return too_large()
        if isinstance(error, NotHTTP):
            return bad_response("The model's server sent an answer that is not valid HTTP, or too many headers.")
        if begun or isinstance(error, BrokenOff):
            text = "The connection to the model's server broke before the answer was complete."
            return failure(502, text, code="upstream_truncated", retry=True)
        return hung_up(self._name)


def bad_response(text: str) -> Failed:
    return failure(502, text, code="upstream_bad_response")
