"""Ctrl-C, pressed at every stage of a command and at moments that a seed chooses: the program ends by itself with 130,
says nothing about it, leaves the line in order, and the model hears that nobody listens any more. Each press waits for
something that was seen; none waits for time to pass.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_cli import embedded
from tests.fakes.egress import Authority
from tests.fakes.gated_model import Gate
from tests.fakes.groundwire import SCRIPT, STRICT, config_file, environment
from tests.fakes.held_search import HeldSearch
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.terminal import CTRL_C, Terminal
from tests.fakes.tls_peer import Behaviour, TlsPeer

SOON = 15.0  # seconds: the machine may be busy, and what is held here is held for ever
ASK = [str(SCRIPT), "ask", "Why is the sky blue?"]


def upstream(model: ModelServer) -> dict[str, Any]:
    return {"name": "scripted", "base_url": model.url, "models": ["*"]}


def interrupted(terminal: Terminal) -> list[str]:
    """What is on the screen in the end."""
    terminal.press(CTRL_C)
    began = time.monotonic()
    assert terminal.ended() == 130, terminal.written
    assert time.monotonic() - began < SOON
    assert "Traceback" not in terminal.written
    assert "KeyboardInterrupt" not in terminal.written
    return terminal.seen.lines


def test_while_the_config_is_read(tmp_path: Path) -> None:
    """A config that nobody writes yet: all is imported, and nothing has begun."""
    os.mkfifo(tmp_path / "config.yaml")
    command = [*ASK, "--config", str(tmp_path / "config.yaml")]
    with Terminal(command, tmp_path, environment(None)) as terminal:
        writing = os.open(tmp_path / "config.yaml", os.O_WRONLY)  # comes back when somebody reads
        assert interrupted(terminal) in ([], ["^C"])
        os.close(writing)


def test_while_a_question_is_waited_for(tmp_path: Path, library: Path) -> None:
    config_file(tmp_path, embedded(library))
    with Terminal([str(SCRIPT), "ask", "-"], tmp_path, environment(None)) as terminal:
        terminal.until("Type the question")
        terminal.press("half a question\n")
        interrupted(terminal)


def test_while_it_searches(tmp_path: Path, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "deep sky"}), text("Never."))
    with HeldSearch() as engine:
        provider = {"name": "web", "type": "searxng", "base_url": engine.url}
        config_file(tmp_path, {"upstreams": [upstream(model)], "providers": [provider]})
        with Terminal(ASK, tmp_path, environment(None)) as terminal:
            terminal.until("Searching: deep sky")
            assert engine.asked.acquire(timeout=SOON)
            assert interrupted(terminal) == []
            assert terminal.seen.cursor[0] == 0
            assert engine.left.acquire(timeout=SOON)


@pytest.mark.parametrize("shown", [["First.\n\n", "Second **bl"], ["- one\n- two\n", "- thr"]])
def test_while_the_answer_streams(tmp_path: Path, library: Path, model: ModelServer, shown: list[str]) -> None:
    model.script(Gate().turn(shown, ["never"]))
    config_file(tmp_path, {**embedded(library), "upstreams": [upstream(model)]})
    with Terminal(ASK, tmp_path, environment(None)) as terminal:
        terminal.until(shown[-1].strip("- "))
        seen = interrupted(terminal)
        assert model.left.wait(SOON)
        assert seen[0].strip("• ") in ("First.", "one")
        assert shown[-1].strip("- ") in seen[-1]
        assert terminal.seen.cursor[0] == 0


def test_while_the_model_says_nothing(tmp_path: Path, library: Path, model: ModelServer) -> None:
    asked = threading.Event()

    def silence() -> Iterator[bytes | float]:
        asked.set()
        while True:
            yield 0.01

    model.script(Turn(pieces=silence))
    config_file(tmp_path, {**embedded(library), "upstreams": [upstream(model)]})
    with Terminal(ASK, tmp_path, environment(None)) as terminal:
        terminal.until("Waiting for m")
        assert asked.wait(SOON)
        assert interrupted(terminal) == []
        assert model.left.wait(SOON)


@pytest.mark.parametrize("behaviour", ["no handshake", "reads nothing"])
def test_while_a_model_behind_tls_takes_no_part(tmp_path: Path, behaviour: Behaviour) -> None:
    authority = Authority.make(tmp_path)
    with TlsPeer(authority.server("127.0.0.1"), behaviour) as peer:
        behind = {"name": "behind", "base_url": f"{peer.url}/v1", "models": ["m"]}
        config_file(tmp_path, {"upstreams": [behind], "network": {"ca_file": str(authority.file)}})
        with Terminal([*ASK, "--model", "m"], tmp_path, environment(STRICT)) as terminal:
            assert peer.reached.wait(SOON)
            interrupted(terminal)


def test_while_the_terminal_takes_nothing(tmp_path: Path, library: Path, model: ModelServer) -> None:
    """More is written than the terminal holds and nobody reads: the program waits inside a write."""
    model.script(text(*["A paragraph of some length, again and again.\n\n"] * 5000, glued=True))
    config_file(tmp_path, {**embedded(library), "upstreams": [upstream(model)]})
    with Terminal(ASK, tmp_path, environment(None)) as terminal:
        terminal.until("A paragraph")
        terminal.press(CTRL_C)
        assert terminal.process.wait(SOON) == 130


def test_in_a_pipe(tmp_path: Path, library: Path, model: ModelServer) -> None:
    model.script(Gate().turn(["Some words"], ["never"]))
    config_file(tmp_path, {**embedded(library), "upstreams": [upstream(model)]})
    with Terminal(["sh", "-c", f"{SCRIPT} ask Hi | cat"], tmp_path, environment(None)) as terminal:
        terminal.until("Some words")
        terminal.press(CTRL_C)
        terminal.ended()
        assert model.left.wait(SOON)
        assert "Traceback" not in terminal.written


@pytest.mark.parametrize("seed", range(8))
def test_at_a_moment_that_a_seed_chooses(tmp_path: Path, library: Path, seed: int) -> None:
    """With the demo model: somewhere between the first character and the last, the sources among them."""
    config_file(tmp_path, embedded(library))
    with Terminal(ASK, tmp_path, environment(None), columns=50) as terminal:
        terminal.until_bytes(random.Random(seed).randrange(1, 2500))
        terminal.press(CTRL_C)
        assert terminal.ended() in (0, 130)
        assert "Traceback" not in terminal.written
        seen = terminal.seen
        assert seen.text.count("The sky is blue because") <= 1
        assert not [line for line in seen.lines if line.startswith(("Searching", "Reading", "Waiting"))]
        assert seen.cursor[0] == 0 or seen.lines[-1] == "^C", "the shell's prompt has a line of its own"
