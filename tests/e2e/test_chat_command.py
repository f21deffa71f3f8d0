"""`groundwire chat`, typed in a terminal and piped from a script: the history that the model gets, the commands, and
what ends an answer or the conversation.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import SITE
from tests.e2e.test_cli import embedded
from tests.fakes.gated_model import Gate
from tests.fakes.groundwire import SCRIPT, config_file, environment, gone
from tests.fakes.model import ModelServer, call, text
from tests.fakes.terminal import CTRL_C, CTRL_D, Terminal

CHAT = [str(SCRIPT), "chat"]
PROMPT = "\n> "


@pytest.fixture
def folder(tmp_path: Path, library: Path, model: ModelServer) -> Path:
    upstream = {"name": "scripted", "base_url": model.url, "models": ["*"]}
    config_file(tmp_path, {**embedded(library), "upstreams": [upstream]})
    return tmp_path


def piped(folder: Path, *lines: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        CHAT,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env=environment(None),
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done


def said(request: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in request["messages"]]


def test_line_by_line_from_a_pipe(folder: Path, model: ModelServer) -> None:
    search = call("web_search", {"query": "sky"})
    model.script(search, text("Blue [1]."), text("Yes."))
    done = piped(folder, "Why is the sky blue?", "", "Really?")
    assert done.stdout == f"Blue [1].\n\n[1] Why the sky is blue\n    {SITE}sky.md\nYes.\n"
    assert done.stderr == ""
    assert said(model.requests[2]) == [
        ("user", "Why is the sky blue?"),
        ("assistant", "Blue [1]."),
        ("user", "Really?"),
    ]
    assert "annotations" not in model.requests[2]["messages"][1], "what is ours goes to no upstream"


def test_numbers_go_on_through_the_conversation(folder: Path, model: ModelServer) -> None:
    sky, sea = (call("web_search", {"query": query}, limit_to) for query, limit_to in (("sky", "a"), ("sea", "b")))
    model.script(sky, text("Blue [1]."), sea, text("Salt [2], blue [1]."))
    done = piped(folder, "Why is the sky blue?", "And the sea?", "/sources")
    listed = done.stdout.rpartition("[1] Why the sky is blue")[2]
    assert f"{SITE}sky.md" in listed
    assert f"[2] Why the sea is salty\n    {SITE}sea.md" in listed


def test_errors_do_not_end_it(folder: Path, model: ModelServer) -> None:
    broken = text(status=500, body=b'{"error": {"message": "it hurts"}}')
    model.script(broken, broken, broken, text("Better."))
    done = piped(folder, "One?", "Two?", code=1)
    assert done.stdout == "Better.\n"
    assert "it hurts" in done.stderr
    assert said(model.requests[-1]) == [("user", "Two?")], "a question without an answer is forgotten"


def test_nobody_is_there(tmp_path: Path, library: Path) -> None:
    config_file(tmp_path, {**embedded(library), "upstreams": [gone()]})
    done = piped(tmp_path, "Hi", "/model", "/model other", "/help", code=1)
    assert done.stderr.count("Could not connect to upstream 'gone'") == 2
    assert "/search on|off" in done.stdout


def test_commands(folder: Path, model: ModelServer) -> None:
    model.script(text("By heart."))
    done = piped(folder, "/search off", "/search", "/search maybe", "/sources", "Hi", "/model", "/model vendor/m", "Ho")
    assert done.stderr.splitlines() == [
        "Search is off.",
        "Search is off: /search on or /search off changes it.",
        "Search is off: /search on or /search off changes it.",
    ]
    assert done.stdout.splitlines() == [
        "No answer has cited a source yet.",
        "By heart.",
        "* m",
        "  vendor/m",
        "By heart.",
    ]
    assert [request["model"] for request in model.requests] == ["m", "vendor/m"]
    assert "tools" not in model.requests[0]


def test_what_is_no_command(folder: Path, model: ModelServer) -> None:
    model.script(text("A folder."))
    done = piped(folder, "/etc is what?", " /etc is what?", "/quit", "never asked")
    assert done.stderr == "There is no command /etc: /help lists them.\n"
    assert [said(request) for request in model.requests] == [[("user", "/etc is what?")]]


def test_saving(folder: Path, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky"}), text("Blue [1]."), text("Yes."))
    (folder / "mine.md").write_text("mine")
    lines = ["Why?", "/save", "/save talk.md", "Really?", "/save talk.md", "/save talk.json", "/save mine.md"]
    done = piped(folder, *lines, "/save no/such/talk.md")
    assert (folder / "talk.md").read_text() == (
        f"## Why?\n\nBlue [1].\n\n[1] Why the sky is blue\n    {SITE}sky.md\n\n## Really?\n\nYes.\n"
    )
    kept = json.loads((folder / "talk.json").read_text())["messages"]
    assert [message["content"] for message in kept] == ["Why?", "Blue [1].", "Really?", "Yes."]
    assert kept[1]["annotations"][0]["url_citation"]["url"] == SITE + "sky.md"
    assert (folder / "mine.md").read_text() == "mine"
    assert done.stderr.splitlines() == [
        "Name a file: /save talk.md",
        "Saved to talk.md.",
        "Saved to talk.md.",
        "Saved to talk.json.",
        "mine.md is there already, and not from this conversation: choose another name.",
        "no/such/talk.md cannot be written: No such file or directory.",
    ]


def test_an_unknown_provider(folder: Path) -> None:
    done = subprocess.run(
        [*CHAT, "--provider", "nobody"], input="", capture_output=True, text=True, cwd=folder, env=environment(None)
    )
    assert (done.returncode, done.stderr) == (2, "There is no search provider 'nobody'; valid names: library.\n")


# Typed


def test_typed_in_a_terminal(folder: Path, model: ModelServer) -> None:
    model.script(text("Hello **you**."), text("Good bye."))
    with Terminal(CHAT, folder, environment(None), columns=60) as terminal:
        terminal.until("Ctrl-D ends", PROMPT)
        terminal.press("Hi\n")
        terminal.until("Hello \x1b[1myou", PROMPT)
        terminal.press("\x1b[A")  # the line before, to be edited
        terminal.until("Hi")
        terminal.press(" again\n")
        terminal.until("Good bye.", PROMPT)
        terminal.press(CTRL_D)
        assert terminal.ended() == 0
        seen = [line for line in terminal.seen.lines if line]
    assert seen[2:] == ["> Hi", "Hello you.", "> Hi again", "Good bye.", ">"]
    assert said(model.requests[1])[1:] == [("assistant", "Hello **you**."), ("user", "Hi again")]


def test_ctrl_c_stops_an_answer_and_then_the_conversation(folder: Path, model: ModelServer) -> None:
    model.script(Gate().turn(["It is", " so"], ["never"]), text("Shorter."))
    with Terminal(CHAT, folder, environment(None), columns=60) as terminal:
        terminal.until(PROMPT)
        terminal.press("Tell me\n")
        terminal.until("It is so")
        terminal.press(CTRL_C)
        terminal.until("Stopped.", PROMPT)
        assert model.left.wait(15)
        terminal.press("Shorter\n")
        terminal.until("Shorter.", PROMPT)
        terminal.press_until_ended(CTRL_C)
        assert terminal.ended() == 130
        assert "Traceback" not in terminal.written
        assert terminal.seen.cursor[0] == 0
    assert said(model.requests[1]) == [("user", "Tell me"), ("assistant", "It is so"), ("user", "Shorter")]
