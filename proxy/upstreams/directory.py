"""Which upstream serves a model, under which name, and who stands in for it. Handed the clients of all upstreams and
the operator's aliases; hands on fallback plans, and the list of all models that a request could name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..callers.caller import Caller
from ..values.errors import refuse
from ..watching.observer import Observer
from .client import UpstreamClient
from .fallback import Candidate, FallbackPlan

_LONGEST_NAME = 1000
_WILDCARDS = frozenset("*?[")


class UpstreamDirectory:
    def __init__(self, clients: Sequence[UpstreamClient], aliases: Mapping[str, str]) -> None:
        self._clients = tuple(clients)
        self._by_name = {client.name: client for client in clients}
        self._aliases = aliases
        self._began = int(time.time())  # how old a model is of which nobody says it

    def __iter__(self) -> Iterator[UpstreamClient]:
        return iter(self._clients)

    def find(self, model: str) -> tuple[UpstreamClient, str]:
        """The upstream that serves a model, and the model's name there. An alias may name the upstream itself."""
        if len(model) > _LONGEST_NAME:  # what is learned of models is kept under their names
            text = f"The name of the model is longer than {_LONGEST_NAME} characters."
            raise refuse(404, text, param="model", code="model_not_found")
        target = self._aliases.get(model, model)
        if target != model:
            name, _, rest = target.partition("/")
            if rest and name in self._by_name:
                return self._by_name[name], rest
        for client in self._clients:
            if client.serves(target):
                return client, target
        text = f"The model '{model}' does not exist: no upstream here serves it."
        raise refuse(404, text, param="model", code="model_not_found")

    def plan(self, model: str, headers: Mapping[str, str], caller: Caller, observer: Observer) -> FallbackPlan:
        """All that may serve a model, in order. Only the upstream that a client chose may see the client's own key."""
        client, name = self.find(model)
        first = Candidate(client, name, {**headers, **_own_key(client, caller)})
        return FallbackPlan([first, *self._fallbacks(client, name, headers)], observer)

    def plan_alone(
        self, client: UpstreamClient, model: str, headers: Mapping[str, str], caller: Caller, observer: Observer
    ) -> FallbackPlan:
        """This upstream and no other."""
        return FallbackPlan([Candidate(client, model, {**headers, **_own_key(client, caller)})], observer)

    def _fallbacks(self, client: UpstreamClient, model: str, headers: Mapping[str, str]) -> Iterator[Candidate]:
        for target in client.config.fallback:
            name, _, other = target.partition("/")
            yield Candidate(self._by_name[name], other or model, headers)

    @property
    def take_client_keys(self) -> bool:
        """Does any upstream take each client's own key?"""
        return any(client.config.passes_key for client in self._clients)

    async def lists(self, model: str) -> bool:
        """Is this the very name of a model that some upstream serves?"""
        for client in self._clients:
            if client.serves(model) and any(entry["id"] == model for entry in await client.listed()):
                return True
        return False

    async def models(self) -> list[dict[str, Any]]:
        """Every model that a request could name: each upstream's own list, as far as its patterns reach."""
        listings = await asyncio.gather(*(client.listed() for client in self._clients))
        found: dict[str, dict[str, Any]] = {}
        for client, listing in zip(self._clients, listings, strict=True):
            default = {"object": "model", "created": self._began, "owned_by": client.name}
            for model in [*listing, *_spelled_out(client)]:
                if self._serves_first(client, model["id"]):
                    found.setdefault(model["id"], {**default, **model})
        for alias, target in self._aliases.items():
            client, name = self.find(alias)
            about = found.get(target) or found.get(name) or {"object": "model", "created": self._began}
            found[alias] = {**about, "id": alias, "owned_by": client.name}
        return list(found.values())

    def _serves_first(self, client: UpstreamClient, model: str) -> bool:
        return client.serves(model) and self.find(model)[0] is client

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()


def _own_key(client: UpstreamClient, caller: Caller) -> dict[str, str]:
    """The header for an upstream that takes each client's own key. Without one nobody is let through: LiteLLM would
    take the operator's from the environment, and a fallback has its own."""
    if not client.config.passes_key:
        return {}
    if not caller.upstream_key:
        text = (
            f"Upstream '{client.name}' takes your own key: send that as `Authorization: Bearer …`, and the key "
            "for this server, if it wants one, as `X-Groundwire-Key`."
        )
        raise refuse(401, text, kind="authentication_error", code="upstream_key_missing")
    return {"authorization": caller.upstream_key}


def _spelled_out(client: UpstreamClient) -> list[dict[str, Any]]:
    return [{"id": name} for name in client.config.models if not _WILDCARDS & set(name)]
