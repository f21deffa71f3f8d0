"""The numbers that people see, over several turns: they count from 1 in every answer, whatever the model calls its
sources, and what the model reads of earlier turns stays the same from request to request.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

Message = dict[str, Any]
SKY, SEA = f"{SITE}sky.md", f"{SITE}sea.md"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def ask(proxy: Groundwire, messages: list[Message], headers: dict[str, str] | None = None, **more: Any) -> Any:
    body = {"model": "m", "messages": messages, **more}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()


def user(words: str) -> Message:
    return {"role": "user", "content": words}


def test_every_answer_counts_from_one_and_lists_what_it_cites_in_that_order(
    proxy: Groundwire, model: ModelServer
) -> None:
    model.script(
        Turn(calls=[("a", "web_search", {"query": "sky"}), ("b", "web_search", {"query": "sea"})]),
        text("Salty [2], again [2], blue [1]."),
    )
    messages = [user("Why is the sea salty and the sky blue?")]
    first = ask(proxy, messages)
    said = first["choices"][0]["message"]
    assert said["content"] == f"Salty [[1]]({SEA}), again [[1]]({SEA}), blue [[2]]({SKY})."
    assert [note["url_citation"]["url"] for note in said["annotations"]] == [SEA, SEA, SKY]
    assert [found["url"] for found in first["search_results"]] == [SEA, SKY]

    messages += [{"role": "assistant", "content": said["content"]}, user("And the sky once more?")]
    model.script(text("Blue [2]."))
    second = ask(proxy, messages)
    assert model.requests[-1]["messages"][1]["content"] == "Salty [1], again [1], blue [2]."
    assert second["choices"][0]["message"]["content"] == f"Blue [[1]]({SKY})."
    assert [found["url"] for found in second["search_results"]] == [SKY]

    told = model.requests[-1]["messages"]
    messages += [{"role": "assistant", "content": f"Blue [[1]]({SKY})."}, user("Thanks")]
    model.script(text("You are welcome."))
    ask(proxy, messages)
    assert model.requests[-1]["messages"][: len(told)] == told
    assert model.requests[-1]["messages"][len(told)] == {"role": "assistant", "content": "Blue [2]."}


@pytest.mark.parametrize("echoed", [True, False], ids=["kept", "forgotten"])
def test_after_the_clients_tools_an_answer_counts_on(proxy: Groundwire, model: ModelServer, echoed: bool) -> None:
    """Also where the store has forgotten the turn, so that the links alone say what was shown."""
    model.script(
        call("web_search", {"query": "sea"}),
        Turn(text=["Salty [1]. Now the weather."], calls=[("b", "weather", {})]),
    )
    messages = [user("Sea and weather?")]
    said = ask(proxy, messages, tools=[TOOL])["choices"][0]["message"]
    assert said["content"].startswith(f"Salty [[1]]({SEA}).")
    call_id = said["tool_calls"][0]["id"] if echoed else "gone_gwAAAAAAAAAAAA"
    calls = [{**said["tool_calls"][0], "id": call_id}]
    messages += [
        {"role": "assistant", "content": said["content"], "tool_calls": calls},
        {"role": "tool", "tool_call_id": call_id, "content": "Rain"},
    ]
    model.script(call("web_search", {"query": "sky"}), text("Blue [2], as salty as [1]: so [1]."))
    more = ask(proxy, messages, tools=[TOOL])["choices"][0]["message"]["content"]
    assert f"Blue [[2]]({SKY})" in more
    assert f"so [[1]]({SEA})" in more


@pytest.mark.parametrize(
    ("style", "shown"),
    [("link", f"[[1]]({SEA})"), ("number", "[2]"), ("openai", f"([library.example]({SEA}))"), ("none", ""), ("", "")],
)
def test_a_request_chooses_its_style(proxy: Groundwire, model: ModelServer, style: str, shown: str) -> None:
    model.script(
        Turn(calls=[("a", "web_search", {"query": "sky"}), ("b", "web_search", {"query": "sea"})]), text("Salty [2].")
    )
    answer = ask(proxy, [user("Sea?")], headers={"X-Groundwire-Citations": style.upper()})
    wanted = f"Salty {shown}." if shown else "Salty." if style else f"Salty [[1]]({SEA})."
    assert answer["choices"][0]["message"]["content"] == wanted


def test_a_style_that_is_none_is_refused(proxy: Groundwire) -> None:
    body = {"model": "m", "messages": [user("Sea?")]}
    headers = {"X-Groundwire-Citations": "footnotes"}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=body, headers=headers, timeout=30)
    assert answer.status_code == 400
    assert "link, number, openai, none" in answer.json()["error"]["message"]


def test_an_upstream_has_a_style_and_a_request_beats_it(config: dict[str, Any], model: ModelServer) -> None:
    upstream = {**config["upstreams"][0], "citations": {"style": "number"}}
    with Groundwire({**config, "upstreams": [upstream], "citations": {"style": "none"}}) as proxy:
        for headers, shown in (({}, "[1]"), ({"X-Groundwire-Citations": "link"}, f"[[1]]({SEA})")):
            model.script(call("web_search", {"query": "sea"}), text("Salty [1]."))
            answer = ask(proxy, [user("Sea?")], headers=headers)
            assert answer["choices"][0]["message"]["content"] == f"Salty {shown}."


def test_every_response_counts_from_one(proxy: Groundwire, model: ModelServer) -> None:
    def respond(**body: Any) -> Any:
        answer = httpx.post(f"{proxy.url}/responses", json={"model": "m", **body}, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def written(response: Any) -> list[str]:
        return [item["content"][0]["text"] for item in response["output"] if item["type"] == "message"]

    model.script(
        Turn(
            text=["First the sea."],
            calls=[("a", "web_search", {"query": "sky"}), ("b", "web_search", {"query": "sea"})],
        ),
        text("Salty [2]."),
    )
    first = respond(input="Sea?")
    assert written(first)[-1] == f"Salty [[1]]({SEA})."
    model.script(text("Blue [1], salty [2]."))
    second = respond(input="Both?", previous_response_id=first["id"])
    assert written(second) == [f"Blue [[1]]({SKY}), salty [[2]]({SEA})."]
    assert [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "assistant"][-1] == (
        "Salty [2]."
    )
