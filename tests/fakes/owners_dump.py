"""A Redis as the build before named owners (9b3db7c) left it, and what its clients held: `python -m
tests.fakes.owners_dump` made `tests/data/owners.json` at that commit, `restore` loads it into another server.
"""

from __future__ import annotations

import base64
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis

from tests.e2e.conftest import LIBRARY, SITE
from tests.e2e.test_background import begin, ended, eventually, get
from tests.e2e.test_messages import ask as ask_messages
from tests.e2e.test_mixed_turns import ASKED, ask
from tests.e2e.test_mixed_turns import SEARCH as SEARCH_CALL
from tests.e2e.test_mixed_turns import WEATHER as WEATHER_CALL
from tests.e2e.test_responses import HOSTED, SEARCH, respond
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text
from tests.fakes.redis_server import RedisServer
from tests.unit.messages_scripts import SERVER_TOOL

FILE = Path(__file__).parents[1] / "data" / "owners.json"
ALICE, BOB, NAMELESS = "gw-the-key-of-alice", "gw-the-key-of-bob-1", "gw-a-key-without-a-name"
KEYS: list[Any] = [{"name": "alice", "key": ALICE}, {"name": "bob", "key": BOB}, NAMELESS]
_LIFE = 3_600_000  # milliseconds, whatever was left when it was made: a test must not fail because of its age


def held() -> dict[str, Any]:
    """Ids and answers, as the clients got them."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))["held"]
    return found


def restore(server: RedisServer) -> None:
    for name, payload in json.loads(FILE.read_text(encoding="utf-8"))["kept"].items():
        assert server.ask("RESTORE", name, str(_LIFE), base64.b64decode(payload)) == b"+OK", name


def _make() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, page in LIBRARY.items():
            (folder / name).write_text(page, encoding="utf-8")
        model, server = stack.enter_context(ModelServer()), stack.enter_context(RedisServer())
        provider = {"name": "library", "type": "local", "base_url": SITE, "private": False}
        upstream = {"name": "scripted", "type": "openai", "base_url": model.url, "api_key": "sk-upstream"}
        config = {
            "upstreams": [upstream],
            "providers": [{**provider, "options": {"path": str(folder)}}],
            "store": server.url,
            "server": {"keys": KEYS},
        }
        proxy = stack.enter_context(Groundwire(config))
        seen = _ask_for_everything(proxy, model)
        _write(server, seen)


def _ask_for_everything(proxy: Groundwire, model: ModelServer) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    model.script(SEARCH, text("Blue [1]."), text("Yes [1]."), text("No."))
    seen["first"] = respond(proxy, key=ALICE, tools=[HOSTED])
    seen["second"] = respond(proxy, "Sure?", key=ALICE, previous_response_id=seen["first"]["id"])
    seen["branch"] = respond(proxy, "Always?", key=ALICE, previous_response_id=seen["first"]["id"])
    for name, key in (("of_bob", BOB), ("nameless", NAMELESS)):
        model.script(text(f"For {name}."))
        seen[name] = respond(proxy, key=key)
    model.script(Turn(text=["Wait."], calls=[SEARCH_CALL, WEATHER_CALL]))
    seen["mixed"] = ask(proxy, [ASKED], key=ALICE).message
    model.script(SEARCH, text("Blue [1]."))
    seen["background"] = ended(proxy, begin(proxy, key=ALICE)["id"], ALICE)
    model.script(Turn(calls=[SEARCH_CALL]), text("Blue [1]."))
    seen["message"] = ask_messages(proxy, key=ALICE, tools=[SERVER_TOOL], model="vendor/m")
    model.script(text("word ", "word ", end="hang", finish=None, usage=None))
    seen["running"] = begin(proxy, key=ALICE)
    eventually(lambda: get(proxy, seen["running"]["id"], ALICE).json()["status"] == "in_progress")
    return seen


def _write(server: RedisServer, seen: dict[str, Any]) -> None:
    """While the last one is still being made."""
    with redis.Redis(port=server.port) as client:
        names = sorted(name.decode() for name in client.keys("gw:1:*"))
        brief = ("gw:1:cache:", "gw:1:secret:new")  # the latter is there for two minutes after the first start
        wanted = [name for name in names if not name.startswith(brief)]
        kept = {name: base64.b64encode(client.dump(name)).decode() for name in wanted}
    FILE.write_text(json.dumps({"held": seen, "kept": kept}, indent=1) + "\n", encoding="utf-8")
    print(f"{FILE}: {len(kept)} of {len(names)} entries; left out: {sorted(set(names) - kept.keys())}")


if __name__ == "__main__":
    _make()
