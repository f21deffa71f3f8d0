"""What the events of an answer tell the observer on their way out."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.callers.caller import Caller
from proxy.context import RequestContext
from proxy.dialects.chat import ChatDialect
from proxy.serving.telling import AnswerTelling, contents_of
from proxy.values.errors import failure
from proxy.values.events import (
    Begun,
    Citation,
    Event,
    Finished,
    Proof,
    ReasoningDelta,
    SearchedFirst,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from proxy.watching.observer import Listener, Observer
from proxy.watching.steps import Cited, Decided, FirstContent, Step, ToolBegan, ToolCalled
from tools.ledger import Source

KEY = "gw-a-key-of-the-caller"


def told(*batches: list[Event], streamed: bool = True) -> tuple[list[Step], str]:
    """What an observer hears of an answer, and how the answer ended."""
    observer = Observer([Listener()], dialect="chat")
    telling = AnswerTelling(
        RequestContext("r", ChatDialect(), 0.0, observer, Caller(secrets=(KEY,))), streamed=streamed
    )
    for batch in batches:
        telling.see(batch)
    return [step for _, step in observer.steps], observer.outcome


@pytest.mark.parametrize(
    "event",
    [TextDelta("a"), ReasoningDelta({"reasoning_content": "hm"}), ToolCallDelta(0, "c", "f", "{}")],
    ids=["text", "thought", "call"],
)
def test_content_begins_once(event: Event) -> None:
    steps, outcome = told([Begun("m")], [event, event], [TextDelta("b")], [event, Finished("stop")])
    assert steps == [FirstContent()]
    assert outcome == ""


def test_a_whole_answer_has_no_first_piece() -> None:
    assert told([Begun("m"), TextDelta("a"), Finished("stop")], streamed=False) == ([], "")


def test_citations_between_text_are_counted_before_and_after_content_began() -> None:
    event = Citation(0, 3, Source(4, "https://a.example/", "A"), Proof("the sky is blue", "page"))
    steps, _ = told([event], [TextDelta("a"), event, TextDelta("b")], [TextDelta("c")], [event])
    cited = Cited(4, "page", "https://a.example/", "A", "the sky is blue")
    assert steps == [cited, FirstContent(), cited, cited]
    assert "sky" not in repr(cited)
    assert "a.example" not in repr(cited)


def test_no_key_is_told_with_a_citation() -> None:
    proof = Proof(f"The key is {KEY}.", "snippet")
    (step,), _ = told([Citation(0, 3, Source(1, f"https://a.example/?key={KEY}", f"About {KEY}"), proof)])
    assert step == Cited(1, "snippet", "…", "…", "…")


def test_a_tool_is_told_of_when_it_begins_and_when_it_has_run_with_what_it_searched_for() -> None:
    (began, other, step), _ = told(
        [ToolStarted("1", "web_search", {"query": "sky", "limit": 3})],
        [ToolStarted("2", "open_page", {"url": "https://a.example/"})],
        [ToolFinished("1", "web_search", True, "library")],
    )
    assert began == ToolBegan("web_search", [{"query": "sky"}])
    assert other == ToolBegan("open_page", [{"url": "https://a.example/"}])
    assert isinstance(step, ToolCalled)
    assert (step.tool, step.ok, list(step.contents)) == ("web_search", True, [{"query": "sky"}])
    assert step.seconds >= 0
    assert "sky" not in repr(step)
    assert "sky" not in repr(began)


def test_an_end_without_a_beginning_is_no_tool_that_ran() -> None:
    assert told([ToolFinished("1", "web_search", True)]) == ([], "")


def test_what_the_search_before_the_question_decided() -> None:
    assert told([SearchedFirst(False, "smalltalk")])[0] == [Decided(False, "smalltalk")]
    observer = Observer([Listener()])
    observer.tell(Decided(True, "auto"))
    AnswerTelling(RequestContext("r", ChatDialect(), 0.0, observer), streamed=True).see([SearchedFirst(True)])
    assert (observer.summary.search, observer.summary.reason) == ("first", "auto")


def test_a_failure_is_the_outcome() -> None:
    assert told([TextDelta("a")], [failure(502, "no", code="upstream_truncated")])[1] == "upstream_truncated"


def test_tokens_are_told_where_the_model_is_asked_and_not_twice() -> None:
    usage = UsageSeen({"prompt_tokens": 1, "completion_tokens": 1})
    assert told([usage, Finished("stop")]) == ([], "")


@pytest.mark.parametrize(
    ("tool", "arguments", "shown"),
    [
        ("web_search", {"query": "why is the sky blue", "blocked_domains": ["x.example"]}, ["why is the sky blue"]),
        ("web_search", {"query": ""}, []),
        ("web_search", {"query": ["a"]}, []),
        ("web_search", {}, []),
        ("open_page", {"urls": ["https://a.example/", "https://b.example/"], "query": "what the user asked"}, None),
        ("open_page", {"url": None}, []),
        ("made_up", {"query": "sky"}, []),
        ("web_search", {"query": f"what is {KEY}"}, ["…"]),
        ("web_search", {"query": "what is sk-aaaaaaaaaaaaaaaaaaaaaaaa"}, ["…"]),
    ],
)
def test_contents_are_queries_and_addresses_and_never_a_key(
    tool: str, arguments: dict[str, Any], shown: list[str] | None
) -> None:
    expected = ["https://a.example/", "https://b.example/"] if shown is None else shown
    found = contents_of(tool, arguments, (KEY,))
    assert [text for part in found for text in part.values()] == expected
