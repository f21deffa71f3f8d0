"""Every citation carries its proof, in each API, streamed and whole, stored and in the terminal; and models that write
no markers get them. The beginning of a conversation stays the same for the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text
from tests.fakes.search import FakeSearxng
from tests.fakes.search_engine import HITS

QUESTION = {"role": "user", "content": "Why is the sky blue?"}
SKY = f"{SITE}sky.md"
SCATTERS = "The sky is blue because air scatters blue light more than red light."
HAIR = "\u200a"
PLAIN = "Air scatters blue light more than red light, so the sky is blue. That is all."
MARKED = f"Air scatters blue light more than red light, so the sky is blue.{HAIR}[[1]]({SKY}) That is all."


def post(proxy: Groundwire, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    answer = httpx.post(f"{proxy.url}{path}", json={"model": "m", **body}, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer


def chat(proxy: Groundwire, *messages: dict[str, Any], **headers: str) -> dict[str, Any]:
    answer: dict[str, Any] = post(proxy, "/chat/completions", {"messages": messages or [QUESTION]}, **headers).json()
    return answer


def proof(annotation: dict[str, Any]) -> dict[str, Any]:
    place = annotation.get("url_citation", annotation)
    return {key: place[key] for key in ("cited_text", "basis", "auto", "unmatched") if key in place}


SEARCHED = [call("web_search", {"query": "sky blue"}), call("open_page", {"url": SKY})]
PROOF = {"cited_text": SCATTERS, "basis": "page", "unmatched": ["1871"]}


def test_chat(proxy: Groundwire, model: ModelServer) -> None:
    model.script(*SEARCHED, text("Known since 1871: air scatters blue light [1]."))
    whole = chat(proxy)
    assert [proof(note) for note in whole["choices"][0]["message"]["annotations"]] == [PROOF]
    assert whole["search_results"][0]["cited_text"] == SCATTERS
    assert whole["search_results"][0]["basis"] == "page"
    model.script(*SEARCHED, text("Known since 1871: air scatters blue light [1]."))
    streamed = post(proxy, "/chat/completions", {"messages": [QUESTION], "stream": True}).text
    last = [json.loads(line[6:]) for line in streamed.splitlines() if "annotations" in line]
    assert [proof(note) for note in last[0]["choices"][0]["delta"]["annotations"]] == [PROOF]


def test_responses_also_when_they_are_read_again_or_built_on(proxy: Groundwire, model: ModelServer) -> None:
    model.script(*SEARCHED, text("Known since 1871: air scatters blue light [1]."))
    made = post(proxy, "/responses", {"input": "Why?", "tools": [{"type": "web_search"}]}).json()
    stored = httpx.get(f"{proxy.url}/responses/{made['id']}").json()
    for response in (made, stored):
        assert [proof(note) for note in response["output"][-1]["content"][0]["annotations"]] == [PROOF]
    model.script(text("As I said in 1871, blue light is scattered by air [1]."))
    later = post(proxy, "/responses", {"input": "And?", "previous_response_id": made["id"]}).json()
    known = {"cited_text": SCATTERS, "basis": "page"}
    assert [proof(note) for note in later["output"][-1]["content"][0]["annotations"]] == [known]


def test_messages(proxy: Groundwire, model: ModelServer) -> None:
    model.script(*SEARCHED, text("Known since 1871: air scatters blue light [1]."))
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    body = {"max_tokens": 99, "messages": [QUESTION], "tools": tools}
    said = post(proxy, "/messages", body).json()["content"][-1]
    assert [proof(citation) for citation in said["citations"]] == [PROOF]


OLD_LETTERS = "On 1 Auguſt 1790 the census began. On 3 APRİL 2021 it counted 5 mıllion people."


def test_letters_that_ignored_case_takes_for_others_do_not_break_an_answer(
    config: dict[str, Any], model: ModelServer, tmp_path: Path
) -> None:
    """ſ, İ and ı in a source: patterns that ignore case take them for s and i, tables of words do not."""
    (tmp_path / "census.md").write_text(f"# Census\n\n{OLD_LETTERS}\n", encoding="utf-8")
    library = {**config["providers"][0], "options": {"path": str(tmp_path)}}
    said = "The census of 1 August 1790 [1]. In April 2021 it counted 5,000,000 people [1]."
    with Groundwire({**config, "providers": [library], "citations": {"auto": "on"}}) as running:
        census = call("open_page", {"url": f"{SITE}census.md"})
        for stream in (False, True):
            model.script(call("web_search", {"query": "census"}), census, text(said, OLD_LETTERS))
            answer = post(running, "/chat/completions", {"messages": [QUESTION], "stream": stream}).text
            assert "[[1]]" in answer
            assert "people." in answer
            assert '"finish_reason":"stop"' in answer.replace(": ", ":")
            assert "unmatched" not in answer


# Models that write no markers


@pytest.fixture(scope="module")
def weak(config: dict[str, Any]) -> Iterator[Groundwire]:
    (given,) = config["upstreams"]
    with Groundwire({**config, "upstreams": [{**given, "tool_calls": "none"}]}) as running:
        yield running


def test_a_model_that_cannot_call_is_cited_all_the_same(weak: Groundwire, model: ModelServer) -> None:
    model.script(text(PLAIN))
    said = chat(weak)["choices"][0]["message"]
    assert said["content"] == MARKED
    assert proof(said["annotations"][0])["auto"] is True
    assert proof(said["annotations"][0])["basis"] == "page"
    place = said["annotations"][0]["url_citation"]
    assert said["content"][place["start_index"] : place["end_index"]] == f"[[1]]({SKY})"


def test_it_reads_what_it_wrote_when_the_answer_comes_back(weak: Groundwire, model: ModelServer) -> None:
    model.script(text(PLAIN))
    said = chat(weak)["choices"][0]["message"]
    model.script(text("You are welcome."))
    chat(weak, QUESTION, said, {"role": "user", "content": "Thanks!"})
    assert [m["content"] for m in model.requests[-1]["messages"] if m["role"] == "assistant"] == [PLAIN]


@pytest.mark.parametrize(
    ("where", "setting", "is_marked"),
    [
        ("all", "on", True),
        ("all", "assist", False),
        ("upstream", "on", True),
        ("upstream", "off", False),
        ("assist", "assist", True),
    ],
)
def test_who_gets_markers(
    config: dict[str, Any], model: ModelServer, where: str, setting: str, is_marked: bool
) -> None:
    (given,) = config["upstreams"]
    policy = {"citations": {"auto": setting}}
    upstream = {**given, **(policy if where == "upstream" else {}), "assist": where == "assist"}
    changed = {**config, "upstreams": [upstream], **(policy if where != "upstream" else {})}
    with Groundwire(changed) as running:
        model.script(*SEARCHED, text(PLAIN))
        assert chat(running)["choices"][0]["message"]["content"] == (MARKED if is_marked else PLAIN)


def test_a_key_may_say_otherwise(config: dict[str, Any], model: ModelServer) -> None:
    keys = [{"name": "a", "key": "sk-a" * 8}, {"name": "b", "key": "sk-b" * 8, "citations": {"auto": True}}]
    with Groundwire({**config, "server": {"keys": keys}}) as running:
        for key, wanted in (("sk-a" * 8, PLAIN), ("sk-b" * 8, MARKED)):
            model.script(*SEARCHED, text(PLAIN))
            said = chat(running, Authorization=f"Bearer {key}")["choices"][0]["message"]["content"]
            assert said == wanted


# What was not read


@pytest.mark.parametrize("is_required", [False, True])
def test_a_marker_on_what_was_not_read(config: dict[str, Any], model: ModelServer, is_required: bool) -> None:
    with FakeSearxng() as engine:
        providers = [{"name": "engine", "type": "searxng", "base_url": engine.url}]
        settings = {"providers": providers, "citations": {"require_read": is_required, "auto": "on"}}
        with Groundwire({**config, **settings}) as running:
            said = (
                "A heat pump moves heat from the cold to the warm side [1]. A heat pump moves heat from cold to warm."
            )
            model.script(call("web_search", {"query": "heat"}), text(said))
            message = chat(running)["choices"][0]["message"]
    if is_required:
        assert (message["content"], message.get("annotations")) == (said, None)
        return
    link = f"[[1]]({HITS[0].url})"
    first, last = message["annotations"]
    assert message["content"] == f"{said.replace('[1]', link)}{HAIR}{link}"
    assert proof(first) == {"cited_text": HITS[0].snippet, "basis": "snippet"}
    assert proof(last) == {**proof(first), "auto": True}


SNIPPET = "A heat pump moves heat from the cold to the warm side [1]."


def test_what_must_be_read_is_said_by_the_upstream_that_answers(config: dict[str, Any], model: ModelServer) -> None:
    (given,) = config["upstreams"]
    gone = {"name": "gone", "base_url": "http://127.0.0.1:9/v1", "models": ["m"], "fallback": [f"{given['name']}/m"]}
    strict = {**given, "citations": {"require_read": True}}
    with FakeSearxng() as engine:
        providers = [{"name": "engine", "type": "searxng", "base_url": engine.url}]
        with Groundwire({**config, "providers": providers, "upstreams": [gone, strict]}) as running:
            model.script(call("web_search", {"query": "heat"}), text(SNIPPET))
            assert chat(running)["choices"][0]["message"]["content"] == SNIPPET


def test_a_hit_is_not_read_by_waiting_for_the_client_s_tools(config: dict[str, Any], model: ModelServer) -> None:
    """The search and the client's call stand in one turn: the answer comes with the next request."""
    clock = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
    with FakeSearxng() as engine:
        providers = [{"name": "engine", "type": "searxng", "base_url": engine.url}]
        settings = {"providers": providers, "citations": {"require_read": True}}
        with Groundwire({**config, **settings}) as running:
            model.script(call("web_search", {"query": "heat"}), call("clock", {}), text(SNIPPET))
            body: dict[str, Any] = {"messages": [QUESTION], "tools": [clock]}
            said = post(running, "/chat/completions", body).json()["choices"][0]["message"]
            (called,) = said["tool_calls"]
            answered = {"role": "tool", "tool_call_id": called["id"], "content": "noon"}
            body["messages"] = [QUESTION, said, answered]
            last = post(running, "/chat/completions", body).json()["choices"][0]["message"]
    assert (last["content"], last.get("annotations")) == (SNIPPET, None)
