"""What is written down of each request: whose it was, what it used and cost, under names that cannot grow; and that
nothing is lost or counted twice on its way to the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any

import orjson
import pytest

from providers.base import ProviderCall
from proxy.callers.usage import OTHER, UsageBook
from proxy.config.prices import PricesConfig
from proxy.store.usage import MemoryUsage
from proxy.values.estimates import tokens_asked, tokens_of, tokens_streamed
from proxy.values.usage_rows import KEPT_DAYS, Figures, RowName, Rows
from proxy.watching.observer import Observer
from proxy.watching.prices import PriceList
from proxy.watching.steps import Forwarded, ModelAnswered, ModelAsked, ModelLeft, Step, Tokens, tokens_in

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC).timestamp()
DAY = 86_400.0


class Clock:
    now = NOON

    def __call__(self) -> float:
        return self.now


def book(store: Any = None, clock: Clock | None = None, *, anonymous: bool = False) -> UsageBook:
    return UsageBook(store or MemoryUsage(), lambda: anonymous, clock or Clock())


def watched(
    book: UsageBook,
    *steps: Step,
    caller: str = "alice",
    model: str = "m",
    status: int = 200,
    failure: str = "",
    path: str = "/v1/chat/completions",
    prices: PriceList | None = None,
) -> None:
    request = Observer([book], path=path, **({"prices": prices} if prices else {}))
    request.caller = caller
    for step in ([ModelAsked("local", model)] if model else []) + list(steps):
        request.tell(step)
    request.status = status
    if failure:
        request.fail(failure)
    request.end()


async def rows(book: UsageBook, key: str | None = None, **days: date) -> list[dict[str, Any]]:
    found, complete = await book.read(days.get("first"), days.get("last"), key)
    assert complete
    return found


def answered(given: int = 10, made: int = 5, **more: Any) -> ModelAnswered:
    return ModelAnswered("local", 0.1, Tokens(given, made, **more))


def called(role: Any, outcome: Any = "ok", *, cached: bool = False) -> ProviderCall:
    return ProviderCall("web", role, outcome, cached, 0.1)


async def test_a_row_for_each_day_key_and_model() -> None:
    clock = Clock()
    used = book(clock=clock)
    watched(used, answered(), called("search"), called("search", "timed_out"), called("read"), answered(20, 1))
    watched(used, answered())
    watched(used, answered(), model="other-model")
    watched(used, answered(), caller="bob")
    watched(used, called("search", cached=True), model="", path="/v1/search")
    clock.now += DAY
    watched(used, answered())
    zero = {"failed": 0, "estimated_tokens": 0, "searches": 0, "pages": 0, "cost": 0.0}
    first = {"day": "2027-01-15", "key": "alice", **zero, "requests": 1, "input_tokens": 10, "output_tokens": 5}
    assert await rows(used) == [
        {**first, "model": "", "input_tokens": 0, "output_tokens": 0, "searches": 1},
        {**first, "model": "m", "requests": 2, "input_tokens": 40, "output_tokens": 11, "searches": 1, "pages": 1},
        {**first, "model": "other-model"},
        {**first, "model": "m", "key": "bob"},
        {**first, "model": "m", "day": "2027-01-16"},
    ]
    assert [row["key"] for row in await rows(used, key="bob")] == ["bob"]
    assert len(await rows(used, first=date(2027, 1, 16))) == 1
    assert len(await rows(used, last=date(2027, 1, 15))) == 4
    assert not await rows(used, first=date(2027, 1, 17), last=date(2027, 1, 16))


async def test_failed_and_left_ones_count_too() -> None:
    used = book()
    watched(used, answered())
    watched(used, failure="upstream_timeout", status=504)
    watched(used, ModelLeft("local", Tokens(7, 3, estimated=True)), failure="client_left")
    (row,) = await rows(used)
    assert (row["requests"], row["failed"], row["estimated_tokens"]) == (3, 1, 10)
    assert (row["input_tokens"], row["output_tokens"]) == (17, 8)


@pytest.mark.parametrize(
    ("about", "counted"),
    [
        ({"caller": ""}, False),
        ({"path": "/v1/models", "model": ""}, False),
        ({"path": "/v1/groundwire/usage", "model": ""}, False),
        ({"path": "/healthz", "model": ""}, False),
        ({"path": "/metrics", "model": ""}, False),
        ({"path": "/v1/embeddings"}, True),
        ({"status": 429, "failure": "rate_limit_exceeded", "model": ""}, True),
    ],
)
async def test_whose_requests_count(about: dict[str, Any], counted: bool) -> None:
    used = book()
    watched(used, **about)
    assert bool(await rows(used)) == counted


async def test_without_keys_everybody_is_nobody() -> None:
    used = book(anonymous=True)
    watched(used, answered(), caller="")
    assert [row["key"] for row in await rows(used)] == [""]


async def test_names_of_models_cannot_grow() -> None:
    used = book()
    watched(used, answered(), model="real")
    for number in range(500):
        watched(used, model=f"invented-{number}", status=404, failure="model_not_found")
    watched(used, model="real", status=500, failure="upstream_error")
    for number in range(500):
        watched(used, answered(), model=f"served-{number}")
    watched(used, answered(), model="x" * 1000)
    found = await rows(used)
    names = [row["model"] for row in found]
    assert len(names) == 21
    assert {"real", OTHER, "served-0", "served-18"} <= set(names)
    assert sum(row["requests"] for row in found) == 1003
    assert next(row for row in found if row["model"] == "real")["failed"] == 1


async def test_what_is_kept_and_what_is_not() -> None:
    clock = Clock()
    used = book(clock=clock)
    for _ in range(KEPT_DAYS + 8):
        watched(used, answered())
        await used.flush()
        clock.now += DAY
    clock.now -= DAY
    assert KEPT_DAYS >= 62
    assert len(await rows(used)) == KEPT_DAYS


class Unsteady(MemoryUsage):
    """A store that is away for a while, and then keeps what it is brought only once."""

    def __init__(self, *, says_so: bool) -> None:
        super().__init__()
        self.away = True
        self._says_so = says_so
        self._batches: set[str] = set()

    async def add(self, rows: Rows, batch: str) -> bool:
        if self.away and self._says_so:
            return False
        if batch not in self._batches:
            self._batches.add(batch)
            await super().add(rows, batch)
        return not self.away

    async def read(self, days: Iterable[str]) -> dict[RowName, Figures] | None:
        return None if self.away else await super().read(days)


@pytest.mark.parametrize("says_so", [True, False], ids=["never arrived", "arrived unseen"])
async def test_nothing_is_lost_or_counted_twice_while_the_store_is_away(says_so: bool) -> None:
    store = Unsteady(says_so=says_so)
    used = book(store)
    for _ in range(3):
        watched(used, answered())
        assert not await used.flush()
    found, complete = await used.read(None, None, None)
    assert not complete
    assert [row["requests"] for row in found] == [3]
    store.away = False
    await used.flush()
    assert [row["requests"] for row in await rows(used)] == [3]
    assert [row["requests"] for row in await rows(used)] == [3]


# Prices


PRICES = PriceList(
    PricesConfig.model_validate(
        {
            "models": {
                "cloud/*": {"input": 9, "output": 9},
                "gpt-*": {"input": 2.5, "output": 10, "cached_input": 1},
                "m": {"input": 1},
            },
            "providers": {"web": {"search": 0.008, "read": 0.002}},
        }
    )
)


@pytest.mark.parametrize(
    ("upstream", "model", "tokens", "cost"),
    [
        ("local", "gpt-5", Tokens(1_000_000, 0), 2.5),
        ("local", "gpt-5", Tokens(1_000_000, 100_000, cached=400_000), 0.6 * 2.5 + 0.4 + 1),
        ("local", "gpt-5", Tokens(100, 0, cached=1000), 100 / 1_000_000),
        ("cloud", "gpt-5", Tokens(1_000_000, 1_000_000), 18),
        ("local", "m", Tokens(1_000_000, 1_000_000, cached=500_000), 1),
        ("local", "free", Tokens(1_000_000, 1_000_000), 0),
    ],
)
def test_what_tokens_cost(upstream: str, model: str, tokens: Tokens, cost: float) -> None:
    assert PRICES.of_tokens(upstream, model, tokens) == pytest.approx(cost)


def test_what_calls_cost() -> None:
    calls = [called("search"), called("search", "empty"), called("read"), called("search", cached=True)]
    assert [PRICES.of_call(call) for call in calls] == [0.008, 0.008, 0.002, 0]
    failures = ("timed_out", "rate_limited", "auth_failed", "cooling_down", "unavailable")
    assert {PRICES.of_call(called("search", outcome)) for outcome in failures} == {0}
    assert PRICES.of_call(ProviderCall("other", "search", "ok", False, 0.1)) == 0


async def test_a_request_costs_what_all_of_it_did() -> None:
    used = book()
    forwarded = Forwarded("local", 200, "chat", 0.1, Tokens(1_000_000, 0))
    watched(used, answered(1_000_000, 0), called("search"), called("read"), answered(1_000_000, 0), prices=PRICES)
    watched(used, forwarded, prices=PRICES)
    (row,) = await rows(used)
    assert row["cost"] == pytest.approx(3.01)


# Tokens


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}}, Tokens(5, 0, 3)),
        ({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 2}, Tokens(5, 2, 3)),
        ({"prompt_tokens": 5, "prompt_tokens_details": None}, Tokens(5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": [1]}, Tokens(5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": "3"}}, Tokens(5)),
    ],
)
def test_tokens_as_servers_count_them(usage: dict[str, Any], tokens: Tokens) -> None:
    assert tokens_in(usage) == tokens


def test_tokens_are_estimated_where_no_server_counted() -> None:
    words = "x" * 400
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    said = {"messages": [{"role": "user", "content": words}, {"content": [{"type": "text", "text": words}, picture]}]}
    assert tokens_asked(said) == 200
    assert 200 < tokens_asked(orjson.dumps(said)) < 250, "pictures do not count, whatever stands around them does"
    hidden = {"tools": [{"description": ";base64, " + words * 10}], "messages": []}
    assert tokens_asked(orjson.dumps(hidden)) > 1000
    assert tokens_asked(b'{"messages":[{"content":"%s"}]}' % (b"x" * 400)) == 108
    assert tokens_asked({"input": [words, words]}) == 200
    assert tokens_asked({"prompt": words}) == 100
    assert tokens_asked(b"") == 0
    assert (tokens_of(0), tokens_of(1), tokens_of(8)) == (0, 1, 2)
    event = b'data: {"choices":[{"delta":{"content":"word"}}]}\n\n'
    assert tokens_streamed(1000 * len(event), event * 80) == 1000
    assert tokens_streamed(0, b"") == 0
