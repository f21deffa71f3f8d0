"""The demo model: it searches, opens the best page and quotes, always honest, always the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.base import Page, SearchQuery, SearchResult
from providers.chain import ReadChain, SearchChain
from providers.registry import NamedProvider
from proxy.upstreams.demo import (
    HONEST,
    NO_MATCH,
    NO_QUESTION,
    NO_TOOLS,
    SEARCH_FAILED,
    DemoTransport,
    read_result,
    respond,
)
from proxy.upstreams.quoting import quotes, sentences
from proxy.upstreams.transport import Transport
from proxy.values.events import Begun, Event, Finished, TextDelta, ToolCallDelta, UsageSeen
from tools.base import ToolCall
from tools.ledger import Ledger
from tools.options import SessionOptions, ToolPolicy
from tools.toolbox import Toolbox

QUESTION = "How does the citer hold back an unfinished marker?"

GUIDE = """# The citer

The **citer** turns markers into citations. It holds back an unfinished marker, at most 64 characters of it, until the
next piece of text has come. See [the guide](https://e.org/other) for more.

```python
hold_back_marker = citer[1]
```

| marker | hold |
|---|---|
| [1] | unfinished marker |

- The marker is never split over two deltas, e.g. inside an emoji.
- It holds back an unfinished marker, at most 64 characters of it, until the next piece of text has come.

Bananas are yellow and grow in bunches.
"""


class Docs:
    async def search(self, query: SearchQuery) -> list[SearchResult]:
        if "nothing" in query.text:
            return []
        return [
            SearchResult("Bananas", "https://e.org/bananas", "Bananas are yellow."),
            SearchResult("How the citer works", "https://e.org/citer", "…back an unfinished marker, at most…"),
        ]

    async def read(self, url: str) -> Page:
        return Page(url, "The citer", GUIDE)


def tools(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]


async def ask(body: dict[str, Any]) -> list[Event]:
    return [event for events in [events async for events in DemoTransport(delay=0).stream(body)] for event in events]


def said(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def converse(question: str, *names: str) -> tuple[list[ToolCallDelta], list[Event]]:
    """The model with a real toolbox, as the engine would drive it."""
    docs = NamedProvider("docs", "test", Docs())
    session = Toolbox(SearchChain([docs]), ReadChain([docs]), ToolPolicy()).session(
        SessionOptions(Ledger(2), seen_texts=[question])
    )
    body: dict[str, Any] = {
        "model": "demo",
        "messages": [{"role": "user", "content": question}],
        "tools": tools(*names),
    }
    made = []
    while True:
        events = await ask(body)
        calls = [event for event in events if isinstance(event, ToolCallDelta)]
        if not calls:
            return made, events
        made += calls
        assert len(made) < 5
        for call in calls:
            ours = "web_search" if "web_search" in call.name else "open_page"
            [result] = await session.run([ToolCall(call.id, ours, call.arguments)])
            body["messages"] += [
                {"role": "assistant", "content": None, "tool_calls": [{"id": call.id}]},
                {"role": "tool", "tool_call_id": call.id, "content": result.text},
            ]


async def test_it_searches_opens_the_best_page_and_quotes_it() -> None:
    calls, events = await converse(QUESTION, "web_search", "open_page")
    assert [(call.index, call.name, json.loads(call.arguments)) for call in calls] == [
        (0, "web_search", {"query": QUESTION}),
        (0, "open_page", {"url": "https://e.org/citer"}),
    ]
    assert len({call.id for call in calls}) == 2
    answer = said(events)
    assert answer.startswith(HONEST + "\n\n")
    quoted = (
        "It holds back an unfinished marker, at most 64 characters of it, until the next piece of text has come. [4]"
    )
    assert answer.count(quoted) == 1
    assert "```" not in answer
    assert "Bananas" not in answer


async def test_the_order_of_events() -> None:
    calling = await ask(
        {"model": "m", "messages": [{"role": "user", "content": QUESTION}], "tools": tools("web_search")}
    )
    assert [type(event) for event in calling] == [Begun, ToolCallDelta, UsageSeen, Finished]
    assert calling[0] == Begun(model="m")
    assert calling[-1] == Finished("tool_calls")
    _, answering = await converse(QUESTION, "web_search", "open_page")
    words = answering[1:-2]
    assert len(words) > 20
    assert all(isinstance(event, TextDelta) and len(event.text.split()) == 1 for event in words)
    usage = answering[-2]
    assert isinstance(usage, UsageSeen)
    assert usage.usage["completion_tokens"] == len(words)
    assert usage.usage["total_tokens"] == usage.usage["prompt_tokens"] + len(words)
    assert answering[-1] == Finished("stop")


async def test_equal_input_gives_equal_output() -> None:
    assert said((await converse(QUESTION, "web_search", "open_page"))[1]) == said(
        (await converse(QUESTION, "web_search", "open_page"))[1]
    )


async def test_prefixed_names_are_called_as_they_are_offered() -> None:
    calls, _ = await converse(QUESTION, "groundwire_web_search", "groundwire_open_page")
    assert [call.name for call in calls] == ["groundwire_web_search", "groundwire_open_page"]


async def test_without_open_page_it_quotes_the_snippets() -> None:
    calls, events = await converse(QUESTION, "web_search")
    assert len(calls) == 1
    assert "unfinished marker, at most… [4]" in said(events)


async def test_failed_search_and_no_match_are_said() -> None:
    assert said((await converse("nothing at all", "web_search", "open_page"))[1]) == SEARCH_FAILED
    assert said((await converse("zebra crossing rules?", "web_search", "open_page"))[1]) == NO_MATCH


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"messages": [{"role": "user", "content": QUESTION}]}, NO_TOOLS),
        ({"messages": [{"role": "user", "content": QUESTION}], "tools": tools("get_weather")}, NO_TOOLS),
        (
            {"messages": [{"role": "user", "content": QUESTION}], "tools": tools("web_search"), "tool_choice": "none"},
            NO_TOOLS,
        ),
        ({"messages": [{"role": "user", "content": ""}], "tools": tools("web_search")}, NO_QUESTION),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}], "tools": tools("web_search")},
            NO_QUESTION,
        ),
        ({"messages": [], "tools": tools("web_search")}, NO_QUESTION),
        ({}, NO_QUESTION),
    ],
)
async def test_it_is_honest_about_what_it_cannot_do(body: dict[str, Any], text: str) -> None:
    events = await ask(body)
    assert said(events) == text
    assert events[-1] == Finished("stop")


async def test_the_question_is_the_last_user_message_and_fits() -> None:
    messages = [
        {"role": "user", "content": "old question"},
        {"role": "tool", "content": "an old result"},
        {"role": "assistant", "content": "old answer"},
        {"role": "user", "content": [{"type": "text", "text": "new  question " * 100}]},
    ]
    [call] = [
        event
        for event in await ask({"messages": messages, "tools": tools("web_search")})
        if isinstance(event, ToolCallDelta)
    ]
    query = json.loads(call.arguments)["query"]
    assert query.startswith("new question new question")
    assert len(query) <= 400
    assert query.split()[-1] in ("new", "question")


async def test_it_is_an_upstream_with_one_model() -> None:
    demo: Transport = DemoTransport("mine")
    [model] = await demo.models()
    assert (model["id"], model["object"], model["owned_by"]) == ("mine", "model", "groundwire")
    assert isinstance(model["created"], int)
    await demo.aclose()


@pytest.mark.parametrize(
    ("markdown", "found"),
    [
        (
            "One sentence stands here. Another one stands there.",
            ["One sentence stands here.", "Another one stands there."],
        ),
        ("# Heading\n\nBody text is\nwrapped over lines.", ["Body text is wrapped over lines."]),
        ("- First item of the list\n- Second item of the list", ["First item of the list", "Second item of the list"]),
        ("It works, e.g. In Dr. Who and with J. Smith too.", ["It works, e.g. In Dr. Who and with J. Smith too."]),
        ('He said "it is done." Then he went home again.', ['He said "it is done."', "Then he went home again."]),
        ("Version 3.11 of the thing is out.", ["Version 3.11 of the thing is out."]),
        ("A [link](https://e.org/x) and **bold** snake_case.", ["A link and bold snake_case."]),
        ("```\ncode. Not a sentence here.\n```\nBut this one is a sentence.", ["But this one is a sentence."]),
        ("A lone ` tick in this sentence here.", ["A lone  tick in this sentence here."]),
        ("引用は番号で示す。印は分割されない。", ["引用は番号で示す。", "印は分割されない。"]),
        ("| a | table row here that is long |\n|---|---|", []),
        ("x" * 500, []),
    ],
)
def test_sentences_survive_markdown(markdown: str, found: list[str]) -> None:
    assert sentences(markdown) == found


def test_a_dated_page_of_many_paragraphs_is_read_whole() -> None:
    result = (
        "content_length: 60, original_length: 60, truncated: false\nCite.\n<<<web-0123456789abcdef\n"
        "Page [4]: Title\nURL: local:docs/a.md\nDate: 2026-11-16\n\nFirst paragraph.\n\nSecond one.\n\nThird.\n"
        "web-0123456789abcdef>>>"
    )
    (reading,) = read_result(result)
    assert (reading.n, reading.title, reading.url, reading.opened) == (4, "Title", "local:docs/a.md", True)
    assert reading.text == "First paragraph.\n\nSecond one.\n\nThird."


def test_a_number_that_no_source_has_is_no_source() -> None:
    """Python reads no number of more than 4300 digits."""
    hits = f"[{'9' * 5000}] Odd\nURL: https://a.org/\n\n[1] Title\nURL: https://b.org/\nWords."
    (reading,) = read_result(f"<<<web-0123456789abcdef\n{hits}\nweb-0123456789abcdef>>>")
    assert (reading.n, reading.url) == (1, "https://b.org/")


PAGE = """# The harbour

Ships come and go all day.

## Lights

The lighthouse was built in 1870. It is 31 metres high. See [the list](https://e.org/list). How old is it?

- [ ] Paint the lighthouse in spring.

| part | what it is |
|---|---|
| `lamp` | The lamp of the lighthouse turns once a minute. |
| lens | glass |

## Fees

The fee for a night is paid in the office. The office is open all day.
"""


@pytest.mark.parametrize(
    ("question", "found"),
    [
        (
            "When was the lighthouse built?",
            ["The lighthouse was built in 1870."],
        ),
        (
            "How high is the lighthouse with its lights?",
            ["The lighthouse was built in 1870.", "It is 31 metres high."],
        ),
        ("How often does the lamp of the lighthouse turn?", ["The lamp of the lighthouse turns once a minute."]),
        ("Where is the fee for the night paid?", ["The fee for a night is paid in the office."]),
        ("Which bread is best?", []),
    ],
)
def test_what_is_quoted_is_about_the_question(question: str, found: list[str]) -> None:
    """A paragraph, an item or a row of a table, and of these no question, no hint and no sentence about something
    else; a sentence that leans on the one before brings it along."""
    assert quotes(question, [(1, "The harbour", PAGE)])[: len(found) or None] == [(1, sentence) for sentence in found]


async def test_a_page_that_says_nothing_is_followed_by_the_next() -> None:
    hits = "<<<web-0123456789abcdef\n[1] Lights\nURL: https://e.org/a\nLights.\n\n[2] Lights of ships\nURL: https://e.org/b\nLights.\nweb-0123456789abcdef>>>"
    empty = "<<<web-0123456789abcdef\nPage [2]: Ships\nURL: https://e.org/b\n\nNothing.\nweb-0123456789abcdef>>>"
    messages = [{"role": "user", "content": "Which lights have ships?"}]
    asked = []
    for result in (hits, empty, empty.replace("[2]", "[1]").replace("/b", "/a")):
        (call,) = [
            e
            for e in await ask({"messages": messages, "tools": tools("web_search", "open_page")})
            if isinstance(e, ToolCallDelta)
        ]
        asked.append(json.loads(call.arguments))
        messages.append({"role": "tool", "content": result})
    assert asked[1:] == [{"url": "https://e.org/b"}, {"url": "https://e.org/a"}]


CONTRACT = "# Handbook\n\nThe notice period is three months to the end of a quarter.\n"
SHOP = """# The shop

Bread is baked at six. Rolls are baked at seven.

| model | length | price |
|---|---|---|
| Heron | 4.70 m | 3,900 euros |
| Otter | 4.20 m | 3,250 euros |

## Can I repair a scratch myself?

Yes. Sand it lightly, and paint two thin coats of varnish. Let it dry.

## Opening hours

From ten to six on weekdays.

The library (`shop/opening/hours.py`) is a program.
"""


@pytest.mark.parametrize(
    ("question", "text", "found"),
    [
        ("How long is the notice period?", CONTRACT, "The notice period is three months to the end of a quarter."),
        ("What does the Otter cost?", SHOP, "model Otter: length 4.20 m, price 3,250 euros."),
        ("How do I repair a scratch?", SHOP, "Sand it lightly, and paint two thin coats of varnish."),
        ("What are the opening hours?", SHOP, "From ten to six on weekdays."),
        ("When are rolls baked?", SHOP, "Rolls are baked at seven."),
        ("How many goats does the shop keep in Peru?", SHOP, ""),
    ],
)
def test_words_of_asking_do_not_decide_what_is_quoted(question: str, text: str, found: str) -> None:
    """The rare words of the question do, also where they stand in a row of a table or in the heading right above."""
    said = [sentence for _, sentence in quotes(question, [(1, "Texts", text)])]
    assert (found in said) if found else not said


def test_pages_are_opened_until_all_that_was_asked_for_is_spoken_of() -> None:
    def result(text: str) -> dict[str, str]:
        return {"role": "tool", "content": f"<<<web-0123456789abcdef\n{text}\nweb-0123456789abcdef>>>"}

    hits = (
        "[1] Otters\nURL: https://e.org/a\nOtters swim.\n\n[2] Otter prices\nURL: https://e.org/b\nPrices of an otter."
    )
    asked: dict[str, Any] = {"role": "user", "content": "Which price has an otter?"}
    offered = {"web_search": "web_search", "open_page": "open_page"}
    half = result("Page [2]: Otter prices\nURL: https://e.org/b\n\nThe otter is sold by the office.")
    whole = result("Page [2]: Otter prices\nURL: https://e.org/b\n\nThe price of the otter is nine euros.")
    second = respond([asked, result(hits), half], offered)
    assert isinstance(second, ToolCallDelta)
    assert json.loads(second.arguments) == {"url": "https://e.org/a"}
    assert "nine euros. [2]" in str(respond([asked, result(hits), whole], offered))
