"""Responses that are made in the background, in one process: the work goes on without its client, everybody whose it is
can follow it from any event on, and cancel it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from proxy.serving.followed_events import MOST_FOLLOWED
from tests.e2e.test_mixed_turns import last_read
from tests.e2e.test_responses import LINK, QUESTION, SEARCH, USER, error_of, events, post, respond
from tests.fakes.gated_model import Gate
from tests.fakes.groundwire import Groundwire
from tests.fakes.held_search import HeldSearch
from tests.fakes.model import ModelServer, Turn, text
from tests.unit.responses_scripts import payloads, text_of

HELD: Turn = text("word ", "word ", end="hang", finish=None, usage=None)
RUNNING = ("queued", "in_progress")
Response = dict[str, Any]


def headers_of(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def begin(proxy: Groundwire, input_: Any = QUESTION, *, key: str = "", **fields: Any) -> Response:
    answer = post(proxy, input_, key=key, background=True, **fields)
    assert answer.status_code == 200, answer.text
    response: Response = answer.json()
    assert (response["status"], response["background"], response["output"]) == ("queued", True, [])
    return response


def get(proxy: Groundwire, response_id: str, key: str = "", **params: Any) -> httpx.Response:
    return httpx.get(f"{proxy.url}/responses/{response_id}", params=params, headers=headers_of(key), timeout=30)


def cancel(proxy: Groundwire, response_id: str, key: str = "") -> httpx.Response:
    return httpx.post(f"{proxy.url}/responses/{response_id}/cancel", headers=headers_of(key), timeout=20)


def delete(proxy: Groundwire, response_id: str) -> httpx.Response:
    return httpx.delete(f"{proxy.url}/responses/{response_id}", timeout=20)


def followed(proxy: Groundwire, response_id: str, after: int | None = None, key: str = "") -> list[dict[str, Any]]:
    """Its events until it ends."""
    params = {"stream": "true", **({} if after is None else {"starting_after": after})}
    answer = get(proxy, response_id, key, **params)
    assert answer.status_code == 200, answer.text
    return payloads(answer.content.replace(b": ping\n\n", b""))


def ended(proxy: Groundwire, response_id: str, key: str = "") -> Response:
    """The response when it has ended, which its stream tells."""
    followed(proxy, response_id, key=key)
    response: Response = get(proxy, response_id, key).json()
    assert response["status"] not in RUNNING
    return response


@contextmanager
def listening(
    proxy: Groundwire, response_id: str = "", key: str = "", **fields: Any
) -> Iterator[Iterator[dict[str, Any]]]:
    """Events as they come: of a response that is there, or of one that is asked for here."""
    url, head = f"{proxy.url}/responses", headers_of(key)
    if response_id:
        call = httpx.stream(
            "GET", f"{url}/{response_id}", params={"stream": "true", **fields}, headers=head, timeout=20
        )
    else:
        sent = {"model": "m", "input": QUESTION, "background": True, "stream": True, **fields}
        call = httpx.stream("POST", url, json=sent, headers=head, timeout=20)
    with call as answer:
        assert answer.status_code == 200, answer.read()
        lines = answer.iter_lines()
        yield (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))
        lines.close()  # type: ignore[attr-defined]  # forgotten, it would end the answer


def heard(sent: Iterator[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The next event of this kind."""
    return next(event for event in sent if event["type"] == kind)


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)


DELTA = "response.output_text.delta"


# It goes on


def test_it_is_answered_at_once_and_goes_on(proxy: Groundwire, model: ModelServer) -> None:
    gate = Gate()
    model.script(SEARCH, gate.turn(["Blue "], ["[1]."]))
    first = begin(proxy, metadata={"a": "b"})
    assert get(proxy, first["id"]).json()["status"] in RUNNING
    with listening(proxy, first["id"]) as sent:
        assert heard(sent, DELTA)["delta"] == "Blue "
        assert get(proxy, first["id"]).json()["status"] == "in_progress"
        gate.open()
        whole = heard(sent, "response.completed")["response"]
    assert text_of(whole) == f"Blue {LINK}."
    assert get(proxy, first["id"]).json() == whole
    assert (whole["id"], whole["background"], whole["store"], whole["metadata"]) == (
        first["id"],
        True,
        True,
        {"a": "b"},
    )
    assert last_read(model) == [USER, "assistant - a=web_search", "tool a sky.md"]


def test_the_stream_begins_as_openais(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    sent = events(post(proxy, stream=True, background=True))
    kinds = [(event["type"], event["response"]["status"]) for event in sent if "response" in event]
    assert kinds == [
        ("response.created", "queued"),
        ("response.queued", "queued"),
        ("response.in_progress", "in_progress"),
        ("response.completed", "completed"),
    ]
    assert followed(proxy, sent[0]["response"]["id"]) == sent


def test_a_client_that_leaves_stops_nothing(proxy: Groundwire, model: ModelServer) -> None:
    gate = Gate()
    model.script(gate.turn(["Blue"], ["."]))
    with listening(proxy) as sent:
        id_ = heard(sent, "response.created")["response"]["id"]
        seen = heard(sent, DELTA)["sequence_number"]
    with listening(proxy, id_, starting_after=seen) as sent:
        gate.open()
        first = next(sent)
        assert (first["sequence_number"], first["delta"]) == (seen + 1, ".")
    assert text_of(ended(proxy, id_)) == "Blue."
    assert not model.left.is_set()


def test_a_stream_that_is_not_in_the_background_is_cancelled_as_ever(proxy: Groundwire, model: ModelServer) -> None:
    model.script(HELD)
    with listening(proxy, background=False) as sent:
        heard(sent, DELTA)
    assert model.left.wait(10)


def test_it_is_taken_up_after_every_event(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue", " 😀 ", "[1]", ".\n\n", "Yes."))
    id_ = begin(proxy)["id"]
    ended(proxy, id_)
    whole = followed(proxy, id_)
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
    for number in range(len(whole)):
        assert followed(proxy, id_, number) == whole[number + 1 :]


def test_a_conversation_goes_on_from_it(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue [1]."), text("Yes [1]."))
    one = ended(proxy, begin(proxy)["id"])
    two = ended(proxy, begin(proxy, "Sure?", previous_response_id=one["id"])["id"])
    assert text_of(two) == f"Yes {LINK}."
    before = [USER, "assistant - a=web_search", "tool a sky.md", "assistant Blue [1].", "user Sure?"]
    assert last_read(model) == before
    items = httpx.get(f"{proxy.url}/responses/{two['id']}/input_items").json()["data"]
    assert [item["content"][0]["text"] if isinstance(item["content"], list) else item["content"] for item in items] == [
        "Sure?"
    ]


def test_what_fails_says_why(proxy: Groundwire, model: ModelServer) -> None:
    refused = b'{"error":{"message":"no such thing","type":"x","param":null,"code":"y"}}'
    model.script(Turn(status=400, body=refused))
    sent = followed(proxy, begin(proxy)["id"])
    assert [event["type"] for event in sent][-2:] == ["error", "response.failed"]
    failed = sent[-1]["response"]
    assert (failed["status"], failed["error"]["message"], failed["error"]["code"]) == ("failed", "no such thing", "y")
    assert get(proxy, failed["id"]).json() == failed


def test_what_is_cut_short_is_incomplete(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blu", finish="length"))
    response = ended(proxy, begin(proxy)["id"])
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


# Cancelled


def check_cancelled(proxy: Groundwire, id_: str) -> Response:
    answer = cancel(proxy, id_)
    assert answer.status_code == 200, answer.text
    response: Response = answer.json()
    assert (response["id"], response["status"], response["error"]) == (id_, "cancelled", None)
    assert get(proxy, id_).json() == response
    assert cancel(proxy, id_).json() == response
    last = followed(proxy, id_)[-1]
    assert (last["type"], last["response"]) == ("response.incomplete", response)
    return response


def test_it_is_cancelled_while_it_writes(proxy: Groundwire, model: ModelServer) -> None:
    model.script(HELD)
    id_ = begin(proxy)["id"]
    with listening(proxy, id_) as sent:
        heard(sent, DELTA)
        response = check_cancelled(proxy, id_)
        assert heard(sent, "response.incomplete")["response"]["status"] == "cancelled"
        assert next(sent, None) is None
    assert model.left.wait(10)
    assert [(item["type"], item["status"]) for item in response["output"]] == [("message", "incomplete")]
    proxy.logged("outcome=client_cancelled")


def test_it_is_cancelled_while_the_model_says_nothing(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(pieces=lambda: [60.0], content_type="text/event-stream"))
    id_ = begin(proxy)["id"]
    eventually(lambda: len(model.requests) == 1)
    assert check_cancelled(proxy, id_)["output"] == []
    assert model.left.wait(10)


def test_it_is_cancelled_while_it_searches(config: dict[str, Any], model: ModelServer) -> None:
    with HeldSearch() as engine:
        providers = [{"name": "held", "type": "searxng", "base_url": engine.url, "timeout": 60}]
        with Groundwire({**config, "providers": providers}) as proxy:
            model.script(SEARCH)
            id_ = begin(proxy, tools=[{"type": "web_search"}])["id"]
            assert engine.asked.acquire(timeout=10)
            response = check_cancelled(proxy, id_)
            assert engine.left.acquire(timeout=10)
            assert [(item["type"], item["status"]) for item in response["output"]] == [("web_search_call", "failed")]


def test_what_has_ended_stays_as_it_is(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    response = ended(proxy, begin(proxy)["id"])
    assert cancel(proxy, response["id"]).json() == response


def test_what_was_not_made_in_the_background(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    id_ = respond(proxy)["id"]
    refused = cancel(proxy, id_)
    assert (refused.status_code, error_of(refused)["message"]) == (400, "Cannot cancel a synchronous response.")
    refused = get(proxy, id_, stream="true")
    assert refused.status_code == 400
    assert "`background: true`" in error_of(refused)["message"]
    assert get(proxy, id_, stream="false").status_code == 200


def test_to_delete_it_is_to_cancel_it(proxy: Groundwire, model: ModelServer) -> None:
    model.script(HELD)
    id_ = begin(proxy)["id"]
    with listening(proxy, id_) as sent:
        heard(sent, DELTA)
        assert delete(proxy, id_).json() == {"id": id_, "object": "response", "deleted": True}
    assert model.left.wait(10)
    for answer in (get(proxy, id_), get(proxy, id_, stream="true"), cancel(proxy, id_), delete(proxy, id_)):
        assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")


def test_nobody_goes_on_from_what_has_no_answer(proxy: Groundwire, model: ModelServer) -> None:
    model.script(HELD)
    id_ = begin(proxy)["id"]
    refused = post(proxy, "Sure?", previous_response_id=id_)
    assert (refused.status_code, error_of(refused)["code"]) == (400, "response_not_finished")
    cancel(proxy, id_)
    refused = post(proxy, "Sure?", previous_response_id=id_)
    assert (refused.status_code, error_of(refused)["code"]) == (400, "response_cancelled")
    assert error_of(refused)["param"] == "previous_response_id"


# Refused


@pytest.mark.parametrize("number", ["-1", "x", "1.5", "9" * 400, "1e3", "%00", "+1", "0x1", "١"])
def test_numbers_that_are_none(proxy: Groundwire, model: ModelServer, number: str) -> None:
    model.script(text("Blue."))
    id_ = begin(proxy)["id"]
    refused = httpx.get(f"{proxy.url}/responses/{id_}?stream=true&starting_after={number}", timeout=20)
    assert (refused.status_code, error_of(refused)["param"]) == (400, "starting_after")


def test_a_number_that_no_event_has(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    id_ = begin(proxy)["id"]
    ended(proxy, id_)
    assert followed(proxy, id_, 999_999_999_999_999) == []


@pytest.mark.parametrize("id_", ["resp_nothing", "x", "%2e%2e", "resp_" + "a" * 4000, "%F0%9F%98%80", "a%0d%0ab", "*"])
def test_ids_of_nothing(proxy: Groundwire, id_: str) -> None:
    for answer in (cancel(proxy, id_), get(proxy, id_, stream="true"), get(proxy, id_)):
        assert answer.status_code == 404, answer.text


def test_what_is_wrong_is_said_before_anything_is_begun(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    assert error_of(post(proxy, background=True, store=False))["param"] == "background"
    assert error_of(post(proxy, background="yes"))["param"] == "background"
    assert post(proxy, background=True, previous_response_id="resp_nothing").status_code == 404
    assert model.requests == []


# Limits


ALICE, BOB = "key-of-alice-in-the-test", "key-of-bob-in-the-test"


@pytest.fixture(scope="module")
def limited(config: dict[str, Any]) -> Iterator[Groundwire]:
    keys = [
        {"name": "alice", "key": ALICE, "concurrency": 1, "budget": {"day": {"tokens": 12}}},
        {"name": "bob", "key": BOB, "admin": True},
    ]
    with Groundwire({**config, "server": {"keys": keys, "queue": 0.05, "max_requests": 1}}) as running:
        yield running


@pytest.fixture(scope="module")
def following(config: dict[str, Any]) -> Iterator[Groundwire]:
    keys = [{"name": "alice", "key": ALICE}, {"name": "bob", "key": BOB}]
    with Groundwire({**config, "server": {"keys": keys}}) as running:
        yield running


def elsewhere(proxy: Groundwire, method: str, path: str, key: str) -> tuple[int, str]:
    """How a request is refused that is about a response and for none of its routes."""
    answer = httpx.request(method, f"{proxy.url}/responses/{path}", json={}, headers=headers_of(key), timeout=20)
    return answer.status_code, error_of(answer)["code"]


def test_it_counts_while_it_runs_and_can_be_read_all_the_same(limited: Groundwire, model: ModelServer) -> None:
    gate = Gate()
    model.script(gate.turn(["Blue"], ["."]))
    id_ = begin(limited, key=ALICE)["id"]
    refused = post(limited, key=ALICE)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "too_many_requests")
    refused = post(limited, key=BOB, background=True)
    assert (refused.status_code, error_of(refused)["code"]) == (503, "overloaded")
    for method, path in (("GET", "/cancel"), ("DELETE", "/input_items"), ("POST", "")):  # no routes of ours
        assert elsewhere(limited, method, id_ + path, BOB) == (503, "overloaded")
    with listening(limited, id_, key=ALICE) as sent:
        heard(sent, DELTA)
        for answer in (get(limited, id_, BOB), get(limited, id_, BOB, stream="true"), cancel(limited, id_, BOB)):
            assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")
        gate.open()
        heard(sent, "response.completed")
    # Its tokens are counted, and what they were spent for can still be read.
    eventually(lambda: error_of(post(limited, key=ALICE))["code"] == "budget_exceeded")
    assert text_of(get(limited, id_, ALICE).json()) == "Blue."
    assert cancel(limited, id_, ALICE).json()["status"] == "completed"
    assert elsewhere(limited, "POST", id_, ALICE) == (429, "budget_exceeded"), "it could be forwarded to a model"
    usage = httpx.get(f"{limited.url}/groundwire/usage", headers=headers_of(BOB), timeout=20).json()["data"]
    assert sum(row["output_tokens"] for row in usage if row["key"] == "alice") == 5


def test_nobody_follows_more_than_a_few_at_once(following: Groundwire, model: ModelServer) -> None:
    gate = Gate()
    model.script(gate.turn(["Blue"], ["."]))
    ids = {key: begin(following, key=key)["id"] for key in (ALICE, BOB)}
    with ExitStack() as streams:
        for _ in range(MOST_FOLLOWED):
            heard(streams.enter_context(listening(following, ids[ALICE], key=ALICE)), "response.created")
        refused = get(following, ids[ALICE], ALICE, stream="true")
        assert (refused.status_code, error_of(refused)["code"]) == (429, "too_many_requests")
        assert int(refused.headers["retry-after"]) > 0
        assert get(following, ids[ALICE], ALICE).json()["status"] == "in_progress", "to look at it is no stream"
        with listening(following, ids[BOB], key=BOB) as sent:
            heard(sent, "response.created")
    gate.open()
    for key, id_ in ids.items():
        eventually(lambda key=key, id_=id_: followable(following, id_, key))  # type: ignore[misc]


def followable(proxy: Groundwire, response_id: str, key: str) -> bool:
    answer = get(proxy, response_id, key, stream="true")
    return answer.status_code == 200 and b"response.completed" in answer.content


# Going down


def going(config: dict[str, Any], **server: Any) -> Groundwire:
    return Groundwire({**config, "server": {"lame_duck": 0, **server}})


def test_the_drain_waits_for_it(config: dict[str, Any], model: ModelServer) -> None:
    gate = Gate()
    model.script(gate.turn(["Blue"], ["."]))
    with going(config) as proxy:
        begin(proxy)
        eventually(lambda: len(model.requests) == 1)
        assert proxy.process is not None
        proxy.process.terminate()
        proxy_gone(proxy)
        assert proxy.process.poll() is None
        gate.open()
        assert proxy.process.wait(10) == 0
        assert not model.left.is_set()
        assert "POST /v1/responses" in proxy.logged("output_tokens=5")


def proxy_gone(proxy: Groundwire) -> None:
    """Nobody new is let in any more."""

    def refused() -> bool:
        try:
            httpx.get(f"{proxy.root}/healthz", timeout=5)
        except httpx.TransportError:
            return True
        return False

    eventually(refused)


def test_what_the_drain_leaves_has_failed(config: dict[str, Any], model: ModelServer) -> None:
    model.script(HELD)
    with going(config, drain_timeout=0.2) as proxy, listening(proxy) as sent:
        heard(sent, DELTA)
        assert proxy.process is not None
        proxy.process.terminate()
        failed = heard(sent, "response.failed")["response"]
        assert (failed["status"], failed["error"]["code"]) == ("failed", "shutting_down")
        assert next(sent, None) is None
        assert proxy.process.wait(10) == 0
        assert model.left.wait(10)
