"""Events → Responses: the rules that every stream keeps, however it is cut; that both dialects say the same; and that
openai-python, in a process of its own, reads every stream.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import chat
from proxy.values.events import (
    Begun,
    Citation,
    Event,
    Failed,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
)
from proxy.values.request import ChatRequest
from tests.fakes.model import ModelServer, Turn
from tests.unit.responses_scripts import (
    BROKEN,
    END,
    SCRIPTS,
    SKY,
    SKY_LINK,
    fold,
    messages,
    plain,
    stream,
    text_of,
    wire,
)

PYTHON = Path(__file__).resolve().parents[2] / ".venv-clients/bin/python"


def check(sent: list[dict[str, Any]]) -> None:
    """What openai-python and openai-node enforce, and what the others rely on."""
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    assert sent[0]["type"] == "response.created"
    final = sent[-1]["response"]
    items: list[dict[str, Any]] = []
    done: dict[int, dict[str, Any]] = {}
    texts: dict[int, str] = {}
    parts: set[int] = set()
    for event in sent:
        kind, index = event["type"], event.get("output_index", -1)
        if kind == "response.output_item.added":
            assert index == len(items)
            items.append(event["item"])
        elif index >= 0:
            assert index not in done, "nothing follows a finished item"
            assert event.get("item_id", items[index]["id"]) == items[index]["id"]
        if kind.endswith("part.added"):
            parts.add(index)
        if kind.endswith((".delta", "annotation.added")) and "call" not in items[index]["type"]:
            assert index in parts
        if kind.endswith(".delta"):
            texts[index] = texts.get(index, "") + event["delta"]
        if kind.endswith(("_text.done", "refusal.done", "arguments.done", "input.done")):
            (said,) = (event[name] for name in ("text", "refusal", "arguments", "input") if name in event)
            assert texts.get(index, "") == said
        if kind == "response.output_item.done":
            assert event["item"]["id"] == items[index]["id"]
            done[index] = event["item"]
    assert [item["id"] for item in final["output"]] == [item["id"] for item in items]
    assert sent[-1]["type"] == f"response.{final['status']}"
    if final["status"] != "failed":
        assert [done[i] for i in range(len(items))] == final["output"]
    left = {item["status"] for item in final["output"] if "status" in item} - {"completed", "failed"}
    assert left <= ({"incomplete"} if final["status"] != "completed" else set()), "what is over is not under way"
    for item in messages(final):
        for part in item["content"]:
            for mark in part.get("annotations", ()):
                assert 0 <= mark["start_index"] <= mark["end_index"] <= len(part["text"])


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_stream_keeps_the_rules(script: str) -> None:
    check(stream(SCRIPTS[script]))


@pytest.mark.parametrize("script", SCRIPTS)
def test_cut_anywhere_it_is_the_same(script: str) -> None:
    events = SCRIPTS[script]
    whole = plain(stream(events))
    for cut in range(1, len(events)):
        assert plain(stream(events, (cut,))) == whole
    assert plain(stream(events, tuple(range(1, len(events))))) == whole


@pytest.mark.parametrize("script", SCRIPTS)
def test_folded_it_is_the_final_object(script: str) -> None:
    assert plain(fold(SCRIPTS[script])) == plain(stream(SCRIPTS[script])[-1]["response"])


WORDS = st.text("a b\n😀[é", min_size=1, max_size=6)
ROUND = st.lists(st.one_of(WORDS, WORDS.map(lambda w: ReasoningDelta({"reasoning": w})), st.just(SKY)), max_size=6)


@given(st.lists(ROUND, min_size=1, max_size=4), st.booleans())
def test_any_rounds_keep_the_rules_and_the_text(rounds: list[list[Any]], calls: bool) -> None:
    events: list[Event] = [Begun("m")]
    written = ""
    for number, pieces in enumerate(rounds):
        if number:
            call = ToolStarted(f"c{number}", "web_search", {"query": "q"})
            events += [call, ToolFinished(call.id, "web_search", True, "p", (SKY,))]
        for piece in pieces:
            if isinstance(piece, ReasoningDelta):
                events.append(piece)
                continue
            text = piece if isinstance(piece, str) else SKY_LINK
            events.append(TextDelta(text))
            if piece is SKY:
                events.append(Citation(len(written), len(written) + len(text), SKY))
            written += text
    if calls:
        events += [ToolCallDelta(0, "x", "f", "{}")]
    sent = stream([*events, *END])
    check(sent)
    response = sent[-1]["response"]
    parts = [part for item in messages(response) for part in item["content"]]
    assert "".join("".join(part["text"] for part in parts).split()) == "".join(written.split())
    cited = [p["text"][m["start_index"] : m["end_index"]] for p in parts for m in p["annotations"]]
    assert cited == [SKY_LINK] * sum(isinstance(event, Citation) for event in events)


# Parity

ONLY_HERE = ("refusal", "only searched", "custom", "cut custom call", "tools sought")


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name not in (*BROKEN, *ONLY_HERE)])
def test_both_dialects_say_the_same(script: str) -> None:
    events = SCRIPTS[script]
    response = fold(events)
    whole = json.loads(chat.ChatWriter(ChatRequest({}, b"", "asked")).fold(events))
    answer = whole["choices"][0]["message"]
    assert text_of(response) == (answer["content"] or "")
    cited = [
        (part["text"][mark["start_index"] : mark["end_index"]], mark["url"], mark["title"])
        for item in messages(response)
        for part in item["content"]
        for mark in part["annotations"]
    ]
    marks = [mark["url_citation"] for mark in answer.get("annotations", ())]
    assert cited == [(answer["content"][m["start_index"] : m["end_index"]], m["url"], m["title"]) for m in marks]
    made = [(item["call_id"], item["name"], item["arguments"]) for item in response["output"] if "call_id" in item]
    calls = answer.get("tool_calls", [])
    assert made == [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
    counted = response["usage"]
    for theirs, ours in (("prompt", "input"), ("completion", "output"), ("total", "total")):
        assert counted[f"{ours}_tokens"] == whole["usage"][f"{theirs}_tokens"]


# The real openai-python

CLIENT = """
import json, sys
from openai import OpenAI
seen = {}
for name, url in json.loads(sys.stdin.read()).items():
    one = seen[name] = {"error": None, "raw": None, "text": "", "kinds": [], "final": None}
    client = OpenAI(base_url=url, api_key="k", max_retries=0, timeout=20)
    asked = {"model": "m", "input": "hi"}
    try:
        with client.responses.stream(**asked) as events:
            for event in events:
                one["kinds"].append(event.type)
                one["text"] += event.delta if event.type == "response.output_text.delta" else ""
                if event.type == "response.incomplete":
                    one["final"] = event.response.to_dict()
            if one["final"] is None:
                one["final"] = events.get_final_response().to_dict()
    except Exception as error:
        one["error"] = [type(error).__name__, str(error)]
    try:
        for event in client.responses.create(**asked, stream=True):
            type(event).model_validate(event.to_dict())  # strictly as its types have it
    except Exception as error:
        one["raw"] = [type(error).__name__, str(error)]
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What openai-python's accumulator made of every stream."""
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes the environment of the real clients"
    servers = {name: ModelServer() for name in SCRIPTS}
    try:
        for name, server in servers.items():
            server.__enter__().script(Turn(body=wire(SCRIPTS[name]), content_type="text/event-stream"))
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        urls = json.dumps({name: server.url for name, server in servers.items()})
        done = subprocess.run([PYTHON, "-c", CLIENT], input=urls, capture_output=True, text=True, timeout=100, env=env)
    finally:
        for server in servers.values():
            server.__exit__()
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name not in BROKEN])
def test_openai_python_reads_it(script: str, seen: dict[str, Any]) -> None:
    found = seen[script]
    sent = stream(SCRIPTS[script])
    assert (found["error"], found["raw"]) == (None, None)
    assert found["kinds"] == [event["type"] for event in sent]
    assert found["text"] == "".join(e["delta"] for e in sent if e["type"] == "response.output_text.delta")
    assert plain(found["final"]) == plain(sent[-1]["response"])


@pytest.mark.parametrize("script", BROKEN)
def test_openai_python_raises_what_went_wrong(script: str, seen: dict[str, Any]) -> None:
    error = SCRIPTS[script][-1]
    assert isinstance(error, Failed)
    assert seen[script]["error"] == seen[script]["raw"] == ["APIError", error.error["message"]]
