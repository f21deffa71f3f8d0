"""When search is offered, and what the model is then sent."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.answering.offer import decide, make_offer
from proxy.dialects.chat import decode
from proxy.values.errors import RequestError
from proxy.values.request import ChatRequest
from tools.base import ToolSpec

SPECS = (ToolSpec("web_search", "Search.", {"type": "object"}), ToolSpec("open_page", "Open.", {"type": "object"}))


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def forced(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(*entries: dict[str, Any], mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(entries)}}


def request(**fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    return decode(json.dumps(body).encode())


HOSTED = {"type": "web_search"}
CUSTOM = {"type": "custom", "custom": {"name": "c"}}
AUTO = [
    ({}, "offered; reason=auto"),
    ({"tools": [function("weather")]}, "offered; reason=auto"),
    ({"tool_choice": "auto"}, "offered; reason=auto"),
    ({"response_format": {"type": "text"}, "n": 1, "logprobs": False}, "offered; reason=auto"),
    ({"n": 2}, "off; reason=n"),
    ({"logprobs": True}, "off; reason=logprobs"),
    ({"response_format": {"type": "json_object"}}, "off; reason=response_format"),
    ({"modalities": ["text", "audio"]}, "off; reason=audio"),
    ({"audio": {"voice": "x"}}, "off; reason=audio"),
    ({"tool_choice": "required", "tools": [function("f")]}, "off; reason=tool_choice_required"),
    ({"tool_choice": "none"}, "off; reason=tool_choice_none"),
    ({"functions": [{"name": "f"}]}, "off; reason=functions"),
    ({"tools": [CUSTOM]}, "off; reason=custom_tools"),
    ({"tools": [CUSTOM, HOSTED]}, "off; reason=custom_tools"),
    ({"tools": [function("f")], "tool_choice": forced("f")}, "off; reason=tool_choice_client_tool"),
    ({"tools": [function("f")], "tool_choice": allowed(forced("f"))}, "off; reason=tool_choice_allowed_tools"),
    *(
        ({"tools": [function(name)]}, "off; reason=client_search")
        for name in (
            "web_search",
            "WebSearch",
            "brave_web_search",
            "search_the_web",
            "tavily_search",
            "google-search",
            "search_web",
            "searchWeb",
            "websearch",
            "performWebSearch",
            "web_search_exa",
            "web_search_20250305",
            "mcp__brave-search__brave_web_search",
            "DuckDuckGoSearchTool",
            "google_search_results",
            "search_web_pages",
            "search_the_internet_for_news",
            "WEB_SEARCH",
        )
    ),
    *(
        ({"tools": [function(name)]}, "offered; reason=auto")
        for name in (
            "deep_research_web",
            "deepResearchWeb",
            "web_research",
            "research_internet",
            "search_files",
            "search_orders",
            "search_website",
            "search_webhooks",
            "search_web_elements",
            "search_online_orders",
            "search_google_drive",
            "google_drive_search",
            "google_search_console",
            "googleSearchConsoleQuery",
            "hexa_search",
            "plumbing_search",
            "web_search_history",
            "web_searcher_settings",
        )
    ),
    ({"web_search_options": {}}, "offered; reason=web_search_options"),
    ({"tools": [HOSTED]}, "offered; reason=tool"),
    ({"tools": [{"type": "web_search_preview_2025_03_11"}]}, "offered; reason=tool"),
    ({"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, "offered; reason=tool"),
    ({"tools": [{"type": "openrouter:web_search"}]}, "offered; reason=tool"),
    ({"tools": [HOSTED, function("web_search")]}, "offered; reason=tool"),
    ({"tools": [HOSTED], "response_format": {"type": "json_object"}}, "offered; reason=tool"),
    ({"tools": [HOSTED], "tool_choice": "required"}, "offered; reason=tool"),
    ({"tools": [HOSTED], "tool_choice": "none"}, "off; reason=tool_choice_none"),
    ({"tools": [HOSTED, function("f")], "tool_choice": forced("f")}, "off; reason=tool_choice_client_tool"),
    ({"tool_choice": {"type": "web_search"}}, "offered; reason=tool_choice"),
    ({"tool_choice": forced("web_search")}, "offered; reason=tool_choice"),
    ({"tools": [function("web_search")], "tool_choice": forced("web_search")}, "off; reason=tool_choice_client_tool"),
    ({"tools": [function("f"), HOSTED], "tool_choice": allowed(forced("f"), HOSTED)}, "offered; reason=tool"),
]


@pytest.mark.parametrize(("fields", "header"), AUTO)
def test_auto(fields: dict[str, Any], header: str) -> None:
    assert decide(request(**fields), "auto", "", True).header == header


@pytest.mark.parametrize(
    ("mode", "wish", "fields", "header"),
    [
        ("off", "on", {"web_search_options": {}}, "off; reason=mode_off"),
        ("auto", "off", {"web_search_options": {}}, "off; reason=header"),
        ("on_request", "", {}, "off; reason=not_requested"),
        ("on_request", "on", {}, "offered; reason=header"),
        ("on_request", "", {"web_search_options": {}}, "offered; reason=web_search_options"),
        ("auto", "on", {"tool_choice": "none"}, "off; reason=tool_choice_none"),
        ("auto", "on", {"tools": [CUSTOM]}, "off; reason=custom_tools"),
        ("on_request", "", {"tools": [CUSTOM], "web_search_options": {}}, "off; reason=custom_tools"),
        ("auto", "on", {"response_format": {"type": "json_object"}}, "offered; reason=header"),
    ],
)
def test_the_order_of_reasons(mode: str, wish: str, fields: dict[str, Any], header: str) -> None:
    assert decide(request(**fields), mode, wish, True).header == header


def test_without_a_provider_nothing_is_offered() -> None:
    assert decide(request(web_search_options={}), "auto", "", False).header == "off; reason=no_provider"


def test_what_the_model_does_not_see_is_named() -> None:
    def header(*left_out: str) -> str:
        return replace(decide(request(), "auto", "", True), left_out=left_out).header

    assert header("file_search", "mcp") == "offered; reason=auto; left_out=file_search,mcp"
    strange = ("a\r\nSet-Cookie: b", "x" * 99, "é", "a,b", "new_tool")
    assert header(*strange) == "offered; reason=auto; left_out=other,new_tool"
    assert header(*(f"t{n}" for n in range(99))).endswith("left_out=" + ",".join(f"t{n}" for n in range(12)))


def test_who_says_that_it_has_no_tools_gets_none() -> None:
    bare = replace(request(), wants_no_tools=True)
    assert decide(bare, "auto", "", True).header == "off; reason=background"
    assert decide(bare, "auto", "on", True).header == "offered; reason=header"


@pytest.mark.parametrize(("field", "value"), [("n", 2), ("logprobs", True), ("functions", [{"name": "f"}])])
def test_what_cannot_be_searched_is_refused_when_asked(field: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        decide(request(**{"web_search_options": {}, field: value}), "auto", "", True)
    assert caught.value.failed.status == 400
    assert caught.value.failed.error["param"] == field


def test_our_tools_stand_behind_the_clients_and_nothing_else_changes() -> None:
    asked = request(tools=[function("f")], temperature=0.3, chat_template_kwargs={"x": 1})
    made = make_offer(asked, SPECS)
    assert made.body["tools"][0] == function("f")
    assert [t["function"]["name"] for t in made.body["tools"]] == ["f", "web_search", "open_page"]
    assert {k: v for k, v in made.body.items() if k != "tools"} == {k: v for k, v in asked.body.items() if k != "tools"}
    assert made.client_tools == {"f"}
    assert "stream_options" not in made.body


def test_usage_is_asked_of_the_model_when_streaming() -> None:
    made = make_offer(request(stream=True, stream_options={"include_obfuscation": False}), SPECS)
    assert made.body["stream_options"] == {"include_obfuscation": False, "include_usage": True}


def test_our_names_step_aside() -> None:
    made = make_offer(request(tools=[function("open_page"), HOSTED]), SPECS)
    assert made.owned == {"web_search": "web_search", "groundwire_open_page": "open_page"}
    assert [t["function"]["name"] for t in made.body["tools"]] == ["open_page", "web_search", "groundwire_open_page"]


def test_hosted_fields_never_go_up() -> None:
    asked = request(
        tools=[HOSTED], web_search_options={"search_context_size": "low"}, tool_choice={"type": "web_search"}
    )
    assert set(asked.body) == {"model", "messages"}
    assert asked.changed
    assert not request(tools=[function("f")]).changed


def test_allowed_tools_take_ours_in() -> None:
    made = make_offer(
        request(tools=[function("f"), HOSTED], tool_choice=allowed(forced("f"), HOSTED, mode="required")), SPECS
    )
    assert made.body["tool_choice"] == allowed(forced("f"), forced("web_search"), forced("open_page"), mode="required")
    assert made.free_choice == allowed(forced("f"), forced("web_search"), forced("open_page"))
    assert made.client_choice == allowed(forced("f")), "by then a tool of ours has run"
    only = make_offer(request(tools=[function("f"), HOSTED], tool_choice=allowed(HOSTED)), SPECS)
    assert only.body["tool_choice"] == allowed(forced("web_search"), forced("open_page"))
    assert only.client_choice == "none"


@pytest.mark.parametrize(
    ("fields", "size", "country", "domains"),
    [
        ({"web_search_options": {"search_context_size": "high"}}, "high", "", ()),
        (
            {"web_search_options": {"user_location": {"type": "approximate", "approximate": {"country": "de"}}}},
            "",
            "DE",
            (),
        ),
        ({"tools": [{"type": "web_search", "user_location": {"type": "approximate", "country": "GB"}}]}, "", "GB", ()),
        ({"tools": [{"type": "web_search", "filters": {"allowed_domains": ["a.org"]}}]}, "", "", ("a.org",)),
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["a.org"]}]},
            "",
            "",
            ("a.org",),
        ),
        ({"web_search_options": {"user_location": None, "search_context_size": "huge"}}, "", "", ()),
        ({"web_search_options": None, "tools": [{"type": "web_search", "filters": 3, "user_location": 4}]}, "", "", ()),
    ],
)
def test_what_the_client_says_about_search(
    fields: dict[str, Any], size: str, country: str, domains: tuple[str, ...]
) -> None:
    search = request(**fields).search
    assert (search.context_size, search.country, search.allowed_domains) == (size, country, domains)


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b"nope", None),
        (b'{"messages":[{}]}', "model"),
        (b'{"model":"","messages":[{}]}', "model"),
        (b'{"model":"m"}', "messages"),
        (b'{"model":"m","messages":[]}', "messages"),
        (b'{"model":"m","messages":["x"]}', "messages"),
        (b'{"model":"m","messages":[{}],"stream":"yes"}', "stream"),
        (b'{"model":"m","messages":[{}],"tools":{}}', "tools"),
        (b'{"model":"m","messages":[' + b"[" * 100_000, None),
        (b'{"model":"m","messages":[' + b"{}," * 20_000 + b"{}]}", "messages"),
        (b'{"model":"m","messages":[{"content":"\\ud800"}]}', None),
        (b'{"model":"m","messages":[{}],"tools":[' + b"{}," * 2000 + b"{}]}", "tools"),
    ],
)
def test_bad_bodies_are_refused(raw: bytes, param: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        decode(raw)
    assert caught.value.failed.status == 400
    assert caught.value.failed.error["param"] == param
    assert caught.value.failed.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": allowed(*[forced("web_search")] * 2001)}, "tool_choice.allowed_tools.tools"),
        ({"web_search_options": {"filters": {"allowed_domains": ["a.org"] * 1001}}}, "allowed_domains"),
        ({"tools": [{**HOSTED, "blocked_domains": ["a.org"] * 1001}]}, "blocked_domains"),
    ],
)
def test_there_is_an_end_to_what_is_listed(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        request(**fields)
    error = caught.value.failed.error
    assert (caught.value.failed.status, error["param"], error["code"]) == (400, param, "array_above_max_length")


def test_what_many_hosted_tools_say_is_read_once_each() -> None:
    """The first that says something counts, the options of the request before all."""
    wide = {**HOSTED, **{f"x{n}": 1 for n in range(20_000)}, "search_context_size": "low"}
    later = {**HOSTED, "search_context_size": "high", "user_location": {"country": "ch"}}
    search = request(tools=[wide, *[later] * 1999]).search
    assert (search.context_size, search.country) == ("low", "CH")
    search = request(tools=[wide, later], web_search_options={"search_context_size": "medium"}).search
    assert (search.context_size, search.country) == ("medium", "CH")


def test_where_search_alone_is_allowed_and_required_it_is_forced() -> None:
    choice = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "web_search"}]},
    }
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web_search"}]}
    made = make_offer(decode(json.dumps({**body, "tool_choice": choice}).encode()), SPECS)
    assert made.body["tool_choice"] == {"type": "function", "function": {"name": "web_search"}}
    assert made.free_choice["allowed_tools"]["mode"] == "auto"


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ({"type": "web_search"}, "web_search"),
        ({"type": "web_fetch_20250910"}, "open_page"),
        (forced("web_search"), "web_search"),
        (forced("open_page"), "open_page"),
    ],
)
def test_the_tool_that_is_forced_is_the_one_that_was_named(choice: dict[str, Any], wire: str) -> None:
    asked = request(tool_choice=choice)
    assert make_offer(asked, SPECS).body["tool_choice"] == forced(wire)
    alone = make_offer(asked, SPECS[:1])
    assert alone.body["tool_choice"] == forced("web_search"), "what is not there cannot be forced"
