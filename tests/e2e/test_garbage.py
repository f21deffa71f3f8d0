"""What a request leaves to the collector of cycles: nothing. A collection stops all streams for some milliseconds, and
what made it necessary was seen to cost a twentieth of the CPU time of a request.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

REQUESTS = 40
# Runs before the server does: for each signal it collects, and says how much there was.
COUNTS = """
import gc, os, signal

def count(*_):
    with open(os.environ["GARBAGE"], "a") as file:
        file.write(f"{gc.collect()}\\n")

signal.signal(signal.SIGUSR2, count)
"""
ANSWERED = (text("The sky is blue."),)
SEARCHED = (call("web_search", {"query": "sky blue"}), text("The sky is blue [1]."))


class Garbage:
    """`collected()` is how many objects could be freed by nobody else since it was asked last."""

    def __init__(self, file: Path, proxy: Groundwire) -> None:
        self._file = file
        self._proxy = proxy
        self._asked = 0

    def collected(self) -> int:
        self._asked += 1
        assert self._proxy.process is not None
        os.kill(self._proxy.process.pid, signal.SIGUSR2)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            counts = self._file.read_text().splitlines(keepends=True) if self._file.exists() else []
            if len(counts) == self._asked and counts[-1].endswith("\n"):
                return int(counts[-1])
            time.sleep(0.02)
        raise AssertionError("the server did not count")


def ask(client: httpx.Client, proxy: Groundwire, *, stream: bool) -> None:
    body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    answer = client.post(f"{proxy.url}/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    if not stream:  # there the words may lie in several chunks
        assert "The sky is blue" in answer.text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("turns", [ANSWERED, SEARCHED], ids=["answered", "searched"])
def test_requests_leave_no_cycles(
    config: dict[str, Any], model: ModelServer, tmp_path: Path, turns: tuple[Turn, ...], stream: bool
) -> None:
    (tmp_path / "sitecustomize.py").write_text(COUNTS)
    env = {"PYTHONPATH": str(tmp_path), "GARBAGE": str(tmp_path / "counts")}
    with Groundwire(config, env, script=True) as proxy, httpx.Client(timeout=20) as client:
        garbage = Garbage(tmp_path / "counts", proxy)
        for _ in range(3):
            model.script(*turns)
            ask(client, proxy, stream=stream)
        garbage.collected()
        for _ in range(REQUESTS):
            model.script(*turns)
            ask(client, proxy, stream=stream)
        assert garbage.collected() < REQUESTS  # what is done once or now and then may leave some
