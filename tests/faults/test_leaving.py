"""Rows 61 to 64: the client leaves, in every phase of an answer and on both roads. Whatever was done for it is given
up, and the log says so once.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import eventually
from tests.fakes.model import USAGE, ModelServer, Turn, call, text
from tests.fakes.pages import PageServer
from tests.fakes.samples import Samples
from tests.faults.asking import QUESTION, ask, road_headers
from tests.faults.outcomes import KEY, figure, outcome
from tests.faults.table import BOTH, SEARCHED, fault

SOON = 10.0  # seconds; it is done within one, unless the machine is busy with other things
BOTH_FORMS = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@pytest.fixture(scope="module")
def pages() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any], pages: PageServer) -> Iterator[Groundwire]:
    """One that may open pages of loopback, and whose second search engine is on the server of those pages."""
    (upstream,) = config["upstreams"]
    changed = {
        **config,
        "upstreams": [{**upstream, "api_key": KEY, "models": ["*"]}],
        "providers": [
            *config["providers"],
            {"name": "reader", "type": "direct"},
            {"name": "engine", "type": "searxng", "base_url": pages.url("")},
        ],
        "tools": {"allow_networks": ["127.0.0.0/8"], "search": ["engine"], "read": ["library", "reader"]},
    }
    with Groundwire(changed) as running:
        yield running


@contextmanager
def asking(proxy: Groundwire, road: str, **fields: Any) -> Iterator[socket.socket]:
    """A question over a bare socket, hung up on behind the block."""
    host, port = proxy.root.removeprefix("http://").split(":")
    sent = json.dumps({"messages": [QUESTION], **fields}).encode()
    said = {"Host": host, "Content-Type": "application/json", "Content-Length": len(sent), "Connection": "close"}
    said |= road_headers(road)
    head = "POST /v1/chat/completions HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in said.items())
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode() + b"\r\n" + sent)
        yield connection


def leave(
    proxy: Groundwire, road: str, model: str, *, after: Callable[[], object] | bytes, stream: bool, **more: Any
) -> None:
    """Asks and hangs up: after some bytes were seen, or when something else has happened."""
    with asking(proxy, road, model=model, stream=stream, **more) as connection:
        if callable(after):
            after()
            return
        seen = b""
        while after not in seen:
            part = connection.recv(65536)
            assert part, seen
            seen += part


def asked(model: ModelServer) -> Callable[[], object]:
    return lambda: eventually(lambda: model.requests)


@fault(61, *BOTH)
def test_in_the_middle_of_a_stream(proxy: Groundwire, model: ModelServer, road: str) -> None:
    name = f"middle-{road}"
    model.script(text(*["word "] * 500, delay=0.05))
    leave(proxy, road, name, after=b"word", stream=True)
    assert model.left.wait(SOON), "the upstream sees us hang up"
    assert model.sent_pieces < 400
    assert outcome(proxy, f"model={name} ") == "client_left"


@fault(61, *BOTH)
def test_what_was_counted_until_then_is_kept(proxy: Groundwire, model: ModelServer, road: str) -> None:
    name = f"counted-{road}"
    chunk = {"choices": [{"index": 0, "delta": {"content": "word "}}], "usage": USAGE}
    counted = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    hanging = Turn(pieces=lambda: [counted, 60.0], content_type="text/event-stream")
    if road == SEARCHED:  # there the question before was answered, and this one goes on
        model.script(call("open_page", {"url": "https://library.example/sky.md"}), hanging)
    else:
        model.script(hanging)
    leave(proxy, road, name, after=b"word", stream=True)
    assert model.left.wait(SOON)
    assert outcome(proxy, f"model={name} ") == "client_left"
    if road == SEARCHED:  # and what this one had cost until then is estimated
        assert int(figure(proxy, f"model={name} ", "input_tokens")) >= 10
        assert int(figure(proxy, f"model={name} ", "output_tokens")) >= 5
    else:
        assert figure(proxy, f"model={name} ", "input_tokens") == "10"
        assert figure(proxy, f"model={name} ", "output_tokens") == "5"


@fault(62, *BOTH)
@pytest.mark.parametrize("begun", [False, True], ids=["no head", "no event"])
def test_before_the_first_token(proxy: Groundwire, model: ModelServer, road: str, begun: bool) -> None:
    name = f"before-{road}-{begun}"
    silent = Turn(pieces=lambda: [b": hm\n\n", 60.0], content_type="text/event-stream")
    model.script(silent if begun else Turn(body=b"", headers={"Content-Length": "0"}, pieces=lambda: [60.0]))
    leave(proxy, road, name, after=asked(model), stream=True)
    assert model.left.wait(SOON)
    assert outcome(proxy, f"model={name} ") == "client_left"


@fault(63, *BOTH)
@pytest.mark.parametrize("half", [False, True], ids=["nothing", "half of it"])
def test_while_a_whole_answer_is_made(proxy: Groundwire, model: ModelServer, road: str, half: bool) -> None:
    name = f"whole-{road}-{half}"
    model.script(Turn(pieces=lambda: [b'{"choices": [', 60.0]) if half else text("late", delay=60.0))
    leave(proxy, road, name, after=asked(model), stream=False)
    assert model.left.wait(SOON)
    assert outcome(proxy, f"model={name} ") == "client_left"


class Dripping:
    """A page that never ends: when it was asked for, and when its reader hung up."""

    def __init__(self, pages: PageServer, path: str) -> None:
        self.asked, self.left = threading.Event(), threading.Event()
        pages.raw(path, self._drip)

    def _drip(self) -> Iterator[bytes]:
        try:
            yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
            self.asked.set()
            for _ in range(1200):
                time.sleep(0.05)
                yield b"x"
        finally:
            self.left.set()


@fault(64, SEARCHED)
@BOTH_FORMS
@pytest.mark.parametrize("work", ["search", "page"])
def test_during_a_search_or_while_a_page_is_read(
    proxy: Groundwire, pages: PageServer, model: ModelServer, road: str, work: str, stream: bool
) -> None:
    name = f"tools-{work}-{stream}"
    page = Dripping(pages, "*" if work == "search" else "/slow")
    question = {"role": "user", "content": f"Read {pages.url('/slow')}"}
    searched = call("web_search", {"query": f"{name} sky"})
    model.script(searched if work == "search" else call("open_page", {"url": pages.url("/slow")}), text("never"))

    def working() -> None:
        assert page.asked.wait(SOON)
        assert not page.left.is_set()

    leave(proxy, road, name, after=working, stream=stream, messages=[question])
    assert page.left.wait(SOON), "the provider, or the page's server, sees us hang up"
    assert len(model.requests) == 1
    assert outcome(proxy, f"model={name} ") == "client_left"
    assert figure(proxy, f"model={name} ", "input_tokens") == "10", "of the question that was answered"


# Anywhere


def descriptors(proxy: Groundwire) -> int:
    assert proxy.process is not None
    return len(list(Path(f"/proc/{proxy.process.pid}/fd").iterdir()))


def streams(proxy: Groundwire) -> float:
    return Samples(httpx.get(f"{proxy.root}/metrics", timeout=20).content)("groundwire_streams")


class Play(NamedTuple):
    """One client: it hangs up when it has seen so many bytes, or, without a number, once the model was asked for it. If
    its answer is over before, it has had all of it."""

    name: str
    stream: bool
    most: int | None
    words: int


def played(chance: random.Random, number: int) -> Play:
    most = chance.choice([None, chance.randint(1, 4000)])
    return Play(f"chance-{number}", chance.random() < 0.7, most, chance.randint(1, 20))


def with_upstream(config: dict[str, Any], model: ModelServer) -> dict[str, Any]:
    return {**config, "upstreams": [{"name": "scripted", "base_url": model.url}]}


@fault(61, *BOTH)
def test_at_sixty_places_by_chance_and_nothing_is_left_behind(config: dict[str, Any], road: str) -> None:
    chance = random.Random(61)
    plays = [played(chance, number) for number in range(60)]
    with ModelServer() as model, Groundwire(with_upstream(config, model)) as proxy:

        def idle_descriptors() -> int:
            """When nobody asks, and no connection is kept for who may ask next."""
            eventually(lambda: model.answering == 0 and streams(proxy) == 0)
            model.hang_up()
            return descriptors(proxy)

        for stream in (True, False):
            model.script(*[call("web_search", {"query": "sky"})] * (road == SEARCHED), text("Blue [1]."))
            assert ask(proxy, road, stream=stream).status_code == 200
        before = min(idle_descriptors() for _ in range(5))
        for play in plays:
            words = text(*["word "] * play.words, delay=chance.choice([0.0, 0.01, 0.05]))
            model.part(play.name, *[call("web_search", {"query": play.name})] * (road == SEARCHED), words)
        with ThreadPoolExecutor(6) as clients:
            list(clients.map(lambda play: leave_by_chance(proxy, road, model, play), plays))
        eventually(lambda: idle_descriptors() <= before)
        assert all(model.asked[play.name] for play in plays)
        ends = [outcome(proxy, f"model={play.name} ") for play in plays]
        assert set(ends) == {"ok", "client_left"}


def leave_by_chance(proxy: Groundwire, road: str, model: ModelServer, play: Play) -> None:
    with asking(proxy, road, model=play.name, stream=play.stream) as connection:
        if play.most is None:
            eventually(lambda: model.asked[play.name])
            return
        left = play.most
        while left > 0 and (part := connection.recv(left)):
            left -= len(part)
