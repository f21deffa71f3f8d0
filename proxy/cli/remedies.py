"""The one thing to do about what is broken, as `groundwire check` says it. Handed a failure and what failed; hands on a
sentence for the operator. What a service knows better than we do stands in its row of the registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from providers.base import Role
from providers.cooldown import CoolingDown
from providers.errors import AuthFailed, NoResults, ProviderError, ProxyFailed, QuotaExceeded, RateLimited, TimedOut
from providers.registry import SERVICES, NamedProvider, ProviderEntry
from providers.web.egress import Egress

from ..config.environment import OLLAMA
from ..config.upstreams import UpstreamConfig
from ..upstreams.failures import PROXY_CODES

# What a search and a page are tried with: some remedies name them.
PROBE_TEXT = "web search"
PROBE_PAGE = "https://example.com/"

_PROVIDER: Mapping[type[ProviderError], str] = {
    AuthFailed: "set `providers[].api_key` of {name}{usual} to a key that the service accepts",
    QuotaExceeded: "renew the plan, or put another provider after {name} in `tools.{role}`",
    RateLimited: "{wait}, or set `rate` of provider {name} to what the plan allows",
    CoolingDown: "mend what the other line about {name} says",
    NoResults: f"a search that finds nothing for {PROBE_TEXT!r} is not set up: see its own settings",
}
_AGAIN: Mapping[Role, str] = {
    "search": 'groundwire search "x" --provider {name}',
    "read": f"groundwire open {PROBE_PAGE}",
}

_ADDRESS = "correct `base_url` of upstream {name!r}: it goes up to and including /v1"
_PLAN = "see what the plan behind the key of upstream {name!r} still allows, or wait"
_UPSTREAM: Mapping[str, str] = {
    "upstream_auth": "set `api_key` of upstream {name!r} in the config, or OPENAI_API_KEY, to a key that it accepts",
    "upstream_tls": "give the server of upstream {name!r} a valid certificate, or correct its `base_url`",
    "upstream_unreachable": "{start}",
    "upstream_timeout": "{start}",
    "upstream_bad_response": _ADDRESS,
    "402": _PLAN,
    "429": _PLAN,
    "404": _ADDRESS,
    "405": _ADDRESS,
}
_UPSTREAM_ELSE = "see what the log of the server behind upstream {name!r} says"

_FLAG = re.compile(r"--[a-z][a-z-]+")


def for_provider(member: NamedProvider, entry: ProviderEntry, role: Role, error: ProviderError) -> str:
    """What its service advises, else the failure itself, else what is usual for such a failure."""
    if isinstance(error, ProxyFailed):
        return error.advice
    service = SERVICES.get(entry.type)
    key = service.variable if service and service.sets == "api_key" else ""
    words = {
        "name": repr(entry.name),
        "role": role,
        "usual": f", usually ${{{key}}}," if key else "",
        "wait": f"wait {error.retry_after:.0f} s" if error.retry_after else "wait",
    }
    return (
        _of_kind(service.advice if service else {}, error).format(**words)
        or error.advice
        or _of_kind(_PROVIDER, error).format(**words)
        or _to_reach(member, entry, role, error)
    )


def _of_kind(advice: Mapping[type[ProviderError], str], error: ProviderError) -> str:
    return next((text for kind, text in advice.items() if isinstance(error, kind)), "")


def _to_reach(member: NamedProvider, entry: ProviderEntry, role: Role, error: ProviderError) -> str:
    """What to do about a provider that cannot be asked at all."""
    if entry.type not in SERVICES and not isinstance(error, TimedOut):
        return f"run `{_AGAIN[role].format(name=entry.name)}`, which says where the provider fails"
    if role == "read" and member.reads_itself:
        return "let this machine reach the web (network, DNS, firewall), or set `network.proxy` and `proxy_for_pages`"
    if entry.base_url or member.private:
        return f"see that it runs and reaches the web, and that `base_url` of provider {entry.name!r} is right"
    return "see that this machine reaches the service (network, DNS, firewall), or try again later"


def for_upstream(config: UpstreamConfig, code: str, egress: Egress) -> str:
    """`code` is ours, or the status that it answered with; `egress` is the network's."""
    proxy = config.way_out(egress).proxy_to_url(config.base_url or "https://")
    if proxy is not None and code in PROXY_CODES:
        return proxy.remedy(PROXY_CODES[code])
    return _UPSTREAM.get(code, _UPSTREAM_ELSE).format(name=config.name, start=to_start(config))


def to_start(config: UpstreamConfig) -> str:
    if _is_ollama(config):
        return "start Ollama: `ollama serve`"
    return f"start the model's server, or correct `base_url` of upstream {config.name!r}"


def to_have_a_model(config: UpstreamConfig) -> str:
    if _is_ollama(config):
        return "get a model: `ollama pull qwen3`"
    return f"load a model there, and see that `base_url` of upstream {config.name!r} ends in /v1"


def to_call_tools(said: str) -> str:
    """What a server's refusal of tools says about its command line."""
    flags = " ".join(dict.fromkeys(_FLAG.findall(said)))
    return f"; to have it call tools, start its server with {flags}" if flags else ""


def _is_ollama(config: UpstreamConfig) -> bool:
    return urlsplit(config.base_url).port == urlsplit(OLLAMA).port
