"""What an operator may say about where models live: the `upstreams:` section, strict and frozen. Handed values from the
config; hands each upstream its `UpstreamConfig` and, for one model, what holds for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cached_property
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from providers.settings import Count, Seconds, no_switch, off, on_or_off
from providers.web.egress import Egress, ProxyUrl

from ..values.request import AutoMarks, CitationStyle
from .vocabulary import PROFILES, REPAIRS

ToolCalls = Literal["auto", "native", "prompted", "none"]
Mode = Annotated[Literal["auto", "on_request", "off"], BeforeValidator(off)]
AutoCitations = Annotated[AutoMarks, BeforeValidator(on_or_off)]
Name = Annotated[str, Field(min_length=1)]
Kind = Literal["openai", "litellm", "demo"]

PASSTHROUGH = "passthrough"


def _base_url(value: str) -> str:
    if not _is_web_address(value) or not value.isprintable() or " " in value:
        raise ValueError("must be a URL such as http://127.0.0.1:11434/v1")
    parts = urlsplit(value)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("must be a bare URL, without user, query or fragment; a key belongs in api_key")
    return value.rstrip("/")


def _is_web_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def _forward_path(value: str) -> str:
    if not re.fullmatch(r"/v1/[\w*./-]+", value, re.A) or {".", "..", ""} & set(value[1:].split("/")):
        raise ValueError("must be a path such as /v1/batches or /v1/batches/*")
    return value


def _repair(value: str) -> str:
    if value not in REPAIRS:
        raise ValueError(f"must be a repair ({', '.join(REPAIRS)})")
    return value


def _profile(value: str) -> str:
    if value != "auto" and value not in PROFILES:
        raise ValueError(f"must be auto or one of {', '.join(PROFILES)}")
    return value


_NEVER_DROPPED = ("model", "messages", "stream", "tools", "response_format")


def _droppable(value: str) -> str:
    if value in _NEVER_DROPPED:
        raise ValueError("must not be one that the answer depends on")
    return value


def _sendable(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.A) or re.search(r"[\r\n\0]", value):
            raise ValueError("must be header names and one-line values")
    return headers


Headers = Annotated[dict[str, str], AfterValidator(_sendable)]
Parameter = Annotated[str, Field(min_length=1), AfterValidator(_droppable)]
ContextSize = Annotated[Count, Field(ge=512)]


STRICT = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, coerce_numbers_to_str=True)


class CitationsPolicy(BaseModel):
    """What holds of citations for one key or one upstream; unset is as for all."""

    model_config = STRICT

    style: CitationStyle | None = None
    """`citations.style`, for this key or upstream alone."""
    auto: AutoCitations | None = None
    """`citations.auto`, for this key or upstream alone."""
    require_read: bool | None = None
    """`citations.require_read`, for this key or upstream alone."""


class Override(BaseModel):
    """What holds for the models whose name matches, instead of what the upstream says."""

    model_config = STRICT

    match: Name
    """A pattern of the models that this entry is for."""
    tool_calls: ToolCalls | None = None
    """Replaces the upstream's `tool_calls` for these models."""
    mode: Mode | None = None
    """Replaces the upstream's `mode` for these models."""
    context: ContextSize | None = None
    """Replaces the upstream's `context` for these models."""
    drop: list[Parameter] | None = None
    """Replaces the upstream's `drop` for these models."""
    assist: bool | None = None
    """Replaces the upstream's `assist` for these models."""
    rewrite_query: bool | None = None
    """Replaces the upstream's `rewrite_query` for these models."""


class UpstreamConfig(BaseModel):
    model_config = STRICT

    name: Name
    """A name of its own, for logs and messages."""
    type: Kind = "openai"
    """`openai`: any server that speaks Chat Completions. `litellm`: everything else (Anthropic, Gemini, Bedrock,
    Ollama's own API, …); it needs `pip install 'groundwire[litellm]'`. `demo`: a small built-in stand-in for a model.
    """
    base_url: Annotated[str, AfterValidator(_base_url)] = ""
    """The address of the server, up to and including `/v1`. `openai` needs it, `litellm` may have it (there it is
    called `api_base`), `demo` takes none.
    """
    api_key: SecretStr = SecretStr("")
    """The key that is sent to the server. Empty: none. `passthrough`: each client's own key, see
    [below](#a-key-of-the-clients-own).
    """
    models: Annotated[list[Name], Field(min_length=1)] = ["*"]
    """Patterns of the models that this upstream serves, with `*` and `?`."""
    tool_calls: ToolCalls = "auto"
    """How its models call tools, see [models](models.md). `prompted` describes the tools in text. `none` searches first
    and then asks the model. `auto` finds out.
    """
    mode: Mode | None = None
    """`tools.mode` for the models of this upstream."""
    context: ContextSize | None = None
    """How many tokens its models hold. What a search finds is cut to fit. Unset: what the server lists."""
    drop: list[Parameter] = []
    """Fields of a searched request that are not sent to this server, such as `store`."""
    assist: bool = False
    """Help for [weak models](models.md). Each search also reads its two best pages; a search that the model only
    announces is asked for once; the rule for citing is repeated at the end; sentences without a marker may get one
    (`citations.auto`).
    """
    rewrite_query: bool = True
    """With `tool_calls: none`: one short call asks the model whether the web is needed, and with which keywords. With
    `false` only short questions are searched, as they stand. See [models](models.md).
    """
    overrides: list[Override] = []
    """Settings for some of its models. The first entry that matches counts."""
    fallback: list[Name] = []
    """Who serves when this upstream fails: names of other upstreams, or `name/model` where the model has another name
    there.
    """
    profile: Annotated[str, AfterValidator(_profile)] = "auto"
    """What its server accepts: `openai`, `groq`, `mistral`, `deepseek`, `gemini`, `ollama`, `anthropic`, `bedrock` or
    `cohere`. `auto` decides by the address.
    """
    without_repairs: list[Annotated[str, AfterValidator(_repair)]] = []
    """Names of the [repairs](models.md#repairs) that are switched off for its models' answers."""
    options: Annotated[dict[str, Any], Field(repr=False)] = {}
    """With `litellm`: more arguments for its calls, such as `aws_region_name` or `vertex_project`."""
    forward: list[Annotated[str, AfterValidator(_forward_path)]] = []
    """More paths that clients may reach with your key, such as `/v1/batches` or `/v1/batches/*`. Think before you add
    one.
    """
    messages: bool = False
    """Does its server also speak Anthropic's API, at `/messages` beside `/chat/completions`? Then [requests of that
    API](messages.md#models) without search pass byte for byte.
    """
    citations: CitationsPolicy = CitationsPolicy()
    headers: Annotated[Headers, Field(repr=False)] = {}
    """More headers to send to the server."""
    proxy: ProxyUrl | None = None
    """The proxy for this upstream, instead of [`network.proxy`](#network). `""` means none."""
    max_requests: Count | None = None
    """How many requests may be under way there at once. Further requests wait, then go to its fallback or are refused.
    """
    connect_timeout: Seconds = 5
    """The longest wait for a connection, name lookup included."""
    first_byte_timeout: Seconds = 120
    """The longest wait for the first byte of a streamed answer. An answer in one piece has the whole
    `server.request_timeout`.
    """
    idle_timeout: Seconds = 60
    """The longest silence within an answer."""
    retries: Annotated[int, BeforeValidator(no_switch), Field(ge=0, le=2)] = 2
    """How often one request may be retried."""
    retry_wait: Seconds = 0.25
    """The first wait before a retry is random, up to this. It doubles with each retry, up to 4 seconds."""
    max_retry_after: Seconds = 5
    """A `Retry-After` of up to this is waited out. A longer one goes to the client at once."""
    max_answer: Annotated[ByteSize, BeforeValidator(no_switch), Field(ge=1 << 20)] = ByteSize(64 << 20)
    """The largest answer to a searched request, in bytes on the wire; a streamed token takes some 300 bytes. A larger
    answer ends in the error `upstream_bad_response`, and so does one with more than 1,000 calls or with 4 MB of
    arguments in one call.
    """

    @cached_property
    def passes_key(self) -> bool:
        """Does each client bring its own key for this upstream?"""
        return self.api_key.get_secret_value() == PASSTHROUGH

    @property
    def key(self) -> str:
        return "" if self.passes_key else self.api_key.get_secret_value()

    def way_out(self, shared: Egress) -> Egress:
        """How it is reached; `shared` is how the others are."""
        return shared.said(self.proxy, f"`proxy` of upstream {self.name!r}")

    def serves(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models)

    def of(self, model: str) -> Self:
        """The settings as they are for one model: those of the first override that matches, else the upstream's."""
        for pattern, overridden in self.overridden if self.overrides else ():
            if fnmatchcase(model, pattern):
                return overridden
        return self

    @cached_property
    def overridden(self) -> list[tuple[str, Self]]:
        """The settings as each override makes them, by its pattern."""
        said = [(one.match, one.model_dump(exclude={"match"}, exclude_none=True)) for one in self.overrides]
        return [(pattern, self.model_copy(update=changes)) for pattern, changes in said]

    @field_validator("type")
    @classmethod
    def _installed(cls, value: str) -> str:
        if value == "litellm" and find_spec("litellm") is None:
            raise ValueError("needs the package litellm: pip install 'groundwire[litellm]'")
        return value

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        for is_wrong, sentence in _DISAGREEMENTS:
            if is_wrong(self):
                raise ValueError(sentence)
        return self


def _key_for_any_vendor(said: UpstreamConfig) -> bool:
    """LiteLLM sends the key to the vendor that a model's name begins with, so that it must be one alone."""
    keyed = said.type == "litellm" and bool(said.api_key.get_secret_value())
    return keyed and not said.base_url and not _is_one_vendor(said.models)


def _is_one_vendor(models: list[str]) -> bool:
    vendors = {name.partition("/")[0] if "/" in name else "*" for name in models}
    return len(vendors) == 1 and not set("*?[") & set(min(vendors))


# What an upstream's keys must not say together.
_DISAGREEMENTS: tuple[tuple[Callable[[UpstreamConfig], bool], str], ...] = (
    (
        lambda said: said.type == "openai" and not said.base_url,
        "type openai needs a base_url such as http://127.0.0.1:11434/v1",
    ),
    (
        lambda said: said.type == "demo" and bool(said.base_url),
        "type demo is built in and takes no base_url",
    ),
    (
        lambda said: said.type == "demo" and said.proxy is not None,
        "type demo is built in and takes no proxy",
    ),
    (
        lambda said: said.type != "openai" and said.messages,
        "messages is for type openai: a server that speaks Anthropic's API under the same base_url",
    ),
    (
        _key_for_any_vendor,
        "type litellm with an api_key needs models of one vendor, such as ['anthropic/*']",
    ),
    (
        lambda said: said.type != "litellm" and bool(said.options),
        "options are for type litellm; send others to the server in headers or in the request",
    ),
)
