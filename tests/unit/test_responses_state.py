"""What is kept of responses: chains that cost what they say, that live while they are used, that go as a whole, and
that lose a deleted turn only when nothing builds on it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.responses.exchange import Exchange
from proxy.dialects.responses.history import KnownItem
from proxy.dialects.responses.state import MILESTONE, ResponseState
from proxy.store.store import MAX_VALUE, MemoryStore
from proxy.values.errors import RequestError
from tools.ledger import KnownSource

OWNER = "alice"
PREVIOUS = "previous_response_id"


class CountingStore(MemoryStore):
    """Says how many bytes it was given and which names were read at once."""

    def __init__(self, max_size: int = 64 << 20) -> None:
        super().__init__(max_size=max_size)
        self.given = 0
        self.reads: list[tuple[str, int]] = []

    async def put(self, kind: str, owner: str, key: str, value: bytes, ttl: float, *, group: str = "") -> bool:
        self.given += len(value)
        return await super().put(kind, owner, key, value, ttl, group=group)

    async def get_many(self, kind: str, owner: str, keys: Any) -> dict[str, bytes]:
        self.reads.append((kind, len(keys)))
        return await super().get_many(kind, owner, keys)


def answer(id_: str, text: str = "Yes.") -> dict[str, Any]:
    return {"id": id_, "object": "response", "output": [{"id": f"msg_{id_}", "type": "message", "text": text}]}


async def keep(state: ResponseState, id_: str, *ancestors: str, text: str = "Yes.") -> bool:
    response = answer(id_, text)
    said = [{"role": "user", "content": id_}, {"role": "assistant", "content": text}]
    exchange = Exchange(
        [{"type": "message", "content": id_}], said, {len(ancestors) + 1: KnownSource(f"https://{id_}")}
    )
    known = KnownItem(response["output"][0], (said[1],), f"{id_}:0")
    return await state.keep(OWNER, response, ancestors, exchange, [known])


async def told(state: ResponseState, id_: str) -> list[str]:
    chain = await state.chain(OWNER, id_, PREVIOUS)
    return [str(message["content"]) for message in chain.messages if message["role"] == "user"]


async def missing(state: ResponseState, id_: str) -> bool:
    try:
        await state.chain(OWNER, id_, PREVIOUS)
    except RequestError as error:
        return (error.failed.status, error.failed.error["code"]) == (404, "previous_response_not_found")
    return False


async def there(store: MemoryStore, kind: str, id_: str) -> bool:
    return await store.get(kind, OWNER, id_) is not None


async def test_a_chain_is_read_at_once_and_costs_what_it_says() -> None:
    store = CountingStore()
    state, ids, costs = ResponseState(store), list[str](), []
    for n in range(200):
        ids.append(f"resp_{n:032x}")
        assert await keep(state, ids[-1], *ids[:-1], text="word " * 400)
        costs.append(store.given)
    assert costs[199] < 2.05 * costs[99]
    assert await told(state, ids[-1]) == ids
    assert store.reads == [("exchange", 200)]
    chain = await state.chain(OWNER, ids[-1], PREVIOUS)
    assert chain.ids == ids
    assert [source.url for source in chain.sources.values()] == [f"https://{id_}" for id_ in ids]


async def test_what_cannot_be_kept_leaves_nothing_behind() -> None:
    store = MemoryStore()
    state = ResponseState(store)
    assert await keep(state, "a")
    assert not await keep(state, "b", "a", text="x" * (MAX_VALUE + 1))
    for kind, name in (("response", "b"), ("exchange", "b"), ("item", "msg_b")):
        assert not await there(store, kind, name)
    assert await store.count_members("children", OWNER, "a") == 0
    assert await told(state, "a") == ["a"]


async def test_the_longest_unused_chain_goes_as_a_whole() -> None:
    state = ResponseState(MemoryStore(max_size=100_000))
    for name in "ab":
        await keep(state, f"{name}1", text="0123456789" * 500)
        await keep(state, f"{name}2", f"{name}1", text="0123456789" * 500)
    await told(state, "a1")  # it is used; the other one is not
    for n in range(30):
        await keep(state, f"c{n}", text=json.dumps(list(range(n, n + 2000))))
        await told(state, "a1")
    assert await missing(state, "b1")
    assert await missing(state, "b2")
    assert await told(state, "a2") == ["a1", "a2"]


async def test_a_deleted_turn_stays_while_others_build_on_it() -> None:
    store = MemoryStore()
    state = ResponseState(store)
    await keep(state, "a")
    await keep(state, "b", "a")
    await keep(state, "c", "a", "b")
    await keep(state, "other", "a")
    await state.delete(OWNER, "b")
    await state.delete(OWNER, "a")
    assert await missing(state, "a")
    assert await missing(state, "b")
    assert await told(state, "c") == ["a", "b", "c"]
    assert not await there(store, "item", "msg_a")
    await state.delete(OWNER, "c")
    assert [await there(store, "exchange", id_) for id_ in ("a", "b", "c")] == [True, False, False]
    assert await told(state, "other") == ["a", "other"]
    await state.delete(OWNER, "other")
    assert not await there(store, "exchange", "a")
    assert len(store._entries) == 0, "nothing is left of it"


async def test_a_long_chain_is_deleted_from_its_end_and_nothing_stays() -> None:
    store = MemoryStore()
    state, ids = ResponseState(store), list[str]()
    for n in range(2 * MILESTONE + 3):
        await keep(state, f"r{n}", *ids)
        ids.append(f"r{n}")
    for id_ in ids[:-1]:
        await state.delete(OWNER, id_)
    assert await told(state, ids[-1]) == ids
    await state.delete(OWNER, ids[-1])
    assert len(store._entries) == 0


async def test_what_it_builds_on_is_gone_by_the_time_it_is_kept() -> None:
    state = ResponseState(MemoryStore())
    await keep(state, "a")
    await state.delete(OWNER, "a")
    assert not await keep(state, "b", "a")
    assert await missing(state, "b")


async def test_who_is_not_deleted_keeps_its_turn() -> None:
    state = ResponseState(MemoryStore())
    await keep(state, "a")
    await keep(state, "b", "a")
    await state.delete(OWNER, "b")
    assert await told(state, "a") == ["a"]
    with pytest.raises(RequestError):
        await state.delete(OWNER, "b")


async def test_a_chain_with_a_hole_is_not_told() -> None:
    store = MemoryStore()
    state = ResponseState(store)
    await keep(state, "a")
    await keep(state, "b", "a")
    await store.delete("exchange", OWNER, "a")
    assert await missing(state, "b")
    ids = [f"r{n}" for n in range(MILESTONE + 2)]
    for n, id_ in enumerate(ids):
        await keep(state, id_, *ids[:n])
    await store.delete("ancestors", OWNER, ids[MILESTONE - 1])
    assert await told(state, ids[MILESTONE - 1]) == ids[:MILESTONE]
    assert await missing(state, ids[-1])


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=5) | st.sampled_from(["long " * 300, "other " * 300, "\0"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "\0", "text"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON, JSON)
async def test_an_exchange_is_read_as_it_was_written(one: Any, other: Any) -> None:
    exchange = Exchange([{"content": one}], [{"role": "user", "content": other}], {3: KnownSource("https://a", "A")})
    assert Exchange.read(await exchange.written()) == exchange


async def test_a_long_text_is_written_once() -> None:
    image = "data:image/png;base64," + "A" * 5000
    parts = [{"type": "input_image", "image_url": image}]
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": image}}]}
    written = await Exchange([{"content": parts}], [message]).written()
    assert written.count(image.encode()) == 1


async def test_texts_of_sources_stand_with_the_last_item_alone() -> None:
    """Each item of an answer knows its sources; with their texts a long answer would be kept many times."""
    store = MemoryStore()
    state = ResponseState(store)
    items = [{"id": f"ws_{n}", "type": "web_search_call"} for n in range(3)] + [{"id": "msg_1", "type": "message"}]
    source = KnownSource("https://a.org/", "A", ("All about A.",), "page")
    response = {"id": "resp_1", "status": "completed", "output": items}
    known = [KnownItem(item, ()) for item in items]
    assert await state.keep(OWNER, response, [], Exchange([], [], {1: source}), known)
    ids = [str(item["id"]) for item in items]
    assert (await state.known(OWNER, ids, []))[1] == {1: source}
    assert (await state.known(OWNER, ids[:3], []))[1] == {1: source._replace(given=())}
