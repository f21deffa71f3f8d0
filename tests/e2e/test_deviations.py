"""Every deviation through a real Groundwire to openai-python. The model's first answer is the deviation, its second is
plain; its bytes come whole, in two halves and one by one, and hidden calls one character per delta too. Whatever the
model's server does, the client sees a normal stream, and the model its own valid call again.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.e2e.conftest import SITE
from tests.fakes.deviations import CALLS, DEVIATIONS, WEATHER, Deviation
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-clients/bin/python"
SCRIPT = ROOT / "tests/clients/openai_deviations.py"

Cut = Literal["whole", "halves", "bytes", "letters"]

WAYS: dict[Cut, str] = {"whole": "raw", "halves": "helper", "bytes": "raw", "letters": "helper"}
LINK = f"[[1]]({SITE}sky.md)"
SECOND = text("Blue ", "[1].")
SPENT = 15  # tokens of the second answer
QUESTION = {"role": "user", "content": "Why is the sky blue?"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
EARLIER = [
    {"role": "user", "content": "How is the weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bern"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_0", "content": "It rains."},
    {"role": "assistant", "content": "It rains."},
]
NO_IDS = ("leaks/", "calls/id-missing", "calls/id-empty", "calls/id-null", "calls/groq-failed", "calls/mistralrs")


def cuts_of(deviation: Deviation) -> list[Cut]:
    tagged = deviation.in_text and not deviation.name.endswith("then-call")
    letters: list[Cut] = ["letters"] if deviation.name.startswith("leaks/") or tagged else []
    return ["whole", "halves", "bytes", *letters]


def first_turn(deviation: Deviation, cut: Cut) -> Turn:
    if cut == "letters":
        return text(*deviation.letters(), finish="stop", usage=None)
    return Turn(
        status=deviation.status,
        body=deviation.body,
        content_type=deviation.kind,
        halved=cut == "halves",
        bytewise=cut == "bytes",
    )


class Stage:
    """What the client saw, and what the model was asked, by play. A play is also the name of its model."""

    def __init__(self, record: dict[str, Any]) -> None:
        self._seen: dict[str, Any] = record["seen"]
        self._asked: dict[str, Any] = record["asked"]

    def plays(self, name: str, owner: str) -> Iterator[tuple[Cut, dict[str, Any], list[dict[str, Any]]]]:
        for cut in cuts_of(DEVIATIONS[name]):
            play = play_name(DEVIATIONS[name], owner, cut)
            yield cut, self._seen[play], self._asked[play]


def play_name(deviation: Deviation, owner: str, cut: Cut) -> str:
    return f"{deviation.profile}/{deviation.name}/{owner}/{cut}"


def play_all(config: dict[str, Any]) -> dict[str, Any]:
    """One model server, one Groundwire and one client process for everything."""
    requests: dict[str, Any] = {}
    with ModelServer() as model:
        for deviation in DEVIATIONS.values():
            for owner in ("ours", "theirs") if deviation.has_calls else ("nobody",):
                played = deviation.theirs() if owner == "theirs" else deviation
                for cut in cuts_of(deviation):
                    name = play_name(deviation, owner, cut)
                    model.part(name, first_turn(played, cut), SECOND)
                    messages = [*EARLIER, QUESTION] if deviation.earlier_id else [QUESTION]
                    asked: dict[str, Any] = {
                        "model": name,
                        "messages": messages,
                        "stream_options": {"include_usage": True},
                    }
                    if owner != "ours" or deviation.earlier_id:
                        asked["tools"] = [TOOL]
                    requests[name] = {"way": WAYS[cut], "asked": asked}
        profiles = sorted({deviation.profile for deviation in DEVIATIONS.values()})
        # An error is to be seen as it is: nobody asks again.
        once = {"base_url": model.url, "retries": 0}
        upstreams = [{"name": p, "profile": p, "models": [f"{p}/*"], **once} for p in profiles]
        with Groundwire({**config, "upstreams": upstreams}) as proxy:
            assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes the environment of the real clients"
            env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
            command = [str(PYTHON), str(SCRIPT), proxy.url]
            done = subprocess.run(
                command, input=json.dumps(requests), capture_output=True, text=True, timeout=110, env=env
            )
            assert done.returncode == 0, done.stderr
            assert "Traceback" not in proxy.log.read_text()
        return {"seen": json.loads(done.stdout), "asked": model.asked}


@pytest.fixture(scope="module")
def stage(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Played once in a run of the tests, by whichever worker needs it first."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    record = folder / "deviations.json"
    with (folder / "deviations.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            record.write_text(json.dumps(play_all(config)))
    return Stage(json.loads(record.read_text()))


def named(deviations: list[Deviation]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [deviation.name for deviation in deviations])


ALL = list(DEVIATIONS.values())
WITH_CALLS = [deviation for deviation in ALL if deviation.has_calls]
ANSWERS = [deviation for deviation in ALL if not (deviation.calls or deviation.error or deviation.retried)]


def check_stream(deviation: Deviation, seen: dict[str, Any], *, finish: str, used: int, cut: Cut) -> None:
    """What holds for every answer: one id, one role, one end, one count of tokens, and thinking kept apart."""
    assert seen["error"] is None
    assert len(seen["ids"]) == 1
    assert seen["roles"] == ["assistant"]
    assert seen["finishes"] == [finish]
    assert seen["usages"] == [used]
    if WAYS[cut] == "raw":  # the helper merges lists in its own way
        assert seen["thinking"] == deviation.thinking
    else:
        assert seen["thinking"].keys() == deviation.thinking.keys()


def read(arguments: dict[str, Any] | str) -> dict[str, Any]:
    """Arguments as they may be replayed: what nobody can read is none."""
    return arguments if isinstance(arguments, dict) else {}


@named(WITH_CALLS)
def test_our_tool(stage: Stage, name: str) -> None:
    deviation = DEVIATIONS[name]
    answerable = all(isinstance(given, dict) and given for _, given in deviation.calls)
    pause = "\n\n" if deviation.text and not deviation.text[-1].isspace() else ""
    answer = f"Blue {LINK}." if answerable else "Blue [1]."
    for cut, seen, asked in stage.plays(name, "ours"):
        used = SPENT + (0 if cut == "letters" else deviation.usage)
        check_stream(deviation, seen, finish="stop", used=used, cut=cut)
        assert seen["text"] == deviation.text + pause + answer
        assert seen["calls"] == []
        places = [seen["text"][c["start_index"] : c["end_index"]] for c in seen["citations"]]
        assert places == ([LINK] if answerable else [])
        first, second = asked
        assert second["messages"][: len(first["messages"])] == first["messages"]
        check_replay(deviation, second["messages"], second["messages"][len(first["messages"]) :], answerable)


def check_replay(deviation: Deviation, history: list[Any], turn: list[Any], answerable: bool) -> None:
    """The model's own turn as it gets it back: valid calls, each with its result, and no thinking in the text."""
    assistant, *results = turn
    calls = assistant["tool_calls"]
    functions = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]
    assert functions == [(name, read(given)) for name, given in deviation.calls]
    ids = [call["id"] for message in history for call in message.get("tool_calls") or ()]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert [message["role"] for message in results] == ["tool"] * len(calls)
    assert [message["tool_call_id"] for message in results] == [call["id"] for call in calls]
    if deviation.profile == "mistral" or deviation.name.startswith(NO_IDS):
        assert all(re.fullmatch("[A-Za-z0-9]{9}", call["id"]) for call in calls)
    assert (SITE in results[0]["content"]) == answerable
    assert {key: value for key, value in calls[0].items() if key not in ("id", "type", "function")} == deviation.extra
    words = deviation.text if deviation.kept is None else deviation.kept
    echoed = {} if deviation.in_text else deviation.thinking
    if deviation.profile == "mistral" and echoed:
        thought = {"type": "thinking", "thinking": [{"type": "text", "text": echoed["reasoning_content"]}]}
        assert assistant["content"] == [thought, {"type": "text", "text": words}]
        echoed = {}
    else:
        assert assistant["content"] == (words or None)
    assert {key: value for key, value in assistant.items() if key.startswith("reasoning")} == echoed


@named(WITH_CALLS)
def test_the_clients_tool(stage: Stage, name: str) -> None:
    deviation = DEVIATIONS[name].theirs()
    for cut, seen, asked in stage.plays(name, "theirs"):
        check_stream(deviation, seen, finish="tool_calls", used=0 if cut == "letters" else deviation.usage, cut=cut)
        assert seen["text"] == deviation.text
        assert seen["citations"] == []
        calls = seen["calls"]
        assert [call["index"] for call in calls] == list(range(len(deviation.calls)))
        assert [call["type"] for call in calls] == ["function"] * len(calls)
        for call, (called, given) in zip(calls, deviation.calls, strict=True):
            assert call["name"] == called
            assert given == (json.loads(call["arguments"]) if isinstance(given, dict) else call["arguments"])
        ids = [call["id"] for call in calls] + (["call_0"] if deviation.earlier_id else [])
        assert all(ids)
        assert len(set(ids)) == len(ids)
        assert len(asked) == 1


@named(ANSWERS)
def test_an_answer(stage: Stage, name: str) -> None:
    deviation = DEVIATIONS[name]
    for cut, seen, asked in stage.plays(name, "nobody"):
        check_stream(deviation, seen, finish="stop", used=0 if cut == "letters" else deviation.usage, cut=cut)
        assert (seen["text"], seen["calls"], seen["citations"]) == (deviation.text, [], [])
        assert len(asked) == 1


@named([deviation for deviation in ALL if deviation.error])
def test_an_error(stage: Stage, name: str) -> None:
    deviation = DEVIATIONS[name]
    assert deviation.error is not None
    status, message = deviation.error
    for _, seen, asked in stage.plays(name, "nobody"):
        assert "APIError" in seen["error"]["kinds"]
        assert message in seen["error"]["message"]
        # An error that comes with the first text, in one network read, keeps its status; else 200 has gone out.
        came_later = seen["error"]["status"] is None
        assert seen["text"] == (deviation.text if came_later else "")
        assert seen["error"]["status"] == (None if came_later else status)
        assert deviation.text or not came_later
        assert len(asked) == 1


@named([deviation for deviation in CALLS if deviation.retried])
def test_an_attempt_in_vain_is_asked_for_once_more(stage: Stage, name: str) -> None:
    for cut, seen, asked in stage.plays(name, "nobody"):
        check_stream(DEVIATIONS[name], seen, finish="stop", used=SPENT, cut=cut)
        assert seen["text"] == "Blue [1]."
        assert len(asked) == 2
        assert asked[0] == asked[1]


@named([deviation for deviation in CALLS if deviation.unknown])
def test_a_tool_that_nobody_has(stage: Stage, name: str) -> None:
    for cut, seen, asked in stage.plays(name, "nobody"):
        check_stream(DEVIATIONS[name], seen, finish="stop", used=SPENT, cut=cut)
        assert (seen["text"], seen["calls"]) == ("Blue [1].", [])
        assistant, result = asked[1]["messages"][-2:]
        assert result["tool_call_id"] == assistant["tool_calls"][0]["id"]
        for tool in ("web_search", "open_page", "weather"):
            assert tool in result["content"], "the model reads what there is instead"
