"""What a session makes of kept answers: their age is told, callers are kept apart, each request's own rules hold."""

from __future__ import annotations

import re
from typing import Any

import pytest

from providers.base import Page
from providers.chain import ReadChain, SearchChain
from providers.gateway import ProviderGateway
from providers.settings import CacheSettings
from tests.fakes.providers import Engine
from tests.fakes.toolbox import one, open_page, search
from tools.ledger import Ledger
from tools.options import SessionOptions, ToolPolicy
from tools.render import search_json
from tools.session import ToolSession
from tools.toolbox import Toolbox

URL = "https://moved.org/a"
TEA = {"query": "tea"}


class Office:
    def __init__(self, outcome: Any = None, *, private: bool = False) -> None:
        self.engine = Engine(outcome)
        members, gateway = [self.engine.named(private=private)], ProviderGateway(cache=CacheSettings())
        search, read = SearchChain(members, gateway=gateway), ReadChain(members, gateway=gateway)
        self.toolbox = Toolbox(search, read, ToolPolicy())

    def session(self, **options: Any) -> ToolSession:
        return self.toolbox.session(SessionOptions(Ledger(), seen_texts=[URL], **options))


async def test_the_model_is_told_the_age_of_a_search() -> None:
    office = Office()
    assert "Cached" not in (await one(office.session(), search(TEA))).text
    again = (await one(office.session(), search(TEA))).text
    assert re.fullmatch(r"Cached \d+ s ago\.", again.split("\n")[1])
    assert len(office.engine.asked) == 1


async def test_the_model_is_told_the_age_of_a_page() -> None:
    office = Office()
    assert "Cached" not in (await one(office.session(), open_page({"url": URL}))).text
    assert re.match(r"Cached \d+ s ago\.\n", (await one(office.session(), open_page({"url": URL}))).text)


async def test_json_carries_the_age_in_its_message() -> None:
    office = Office()
    answers = [search_json(await office.session().search_once(TEA)) for _ in range(2)]
    assert answers[0]["message"] == ""
    assert re.fullmatch(r"Cached \d+ s ago\.", answers[1]["message"])
    assert answers[0]["results"] == answers[1]["results"]


@pytest.mark.parametrize(("private", "shared"), [(False, True), (True, False)])
async def test_callers_share_only_what_is_public(private: bool, shared: bool) -> None:
    office = Office(private=private)
    await one(office.session(caller="x"), search(TEA))
    await one(office.session(caller="x"), open_page({"url": URL}))
    for call in (search(TEA), open_page({"url": URL})):
        assert ("Cached" in (await one(office.session(caller="y"), call)).text) is shared
        assert "Cached" in (await one(office.session(caller="x"), call)).text


async def test_where_a_kept_page_led_counts_for_every_request() -> None:
    office = Office(Page("https://here.org/a", "Title", "The words."))
    assert (await one(office.session(), open_page({"url": URL}))).ok
    for options in ({"blocked_domains": ["here.org"]}, {"allowed_domains": ["moved.org"]}):
        refused = await one(office.session(**options), open_page({"url": URL}))
        assert not refused.ok
        assert "leads to a domain" in refused.text
        assert "The words." not in refused.text
    assert len(office.engine.asked) == 1


async def test_a_kept_search_is_not_one_under_other_rules() -> None:
    office = Office()
    await one(office.session(), search(TEA))
    narrowed = await one(office.session(blocked_domains=["example.org"]), search(TEA))
    assert not narrowed.ok
    assert len(office.engine.asked) == 2
