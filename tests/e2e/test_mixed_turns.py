"""Turns in which the model calls our tools and the client's in one breath, over chat: the client sees its own calls
alone, and when it comes back the model reads everything again, message by message, every call answered exactly once.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, NamedTuple

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text
from tests.fakes.pages import PageServer
from tests.unit.test_turns import assert_valid

Message = dict[str, Any]

SEARCH = ("a", "web_search", {"query": "sky"})
SEA = ("c", "web_search", {"query": "sea"})
WEATHER = ("b", "weather", {"city": "Bern"})
CLOCK: tuple[str, str, object] = ("d", "clock", {})
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("weather", "clock")
]
ASKED: Message = {"role": "user", "content": "Rain in Bern, and why is the sky blue?"}
LINK = f"[[1]]({SITE}sky.md)"
BOTH_WAYS = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture(scope="module")
def pages() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


@pytest.fixture(scope="module")
def reading(config: dict[str, Any], pages: PageServer) -> Iterator[Groundwire]:
    """A Groundwire whose search engine and pages are on loopback, where it can be seen when they are asked."""
    providers = [
        {"name": "engine", "type": "searxng", "base_url": pages.url(""), "private": False},
        {"name": "reader", "type": "direct"},
    ]
    tools = {"allow_networks": ["127.0.0.0/8"], "search": ["engine"], "read": ["reader"]}
    with Groundwire({**config, "providers": providers, "tools": tools}) as running:
        yield running


# A client, and what the model reads of it


class Answer(NamedTuple):
    """What a client makes of an answer."""

    message: Message
    finish: str

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Its own calls: the id without our key, and the name."""
        return [(re.sub(r"_gw\w{12}$", "", c["id"]), c["function"]["name"]) for c in self.message["tool_calls"]]


def ask(
    proxy: Groundwire,
    messages: Sequence[Message],
    *,
    stream: bool = True,
    key: str = "",
    off: bool = False,
    **more: Any,
) -> Answer:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    headers |= {"x-groundwire-search": "off"} if off else {}
    sent = {"model": "m", "messages": list(messages), "tools": TOOLS, "stream": stream, **more}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=sent, headers=headers, timeout=20)
    assert answer.status_code == 200, answer.text
    if not stream:
        choice = answer.json()["choices"][0]
        return Answer(choice["message"], choice["finish_reason"])
    assert answer.text.endswith("data: [DONE]\n\n")
    return assembled([json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")])


def assembled(chunks: Iterable[Any]) -> Answer:
    content, finish = "", ""
    calls: list[Any] = []
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        content += choice["delta"].get("content") or ""
        finish = choice["finish_reason"] or finish
        for piece in choice["delta"].get("tool_calls") or ():
            if piece["index"] == len(calls):
                calls.append({key: piece[key] for key in ("id", "type", "function")})
            else:
                calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    called = {"tool_calls": calls} if calls else {}
    return Answer({"role": "assistant", "content": content or None, **called}, finish)


def ran(answer: Answer, *only: str) -> list[Message]:
    """The results of the client's calls, or of those it cared to run."""
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": f"{call['function']['name']} says yes"}
        for call in answer.message["tool_calls"]
        if not only or call["function"]["name"] in only
    ]


def read(messages: Iterable[Message]) -> list[str]:
    """A history in short, a line for each message; what a search found is told by its first page."""
    lines = []
    for message in messages:
        content = message.get("content") or "-"
        found = re.search(rf"{re.escape(SITE)}(\S+)", content) if message["role"] == "tool" else None
        calls = [f"{call['id']}={call['function']['name']}" for call in message.get("tool_calls") or ()]
        names = [message["tool_call_id"]] if message["role"] == "tool" else []
        lines.append(" ".join([message["role"], *names, found[1] if found else content, *calls]))
    return lines


def last_read(model: ModelServer) -> list[str]:
    for request in model.requests:
        assert_valid(request["messages"])
    return read(model.requests[-1]["messages"])


USER = f"user {ASKED['content']}"
RESULTS = {"a": "tool a sky.md", "b": "tool b weather says yes", "c": "tool c sea.md", "d": "tool d clock says yes"}


# One mixed turn


@BOTH_WAYS
@pytest.mark.parametrize(
    "calls",
    [
        [SEARCH, WEATHER],
        [WEATHER, SEARCH],
        [SEARCH, WEATHER, SEA, CLOCK],
        [WEATHER, SEARCH, CLOCK, SEA],
        [WEATHER, CLOCK, SEARCH, SEA],
    ],
    ids=lambda calls: "".join(call[0] for call in calls),
)
def test_the_turn_is_put_back_in_its_order(
    proxy: Groundwire, model: ModelServer, calls: list[tuple[str, str, object]], stream: bool
) -> None:
    model.script(Turn(calls=calls), text("Yes, and blue [1]."))
    seen = ask(proxy, [ASKED], stream=stream)
    assert seen.finish == "tool_calls"
    assert seen.calls == [(id_, name) for id_, name, _ in calls if name != "web_search"]
    assert len({call["id"][-12:] for call in seen.message["tool_calls"]}) == 1, "one key for the whole turn"
    done = ask(proxy, [ASKED, seen.message, *ran(seen)], stream=stream)
    assert (done.finish, done.message["content"]) == ("stop", f"Yes, and blue {LINK}.")
    called = " ".join(f"{id_}={name}" for id_, name, _ in calls)
    assert last_read(model) == [USER, f"assistant - {called}", *(RESULTS[id_] for id_, _, _ in calls)]
    assert not [raw for raw in model.raw if b"_gw" in raw]


@BOTH_WAYS
def test_rounds_that_only_searched_come_back_too(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    searched = Turn(text=["Let me see."], calls=[SEARCH], reasoning=["hm"])
    model.script(searched, Turn(text=["And the rain."], calls=[WEATHER]), text("Blue [1]."))
    seen = ask(proxy, [ASKED], stream=stream)
    assert seen.message["content"] == "Let me see.\n\nAnd the rain."
    assert seen.calls == [("b", "weather")]
    done = ask(proxy, [ASKED, seen.message, *ran(seen)], stream=stream)
    assert done.message["content"] == f"Blue {LINK}."
    assert last_read(model) == [
        USER,
        "assistant Let me see. a=web_search",
        RESULTS["a"],
        "assistant And the rain. b=weather",
        RESULTS["b"],
    ]
    assert model.requests[-1]["messages"][1]["reasoning_content"] == "hm"
    assert model.requests[-1]["messages"][:3] == model.requests[1]["messages"], "the prefix stays the same"


def test_no_hidden_call_no_key_is_needed(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(calls=[WEATHER]), text("Yes."))
    seen = ask(proxy, [ASKED])
    ask(proxy, [ASKED, seen.message, *ran(seen)])
    assert last_read(model) == [USER, "assistant - b=weather", RESULTS["b"]]


# Long histories


def test_three_mixed_turns_in_one_history(proxy: Groundwire, model: ModelServer) -> None:
    model.script(
        Turn(calls=[SEARCH, WEATHER]),
        text("Blue [1]."),
        Turn(calls=[("e", "clock", {}), SEA]),
        text("Salty [2]."),
        Turn(calls=[("f", "web_search", {"query": "green tea"}), ("g", "weather", {})]),
        text("All of it [1][2][3]."),
    )
    history: list[Message] = []
    for question in ("One?", "Two?", "Three?"):
        history.append({"role": "user", "content": question})
        seen = ask(proxy, history)
        history += [seen.message, *ran(seen)]
        history.append(ask(proxy, history).message)
    places = ("sky.md", "sea.md", "tea%20%28green%29.md")
    marks = [f"[[{n}]]({SITE}{name})" for n, name in enumerate(places, 1)]
    assert history[-1]["content"] == f"All of it {''.join(marks)}."
    assert last_read(model) == [
        *("user One?", "assistant - a=web_search b=weather", RESULTS["a"], RESULTS["b"], "assistant Blue [1]."),
        *("user Two?", "assistant - e=clock c=web_search", "tool e clock says yes", RESULTS["c"]),
        *("assistant Salty [2].", "user Three?", "assistant - f=web_search g=weather"),
        *("tool f tea%20%28green%29.md", "tool g weather says yes"),
    ]


def test_a_model_that_numbers_its_calls_anew_every_turn(proxy: Groundwire, model: ModelServer) -> None:
    again = Turn(calls=[("functions.web_search:0", *SEARCH[1:]), ("functions.weather:1", *WEATHER[1:])])
    model.script(again, again, again, text("Enough [1]."))
    history = [ASKED]
    keys = set[str]()
    for _ in range(3):
        seen = ask(proxy, history)
        keys |= {call["id"][-12:] for call in seen.message["tool_calls"]}
        history += [seen.message, *ran(seen)]
    assert len(keys) == 3
    assert ask(proxy, history).message["content"] == f"Enough {LINK}."
    lines = last_read(model)
    calls = [call["id"] for message in model.requests[-1]["messages"] for call in message.get("tool_calls") or ()]
    assert len(calls) == len(set(calls)) == 6
    assert [line.split()[0] for line in lines] == ["user", *["assistant", "tool", "tool"] * 3]
    assert sum("sky.md" in line for line in lines) == sum("weather says yes" in line for line in lines) == 3


# Clients that do as they like


def mixed(proxy: Groundwire, model: ModelServer, *calls: tuple[str, str, object], **more: Any) -> Answer:
    """A first turn with these calls and some words before them; the model answers all that follows."""
    model.script(Turn(text=["Wait."], calls=calls or (SEARCH, WEATHER, CLOCK)), text("Done [1]."))
    return ask(proxy, [ASKED], **more)


def test_a_result_that_is_missing_takes_its_call_along(proxy: Groundwire, model: ModelServer) -> None:
    seen = mixed(proxy, model)
    done = ask(proxy, [ASKED, seen.message, *ran(seen, "clock")])
    assert done.message["content"] == f"Done {LINK}."
    assert last_read(model) == [USER, "assistant Wait. a=web_search d=clock", RESULTS["a"], RESULTS["d"]]


def test_no_result_at_all_leaves_ours(proxy: Groundwire, model: ModelServer) -> None:
    seen = mixed(proxy, model)
    ask(proxy, [ASKED, seen.message, {"role": "user", "content": "Never mind."}])
    assert last_read(model) == [USER, "assistant Wait. a=web_search", RESULTS["a"], "user Never mind."]


def test_a_text_that_was_edited_stays_edited(proxy: Groundwire, model: ModelServer) -> None:
    seen = mixed(proxy, model)
    ask(proxy, [ASKED, {**seen.message, "content": "Hold on."}, *ran(seen)])
    called = "a=web_search b=weather d=clock"
    assert last_read(model) == [USER, f"assistant Hold on. {called}", *(RESULTS[id_] for id_ in "abd")]


def test_a_call_that_was_edited_away_is_gone(proxy: Groundwire, model: ModelServer) -> None:
    seen = mixed(proxy, model)
    fewer = {**seen.message, "tool_calls": seen.message["tool_calls"][:1]}
    ask(proxy, [ASKED, fewer, *ran(seen)])
    assert last_read(model) == [USER, "assistant Wait. a=web_search b=weather", RESULTS["a"], RESULTS["b"]]


def test_a_conversation_that_forks(proxy: Groundwire, model: ModelServer) -> None:
    seen = mixed(proxy, model, SEARCH, WEATHER)
    turn = [USER, "assistant Wait. a=web_search b=weather", RESULTS["a"]]
    for said in ("rain", "sun"):
        ask(proxy, [ASKED, seen.message, {**ran(seen)[0], "content": said}])
        assert last_read(model) == [*turn, f"tool b {said}"]
    other = [{"role": "user", "content": "Elsewhere:"}, seen.message, *ran(seen), ASKED, seen.message, *ran(seen)]
    ask(proxy, other)
    assert last_read(model) == ["user Elsewhere:", *turn[1:], RESULTS["b"], *turn, RESULTS["b"]]


def test_the_same_history_twice_at_once(proxy: Groundwire, model: ModelServer) -> None:
    seen = mixed(proxy, model, SEARCH, WEATHER)
    history = [ASKED, seen.message, *ran(seen)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda stream: ask(proxy, history, stream=stream), (True, False)))
    assert [answer.message["content"] for answer in answers] == [f"Done {LINK}."] * 2
    _, one, two = model.requests
    assert one["messages"] == two["messages"]
    assert last_read(model) == [USER, "assistant Wait. a=web_search b=weather", RESULTS["a"], RESULTS["b"]]


# What is not known any more, or not to everybody


def test_a_store_that_forgot(proxy: Groundwire, reading: Groundwire, model: ModelServer) -> None:
    """Another process with a memory of its own: as after a restart."""
    seen = mixed(proxy, model, SEARCH, WEATHER)
    done = ask(reading, [ASKED, seen.message, *ran(seen)])
    assert done.message["content"] == "Done [1].", "nobody knows what that was"
    assert last_read(model) == [USER, "assistant Wait. b=weather", RESULTS["b"]]


def test_another_callers_turn_stays_closed(config: dict[str, Any], model: ModelServer) -> None:
    with Groundwire({**config, "server": {"keys": ["key-of-alice", "key-of-bob"]}}) as proxy:
        seen = mixed(proxy, model, SEARCH, WEATHER, key="key-of-alice")
        history = [ASKED, seen.message, *ran(seen)]
        assert ask(proxy, history, key="key-of-bob").message["content"] == "Done [1]."
        assert last_read(model) == [USER, "assistant Wait. b=weather", RESULTS["b"]]
        assert b"sky.md" not in model.raw[-1]
        assert ask(proxy, history, key="key-of-alice").message["content"] == f"Done {LINK}."
        assert last_read(model) == [USER, "assistant Wait. a=web_search b=weather", RESULTS["a"], RESULTS["b"]]


@pytest.mark.parametrize("choice", ["none", "off"])
def test_where_search_is_not_wanted_nothing_of_ours_stands(proxy: Groundwire, model: ModelServer, choice: str) -> None:
    seen = mixed(proxy, model, SEARCH, WEATHER)
    more: dict[str, Any] = {"off": True} if choice == "off" else {"tool_choice": "none"}
    done = ask(proxy, [ASKED, seen.message, *ran(seen)], **more)
    assert done.message["content"] == "Done [1]."
    assert last_read(model) == [USER, "assistant Wait. b=weather", RESULTS["b"]]
    assert model.requests[-1]["tools"] == TOOLS


def test_a_server_whose_mode_is_off_changes_nothing(
    proxy: Groundwire, config: dict[str, Any], model: ModelServer
) -> None:
    seen = mixed(proxy, model, SEARCH, WEATHER)
    history = [ASKED, seen.message, *ran(seen)]
    with Groundwire({**config, "tools": {"mode": "off"}}) as quiet:
        assert ask(quiet, history).message["content"] == "Done [1]."
    assert model.requests[-1]["messages"] == history, "its ids fit each other, and nothing is ours to change there"


# When things happen


def opened(proxy: Groundwire, sent: dict[str, Any]) -> socket.socket:
    """A streamed request over a bare socket, to look at what comes when."""
    host, port = proxy.root.removeprefix("http://").split(":")
    data = json.dumps({"model": "m", "tools": TOOLS, "stream": True, **sent}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(f"{head}Connection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def heard(connection: socket.socket, patience: float) -> bytes:
    """All that comes until the end, or until nothing has come for so long."""
    connection.settimeout(patience)
    parts = []
    with suppress(TimeoutError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_the_end_waits_for_our_tool(reading: Groundwire, pages: PageServer, model: ModelServer) -> None:
    asked, gate = threading.Event(), threading.Event()

    def slow() -> Iterator[bytes]:
        asked.set()
        assert gate.wait(10)
        story = b"<p>Tides follow the moon, and the moon pulls the sea towards it every day.</p>" * 8
        yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
        yield b"<html><title>Tides</title><body><article>%b</article></body></html>" % story

    pages.raw("/slow", slow)
    question = {"role": "user", "content": f"Read {pages.url('/slow')}."}
    model.script(Turn(calls=[WEATHER, ("p", "open_page", {"url": pages.url("/slow")})]), text("The moon [1]."))
    with closing(opened(reading, {"messages": [question]})) as connection:
        assert asked.wait(5)
        early = heard(connection, 0.3)
        assert b"Bern" in early
        assert b'"finish_reason":"tool_calls"' not in early
        gate.set()
        late = heard(connection, 10)
    lines = [line for line in (early + late).decode().splitlines() if line.startswith("data: {")]
    answer = assembled(json.loads(line[6:]) for line in lines)
    assert answer.finish == "tool_calls"
    done = ask(reading, [question, answer.message, *ran(answer)])
    assert done.message["content"] == f"The moon [[1]]({pages.url('/slow')})."
    assert "moon pulls the sea" in model.requests[-1]["messages"][3]["content"]


def test_ours_run_while_theirs_are_written(reading: Groundwire, pages: PageServer, model: ModelServer) -> None:
    asked = threading.Event()

    def results() -> Iterator[bytes]:
        asked.set()
        yield b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"results": []}'

    pages.raw("*", results)
    model.script(Turn(calls=[SEARCH, WEATHER], finish=None, usage=None, end="hang"))
    with closing(opened(reading, {"messages": [ASKED]})):
        assert asked.wait(5), "the model's stream has not ended, and will not"
        assert not model.left.is_set()
    assert model.left.wait(5)


# Fields


def test_one_call_at_a_time(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(calls=[SEARCH]), Turn(calls=[WEATHER]), text("Blue [1]."))
    seen = ask(proxy, [ASKED], parallel_tool_calls=False)
    done = ask(proxy, [ASKED, seen.message, *ran(seen)], parallel_tool_calls=False)
    assert done.message["content"] == f"Blue {LINK}."
    assert [request["parallel_tool_calls"] for request in model.requests] == [False] * 3
    called = ["assistant - a=web_search", RESULTS["a"], "assistant - b=weather", RESULTS["b"]]
    assert last_read(model) == [USER, *called]


def test_limits_go_up_unchanged_with_every_round(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(calls=[SEARCH]), Turn(calls=[SEA, WEATHER]), text("Blue [1]."))
    limits: dict[str, Any] = {"max_tokens": 77, "stop": ["END", "\n\n\n"]}
    seen = ask(proxy, [ASKED], **limits)
    ask(proxy, [ASKED, seen.message, *ran(seen)], **limits)
    assert [{key: request[key] for key in limits} for request in model.requests] == [limits] * 3
    called = ["assistant - a=web_search", RESULTS["a"], "assistant - c=web_search b=weather", RESULTS["c"]]
    assert last_read(model) == [USER, *called, RESULTS["b"]]


@BOTH_WAYS
def test_a_format_a_search_and_a_client_tool(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    formatted = '{"why": "scattering [1]", "rain": true}'
    model.script(Turn(text=["Hm."], calls=[SEARCH, WEATHER]), text("I know enough."), text(formatted))
    wanted: dict[str, Any] = {"web_search_options": {}, "response_format": {"type": "json_object"}, "stream": stream}
    seen = ask(proxy, [ASKED], **wanted)
    assert seen.message["content"] is None, "text of a round is not the answer"
    done = ask(proxy, [ASKED, seen.message, *ran(seen)], **wanted)
    assert (done.finish, done.message["content"]) == ("stop", formatted)
    assert [request.get("response_format") for request in model.requests] == [None, None, {"type": "json_object"}]
    turn = [USER, "assistant Hm. a=web_search b=weather", RESULTS["a"], RESULTS["b"]]
    assert last_read(model) == turn
    assert read(model.requests[1]["messages"]) == turn
