"""A caller whose searches are used up: the model is told in words, and goes on with what else it may do."""

from __future__ import annotations

import pytest

from tests.fakes.toolbox import Bench, one, open_page, search

LIMIT = "the search limit of this user is reached for now"


@pytest.mark.parametrize("left", [0, 1, 3])
async def test_as_many_searches_as_are_left(left: int) -> None:
    bench = Bench()
    session = bench.session(most_searches=left)
    calls = [search({"query": f"word {number}"}, f"c{number}") for number in range(5)]
    results = await session.run(calls)
    assert [LIMIT in result.text for result in results] == [False] * left + [True] * (5 - left)
    assert [result.ok for result in results] == [True] * left + [False] * (5 - left)
    assert len(bench.engine.asked) == session.searches == left


async def test_pages_may_still_be_opened_and_the_model_is_stopped_only_after_it_tried() -> None:
    session = Bench().session(most_searches=0, seen_texts=["see https://e.org/a"])
    assert (await one(session, open_page({"url": "https://e.org/a"}))).ok
    assert not session.spent
    assert LIMIT in (await one(session, search({"query": "word"}))).text
    assert session.spent, "from now on it has to answer"


async def test_who_asks_without_a_model_is_told_too() -> None:
    answer = await Bench().session(most_searches=0).search_once({"query": "word"})
    assert not answer.ok
    assert LIMIT in answer.message


async def test_without_a_limit_the_policy_counts() -> None:
    session = Bench().session()
    results = [await one(session, search({"query": f"word {number}"})) for number in range(21)]
    assert "20 searches of this answer are used up" in results[-1].text


async def test_pages_have_a_count_of_their_own() -> None:
    seen = ["see https://e.org/a and https://f.org/b"]
    session = Bench().session(most_pages=1, seen_texts=seen)
    assert (await one(session, open_page({"url": "https://e.org/a"}))).ok
    assert (await one(session, open_page({"url": "https://e.org/a"}))).ok, "the same page costs nothing"
    beyond = await one(session, open_page({"url": "https://f.org/b"}))
    assert "the 1 pages that one answer may open are used up" in beyond.text
    assert not session.spent, "it may still search"
    assert (await one(session, search({"query": "word"}))).ok
    none = Bench().session(most_pages=0, seen_texts=seen)
    assert not (await one(none, open_page({"url": "https://e.org/a"}))).ok
    assert (none.pages, none.spent) == (0, False)
