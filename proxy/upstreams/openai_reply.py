"""One request to a server that speaks the client's own wire format, as bytes both ways. Handed what goes up; hands on a
`Reply`, to be left with its connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import orjson

from ..values.events import Failed
from .answer_body import HTTP_ERRORS
from .reply_bodies import BodyInHand, BodyThatComes
from .transport import Reply

if TYPE_CHECKING:
    from providers.web.answer import Answer

    from .openai_transport import OpenAITransport

_FORWARDED_DOWN = frozenset(
    {
        b"content-type",
        b"content-disposition",
        b"retry-after",
        b"retry-after-ms",
        b"x-should-retry",
        b"openai-processing-ms",
    }
)
_LIMITS_DOWN = b"x-ratelimit-"


async def forwarded(
    to: OpenAITransport, method: str, path: str, headers: Mapping[str, str], body: bytes, patience: float | None
) -> Reply:
    try:
        response = await to.send(method, path, headers, body, patience)
    except HTTP_ERRORS as error:
        return _own_reply(to.failures.broken(error, begun=False))
    if response.status < 300:
        return Reply(
            response.status, _headers_down(response), BodyThatComes(response, to.idle_timeout, to.failures.broken)
        )
    with response:
        return await _error(to, response, headers.get("authorization", ""))


async def _error(to: OpenAITransport, response: Answer, passed: str) -> Reply:
    """An error's own bytes, without our key in them; ours where it is our own affair or has nothing to say."""
    body = await to.body(response).error()
    failed = to.failures.refusal(response, body, passed)
    if not body or failed.status != response.status:
        return _own_reply(failed)
    headers = {**_headers_down(response), **failed.headers}
    return Reply(response.status, headers, BodyInHand(to.without_key(body, passed)), failed)


def _headers_down(response: Answer) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("utf-8", "surrogateescape")
        for name, value in response.headers.items()
        if name in _FORWARDED_DOWN or name.startswith(_LIMITS_DOWN)
    }


def _own_reply(failed: Failed) -> Reply:
    """A failure in our own words, as if a server had sent it."""
    said = orjson.dumps({"error": failed.error})
    return Reply(failed.status, {"content-type": "application/json", **failed.headers}, BodyInHand(said), failed)
