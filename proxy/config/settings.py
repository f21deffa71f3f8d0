"""The configuration room: what an operator may say, as strict models, checked as a whole before anyone else sees it.

Handed the `--config` path and the environment; hands a frozen `Config` to the app, or raises `ConfigError`, whose text
is ready to print. A section that is left out is filled as if there were no file at all: from the environment.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    Field,
    PlainValidator,
    SecretStr,
    ValidationError,
)

from providers.registry import BOTH, ProviderEntry, able_to
from providers.settings import CacheSettings, CooldownSettings, Count, Seconds, no_switch, off

from ..values.request import CitationStyle
from . import environment
from .audit import Audit, AuditConfig
from .contradictions import contradictions
from .file import ConfigError as ConfigError
from .file import Document, parse, read
from .keys import ClientKey, Domain, KeyPolicy, key_names
from .network import NetworkConfig
from .prices import PricesConfig
from .redis_address import RedisAddress
from .traces import TracesConfig
from .upstreams import STRICT, AutoCitations, Mode, Name, UpstreamConfig


def _host(value: str) -> str:
    if not re.fullmatch(r"[\w.-]+|\[?[0-9A-Fa-f:.]+\]?", value):
        raise ValueError("must be a bare host name or address, without scheme, port or path")
    return value.strip("[]").rstrip(".").lower()


_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def _origin(value: str) -> str:
    """As a browser writes it: without the port that its scheme has anyhow."""
    if value != "*" and not re.fullmatch(
        r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[1-9][0-9]{0,4})?", value
    ):
        raise ValueError("must be an origin such as https://app.example.org, in small letters and without a path; or *")
    return value.removesuffix(_DEFAULT_PORTS.get(value.partition(":")[0], " "))


def _network(value: object) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(str(value))
    except ValueError:
        raise ValueError("must be a network such as 10.0.0.0/8") from None


def _store(value: str) -> str:
    if value != "memory":
        RedisAddress.read(value)
    return value


Network = Annotated[ipaddress.IPv4Network | ipaddress.IPv6Network, PlainValidator(_network)]


class _Section(BaseModel):
    model_config = STRICT


class ServerConfig(_Section):
    host: Annotated[str, AfterValidator(_host)] = "127.0.0.1"
    port: Annotated[int, BeforeValidator(no_switch), Field(ge=0, le=65_535)] = 8080
    keys: list[ClientKey] = []
    groups: dict[Name, KeyPolicy] = {}
    allowed_hosts: list[Annotated[str, AfterValidator(_host)]] = []
    cors: list[Annotated[str, AfterValidator(_origin)]] = []
    max_body: Annotated[ByteSize, BeforeValidator(no_switch), Field(ge=1024)] = ByteSize(10 << 20)
    request_timeout: Seconds = 600
    body_timeout: Seconds = 10
    drain_timeout: Seconds = 30
    max_head: Annotated[ByteSize, BeforeValidator(no_switch), Field(ge=1024, le=1 << 20)] = ByteSize(32 << 10)
    head_timeout: Seconds = 10
    keep_alive_timeout: Seconds = 75
    write_timeout: Seconds = 60
    max_connections: Count | None = None
    max_pending_per_address: Count | None = None
    lame_duck: Annotated[float, BeforeValidator(no_switch), Field(ge=0, le=600)] | None = None
    max_requests: Count | None = None
    queue: Annotated[Seconds, Field(ge=0.01)] = 0.2
    retry_floor: Annotated[int, BeforeValidator(no_switch), Field(ge=0, le=1_000_000)] = 10

    @property
    def key_names(self) -> list[str]:
        return key_names(self.keys)


class ToolsConfig(_Section):
    mode: Mode = "auto"
    search: list[str] = []
    read: list[str] = []
    list_online: bool = False
    parameters: Literal["basic", "full"] = "basic"
    provenance: Literal["strict", "context", "open"] = "context"
    progress: Annotated[Literal["off", "reasoning"], BeforeValidator(off)] = "off"
    max_results: Annotated[Count, Field(le=50)] = 5
    max_page_length: Annotated[Count, Field(ge=200)] = 15_000
    max_rounds: Annotated[Count, Field(le=100)] = 6
    max_opens: Annotated[Count, Field(le=100)] = 8
    max_characters: Annotated[Count, Field(ge=1000)] = 100_000
    read_results: Annotated[int, Field(ge=0, le=5)] = 0
    open_timeout: Seconds = 15
    allowed_domains: list[Domain] = []
    blocked_domains: list[Domain] = []
    allow_networks: list[Network] = []
    public_fallback: bool = False
    max_fetches: Count = 64
    max_fetches_per_host: Count = 8


class CitationsConfig(_Section):
    style: CitationStyle | None = None
    footer: bool = False
    auto: AutoCitations = "assist"
    require_read: bool = False
    strip_foreign: bool = False


class LogConfig(_Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    contents: bool = False


class Config(_Section):
    server: ServerConfig = ServerConfig()
    upstreams: Annotated[list[UpstreamConfig], Field(min_length=1)]
    aliases: dict[Name, Name] = {}
    providers: list[ProviderEntry]
    tools: ToolsConfig = ToolsConfig()
    citations: CitationsConfig = CitationsConfig()
    cache: CacheSettings = CacheSettings()
    cooldown: CooldownSettings = CooldownSettings()
    store: Annotated[str, AfterValidator(_store), Field(repr=False)] = "memory"  # a URL may hold a password
    log: LogConfig = LogConfig()
    audit: Audit = AuditConfig()
    traces: TracesConfig = TracesConfig()
    network: NetworkConfig = NetworkConfig()
    prices: PricesConfig = PricesConfig()


def config_file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Which file is read: `path`, else GROUNDWIRE_CONFIG, else ./config.yaml if it is there; None without any."""
    if named := path or environ.get("GROUNDWIRE_CONFIG"):
        return Path(named)
    usual = Path("config.yaml")
    return usual if usual.exists() else None


def load(path: Path | None, environ: Mapping[str, str], *, host: str | None = None, port: int | None = None) -> Config:
    """The config of `config_file`, else of the environment alone.

    `host` and `port` are the command line's and win over the file; they are given here because the checks need them.
    """
    file = config_file(path, environ)
    document = read(file, environ, Config) if file else Document("The environment")
    return _finish(document, environ, host, port)


def check_text(text: str, origin: str, environ: Mapping[str, str]) -> None:
    """Raises the `ConfigError` that a file with this text would."""
    _finish(parse(text, origin, environ, Config), environ)


def from_environment(environ: Mapping[str, str]) -> Config:
    return _finish(Document("The environment"), environ)


def _finish(document: Document, environ: Mapping[str, str], host: str | None = None, port: int | None = None) -> Config:
    """Fills what the document leaves out, validates it, adds what comes from elsewhere, and checks it as a whole."""
    _fill(document, environ)
    try:
        given = Config.model_validate(document.values)
    except ValidationError as error:
        raise ConfigError(document.origin, document.problems(error, Config)) from None
    if host is not None:
        document.written["server", "host"] = host
        document.places["server", "host"] = "--host"
    complete = given.model_copy(
        update={
            "server": _server(given.server, environ, host, port),
            "tools": _tools(given.tools, given.providers),
            "network": given.network.in_environment(environ),
            **({"traces": given.traces.in_environment(environ)} if "traces" in given.model_fields_set else {}),
        }
    )
    config = environment.with_first_search(complete, environ)
    # The lists as they were written: what the environment put first would move the others from their lines.
    checked = config.model_copy(update={"tools": complete.tools})
    if problems := [document.problem(path, text + document.given(path)) for path, text in contradictions(checked)]:
        raise ConfigError(document.origin, problems)
    return config


def _fill(document: Document, environ: Mapping[str, str]) -> None:
    if "upstreams" not in document.values:
        document.values["upstreams"] = [environment.upstream(environ)]
        document.places["upstreams", 0] = "OPENAI_BASE_URL"
    if "providers" not in document.values:
        document.values["providers"] = environment.providers(environ)


def _server(given: ServerConfig, environ: Mapping[str, str], host: str | None, port: int | None) -> ServerConfig:
    """With the keys of the environment; the command line wins."""
    said = {"host": host, "port": port}
    overrides = {name: value for name, value in said.items() if value is not None}
    return given.model_copy(update={**overrides, "keys": [*given.keys, *_environment_keys(environ)]})


def _tools(given: ToolsConfig, providers: list[ProviderEntry]) -> ToolsConfig:
    """A list that is left out names all providers that can do it."""
    left_out: dict[str, list[str]] = {
        role: able_to(role, providers) for role in BOTH if role not in given.model_fields_set
    }
    return given.model_copy(update=left_out)


def _environment_keys(environ: Mapping[str, str]) -> list[ClientKey]:
    try:
        return [ClientKey(key=SecretStr(key)) for key in environment.client_keys(environ)]
    except ValidationError:
        raise ConfigError("GROUNDWIRE_KEYS", ["each key must be printable ASCII without spaces"]) from None
