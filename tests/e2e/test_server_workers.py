"""`server.workers`: real processes on one address, with a real Redis. They act as one, whichever of them a request
comes to; one that is killed is replaced and disturbs nobody; signals to the parent reach all of them.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.test_many_processes import MIXED, WHOLE
from tests.e2e.test_mixed_turns import ASKED, LINK, TOOLS, Answer, last_read, ran
from tests.e2e.test_mixed_turns import USER as ASKED_READ
from tests.e2e.test_serve import errors_in, exit_code, send, wait_until_refused
from tests.fakes.gated_model import Gate
from tests.fakes.groundwire import Groundwire, config_file, groundwire
from tests.fakes.held_streams import HELD, HELD_TURN
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, text
from tests.fakes.redis_server import MISSING, PROGRAM, RedisServer
from tests.fakes.search import FakeSearxng
from tests.fakes.service import Reply
from tests.fakes.worker_processes import Client, is_there, one_at_each, workers_of

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason=MISSING),
    pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="looks at processes as Linux shows them"),
]
REQUESTS = "groundwire_requests_total"
OK = {"dialect": "chat", "upstream": "scripted", "outcome": "ok"}


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer sk-canary-{name}"}


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def shared(config: dict[str, Any], redis: RedisServer) -> dict[str, Any]:
    """The config of two workers."""
    return {**config, "server": {"workers": 2, "lame_duck": 0.2}, "store": redis.url}


def with_server(config: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**config, "server": {**config["server"], **more}}


def streams_at(
    stack: ExitStack, client: Client, model: str = "m", headers: dict[str, str] | None = None
) -> Iterator[str]:
    """The lines of a streamed answer at the client's worker, of which the first word has come."""
    body = {"model": model, "messages": [{"role": "user", "content": "Go on."}], "stream": True}
    answer = stack.enter_context(client.stream("POST", "/v1/chat/completions", json=body, headers=headers))
    assert answer.status_code == 200
    lines = answer.iter_lines()
    stack.callback(lines.close)  # type: ignore[attr-defined]  # forgotten, it would end the answer
    for line in lines:
        if "word" in line:
            break
    return lines


# They act as one


def test_requests_reach_both_and_a_conversation_goes_on_in_the_other(
    shared: dict[str, Any], model: ModelServer
) -> None:
    with Groundwire(shared) as proxy, one_at_each(proxy) as (one, two):
        assert one.worker != two.worker
        model.script(MIXED, text("Done [1]."))
        choice = one.chat(messages=[ASKED], tools=TOOLS).json()["choices"][0]
        seen = Answer(choice["message"], choice["finish_reason"])
        done = two.chat(messages=[ASKED, seen.message, *ran(seen)], tools=TOOLS)
        assert done.json()["choices"][0]["message"]["content"] == f"Done {LINK}."
        assert last_read(model) == [ASKED_READ, *WHOLE]


def test_connections_go_to_who_holds_the_fewest(shared: dict[str, Any]) -> None:
    """On a busy machine not each of them, but most."""
    with Groundwire(shared) as proxy, ExitStack() as stack:
        held = [stack.enter_context(Client(proxy)).find_worker() for _ in range(40)]
        assert min(held.count(pid) for pid in workers_of(proxy)) >= 10


def test_the_limits_of_a_key_hold_over_all_workers(shared: dict[str, Any], model: ModelServer) -> None:
    few = {"key": "sk-canary-few", "name": "few", "requests_per_minute": 3}
    one_only = {"key": "sk-canary-one", "name": "one", "concurrency": 1}
    model.script(text("Blue."))
    model.part(HELD, HELD_TURN)
    config = with_server(shared, keys=[few, one_only])
    with Groundwire(config) as proxy, one_at_each(proxy) as (first, second):
        counted = [client.chat(headers=bearer("few")).status_code for client in (first, second, first, second)]
        assert counted == [200, 200, 200, 429]
        with ExitStack() as held:
            streams_at(held, first, HELD, bearer("one"))
            refused = second.chat(headers=bearer("one"))
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
            assert "1 requests under way at once" in refused.json()["error"]["message"]
        assert eventually(lambda: second.chat(headers=bearer("one")).status_code == 200)


def test_who_waits_comes_in_when_a_place_is_free_in_another_worker(shared: dict[str, Any], model: ModelServer) -> None:
    gate = Gate()
    model.script(text("Blue."))
    model.part("gated", gate.turn(["word "], ["end"]))
    config = with_server(shared, max_requests=1, queue=20)
    with Groundwire(config) as proxy, one_at_each(proxy) as (one, two), ThreadPoolExecutor(1) as other:
        with ExitStack() as stack:
            lines = streams_at(stack, one, "gated")
            waiting = other.submit(two.chat)
            with Client(proxy) as watcher:
                eventually(lambda: watcher.samples()("groundwire_waiting") == 1)
            assert not waiting.done()
            gate.open()
            assert any("[DONE]" in line for line in lines)
        assert waiting.result(20).status_code == 200


def test_an_upstreams_places_are_those_of_all_workers(shared: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    model.part(HELD, HELD_TURN)
    config = {**shared, "upstreams": [{**shared["upstreams"][0], "max_requests": 1}]}
    with Groundwire(config) as proxy, one_at_each(proxy) as (one, two):
        with ExitStack() as held:
            streams_at(held, one, HELD)
            refused = two.chat()
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "upstream_full")
        assert eventually(lambda: two.chat().status_code == 200)


def test_a_provider_that_one_found_busy_is_left_alone_by_all(shared: dict[str, Any]) -> None:
    with FakeSearxng() as engine:
        engine.reply = Reply(429, b"Too Many Requests", headers={"Retry-After": "600"})
        entry = {"name": "engine", "type": "searxng", "base_url": engine.url}
        config = {**shared, "providers": [entry]}
        with Groundwire(config) as proxy, one_at_each(proxy) as (one, two):
            one.post("/v1/search", json={"query": "heat"})
            proxy.logged("provider engine is left alone for")
            asked = len(engine.asked)
            refused = two.post("/v1/search", json={"query": "cold"})
            assert "cooling down" in refused.text
            assert len(engine.asked) == asked
            os.kill(two.worker, signal.SIGKILL)
            eventually(lambda: two.worker not in workers_of(proxy) and len(workers_of(proxy)) == 2)
            with one_at_each(proxy) as clients:
                assert all("cooling down" in c.post("/v1/search", json={"query": "ice"}).text for c in clients)
            assert len(engine.asked) == asked, "who comes later is told too"


# Metrics


def test_metrics_are_those_of_all_whoever_is_asked(shared: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    model.part(HELD, HELD_TURN)
    with Groundwire(shared) as proxy, one_at_each(proxy) as (one, two), ExitStack() as held:
        for client in (one, one, two):
            assert client.chat().status_code == 200
        for client in (one, two):
            eventually(lambda client=client: client.samples()(REQUESTS, **OK) == 3)  # type: ignore[misc]
            assert client.samples()("groundwire_workers") == 2
        for client in held.enter_context(one_at_each(proxy)):
            streams_at(held, client, HELD)
        for client in (one, two):
            eventually(lambda client=client: client.samples()("groundwire_streams") == 2)  # type: ignore[misc]


def test_a_killed_worker_leaves_its_counts_and_nothing_else(shared: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    model.part(HELD, HELD_TURN)
    with Groundwire(shared) as proxy, one_at_each(proxy) as (one, two), ExitStack() as held:
        for client in (one, two, one):
            assert client.chat().status_code == 200
        streams_at(held, one, HELD)
        eventually(lambda: two.samples()(REQUESTS, **OK) == 3 and two.samples()("groundwire_streams") == 1)
        os.kill(one.worker, signal.SIGKILL)
        after = eventually(lambda: (now := two.samples())("groundwire_streams") == 0 and now)
        assert after(REQUESTS, **OK) == 3
        eventually(lambda: two.samples()("groundwire_worker_restarts_total") == 1)
        with one_at_each(proxy) as clients:
            for client in clients:
                assert client.chat().status_code == 200
            for client in clients:
                eventually(lambda client=client: client.samples()(REQUESTS, **OK) == 5)  # type: ignore[misc]


# A worker that dies


def test_one_that_is_killed_is_replaced_and_the_others_go_on(shared: dict[str, Any], model: ModelServer) -> None:
    gate = Gate()
    model.script(gate.turn(["word "], ["the end"]))
    with Groundwire(shared) as proxy, one_at_each(proxy) as (one, two), ExitStack() as stack:
        lines, cut = streams_at(stack, two), streams_at(stack, one)
        os.kill(one.worker, signal.SIGKILL)
        with pytest.raises(httpx.RemoteProtocolError):
            list(cut)
        assert f"(process {one.worker}) was killed by signal 9" in proxy.logged("another one starts in")
        eventually(lambda: len(workers_of(proxy)) == 2 and one.worker not in workers_of(proxy))
        gate.open()
        rest = list(lines)
        assert any("the end" in line for line in rest)
        assert "data: [DONE]" in rest
        with one_at_each(proxy) as clients:
            assert all(client.chat().status_code == 200 for client in clients)


def test_one_that_hangs_keeps_nobody_waiting(shared: dict[str, Any]) -> None:
    """It holds the fewest connections, so the next ones would be for it."""
    with Groundwire(shared) as proxy, one_at_each(proxy) as (one, two), ExitStack() as stack:
        for client in [stack.enter_context(Client(proxy)) for _ in range(3)]:
            client.find_worker()
        os.kill(one.worker, signal.SIGSTOP)
        try:
            assert {stack.enter_context(Client(proxy)).find_worker() for _ in range(8)} == {two.worker}
        finally:
            os.kill(one.worker, signal.SIGCONT)


def test_one_that_is_told_to_end_drains_and_is_replaced(shared: dict[str, Any], model: ModelServer) -> None:
    gate = Gate()
    model.script(gate.turn(["word "], ["the end"]))
    with Groundwire(shared) as proxy, one_at_each(proxy) as (one, _), ExitStack() as stack:
        lines = streams_at(stack, one)
        os.kill(one.worker, signal.SIGTERM)
        gate.open()
        assert any("[DONE]" in line for line in lines)
        proxy.logged("ended with code 0; another one starts in")
        eventually(lambda: len(workers_of(proxy)) == 2 and one.worker not in workers_of(proxy))


def test_without_their_parent_workers_finish_and_end(shared: dict[str, Any], model: ModelServer) -> None:
    gate = Gate()
    model.script(gate.turn(["word "], ["the end"]))
    with Groundwire(shared) as proxy, one_at_each(proxy) as (one, _), ExitStack() as stack:
        lines = streams_at(stack, one)
        workers = workers_of(proxy)
        assert proxy.process is not None
        proxy.process.kill()
        proxy.process.wait(10)
        wait_until_refused(proxy)
        gate.open()
        assert any("[DONE]" in line for line in lines)
        eventually(lambda: not any(map(is_there, workers)))


# Signals to the parent


@pytest.mark.parametrize("to_all", [False, True], ids=["to the parent", "to all of them, as systemd does"])
def test_sigterm_drains_all(shared: dict[str, Any], model: ModelServer, to_all: bool) -> None:
    gate = Gate()
    model.script(gate.turn(["word "], ["the end"]))
    config = with_server(shared, lame_duck=2)
    with Groundwire(config) as proxy, one_at_each(proxy) as clients, ExitStack() as stack:
        streams = [streams_at(stack, client) for client in clients]
        with ExitStack() as probes:
            others = probes.enter_context(one_at_each(proxy))
            for pid in workers_of(proxy) if to_all else ():
                os.kill(pid, signal.SIGTERM)
            send(proxy, signal.SIGTERM)
            for other in others:
                eventually(lambda other=other: other.get("/readyz").status_code == 503)  # type: ignore[misc]
        wait_until_refused(proxy)
        gate.open()
        for lines in streams:
            rest = list(lines)
            assert any("the end" in line for line in rest)
            assert "data: [DONE]" in rest
        assert exit_code(proxy, 20) == 0
        assert "another one starts" not in proxy.log.read_text()


def test_ctrl_c_ends_all_at_once_with_a_word(shared: dict[str, Any], model: ModelServer) -> None:
    model.script(HELD_TURN)
    with Groundwire(shared) as proxy, one_at_each(proxy) as clients, ExitStack() as stack:
        streams = [streams_at(stack, client) for client in clients]
        for pid in workers_of(proxy):
            os.kill(pid, signal.SIGINT)  # as a terminal does, which sends it to all
        send(proxy, signal.SIGINT)
        for lines in streams:
            assert [error["code"] for error in errors_in(list(lines))] == ["shutting_down"]
        assert exit_code(proxy, 20) == 0


def test_a_second_signal_ends_what_is_draining(shared: dict[str, Any], model: ModelServer) -> None:
    model.script(HELD_TURN)
    config = with_server(shared, lame_duck=600)
    with Groundwire(config) as proxy, one_at_each(proxy) as clients, ExitStack() as stack:
        streams = [streams_at(stack, client) for client in clients]
        send(proxy, signal.SIGTERM)
        with Client(proxy) as probe:
            eventually(lambda: probe.get("/readyz").status_code == 503)
        send(proxy, signal.SIGTERM)
        for lines in streams:
            assert [error["code"] for error in errors_in(list(lines))] == ["shutting_down"]
        assert exit_code(proxy, 20) == 0


def test_a_reload_reaches_all_and_those_that_come_later(shared: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    alice, bob = {"key": "sk-canary-alice", "name": "alice"}, {"key": "sk-canary-bob", "name": "bob"}
    with Groundwire(with_server(shared, keys=[alice])) as proxy, one_at_each(proxy) as (one, two):
        assert [client.chat(headers=bearer("bob")).status_code for client in (one, two)] == [401, 401]
        file = proxy.log.with_name("config.yaml")
        file.write_text(yaml.safe_dump({**with_server(shared, keys=[bob]), "log": {"level": "debug"}}))
        send(proxy, signal.SIGHUP)
        for client in (one, two):
            eventually(lambda client=client: client.chat(headers=bearer("bob")).status_code == 200)  # type: ignore[misc]
            assert client.chat(headers=bearer("alice")).status_code == 401
        file.write_text("server: {keys: [")
        send(proxy, signal.SIGHUP)
        eventually(lambda: proxy.log.read_text().count("SIGHUP: nothing is changed.") == 2)
        os.kill(one.worker, signal.SIGKILL)
        eventually(lambda: one.worker not in workers_of(proxy) and len(workers_of(proxy)) == 2)
        with one_at_each(proxy) as clients:
            assert [client.chat(headers=bearer("bob")).status_code for client in clients] == [200, 200]
            assert [client.chat(headers=bearer("alice")).status_code for client in clients] == [401, 401]


# The start


def test_it_says_that_it_listens_once_and_when_all_do(shared: dict[str, Any]) -> None:
    with Groundwire(with_server(shared, workers=3), script=True) as proxy:
        assert len(workers_of(proxy)) == 3
        with Client(proxy) as client:
            assert client.samples()("groundwire_workers") == 3
        assert proxy.process is not None
        proxy.process.terminate()
        assert proxy.process.stdout is not None
        assert "listening on" not in proxy.process.stdout.read()


def test_more_than_one_needs_a_store_that_they_share(config: dict[str, Any], tmp_path: Path) -> None:
    file = config_file(tmp_path, {**config, "server": {"workers": 2}})
    done = groundwire(tmp_path, "serve", "--config", file, "--port", "0", code=2)
    assert "server.workers: needs a store that all workers share: set `store: redis://" in done.stderr


def test_auto_is_one_without_redis(config: dict[str, Any]) -> None:
    with Groundwire({**config, "server": {"workers": "auto"}}) as proxy:
        assert workers_of(proxy) == []
        with Client(proxy) as client:
            assert client.samples()("groundwire_workers") == 1


def test_what_is_wrong_is_said_once_and_ends_it(shared: dict[str, Any], tmp_path: Path) -> None:
    entry = {"name": "library", "type": "local", "options": {"path": str(tmp_path), "paths": 1}}
    file = config_file(tmp_path, {**shared, "providers": [entry]})
    done = groundwire(tmp_path, "serve", "--config", file, "--port", "0", code=2)
    assert done.stderr.count("`paths`") == 1
    assert "listening" not in done.stdout


def test_a_port_that_is_taken_is_said_at_once(shared: dict[str, Any], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = groundwire(tmp_path, "serve", "--config", config_file(tmp_path, shared), "--port", port, code=2)
    assert done.stderr.count("Cannot listen on") == 1
