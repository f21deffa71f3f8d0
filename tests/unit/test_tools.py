"""Tools as values: a third one beside ours runs like them, and what each says of itself for people and dialects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from providers.base import ProviderCall, SearchQuery
from providers.chain import ReadChain, SearchChain
from providers.registry import NamedProvider
from proxy.answering.offer import OUR_NAMES
from proxy.dialects.chat import progress_line
from proxy.dialects.responses.output import actions
from proxy.values.events import ToolStarted
from tests.fakes.toolbox import Bench, Engine, Shelf, one, open_page, search
from tools.base import Tool, ToolCall, ToolOutput, ToolSpec
from tools.ledger import Ledger
from tools.open_page import OpenArguments
from tools.options import SessionOptions, ToolPolicy
from tools.render import sentence
from tools.session import ToolSession
from tools.toolbox import TOOLS, Toolbox, tool_named
from tools.web_search import SearchArguments

# A third tool


class SumArguments(BaseModel):
    numbers: Annotated[list[int], Field(min_length=1)]


class Sums:
    """Adds numbers up, and counts how often it had to."""

    def __init__(self) -> None:
        self.ran = 0
        self.tool = Tool(
            name="add_up",
            spec=lambda policy: ToolSpec("add_up", "Adds numbers up.", {"type": "object"}),
            arguments=SumArguments,
            form='{"numbers": [1, 2]}',
            run=self.run,
            progress=self.progress,
        )

    async def run(self, session: ToolSession, given: SumArguments) -> ToolOutput:
        self.ran += 1
        return ToolOutput(f"The sum is {sum(given.numbers)}.")

    def progress(self, arguments: Mapping[str, Any]) -> str:
        return f"Adding up: {arguments.get('numbers')}"


class TopicArguments(BaseModel):
    topic: str


async def find_titles(session: ToolSession, given: TopicArguments) -> Any:
    return await session.search(SearchQuery(given.topic, limit=session.most_results))


async def number_titles(session: ToolSession, found: Any) -> ToolOutput:
    sources = tuple(session.ledger.add(hit.url, hit.title) for hit in found.results.results)
    return ToolOutput("\n".join(f"[{source.n}] {source.title}" for source in sources), sources=sources)


TITLES = Tool(
    name="titles",
    spec=lambda policy: ToolSpec("titles", "Titles of pages about a topic.", {"type": "object"}),
    arguments=TopicArguments,
    form='{"topic": "tea"}',
    run=find_titles,
    settle=number_titles,
    progress=lambda arguments: "Looking for titles",
    needs=("search",),
)


def add_up(numbers: object, call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id, "add_up", json.dumps({"numbers": numbers}))


def box(*more: Tool[Any, Any], engine: Engine | None = None, policy: ToolPolicy | None = None) -> Toolbox:
    engine_ = NamedProvider("engine", "test", engine or Engine())
    shelf = NamedProvider("shelf", "test", Shelf())
    return Toolbox(SearchChain([engine_]), ReadChain([shelf]), policy or ToolPolicy(), (*TOOLS, *more))


async def test_a_third_tool_is_offered_and_runs_beside_ours() -> None:
    sums = Sums()
    toolbox = box(sums.tool)
    assert [spec.tool for spec in toolbox.specs] == ["web_search", "open_page", "add_up"]
    session = toolbox.session(SessionOptions(Ledger(), limit=1))
    results = await session.run([add_up([20, 22], "a"), search({"query": "tea"}, "b"), add_up([20, 22], "c")])
    assert [result.id for result in results] == ["a", "b", "c"]
    assert [results[0].text, results[2].text] == ["The sum is 42."] * 2
    assert [source.n for source in results[1].sources] == [1]
    assert (sums.ran, session.searches) == (1, 1), "equal calls run once"


async def test_its_arguments_are_checked_like_ours() -> None:
    sums = Sums()
    session = box(sums.tool).session(SessionOptions(Ledger()))
    result = await one(session, add_up("many"))
    assert not result.ok
    assert result.text.startswith("The call was not run: numbers ")
    assert result.text.endswith('Its arguments look like {"numbers": [1, 2]}')
    unknown = await one(session, ToolCall("c1", "subtract", "{}"))
    assert unknown.text.endswith("Valid names: web_search, open_page, add_up.")
    assert sums.ran == 0


async def test_its_sources_are_numbered_in_the_order_of_the_calls() -> None:
    engine = Engine()
    session = box(TITLES, engine=engine).session(SessionOptions(Ledger(), limit=1))
    slow, titles = search({"query": "slow tea"}, "a"), ToolCall("b", "titles", '{"topic": "milk"}')
    results = await session.run([slow, titles])
    assert results[1].text == "[2] milk 1"
    assert [source.n for result in results for source in result.sources] == [1, 2]
    assert session.searches == len(engine.asked) == 2


async def test_its_search_is_within_the_budget_of_all() -> None:
    session = box(TITLES, policy=ToolPolicy(max_searches=1)).session(SessionOptions(Ledger()))
    assert (await one(session, ToolCall("a", "titles", '{"topic": "milk"}'))).ok
    assert session.spent
    assert "used up" in (await one(session, search({"query": "tea"}))).text
    assert (await one(session, ToolCall("b", "titles", '{"topic": "tea"}'))).text.endswith("are used up.")


async def test_a_failure_that_it_leaves_to_the_session_is_text_for_the_model() -> None:
    session = box(TITLES).session(SessionOptions(Ledger()))
    broken, fine = ToolCall("a", "titles", '{"topic": "broken"}'), ToolCall("b", "titles", '{"topic": "tea"}')
    results = await session.run([broken, fine])
    assert [result.ok for result in results] == [False, True]
    assert results[0].text == "No search provider had an answer (engine: no answer in time)."


def test_what_no_provider_can_serve_is_not_offered() -> None:
    bare = Toolbox(None, None, ToolPolicy(), (*TOOLS, TITLES, Sums().tool))
    assert list(bare.tools) == ["add_up"]


def test_without_live_access_no_page_is_fetched() -> None:
    toolbox = box(TITLES)
    assert [spec.tool for spec in toolbox.offered(live=True)] == ["web_search", "open_page", "titles"]
    assert [spec.tool for spec in toolbox.offered(live=False)] == ["web_search", "titles"]


# Ours


def test_the_names_that_are_kept_from_clients_are_those_of_the_tools() -> None:
    assert {"web_search", "open_page", "groundwire_web_search", "groundwire_open_page"} == OUR_NAMES
    assert [tool.name for tool in TOOLS] == ["web_search", "open_page"]
    assert all(tool_named(tool.name) is tool for tool in TOOLS)


@pytest.mark.parametrize(
    ("tool", "arguments", "line", "shown"),
    [
        ("web_search", {"query": "x"}, "Searching the web: x\n", [{"type": "search", "query": "x", "queries": ["x"]}]),
        ("web_search", {}, "Searching the web: \n", [{"type": "search", "query": "", "queries": [""]}]),
        ("web_search", {"query": 7}, "Searching the web: 7\n", [{"type": "search", "query": "", "queries": [""]}]),
        ("open_page", {"url": "a"}, "Reading: a\n", [{"type": "open_page", "url": "a"}]),
        (
            "open_page",
            {"urls": ["a", "b", "a"]},
            "Reading: a, b, a\n",
            [{"type": "open_page", "url": "a"}, {"type": "open_page", "url": "b"}],
        ),
        ("open_page", {"urls": "a"}, "Reading: a\n", [{"type": "open_page", "url": "a"}]),
        ("open_page", {}, "Reading: \n", [{"type": "open_page", "url": None}]),
        ("made_up", {"url": "a"}, "", []),
    ],
)  # fmt: skip
def test_how_a_call_is_shown(tool: str, arguments: dict[str, Any], line: str, shown: list[dict[str, Any]]) -> None:
    event = ToolStarted("c1", tool, arguments)
    assert progress_line(event) == line
    assert actions(event) == shown


async def test_who_watches_is_told_of_each_call_of_a_provider() -> None:
    calls: list[ProviderCall] = []
    session = Bench().session(observe=calls.append, limit=1)
    await one(session, search({"query": "tea"}))
    await one(session, open_page({"url": "https://e.org/tea/1"}))
    await one(session, search({"query": "broken tea"}))
    assert [(call.provider, call.role, call.outcome) for call in calls] == [
        ("engine0", "search", "ok"),
        ("shelf", "read", "ok"),
        ("engine0", "search", "timed_out"),
    ]


def test_a_failure_is_one_clean_sentence() -> None:
    assert sentence(ValueError("two\nlines [1].")) == "two lines (1)."


@pytest.mark.parametrize(("shape", "field"), [(SearchArguments, "allowed_domains"), (OpenArguments, "urls")])
def test_of_a_long_list_in_which_all_is_wrong_the_first_is_named(shape: type[BaseModel], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        shape.model_validate({"query": "x", field: [1] * 1000})
    assert caught.value.error_count() == 1


# An answer that is not whole


class HalfIndexed:
    """As a plugin writes it: a mapping."""

    async def search(self, query: SearchQuery) -> dict[str, Any]:
        hit = {"title": "Tea", "url": "https://e.org/tea", "snippet": "About tea."}
        return {"results": [hit], "note": "2 of 9 documents are indexed so far [1]", "partial": True}


async def test_the_model_is_told_what_is_missing_from_an_answer() -> None:
    result = await one(Bench(None, HalfIndexed()).session(), search({"query": "tea"}))
    assert result.ok
    assert ": 2 of 9 documents are indexed so far (1).\n" in result.text
    whole = await one(Bench().session(), search({"query": "tea"}))
    assert "so far" not in whole.text
