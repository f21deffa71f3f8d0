"""Which upstream serves a model, under which name, and who stands in for it. Handed the clients of all upstreams and
the operator's aliases; hands on fallback plans, and the list of all models that a request could name.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from ..callers.caller import Caller
from ..values.errors import RequestError, refuse
from ..watching.observer import Observer
from .client import UpstreamClient
from .fallback import Candidate, FallbackPlan
from .retry import RetryBudget

_LONGEST_NAME = 1000
_MOST_ROUTES = 500  # of models that are remembered: clients choose their names
_WILDCARDS = frozenset("*?[")


class _Route(NamedTuple):
    """Who serves a model and under which name, and who stands in."""

    client: UpstreamClient
    model: str
    fallbacks: tuple[_Route, ...] = ()


class UpstreamDirectory:
    def __init__(self, clients: Sequence[UpstreamClient], aliases: Mapping[str, str], budget: RetryBudget) -> None:
        self._clients = tuple(clients)
        self._by_name = {client.name: client for client in clients}
        self._aliases = {alias: target for alias, target in aliases.items() if not _WILDCARDS & set(alias)}
        self._patterns = [(alias, target) for alias, target in aliases.items() if _WILDCARDS & set(alias)]
        self._budget = budget  # of all requests together
        self._route = lru_cache(maxsize=_MOST_ROUTES)(self._find_route)
        self._began = int(time.time())  # how old a model is of which nobody says it

    def __iter__(self) -> Iterator[UpstreamClient]:
        return iter(self._clients)

    def find(self, model: str) -> tuple[UpstreamClient, str]:
        """The upstream that serves a model, and the model's name there. An alias may name the upstream itself."""
        if len(model) > _LONGEST_NAME:  # what is learned of models is kept under their names
            text = f"The name of the model is longer than {_LONGEST_NAME} characters."
            raise refuse(404, text, param="model", code="model_not_found")
        target = self._meant(model)
        found = self.find_target(target) if target != model else self._serving(model)
        if found is None:
            text = f"The model '{model}' does not exist: no upstream here serves it."
            raise refuse(404, text, param="model", code="model_not_found")
        return found

    def find_target(self, target: str) -> tuple[UpstreamClient, str] | None:
        """The same for what an alias stands for: a model, or an upstream's name, / and a model."""
        name, _, rest = target.partition("/")
        return (self._by_name[name], rest) if rest and name in self._by_name else self._serving(target)

    def _serving(self, model: str) -> tuple[UpstreamClient, str] | None:
        return next(((client, model) for client in self._clients if client.serves(model)), None)

    def _meant(self, model: str) -> str:
        """What an alias stands for: the very name first, then the patterns, in their order."""
        if model in self._aliases:
            return self._aliases[model]
        return next((target for alias, target in self._patterns if fnmatchcase(model, alias)), model)

    def knows(self, model: str) -> bool:
        """Would it be found?"""
        try:
            self.find(model)
        except RequestError:
            return False
        return True

    async def has(self, model: str) -> bool:
        """The same, but where only a pattern such as `*` speaks for it, the upstream's own list must not speak against
        it."""
        if not self.knows(model):
            return False
        client, name = self.find(model)
        if name != model or name in client.config.models or client.config.type != "openai":
            return True
        listed = await client.listed()
        return not listed or any(entry["id"] == name for entry in listed)

    def plan(
        self,
        model: str,
        headers: Mapping[str, str],
        caller: Caller,
        observer: Observer,
        *,
        deadline: float = math.inf,
    ) -> FallbackPlan:
        """All that may serve a model, in order. Only the upstream that a client chose may see the client's own key."""
        route = self._route(model)
        first = Candidate(route.client, route.model, _with_own_key(headers, route.client, caller))
        candidates = [first]
        if route.fallbacks:
            candidates += [Candidate(other.client, other.model, headers) for other in route.fallbacks]
        return FallbackPlan(candidates, observer, self._budget, deadline, caller.line)

    def plan_alone(
        self,
        client: UpstreamClient,
        model: str,
        headers: Mapping[str, str],
        caller: Caller,
        observer: Observer,
        *,
        deadline: float = math.inf,
        repeatable: bool = True,
    ) -> FallbackPlan:
        """This upstream and no other. What is not `repeatable` is never asked again: it may have been done already."""
        alone = Candidate(client, model, _with_own_key(headers, client, caller))
        budget = self._budget if repeatable else None
        return FallbackPlan([alone], observer, budget, deadline=deadline, line=caller.line)

    def _find_route(self, model: str) -> _Route:
        """`model` is the name that clients use."""
        client, own = self.find(model)
        targets = [target.partition("/") for target in client.config.fallback]
        return _Route(client, own, tuple(_Route(self._by_name[name], other or own) for name, _, other in targets))

    @property
    def waiting(self) -> int:
        """How many wait for a place at one of them."""
        return sum(client.limit.waiting for client in self._clients if client.limit)

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


def _with_own_key(headers: Mapping[str, str], client: UpstreamClient, caller: Caller) -> Mapping[str, str]:
    """The headers for an upstream, with the client's own key where it takes that. Without one nobody is let through:
    LiteLLM would take the operator's from the environment, and a fallback has its own."""
    if not client.config.passes_key:
        return headers
    if not caller.upstream_key:
        text = (
            f"Upstream '{client.name}' takes your own key: send that as `Authorization: Bearer …`, and the key "
            "for this server, if it wants one, as `X-Groundwire-Key`."
        )
        raise refuse(401, text, kind="authentication_error", code="upstream_key_missing")
    return {**headers, "authorization": caller.upstream_key}


def _spelled_out(client: UpstreamClient) -> list[dict[str, Any]]:
    return [{"id": name} for name in client.config.models if not _WILDCARDS & set(name)]
