"""Why it searched or did not, in words: a sentence for every reason that is given, and one for every request."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from providers.base import ProviderCall
from proxy.answering import offer
from proxy.watching import reasons
from proxy.watching.reasons import OFF, OFFERED, why, why_decided
from proxy.watching.steps import Cited, Decided, Forwarded, ModelAnswered, ModelAsked, Step, ToolCalled
from proxy.watching.summary import TAKERS, Summary

ROOT = Path(__file__).parents[2]
ASKED = ModelAsked("up", "m")
SEARCHED = ToolCalled("web_search", True, 0.1)


def source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def found(pattern: str, *paths: str) -> set[str]:
    return {reason for path in paths for reason in re.findall(pattern, source(path))}


def given_off() -> set[str]:
    """Every reason in the code for which there is no search."""
    decided = found(r'Decision\(False, "(\w+)"\)', "proxy/answering/offer.py")
    chosen = found(r'"(tool_choice_\w+)"', "proxy/answering/offer.py")
    first = found(r'(?:SearchedFirst\(False, |Plan\(reason=)"(\w+)"', "proxy/answering/search_first.py")
    planned = found(r'self\._plan\([^()]*, "(\w+)"\)', "proxy/answering/query_plan.py")
    aside = {reason for reason, *_ in offer._STEPS_ASIDE}
    return decided | chosen | first | planned | aside


def given_offered() -> set[str]:
    asked = found(r'wish\.ask\("(\w+)"\)', "proxy/dialects/search.py")
    assert asked
    suffix = found(r'search\.asked or "(\w+)"', "proxy/answering/preparation.py")
    header = found(r'search\.asked or \("(\w+)"', "proxy/answering/offer.py")
    assert suffix
    assert header
    return asked | suffix | header | {"auto"}


def told_on_the_page() -> dict[str, set[str]]:
    """The reasons that docs/why_not_searched.md explains, by what they decide. Each has what to do about it."""
    page = source("docs/why_not_searched.md")
    off = page.partition("## Search was off")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| (.+?) \| (.+?) \|$", off, re.M)
    (offered,) = re.findall(r"The reasons for `offered` say who asked: (.+?)\n\n", page, re.S)
    return {
        "off": {name for named, _, _ in rows for name in re.findall(r"`(\w+)`", named)},
        "offered": set(re.findall(r"`(\w+)`", offered)),
    }


def test_every_reason_has_a_sentence_and_every_sentence_a_reason() -> None:
    assert {"searched_before", "no_room", "no_need", "no_question", "custom_tools", "background"} <= given_off()
    assert set(OFF) == given_off()
    assert set(OFFERED) == given_offered()


def test_the_page_lists_the_same() -> None:
    assert told_on_the_page() == {"off": set(OFF), "offered": set(OFFERED)}


@pytest.mark.parametrize("sentence", [*OFF.values(), *OFFERED.values()])
def test_sentences_are_sentences(sentence: str) -> None:
    assert sentence[0].isupper()
    assert sentence.endswith(".")
    assert "{" not in sentence
    assert "  " not in sentence


def test_a_reason_that_nobody_knows_is_named() -> None:
    assert "moon_phase" in why_decided("moon_phase", offered=False)


def call(outcome: str, role: str = "search", provider: str = "web") -> ProviderCall:
    return ProviderCall(provider, role, outcome, False, 0.1)  # type: ignore[arg-type]


OFFERED_AND_ASKED = [Decided(True, "auto"), ASKED]


@pytest.mark.parametrize(
    ("steps", "outcome", "said"),
    [
        ([], "ok", ""),
        ([ASKED, Forwarded("up", 200, "embeddings", 0.1)], "ok", reasons.PASSED_ON),
        ([Decided(False, "tool_choice_none"), ASKED], "ok", OFF["tool_choice_none"]),
        ([*OFFERED_AND_ASKED, ModelAnswered("up", 0.1)], "ok", reasons.NOT_CALLED),
        (OFFERED_AND_ASKED, "upstream_error", reasons.NOT_REACHED),
        ([Decided(True, "auto")], "client_left", reasons.NOT_REACHED),
        ([*OFFERED_AND_ASKED, ToolCalled("web_search", False, 0.0)], "ok", reasons.NOT_RUN),
        ([*OFFERED_AND_ASKED, call("empty"), SEARCHED], "ok", reasons.NOTHING_FOUND),
        ([*OFFERED_AND_ASKED, call("timed_out"), call("empty")], "ok", reasons.NOTHING_FOUND),
        ([*OFFERED_AND_ASKED, call("timed_out"), call("ok"), SEARCHED], "ok", reasons.NOTHING_CITED),
        ([*OFFERED_AND_ASKED, call("ok", "read"), Cited(1)], "ok", reasons.CITED),
        ([Decided(True, "auto", first=True), call("ok"), ASKED, Cited(1)], "ok", reasons.CITED),
        ([Decided(True, "auto"), Decided(False, "no_need"), ASKED], "ok", OFF["no_need"]),
        ([call("ok"), SEARCHED], "ok", reasons.FOUND),
        ([*OFFERED_AND_ASKED, call("ok"), SEARCHED], "upstream_truncated", reasons.FOUND),
        ([call("empty"), SEARCHED], "ok", reasons.NOTHING_FOUND),
    ],
)
def test_the_answer_for_a_whole_request(steps: list[Step], outcome: str, said: str) -> None:
    assert why(summary(steps), outcome) == said


def test_providers_that_all_failed_are_named_once_and_not_without_end() -> None:
    failed = [call("timed_out"), call("timed_out"), call("rate_limited", provider="ddg")]
    assert "(web: timed_out, ddg: rate_limited)" in why(summary([*OFFERED_AND_ASKED, *failed]), "ok")
    many = [call("unavailable", provider=f"p{n}") for n in range(50)]
    assert len(why(summary([*OFFERED_AND_ASKED, *many]), "ok")) < 250


def test_what_to_try_is_said_where_the_model_did_not_call() -> None:
    for way in ("tool_choice", "tool_calls: prompted", "tool_calls: none"):
        assert way in reasons.NOT_CALLED


def summary(steps: list[Step]) -> Summary:
    made = Summary()
    for n, step in enumerate(steps):
        TAKERS[type(step)](made, step, float(n))
    return made
