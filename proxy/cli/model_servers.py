"""Servers of models on this machine, found by asking for their models where such programs usually listen.

Handed addresses; hands on those that answered, with what they list. Another Groundwire answers in the same way, and is
told apart: it would only ask somebody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import httpx
import orjson

from providers.records import dataclass
from providers.web.certificates import trusted
from tools.clean import one_line

LIMIT = 2.0  # seconds: they are on this machine
_MOST_BYTES = 1 << 20
_LONGEST_NAME = 200
_REFUSED = (401, 403)


@dataclass(frozen=True, slots=True)
class UsualPlace:
    name: str  # what an upstream there is called
    title: str  # as people know the program
    base_url: str


USUAL = (
    UsualPlace("ollama", "Ollama", "http://127.0.0.1:11434/v1"),
    UsualPlace("llamacpp", "llama.cpp", "http://127.0.0.1:8080/v1"),
    UsualPlace("vllm", "vLLM", "http://127.0.0.1:8000/v1"),
    UsualPlace("lmstudio", "LM Studio", "http://127.0.0.1:1234/v1"),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen at an address where somebody answered."""

    base_url: str
    models: tuple[str, ...] = ()
    wants_key: bool = False
    is_groundwire: bool = False


async def running(places: Sequence[UsualPlace] = USUAL) -> list[tuple[UsualPlace, Seen]]:
    """The servers of models among these places."""
    looked = await asyncio.gather(*(look_at([place.base_url]) for place in places))
    return [(place, seen) for place, seen in zip(places, looked, strict=True) if seen and not seen.is_groundwire]


async def look_at(addresses: Iterable[str], limit: float = LIMIT) -> Seen | None:
    """The first of these addresses that lists models, or that wants a key first."""
    async with httpx.AsyncClient(trust_env=False, timeout=limit, follow_redirects=False, verify=trusted()) as client:
        for base_url in addresses:
            try:
                async with asyncio.timeout(limit):
                    seen = await _listing(client, base_url)
                    if seen and await _is_groundwire(client, base_url):
                        return Seen(base_url, is_groundwire=True)
            except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
                continue
            if seen:
                return seen
    return None


async def _listing(client: httpx.AsyncClient, base_url: str) -> Seen | None:
    status, _, said = await _get(client, base_url + "/models")
    if status in _REFUSED:
        return Seen(base_url, wants_key=True)
    listed = said.get("data") if isinstance(said, dict) else None
    if status != 200 or not (isinstance(listed, list) or (isinstance(said, dict) and said.get("object") == "list")):
        return None
    entries = [entry for entry in listed or [] if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    return Seen(base_url, tuple(one_line(entry["id"], _LONGEST_NAME) for entry in entries))


async def _is_groundwire(client: httpx.AsyncClient, base_url: str) -> bool:
    """By its probe, which is open also where keys are wanted, and by the ids that it gives to requests."""
    status, headers, said = await _get(client, base_url.removesuffix("/v1") + "/healthz")
    return status == 200 and said == {"status": "ok"} and headers.get("x-request-id", "").startswith("req_")


async def _get(client: httpx.AsyncClient, url: str) -> tuple[int, httpx.Headers, object]:
    async with client.stream("GET", url) as answer:
        body = b""
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > _MOST_BYTES:
                break
    try:
        return answer.status_code, answer.headers, orjson.loads(body)
    except ValueError:
        return answer.status_code, answer.headers, None
