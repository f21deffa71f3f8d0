"""SIGHUP reads the config again: keys, groups, limits and prices change for the requests to come, what else differs is
named, and a config that is not valid changes nothing.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.fakes.groundwire import SCRIPT, Groundwire
from tests.fakes.model import ModelServer, text
from tests.faults.asking import QUESTION, ask
from tests.faults.table import BOTH, fault

ALICE = {"key": "sk-canary-alice", "name": "alice"}
BOB = {"key": "sk-canary-bob", "name": "bob"}


def as_who(key: dict[str, Any]) -> dict[str, str]:
    return {"authorization": f"Bearer {key['key']}"}


def with_keys(config: dict[str, Any], *keys: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**config, "server": {"keys": list(keys), **more.pop("server", {})}, **more}


class Reloaded(Groundwire):
    """A server whose config can be written anew."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._file = self.log.with_name("config.yaml")
        self._told = 0

    def reload(self, config: dict[str, Any] | str) -> str:
        """What the log says of it."""
        assert self.process is not None
        text = config if isinstance(config, str) else yaml.safe_dump({**config, "log": {"level": "debug"}})
        self._file.write_text(text, encoding="utf-8")
        self._told += 1
        self.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 10
        while len(lines := [line for line in self.log.read_text().splitlines() if "SIGHUP" in line]) < self._told:
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)
        return lines[-1]


BROKEN = {
    "server: {keys: [{name: bob}]}": "server.keys[0]: must have either key or hash",
    "server: {keys: [sk-canary-bob": "line 1, column",
    "server: {kes: []}": "server.kes: unknown key; did you mean keys?",
    "\t": "column 1",
    "server: {keys: ['${NOT_SET}']}": "the variable NOT_SET is not set",
}


@fault(84, *BOTH)
def test_a_config_that_is_not_valid_changes_nothing(road: str, config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    with Reloaded(with_keys(config, ALICE)) as proxy:
        for written, said in BROKEN.items():
            line = proxy.reload(written)
            assert "SIGHUP: nothing is changed." in line
            assert said in line
            assert ask(proxy, road, headers=as_who(ALICE)).status_code == 200
            assert ask(proxy, road, headers=as_who(BOB)).status_code == 401
        assert "Changed: key bob added." in proxy.reload(with_keys(config, ALICE, BOB))
        assert ask(proxy, road, headers=as_who(BOB)).status_code == 200
        log = proxy.ended_log()
        assert "A minimal config" not in log
        assert "canary" not in log


@fault(84)
def test_a_config_that_is_gone_changes_nothing(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    with Reloaded(with_keys(config, ALICE)) as proxy:
        proxy.log.with_name("config.yaml").unlink()
        assert proxy.process is not None
        proxy.process.send_signal(signal.SIGHUP)
        assert "there is no file" in proxy.logged("SIGHUP: nothing is changed.")
        assert ask(proxy, "searched", headers=as_who(ALICE)).status_code == 200


def test_keys_groups_limits_and_prices_change_and_the_rest_is_named(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    with Reloaded(with_keys(config, ALICE, BOB)) as proxy:
        assert "cost" not in ask(proxy, "searched", headers=as_who(ALICE)).json()["usage"]
        group = {"groups": {"team": {"requests_per_minute": 1}}}
        changed = with_keys(
            config,
            {**BOB, "group": "team"},
            {"key": "sk-canary-carol", "name": "carol"},
            server={**group, "max_body": "5MiB"},
            prices={"models": {"m": {"input": 1}}},
            tools={"max_rounds": 3},
            upstreams=[*config["upstreams"], {"name": "more", "type": "demo", "models": ["demo"]}],
        )
        line = proxy.reload(changed)
        for what in ("key alice removed", "key bob changed", "key carol added", "server.groups", "prices.models"):
            assert what in line.partition("Needs a restart")[0]
        assert line.endswith("Needs a restart: server.max_body, upstreams, tools.max_rounds.")
        assert ask(proxy, "searched", headers=as_who(ALICE)).status_code == 401
        answer = ask(proxy, "searched", headers=as_who(BOB))
        assert answer.json()["usage"]["cost"] == 0.00001
        assert ask(proxy, "searched", headers=as_who(BOB)).status_code == 429
        group["groups"]["team"]["requests_per_minute"] = 10
        assert "server.groups" in proxy.reload(changed)
        limited = ask(proxy, "searched", headers=as_who(BOB))
        assert limited.headers["x-ratelimit-limit-requests"] == "10"
        assert int(limited.headers["x-ratelimit-remaining-requests"]) <= 8, "what was used stays used"
        assert "Changed: nothing. Needs a restart: server.max_body," in proxy.reload(changed)


def test_a_key_that_is_taken_away_opens_no_kept_connection(config: dict[str, Any], model: ModelServer) -> None:
    model.script(*[text("Blue.")] * 4)
    body = {"model": "m", "messages": [QUESTION]}
    with Reloaded(with_keys(config, ALICE, BOB)) as proxy, httpx.Client(headers=as_who(ALICE), timeout=20) as client:
        asked = [client.post(f"{proxy.root}/v1/chat/completions", json=body) for _ in range(2)]
        assert "key alice removed" in proxy.reload(with_keys(config, BOB))
        asked += [client.post(f"{proxy.root}/v1/chat/completions", json=body) for _ in range(2)]
        assert [answer.status_code for answer in asked] == [200, 200, 401, 401]
        assert len({answer.extensions["network_stream"].get_extra_info("client_addr") for answer in asked}) == 1


def test_a_running_answer_keeps_what_it_had(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text(*["word "] * 30, delay=0.05))
    with Reloaded(with_keys(config, ALICE, prices={"models": {"m": {"input": 100_000}}})) as proxy:
        body = {"model": "m", "messages": [QUESTION], "stream": True, "stream_options": {"include_usage": True}}
        url = f"{proxy.url}/chat/completions"
        with httpx.stream("POST", url, json=body, headers=as_who(ALICE), timeout=20) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if "word" in line)
            assert "key alice removed" in proxy.reload(with_keys(config, BOB))
            rest = list(lines)
        assert '"cost":1.0' in "".join(rest)
        assert rest[-2] == "data: [DONE]"
        assert ask(proxy, "searched", headers=as_who(ALICE)).status_code == 401


def test_the_door_is_not_opened(config: dict[str, Any], model: ModelServer) -> None:
    """A server that others can reach is not left without keys."""
    model.script(text("Blue."))
    everywhere = {"host": "0.0.0.0"}
    alice = {**ALICE, "key": "sk-canary-of-alice"}
    with Reloaded(with_keys(config, alice, server=everywhere)) as proxy:
        proxy.url = proxy.url.replace("0.0.0.0", "127.0.0.1")
        assert "must be 127.0.0.1 while there are no client keys" in proxy.reload({**config, "server": everywhere})
        assert ask(proxy, "searched").status_code == 401
        assert ask(proxy, "searched", headers=as_who(alice)).status_code == 200


def test_a_weak_key_is_refused_and_the_old_ones_stay(config: dict[str, Any], model: ModelServer) -> None:
    """On the address that is bound, whatever the file says of it by now."""
    model.script(text("Blue."))
    long = {"key": "sk-canary-of-alice", "name": "alice"}
    everywhere = {"host": "0.0.0.0"}
    with Reloaded(with_keys(config, long, server=everywhere)) as proxy:
        proxy.url = proxy.url.replace("0.0.0.0", "127.0.0.1")
        for key, host, said in (
            ("change-me", "0.0.0.0", "documentation"),
            ("sk-short", "0.0.0.0", "at least 16 characters"),
            ("sk-short", "127.0.0.1", "at least 16 characters"),
        ):
            weak = {"name": "bob", "key": key}
            line = proxy.reload(with_keys(config, long, weak, server={"host": host}))
            assert "SIGHUP: nothing is changed." in line
            assert said in line
            assert "`groundwire key new`" in line
            assert ask(proxy, "searched", headers=as_who(weak)).status_code == 401
            assert ask(proxy, "searched", headers=as_who(long)).status_code == 200


def test_without_a_file_it_says_so(model: ModelServer, tmp_path: Path) -> None:
    with Groundwire({}, {"OPENAI_BASE_URL": model.url}) as proxy:
        assert proxy.process is not None
        proxy.process.send_signal(signal.SIGHUP)
        assert "Changed: nothing. Needs a restart: nothing." in proxy.logged("SIGHUP")
    without = Groundwire({}, {"OPENAI_BASE_URL": model.url})
    without._command = [str(SCRIPT), "serve", "--port", "0"]
    os.unlink(without.log.with_name("config.yaml"))
    with without as proxy:
        assert proxy.process is not None
        proxy.process.send_signal(signal.SIGHUP)
        proxy.logged("SIGHUP: there is no config file to read again")
        model.script(text("Blue."))
        assert ask(proxy, "searched").status_code == 200


def test_the_key_that_a_container_made_stays(config: dict[str, Any], model: ModelServer, tmp_path: Path) -> None:
    model.script(text("Blue."))
    with Groundwire(config, {"GROUNDWIRE_KEY_FILE": str(tmp_path / "client-key")}) as proxy:
        assert proxy.process is not None
        proxy.process.send_signal(signal.SIGHUP)
        assert "Changed: nothing." in proxy.logged("SIGHUP")
        assert ask(proxy, "searched").status_code == 401
        kept = {"key": (tmp_path / "client-key").read_text().strip()}
        assert ask(proxy, "searched", headers=as_who(kept)).status_code == 200


def test_a_server_whose_terminal_is_closed_ends(config: dict[str, Any], tmp_path: Path) -> None:
    """And does not stay behind without one, on a port that the next one wants."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    terminal, end = pty.openpty()
    arguments = [str(SCRIPT), "serve", "--config", str(path), "--port", "0"]
    with subprocess.Popen(
        arguments,
        stdin=end,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(end)
        assert process.stdout is not None
        assert any("listening on" in line for line in process.stdout)
        process.send_signal(signal.SIGHUP)  # the terminal is still there: this one is for the config
        os.close(terminal)
        assert process.wait(20) == 0
