"""What is kept of responses, each for its caller. A response keeps its object, the ids of those that it builds on, and
its own turn alone (an `Exchange`), so that a conversation costs as much as it says. Handed a finished answer, keeps it;
handed ids, finds responses, conversations and items again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import orjson

from providers.apart import apart
from providers.records import dataclass
from tools.ledger import KnownSource, joined, source_rows, sources_from, without_texts

from ...answering.turns import bare
from ...store.journals import JournalsAway
from ...store.store import Store, get_of_either
from ...values.errors import RequestError, failure, refuse
from .exchange import Exchange
from .foreign_end import abandoned, last_frames
from .history import KnownItem

MOST_ITEMS = 4000  # that one request may refer to
RESPONSES_KEPT = 7 * 24 * 3600.0  # since it was made or last built on
RUNNING = frozenset({"queued", "in_progress"})  # the status of what is still being made, in the background
MILESTONE = 32  # every so many turns one lists all before it, so that the others need not

# What is stored, by kind. One that was deleted has no object any more; its exchange stays while others build on it.
_RESPONSE, _EXCHANGE, _ITEM, _CHILDREN, _ANCESTORS = "response", "exchange", "item", "children", "ancestors"


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and by which ids its conversation is found: those since the last milestone, and that."""

    response: dict[str, Any]
    milestone: str = ""
    recent: list[str] = field(default_factory=list)  # the oldest first

    @classmethod
    def built_on(cls, ancestors: Sequence[str], response: dict[str, Any]) -> StoredResponse:
        listed = len(ancestors) - len(ancestors) % MILESTONE  # so many stand in the list of the last milestone
        return cls(response, ancestors[listed - 1] if listed else "", list(ancestors[listed:]))

    @classmethod
    def read(cls, data: bytes) -> StoredResponse:
        return cls(*orjson.loads(data))

    def written(self) -> bytes:
        return orjson.dumps([self.response, self.milestone, self.recent])

    @property
    def id(self) -> str:
        return str(self.response["id"])

    @property
    def running(self) -> bool:
        return self.response.get("status") in RUNNING

    @property
    def in_background(self) -> bool:
        return bool(self.response.get("background"))


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
        self.journals = store.journals

    @property
    def sure(self) -> bool:
        return self._store.sure

    async def find(self, owner: str, response_id: str, param: str | None = None) -> StoredResponse:
        """Raises `RequestError`: 404 where there is none, 503 where nobody can tell."""
        stored = await self._read(owner, response_id)
        if stored is not None and stored.running:
            stored = await self._failed_if_abandoned(owner, stored)
        if stored is None:
            raise self._missing(f"Response with id '{response_id}' not found.", param)
        return stored

    async def held_by(self, response_id: str, owner: str, former: str) -> str:
        """By which of two names its caller owns a response: what was stored before its key had a name is under the
        former one, until it expires."""
        if not former or await self._store.has(_RESPONSE, owner, response_id):
            return owner
        return former if await self._store.has(_RESPONSE, former, response_id) else owner

    async def adopt(self, response_id: str, owner: str, former: str) -> str:
        """As `held_by`, but what has ended is the owner's from now on, with all that it builds on: a conversation is
        under one name, and lives on under it when the key behind the name is replaced."""
        held_by = await self.held_by(response_id, owner, former)
        stored = await self._read(held_by, response_id) if held_by != owner else None
        if stored is None or stored.running:  # as long as it is made, it is written under the name that it began with
            return held_by
        ids = await self._chain_of(former, stored)
        if "" in ids:  # the list of its ancestors went to the owner before, with another branch
            ids = await self._chain_of(owner, stored)
        read = [StoredResponse.read(data) for data in (await self._store.get_many(_RESPONSE, former, ids)).values()]
        items = [name for each in read for item in each.response["output"] for name in _names(item)]
        parts = [(kind, id_) for kind in (_EXCHANGE, _CHILDREN, _ANCESTORS, _RESPONSE) for id_ in ids]
        await self._store.move(former, owner, [*((_ITEM, name) for name in items), *parts], group=ids[0])
        return await self.held_by(response_id, owner, former)

    async def _read(self, owner: str, response_id: str) -> StoredResponse | None:
        data = await self._store.get(_RESPONSE, owner, response_id)
        return None if data is None else StoredResponse.read(data)

    async def _failed_if_abandoned(self, owner: str, stored: StoredResponse) -> StoredResponse | None:
        """What nobody works on any more has failed: the first one who sees that says so."""
        id_, journals = stored.id, self.journals
        try:
            if await journals.is_worked_on(owner, id_) or not await journals.claim_abandoned(owner, id_):
                return stored
            now = await self._read(owner, id_)  # it may have ended in between
            if now is None or not now.running:
                return now
            failed = await self._replace(owner, now, abandoned(now.response))
            await journals.write_end(owner, id_, lambda number: last_frames(failed.response, number))
        except JournalsAway:
            raise self.away() from None
        return failed

    async def _put(self, owner: str, stored: StoredResponse, group: str) -> None:
        await self._store.put(_RESPONSE, owner, stored.id, stored.written(), RESPONSES_KEPT, group=group)

    async def _replace(self, owner: str, stored: StoredResponse, response: dict[str, Any]) -> StoredResponse:
        now = replace(stored, response=response)
        await self._put(owner, now, group=(await self._chain_of(owner, now))[0])
        return now

    async def replace_response(self, owner: str, response: dict[str, Any]) -> None:
        """The object as it stands now, where there is one."""
        if stored := await self._read(owner, response["id"]):
            await self._replace(owner, stored, response)

    async def put_response(self, owner: str, response: dict[str, Any], ancestors: Sequence[str]) -> None:
        """The object alone, of one that has no other parts or has them already."""
        stored = StoredResponse.built_on(ancestors, response)
        await self._put(owner, stored, _group(stored.id, ancestors))

    async def status(self, owner: str, response_id: str) -> str:
        """As it is stored; empty where it is not."""
        stored = await self._read(owner, response_id)
        return str(stored.response["status"]) if stored else ""

    async def begin(self, owner: str, response: dict[str, Any], ancestors: Sequence[str], exchange: Exchange) -> None:
        """What is about to be made in the background can be found from now on. Raises `RequestError` (503) where it
        cannot be found by all."""
        id_, group = response["id"], _group(response["id"], ancestors)
        kept = await self._store.put(_EXCHANGE, owner, id_, await exchange.written(), RESPONSES_KEPT, group=group)
        if not self._store.sure:
            raise self.away()
        if not kept:
            raise refuse(400, "The request is too large to be kept.", param="input", code="too_large")
        await self.put_response(owner, response, ancestors)
        if ancestors:
            await self._store.add_member(_CHILDREN, owner, ancestors[-1], id_, RESPONSES_KEPT, group=group)

    async def chain(self, owner: str, response_id: str, param: str) -> Chain:
        """All that was said up to a response. Whoever goes on with it keeps all of it alive."""
        stored = await self.find(owner, response_id, param)
        _check_that_it_ended(stored, param)
        ids = await self._chain_of(owner, stored)
        found = await self._store.get_many(_EXCHANGE, owner, ids)
        if len(found) < len(ids):
            raise self._missing(f"Response with id '{response_id}' is not whole any more.", param)
        kinds = (_RESPONSE, _EXCHANGE, _CHILDREN, _ANCESTORS)
        await self._store.renew(owner, [(kind, id_) for id_ in ids for kind in kinds], RESPONSES_KEPT)
        exchanges = [await apart(len(found[id_]), Exchange.read, found[id_]) for id_ in ids]
        messages = [message for exchange in exchanges for message in exchange.messages]
        sources = joined(exchange.sources for exchange in exchanges)
        items = [item for exchange in exchanges for item in exchange.outputs]
        return Chain(ids, messages, sources, items)

    async def _chain_of(self, owner: str, stored: StoredResponse) -> list[str]:
        """The ids of all that a response builds on, and its own."""
        early: list[str] = []
        if stored.milestone:
            data = await self._store.get(_ANCESTORS, owner, stored.milestone)
            early = orjson.loads(data) if data else [stored.milestone, ""]  # with a hole in it
        return [*early, *stored.recent, stored.id]

    async def input_items(self, owner: str, response_id: str) -> list[dict[str, Any]]:
        await self.find(owner, response_id)
        data = await self._store.get(_EXCHANGE, owner, response_id)
        if data is None:
            raise self._missing(f"Response with id '{response_id}' not found.", None)
        return (await apart(len(data), Exchange.read, data)).items

    async def known(
        self, owner: str, ids: Sequence[str], needed: Collection[str], former: str = ""
    ) -> tuple[dict[str, KnownItem], dict[int, KnownSource]]:
        """What is known of these items, and the sources that their texts cite. Where nobody can tell, the request fails
        for those alone that are `needed`: the others say enough by themselves."""
        found = await get_of_either(self._store, _ITEM, owner, former, ids[:MOST_ITEMS])
        if not self._store.sure and not found.keys() >= set(needed):
            raise self._missing("An item of the input cannot be looked up.", "input")
        return await apart(sum(map(len, found.values())), _items_in, found)

    async def keep(
        self,
        owner: str,
        response: dict[str, Any],
        ancestors: Sequence[str],
        exchange: Exchange,
        known: Sequence[KnownItem],
    ) -> bool:
        """Whether all of it is kept. If not, none of it is."""
        id_, chain, group = response["id"], [*ancestors, response["id"]], _group(response["id"], ancestors)
        stored = StoredResponse.built_on(ancestors, response)
        parts = [(_RESPONSE, id_, stored.written()), (_EXCHANGE, id_, await exchange.written())]
        if len(chain) % MILESTONE == 0:
            parts.append((_ANCESTORS, id_, orjson.dumps(chain)))
        for entry in known:
            # Each item has them all, and their texts only the last, which is the answer.
            cited = source_rows(exchange.sources if entry is known[-1] else without_texts(exchange.sources))
            data = orjson.dumps([entry.item, entry.messages, entry.round_id, entry.place, cited])
            parts += [(_ITEM, name, data) for name in _names(entry.item)]
        if ancestors:
            await self._store.add_member(_CHILDREN, owner, ancestors[-1], id_, RESPONSES_KEPT, group=group)
        kept = await asyncio.gather(
            *(self._store.put(kind, owner, name, data, RESPONSES_KEPT, group=group) for kind, name, data in parts)
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
        if stored.in_background:
            await self.journals.drop(owner, response_id)
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

    def away(self) -> RequestError:
        text = "The store cannot be reached; ask again in a moment."
        failed = failure(503, text, code="store_unavailable", retry=True)
        return RequestError(replace(failed, headers={"retry-after": "5"}))

    def _missing(self, text: str, param: str | None) -> RequestError:
        if not self._store.sure:
            return self.away()
        code = "previous_response_not_found" if param == "previous_response_id" else "not_found"
        return refuse(404, text, param=param, code=code)


def _items_in(found: Mapping[str, bytes]) -> tuple[dict[str, KnownItem], dict[int, KnownSource]]:
    known: dict[str, KnownItem] = {}
    sources: dict[int, KnownSource] = {}
    contested: set[int] = set()  # two answers gave the number to two pages: it stands for neither
    for id_, data in found.items():
        item, messages, round_id, place, cited = orjson.loads(data)
        known[id_] = KnownItem(item, tuple(messages), round_id, place)
        told = sources_from(cited)
        contested |= {n for n in told if sources.setdefault(n, told[n]).url != told[n].url}
        sources |= {n: source for n, source in told.items() if source.given}
    return known, {n: source for n, source in sources.items() if n not in contested}


def _check_that_it_ended(stored: StoredResponse, param: str) -> None:
    """Nobody can go on from what has no answer."""
    id_, status = stored.id, stored.response.get("status")
    if stored.running:
        text = f"Response '{id_}' is not finished: wait until its status is 'completed', or cancel it."
        raise refuse(400, text, param=param, code="response_not_finished")
    if status in ("failed", "cancelled"):
        text = f"Response '{id_}' has no answer to go on from: its status is '{status}'."
        raise refuse(400, text, param=param, code=f"response_{status}")


def _group(response_id: str, ancestors: Sequence[str]) -> str:
    """What is built on one response stays or goes together."""
    return ancestors[0] if ancestors else response_id


def _names(item: Mapping[str, Any]) -> list[str]:
    """The ids by which an item is asked for. Some clients send a call back by its `call_id` alone; only where that
    carries our key is it one of a kind."""
    call_id = item.get("call_id", "")
    return [item["id"], *([call_id] if bare(call_id) != call_id else [])]
