"""A canary in every place where a key may stand, a server at debug level with `log.contents` off and on, many roads
through it, good and bad, with servers that repeat every key that they are sent; and then a search for any sixteen
characters of any canary in everything that came out: logs, bodies, headers, metrics, reports, stored objects, audit,
traces, arguments of processes, and what was sent to anybody but the one whom a key is for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from proxy.config.settings import ConfigError, load
from tests.fakes.anthropic_model import AnthropicServer
from tests.fakes.collector import Collector
from tests.fakes.egress import HttpProxy
from tests.fakes.groundwire import SCRIPT, Groundwire, config_file, environment
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.redis_server import MISSING, PROGRAM, RedisServer
from tests.fakes.search import FakeSearxng
from tests.fakes.search_hosted import HOSTED
from tests.fakes.service import Asked, Reply

# One client, because reading the certificates anew for each request would take longer than the request.
CLIENT = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
PIECE = 16

pytestmark = [pytest.mark.skipif(PROGRAM is None, reason=MISSING), pytest.mark.timeout(400)]
QUESTION = {"role": "user", "content": "Why is the sky blue?"}
PLACES = (
    "client", "hashed", "environment", "upstream", "header", "passed", "vendor", "vendor_option", "searxng", "exa",
    "crashing", "redis", "proxy", "own_proxy", "variable", "collector",
)  # fmt: skip


def canary(place: str) -> str:
    return "".join(random.Random(place).choices(string.ascii_letters + string.digits, k=24))


CANARIES = {place: canary(place) for place in PLACES}
DIGEST = hashlib.sha256(CANARIES["hashed"].encode()).hexdigest()


def forms() -> dict[str, str]:
    """Every canary in each form in which it goes anywhere."""
    basic = {
        f"{name} basic": base64.b64encode(f"me:{CANARIES[name]}".encode()).decode() for name in ("proxy", "own_proxy")
    }
    password = {"client basic": base64.b64encode(f"x:{CANARIES['client']}".encode()).decode()}
    return {**CANARIES, "the hash": DIGEST, **basic, **password}


def found_in(shown: str, *, but: tuple[str, ...] = ()) -> set[str]:
    """Whose pieces are in it."""
    return {
        name
        for name, secret in forms().items()
        if name.partition(" ")[0] not in but
        and any(secret[at : at + PIECE] in shown for at in range(len(secret) - PIECE + 1))
    }


class EchoingEngine(FakeSearxng):
    """Repeats its key in whatever it says."""

    def check(self, asked: Asked) -> None:
        pass

    def reply_to(self, asked: Asked) -> Reply:
        status = int(asked.params["q"].split()[-1]) if asked.params["q"][-1].isdigit() else 200
        if status == 200:
            return super().reply_to(asked)
        said = f'{{"error": {{"message": "{CANARIES["searxng"]}", "code": "{CANARIES["searxng"]}"}}}}'
        return Reply(status, said.encode(), "application/json", {"X-Key": CANARIES["searxng"]})


class EchoingExa(HOSTED["exa"]):  # type: ignore[misc]
    def check(self, asked: Asked) -> None:
        pass

    def reply_to(self, asked: Asked) -> Reply:
        return Reply(500, f"<html>{CANARIES['exa']}</html>".encode())


PLUGIN = """
class Crashing:
    def __init__(self, settings):
        self.settings = settings

    async def search(self, query):
        raise ValueError(f"nobody knows the key {self.settings['api_key']}")
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "crashing_plugin.py").write_text(PLUGIN)
    info = folder / "crashing_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: crashing-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[groundwire.providers]\ncrashing = crashing_plugin:Crashing\n")
    return folder


class World:
    """Everything around one Groundwire, and what came out of it."""

    def __init__(self, stack: ExitStack, plugin: Path, folder: Path, *, contents: bool) -> None:
        self.model = stack.enter_context(ModelServer())
        self.vendor = stack.enter_context(AnthropicServer())
        self.engine = stack.enter_context(EchoingEngine())
        self.exa = stack.enter_context(EchoingExa())
        self.proxy = stack.enter_context(HttpProxy(login="me:another"))
        self.redis = stack.enter_context(RedisServer(password=CANARIES["redis"]))
        self.collector = stack.enter_context(Collector())
        self.audit = folder.parent / f"{folder.name}-audit.jsonl"
        self.env = {
            "GROUNDWIRE_KEYS": CANARIES["environment"],
            "KEY_OF_A_VARIABLE": CANARIES["variable"],
            "PYTHONPATH": str(plugin),
        }
        (folder / "sky.md").write_text("# The sky\n\nThe sky is blue because of scattering.\n")
        self.config = self._config(folder, contents=contents)
        self.shown: list[str] = []

    def _config(self, folder: Path, *, contents: bool) -> dict[str, Any]:
        own_proxy = f"http://me:{CANARIES['own_proxy']}@127.0.0.1:{self.proxy.port}"
        return {
            "log": {"level": "debug", "contents": contents, "format": "json" if contents else "text"},
            "store": self.redis.url,
            "audit": str(self.audit),
            "traces": {"endpoint": self.collector.url, "headers": {"Authorization": f"Bearer {CANARIES['collector']}"}},
            "network": {
                "proxy": f"http://me:{CANARIES['proxy']}@127.0.0.1:{self.proxy.port}",
                "proxy_for_pages": True,
            },
            "server": {
                "keys": [
                    {"key": CANARIES["client"], "name": "first", "admin": True},
                    {"hash": f"sha256:{DIGEST}", "name": "second"},
                ]
            },
            "upstreams": [
                {
                    "name": "scripted",
                    "base_url": self.model.url,
                    "api_key": CANARIES["upstream"],
                    "headers": {"X-Extra": f"Bearer {CANARIES['header']}"},
                    "models": ["m"],
                    "retries": 0,
                },
                {
                    "name": "own",
                    "base_url": self.model.url,
                    "api_key": "passthrough",
                    "models": ["passed"],
                    "retries": 0,
                },
                {
                    "name": "vendor",
                    "type": "litellm",
                    "base_url": self.vendor.url,
                    "api_key": CANARIES["vendor"],
                    "models": ["anthropic/claude-sonnet-4-5"],
                    "options": {"metadata": {"some_token": CANARIES["vendor_option"]}},
                    "retries": 0,
                },
                {
                    "name": "behind",
                    "base_url": "https://models.example/v1",
                    "api_key": "${KEY_OF_A_VARIABLE}",
                    "proxy": own_proxy,
                    "models": ["behind"],
                    "retries": 0,
                },
            ],
            "providers": [
                {
                    "name": "library",
                    "type": "local",
                    "base_url": "https://l.example/",
                    "options": {"path": str(folder)},
                },
                {"name": "searx", "type": "searxng", "base_url": self.engine.url, "api_key": CANARIES["searxng"]},
                {"name": "exa", "type": "exa", "base_url": self.exa.url, "api_key": CANARIES["exa"]},
                {"name": "crash", "type": "crashing", "api_key": CANARIES["crashing"]},
                {"name": "far", "type": "brave", "base_url": "https://brave.example", "api_key": CANARIES["variable"]},
                {"name": "reader", "type": "direct"},
            ],
            "tools": {
                "search": ["library", "searx", "exa", "crash", "far"],
                "read": ["library", "reader"],
                "public_fallback": True,
            },
            "cooldown": {"failures": 1000, "auth_failed": 0.01, "rate_limited": 0.01},
        }

    def note(self, answer: httpx.Response) -> httpx.Response:
        self.shown.append(f"{answer.status_code} {answer.headers} {answer.text}")
        return answer


def everything_a_server_may_say(*sent: str) -> list[Turn]:
    """Answers that repeat the keys that the model's server was sent, in every way there is."""
    keys = " ".join(CANARIES[place] for place in sent)
    half = CANARIES[sent[0]][:12] + "…"
    error = json.dumps({"error": {"message": keys, "code": keys, "param": half, "type": keys}}).encode()
    event = b"data: " + error + b"\n\n"
    begun = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    stream = "text/event-stream"
    echo = {"X-Key": keys, "Set-Cookie": keys, "Server": keys, "X-Request-Id": keys}
    return [
        *(Turn(status=status, body=error, headers=echo) for status in (400, 401, 403, 404, 422, 429, 500, 503)),
        Turn(status=500, body=keys.encode(), content_type="text/plain"),
        Turn(status=302, body=b"", headers={"Location": f"http://127.0.0.1:1/{CANARIES[sent[0]]}"}),
        Turn(body=f"<html>{keys}</html>".encode(), content_type="text/html"),
        Turn(body=error),
        Turn(body=event, content_type=stream),
        Turn(body=begun + event, content_type=stream),
        Turn(body=b"data: {not json " + keys.encode() + b"}\n\n", content_type=stream),
        text("Half", end="reset", finish=None),
        text("Half", end="eof", finish=None),
    ]


def chat(world: World, url: str, model: str, *, stream: bool, search: str, headers: dict[str, str]) -> None:
    body = {"model": model, "messages": [QUESTION], "stream": stream}
    said = {"x-groundwire-search": search, **headers}
    world.note(CLIENT.post(f"{url}/chat/completions", json=body, headers=said))


def good_roads(world: World, url: str, key: dict[str, str]) -> None:
    world.model.script(call("web_search", {"query": "sky blue"}), text("Blue [1]."))
    for stream in (True, False):
        for search in ("on", "off"):
            world.model.script(call("web_search", {"query": "sky blue"}), text("Blue [1].")) if search == "on" else (
                world.model.script(text("Blue."))
            )
            chat(world, url, "m", stream=stream, search=search, headers=key)
    world.model.script(call("web_search", {"query": "sky blue"}), text("Blue [1]."))
    first = world.note(CLIENT.post(f"{url}/responses", json={"model": "m", "input": "Why?"}, headers=key))
    follow = {"model": "m", "input": "And?", "previous_response_id": first.json()["id"]}
    world.model.script(text("So."))
    world.note(CLIENT.post(f"{url}/responses", json=follow, headers=key))
    tools = [{"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}]
    mixed = Turn(calls=[("a", "web_search", {"query": "sky"}), ("b", "mine", {})])
    world.model.script(mixed)
    body = {"model": "m", "messages": [QUESTION], "tools": tools}
    world.note(CLIENT.post(f"{url}/chat/completions", json=body, headers=key))


def bad_roads(world: World, url: str, key: dict[str, str]) -> None:
    passed = {"x-groundwire-key": CANARIES["client"], "authorization": f"Bearer {CANARIES['passed']}"}
    ours, theirs = everything_a_server_may_say("upstream", "header"), everything_a_server_may_say("passed")
    for turn, other in zip(ours, theirs, strict=True):
        for stream in (True, False):
            for search in ("on", "off"):
                world.model.script(turn)
                chat(world, url, "m", stream=stream, search=search, headers=key)
            world.model.script(turn)
            world.note(
                CLIENT.post(f"{url}/responses", json={"model": "m", "input": "x", "stream": stream}, headers=key)
            )
            world.model.script(other)
            chat(world, url, "passed", stream=stream, search="off", headers=passed)
        if turn.status == 200:  # what is no error passes as it is, whatever is in it
            continue
        world.model.script(turn)
        world.note(CLIENT.post(f"{url}/embeddings", json={"model": "m", "input": "x"}, headers=key))
    keys = " ".join(CANARIES[place] for place in ("vendor", "vendor_option"))
    for status in (400, 401, 429, 500):
        error = json.dumps({"type": "error", "error": {"type": "x", "message": keys}}).encode()
        world.vendor.script(Turn(status=status, body=error))
        chat(world, url, "anthropic/claude-sonnet-4-5", stream=True, search="on", headers=key)
    chat(world, url, "behind", stream=True, search="on", headers=key)
    chat(world, url, "behind", stream=False, search="off", headers=key)


def provider_roads(world: World, url: str, key: dict[str, str]) -> None:
    for status in (400, 401, 402, 403, 429, 500, 503):
        body = {"query": f"heat {status}", "provider": "searx"}
        world.note(CLIENT.post(f"{url}/search", json=body, headers=key))
    for provider in ("exa", "crash", "far"):
        body = {"query": "heat 500", "provider": provider}
        world.note(CLIENT.post(f"{url}/search", json=body, headers=key))
    world.note(CLIENT.post(f"{url}/open", json={"url": "https://pages.example/"}, headers=key))


def engine_roads(world: World, root: str, key: dict[str, str]) -> None:
    """Where clients of search engines keep their key: in the body, in the address, and in what they search for."""
    mine = CANARIES["client"]
    for query in ("sky blue", "heat 500", f"who is {mine}"):
        for path, body in (("/search", {"query": query}), ("/compat/openwebui/search", {"query": query})):
            for wrong in ("", "x"):
                world.note(CLIENT.post(f"{root}{path}", json={**body, "api_key": mine + wrong}))
            world.note(CLIENT.post(f"{root}{path}", json=body, headers=key))
        for path in ("/search", "/"):
            for wrong in ("", "x"):
                params = {"q": query, "format": "json"}
                world.note(CLIENT.get(f"{root}{path}", params=params, auth=("x", mine + wrong)))
        call_of = {"name": "web_search", "arguments": {"query": query}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call_of}
        accepts = {"accept": "application/json, text/event-stream"}
        world.note(CLIENT.post(f"{root}/mcp", json=asked, headers={**key, **accepts}))


def lost_keys(world: World, url: str, root: str, key: dict[str, str]) -> None:
    """Clients that put their key where it does not belong."""
    mine = CANARIES["client"]
    world.model.script(text("Hello."))
    for headers in ({"authorization": f"Bearer {mine}x"}, {"authorization": f"Bearer {mine}", "x-api-key": "other"}):
        world.note(CLIENT.get(f"{url}/models", headers=headers))
    world.note(CLIENT.get(f"{root}/v1/models", params={"key": mine}))
    CLIENT.get(f"{root}/v1/{mine}", headers=key)
    CLIENT.get(f"{root}/{mine}", headers={"host": f"{mine}.example"})
    CLIENT.post(f"{url}/chat/completions", json={"model": mine, "messages": [QUESTION]}, headers=key)
    with suppress(httpx.HTTPError):
        CLIENT.request(mine[:20].upper(), f"{root}/x", headers=key)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


@pytest.mark.parametrize("contents", [False, True])
def test_no_canary_sings_in_a_server(contents: bool, plugin: Path, tmp_path: Path, stack: ExitStack) -> None:
    world = World(stack, plugin, tmp_path, contents=contents)
    with Groundwire(
        world.config, world.env, faulty=not contents, script=True
    ) as running:  # in JSON a stack is one line
        for place in ("client", "hashed", "environment"):
            good_roads(world, running.url, {"authorization": f"Bearer {CANARIES[place]}"})
        key = {"authorization": f"Bearer {CANARIES['client']}"}
        bad_roads(world, running.url, key)
        provider_roads(world, running.url, key)
        engine_roads(world, running.root, key)
        lost_keys(world, running.url, running.root, key)
        for path in ("/metrics", "/v1/models", "/healthz", "/readyz", "/v1/groundwire/usage", "/openapi.json", "/"):
            world.note(CLIENT.get(f"{running.root}{path}", headers=key))
        assert running.process is not None
        arguments = "".join(arguments_of(running.process.pid))
        log = running.ended_log()
    stored = "".join(stored_in(world.redis))
    assert "provider crash raised ValueError" in log
    assert len(world.shown) > 150
    assert stored
    audit, spans = world.audit.read_text(), str(world.collector.spans)
    assert ("Why is the sky blue?" in audit) == contents
    assert min(audit.count("\n"), spans.count("server")) > 100
    assert {head["authorization"] for head in world.collector.heads} == {f"Bearer {CANARIES['collector']}"}
    places = {"log": log, "arguments": arguments, "stored": stored, "audit": audit, "spans": spans}
    assert {name: found for name, shown in places.items() if (found := found_in(shown))} == {}
    assert [shown for shown in world.shown if found_in(shown)] == []
    assert what_others_got(world) == {}


def test_no_canary_sings_in_a_terminal(plugin: Path, tmp_path: Path, stack: ExitStack) -> None:
    world = World(stack, plugin, tmp_path, contents=True)
    path = config_file(tmp_path, world.config)
    for arguments in (
        ["check", "--json"],
        ["search", "heat 500", "--provider", "searx"],
        ["search", "x", "--provider", "crash"],
        ["open", "https://pages.example/"],
        ["ask", "Why?", "--model", "m"],
        ["usage"],
    ):
        world.model.script(everything_a_server_may_say("upstream", "header")[0])
        world.vendor.script(Turn(status=400, body=b'{"error": {"message": "%s"}}' % CANARIES["vendor"].encode()))
        command = [str(SCRIPT), *arguments, "--config", path]
        env = environment(world.env)
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, env=env)
        assert done.returncode in (0, 1), done.stderr
        assert not found_in(done.stdout + done.stderr), done.stdout + done.stderr
    assert what_others_got(world) == {}


def test_no_canary_sings_in_a_config(plugin: Path, tmp_path: Path, stack: ExitStack) -> None:
    """Neither in one that is printed nor in the errors of one that is spoiled, line by line."""
    world = World(stack, plugin, tmp_path, contents=True)
    world.config["providers"] = [entry for entry in world.config["providers"] if entry["type"] != "crashing"]
    world.config["tools"]["search"].remove("crash")  # plugins are not installed here
    path = Path(config_file(tmp_path, world.config))
    config = load(path, world.env)
    lines = path.read_text().splitlines()
    said = [repr(config), str(config), repr(config.server.keys), repr(config.providers), repr(config.network.egress)]
    for at, line in enumerate(lines):
        for spoiled in (f"{line} oops: [", line.replace(": ", ": [", 1), f"x{line.strip()}", line.replace(":", "", 1)):
            path.write_text("\n".join([*lines[:at], spoiled, *lines[at + 1 :]]))
            try:
                said.append(repr(load(path, world.env)))
            except ConfigError as error:
                said.append(str(error))
    assert len(said) > 300
    assert [shown for shown in said if found_in(shown)] == []


def arguments_of(pid: int) -> Iterator[str]:
    """Of the server and of all that it started."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    for each in (pid, *map(int, children)):
        with suppress(OSError):
            yield Path(f"/proc/{each}/cmdline").read_bytes().decode("utf-8", "replace")


def stored_in(server: RedisServer) -> Iterator[str]:
    """Names and values, as they are and unpacked."""
    client = redis.Redis.from_url(server.url)
    for name in client.scan_iter():
        yield name.decode("utf-8", "replace")
        kind = client.type(name)
        if kind == b"string":
            values = [client.get(name)]
        elif kind == b"hash":
            values = [part for pair in client.hgetall(name).items() for part in pair]
        else:
            values = [client.dump(name)]
        for value in values:
            assert isinstance(value, bytes)
            yield value.decode("latin-1")
            with suppress(zlib.error):
                yield zlib.decompress(value[1:]).decode("utf-8", "replace")
    client.close()


def what_others_got(world: World) -> dict[str, set[str]]:
    """The keys that went to somebody whom they are not for."""
    got = {
        "model": (str(world.model.heads) + str(world.model.raw), ("upstream", "header", "passed")),
        "vendor": (str(world.vendor.heads) + str(world.vendor.raw), ("vendor", "vendor_option")),
        "engine": (str(world.engine.asked), ("searxng",)),
        "exa": (str(world.exa.asked), ("exa",)),
        "proxy": (str([(passed, passed.head) for passed in world.proxy.passed]), ("proxy", "own_proxy")),
    }
    return {name: found for name, (said, own) in got.items() if (found := found_in(said, but=own))}
