"""The lines of the log: what they say of a request, for people and as JSON, and what nobody can make them say."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from providers.base import ProviderCall
from proxy.config.prices import PricesConfig
from proxy.config.settings import LogConfig
from proxy.watching.contents import Contents, ContentsHidden, printable, stack_of
from proxy.watching.log import RequestLog, write_line
from proxy.watching.observer import Observer
from proxy.watching.prices import NO_PRICES, PriceList
from proxy.watching.steps import (
    Cited,
    Decided,
    FirstContent,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelLeft,
    Queued,
    Retried,
    Step,
    Tokens,
    ToolCalled,
)

SECRETIVE = "what the patient asked"


def lines_of(*steps: Step, config: dict[str, Any] | None = None, **about: Any) -> list[str]:
    """What the log writes of one request."""
    lines: list[str] = []
    log = RequestLog(LogConfig.model_validate(config or {}), write=lines.append)
    named: dict[str, Any] = {"method": "POST", "path": "/v1/chat/completions", "request_id": "req_1", "dialect": "chat"}
    named["prices"] = NO_PRICES
    request = Observer([log], **{**named, **{key: about[key] for key in about if key in named}})
    for step in steps:
        request.tell(step)
    request.caller = about.get("caller", "")
    request.status = about.get("status", 200)
    if "failure" in about:
        request.fail(about["failure"])
    request.end()
    return lines


def text_of(*steps: Step, **about: Any) -> str:
    (line,) = lines_of(*steps, **about)
    assert len(line.splitlines()) == 1
    return line


def json_of(*steps: Step, **about: Any) -> dict[str, Any]:
    (line,) = lines_of(*steps, config={"format": "json", **about.pop("config", {})}, **about)
    assert "\n" not in line
    read: dict[str, Any] = json.loads(line)
    return read


ANSWER: tuple[Step, ...] = (
    Decided(True, "auto"),
    ModelAsked("first", "qwen3"),
    ModelFailed("first", 503, SECRETIVE),
    ModelAsked("spare", "qwen3"),
    Retried("spare", "asked"),
    Retried("spare", "spent"),
    ModelAnswered("spare", 0.5, Tokens(30, 12)),
    ProviderCall("web", "search", "timed_out", False, 1.25),
    ProviderCall("ddg", "search", "ok", False, 0.212),
    ProviderCall("reader", "read", "ok", True, 0.0),
    ToolCalled("web_search", True, 1.5, [{"query": SECRETIVE}]),
    ToolCalled("open_page", False, 0.0, []),
    ModelAsked("spare", "qwen3"),
    FirstContent(),
    Cited(1),
    Cited(2),
    ModelAnswered("spare", 0.5, Tokens(10, 5)),
)


def test_a_line_for_people() -> None:
    line = text_of(*ANSWER, caller="the office")
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d POST /v1/chat/completions 200 seconds=\d+\.\d{3} (first_content=[\d.]+ )?"
        r'key="the office" model=qwen3 upstream=spare search=offered reason=auto rounds=3 retries=1 '
        r"searches=web:timed_out:1250ms,ddg:ok:212ms pages=reader:ok:cache failed_calls=1 "
        r"model_failures=first:503 citations=2 input_tokens=40 output_tokens=17 outcome=ok request=req_1",
        line,
    ), line


def test_the_same_as_json() -> None:
    said = json_of(*ANSWER, caller="the office")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", said.pop("time"))
    assert 0 <= said.pop("first_content", 0.0) <= said.pop("seconds")
    assert said == {
        "level": "info",
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "key": "the office",
        "model": "qwen3",
        "upstream": "spare",
        "search": "offered",
        "reason": "auto",
        "rounds": 3,
        "retries": 1,
        "searches": [
            {"provider": "web", "outcome": "timed_out", "cached": False, "ms": 1250},
            {"provider": "ddg", "outcome": "ok", "cached": False, "ms": 212},
        ],
        "pages": [{"provider": "reader", "outcome": "ok", "cached": True, "ms": 0}],
        "failed_calls": 1,
        "model_failures": [{"upstream": "first", "status": 503}],
        "citations": 2,
        "input_tokens": 40,
        "output_tokens": 17,
        "outcome": "ok",
        "request": "req_1",
    }


def test_the_page_about_it_explains_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "observing.md").read_text(encoding="utf-8")
    left = ModelAsked("spare", "qwen3"), ModelLeft("spare", Tokens(1000, 500, estimated=True))
    prices = PriceList(PricesConfig.model_validate({"models": {"qwen3": {"input": 1.5}}}))
    priced = json_of(*left, prices=prices)
    assert (priced["estimated_tokens"], priced["cost"]) == (1500, 0.0015)
    waited = json_of(Queued("server", 0.125), Queued("upstream", 0.25))
    assert waited["queued"] == 0.375
    fields = {*json_of(*ANSWER, caller="x", config={"contents": True}), "first_content", *priced, *waited}
    explained = re.findall(r"^\| `(\w+)` \|", page.partition("## Metrics")[0], re.M)
    assert set(explained) == fields


def test_what_is_not_known_is_left_out() -> None:
    line = text_of(method="GET", path="/healthz")
    assert re.fullmatch(r"\d\d:\d\d:\d\d GET /healthz 200 seconds=\d+\.\d{3} outcome=ok request=req_1", line)
    said = json_of(method="GET", path="/healthz")
    assert set(said) == {"time", "level", "method", "path", "status", "seconds", "outcome", "request"}


def test_a_client_that_left_before_anything_was_sent() -> None:
    assert " POST /v1/chat/completions - seconds=" in text_of(status=0)
    assert text_of(status=0).endswith(" outcome=client_left request=req_1")
    assert json_of(status=0)["status"] == 0


# What nobody can make it say


HOSTILE = [
    "/a b",
    "/a\n23:59:59 GET /forged 200",
    "/a\r\u2028b",
    '/a" outcome=ok request="',
    "/\x1b[31mred",
    "/\x9b31mred",
    "/\u202eevil",
    "/\x7f\x00",
    "/" + "a" * 5000,
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_no_path_and_no_model_breaks_out_of_its_field(hostile: str) -> None:
    line = text_of(ModelAsked("up", hostile), path=hostile, failure="x")
    assert line.isprintable()
    assert len(line) < 1000
    method, path, status = re.fullmatch(r'\d\d:\d\d:\d\d (\S+) ("(?:[^"\\]|\\.)*"|\S+) (\d+) seconds=.*', line).groups()  # type: ignore[union-attr]
    assert (method, status) == ("POST", "200")
    assert path.startswith(("/", '"/'))
    unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', "", line)
    assert unquoted.count("outcome=") == unquoted.count("request=") == 1
    said = json_of(ModelAsked("up", hostile), path=hostile)
    assert str(said["path"]).isprintable()
    assert str(said["model"]).isprintable()
    assert len(said["path"]) < 1000


@pytest.mark.parametrize("name", ["the office", 'a"b', "a=b outcome=ok", "Büro", "key\\"])
def test_the_name_of_a_key_is_one_field(name: str) -> None:
    line = text_of(caller=name)
    found = re.search(r' key=("(?:[^"\\]|\\.)*"|\S+) outcome=ok request=req_1$', line)
    assert found, line
    assert found[1] in (name, json.dumps(name, ensure_ascii=False))
    assert json_of(caller=name)["key"] == name


@pytest.mark.parametrize("code", ["what the patient asked", "a\nb", "x" * 61, "é", '"', ""])
def test_an_upstreams_code_that_is_no_word_is_just_an_error(code: str) -> None:
    assert " outcome=error " in text_of(failure=code)
    assert " outcome=rate_limit_exceeded " in text_of(failure="rate_limit_exceeded")
    assert " outcome=429 " in text_of(failure=429)


# Contents


def test_contents_are_not_shown() -> None:
    assert SECRETIVE not in text_of(*ANSWER)
    assert SECRETIVE not in json.dumps(json_of(*ANSWER))


def test_contents_are_shown_where_the_operator_said_so() -> None:
    config = {"contents": True}
    opened = ToolCalled("open_page", False, 0.1, [{"url": "https://a.example/"}, {"url": "https://b\x1b[0m/"}])
    assert json_of(*ANSWER, opened, config=config)["contents"] == [
        {"tool": "web_search", "query": SECRETIVE},
        {"tool": "open_page", "url": "https://a.example/"},
        {"tool": "open_page", "url": "https://b\\x1b[0m/"},
    ]
    line = text_of(*ANSWER, opened, config=config)
    assert f'contents=[{{"tool":"web_search","query":"{SECRETIVE}"}},' in line
    assert line.isprintable()
    long = json_of(ToolCalled("web_search", True, 0.1, [{"query": "q" * 9000}]), config=config)
    assert len(long["contents"][0]["query"]) == 1001
    assert "contents" not in json_of(config=config)


def test_a_code_of_a_failed_model_is_never_shown() -> None:
    line = text_of(ModelFailed("up", 400, SECRETIVE), config={"contents": True})
    assert "model_failures=up:400" in line
    assert SECRETIVE not in line


# Levels and streams


@pytest.mark.parametrize(("level", "written"), [("debug", 1), ("info", 1), ("warning", 0), ("error", 0)])
def test_requests_are_info(level: str, written: int) -> None:
    assert len(lines_of(config={"level": level})) == written


class Full(io.StringIO):
    """A stream whose other end is gone, or whose disk is full."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_log_that_nobody_reads_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    closed = io.StringIO()
    closed.close()
    write_line("x", closed)
    write_line("x", Full())
    write_line("read me")
    assert capsys.readouterr().err == "read me\n"


def test_there_may_be_no_stderr_at_all() -> None:
    kept, sys.stderr = sys.stderr, None  # as Python starts with `2>&-`
    try:
        write_line("x")
    finally:
        sys.stderr = kept


# The other lines of the house


def rendered(*arguments: Any, error: BaseException | None = None, hidden: bool = True) -> str:
    info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("groundwire", logging.ERROR, "f", 1, "upstream %s: %s", arguments, info)
    if hidden:
        assert ContentsHidden().filter(record)
    return logging.Formatter("%(message)s").format(record)


def crash() -> BaseException:
    try:
        try:
            raise ValueError(SECRETIVE)
        except ValueError as first:
            raise ExceptionGroup(SECRETIVE, [KeyError(SECRETIVE)]) from first
    except ExceptionGroup as error:
        return error


def test_what_others_wrote_is_left_out_of_lines() -> None:
    assert rendered("up", Contents(SECRETIVE)) == "upstream up: …"
    assert rendered("up", Contents(SECRETIVE), hidden=False) == f"upstream up: {SECRETIVE}"
    assert rendered("up", "down") == "upstream up: down"


def test_a_traceback_shows_where_and_what_kind_and_no_contents() -> None:
    shown = rendered("up", "crashed", error=crash())
    assert SECRETIVE not in shown
    assert shown.count("Traceback (most recent call last):") == 3
    for kind in ("ValueError", "ExceptionGroup", "KeyError"):
        assert f"\n{kind}" in shown
    assert "in crash\n    raise ExceptionGroup(SECRETIVE" in shown
    assert SECRETIVE in rendered("up", "crashed", error=crash(), hidden=False)


def test_a_cause_that_was_put_aside_stays_aside() -> None:
    aside, error = ValueError(), KeyError()
    error.__context__ = aside
    assert "ValueError" in stack_of(error)
    error.__suppress_context__ = True  # `raise … from None`
    assert "ValueError" not in stack_of(error)


@pytest.mark.parametrize(
    ("text", "shown"), [("plain", "plain"), ("é", "é"), ("a\nb", "a\\nb"), ("\u202e", "\\u202e"), ("123456", "12345…")]
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text, 5) == shown
