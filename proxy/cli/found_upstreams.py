"""Where a model may live, as `groundwire init` finds it: what the environment names, servers on this machine, and else
the place where Ollama would be. Handed the environment; hands on addresses with what was seen there.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import ValidationError

from providers.records import dataclass

from ..config.environment import OLLAMA, OPENAI
from ..config.upstreams import UpstreamConfig
from .config_text import ChosenUpstream
from .model_servers import USUAL, Seen, look_at, running
from .running import Mistake

_ADDRESS, _KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
_HERE = ("127.0.0.1", "localhost", "::1")
_SHOWN = 3  # models


@dataclass(frozen=True, slots=True)
class FoundUpstream:
    name: str
    title: str
    base_url: str
    address: str = ""  # the variable that holds its base_url
    api_key: str = ""  # the one that holds its key
    seen: Seen | None = None
    was_asked: bool = True

    @property
    def models(self) -> tuple[str, ...]:
        return self.seen.models if self.seen else ()

    @property
    def may_serve(self) -> bool:
        """Does somebody answer there, or was it not looked?"""
        return self.seen is not None or bool(self.api_key) or not self.was_asked

    @property
    def sentence(self) -> str:
        return f"{self.title} at {self.base_url}: {self._state()}"

    def _state(self) -> str:
        if self.api_key:
            return f"{self.api_key} is set"
        if not self.was_asked:
            return "not asked"
        if self.seen is None:
            return "nobody answers there now"
        if self.seen.wants_key:
            return "answers, and wants a key"
        if not self.models:
            return "answers, and has no model yet"
        more = " …" if len(self.models) > _SHOWN else ""
        plural = "" if len(self.models) == 1 else "s"
        return f"{len(self.models)} model{plural}: {', '.join(self.models[:_SHOWN])}{more}"

    def is_at(self, port: int) -> bool:
        parts = urlsplit(self.base_url)
        return parts.hostname in _HERE and parts.port == port

    def chosen(self, model: str) -> ChosenUpstream:
        return ChosenUpstream(self.name, self.base_url, self.address, self.api_key, (model,) if model else ("*",))


async def find_upstreams(environ: Mapping[str, str], *, ask: bool) -> list[FoundUpstream]:
    """The best first; never none."""
    named = await _of_environment(environ, ask)
    here = await running() if ask else []
    found = [
        *named,
        *(
            FoundUpstream(place.name, place.title, place.base_url, seen=seen)
            for place, seen in here
            if place.base_url not in [other.base_url for other in named]
        ),
    ]
    return found or [FoundUpstream("ollama", "Ollama", OLLAMA, was_asked=ask)]


async def _of_environment(environ: Mapping[str, str], ask: bool) -> list[FoundUpstream]:
    """OPENAI_BASE_URL may well name a Groundwire, for clients of it: then it is no place of models."""
    key = _KEY if environ.get(_KEY) else ""
    if url := environ.get(_ADDRESS):
        base = _checked(url, _ADDRESS)
        seen = await look_at([base]) if ask else None
        if seen and seen.is_groundwire:
            return []
        return [FoundUpstream("default", _ADDRESS, base, _ADDRESS, key, seen, was_asked=ask)]
    return [FoundUpstream("openai", "OpenAI", OPENAI, api_key=key, was_asked=False)] if key else []


async def look_at_upstream(url: str, environ: Mapping[str, str], *, ask: bool) -> FoundUpstream:
    """What is at the address that was named. One that leaves the `/v1` away gets it, where it is there."""
    base = _checked(url, "--upstream")
    longer = base if base.endswith("/v1") else f"{base}/v1"
    seen = await look_at(dict.fromkeys([base, longer])) if ask else None
    if seen and seen.is_groundwire:
        raise Mistake(f"{base} is a Groundwire, and no server of models: name what it asks itself.")
    bare = not urlsplit(base).path
    address = seen.base_url if seen else longer if bare else base
    place = next((usual for usual in USUAL if usual.base_url == address.replace("//localhost:", "//127.0.0.1:")), None)
    key = _KEY if environ.get(_KEY) and address in (OPENAI, environ.get(_ADDRESS, "").rstrip("/")) else ""
    name, title = (place.name, place.title) if place else ("default", "The server")
    return FoundUpstream(name, title, address, api_key=key, seen=seen, was_asked=ask)


def _checked(url: str, origin: str) -> str:
    """As an upstream takes it. What may hold a password is not repeated."""
    try:
        return UpstreamConfig(name="named", base_url=url).base_url
    except ValidationError:
        raise Mistake(f"{origin} must be a URL such as {OLLAMA}, without user, query or fragment.") from None
