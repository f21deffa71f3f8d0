"""What is kept of responses, each for its caller. A response keeps its object, the ids of those that it builds on, and
its own turn alone (an `Exchange`), so that a conversation costs as much as it says. Handed a finished answer, keeps it;
handed ids, finds responses, conversations and items again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from tools.ledger import KnownSource, source_rows, sources_from

from ...answering.turns import bare
from ...store.store import Store
from ...values.errors import RequestError, failure, refuse
from .exchange import Exchange
from .history import KnownItem

MOST_ITEMS = 4000  # that one request may refer to
KEPT = 7 * 24 * 3600.0  # since it was made or last built on
MILESTONE = 32  # every so many turns one lists all before it, so that the others need not

# What is stored, by kind. One that was deleted has no object any more; its exchange stays while others build on it.
_RESPONSE, _EXCHANGE, _ITEM, _CHILDREN, _ANCESTORS = "response", "exchange", "item", "children", "ancestors"


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and by which ids its conversation is found: those since the last milestone, and that."""

    response: dict[str, Any]
    milestone: str = ""
    recent: list[str] = field(default_factory=list)  # the oldest first


@dataclass(frozen=True, slots=True)
class Chain:
    """A conversation up to one response."""

    ids: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)  # without instructions
    sources: dict[int, KnownSource] = field(default_factory=dict)
    items: list[str] = field(default_factory=list)  # ids of all that was put out in it


class ResponseState:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, owner: str, response_id: str, param: str | None = None) -> StoredResponse:
        """Raises `RequestError`: 404 where there is none, 503 where nobody can tell."""
        data = await self._store.get(_RESPONSE, owner, response_id)
        if data is None:
            raise self._missing(f"Response with id '{response_id}' not found.", param)
        return StoredResponse(*orjson.loads(data))

    async def chain(self, owner: str, response_id: str, param: str) -> Chain:
        """All that was said up to a response. Whoever goes on with it keeps all of it alive."""
        ids = await self._chain_of(owner, await self.find(owner, response_id, param))
        found = await self._store.get_many(_EXCHANGE, owner, ids)
        if len(found) < len(ids):
            raise self._missing(f"Response with id '{response_id}' is not whole any more.", param)
        kinds = (_RESPONSE, _EXCHANGE, _CHILDREN, _ANCESTORS)
        await self._store.renew(owner, [(kind, id_) for id_ in ids for kind in kinds], KEPT)
        exchanges = [Exchange.read(found[id_]) for id_ in ids]
        messages = [message for exchange in exchanges for message in exchange.messages]
        sources = {n: source for exchange in exchanges for n, source in exchange.sources.items()}
        items = [item for exchange in exchanges for item in exchange.outputs]
        return Chain(ids, messages, sources, items)

    async def _chain_of(self, owner: str, stored: StoredResponse) -> list[str]:
        """The ids of all that a response builds on, and its own."""
        early: list[str] = []
        if stored.milestone:
            data = await self._store.get(_ANCESTORS, owner, stored.milestone)
            early = orjson.loads(data) if data else [stored.milestone, ""]  # with a hole in it
        return [*early, *stored.recent, stored.response["id"]]

    async def input_items(self, owner: str, response_id: str) -> list[dict[str, Any]]:
        await self.find(owner, response_id)
        data = await self._store.get(_EXCHANGE, owner, response_id)
        if data is None:
            raise self._missing(f"Response with id '{response_id}' not found.", None)
        return Exchange.read(data).items

    async def known(
        self, owner: str, ids: Sequence[str], needed: Collection[str]
    ) -> tuple[dict[str, KnownItem], dict[int, KnownSource]]:
        """What is known of these items, and the sources that their texts cite. Where nobody can tell, the request fails
        for those alone that are `needed`: the others say enough by themselves."""
        found = await self._store.get_many(_ITEM, owner, ids[:MOST_ITEMS])
        if not self._store.sure and not found.keys() >= set(needed):
            raise self._missing("An item of the input cannot be looked up.", "input")
        known: dict[str, KnownItem] = {}
        sources: dict[int, KnownSource] = {}
        contested: set[int] = set()  # two answers gave the number to two pages: it stands for neither
        for id_, data in found.items():
            item, messages, round_id, place, cited = orjson.loads(data)
            known[id_] = KnownItem(item, tuple(messages), round_id, place)
            for n, source in sources_from(cited).items():
                if sources.setdefault(n, source).url != source.url:
                    contested.add(n)
        return known, {n: source for n, source in sources.items() if n not in contested}

    async def keep(
        self,
        owner: str,
        response: dict[str, Any],
        ancestors: Sequence[str],
        exchange: Exchange,
        known: Sequence[KnownItem],
    ) -> bool:
        """Whether all of it is kept. If not, none of it is."""
        id_, chain = response["id"], [*ancestors, response["id"]]
        parts = [(_RESPONSE, id_, _response_row(response, ancestors)), (_EXCHANGE, id_, exchange.written())]
        if len(chain) % MILESTONE == 0:
            parts.append((_ANCESTORS, id_, orjson.dumps(chain)))
        cited = source_rows(exchange.sources)
        for entry in known:
            data = orjson.dumps([entry.item, entry.messages, entry.round_id, entry.place, cited])
            parts += [(_ITEM, name, data) for name in _names(entry.item)]
        group = chain[0]  # what is built on one response stays or goes together
        if ancestors:
            await self._store.add_member(_CHILDREN, owner, ancestors[-1], id_, KEPT, group=group)
        kept = await asyncio.gather(
            *(self._store.put(kind, owner, name, data, KEPT, group=group) for kind, name, data in parts)
        )
        # While it was answered, what it builds on may have been deleted or evicted.
        whole = not ancestors or await self._store.has(_EXCHANGE, owner, ancestors[-1])
        if not all(kept) or not whole:
            await asyncio.gather(*(self._store.delete(kind, owner, name) for kind, name, _ in parts))
            if ancestors:
                await self._store.remove_member(_CHILDREN, owner, ancestors[-1], id_)
        return all(kept) and whole

    async def delete(self, owner: str, response_id: str) -> None:
        """From now on nobody finds it. What was said in it stays as long as a response that builds on it."""
        stored = await self.find(owner, response_id)
        chain = await self._chain_of(owner, stored)
        if not await self._store.delete(_RESPONSE, owner, response_id):
            raise self._missing(f"Response with id '{response_id}' not found.", None)
        names = [name for item in stored.response["output"] for name in _names(item)]
        await asyncio.gather(*(self._store.delete(_ITEM, owner, name) for name in names))
        await self._forget(owner, chain)

    async def _forget(self, owner: str, chain: list[str]) -> None:
        """Drops what was said in a deleted response, unless others build on it; then the same of those before it that
        were deleted earlier and were needed by it alone."""
        last = chain.pop()
        while not await self._store.count_members(_CHILDREN, owner, last):
            await asyncio.gather(*(self._store.delete(kind, owner, last) for kind in (_EXCHANGE, _ANCESTORS)))
            if not chain:
                return
            gone, last = last, chain.pop()
            await self._store.remove_member(_CHILDREN, owner, last, gone)
            if await self._store.get(_RESPONSE, owner, last) is not None:
                return

    def _missing(self, text: str, param: str | None) -> RequestError:
        if not self._store.sure:
            text = "The store cannot be reached; ask again in a moment."
            failed = failure(503, text, code="store_unavailable", retry=True)
            return RequestError(replace(failed, headers={"retry-after": "5"}))
        code = "previous_response_not_found" if param == "previous_response_id" else "not_found"
        return refuse(404, text, param=param, code=code)


def _response_row(response: dict[str, Any], ancestors: Sequence[str]) -> bytes:
    listed = len(ancestors) - len(ancestors) % MILESTONE  # so many stand in the list of the last milestone
    return orjson.dumps([response, ancestors[listed - 1] if listed else "", ancestors[listed:]])


def _names(item: Mapping[str, Any]) -> list[str]:
    """The ids by which an item is asked for. Some clients send a call back by its `call_id` alone; only where that
    carries our key is it one of a kind."""
    call_id = item.get("call_id", "")
    return [item["id"], *([call_id] if bare(call_id) != call_id else [])]
