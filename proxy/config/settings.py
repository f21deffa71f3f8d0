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
from providers.settings import CacheSettings, CooldownSettings, Count, Seconds, TimeToLive, no_switch, off

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


Host = Annotated[str, AfterValidator(_host)]
Origin = Annotated[str, AfterValidator(_origin)]
Network = Annotated[ipaddress.IPv4Network | ipaddress.IPv6Network, PlainValidator(_network)]


class _Section(BaseModel):
    model_config = STRICT


class ServerConfig(_Section):
    host: Host = "127.0.0.1"
    """The address to listen on. Any address other than loopback needs client keys."""
    port: Annotated[int, BeforeValidator(no_switch), Field(ge=0, le=65_535)] = 8080
    """The port to listen on. 0 takes any free port."""
    keys: list[ClientKey] = []
    """The keys that clients must present. Each is a string or a mapping."""
    groups: dict[Name, KeyPolicy] = {}
    """Policies by name, for keys that name one as their `group`. A group has the same keys as `server.keys[]` from
    `models` on. What a key says itself wins over its group.
    """
    allowed_hosts: list[Host] = []
    """Host names that clients may use for this server, besides its own address and the loopback names. See [keys and
    hosts](#keys-and-hosts).
    """
    cors: list[Origin] = []
    """Web pages of these origins may use the API from a browser. See [web pages](#web-pages)."""
    playground: bool = True
    """Whether [the page](page.md) is served at `/`, where you ask in a browser and see what happened."""
    max_body: Annotated[ByteSize, BeforeValidator(no_switch), Field(ge=1024)] = ByteSize(10 << 20)
    """The largest request body. The default is this large because images travel inside chat requests."""
    request_timeout: Seconds = 600
    """The longest time for one request, all rounds together. It also bounds a search or a page without a model."""
    body_timeout: Seconds = 10
    """The longest time that a client may take to send a request body."""
    drain_timeout: Seconds = 30
    """How long running answers may go on after the server was told to stop."""
    max_head: Annotated[ByteSize, BeforeValidator(no_switch), Field(ge=1024, le=1 << 20)] = ByteSize(32 << 10)
    """The largest head of a request: request line and headers."""
    head_timeout: Seconds = 10
    """The longest time that a client may take to send the head of a request."""
    keep_alive_timeout: Seconds = 75
    """How long an idle connection is kept for the next request."""
    write_timeout: Seconds = 60
    """A client that reads nothing for this long is disconnected."""
    max_connections: Count | None = None
    """How many connections clients may hold at once. See [connections](#connections)."""
    max_pending_per_address: Count | None = None
    """How many connections one address may hold before it has sent a whole head."""
    lame_duck: Annotated[TimeToLive, Field(le=600)] | None = None
    """How long the server goes on taking requests after SIGTERM, while `/readyz` answers 503. See
    [stopping](#stopping).
    """
    max_requests: Count | None = None
    """How many requests may be under way at once, of all clients together. Further requests wait. See [too much to
    do](#too-much-to-do).
    """
    queue: Annotated[Seconds, Field(ge=0.01)] = 0.2
    """The longest time that a request waits for its turn. After that it is refused."""
    retry_floor: Annotated[int, BeforeValidator(no_switch), Field(ge=0, le=1_000_000)] = 10
    """How many retries per ten seconds are always allowed, besides a tenth of the requests. See [when an upstream
    fails](#when-an-upstream-fails).
    """
    workers: Annotated[int, BeforeValidator(no_switch), Field(ge=1, le=256)] | Literal["auto"] = 1
    """How many processes serve, on one address. More than one needs a Redis as [store](#store). `auto` is one for each
    core, and 1 without a Redis. See [workers](#workers).
    """

    @property
    def key_names(self) -> list[str]:
        return key_names(self.keys)


class ToolsConfig(_Section):
    mode: Mode = "auto"
    """`auto` offers search with every chat request, and the model decides. `on_request` offers it only when the request
    asks. `off` never offers it.
    """
    search: list[str] = []
    """The providers to search with, in fail-over order. Left out: all providers that can search."""
    read: list[str] = []
    """The providers that open pages, in fail-over order. Left out: all providers that can read."""
    list_online: bool = False
    """List each model a second time as `model:online`. People can then choose search in a client's menu of models. See
    [when search is offered](guide.md#when-search-is-offered).
    """
    parameters: Literal["basic", "full"] = "basic"
    """`full` also tells the model about the rarer search parameters: dates, category, blocked domains, and the
    providers that it may choose from.
    """
    provenance: Literal["strict", "context", "open"] = "context"
    """Which pages the model may open. `context`: pages named in the conversation, in results or on opened pages.
    `strict`: fewer. `open`: any.
    """
    progress: Annotated[Literal["off", "reasoning"], BeforeValidator(off)] = "off"
    """`reasoning` shows searches to chat clients as reasoning text."""
    max_results: Annotated[Count, Field(le=50)] = 5
    """Results per search, unless the model or the request says otherwise."""
    max_page_length: Annotated[Count, Field(ge=200)] = 15_000
    """How many characters of a page the model gets at once."""
    max_rounds: Annotated[Count, Field(le=100)] = 6
    """How many rounds of tool calls a model may make before it has to answer."""
    max_opens: Annotated[Count, Field(le=100)] = 8
    """How many pages may be opened for one request."""
    max_characters: Annotated[Count, Field(ge=1000)] = 100_000
    """How many characters of pages a model may read for one answer, over all calls. The same limit holds for each page
    that [another engine's API](search_engines.md) asks for.
    """
    read_results: Annotated[int, Field(ge=0, le=5)] = 0
    """How many of a search's best pages are read together with the search, side by side, within 8 seconds. Passages of
    the page that match the query then replace the engine's snippet. These pages count towards `max_opens`, and half of
    that stays for the model's own calls. With `assist` it is at least 2.
    """
    open_timeout: Seconds = 15
    """The longest time for opening one page, redirects included."""
    allowed_domains: list[Domain] = []
    """Only these domains and their subdomains are searched and opened. Empty allows all. An international name counts
    in its ASCII form (IDNA 2008): `straße.de` is `xn--strae-oqa.de`, and not `strasse.de`.
    """
    blocked_domains: list[Domain] = []
    """These domains and their subdomains are never searched or opened."""
    allow_networks: list[Network] = []
    """Networks that pages may be opened from besides the public internet, on any port. Whoever may ask the model can
    then read whatever listens there. Results of private providers may name them too.
    """
    public_fallback: bool = False
    """Whether a search that a private provider could not answer may go on to a public provider."""
    max_fetches: Count = 64
    """How many pages may be fetched and read at once, for all clients together."""
    max_fetches_per_host: Count = 8
    """How many connections may be open to one host at once."""


class CitationsConfig(_Section):
    style: CitationStyle | None = None
    """How a citation looks in the text. `link`: `[[1]](url)`. `number`: `[1]`. `openai`: `([host](url))`. `none`: no
    marker, only annotations. Unset means `link`.
    """
    footer: bool = False
    """Whether a list of sources is appended to the answer."""
    auto: AutoCitations = "assist"
    """Whether Groundwire adds a marker to a sentence without one, where one source plainly holds it. `assist`: only for
    upstreams with `assist` or `tool_calls: none`. See [what a citation
    means](citations.md#markers-that-the-model-did-not-write).
    """
    require_read: bool = False
    """Whether only pages are cited whose text the model was given. A marker on a source of which the model saw only a
    search engine's snippet then stays text.
    """
    strip_foreign: bool = False
    """Whether links and images become text if their host is neither a source nor named by the user or the client. See
    [pages that attack](attacks.md).
    """


class LogConfig(_Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important line that is written. Requests are `info`."""
    format: Literal["text", "json"] = "text"
    """`text`: lines for people. `json`: one JSON object per line."""
    contents: bool = False
    """Also log what the model searched for and opened, and what servers say when they fail. [The last
    requests](observing.md#the-last-requests) then show queries, addresses and cited passages, too. That may be what
    people asked.
    """


class Config(_Section):
    server: ServerConfig = ServerConfig()
    upstreams: Annotated[list[UpstreamConfig], Field(min_length=1)]
    aliases: dict[Name, Name] = {}
    """More names for models. Each name stands for a model that an upstream serves, or for `upstream/model`. A name may
    be a pattern with `*`, `?` or `[…]`.
    """
    providers: list[ProviderEntry]
    tools: ToolsConfig = ToolsConfig()
    citations: CitationsConfig = CitationsConfig()
    cache: CacheSettings = CacheSettings()
    cooldown: CooldownSettings = CooldownSettings()
    store: Annotated[str, AfterValidator(_store), Field(repr=False)] = "memory"  # a URL may hold a password
    """Where state that a later request needs is kept: `memory` of this process, or the URL of a Redis or Valkey server
    that many processes share.
    """
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
    for index in range(len(given.server.keys), len(complete.server.keys)):
        document.places["server", "keys", index] = "GROUNDWIRE_KEYS"
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
