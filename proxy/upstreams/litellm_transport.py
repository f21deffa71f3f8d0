"""The wide transport: everything that does not speak Chat Completions, through `litellm.acompletion`. Handed a request
body, hands on the same events as `openai_transport`. LiteLLM's exceptions end here.

Why a list of fields that clients may set: to LiteLLM a field is an argument, and among its arguments are the address a
key is sent to (`api_base`), callbacks and made-up answers. What it does not know by name goes into the body or nowhere.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import ssl
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import httpx
import orjson

from providers.web.egress import DIRECT, Egress

from ..config.secrets import header_secrets, named_secrets
from ..values.errors import RequestError, refuse
from ..values.events import Event, Failed
from ..values.sse import EventTooLong
from .answer_body import MOST_ANSWER
from .chunks import ChunkReader
from .failures import masked_failure
from .litellm_answers import Extras, answer_json, bound_and_mend, chunk_json
from .litellm_failures import litellm_failure
from .litellm_library import ask, believe, load, loaded
from .litellm_session import open_session
from .server_json import parse

_CLIENT_NAMES = (
    "messages stream stream_options tools tool_choice parallel_tool_calls functions function_call response_format "
    "temperature top_p top_k n stop max_tokens max_completion_tokens presence_penalty frequency_penalty logit_bias "
    "seed logprobs top_logprobs user reasoning_effort thinking verbosity modalities audio prediction service_tier "
    "safety_identifier prompt_cache_key web_search_options"
)
_CLIENT_FIELDS = frozenset(_CLIENT_NAMES.split())
_READ_LIMIT = 6000.0  # LiteLLM wants some number; ours are kept here
_MOST_NAMES = 500  # of models, which clients may make up


class LitellmTransport:
    def __init__(
        self,
        name: str,
        api_key: str = "",
        *,
        api_base: str = "",
        models: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 5.0,
        first_byte_timeout: float = 120.0,
        idle_timeout: float = 60.0,
        max_answer: int = MOST_ANSWER,
        off: frozenset[str] = frozenset(),
        egress: Egress = DIRECT,
    ) -> None:
        self.name = name
        self._egress = egress
        self._connect_timeout = connect_timeout
        self._session: Any = None
        self._key = api_key
        self._base = api_base
        self._models = [model for model in models if not set(model) & set("*?")]
        self._options = dict(options or {})
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}
        self._timeout = httpx.Timeout(_READ_LIMIT, connect=connect_timeout)
        self._first_byte_timeout = first_byte_timeout
        self._idle_timeout = idle_timeout
        self._max_answer = max_answer
        self._off = off
        self._client: Any = None
        self._certificates: ssl.SSLContext | None = None
        self._ollamas: set[str] = set()
        others = (*header_secrets(headers or {}), *named_secrets(self._options), *egress.secrets)
        self._secrets = [api_key, *others]

    async def stream(
        self, body: dict[str, Any], headers: Mapping[str, str], names: Collection[str] = ()
    ) -> AsyncGenerator[list[Event], None]:
        passed = headers.get("authorization", "").removeprefix("Bearer ")
        reader, answer, size = ChunkReader(self._off, names), None, 0
        extras, wants_usage = Extras(), bool((body.get("stream_options") or {}).get("include_usage"))
        try:
            litellm = await loaded()
            if self._certificates is None:  # in a thread: they are read from files
                self._certificates = await asyncio.to_thread(believe, self._egress.ca_file)
            arguments = self._arguments(litellm, body, passed)
            if not body.get("stream"):
                whole = json.dumps(answer_json(await ask(litellm, arguments)), default=str).encode()
                if len(whole) > self._max_answer:
                    raise EventTooLong
                yield self._dressed(reader.feed_answer(parse(whole)), passed)
                return
            async with asyncio.timeout(self._first_byte_timeout):
                answer = await ask(litellm, arguments)
                chunk = await anext(answer, None)
            while chunk is not None:
                said = chunk_json(chunk, extras, answer)
                payload = orjson.dumps(said, default=str)
                size += len(payload)
                if size > self._max_answer:
                    raise EventTooLong
                events = reader.feed([payload])
                if _is_all(reader, said, wants_usage):
                    break
                if events:
                    yield self._dressed(events, passed)
                async with asyncio.timeout(self._idle_timeout):
                    chunk = await anext(answer, None)
            else:
                events = []
            yield self._dressed(events if reader.over else events + reader.flush(), passed)
        except RequestError as refused:
            yield [refused.failed]
        except Exception as error:  # the boundary to LiteLLM, which raises what its vendors' libraries raise
            # Once the model has said that it is done, what then breaks or hangs has lost nothing.
            if not reader.over:
                yield reader.flush() if reader.complete else [self._failed(error, passed, begun=reader.begun)]
        finally:
            if answer is not None:
                await answer.aclose()

    async def models(self) -> list[dict[str, Any]]:
        """LiteLLM cannot list: the names that the operator wrote out."""
        return [{"id": name, "object": "model", "created": 0, "owned_by": self.name} for name in self._models]

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None
            # The connections to servers that speak Chat Completions are shared: whoever closes first closes them all.
            await load().close_litellm_async_clients()
            load().in_memory_llm_clients_cache.flush_cache()
        if self._session is not None:
            await self._session.close()
            self._session = None

    # What LiteLLM is asked

    def _arguments(self, litellm: Any, body: Mapping[str, Any], passed: str) -> dict[str, Any]:
        model = str(body.get("model") or "")
        vendor = self._vendor(litellm, model)
        if vendor.startswith("ollama"):
            self._describe_ollama(litellm, model, vendor)
        known = {key: value for key, value in body.items() if key in _CLIENT_FIELDS and value is not None}
        arguments = {**self._options, **known, "model": model, "timeout": self._timeout}
        client = self._http_client()
        if self._session is not None:
            arguments["shared_session"] = self._session  # for the vendors that have a client of their own
        if vendor in ("openai", "azure") or vendor in litellm.openai_compatible_providers:
            self._add_extra_body(arguments, body)
        else:
            arguments["client"] = client
        where = {"api_base": self._base, "api_key": passed or self._key}
        arguments |= {name: value for name, value in where.items() if value}
        arguments["extra_headers"] = dict(self._headers)
        return arguments | {"num_retries": 0, "max_retries": 0, "drop_params": False}

    def _add_extra_body(self, arguments: dict[str, Any], body: Mapping[str, Any]) -> None:
        """What LiteLLM does not know by name, for a server that speaks Chat Completions itself."""
        known = {"model", *_CLIENT_FIELDS}
        others = {key: value for key, value in body.items() if key not in known and value is not None}
        if "user" in arguments:  # LiteLLM passes it on for the models it knows, and no others
            others["user"] = arguments.pop("user")
        if others:
            arguments["extra_body"] = {**others, **self._options.get("extra_body", {})}

    def _vendor(self, litellm: Any, model: str) -> str:
        if "://" in model:  # to some vendors of LiteLLM a model may be an address, and the key would go there
            raise refuse(400, "A model's name must not be an address.", param="model")
        try:
            vendor: str = litellm.get_llm_provider(model, api_base=self._base or None)[1]
        except litellm.BadRequestError:
            text = f"Nobody knows whose model '{model}' is: write it with its vendor, such as anthropic/{model}."
            raise refuse(404, text, param="model", code="model_not_found") from None
        return vendor

    def _describe_ollama(self, litellm: Any, model: str, vendor: str) -> None:
        """Else LiteLLM asks an Ollama on its usual port what the model can do, whatever `api_base` says."""
        if len(self._ollamas) < _MOST_NAMES:
            self._ollamas.add(model)
            known = {"litellm_provider": vendor, "mode": "chat", "supports_function_calling": True}
            litellm.model_cost.setdefault(model, known | {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0})

    def _http_client(self) -> Any:
        if self._client is None:
            handler = importlib.import_module("litellm.llms.custom_httpx.http_handler").AsyncHTTPHandler
            if not self._egress.plain:
                self._session = open_session(self._egress, self._connect_timeout)
            hooks = {"response": [partial(bound_and_mend, most=self._max_answer)]}
            self._client = handler(
                timeout=self._timeout,
                event_hooks=hooks,
                ssl_verify=self._certificates,
                shared_session=self._session,
            )
        return self._client

    def _failed(self, error: Exception, passed: str, *, begun: bool) -> Failed:
        return litellm_failure(error, self.name, (*self._secrets, passed), own_key=bool(passed), begun=begun)

    def _dressed(self, events: list[Event], passed: str) -> list[Event]:
        secrets = (*self._secrets, passed)
        return [masked_failure(event, secrets) if isinstance(event, Failed) else event for event in events]


def _is_all(reader: ChunkReader, said: Mapping[str, Any], wants_usage: bool) -> bool:
    """Has the model said everything? One more step would only start LiteLLM's book-keeping."""
    return reader.over or (reader.complete and (not wants_usage or bool(said.get("usage"))))
