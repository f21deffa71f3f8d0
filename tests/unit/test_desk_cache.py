"""What a desk makes of kept answers: their age is told, callers are kept apart, and each request's own rules hold."""

from __future__ import annotations

import re
from typing import Any

import pytest

from providers.base import Page
from providers.chain import ReadChain, SearchChain
from providers.exchange import Exchange
from providers.settings import CacheSettings
from tests.fakes.providers import Engine
from tests.fakes.toolbox import one, open_page, search
from tools.ledger import Ledger
from tools.render import search_json
from tools.toolbox import Desk, Toolbox, ToolPolicy

URL = "https://moved.org/a"
TEA = {"query": "tea"}


class Office:
    def __init__(self, outcome: Any = None, *, private: bool = False) -> None:
        self.engine = Engine(outcome)
        members, exchange = [self.engine.named(private=private)], Exchange(cache=CacheSettings())
        search, read = SearchChain(members, exchange=exchange), ReadChain(members, exchange=exchange)
        self.toolbox = Toolbox(search, read, ToolPolicy())

    def desk(self, **options: Any) -> Desk:
        return self.toolbox.desk(ledger=Ledger(), seen_texts=[URL], **options)


async def test_the_model_is_told_the_age_of_a_search() -> None:
    office = Office()
    assert "Cached" not in (await one(office.desk(), search(TEA))).text
    again = (await one(office.desk(), search(TEA))).text
    assert re.fullmatch(r"Cached \d+ s ago\.", again.split("\n")[1])
    assert len(office.engine.asked) == 1


async def test_the_model_is_told_the_age_of_a_page() -> None:
    office = Office()
    assert "Cached" not in (await one(office.desk(), open_page({"url": URL}))).text
    assert re.match(r"Cached \d+ s ago\.\n", (await one(office.desk(), open_page({"url": URL}))).text)


async def test_json_carries_the_age_in_its_message() -> None:
    office = Office()
    answers = [search_json(await office.desk().search_once(TEA)) for _ in range(2)]
    assert answers[0]["message"] == ""
    assert re.fullmatch(r"Cached \d+ s ago\.", answers[1]["message"])
    assert answers[0]["results"] == answers[1]["results"]


@pytest.mark.parametrize(("private", "shared"), [(False, True), (True, False)])
async def test_callers_share_only_what_is_public(private: bool, shared: bool) -> None:
    office = Office(private=private)
    await one(office.desk(caller="x"), search(TEA))
    await one(office.desk(caller="x"), open_page({"url": URL}))
    for call in (search(TEA), open_page({"url": URL})):
        assert ("Cached" in (await one(office.desk(caller="y"), call)).text) is shared
        assert "Cached" in (await one(office.desk(caller="x"), call)).text


async def test_where_a_kept_page_led_counts_for_every_request() -> None:
    office = Office(Page("https://here.org/a", "Title", "The words."))
    assert (await one(office.desk(), open_page({"url": URL}))).ok
    for options in ({"blocked_domains": ["here.org"]}, {"allowed_domains": ["moved.org"]}):
        refused = await one(office.desk(**options), open_page({"url": URL}))
        assert not refused.ok
        assert "leads to a domain" in refused.text
        assert "The words." not in refused.text
    assert len(office.engine.asked) == 1


async def test_a_kept_search_is_not_one_under_other_rules() -> None:
    office = Office()
    await one(office.desk(), search(TEA))
    narrowed = await one(office.desk(blocked_domains=["example.org"]), search(TEA))
    assert not narrowed.ok
    assert len(office.engine.asked) == 2
