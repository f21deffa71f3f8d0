"""The fast transport: any server that speaks Chat Completions, over connections of our own. Handed a request body,
hands on its events (`openai_events`) or its bytes (`openai_reply`); and lists the server's models. Every exception of
the connections ends in one of the three.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Collection, Mapping
from contextlib import suppress
from typing import Any

from yarl import URL

from providers.deadlines import time_limit
from providers.web.answer import Answer, ReadTimeout
from providers.web.connections import Connections
from providers.web.egress import DIRECT, Egress

from ..config.secrets import header_secrets
from ..values.errors import RequestError
from ..values.events import Failed
from ..values.sse import EventTooLong
from .answer_body import HTTP_ERRORS, MOST_ANSWER, AnswerBody
from .chunks import ChunkReader
from .openai_events import AnswerEvents
from .openai_failures import ServerFailures
from .openai_reply import forwarded
from .repairs import ALL_ON
from .server_json import parse
from .transport import Reply

_PROPS = "/props"
_WITHOUT_BODY = {"accept": "*/*"}
_WITH_JSON = {**_WITHOUT_BODY, "content-type": "application/json"}
_MODELS_AGE = 60.0
_MODELS_LIMIT = 10.0


class OpenAITransport:
    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 5.0,
        first_byte_timeout: float = 120.0,
        idle_timeout: float = 60.0,
        max_answer: int = MOST_ANSWER,
        off: frozenset[str] = ALL_ON,
        egress: Egress = DIRECT,
    ) -> None:
        self.name = name
        base = base_url.rstrip("/")
        self._path = URL(base).raw_path.rstrip("/")
        always = {"accept-encoding": "identity", "user-agent": "groundwire"}
        always |= {name.lower(): value for name, value in (headers or {}).items()}
        if api_key:
            always["authorization"] = f"Bearer {api_key}"
        self._connections = Connections(base, always, egress, connect_timeout)
        self.failures = ServerFailures(name, (api_key, *header_secrets(headers or {}), *egress.secrets))
        self.first_byte_timeout = first_byte_timeout
        self.idle_timeout = idle_timeout
        self._max_answer = max_answer
        self._models: tuple[float, list[dict[str, Any]] | Failed] = (0.0, [])
        self._off = off  # the repairs that are switched off

    def stream(self, body: dict[str, Any], headers: Mapping[str, str], names: Collection[str] = ()) -> AnswerEvents:
        return AnswerEvents(self, body, headers, ChunkReader(self._off, names))

    def forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, *, streamed: bool = False
    ) -> Awaitable[Reply]:
        return forwarded(self, method, path, headers, body, self.first_byte_timeout if streamed else None)

    async def models(self) -> list[dict[str, Any]]:
        """What the server lists, remembered for a minute. Raises `RequestError` where it cannot be asked."""
        asked, known = self._models
        if not asked or time.monotonic() - asked > _MODELS_AGE:
            known = await self._list_models()
            self._models = (time.monotonic(), known)
        if isinstance(known, Failed):
            raise RequestError(known)
        return known

    async def _list_models(self) -> list[dict[str, Any]] | Failed:
        try:
            async with time_limit(_MODELS_LIMIT, ReadTimeout()):
                with await self.send("GET", "/models", {}, b"") as response:
                    if response.status != 200:
                        return self.failures.refusal(response, await self.body(response).error(), "")
                    answer = parse(await self.body(response).whole())
        except (*HTTP_ERRORS, EventTooLong) as error:
            return self.failures.broken(error, begun=False)
        data = answer.get("data") if isinstance(answer, dict) else None
        entries = data if isinstance(data, list) else []
        listed = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
        if listed and listed[0].get("owned_by") == "llamacpp":
            about = _about_llama_cpp(await self._props())
            listed = [{**model, **about} for model in listed]
        return listed

    async def _props(self) -> dict[str, Any]:
        """What llama.cpp says of itself."""
        with suppress(*HTTP_ERRORS, EventTooLong):
            async with time_limit(_MODELS_LIMIT, ReadTimeout()):
                with await self.send("GET", _PROPS, {}, b"") as response:
                    about = parse(await self.body(response).whole()) if response.status == 200 else None
                    return about if isinstance(about, dict) else {}
        return {}

    async def aclose(self) -> None:
        self._connections.close()

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, patience: float | None = None
    ) -> Awaitable[Answer]:
        base = self._path.removesuffix("/v1") if path == _PROPS else self._path
        sent = {**(_WITH_JSON if body else _WITHOUT_BODY), **headers}
        return self._connections.ask(method, base + path, sent, body, patience)

    def body(self, response: Answer) -> AnswerBody:
        return AnswerBody(response, self._max_answer, self.idle_timeout)

    def unreadable(self, first: bytes, passed: str) -> Failed:
        return self.failures.unreadable(first, passed)

    def dressed(self, failed: Failed, passed: str) -> Failed:
        return self.failures.dressed(failed, passed)

    def without_key(self, data: bytes, passed: str) -> bytes:
        return self.failures.without_key(data, passed)


def _about_llama_cpp(props: Mapping[str, Any]) -> dict[str, Any]:
    """It takes tools for every model and drops them where the chat template has no place for them; and a request gets
    the context of a slot, which may be a part of what the model is loaded with."""
    able, slot = props.get("chat_template_caps"), props.get("default_generation_settings")
    context = slot.get("n_ctx") if isinstance(slot, dict) else None
    takes_tools = not (isinstance(able, dict) and able.get("supports_tools") is False)
    return {"supports_tools": takes_tools, **({"slot_context": context} if isinstance(context, int) else {})}
