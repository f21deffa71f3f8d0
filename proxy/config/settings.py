"""The configuration room: what an operator may say, as strict models, checked as a whole before anyone else sees it.

Handed the `--config` path and the environment; hands a frozen `Config` to the app, or raises `ConfigError`, whose text
is ready to print. A section that is left out is filled as if there were no file at all: from the environment.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    Field,
    PlainValidator,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from providers.registry import PLUGINS, SERVICES, ProviderEntry
from providers.settings import CacheSettings, CooldownSettings, Count, Seconds, no_switch, off

from ..store.store import Address
from ..values.dialect import CitationStyle
from .file import ConfigError as ConfigError
from .file import Document, KeyPath, read
from .upstreams import STRICT, Mode, Name, UpstreamConfig

OPENAI = "https://api.openai.com/v1"
OLLAMA = "http://127.0.0.1:11434/v1"

# Which provider each variable brings when no `providers` are configured, in fail-over order.
PROVIDER_VARIABLES = {
    "TAVILY_API_KEY": "tavily",
    "EXA_API_KEY": "exa",
    "BRAVE_API_KEY": "brave",
    "SEARXNG_URL": "searxng",
    "PERPLEXITY_API_KEY": "perplexity",
    "SERPER_API_KEY": "serper",
    "JINA_API_KEY": "jina",
    "FIRECRAWL_API_KEY": "firecrawl",
}
_KEYLESS = ("tavily",)  # searches without its key too


def _host(value: str) -> str:
    if not re.fullmatch(r"[\w.-]+|\[?[0-9A-Fa-f:.]+\]?", value):
        raise ValueError("must be a bare host name or address, without scheme, port or path")
    return value.strip("[]").rstrip(".").lower()


def _domain(value: str) -> str:
    if not re.fullmatch(r"[\w-]+(\.[\w-]+)*", value):
        raise ValueError("must be a bare domain such as example.org; its subdomains are included")
    return value.lower()


def _network(value: object) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(str(value))
    except ValueError:
        raise ValueError("must be a network such as 10.0.0.0/8") from None


def _key_name(value: str) -> str:
    if len(value) > 64 or not value.isprintable():
        raise ValueError("must be one line of at most 64 characters")
    return value


def _store(value: str) -> str:
    if value != "memory":
        Address.read(value)
    return value


Domain = Annotated[str, AfterValidator(_domain)]
Network = Annotated[ipaddress.IPv4Network | ipaddress.IPv6Network, PlainValidator(_network)]


class _Section(BaseModel):
    model_config = STRICT


class ClientKey(_Section):
    """One client's key, written as a string or as `{key, name, admin}`."""

    key: SecretStr
    name: Annotated[str, AfterValidator(_key_name)] = ""
    admin: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_string(cls, value: object) -> object:
        return value if isinstance(value, dict | bool) else {"key": value}

    @field_validator("key")
    @classmethod
    def _sendable(cls, key: SecretStr) -> SecretStr:
        if not re.fullmatch(r"[!-~]+", key.get_secret_value()):
            raise ValueError("must be printable ASCII without spaces, and not empty")
        return key


class ServerConfig(_Section):
    host: Annotated[str, AfterValidator(_host)] = "127.0.0.1"
    port: Annotated[int, BeforeValidator(no_switch), Field(ge=0, le=65_535)] = 8080
    keys: list[ClientKey] = []
    allowed_hosts: list[Annotated[str, AfterValidator(_host)]] = []
    max_body: Annotated[ByteSize, BeforeValidator(no_switch), Field(ge=1024)] = ByteSize(10 << 20)
    request_timeout: Seconds = 600
    body_timeout: Seconds = 10
    drain_timeout: Seconds = 30


class ToolsConfig(_Section):
    mode: Mode = "auto"
    search: list[str] = []
    read: list[str] = []
    parameters: Literal["basic", "full"] = "basic"
    provenance: Literal["strict", "context", "open"] = "context"
    progress: Annotated[Literal["off", "reasoning"], BeforeValidator(off)] = "off"
    max_results: Annotated[Count, Field(le=50)] = 5
    max_page_length: Annotated[Count, Field(ge=200)] = 15_000
    max_rounds: Annotated[Count, Field(le=100)] = 6
    max_opens: Annotated[Count, Field(le=100)] = 8
    max_characters: Annotated[Count, Field(ge=1000)] = 100_000
    open_timeout: Seconds = 15
    allowed_domains: list[Domain] = []
    blocked_domains: list[Domain] = []
    allow_networks: list[Network] = []
    public_fallback: bool = False


class CitationsConfig(_Section):
    style: CitationStyle | None = None
    footer: bool = False


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


def load(path: Path | None, environ: Mapping[str, str], *, host: str | None = None, port: int | None = None) -> Config:
    """The config of `path`, else of GROUNDWIRE_CONFIG, else of ./config.yaml, else of the environment alone.

    `host` and `port` are the command line's and win over the file; they are given here because the checks need them.
    """
    named = path or environ.get("GROUNDWIRE_CONFIG")
    if not named and not Path("config.yaml").exists():
        return _finish(Document("The environment"), environ, host, port)
    return _finish(read(Path(named or "config.yaml"), environ, Config), environ, host, port)


def from_environment(environ: Mapping[str, str]) -> Config:
    return _finish(Document("The environment"), environ)


def _finish(document: Document, environ: Mapping[str, str], host: str | None = None, port: int | None = None) -> Config:
    """Fills what the document leaves out, validates it, adds what comes from elsewhere, and checks it as a whole."""
    if "upstreams" not in document.values:
        document.values["upstreams"] = [_environment_upstream(environ)]
        document.places["upstreams", 0] = "OPENAI_BASE_URL"
    if "providers" not in document.values:
        document.values["providers"] = _environment_providers(environ)
    try:
        given = Config.model_validate(document.values)
    except ValidationError as error:
        raise ConfigError(document.origin, document.problems(error, Config)) from None

    overrides: dict[str, object] = {"keys": [*given.server.keys, *_environment_keys(environ)]}
    if host is not None:
        overrides["host"] = document.written["server", "host"] = host
        document.places["server", "host"] = "--host"
    if port is not None:
        overrides["port"] = port
    names = [entry.name for entry in given.providers]
    defaults = {tool: names for tool in ("search", "read") if tool not in given.tools.model_fields_set}
    config = given.model_copy(
        update={
            "server": given.server.model_copy(update=overrides),
            "tools": given.tools.model_copy(update=defaults),
        }
    )
    config = _with_first_search(config, environ)
    if problems := [document.problem(path, text + document.given(path)) for path, text in _contradictions(config)]:
        raise ConfigError(document.origin, problems)
    return config


def _environment_upstream(environ: Mapping[str, str]) -> dict[str, str]:
    key = environ.get("OPENAI_API_KEY", "")
    base_url = environ.get("OPENAI_BASE_URL") or (OPENAI if key else OLLAMA)
    return {"name": "default", "type": "openai", "base_url": base_url, "api_key": key}


def _environment_providers(environ: Mapping[str, str]) -> list[dict[str, str]]:
    kinds = [kind for variable, kind in PROVIDER_VARIABLES.items() if environ.get(variable)] or ["duckduckgo"]
    return [_environment_provider(kind, environ) for kind in (*kinds, "direct")]


def _environment_provider(kind: str, environ: Mapping[str, str]) -> dict[str, str]:
    entry = {"name": kind, "type": kind}
    for variable, of in PROVIDER_VARIABLES.items():
        if of == kind and environ.get(variable):
            entry["base_url" if variable.endswith("_URL") else "api_key"] = environ[variable]
    return entry


def _environment_keys(environ: Mapping[str, str]) -> list[ClientKey]:
    given = (key.strip() for key in environ.get("GROUNDWIRE_KEYS", "").split(","))
    try:
        return [ClientKey(key=SecretStr(key)) for key in given if key]
    except ValidationError:
        raise ConfigError("GROUNDWIRE_KEYS", ["each key must be printable ASCII without spaces"]) from None


def _with_first_search(config: Config, environ: Mapping[str, str]) -> Config:
    """WEB_SEARCH_PROVIDER, the name or type of a provider, is asked first; the others stay behind it as fail-over."""
    wanted = environ.get("WEB_SEARCH_PROVIDER", "")
    if not wanted:
        return config
    providers = config.providers
    named = [entry for entry in providers if entry.name == wanted] + [e for e in providers if e.type == wanted]
    if not named:
        named = [_provider_on_demand(wanted, providers, environ)]
        providers = [*providers, *named]
    search = list(dict.fromkeys([named[0].name, *config.tools.search]))
    tools = config.tools.model_copy(update={"search": search})
    return config.model_copy(update={"providers": providers, "tools": tools})


def _provider_on_demand(kind: str, configured: list[ProviderEntry], environ: Mapping[str, str]) -> ProviderEntry:
    types = _provider_types()
    if kind not in types:
        valid = ", ".join(dict.fromkeys([*(entry.name for entry in configured), *types]))
        raise ConfigError("WEB_SEARCH_PROVIDER", [f"there is no provider {kind!r}; valid here: {valid}"])
    needed = next((variable for variable, of in PROVIDER_VARIABLES.items() if of == kind), None)
    if needed and kind not in _KEYLESS and not environ.get(needed):
        raise ConfigError("WEB_SEARCH_PROVIDER", [f"{kind} needs {needed}, or an entry of its own under providers"])
    return ProviderEntry.model_validate(_environment_provider(kind, environ))


def _provider_types() -> list[str]:
    return [*SERVICES, *(plugin.name for plugin in entry_points(group=PLUGINS))]


def _contradictions(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """What no single section can see, each with the key it is about."""
    server = config.server
    if not server.keys and not _is_loopback(server.host):
        yield ("server", "host"), "must be 127.0.0.1 while there are no client keys; set server.keys or GROUNDWIRE_KEYS"
    for index, upstream in enumerate(config.upstreams):
        if _is_own_listener(upstream.base_url, server):
            yield (
                ("upstreams", index, "base_url"),
                (
                    f"must be the model's server, but port {server.port} of this machine is Groundwire itself; "
                    "OPENAI_BASE_URL may name Groundwire for its clients only"
                ),
            )
    yield from _wrong_ways(config)
    types = _provider_types()
    for index, provider in enumerate(config.providers):
        if provider.type not in types:
            yield ("providers", index, "type"), f"must be a provider of this version ({', '.join(types)})"
    names = [entry.name for entry in config.providers]
    for section, taken in (("upstreams", [entry.name for entry in config.upstreams]), ("providers", names)):
        for index, name in enumerate(taken):
            if name in taken[:index]:
                yield (section, index, "name"), "must not be the name of another entry"
    for tool, chosen in (("search", config.tools.search), ("read", config.tools.read)):
        for index, name in enumerate(chosen):
            if name not in names:
                yield (
                    ("tools", tool, index),
                    f"must be the name of a provider ({', '.join(names) or 'none is configured'})",
                )


def _wrong_ways(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Fallbacks and aliases that lead nowhere, or where they must not."""
    upstreams = {entry.name: entry for entry in config.upstreams}
    for index, upstream in enumerate(config.upstreams):
        for place, way in enumerate(upstream.fallback):
            name = way.partition("/")[0]
            if name not in upstreams or name == upstream.name:
                others = ", ".join(other for other in upstreams if other != upstream.name) or "there is none"
                yield (
                    ("upstreams", index, "fallback", place),
                    f"must begin with the name of another upstream ({others})",
                )
            elif upstreams[name].passes_key:
                sentence = (
                    "must not be an upstream with api_key: passthrough; a client's key is for the upstream it chose"
                )
                yield ("upstreams", index, "fallback", place), sentence
    for alias, target in config.aliases.items():
        name, _, model = target.partition("/")
        if target in config.aliases:
            yield ("aliases", alias), "must name a model, not another alias"
        elif not (model and name in upstreams) and not any(upstream.serves(target) for upstream in config.upstreams):
            yield (
                ("aliases", alias),
                "must be a model that an upstream here serves, or an upstream's name, / and a model",
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_own_listener(base_url: str, server: ServerConfig) -> bool:
    if not base_url:
        return False
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]
    here = [_is_loopback(name) or name in ("0.0.0.0", "::") for name in (host, server.host)]  # noqa: S104 compared, not bound
    return port == server.port and (all(here) or host == server.host)
