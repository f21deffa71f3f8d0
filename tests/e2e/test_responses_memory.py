"""What `/v1/responses` remembers: conversations that go on by an id, by references to items, by echoed items or by the
key in a call id; and what was kept, as its owner and nobody else may read and delete it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.e2e.test_conversations import ROOT, program
from tests.e2e.test_mixed_turns import last_read
from tests.e2e.test_responses import HOSTED, LINK, QUESTION, SEARCH, USER, WEATHER, error_of, post, respond
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text
from tests.fakes.raw_client import exchange, status_of
from tests.unit.responses_scripts import text_of

BOTH_WAYS = pytest.mark.parametrize("stream", [True, False])
MIXED = Turn(text=["Wait."], calls=[*SEARCH.calls, ("b", "weather", {"city": "Bern"})], reasoning=["hm"])
MIXED_READ = [USER, "assistant Wait. a=web_search b=weather", "tool a sky.md", "tool b Rain"]


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def output(response: dict[str, Any]) -> list[dict[str, Any]]:
    """What the client's functions return."""
    called = [item for item in response["output"] if item["type"] == "function_call"]
    return [{"type": "function_call_output", "call_id": item["call_id"], "output": "Rain"} for item in called]


def get(proxy: Groundwire, path: str, key: str = "", **params: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.get(f"{proxy.url}/responses/{path}", params=params, headers=headers, timeout=20)


# Conversations


@BOTH_WAYS
def test_three_turns_by_id(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    sea = Turn(calls=[("c", "web_search", {"query": "sea"})])
    model.script(SEARCH, text("Blue [1]."), text("Yes [1]."), sea, text("Both [1][2]."))
    one = respond(proxy, QUESTION, stream=stream, instructions="Be brief.")
    two = respond(proxy, "Sure?", stream=stream, previous_response_id=one["id"])
    three = respond(proxy, "And the sea?", stream=stream, previous_response_id=two["id"], instructions="Shout.")
    assert [text_of(response) for response in (one, two, three)] == [
        f"Blue {LINK}.",
        f"Yes {LINK}.",
        f"Both {LINK}[[2]]({SITE}sea.md).",
    ]
    assert three["previous_response_id"] == two["id"]
    before = [USER, "assistant - a=web_search", "tool a sky.md", "assistant Blue [1].", "user Sure?"]
    assert last_read(model) == [
        *("system Shout.", *before, "assistant Yes [1].", "user And the sea?"),
        *("assistant - c=web_search", "tool c sea.md"),
    ]
    firsts = [request["messages"][0] for request in model.requests]
    assert [message["content"] for message in firsts if message["role"] == "system"] == ["Be brief."] * 2 + [
        "Shout."
    ] * 2
    (mark,) = two["output"][0]["content"][0]["annotations"]
    assert (mark["url"], mark["title"]) == (SITE + "sky.md", "Why the sky is blue")


@BOTH_WAYS
def test_a_search_that_was_not_shown_comes_back_with_what_was(
    proxy: Groundwire, model: ModelServer, stream: bool
) -> None:
    """By an id, by a reference, or in an echo, edited or not."""
    model.script(Turn(calls=SEARCH.calls, reasoning=["hm"]), text("Blue [1]."), text("Yes [1]."))
    one = respond(proxy, stream=stream)
    *_, answer = one["output"]
    assert [item["type"] for item in one["output"]] == ["reasoning", "message"]
    before = [USER, "assistant - a=web_search", "tool a sky.md", "assistant Blue [1].", "user Sure?"]
    reference = {"type": "item_reference", "id": answer["id"]}
    for items in ([answer], [reference], [{"role": "assistant", **answer}], one["output"]):
        two = respond(proxy, [said("user", QUESTION), *items, said("user", "Sure?")], stream=stream)
        assert last_read(model) == before
        assert text_of(two) == f"Yes {LINK}."
    respond(proxy, "Sure?", stream=stream, previous_response_id=one["id"])
    assert last_read(model) == before
    edited = {**answer, "content": [{"type": "output_text", "text": "Grey."}]}
    respond(proxy, [said("user", QUESTION), edited, said("user", "Sure?")], stream=stream)
    assert last_read(model) == [*before[:3], "assistant Grey.", before[-1]]


def test_the_ai_sdk_refers_to_what_it_was_shown(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue [1]."), text("Salty."))
    script = "node/ai_references.mjs"
    command = [*program(script), str(ROOT / "tests/clients" / script), proxy.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["answers"] == [f"Blue {LINK}.", "Salty."]
    assert "tool-call" not in seen["kinds"], "a tool that nobody declared is an error there"
    assert [item.get("type", "message") for item in seen["input"]] == ["message", "item_reference", "message"]
    assert last_read(model) == [
        *(USER, "assistant - a=web_search", "tool a sky.md", "assistant Blue [1].", "user And the sea?"),
    ]


def test_one_answer_may_be_built_on_twice(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue [1]."), text("Yes."))
    one = respond(proxy)
    for question in ("Sure?", "Really?"):
        respond(proxy, question, previous_response_id=one["id"])
        read = [USER, "assistant - a=web_search", "tool a sky.md", "assistant Blue [1].", f"user {question}"]
        assert last_read(model) == read


def test_a_call_that_nobody_answered_is_left_out(proxy: Groundwire, model: ModelServer) -> None:
    model.script(MIXED, text("Blue [1]."))
    one = respond(proxy, tools=[WEATHER])
    two = respond(proxy, "Never mind.", tools=[WEATHER], previous_response_id=one["id"])
    assert text_of(two) == f"Blue {LINK}."
    assert last_read(model) == [USER, "assistant Wait. a=web_search", "tool a sky.md", "user Never mind."]


def test_a_turn_without_search_forgets_nothing(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue [1]."), text("Sure."), text("As said [1]."))
    one = respond(proxy)
    two = respond(proxy, "Sure?", previous_response_id=one["id"], tools=[WEATHER], tool_choice="none")
    assert last_read(model) == [USER, "assistant Blue [1].", "user Sure?"]
    three = respond(proxy, "Really?", previous_response_id=two["id"])
    assert text_of(three) == f"As said {LINK}."
    searched = ["assistant - a=web_search", "tool a sky.md"]
    assert last_read(model) == [
        *(USER, *searched, "assistant Blue [1].", "user Sure?"),
        *("assistant Sure.", "user Really?"),
    ]


def echoed(response: dict[str, Any], how: str) -> dict[str, Any]:
    """How a client goes on from a response: by its id, by references, or with all of its items."""
    if how == "id":
        return {"previous_response_id": response["id"], "input_": []}
    if how == "references":
        return {
            "input_": [said("user", QUESTION), *({"type": "item_reference", "id": i["id"]} for i in response["output"])]
        }
    return {"input_": [said("user", QUESTION), *response["output"]]}


@BOTH_WAYS
@pytest.mark.parametrize("how", ["id", "references", "items"])
def test_an_answer_is_gone_on_from(proxy: Groundwire, model: ModelServer, how: str, stream: bool) -> None:
    looked = Turn(text=["Let me see."], calls=SEARCH.calls, reasoning=["hm"])
    model.script(looked, text("Blue [1]."), text("As said [1]."))
    one = respond(proxy, stream=stream, tools=[HOSTED])
    sent = echoed(one, how)
    sent["input_"].append(said("user", "Sure?"))
    two = respond(proxy, stream=stream, tools=[HOSTED], **sent)
    assert text_of(two) == f"As said {LINK}."
    read = [USER, "assistant Let me see. a=web_search", "tool a sky.md", "assistant Blue [1].", "user Sure?"]
    assert last_read(model) == read
    assert model.requests[-1]["messages"][1]["reasoning_content"] == "hm"


@BOTH_WAYS
@pytest.mark.parametrize("how", ["id", "references", "items"])
@pytest.mark.parametrize("theirs_first", [False, True])
def test_a_mixed_turn_is_gone_on_from(
    proxy: Groundwire, model: ModelServer, how: str, theirs_first: bool, stream: bool
) -> None:
    turn = Turn(text=MIXED.text, calls=list(reversed(MIXED.calls)) if theirs_first else MIXED.calls, reasoning=["hm"])
    model.script(turn, text("Rain, and blue [1]."))
    one = respond(proxy, stream=stream, tools=[WEATHER])
    sent = echoed(one, how)
    sent["input_"] += output(one)
    two = respond(proxy, stream=stream, tools=[WEATHER], **sent)
    assert text_of(two) == f"Rain, and blue {LINK}."
    calls = ["b=weather a=web_search", "tool b Rain", "tool a sky.md"]
    expected = [USER, f"assistant Wait. {calls[0]}", *calls[1:]] if theirs_first else MIXED_READ
    assert last_read(model) == expected
    assert model.requests[-1]["messages"][1]["reasoning_content"] == "hm"


@pytest.mark.parametrize("how", ["id", "references", "items"])
def test_a_model_that_numbers_its_calls_anew_every_turn(proxy: Groundwire, model: ModelServer, how: str) -> None:
    again = Turn(calls=[("web_search:0", *SEARCH.calls[0][1:]), ("weather:1", "weather", {})])
    model.script(again, again, text("Enough [1]."))
    one = respond(proxy, tools=[WEATHER])
    sent = echoed(one, how)
    sent["input_"] += output(one)
    two = respond(proxy, tools=[WEATHER], **sent)
    more = echoed(two, how)
    behind = more.pop("input_")[0 if how == "id" else 1 :]  # the question stands in front already
    sent = {**more, "input_": [*([] if how == "id" else sent["input_"]), *behind, *output(two)]}
    assert text_of(respond(proxy, tools=[WEATHER], **sent)) == f"Enough {LINK}."
    lines = last_read(model)
    assert [line.split()[0] for line in lines] == ["user", *["assistant", "tool", "tool"] * 2]
    assert sum(line.endswith(" sky.md") for line in lines) == sum(line.endswith(" Rain") for line in lines) == 2
    ids = [line.split()[1] for line in lines if line.startswith("tool")]
    assert len(set(ids)) == 4


def test_a_call_comes_back_by_its_call_id_alone(proxy: Groundwire, model: ModelServer) -> None:
    """As the AI SDK sends it: other items by reference, the call as it stands and without its own id."""
    model.script(MIXED, text("Rain, and blue [1]."))
    one = respond(proxy, tools=[WEATHER])
    items: list[dict[str, Any]] = [said("user", QUESTION)]
    for item in one["output"]:
        bare = {key: item[key] for key in ("type", "call_id", "name", "arguments") if key in item}
        items.append(bare if item["type"] == "function_call" else {"type": "item_reference", "id": item["id"]})
    two = respond(proxy, [*items, *output(one)], tools=[WEATHER])
    assert text_of(two) == f"Rain, and blue {LINK}."
    assert last_read(model) == MIXED_READ


# Texts that are not told one for one


@pytest.mark.parametrize("how", ["id", "references", "items"])
class TestEveryTextStandsOnce:
    def gone_on(self, proxy: Groundwire, model: ModelServer, how: str, one: dict[str, Any], **fields: Any) -> list[str]:
        """What the model reads of an answer when the client goes on from it."""
        sent = echoed(one, how)
        sent["input_"] += [*output(one), said("user", "Sure?")]
        respond(proxy, **sent, **fields)
        return last_read(model)

    def test_blanks_before_a_call_are_no_text(self, proxy: Groundwire, model: ModelServer, how: str) -> None:
        model.script(Turn(text=["\n\n"], calls=SEARCH.calls), text("Blue [1]."), text("Yes."))
        *_, answer, question = self.gone_on(proxy, model, how, respond(proxy))
        assert (answer, question) == ("assistant Blue [1].", "user Sure?")

    def test_what_came_before_a_formatted_answer_is_not_it(
        self, proxy: Groundwire, model: ModelServer, how: str
    ) -> None:
        wanted: dict[str, Any] = {"tools": [HOSTED], "text": {"format": {"type": "json_object"}}}
        looked = Turn(text=["Let me see."], calls=SEARCH.calls)
        model.script(looked, text("I know."), text('{"a": 1}'), text("Hm."), text('{"b": 2}'))
        one = respond(proxy, **wanted)
        assert text_of(one) == '{"a": 1}'
        *_, answer, question = self.gone_on(proxy, model, how, one, **wanted)
        assert (answer, question) == ('assistant {"a": 1}', "user Sure?")

    def test_text_behind_the_clients_call(self, proxy: Groundwire, model: ModelServer, how: str) -> None:
        pieces: list[dict[str, Any]] = [
            {"tool_calls": [{"index": 0, "id": "b", "type": "function", "function": {"name": "weather"}}]}
        ]
        pieces += [{"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}, {"content": "Wait."}]
        frames: list[Any] = [{"choices": [{"index": 0, "delta": piece, "finish_reason": None}]} for piece in pieces]
        frames.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
        body = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
        called = Turn(body=body.encode(), content_type="text/event-stream")
        model.script(SEARCH, called, text("Yes."))
        one = respond(proxy, tools=[WEATHER], stream=True)
        assert self.gone_on(proxy, model, how, one, tools=[WEATHER]) == [
            *(USER, "assistant - a=web_search", "tool a sky.md"),
            *("assistant Wait. b=weather", "tool b Rain", "user Sure?"),
        ]

    def test_sources_listed_behind_a_call(self, footed: Groundwire, model: ModelServer, how: str) -> None:
        looked = Turn(text=["Blue [1]."], calls=[("b", "weather", {})])
        model.script(SEARCH, looked, text("Yes [1]."))
        one = respond(footed, tools=[WEATHER])
        assert text_of(one).startswith(f"Blue {LINK}.\n\nSources:\n")
        assert self.gone_on(footed, model, how, one, tools=[WEATHER]) == [
            *(USER, "assistant - a=web_search", "tool a sky.md"),
            *("assistant Blue [1]. b=weather", "tool b Rain", "user Sure?"),
        ]

    def test_a_model_that_was_reminded_to_search(self, footed: Groundwire, model: ModelServer, how: str) -> None:
        model.script(text("Let me search the web."), text("Blue, I think."), text("Yes."))
        one = respond(footed)
        assert text_of(one) == "Let me search the web.\n\nBlue, I think."
        read = " ".join(self.gone_on(footed, model, how, one))
        assert read.count("Let me search the web.") == read.count("Blue, I think.") == 1


@pytest.fixture(scope="module")
def footed(config: dict[str, Any]) -> Iterator[Groundwire]:
    """Sources are listed below answers, and models are helped along."""
    (given,) = config["upstreams"]
    changed = {**config, "upstreams": [{**given, "assist": True}], "citations": {"footer": True}}
    with Groundwire(changed) as running:
        yield running


# Nothing kept


@BOTH_WAYS
def test_nothing_is_kept_that_should_not_be(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(MIXED, text("Rain, and blue [1]."), text("As said [1]."))
    one = respond(proxy, stream=stream, store=False, tools=[WEATHER])
    assert one["store"] is False
    assert get(proxy, one["id"]).status_code == 404
    refused = post(proxy, "Sure?", previous_response_id=one["id"])
    assert (refused.status_code, error_of(refused)["code"]) == (404, "previous_response_not_found")
    history = [said("user", QUESTION), *one["output"], *output(one)]
    two = respond(proxy, history, stream=stream, store=False, tools=[WEATHER])
    assert text_of(two) == f"Rain, and blue {LINK}.", "the key in the call's id is enough"
    assert last_read(model) == MIXED_READ
    three = respond(
        proxy, [*history, *two["output"], said("user", "Sure?")], stream=stream, store=False, tools=[WEATHER]
    )
    assert text_of(three) == f"As said {LINK}."
    assert last_read(model) == [*MIXED_READ, "assistant Rain, and blue [1].", "user Sure?"]


def test_an_answer_that_was_not_kept_is_echoed(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue [1]."), text("As said [1]."))
    one = respond(proxy, store=False)
    two = respond(proxy, [said("user", QUESTION), *one["output"], said("user", "Sure?")], store=False)
    assert text_of(two) == f"As said {LINK}.", "its links say what its numbers were"
    assert last_read(model) == [USER, "assistant Blue [1].", "user Sure?"]


def test_what_nobody_knows(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("never"))
    missing = post(proxy, previous_response_id="resp_nothing")
    error = error_of(missing)
    assert (missing.status_code, error["code"], error["param"]) == (
        404,
        "previous_response_not_found",
        "previous_response_id",
    )
    item = post(proxy, [said("user", QUESTION), {"type": "item_reference", "id": "msg_nothing"}])
    assert (item.status_code, error_of(item)["param"]) == (404, "input[1].id")
    assert get(proxy, "resp_nothing").status_code == 404
    assert get(proxy, "resp_nothing/input_items").status_code == 404
    assert httpx.delete(f"{proxy.url}/responses/resp_nothing").status_code == 404
    assert model.requests == []


@pytest.mark.parametrize("path", ["resp_1/cancel", "input_tokens", "compact"])
def test_what_is_not_here_is_said_so(proxy: Groundwire, path: str) -> None:
    answer = httpx.post(f"{proxy.url}/responses/{path}", json={"model": "m", "input": QUESTION}, timeout=20)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")


# What was kept


@BOTH_WAYS
def test_a_response_is_read_and_deleted(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(SEARCH, text("Blue [1]."))
    response = respond(proxy, stream=stream, metadata={"a": "b"}, tools=[HOSTED])
    assert get(proxy, response["id"]).json() == response
    deleted = httpx.delete(f"{proxy.url}/responses/{response['id']}")
    assert deleted.json() == {"id": response["id"], "object": "response", "deleted": True}
    assert get(proxy, response["id"]).status_code == 404
    assert httpx.delete(f"{proxy.url}/responses/{response['id']}").status_code == 404
    reference = {"type": "item_reference", "id": response["output"][-1]["id"]}
    assert post(proxy, [said("user", QUESTION), reference]).status_code == 404, "its items are gone too"


def test_the_input_is_listed(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Four."))
    given = [said("user", str(n)) for n in range(4)]
    response = respond(proxy, given)
    path = f"{response['id']}/input_items"

    def listed(**params: Any) -> tuple[list[str], bool]:
        page = get(proxy, path, **params).json()
        assert page["object"] == "list"
        ids = [item["id"] for item in page["data"]]
        assert (page["first_id"], page["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))
        return [item["content"][0]["text"] for item in page["data"]], page["has_more"]

    assert listed() == (["3", "2", "1", "0"], False)
    assert listed(order="asc") == (["0", "1", "2", "3"], False)
    assert listed(order="asc", limit=2) == (["0", "1"], True)
    second = get(proxy, path, order="asc", limit=2).json()["last_id"]
    assert listed(order="asc", limit=2, after=second) == (["2", "3"], False)
    assert listed(after=second) == (["0"], False)
    assert get(proxy, path, after="msg_nothing").status_code == 400


def as_sent(proxy: Groundwire, target: str) -> tuple[int, bytes]:
    """With its escapes as they stand, which client libraries may change."""
    answer = exchange(proxy, f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    return status_of(answer), answer.partition(b"\r\n\r\n")[2]


def test_query_and_path_parameters_are_decoded(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Four."))
    response = respond(proxy, [said("user", str(n)) for n in range(3)])
    ids = [item["id"] for item in get(proxy, f"{response['id']}/input_items").json()["data"]]

    def listed(query: str) -> list[str]:
        page = json.loads(as_sent(proxy, f"/v1/responses/{escaped}/input_items?{query}")[1])
        return [item["id"] for item in page["data"]]

    escaped = "".join(f"%{ord(letter):02X}" for letter in response["id"])
    after = ids[0].replace("_", "%5F")
    assert "%5F" in after
    assert listed(f"after={after}") == ids[1:]
    assert listed(f"%61fter={after}&order=d%65sc") == ids[1:]
    assert listed(f"after=msg_nothing&after={after}") == ids[1:], "of a repeated one the last"
    assert listed(f"limit=%31&after={after}") == ids[1:2]
    assert listed("limit=%C2%B2") == ids, "a digit for people alone is no number"
    status, body = as_sent(proxy, f"/v1/responses/{response['id']}/input_items?after=a%5F+b%FF")
    assert status == 400
    assert "'a_ b\ufffd'" in json.loads(body)["error"]["message"]


def test_what_is_asked_on_top_is_the_only_input(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."), text("Yes."))
    one = respond(proxy)
    two = respond(proxy, "Sure?", previous_response_id=one["id"])
    (item,) = get(proxy, f"{two['id']}/input_items").json()["data"]
    assert item["content"] == [{"type": "input_text", "text": "Sure?"}]


@pytest.fixture(scope="module")
def guarded(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"keys": ["key-of-alice", "key-of-bob"]}}) as running:
        yield running


def test_an_id_alone_opens_nothing(guarded: Groundwire, model: ModelServer) -> None:
    model.script(MIXED, text("Blue [1]."))
    alice, bob = "key-of-alice", "key-of-bob"
    one = respond(guarded, key=alice, tools=[WEATHER])
    assert get(guarded, one["id"], alice).json() == one
    assert get(guarded, one["id"], bob).status_code == 404
    assert get(guarded, f"{one['id']}/input_items", bob).status_code == 404
    headers = {"authorization": f"Bearer {bob}"}
    assert httpx.delete(f"{guarded.url}/responses/{one['id']}", headers=headers).status_code == 404
    stolen = post(guarded, "Sure?", key=bob, previous_response_id=one["id"])
    assert (stolen.status_code, error_of(stolen)["code"]) == (404, "previous_response_not_found")
    for item in one["output"]:
        reference = {"type": "item_reference", "id": item["id"]}
        assert post(guarded, [said("user", QUESTION), reference], key=bob).status_code == 404
    echo = [said("user", QUESTION), *one["output"], *output(one)]
    respond(guarded, echo, key=bob, tools=[WEATHER])
    assert last_read(model) == [USER, "assistant Wait. b=weather", "tool b Rain"]
    assert b"sky.md" not in model.raw[-1]
    two = respond(guarded, output(one), key=alice, tools=[WEATHER], previous_response_id=one["id"])
    assert text_of(two) == f"Blue {LINK}."
    assert last_read(model) == MIXED_READ
