"""`groundwire ask` as a person types it: in a pipe, with questions from pipes, and in terminals of several sizes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import SITE
from tests.e2e.test_cli import embedded
from tests.fakes.gated_model import Gate
from tests.fakes.groundwire import SCRIPT, config_file, environment, gone, groundwire
from tests.fakes.held_search import HeldSearch
from tests.fakes.model import ModelServer, call, text
from tests.fakes.terminal import Terminal

QUESTION = "Why is the sky blue?"
QUOTE = "The sky is blue because air scatters blue light more than red light."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Path:
    """A config.yaml on embedded parts lies in it."""
    found = tmp_path_factory.mktemp("work")
    config_file(found, embedded(library))
    return found


@pytest.fixture
def scripted(tmp_path: Path, library: Path, model: ModelServer) -> Path:
    """The same with the scripted model."""
    config_file(tmp_path, {**embedded(library), "upstreams": [upstream(model)]})
    return tmp_path


def upstream(model: ModelServer) -> dict[str, Any]:
    return {"name": "scripted", "base_url": model.url, "models": ["*"]}


def piped(folder: Path, given: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPT), "ask", *arguments]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=60, cwd=folder, env=environment(None)
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done


# In a pipe


def test_it_streams_an_answer_and_lists_its_sources(folder: Path) -> None:
    command = [str(SCRIPT), "ask", QUESTION, "-v"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, cwd=folder, env=environment(None), **pipes) as running:
        assert running.stdout is not None
        assert running.stdout.read(4) == "From"
        assert running.poll() is None, "the first words come while the model still writes"
        shown, status = running.communicate(timeout=30)
    assert running.returncode == 0
    assert "more than red light. [1]" in shown
    assert shown.endswith(f"\n\n[1] Why the sky is blue\n    {SITE}sky.md\n    page: “{QUOTE}”\n")
    assert status == "It searched, and the answer cites what was found.\n"


def test_the_passage_is_shown_on_request(folder: Path) -> None:
    shown = groundwire(folder, "ask", QUESTION).stdout
    assert shown.endswith(f"\n\n[1] Why the sky is blue\n    {SITE}sky.md\n")
    assert "\x1b" not in shown


def test_a_real_upstream(scripted: Path, model: ModelServer) -> None:
    model.script(text("From m: hello."))
    assert groundwire(scripted, "ask", "Hi").stdout == "From m: hello.\n"
    assert model.requests[0]["model"] == "m", "the first model that the upstream lists"
    groundwire(scripted, "ask", "Hi", "--model", "vendor/m")
    assert model.requests[1]["model"] == "vendor/m"


@pytest.mark.parametrize("more", [[], ["--model", "m"]])
def test_an_upstream_that_is_not_there(library: Path, tmp_path: Path, more: list[str]) -> None:
    config_file(tmp_path, {**embedded(library), "upstreams": [gone()]})
    done = groundwire(tmp_path, "ask", "Hi", *more, code=1)
    assert "Could not connect to upstream 'gone'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
    failed = groundwire(tmp_path, "ask", "Hi", "--json", *more, code=1)
    assert "Could not connect" in json.loads(failed.stdout)["error"]["message"]
    assert failed.stderr == ""


def test_an_answer_that_breaks_off(scripted: Path, model: ModelServer) -> None:
    model.script(text("It is", end="reset", finish=None, usage=None))
    done = groundwire(scripted, "ask", "Hi", code=1)
    assert done.stdout == "It is\n"
    assert done.stderr.startswith("The answer broke off: ")
    model.script(text("It is", end="reset", finish=None, usage=None))
    shown = json.loads(groundwire(scripted, "ask", "Hi", "--json", code=1).stdout)
    assert (shown["answer"], next(iter(shown))) == ("It is", "error")


# Questions


def test_questions_from_pipes(scripted: Path, model: ModelServer) -> None:
    def asked() -> str:
        content = model.requests[0]["messages"][0]["content"]
        assert isinstance(content, str)
        return content

    model.script(text("Yes."))
    assert piped(scripted, "Is it?\n", "-").stdout == "Yes.\n"
    assert asked() == "Is it?"
    model.script(text("Yes."))
    piped(scripted, "Is it so?\n")
    assert asked() == "Is it so?"
    model.script(text("Yes."))
    piped(scripted, "one\ntwo\n", "Summarise")
    assert asked() == "Summarise\n\none\ntwo"


@pytest.mark.parametrize(("given", "arguments"), [("", ["-"]), (" \n", []), ("", [" "]), ("", [""])])
def test_no_question(folder: Path, given: str, arguments: list[str]) -> None:
    done = piped(folder, given, *arguments, code=2)
    assert done.stderr.startswith("There is no question.")
    assert done.stdout == ""


def test_a_question_that_is_no_text(scripted: Path, model: ModelServer) -> None:
    model.script(text("Yes."))
    command = [str(SCRIPT), "ask", "-"]
    done = subprocess.run(
        command, input=b"\xff\xfe what", capture_output=True, timeout=60, cwd=scripted, env=environment(None)
    )
    assert done.returncode == 0
    too_long = piped(scripted, "a" * ((10 << 20) + 1), "-", code=2)
    assert "longer than 10 MB" in too_long.stderr


# Flags


def test_without_search(scripted: Path, model: ModelServer) -> None:
    model.script(text("By heart."))
    groundwire(scripted, "ask", "Hi", "--no-search")
    assert "tools" not in model.requests[0]
    model.script(text("By heart."))
    groundwire(scripted, "ask", "Hi")
    assert [tool["function"]["name"] for tool in model.requests[0]["tools"]] == ["web_search", "open_page"]


def test_where_search_is_off_it_says_so(tmp_path: Path, library: Path, model: ModelServer) -> None:
    config_file(tmp_path, {**embedded(library), "upstreams": [upstream(model)], "tools": {"mode": "off"}})
    model.script(text("By heart."))
    said = groundwire(tmp_path, "ask", "Hi").stderr
    assert said.startswith("Nothing was searched. Search is switched off: `tools.mode`")
    assert groundwire(tmp_path, "ask", "Hi", "--no-search").stderr == ""
    config_file(tmp_path, {**embedded(library), "upstreams": [upstream(model)], "tools": {"mode": "on_request"}})
    assert groundwire(tmp_path, "ask", "Generate a title for this chat").stderr == ""
    assert "tools" in model.requests[-1], "who types a question here asks for search"


def test_with_another_provider_first(tmp_path: Path, library: Path, model: ModelServer) -> None:
    used = embedded(library)
    (provider,) = used["providers"]
    others = [provider, {**provider, "name": "other"}, {"name": "reader", "type": "direct"}]
    config = {**used, "providers": others, "tools": {"search": ["library"], "read": ["library"]}}
    config_file(tmp_path, {**config, "upstreams": [upstream(model)]})
    for name in ("other", "library"):
        model.script(call("web_search", {"query": "sky"}), text("Blue [1]."))
        shown = json.loads(groundwire(tmp_path, "ask", "Hi", "--json", "--provider", name).stdout)
        assert [search["provider"] for search in shown["searches"]] == [name]
    for name in ("nobody", "reader"):
        done = groundwire(tmp_path, "ask", "Hi", "--provider", name, code=2)
        assert done.stderr == f"There is no search provider '{name}'; valid names: library, other.\n"


def test_as_json(folder: Path) -> None:
    shown = json.loads(groundwire(folder, "ask", QUESTION, "--json").stdout)
    assert list(shown) == ["answer", "model", "citations", "read", "searches", "pages", "usage"]
    (citation, *_) = shown["citations"]
    assert shown["answer"][citation["start"] : citation["end"]] == "[1]"
    assert (citation["url"], citation["title"]) == (SITE + "sky.md", "Why the sky is blue")
    assert (citation["cited_text"], citation["basis"]) == (QUOTE, "page")
    assert (shown["searches"][0]["query"], shown["searches"][0]["provider"]) == (QUESTION, "library")
    assert shown["pages"][0]["url"] == SITE + "sky.md"
    assert shown["model"] == "demo"
    assert shown["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 1}


def test_the_model_is_named_also_where_it_was_asked_last(tmp_path: Path, library: Path, model: ModelServer) -> None:
    config_file(tmp_path, {**embedded(library), "upstreams": [{**upstream(model), "tool_calls": "none"}]})
    model.script(text("sky blue"), text("Blue."))
    assert json.loads(groundwire(tmp_path, "ask", QUESTION, "--json").stdout)["model"] == "m"


def test_what_was_read_and_not_cited(scripted: Path, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sea"}), call("open_page", {"url": SITE + "sea.md"}), text("Salt."))
    shown = groundwire(scripted, "ask", "Why is the sea salty?").stdout
    assert shown == f"Salt.\n\nRead, not cited:\n[1] Why the sea is salty\n    {SITE}sea.md\n"


# In a terminal


@pytest.mark.parametrize(("columns", "lines"), [(120, 40), (20, 10), (300, 60)])
def test_in_a_terminal(folder: Path, columns: int, lines: int) -> None:
    with Terminal([str(SCRIPT), "ask", QUESTION], folder, environment(None), columns=columns, lines=lines) as terminal:
        terminal.until("Searching: ", "Reading: ")
        assert terminal.ended() == 0
        seen = terminal.seen
    words = "".join(seen.text.split())
    assert words.count("Theskyisbluebecauseairscattersbluelightmorethanredlight.[1]") == 1
    assert words.count("[1]Whytheskyisblue") == 1
    assert "Searching" not in words
    assert "Waiting" not in words
    assert seen.cursor[0] == 0
    assert f"\x1b]8;;{SITE}sky.md\x1b\\" in terminal.written


def test_the_status_line_and_the_text(tmp_path: Path, library: Path, model: ModelServer) -> None:
    """With the search held, and then the model: what is on the screen at each moment."""
    gate = Gate()
    model.script(call("web_search", {"query": "deep sky"}), gate.turn(["First block.\n\n", "Second **bl"], ["ock**."]))
    config_file(tmp_path, {**embedded(library), "upstreams": [upstream(model)]})
    with Terminal([str(SCRIPT), "ask", "Hi"], tmp_path, environment(None), columns=60, lines=12) as terminal:
        terminal.until("Second **bl")
        assert terminal.seen.lines == ["First block.", "", "Second **bl"]
        terminal.resize(30, 8)
        gate.open()
        assert terminal.ended() == 0
        assert terminal.seen.lines == ["First block.", "", "Second block."]


def test_who_searches_is_named(tmp_path: Path, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "deep sky"}), text("Never."))
    with HeldSearch() as engine:
        provider = {"name": "web", "type": "searxng", "base_url": engine.url}
        config_file(tmp_path, {"upstreams": [upstream(model)], "providers": [provider]})
        with Terminal([str(SCRIPT), "ask", "Hi"], tmp_path, environment(None), columns=60, lines=12) as terminal:
            terminal.until("Searching: deep sky · web · 0 s", "1 s")
            (line,) = terminal.seen.lines
    assert re.fullmatch(r"Searching: deep sky · web · \d+ s", line)


def test_without_colour(folder: Path) -> None:
    with Terminal([str(SCRIPT), "ask", QUESTION], folder, environment({"NO_COLOR": "1"})) as terminal:
        assert terminal.ended() == 0
        assert not re.search(r"\x1b\[[0-9;]*(?:3|4|9|10)[0-7]m", terminal.written)


def test_an_answer_that_a_terminal_would_obey(scripted: Path, model: ModelServer) -> None:
    model.script(text("\x1b[2J\x1b]0;owned\x07", "a\x9b31m", "b\u202ec"))
    with Terminal([str(SCRIPT), "ask", "Hi"], scripted, environment(None)) as terminal:
        assert terminal.ended() == 0
        assert terminal.seen.lines == ["[2J]0;owneda31mbc"]
        assert "\x1b[2J" not in terminal.written
