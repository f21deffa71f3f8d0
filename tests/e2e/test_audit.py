"""The audit of a running Groundwire: a line for each request with what was searched, opened and cited, whose questions
and answers need a second consent; and `groundwire replay`, which shows it again.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire, config_file, gone, groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.samples import Samples

CLIENT = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))
QUESTION = "Why is the sky blue, asks the patient?"
KEYS = [{"key": "gw-key-of-alice", "name": "alice"}]
ALICE = {"authorization": "Bearer gw-key-of-alice"}
SEARCHED = (
    call("web_search", {"query": "sky blue"}),
    call("open_page", {"url": SITE + "sky.md"}, id="b"),
    text("Air scatters blue light ", "more than red light [1]."),
)


def audited(config: dict[str, Any], file: Path | str, *, contents: bool = False, **more: Any) -> dict[str, Any]:
    return {**config, "server": {"keys": KEYS}, "audit": str(file), "log": {"contents": contents}, **more}


def lines_of(file: Path, count: int = 1) -> list[dict[str, Any]]:
    """As many as there should be: they are written a moment after the answer is sent."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        written = text_of(file)
        if written.count("\n") >= count:
            return [json.loads(line) for line in written.splitlines()]
        time.sleep(0.02)
    raise AssertionError(f"not {count} lines: {text_of(file)}")


def text_of(file: Path) -> str:
    """Nothing while there is no file: between one that was put aside and the next."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def ask(proxy: Groundwire, path: str = "chat/completions", headers: Any = None, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], **fields}
    return CLIENT.post(f"{proxy.url}/{path}", json=body, headers={**ALICE, **(headers or {})})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any], kept: Path) -> Iterator[Groundwire]:
    """With questions and answers."""
    with Groundwire(audited(config, kept, contents=True)) as running:
        yield running


def line_of(kept: Path, answer: httpx.Response) -> dict[str, Any]:
    wanted = answer.headers["x-request-id"]
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for line in text_of(kept).splitlines(keepends=True):
            if wanted in line and line.endswith("\n"):
                return dict(json.loads(line))
        time.sleep(0.02)
    raise AssertionError(f"{wanted} is not in {text_of(kept)}")


# What is in it


def test_a_searched_answer_without_what_people_wrote(config: dict[str, Any], model: ModelServer, file: Path) -> None:
    model.script(*SEARCHED)
    with Groundwire(audited(config, file)) as proxy:
        answer = ask(proxy)
        (line,) = lines_of(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert line["id"] == answer.headers["x-request-id"]
    told = {name: line[name] for name in ("key", "model", "upstream", "search", "reason", "outcome", "citations")}
    assert told == {
        "key": "alice",
        "model": "m",
        "upstream": "scripted",
        "search": "offered",
        "reason": "auto",
        "outcome": "ok",
        "citations": 1,
    }
    assert (line["input_tokens"], line["output_tokens"]) == (30, 15)
    calls = [step for step in line["steps"] if step["kind"] == "provider_called"]
    assert [(step["asked"], step["provider"], step["outcome"]) for step in calls] == [
        ("sky blue", "library", "ok"),
        (SITE + "sky.md", "library", "ok"),
    ]
    assert all(step["bytes"] > 0 for step in calls)
    (cited,) = [step for step in line["steps"] if step["kind"] == "cited"]
    assert (cited["url"], cited["basis"]) == (SITE + "sky.md", "page")
    assert "scatters blue light" in cited["cited_text"]
    assert "question" not in line
    assert "answer" not in line
    assert "patient" not in file.read_text()


BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {},
    "responses": {"input": QUESTION, "messages": None},
    "messages": {"max_tokens": 100},
}


@pytest.mark.parametrize("search", ["on", "off"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", BODIES)
def test_questions_and_answers_where_both_are_wanted(
    proxy: Groundwire, model: ModelServer, kept: Path, path: str, stream: bool, search: str
) -> None:
    """Of every API, searched and not, forwarded and not, streamed and not."""
    model.script(*(SEARCHED if search == "on" else SEARCHED[2:]))
    answer = ask(proxy, path, {"x-groundwire-search": search}, stream=stream, **BODIES[path])
    assert answer.status_code == 200, answer.text
    line = line_of(kept, answer)
    assert line["question"] == QUESTION
    assert line["answer"].startswith("Air scatters blue light more than red light")
    assert ("[1]" in line["answer"]) or path == "messages"


def test_what_has_no_question_or_no_answer(proxy: Groundwire, model: ModelServer, kept: Path) -> None:
    found = CLIENT.post(f"{proxy.url}/search", json={"query": "sky"}, headers=ALICE)
    line = line_of(kept, found)
    assert (line["question"], line["answer"], len(line["searches"])) == (None, None, 1)
    model.script(Turn(status=500, body=b"{}"))
    failed = line_of(kept, ask(proxy))
    assert (failed["question"], failed["answer"], failed["status"]) == (QUESTION, None, 500)


def test_long_texts_are_cut(proxy: Groundwire, model: ModelServer, kept: Path) -> None:
    model.script(text(*["blue " * 1000] * 100))
    answer = ask(proxy, stream=True, messages=[{"role": "user", "content": "sky " * 100_000}])
    line = line_of(kept, answer)
    assert (len(line["question"]), len(line["answer"])) == (200_001, 200_001)
    assert line["question"].endswith("…")


def test_who_is_not_let_in_and_who_only_looks_is_not_in_it(proxy: Groundwire, model: ModelServer, kept: Path) -> None:
    model.script(text("Blue."))
    refused = CLIENT.post(f"{proxy.url}/chat/completions", json={})
    looked = CLIENT.get(f"{proxy.url}/models", headers=ALICE)
    line_of(kept, ask(proxy))
    assert (refused.status_code, looked.status_code) == (401, 200)
    assert refused.headers["x-request-id"] not in kept.read_text()
    assert looked.headers["x-request-id"] not in kept.read_text()


# The file


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    for name in ("no/such/folder/audit.jsonl", "."):
        path = config_file(tmp_path, {"audit": name, "upstreams": [gone()]})
        said = groundwire(tmp_path, "serve", "--config", path, "--port", "0", code=2).stderr
        assert "audit" in said
        assert name in said


def test_it_is_put_aside_when_it_is_full(config: dict[str, Any], model: ModelServer, file: Path) -> None:
    model.script(text("Blue."))
    said = {"file": str(file), "max_size": "4KiB", "keep": 2}
    with Groundwire(audited(config, file, audit=said)) as proxy:
        for _ in range(12):
            line_of(file, ask(proxy))
    names = {path.name for path in file.parent.iterdir()}
    assert names == {"audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"}
    assert all(lines_of(path) for path in file.parent.iterdir())


def test_logrotate(config: dict[str, Any], model: ModelServer, file: Path) -> None:
    model.script(text("Blue."))
    with Groundwire(audited(config, file)) as proxy:
        ask(proxy)
        lines_of(file)
        file.rename(file.with_suffix(".old"))
        assert proxy.process is not None
        os.kill(proxy.process.pid, signal.SIGHUP)
        proxy.logged("SIGHUP: the config was read again")
        ask(proxy)
        lines_of(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(lines_of(file.with_suffix(".old"))) == 1


def test_trouble_with_it_is_said_once_and_counted(config: dict[str, Any], model: ModelServer, tmp_path: Path) -> None:
    model.script(text("Blue."))
    folder = tmp_path / "logs"
    folder.mkdir()
    with Groundwire(audited(config, folder / "audit.jsonl", server={})) as proxy:
        folder.rename(tmp_path / "moved")
        for _ in range(2):
            assert ask(proxy).status_code == 200
        proxy.logged("the audit cannot be written to")
        dropped = 0.0
        end = time.monotonic() + 20
        while dropped < 2 and time.monotonic() < end:
            dropped = Samples(CLIENT.get(proxy.root + "/metrics").content)("groundwire_audit_dropped_total")
        assert dropped == 2
        folder.mkdir()
        ask(proxy)
        proxy.logged("the audit is written to")
        missing, line = lines_of(folder / "audit.jsonl", 2)
        assert proxy.log.read_text().count("cannot be written") == 1
    assert (missing["missing"], line["outcome"]) == (2, "ok")


def test_what_waits_at_the_end_is_written(config: dict[str, Any], model: ModelServer, file: Path) -> None:
    model.script(text("Blue."))
    with Groundwire(audited(config, file, contents=True)) as proxy:
        ids = {ask(proxy).headers["x-request-id"] for _ in range(100)}
        proxy.ended_log()
    assert {line["id"] for line in lines_of(file, 100)} == ids


# Shown again


def test_replay(config: dict[str, Any], model: ModelServer, file: Path, tmp_path: Path) -> None:
    model.script(*SEARCHED)
    with Groundwire(audited(config, file, contents=True)) as proxy:
        known = ask(proxy, stream=True).headers["x-request-id"]
        lines_of(file)
    listed = groundwire(tmp_path, "replay", str(file)).stdout
    head, row = listed.splitlines()
    assert head.split() == ["time", "request", "who", "model", "searches", "outcome"]
    assert row.split()[2:] == [known, "alice", "m", "1", "ok"]
    shown = groundwire(tmp_path, "replay", str(file), known[:10]).stdout
    for words in (
        known,
        "alice asked m at scripted",
        QUESTION,
        "searched  “sky blue”  library: ok, 1 result ",
        f"opened  {SITE}sky.md  library: ok",
        "Air scatters blue light more than red light",
        "[1] Why the sky is blue",
        "page: “",
    ):
        assert words in shown, shown
    assert "not kept" not in shown
    assert json.loads(groundwire(tmp_path, "replay", str(file), known, "--json").stdout) == lines_of(file)[0]


def test_replay_says_what_is_missing_and_why(
    config: dict[str, Any], model: ModelServer, file: Path, tmp_path: Path
) -> None:
    model.script(*SEARCHED)
    with Groundwire(audited(config, file)) as proxy:
        known = ask(proxy).headers["x-request-id"]
        lines_of(file)
    shown = groundwire(tmp_path, "replay", str(file), known).stdout
    assert "The question was not kept: `log.contents` was false" in shown
    assert "The answer was not kept: `log.contents` was false" in shown
    assert "[1] Why the sky is blue" in shown
    assert "scatters blue light" in shown, "the passage was"
