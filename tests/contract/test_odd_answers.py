"""Answers of another schema: each part of an honest answer, of every service that speaks JSON, replaced by what nobody
expects there. Whatever comes, it is results, a page or one of our errors, and never a crash.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

from providers.base import SearchQuery, as_page
from providers.errors import ProviderError
from providers.registry import NamedProvider
from tests.fakes.readers import READERS, URL
from tests.fakes.search import HTTP_FAKES
from tests.fakes.service import FakeServer, as_json, provider_of, search

ODD: tuple[Any, ...] = (None, 7, True, "", "text", [], [[]], [None, 7, "x"], {}, {"x": {}})
ENGINES = sorted(HTTP_FAKES.keys() - {"duckduckgo"})


def variants(value: Any) -> Iterator[Any]:
    """The answer with one part of it replaced, for every part of it; of equal rows the first stands for all."""
    yield from ODD
    if isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: odd} for odd in variants(part))
            yield {other: value[other] for other in value if other != key}
    elif isinstance(value, list) and value:
        yield from ([odd, *value[1:]] for odd in variants(value[0]))


async def ask_all(fake: FakeServer, ask: Callable[[NamedProvider], Awaitable[object]]) -> list[str]:
    """What became of each variant of the answer that the fake gives by itself."""
    honest = json.loads(fake.reply.body)
    outcomes = []
    async with provider_of(fake.entry()) as named:  # type: ignore[attr-defined]
        for odd in variants(honest):
            fake.reply = as_json(odd)
            try:
                await ask(named)
                outcomes.append("found")
            except ProviderError as error:
                outcomes.append(str(error))
    return outcomes


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_search(kind: str) -> None:
    with HTTP_FAKES[kind]() as fake:
        outcomes = await ask_all(fake, lambda named: search(named, SearchQuery("heat", limit=2)))
    assert "found" in outcomes  # a row that cannot be read is left out, and the others are not
    assert any("JSON" in outcome for outcome in outcomes)


@pytest.mark.parametrize("kind", sorted(READERS))
async def test_a_page(kind: str) -> None:
    async def read(named: NamedProvider) -> None:
        page = as_page(await cast(Any, named.provider).read(URL))
        assert isinstance(page.text, str)
        assert all(isinstance(link, str) for link in page.links)

    with READERS[kind]() as fake:
        outcomes = await ask_all(fake, read)
    assert "found" in outcomes
    assert any("JSON" in outcome for outcome in outcomes)
