"""What an operator may say about where models live: the `upstreams:` section, strict and frozen. Handed values from the
config; hands each upstream its `UpstreamConfig` and, for one model, what holds for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
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
    auto: AutoCitations | None = None
    require_read: bool | None = None


class Override(BaseModel):
    """What holds for the models whose name matches, instead of what the upstream says."""

    model_config = STRICT

    match: Name
    tool_calls: ToolCalls | None = None
    mode: Mode | None = None
    context: ContextSize | None = None
    drop: list[Parameter] | None = None
    assist: bool | None = None
    rewrite_query: bool | None = None


class UpstreamConfig(BaseModel):
    model_config = STRICT

    name: Name
    type: Kind = "openai"
    base_url: Annotated[str, AfterValidator(_base_url)] = ""
    api_key: SecretStr = SecretStr("")
    models: Annotated[list[Name], Field(min_length=1)] = ["*"]
    tool_calls: ToolCalls = "auto"
    mode: Mode | None = None
    context: ContextSize | None = None
    drop: list[Parameter] = []
    assist: bool = False
    rewrite_query: bool = True
    overrides: list[Override] = []
    fallback: list[Name] = []
    profile: Annotated[str, AfterValidator(_profile)] = "auto"
    without_repairs: list[Annotated[str, AfterValidator(_repair)]] = []
    options: Annotated[dict[str, Any], Field(repr=False)] = {}
    forward: list[Annotated[str, AfterValidator(_forward_path)]] = []
    messages: bool = False  # does it speak Anthropic's API too?
    citations: CitationsPolicy = CitationsPolicy()
    headers: Annotated[Headers, Field(repr=False)] = {}
    proxy: ProxyUrl | None = None  # "" is none; unset is the network's
    max_requests: Count | None = None
    connect_timeout: Seconds = 5
    first_byte_timeout: Seconds = 120
    idle_timeout: Seconds = 60
    retries: Annotated[int, BeforeValidator(no_switch), Field(ge=0, le=2)] = 2
    retry_wait: Seconds = 0.25
    max_retry_after: Seconds = 5
    max_answer: Annotated[ByteSize, BeforeValidator(no_switch), Field(ge=1 << 20)] = ByteSize(64 << 20)

    @property
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
        for override in self.overrides:
            if fnmatchcase(model, override.match):
                said = override.model_dump(exclude={"match"}, exclude_none=True)
                return self.model_copy(update=said)
        return self

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
