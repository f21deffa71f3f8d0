"""What the environment says where the config is silent: the model's server, the providers, the first to search with.
Handed the environment; hands on values as a file would hold them, or raises `ConfigError` that names the variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from providers.registry import DEFAULT_READER, DEFAULT_SEARCH, SERVICES, ProviderEntry, able_to, roles_of, types

from .file import ConfigError

if TYPE_CHECKING:
    from .settings import Config

OPENAI = "https://api.openai.com/v1"
OLLAMA = "http://127.0.0.1:11434/v1"
FIRST_SEARCH = "WEB_SEARCH_PROVIDER"

Environment = Mapping[str, str]


def upstream(environ: Environment) -> dict[str, str]:
    key = environ.get("OPENAI_API_KEY", "")
    base_url = environ.get("OPENAI_BASE_URL") or (OPENAI if key else OLLAMA)
    return {"name": "default", "type": "openai", "base_url": base_url, "api_key": key}


def providers(environ: Environment) -> list[dict[str, str]]:
    """Those whose variable is set, in the order of the table, and our own reader behind them."""
    kinds = [kind for kind, service in SERVICES.items() if environ.get(service.variable)] or [DEFAULT_SEARCH]
    return [_provider(kind, environ) for kind in (*kinds, DEFAULT_READER)]


def client_keys(environ: Environment) -> list[str]:
    given = (key.strip() for key in environ.get("GROUNDWIRE_KEYS", "").split(","))
    return [key for key in given if key]


def with_first_search(config: Config, environ: Environment) -> Config:
    """WEB_SEARCH_PROVIDER, the name or type of a provider, is asked first; the others stay behind it as fail-over."""
    wanted = environ.get(FIRST_SEARCH, "")
    if not wanted:
        return config
    providers = config.providers
    named = [entry for entry in providers if entry.name == wanted] + [e for e in providers if e.type == wanted]
    if not named:
        named = [_provider_on_demand(wanted, providers, environ)]
        providers = [*providers, *named]
    able = able_to("search", named)
    if not able:
        raise _refusal(f"{wanted!r} cannot search", config.providers)
    search = list(dict.fromkeys([able[0], *config.tools.search]))
    tools = config.tools.model_copy(update={"search": search})
    return config.model_copy(update={"providers": providers, "tools": tools})


def _provider_on_demand(kind: str, configured: list[ProviderEntry], environ: Environment) -> ProviderEntry:
    if kind not in types():
        raise _refusal(f"there is no provider {kind!r}", configured)
    service = SERVICES.get(kind)
    if service and service.variable and not service.keyless and not environ.get(service.variable):
        text = f"{kind} needs {service.variable}, or an entry of its own under providers"
        raise ConfigError(FIRST_SEARCH, [text])
    return ProviderEntry.model_validate(_provider(kind, environ))


def _refusal(sentence: str, configured: list[ProviderEntry]) -> ConfigError:
    searching = [kind for kind in types() if "search" in roles_of(kind)]
    valid = ", ".join(dict.fromkeys([*able_to("search", configured), *searching]))
    return ConfigError(FIRST_SEARCH, [f"{sentence}; valid here: {valid}"])


def _provider(kind: str, environ: Environment) -> dict[str, str]:
    entry = {"name": kind, "type": kind}
    service = SERVICES.get(kind)
    if service and environ.get(service.variable):
        entry[service.sets] = environ[service.variable]
    return entry
