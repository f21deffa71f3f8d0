"""Long conversations by `previous_response_id`: large turns, many turns, deleted turns, and what cannot be kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.test_mixed_turns import last_read
from tests.e2e.test_responses import LINK, QUESTION, SEARCH, USER, WEATHER, error_of, post, respond
from tests.e2e.test_responses_memory import MIXED, get, output, said
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, text
from tests.unit.responses_scripts import text_of

BOTH_WAYS = pytest.mark.parametrize("stream", [True, False])


def image(size: int) -> list[dict[str, Any]]:
    """A question with an image of so many bytes."""
    data = "data:image/png;base64," + "iVBORw0KGgo" * (size * 4 // 3 // 11)
    parts = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": data}]
    return [{"role": "user", "content": parts}]


def images(model: ModelServer) -> int:
    """How many images the model was shown in its last request."""
    contents = [message["content"] for message in model.requests[-1]["messages"]]
    return sum(part["type"] == "image_url" for content in contents if isinstance(content, list) for part in content)


@BOTH_WAYS
def test_a_large_image_is_remembered(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(text("A cat."), text("Sure."))
    one = respond(proxy, image(6_300_000), stream=stream)
    assert one["store"] is True
    two = respond(proxy, "Sure?", stream=stream, previous_response_id=one["id"])
    assert (text_of(two), images(model)) == ("Sure.", 1)
    (item,) = get(proxy, f"{one['id']}/input_items").json()["data"]
    assert len(item["content"][1]["image_url"]) > 8_000_000


def test_a_chain_of_images(proxy: Groundwire, model: ModelServer) -> None:
    last = ""
    for turn in range(1, 11):
        model.script(text("A cat."))
        response = respond(proxy, image(1_500_000), previous_response_id=last or None)
        assert (response["store"], images(model)) == (True, turn)
        last = response["id"]


def test_a_chain_of_many_turns(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue [1]."), *[text(f"Yes [1], {n}.") for n in range(60)])
    last = respond(proxy)["id"]
    for n in range(60):
        response = respond(proxy, f"Sure, {n}?", previous_response_id=last)
        assert text_of(response) == f"Yes {LINK}, {n}."
        last = response["id"]
    turns = [line for n in range(60) for line in (f"user Sure, {n}?", f"assistant Yes [1], {n}.")]
    assert last_read(model) == [USER, "assistant - a=web_search", "tool a sky.md", "assistant Blue [1].", *turns[:-1]]


@pytest.fixture(scope="module")
def roomy(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"max_body": "40MiB"}}) as running:
        yield running


@BOTH_WAYS
def test_what_cannot_be_kept_says_so(roomy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(text("A cat."), text("never"))
    one = respond(roomy, image(20_000_000), stream=stream)
    assert (text_of(one), one["status"], one["store"]) == ("A cat.", "completed", False)
    assert get(roomy, one["id"]).status_code == 404
    refused = post(roomy, "Sure?", previous_response_id=one["id"])
    assert (refused.status_code, error_of(refused)["code"]) == (404, "previous_response_not_found")
    item = post(roomy, [said("user", QUESTION), {"type": "item_reference", "id": one["output"][0]["id"]}])
    assert item.status_code == 404, "none of it is kept"


def test_a_turn_that_cannot_be_kept_leaves_the_chain_before_it_whole(roomy: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."), text("A cat."), text("Sure."))
    one = respond(roomy, "Hi.")
    two = respond(roomy, image(20_000_000), previous_response_id=one["id"])
    assert two["store"] is False
    respond(roomy, "Sure?", previous_response_id=one["id"])
    assert last_read(model) == ["user Hi.", "assistant Hello.", "user Sure?"]
    assert httpx.delete(f"{roomy.url}/responses/{one['id']}").status_code == 200


# Deleted responses


def test_a_deleted_response_is_hidden_and_the_conversation_goes_on(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue [1]."), text("Yes [1]."), text("Really [1]."), text("Still [1]."))
    one = respond(proxy)
    two = respond(proxy, "Sure?", previous_response_id=one["id"])
    other = respond(proxy, "Really?", previous_response_id=one["id"])
    assert httpx.delete(f"{proxy.url}/responses/{one['id']}").status_code == 200
    assert get(proxy, one["id"]).status_code == 404
    assert get(proxy, f"{one['id']}/input_items").status_code == 404
    refused = post(proxy, "And?", previous_response_id=one["id"])
    assert (refused.status_code, error_of(refused)["code"]) == (404, "previous_response_not_found")
    searched = [USER, "assistant - a=web_search", "tool a sky.md", "assistant Blue [1]."]
    assert httpx.delete(f"{proxy.url}/responses/{other['id']}").status_code == 200
    three = respond(proxy, "Still?", previous_response_id=two["id"])
    assert text_of(three) == f"Still {LINK}."
    assert last_read(model) == [*searched, "user Sure?", "assistant Yes [1].", "user Still?"]


def test_results_of_the_clients_tools_stand_with_the_call_of_an_earlier_turn(
    proxy: Groundwire, model: ModelServer
) -> None:
    model.script(MIXED, text("Rain, and blue [1]."), text("As said [1]."))
    one = respond(proxy, tools=[WEATHER])
    two = respond(proxy, output(one), tools=[WEATHER], previous_response_id=one["id"])
    assert httpx.delete(f"{proxy.url}/responses/{one['id']}").status_code == 200
    three = respond(proxy, "Sure?", tools=[WEATHER], previous_response_id=two["id"])
    assert text_of(three) == f"As said {LINK}."
    assert last_read(model) == [
        *(USER, "assistant Wait. a=web_search b=weather", "tool a sky.md", "tool b Rain"),
        *("assistant Rain, and blue [1].", "user Sure?"),
    ]
    sent = [json.dumps(request["messages"][:4]) for request in model.requests[-2:]]
    assert sent[0] == sent[1], "prompt caches hold"
