"""What a real SearXNG does beside answering: commands in the query, infoboxes, engines that know no time, pages."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.base import Remarking, SearchQuery, SearchResult, SearchResults
from providers.chain import SearchChain
from providers.errors import BadRequest, RateLimited
from providers.gateway import ProviderGateway
from providers.services.searxng import without_commands
from tests.fakes.search import FakeSearxng
from tests.fakes.search_engine import HITS
from tests.fakes.service import Reply, as_json, provider_of, search

BOX = {
    "infobox": "Heat pump",
    "id": "https://en.wikipedia.org/wiki/Heat_pump",
    "content": "A heat pump transfers heat.",
    "urls": [{"title": "Wikipedia", "url": "https://en.wikipedia.org/wiki/Heat_pump"}],
    "attributes": [{"label": "Inventor", "value": "Peter von Rittinger"}, {"label": "Picture", "image": {"src": "x"}}],
    "engine": "wikipedia",
}
MANY = tuple(SearchResult(f"Hit {n}", f"https://example.org/{n}", "heat") for n in range(30))


async def asked(fake: FakeSearxng, query: SearchQuery, **options: Any) -> SearchResults:
    async with provider_of(fake.entry(**options)) as named:
        return await search(named, query)


# The query


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("!!g rust borrow checker", "g rust borrow checker"),
        ("rust !g", "rust g"),
        ("!! weather", "weather"),
        (":de Wetter :zh-cn", "de Wetter zh-cn"),
        ("i <3 python <850", "i 3 python 850"),
        ("!:<3 mixed", "3 mixed"),
        ("css !important :hover", "css important hover"),
        ("a\u3000!!g b", "a g b"),
        ("C++ <vector> a<3 x:de wow! 5 < 7 12:30", "C++ <vector> a<3 x:de wow! 5 < 7 12:30"),
    ],
)
async def test_words_that_searxng_would_obey_are_only_words(text: str, sent: str) -> None:
    with FakeSearxng() as fake:
        await asked(fake, SearchQuery(text, limit=1))
        assert fake.asked[0].params["q"] == sent


async def test_a_query_of_commands_alone_is_refused_and_not_sent() -> None:
    with FakeSearxng() as fake:
        with pytest.raises(BadRequest, match="no word"):
            await asked(fake, SearchQuery("!! :"))
        assert fake.asked == []


@given(st.text(alphabet="!:<3ag \u3000\t²٣", max_size=20))
def test_no_word_begins_as_a_command(text: str) -> None:
    for word in re.split(r"\s+", without_commands(text)):
        assert not word.startswith(("!", ":"))
        assert not (word.startswith("<") and word[1:].isdigit())


async def test_a_redirect_to_another_host_cools_nobody_down() -> None:
    with FakeSearxng() as fake:
        fake.reply = Reply(302, headers={"Location": "https://www.google.com/search?q=x"})
        async with provider_of(fake.entry()) as named:
            chain = SearchChain([named], gateway=ProviderGateway())
            for number in range(4):
                with pytest.raises(BadRequest):
                    await chain.search(SearchQuery(f"x {number}"))
            fake.reply = fake.page(HITS)
            assert (await chain.search(SearchQuery("heat"))).results.results


@pytest.mark.parametrize(
    ("query", "options", "language"),
    [
        (SearchQuery("heat", country="CH"), {}, "de-CH"),
        (SearchQuery("heat", country="br"), {}, "pt-BR"),
        (SearchQuery("heat", country="ZZ"), {}, None),
        (SearchQuery("heat", language="fr", country="CH"), {}, "fr-CH"),
        (SearchQuery("heat"), {"language": "de-AT"}, "de-AT"),
        (SearchQuery("heat"), {"language": "all"}, "all"),
        (SearchQuery("heat", country="CH"), {"language": "fr-FR"}, "fr-CH"),
        (SearchQuery("heat", country="CH"), {"language": "auto"}, "de-CH"),
        (SearchQuery("heat", language="es"), {"language": "de-AT"}, "es"),
    ],
)
async def test_language_and_country(query: SearchQuery, options: dict[str, Any], language: str | None) -> None:
    with FakeSearxng() as fake:
        await asked(fake, query, **options)
        assert fake.asked[0].params.get("language") == language


# What it gives


async def test_infoboxes_are_results() -> None:
    odd = [{"infobox": "Without address", "content": "x"}, "odd", {"infobox": "By its link", "urls": BOX["urls"]}]
    with FakeSearxng() as fake:
        fake.reply = as_json({"results": [], "answers": [], "infoboxes": [BOX, *odd]})
        found = await asked(fake, SearchQuery("heat pump"))
    assert found.results == (
        SearchResult(
            "Heat pump",
            "https://en.wikipedia.org/wiki/Heat_pump",
            "A heat pump transfers heat. … Inventor: Peter von Rittinger",
        ),
    )


async def test_an_infobox_comes_before_the_hits_and_takes_the_place_of_its_own() -> None:
    own = {"title": "Heat pump - Wikipedia", "url": BOX["id"], "content": "short"}
    with FakeSearxng() as fake:
        fake.reply = as_json({"results": [{"title": "A", "url": "https://a.org/"}, own], "infoboxes": [BOX]})
        found = await asked(fake, SearchQuery("heat pump"))
    assert [hit.url for hit in found.results] == [BOX["id"], "https://a.org/"]
    assert found.results[0].snippet.startswith("A heat pump transfers heat.")


async def test_an_answer_with_an_address_is_a_result() -> None:
    answers = [{"answer": "42", "url": "https://a.org/why", "engine": "x"}, {"answer": "6*7 = 42", "url": None}]
    with FakeSearxng() as fake:
        fake.reply = as_json({"results": [], "answers": answers})
        found = await asked(fake, SearchQuery("6*7"))
    assert found == SearchResults((SearchResult("", "https://a.org/why", "42"),), "6*7 = 42")


async def test_author_and_score_are_kept() -> None:
    rows = [
        {"title": "A", "url": "https://a.org/", "author": "Ada", "score": 2.5},
        {"title": "B", "url": "https://b.org/", "authors": ["Ada", "Bob"], "score": "high"},
    ]
    with FakeSearxng() as fake:
        fake.reply = as_json({"results": rows})
        found = await asked(fake, SearchQuery("x"))
    assert [(hit.author, hit.score) for hit in found.results] == [("Ada", 2.5), ("Ada, Bob", None)]


# Time


class TimelessSearxng(FakeSearxng):
    """No engine of it knows time ranges."""

    def reply_to(self, asked: Any) -> Reply:
        return as_json({"results": []}) if "time_range" in asked.params else self.reply


async def test_engines_that_know_no_time_are_asked_without_it_and_the_result_says_so() -> None:
    with TimelessSearxng() as fake:
        found = await asked(fake, SearchQuery("heat", time_range="w"))
        assert [asked.params.get("time_range") for asked in fake.asked] == ["week", None]
    assert len(found.results) == len(HITS)
    assert "any time" in found.note


async def test_what_has_a_time_is_not_asked_twice() -> None:
    with FakeSearxng() as fake:
        found = await asked(fake, SearchQuery("heat", time_range="w"))
        assert len(fake.asked) == 1
    assert not found.note


# Pages


async def test_a_short_first_page_is_all_there_is() -> None:
    with FakeSearxng() as fake:
        await asked(fake, SearchQuery("heat", limit=9))
        assert len(fake.asked) == 1


async def test_a_full_first_page_that_is_enough_is_all() -> None:
    with FakeSearxng() as fake:
        fake.pages = {"1": fake.page(MANY[:10])}
        await asked(fake, SearchQuery("heat", limit=10))
        assert len(fake.asked) == 1


async def test_two_more_pages_are_asked_for_together() -> None:
    with FakeSearxng() as fake:
        more = {"2": fake.page(MANY[9:20]), "3": fake.page(MANY[20:])}
        fake.pages = {"1": fake.page(MANY[:10])} | {
            number: Reply(page.status, page.body, page.content_type, wait=0.2) for number, page in more.items()
        }
        found = await asked(fake, SearchQuery("heat", limit=20))
        assert [hit.url for hit in found.results] == [hit.url for hit in MANY]
        assert sorted(str(asked.params.get("pageno", "1")) for asked in fake.asked) == ["1", "2", "3"]
        assert fake.most_at_once == 2


async def test_a_later_page_that_fails_costs_only_itself() -> None:
    with FakeSearxng() as fake:
        fake.pages = {"1": fake.page(MANY[:10]), "2": Reply(500, b"oops"), "3": fake.page(MANY[10:20])}
        found = await asked(fake, SearchQuery("heat", limit=20))
        assert len(found.results) == 20


async def test_a_later_page_that_is_slow_costs_only_itself() -> None:
    with FakeSearxng() as fake:
        fake.pages = {"1": fake.page(MANY[:10]), "2": fake.page(MANY[10:20]), "3": Reply(wait=20)}
        found = await asked(fake, SearchQuery("heat", limit=20), timeout=0.7)
        assert len(found.results) == 20


# What its operator hears


async def test_the_limiter_is_named_to_the_operator_alone() -> None:
    with FakeSearxng() as fake:
        fake.reply = Reply(429, b"Too Many Requests")
        with pytest.raises(RateLimited) as caught:
            await asked(fake, SearchQuery("heat"))
    assert "server.limiter" not in str(caught.value)
    assert "`server.limiter`" in caught.value.advice
    assert "`pass_ip` in limiter.toml" in caught.value.advice


async def test_inspect_names_what_searxng_would_ignore_and_who_was_silent() -> None:
    with FakeSearxng() as fake:
        async with provider_of(fake.entry(categories=["general", "itt"], engines=["duckduckgo", "Brave"])) as named:
            provider: Any = named.provider
            fake.reply = as_json({
                "results": [{"url": "https://a.org/"}],
                "unresponsive_engines": [["google", "Suspended: CAPTCHA"], ["brave", "timeout"]],
            })  # fmt: skip
            await search(named, SearchQuery("heat"))
            inspection = await provider.inspect()
            assert isinstance(provider, Remarking)
            assert provider.remark == inspection.remark, "known without asking"
    assert inspection.problem == "SearXNG knows no category itt and no engine Brave, and ignores that"
    assert "`options.categories`, `options.engines`" in inspection.fix
    assert "did you mean it, brave?" in inspection.fix
    assert inspection.remark == "engines that did not answer: google (Suspended: CAPTCHA), brave (timeout)"


async def test_a_searxng_that_tells_nothing_of_itself_is_no_problem() -> None:
    with FakeSearxng() as fake:
        fake.config = Reply(404)
        async with provider_of(fake.entry(engines=["brave"])) as named:
            provider: Any = named.provider
            assert await provider.inspect() == type(await provider.inspect())()


HOSTILE: list[dict[str, Any]] = [
    {"results": [{"url": "https://a.org/"}], "unresponsive_engines": [["\x1b]0;x\x07g" * 9, "y" * 9_000]] * 99},
    {"results": [{"url": "https://a.org/"}], "unresponsive_engines": [{"a": [1]}, None, 7, [], [[]], [None, {}]]},
    {"results": [{"url": "https://a.org/"}], "unresponsive_engines": {"google": 1}, "infoboxes": "x", "answers": 7},
    {"results": [{"url": "https://a.org/"}], "infoboxes": [None, {"urls": 7, "id": []}, {"id": "javascript:x"}]},
    {
        "results": [{"url": "https://a.org/", "title": {}, "content": [1], "score": "x"}],
        "answers": [[], {"url": 1}, None],
    },
]


@pytest.mark.parametrize("reply", HOSTILE, ids=range(len(HOSTILE)))
async def test_whatever_stands_beside_the_hits_they_are_found(reply: dict[str, Any]) -> None:
    with FakeSearxng() as fake:
        async with provider_of(fake.entry(engines=["brave"])) as named:
            provider: Any = named.provider
            fake.reply = as_json(reply)
            found = await search(named, SearchQuery("heat"))
            fake.config = as_json({"engines": [{"name": "x" * 10_000}, 7, None] * 50, "categories": {"a": 1}})
            inspection = await provider.inspect()
    assert [hit.url for hit in found.results] == ["https://a.org/"]
    assert inspection.remark.isprintable()
    assert len(inspection.remark) < 5000
