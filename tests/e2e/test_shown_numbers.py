"""The numbers that people see, over several turns: they count from 1 in every answer, whatever the model calls its
sources, and what the model reads of earlier turns stays the same from request to request.
"""

from __future__ import annotations

import json
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


BOTH = Turn(calls=[("a", "web_search", {"query": "sky"}), ("b", "web_search", {"query": "sea"})])
PLACES = {
    "a paragraph": ("The sea is salty [2].\n\n[1] says why.", "The sea is salty {sea}.\n\n{sky} says why."),
    "a comma": (
        "The sea is salty [2]. As for the sky, [1] knows.",
        "The sea is salty {sea}. As for the sky, {sky} knows.",
    ),
    "a first mention": ("[2] says so, [1] does too.", "{sea} says so, {sky} does too."),
    "a list": ("Salty [2].\n\nI read:\n[1] Why the sky is blue", "Salty {sea}.\n\nI read:\n{sky} Why the sky is blue"),
    "code": ("Salty [2]: `x[1]`.\n\n```\n[1] says\n```", "Salty {sea}: `x[1]`.\n\n```\n[1] says\n```"),
    "values": ("Salty [2].\n\nnums: [1]\n\n[1]\n\nx = [1]", "Salty {sea}.\n\nnums: [1]\n\n[1]\n\nx = [1]"),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("place", PLACES)
def test_a_source_has_one_number_wherever_it_stands(
    proxy: Groundwire, model: ModelServer, place: str, stream: bool
) -> None:
    """And the model reads its own numbers again when the answer comes back."""
    said, wanted = PLACES[place]
    shown = wanted.format(sea=f"[[1]]({SEA})", sky=f"[[2]]({SKY})")
    model.script(BOTH, text(*(said[i : i + 3] for i in range(0, len(said), 3))))
    question = {"model": "m", "messages": [user("Sea and sky?")], "stream": stream}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=question, timeout=30)
    pieces = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    chunks = [json.loads(line.removeprefix("data: "))["choices"] for line in pieces] if stream else []
    whole = "".join(choices[0]["delta"].get("content") or "" for choices in chunks if choices)
    assert (whole if stream else answer.json()["choices"][0]["message"]["content"]) == shown

    told = [user("Sea and sky?"), {"role": "assistant", "content": shown}, user("Sure?")]
    model.script(text("Yes."))
    ask(proxy, told)
    read = model.requests[-1]["messages"][1]["content"]
    taken = 1 if place == "values" else 0  # a bare number in prose stays, so that no link may get it
    assert read == wanted.format(sea=f"[{taken + 1}]", sky="[2]")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_source_has_one_number_in_every_dialect(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    said, wanted = PLACES["a paragraph"]
    shown = wanted.format(sea=f"[[1]]({SEA})", sky=f"[[2]]({SKY})")
    for path, body in (
        ("responses", {"input": "Sea and sky?"}),
        ("messages", {"messages": [user("Sea and sky?")], "max_tokens": 99}),
    ):
        model.script(BOTH, text(said))
        answer = httpx.post(f"{proxy.url}/{path}", json={"model": "m", "stream": stream, **body}, timeout=30)
        assert answer.status_code == 200, answer.text
        if stream:
            events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
            deltas = [event["delta"] for event in events if event["type"].endswith("delta") and "delta" in event]
            pieces = [delta if isinstance(delta, str) else delta.get("text") or "" for delta in deltas]
        elif path == "responses":
            pieces = [item["content"][0]["text"] for item in answer.json()["output"] if item["type"] == "message"]
        else:
            pieces = [block.get("text") or "" for block in answer.json()["content"]]
        assert "".join(pieces) == shown


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
