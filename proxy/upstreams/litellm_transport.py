"""The wide transport: everything that does not speak Chat Completions, through `litellm.acompletion`. Handed a request
body, hands on the same events as `openai_transport`. LiteLLM is imported on first use and kept silent; its exceptions
end here.

Why a list of fields that clients may set: to LiteLLM a field is an argument, and among its arguments are the address a
key is sent to (`api_base`), callbacks and made-up answers. What it does not know by name goes into the body or nowhere.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import logging
import os
import re
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from json import JSONDecoder
from typing import Any

import aiohttp
import httpx
import orjson

from ..values.errors import RequestError, as_error, failure, refuse, truncated
from ..values.events import Event, Failed, merge_fields
from ..watching.contents import Contents
from .chunks import ChunkReader
from .failures import hung_up, key_refused, masked, masked_failure, timed_out, unreachable

log = logging.getLogger("groundwire")

_OFFLINE = {
    "LITELLM_MODE": "PRODUCTION",  # else it reads a .env file
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches each of these from the web
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
}
_SILENT: dict[str, Any] = {
    "telemetry": False,
    "suppress_debug_info": True,
    "set_verbose": False,
    "disable_streaming_logging": True,
    "turn_off_message_logging": True,
    "log_raw_request_response": False,
    "cache": None,
    "num_retries": None,
    "model_fallbacks": None,
    "drop_params": False,  # a dropped `tools` or `response_format` would be a silent lie
    "modify_params": False,
    "use_litellm_proxy": False,
    "disable_hf_tokenizer_download": True,  # else it fetches tokenizers to count with, while everybody waits
    "REPEATED_STREAMING_CHUNK_LIMIT": sys.maxsize,  # it takes a long row of equal pieces for a broken model
}
_CALLBACKS = ("callbacks", "input_callback", "success_callback", "failure_callback", "service_callback")
_ASYNC_CALLBACKS = ("_async_input_callback", "_async_success_callback", "_async_failure_callback")

_CLIENT_NAMES = (
    "messages stream stream_options tools tool_choice parallel_tool_calls functions function_call response_format "
    "temperature top_p top_k n stop max_tokens max_completion_tokens presence_penalty frequency_penalty logit_bias "
    "seed logprobs top_logprobs user reasoning_effort thinking verbosity modalities audio prediction service_tier "
    "safety_identifier prompt_cache_key web_search_options"
)
_CLIENT_FIELDS = frozenset(_CLIENT_NAMES.split())
_READ_LIMIT = 6000.0  # LiteLLM wants some number; ours are kept here
_MOST_NAMES = 500  # of models, which clients may make up
_SECRET_NAME = re.compile(r"key|secret|token|password|credential", re.IGNORECASE)
_PREFIX = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?: \w+Error)?(?:: | - ))+")
_SUFFIX = re.compile(r"\.? Handle with `litellm\.\w+`\.$|\.? ?To drop these, set `litellm.*", re.DOTALL)
_BYTES = re.compile(r"\bb(['\"])(?=[{\[])(?:\\.|(?!\1).)*\1", re.DOTALL)
_LONGEST_ERROR = 20_000
_UNREADABLE = (ValueError, SyntaxError, RecursionError, MemoryError)

_loading = threading.Lock()
_loaded: Any = None


def available() -> bool:
    return importlib.util.find_spec("litellm") is not None


def _load() -> Any:
    """LiteLLM, imported once and made to keep still: nothing it does by itself is printed or sent."""
    global _loaded
    with _loading:
        if _loaded is None:
            os.environ.update(_OFFLINE)
            litellm = importlib.import_module("litellm")
            for name, value in _SILENT.items():
                setattr(litellm, name, value)
            for name in (*_CALLBACKS, *_ASYNC_CALLBACKS):
                getattr(litellm, name, []).clear()
            for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
                logger = logging.getLogger(name)
                logger.handlers.clear()
                logger.propagate = False
                logger.setLevel(logging.CRITICAL + 1)
            _loaded = litellm
    return _loaded


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
        off: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self._key = api_key
        self._base = api_base
        self._models = [model for model in models if not set(model) & set("*?")]
        self._options = dict(options or {})
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}
        self._timeout = httpx.Timeout(_READ_LIMIT, connect=connect_timeout)
        self._first_byte_timeout = first_byte_timeout
        self._idle_timeout = idle_timeout
        self._off = off
        self._client: Any = None
        self._ollamas: set[str] = set()
        named = [value for key, value in self._options.items() if _SECRET_NAME.search(key)]
        self._secrets = [api_key, *self._headers.values(), *(value for value in named if isinstance(value, str))]

    async def stream(self, body: dict[str, Any], headers: Mapping[str, str]) -> AsyncGenerator[list[Event], None]:
        passed = headers.get("authorization", "").removeprefix("Bearer ")
        reader, answer = ChunkReader(self._off), None
        extras, wants_usage = _Extras(), bool((body.get("stream_options") or {}).get("include_usage"))
        try:
            litellm = _loaded or await asyncio.to_thread(_load)
            arguments = self._arguments(litellm, body, passed)
            if not body.get("stream"):
                yield self._dressed(reader.feed_answer(_whole(await _ask(litellm, arguments))), passed)
                return
            async with asyncio.timeout(self._first_byte_timeout):
                answer = await _ask(litellm, arguments)
                chunk = await anext(answer, None)
            while chunk is not None:
                said = _chunk(chunk, extras, answer)
                events = reader.feed([orjson.dumps(said, default=str)])
                if reader.over or (reader.complete and (said.get("usage") or not wants_usage)):
                    break  # one more step would only start its book-keeping
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
                yield reader.flush() if reader.complete else [self._failure(error, passed, begun=reader.begun)]
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
            await _loaded.close_litellm_async_clients()
            _loaded.in_memory_llm_clients_cache.flush_cache()

    # What LiteLLM is asked

    def _arguments(self, litellm: Any, body: Mapping[str, Any], passed: str) -> dict[str, Any]:
        model = str(body.get("model") or "")
        if "://" in model:  # to some vendors of LiteLLM a model may be an address, and the key would go there
            raise refuse(400, "A model's name must not be an address.", param="model")
        try:
            _, vendor, _, _ = litellm.get_llm_provider(model, api_base=self._base or None)
        except litellm.BadRequestError:
            text = f"Nobody knows whose model '{model}' is: write it with its vendor, such as anthropic/{model}."
            raise refuse(404, text, param="model", code="model_not_found") from None
        if vendor.startswith("ollama") and len(self._ollamas) < _MOST_NAMES:
            self._ollamas.add(model)
            # Else LiteLLM asks an Ollama on its usual port what the model can do, whatever `api_base` says.
            known = {"litellm_provider": vendor, "mode": "chat", "supports_function_calling": True}
            litellm.model_cost.setdefault(model, known | {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0})
        fields = {key: value for key, value in body.items() if key in _CLIENT_FIELDS and value is not None}
        others = {k: v for k, v in body.items() if k not in _CLIENT_FIELDS and k != "model" and v is not None}
        arguments = {**self._options, **fields, "model": model, "timeout": self._timeout}
        if self._client is None:
            handler = importlib.import_module("litellm.llms.custom_httpx.http_handler").AsyncHTTPHandler
            self._client = handler(timeout=self._timeout, event_hooks={"response": [_keep_lines_whole]})
        if vendor in ("openai", "azure") or vendor in litellm.openai_compatible_providers:
            if "user" in arguments:  # LiteLLM passes it on for the models it knows, and no others
                others["user"] = arguments.pop("user")
            if others:
                arguments["extra_body"] = {**others, **self._options.get("extra_body", {})}
        else:
            arguments["client"] = self._client
        if self._base:
            arguments["api_base"] = self._base
        if key := passed or self._key:
            arguments["api_key"] = key
        arguments["extra_headers"] = dict(self._headers)
        return arguments | {"num_retries": 0, "max_retries": 0, "drop_params": False}

    # What went wrong

    def _failure(self, error: Exception, passed: str, *, begun: bool) -> Failed:
        causes = _causes(error)
        error = getattr(error, "original_exception", None) or error  # in the middle of a stream it is wrapped
        chain = [error, *causes]
        text = masked(str(getattr(error, "message", error)), (*self._secrets, passed))
        log.warning("upstream %s: %s: %s", self.name, type(error).__name__, Contents(text))
        kinds = {base.__name__ for base in type(error).__mro__}
        if "Timeout" in kinds or any(isinstance(e, TimeoutError | httpx.TimeoutException) for e in chain):
            return timed_out(self.name)
        if any(isinstance(e, httpx.ConnectError | aiohttp.ClientConnectorError) for e in chain):
            return unreachable(self.name)
        if any(isinstance(e, httpx.TransportError | aiohttp.ClientPayloadError) for e in chain):
            return truncated() if begun else hung_up(self.name)
        status = _status(chain)
        if not status and "BadRequestError" in kinds and not begun:  # LiteLLM itself refused it
            status = 400
        failed = _vendor_error(chain, text, status)
        if failed is None and not status:
            # Its word for whatever it did not foresee, a mistake in its own code included.
            return failure(502, "The model's server sent an answer that cannot be read.", code="upstream_bad_response")
        if failed is None:
            said = _SUFFIX.sub("", _PREFIX.sub("", text)) or f"The model's server answered with HTTP {status}."
            failed = failure(status, said, retry=True)
        if failed.status in (401, 403) and not passed:
            return key_refused(self.name, failed.status, "the vendor's own variable")
        waits = next((found for e in chain if (found := _waits(e))), {})
        return masked_failure(replace(failed, headers={**failed.headers, **waits}), (*self._secrets, passed))

    def _dressed(self, events: list[Event], passed: str) -> list[Event]:
        secrets = (*self._secrets, passed)
        return [masked_failure(event, secrets) if isinstance(event, Failed) else event for event in events]


class _Extras:
    """The fields of a message beside text and calls, made whole: what leaves here grows right when it is merged.

    LiteLLM sends thinking twice and in pieces. A vendor takes back only a whole block with its signature; pieces
    without one are in `reasoning_content` already.
    """

    def __init__(self) -> None:
        self._thoughts = ""
        self._fields: dict[str, Any] = {}

    def gather(self, delta: dict[str, Any]) -> dict[str, Any]:
        blocks = [block for block in delta.pop("thinking_blocks", None) or () if isinstance(block, dict)]
        whole = [made for block in blocks if (made := self._block(block))]
        if whole:
            delta["thinking_blocks"] = whole
        fields = delta.pop("provider_specific_fields", None)
        if isinstance(fields, dict):
            merge_fields(self._fields, {k: v for k, v in fields.items() if k != "thinking_blocks" and v is not None})
            if self._fields:
                delta["provider_specific_fields"] = dict(self._fields)
        return delta

    def _block(self, block: dict[str, Any]) -> dict[str, Any] | None:
        if block.get("type") != "thinking":
            return block  # redacted thinking comes whole
        said = str(block.get("thinking") or "")
        if not block.get("signature"):
            self._thoughts += said
            return None
        thoughts, self._thoughts = self._thoughts, ""
        # With its signature comes all of a block (Anthropic), or no text at all (Bedrock).
        return {**block, "thinking": said or thoughts}


class _Escaped(httpx.AsyncByteStream):
    """A body of JSON in which the line ends that only Unicode knows are written as escapes.

    LiteLLM cuts lines as `str.splitlines` does: U+0085, U+2028 and U+2029 would tear the JSON they stand in, and what
    is torn it drops.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = b""
        async for data in self._stream:
            data = held + data
            held = next((end for end in (b"\xe2\x80", b"\xe2", b"\xc2") if data.endswith(end)), b"")
            yield _LINE_ENDS.sub(_escape, data[: len(data) - len(held)])
        if held:
            yield held

    async def aclose(self) -> None:
        await self._stream.aclose()


_JSON_KINDS = ("text/event-stream", "application/json", "application/x-ndjson")
_LINE_ENDS = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]")


def _escape(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found[0].decode())


async def _keep_lines_whole(response: httpx.Response) -> None:
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind in _JSON_KINDS and response.headers.get("content-encoding", "identity") == "identity":
        response.stream = _Escaped(response.stream)


async def _ask(litellm: Any, arguments: dict[str, Any]) -> Any:
    """The call itself, marked as internal: then LiteLLM writes no books about it."""
    marker: Any = None
    with suppress(ImportError, AttributeError):
        marker = importlib.import_module("litellm._internal_context").is_internal_call
    token = marker.set(True) if marker else None
    try:
        return await litellm.acompletion(**arguments)
    finally:
        if marker:
            marker.reset(token)


def _whole(answer: Any) -> dict[str, Any]:
    said: dict[str, Any] = answer.model_dump(exclude_none=True)
    for choice in said.get("choices") or ():
        choice["message"] = _Extras().gather(choice.get("message") or {})
    return said


def _chunk(chunk: Any, extras: _Extras, answer: Any) -> dict[str, Any]:
    """One chunk as the JSON it stands for. Only what is read is copied: LiteLLM's own dump is dear."""
    out: dict[str, Any] = {"model": chunk.model}
    if usage := getattr(chunk, "usage", None):
        out["usage"] = {key: value for key, value in usage.model_dump(exclude_none=True).items() if key != "cost"}
    if fingerprint := getattr(chunk, "system_fingerprint", None):
        out["system_fingerprint"] = fingerprint
    if chunk.choices:
        choice = chunk.choices[0]
        reason = choice.finish_reason
        if reason and not (answer.received_finish_reason or answer.intermittent_finish_reason):
            reason = None  # LiteLLM made it up: the stream ended, but the model did not
        out["choices"] = [{"delta": extras.gather(choice.delta.model_dump(exclude_none=True)), "finish_reason": reason}]
    return out


def _causes(error: BaseException) -> list[BaseException]:
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        seen.append(found)
        found = found.__cause__ or found.__context__
    return seen


def _status(chain: Sequence[BaseException]) -> int:
    """The status that the vendor sent, not the one that LiteLLM read out of its words; 0 if none did."""
    sent = next((e.response.status_code for e in chain if isinstance(e, httpx.HTTPStatusError)), None)
    status = sent or getattr(chain[0], "status_code", None)
    kinds = {base.__name__ for base in type(chain[0]).__mro__}
    foreseen = sent or not kinds & {"APIConnectionError", "BadRequestError"}
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


def _waits(error: BaseException) -> dict[str, str]:
    held = (
        getattr(error, "litellm_response_headers", None),
        getattr(getattr(error, "response", None), "headers", None),
    )
    for headers in held:
        found = {key: str(headers[key]) for key in ("retry-after", "retry-after-ms") if headers and key in headers}
        if found:
            return found
    return {}
