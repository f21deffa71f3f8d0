"""What belongs to Anthropic's API beside its messages. Handed requests that the edge let in; hands out how many tokens
a request would cost, about.
"""

from __future__ import annotations

import orjson
from starlette.types import Receive, Scope, Send

from ..config.settings import ServerConfig
from ..dialects.messages.token_estimate import estimated_tokens
from .bodies import decoded_body
from .delivery import send_json


class CountTokensRoute:
    """`POST /v1/messages/count_tokens`: an estimate, which says so."""

    def __init__(self, server: ServerConfig) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tokens = await decoded_body(receive, scope, self._server, estimated_tokens)
        await send_json(send, 200, orjson.dumps({"input_tokens": tokens, "estimated": True}))
