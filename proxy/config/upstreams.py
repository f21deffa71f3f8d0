"""What an operator may say about where models live: the `upstreams:` section, strict and frozen. Handed values from the
config; hands each upstream its `UpstreamConfig` and, for one model, what holds for it.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from providers.settings import Count, Seconds, off

from ..upstreams.litellm_library import available
from ..upstreams.profiles import PROFILES
from ..upstreams.repairs import REPAIRS

ToolCalls = Literal["auto", "native", "prompted", "none"]
Mode = Annotated[Literal["auto", "on_request", "off"], BeforeValidator(off)]
Name = Annotated[str, Field(min_length=1)]
Kind = Literal["openai", "litellm", "demo"]

PASSTHROUGH = "passthrough"


def _base_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not value.isprintable() or " " in value:
        raise ValueError("must be a URL such as http://127.0.0.1:11434/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("must be a bare URL, without user, query or fragment; a key belongs in api_key")
    return value.rstrip("/")


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


Parameter = Annotated[str, Field(min_length=1), AfterValidator(_droppable)]
ContextSize = Annotated[Count, Field(ge=512)]


STRICT = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, coerce_numbers_to_str=True)


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
    rewrite_query: bool = False
    overrides: list[Override] = []
    fallback: list[Name] = []
    profile: Annotated[str, AfterValidator(_profile)] = "auto"
    without_repairs: list[Annotated[str, AfterValidator(_repair)]] = []
    options: Annotated[dict[str, Any], Field(repr=False)] = {}
    forward: list[Annotated[str, AfterValidator(_forward_path)]] = []
    headers: Annotated[dict[str, str], Field(repr=False)] = {}
    connect_timeout: Seconds = 5
    first_byte_timeout: Seconds = 120
    idle_timeout: Seconds = 60

    @property
    def passes_key(self) -> bool:
        """Does each client bring its own key for this upstream?"""
        return self.api_key.get_secret_value() == PASSTHROUGH

    @property
    def key(self) -> str:
        return "" if self.passes_key else self.api_key.get_secret_value()

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
        if value == "litellm" and not available():
            raise ValueError("needs the package litellm: pip install 'groundwire[litellm]'")
        return value

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.A) or re.search(r"[\r\n\0]", value):
                raise ValueError("must be header names and one-line values")
        return headers

    @model_validator(mode="after")
    def _addressed(self) -> Self:
        if self.type == "openai" and not self.base_url:
            raise ValueError("type openai needs a base_url such as http://127.0.0.1:11434/v1")
        if self.type == "demo" and self.base_url:
            raise ValueError("type demo is built in and takes no base_url")
        vendors = {name.partition("/")[0] for name in self.models if "/" in name}
        one_vendor = len(vendors) == 1 and all("/" in n for n in self.models) and not set("*?[") & set(min(vendors))
        if self.type == "litellm" and self.api_key.get_secret_value() and not self.base_url and not one_vendor:
            raise ValueError("type litellm with an api_key needs models of one vendor, such as ['anthropic/*']")
        if self.options and self.type != "litellm":
            raise ValueError("options are for type litellm; send others to the server in headers or in the request")
        return self
