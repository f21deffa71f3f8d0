"""What a stored response is: the object, its input, the conversation as the model knows it, and for each output item
the hidden messages that it stands for. Handed a finished answer, keeps it for its caller; handed ids, finds it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from ...answering.turns import bare
from ...store.store import Store
from ...values.errors import RequestError, failure, refuse
from .history import KnownItem

MOST_ITEMS = 4000  # that one request may refer to
KEPT = 7 * 24 * 3600.0
Sources = Mapping[int, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Stored:
    response: dict[str, Any]
    messages: list[dict[str, Any]]  # all of the conversation so far, without instructions
    sources: dict[int, tuple[str, str]]
    items: list[dict[str, Any]] = field(default_factory=list)  # its input, kept by itself


class ResponseState:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, owner: str, response_id: str, param: str | None = None) -> Stored:
        """Raises `RequestError`: 404 where there is none, 503 where nobody can tell."""
        data = await self._store.get("response", owner, response_id)
        if data is None:
            raise self._missing(f"Response with id '{response_id}' not found.", param)
        response, messages, sources = orjson.loads(data)
        return Stored(response, messages, {n: (url, title) for n, url, title in sources})

    async def input_items(self, owner: str, response_id: str) -> list[dict[str, Any]]:
        data = await self._store.get("input", owner, response_id)
        if data is None:
            raise self._missing(f"Response with id '{response_id}' not found.", None)
        items: list[dict[str, Any]] = orjson.loads(data)
        return items

    async def known(
        self, owner: str, ids: Sequence[str], needed: Collection[str]
    ) -> tuple[dict[str, KnownItem], dict[int, tuple[str, str]]]:
        """What is known of these items, and the sources that their texts cite. Where nobody can tell, the request fails
        for those alone that are `needed`: the others say enough by themselves."""
        found = await self._store.get_many("item", owner, ids[:MOST_ITEMS])
        if not self._store.sure and not found.keys() >= set(needed):
            raise self._missing("An item of the input cannot be looked up.", "input")
        known: dict[str, KnownItem] = {}
        sources: dict[int, tuple[str, str]] = {}
        contested: set[int] = set()  # two answers gave the number to two pages: it stands for neither
        for id_, data in found.items():
            item, messages, round_id, place, cited = orjson.loads(data)
            known[id_] = KnownItem(item, tuple(messages), round_id, place)
            for n, url, title in cited:
                if sources.setdefault(n, (url, title))[0] != url:
                    contested.add(n)
        return known, {n: source for n, source in sources.items() if n not in contested}

    async def keep(self, owner: str, stored: Stored, known: Sequence[KnownItem]) -> None:
        cited = [(n, url, title) for n, (url, title) in stored.sources.items()]
        id_ = stored.response["id"]
        parts = orjson.dumps([stored.response, stored.messages, cited])
        kept = [self._store.put("response", owner, id_, parts, KEPT)]
        kept.append(self._store.put("input", owner, id_, orjson.dumps(stored.items), KEPT))
        for entry in known:
            data = orjson.dumps([entry.item, entry.messages, entry.round_id, entry.place, cited])
            kept += [self._store.put("item", owner, name, data, KEPT) for name in _names(entry.item)]
        await asyncio.gather(*kept)

    async def delete(self, owner: str, response_id: str) -> None:
        stored = await self.find(owner, response_id)
        names = [name for item in stored.response["output"] for name in _names(item)]
        gone = await self._store.delete("response", owner, response_id)
        if not gone:
            raise self._missing(f"Response with id '{response_id}' not found.", None)
        gone_too = [("item", name) for name in names] + [("input", response_id)]
        await asyncio.gather(*(self._store.delete(kind, owner, name) for kind, name in gone_too))

    def _missing(self, text: str, param: str | None) -> RequestError:
        if not self._store.sure:
            text = "The store cannot be reached; ask again in a moment."
            failed = failure(503, text, code="store_unavailable", retry=True)
            return RequestError(replace(failed, headers={"retry-after": "5"}))
        code = "previous_response_not_found" if param == "previous_response_id" else "not_found"
        return refuse(404, text, param=param, code=code)


def _place(messages: Sequence[Mapping[str, Any]], said: Mapping[str, Any]) -> int:
    """Where the call that an item stands for was made among those of its round, counted from 1; 0 for no call."""
    called = next((message["tool_calls"][0]["id"] for message in messages if message.get("tool_calls")), None)
    ids = [call["id"] for call in said.get("tool_calls") or ()]
    return ids.index(called) + 1 if called in ids else 0


def _names(item: Mapping[str, Any]) -> list[str]:
    """The ids by which an item is asked for. Some clients send a call back by its `call_id` alone; only where that
    carries our key is it one of a kind."""
    call_id = item.get("call_id", "")
    return [item["id"], *([call_id] if bare(call_id) != call_id else [])]


def known_items(
    response: Mapping[str, Any], transcript: Sequence[Mapping[str, Any]], calls: Mapping[str, str]
) -> list[KnownItem]:
    """Each output item with the part of the transcript that it stands for. `calls`: search item → our call."""
    return list(_Rounds(response["id"], transcript).assign(response["output"], calls))


class _Rounds:
    """The assistant's messages of a transcript, one per round, as they are shared out among output items."""

    def __init__(self, response_id: str, transcript: Sequence[Mapping[str, Any]]) -> None:
        self._id = response_id
        self._said = [message for message in transcript if message["role"] == "assistant"]
        self._results = {m["tool_call_id"]: m for m in transcript if m["role"] == "tool"}
        self._round_of = {call["id"]: at for at, m in enumerate(self._said) for call in m.get("tool_calls") or ()}
        self._calls = {call["id"]: call for m in self._said for call in m.get("tool_calls") or ()}
        self._theirs = [id_ for id_ in self._calls if id_ not in self._results]
        self._told = set[int]()  # rounds whose text has its place
        self._thought = set[int]()  # rounds whose reasoning has

    def assign(self, output: Sequence[dict[str, Any]], calls: Mapping[str, str]) -> Iterator[KnownItem]:
        waiting: list[dict[str, Any]] = []  # reasoning belongs to what comes after it
        rounds = [self._round(item, calls) for item in output]
        for i, item in enumerate(output):
            if item["type"] == "reasoning":
                waiting.append(item)
                continue
            if item["type"] == "message":
                first = max((at for at, _ in filter(None, rounds[:i])), default=0)
                at, messages = self._text(first, next((at for _, at in filter(None, rounds[i:])), len(self._said) - 1))
            else:
                at, messages = self._part(item, calls)
            for thought in waiting:
                yield KnownItem(thought, tuple(self._reasoning(at)), f"{self._id}:{at}")
            waiting = []
            yield KnownItem(
                item, (*self._reasoning(at), *messages), f"{self._id}:{at}", _place(messages, self._said[at])
            )
        for thought in waiting:
            yield KnownItem(thought, (), "")

    def _round(self, item: Mapping[str, Any], calls: Mapping[str, str]) -> tuple[int, int] | None:
        """For a call: the first round that text behind it may be of, and the last that text before it may be of. Ours
        are shown when their round is over, the client's while it is under way."""
        if item["type"] == "function_call":
            return len(self._said) - 1, len(self._said) - 1
        at = self._round_of.get(calls.get(item["id"], ""))
        return None if at is None else (at + 1, at)

    def _text(self, first: int, last: int) -> tuple[int, list[dict[str, Any]]]:
        """What was said between two calls: of one round or several, and not what a round kept to itself."""
        told = [at for at in range(first, last + 1) if at not in self._told and self._said[at].get("content")]
        self._told.update(told)
        return last, [{"role": "assistant", "content": self._said[at]["content"]} for at in told]

    def _part(self, item: Mapping[str, Any], calls: Mapping[str, str]) -> tuple[int, list[dict[str, Any]]]:
        last = len(self._said) - 1
        if item["type"] == "function_call":
            return last, self._call(self._theirs.pop(0)) if self._theirs else []
        call = calls.get(item["id"], "")
        return self._round_of.get(call, last), self._call(call) if call in self._results else []

    def _call(self, id_: str) -> list[dict[str, Any]]:
        """A call and its result; of several pages that one call opened, the first stands for it."""
        called = {"role": "assistant", "content": None, "tool_calls": [self._calls[id_]]}
        result = self._results.pop(id_, None)
        return [called, dict(result)] if result else [called]

    def _reasoning(self, at: int) -> list[dict[str, Any]]:
        fields = {k: v for k, v in self._said[at].items() if k not in ("role", "content", "tool_calls")}
        if not fields or at in self._thought:
            return []
        self._thought.add(at)
        return [{"role": "assistant", "content": None, **fields}]
