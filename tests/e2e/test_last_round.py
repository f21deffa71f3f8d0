"""The last round as the model's server sees it: the same tools, the same beginning, and words that say to answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text
from tools import prompts

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
SEARCH = call("web_search", {"query": "sky"})
LINK = f"[[1]]({SITE}sky.md)"


@pytest.fixture(scope="module")
def short(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "tools": {"max_rounds": 1}}) as running:
        yield running


def ask(proxy: Groundwire, **fields: Any) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}], **fields}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=body, timeout=20).json()
    content = answer["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


def names(request: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request.get("tools", ())]


def assert_grows(before: dict[str, Any], after: dict[str, Any]) -> None:
    """What a server has read of the first request it need not read again for the second."""
    assert orjson.dumps(after["tools"]) == orjson.dumps(before["tools"])
    count = len(before["messages"])
    assert orjson.dumps(after["messages"][:count]) == orjson.dumps(before["messages"])


def test_without_tools_of_the_clients_the_choice_forbids(short: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Scattering [1]."))
    assert ask(short) == f"Scattering {LINK}."
    first, last = model.requests
    assert_grows(first, last)
    assert "tool_choice" not in first
    assert last["tool_choice"] == "none"
    assert last["messages"][-1]["content"].endswith(prompts.ANSWER_NOW)


def test_beside_tools_of_the_clients_words_forbid(short: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Scattering [1]."))
    assert ask(short, tools=[WEATHER]) == f"Scattering {LINK}."
    first, last = model.requests
    assert_grows(first, last)
    assert names(last) == ["weather", "web_search", "open_page"]
    assert "tool_choice" not in last
    assert last["messages"][-1]["content"].endswith(prompts.ANSWER_NOW)


def test_who_calls_all_the_same_is_refused_and_loses_them(short: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, call("web_search", {"query": "more"}, id="late"), text("Scattering [1]."))
    assert ask(short, tools=[WEATHER]) == f"Scattering {LINK}."
    first, refused, bare = model.requests
    assert_grows(first, refused)
    assert bare["messages"][: len(refused["messages"])] == refused["messages"]
    assert bare["messages"][-1] == {"role": "tool", "tool_call_id": "late", "content": prompts.NO_MORE_CALLS}
    assert names(bare) == ["weather"]


def test_a_server_whose_profile_takes_tools_away(config: dict[str, Any], model: ModelServer) -> None:
    model.script(SEARCH, text("Scattering [1]."))
    (given,) = config["upstreams"]
    changed = {**config, "upstreams": [{**given, "profile": "ollama"}], "tools": {"max_rounds": 1}}
    with Groundwire(changed) as proxy:
        assert ask(proxy) == f"Scattering {LINK}."
    assert not model.requests[1].keys() & {"tools", "tool_choice"}
