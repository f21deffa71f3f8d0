"""The last requests and the health of a running Groundwire: what an admin sees of them, and nobody else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire, gone
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.redis_server import MISSING, PROGRAM, RedisServer

real = pytest.mark.skipif(PROGRAM is None, reason=MISSING)
CLIENT = httpx.Client(timeout=20)
ALICE, ADMIN = {"authorization": "Bearer gw-key-of-alice"}, {"authorization": "Bearer gw-key-of-the-admin"}
KEYS = [{"key": "gw-key-of-alice", "name": "alice"}, {"key": "gw-key-of-the-admin", "name": "chief", "admin": True}]
CITING = "The sky is blue because air scatters blue light more than red light [1]."
QUESTION = "Why is the sky blue, asks the patient?"
QUERY = "why is the sky blue today"


def with_dead_engine(config: dict[str, Any]) -> dict[str, Any]:
    dead = {"name": "dead", "type": "searxng", "base_url": gone()["base_url"].removesuffix("/v1"), "private": False}
    chains = {"search": ["dead", "library"], "read": ["library"], "public_fallback": True}
    return {**config, "providers": [dead, *config["providers"]], "tools": chains}


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    said = {**with_dead_engine(config), "server": {"keys": KEYS}, "cooldown": {"failures": 1, "unavailable": 3600}}
    with Groundwire(said) as running:
        yield running


def ask(proxy: Groundwire, headers: dict[str, str] = ALICE, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], **fields}
    return CLIENT.post(f"{proxy.url}/chat/completions", json=body, headers=headers)


def get(proxy: Groundwire, path: str, headers: dict[str, str] = ADMIN) -> httpx.Response:
    return CLIENT.get(f"{proxy.url}/groundwire/{path}", headers=headers)


def rows(proxy: Groundwire, headers: dict[str, str] = ADMIN) -> list[dict[str, Any]]:
    answer = get(proxy, "requests", headers)
    assert answer.status_code == 200, answer.text
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


def last(proxy: Groundwire, answer: httpx.Response) -> dict[str, Any]:
    """The row of what was answered, which is there as soon as the answer is whole, or a moment later."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [row for row in rows(proxy) if row["id"] == answer.headers["x-request-id"]]
        return bool(found)

    until(there)
    return found[0]


def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_search_with_fail_over_and_cache_is_seen(proxy: Groundwire, model: ModelServer) -> None:
    seen = []
    for _ in range(2):
        model.script(call("web_search", {"query": QUERY}), text(CITING))
        seen.append(last(proxy, ask(proxy, stream=True)))
    first, second = seen
    assert [(call["provider"], call["outcome"], call["cached"]) for call in first["searches"]] == [
        ("dead", "unavailable", False),
        ("library", "ok", False),
    ]
    assert [(call["provider"], call["outcome"], call["cached"]) for call in second["searches"]] == [
        ("dead", "cooling_down", False),
        ("library", "ok", True),
    ]
    assert (first["key"], first["dialect"], first["model"], first["upstream"]) == ("alice", "chat", "m", "scripted")
    assert (first["search"], first["reason"], first["rounds"], first["citations"]) == ("offered", "auto", 2, 1)
    assert (first["input_tokens"], first["output_tokens"], first["outcome"]) == (20, 10, "ok")
    assert 0 < first["first_token_ms"] <= first["ms"]
    assert "cost" not in first
    assert "cites what was found" in first["why"]
    steps = get(proxy, f"requests/{first['id']}").json()["steps"]
    kinds = [step["kind"] for step in steps]
    assert kinds[:4] == ["received", "decided", "model_asked", "model_answered"]
    assert [step["outcome"] for step in steps if step["kind"] == "provider_called"] == ["unavailable", "ok"]
    assert kinds.count("cited") == 1


def test_nothing_that_people_wrote_is_shown(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": QUERY}), text(CITING))
    row = last(proxy, ask(proxy))
    listed, one = get(proxy, "requests"), get(proxy, f"requests/{row['id']}")
    assert listed.json()["contents"] is False
    for answer in (listed, one):
        assert not re.search("sky|patient|scatters|library.example", answer.text)


def test_with_log_contents_queries_addresses_and_passages_are_shown(config: dict[str, Any], model: ModelServer) -> None:
    with Groundwire({**config, "log": {"contents": True}}) as proxy:
        model.script(call("web_search", {"query": QUERY}), text(CITING))
        row = last(proxy, ask(proxy))
        steps = get(proxy, f"requests/{row['id']}").json()["steps"]
        assert get(proxy, "requests").json()["contents"] is True
    by_kind = {step["kind"]: step for step in steps}
    assert by_kind["tool_started"]["contents"] == [{"query": QUERY}]
    assert by_kind["provider_called"]["asked"] == QUERY
    assert by_kind["cited"]["url"] == "https://library.example/sky.md"
    assert "patient" not in str(steps), "questions are not kept even then"


def test_why_it_did_not_search(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Because."))
    assert "the model did not call it" in last(proxy, ask(proxy))["why"]
    model.script(text("Because."))
    refused = last(proxy, ask(proxy, {**ALICE, "x-groundwire-search": "off"}))
    assert (refused["search"], refused["reason"]) == ("off", "header")
    assert "X-Groundwire-Search: off" in refused["why"]
    model.script(call("web_search", {"query": "zzzz qqqq"}), text("Nothing."))
    assert "nothing was found" in last(proxy, ask(proxy))["why"]
    model.script(Turn(status=400, body=b'{"error":{"message":"no"}}'))
    failed = ask(proxy)
    assert failed.status_code == 400
    assert "was over before any search" in last(proxy, failed)["why"]


def test_other_apis_and_tools_are_listed_and_looking_is_not(proxy: Groundwire, model: ModelServer) -> None:
    before = len(rows(proxy))
    for path in ("models", "groundwire/usage", "groundwire/health", "groundwire/requests"):
        assert CLIENT.get(f"{proxy.url}/{path}", headers=ADMIN).status_code == 200
    for path in ("/healthz", "/readyz", "/metrics"):
        assert CLIENT.get(f"{proxy.root}{path}", headers=ADMIN).status_code == 200
    assert CLIENT.post(f"{proxy.url}/chat/completions", json={}).status_code == 401
    assert len(rows(proxy)) == before
    found = CLIENT.post(f"{proxy.url}/search", json={"query": "sky"}, headers=ALICE)
    assert last(proxy, found)["why"] == "It searched, and something was found."
    assert len(rows(proxy)) == before + 1


def test_who_is_no_admin_is_refused(proxy: Groundwire) -> None:
    for path in ("requests", "requests/req_1", "health"):
        refused = get(proxy, path, ALICE)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_only")
        assert get(proxy, path, {}).status_code == 401


@pytest.mark.parametrize("limit", ["0", "-1", "201", "many", "", "1.5", "²", "9" * 400])
def test_a_limit_that_is_none_is_refused(proxy: Groundwire, limit: str) -> None:
    refused = get(proxy, f"requests?limit={limit}")
    assert refused.status_code == 400
    assert (refused.json()["error"]["param"], "1 to 200" in refused.text) == ("limit", True)


def test_what_is_not_there_is_said(proxy: Groundwire) -> None:
    for name in ("req_nobody", "%ff%00", "x" * 3000):
        unknown = get(proxy, f"requests/{name}")
        assert unknown.status_code == 404
        assert "the last 200" in unknown.json()["error"]["message"]
    odd = get(proxy, "requests?order=asc")
    assert (odd.status_code, odd.json()["error"]["param"]) == (400, "order")


def test_thousands_of_requests_keep_the_last_200(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    with Groundwire({**config, "log": {"level": "warning"}}) as proxy:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: ask(proxy, {}).status_code, range(2000)))
        assert set(answers) == {200}
        after = [last(proxy, ask(proxy, {}))["id"] for _ in range(3)]
        listed = rows(proxy, {})
        assert len(listed) == 200
        assert [row["id"] for row in listed[:3]] == after[::-1]
        assert len(get(proxy, "requests?limit=7", {}).json()["data"]) == 7
        assert get(proxy, "requests", {}).json()["complete"] is True


@real
def test_two_processes_on_one_redis_show_one_list(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    with RedisServer() as redis:
        said = {**config, "store": redis.url}
        with Groundwire(said) as one, Groundwire(said) as other:
            ids = [ask(proxy, {}).headers["x-request-id"] for proxy in (one, other, one)]
            for proxy in (one, other):
                until(lambda proxy=proxy: [row["id"] for row in rows(proxy, {})] == ids[::-1])  # type: ignore[misc]
            detail = [get(proxy, f"requests/{ids[0]}", {}).json() for proxy in (one, other)]
            assert detail[0] == detail[1]
            assert [step["kind"] for step in detail[1]["steps"]][:2] == ["received", "decided"]
            redis.kill()
            alone = get(other, "requests", {}).json()
            assert [row["id"] for row in alone["data"]] == [ids[1]]
            assert alone["complete"] is False
            missing = get(other, f"requests/{ids[0]}", {})
            assert missing.status_code == 404
            assert "cannot be reached" in missing.text


def documented(keys: str) -> dict[str, Any]:
    """The example of the page that begins with this key."""
    page = (Path(__file__).parents[2] / "docs" / "observing.md").read_text(encoding="utf-8")
    (example,) = [text for text in re.findall(r"```json\n(.*?)\n```", page, re.S) if text.startswith(f'{{"{keys}"')]
    shown: dict[str, Any] = json.loads(example)
    return shown


def test_the_page_shows_what_is_given(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Because."))
    last(proxy, ask(proxy, stream=True))
    listed, example = get(proxy, "requests").json(), documented("object")
    assert list(example) == list(listed)
    assert list(example["data"][0]) == list(listed["data"][0])
    health, example = get(proxy, "health").json(), documented("providers")
    assert list(example) == list(health)
    library = next(row for row in health["providers"] if row["name"] == "library")
    assert list(example["providers"][1]) == list(library)
    assert list(example["providers"][1]["index"]) == list(library["index"])
    assert list(example["upstreams"][0]) == list(health["upstreams"][0])


# Health


def test_health_says_what_was_seen(config: dict[str, Any], model: ModelServer) -> None:
    said = with_dead_engine(config)
    said["upstreams"] = [{**gone(), "models": ["away-*"]}, *said["upstreams"]]
    said["providers"] = [*said["providers"], {"name": "spare", "type": "direct"}]
    said["cooldown"] = {"failures": 1, "unavailable": 3600}
    with Groundwire(said) as proxy:
        before = get(proxy, "health", {}).json()
        assert {row["state"] for row in before["providers"] + before["upstreams"]} == {"untried"}
        for _ in range(2):
            model.script(call("web_search", {"query": QUERY}), text(CITING))
            assert ask(proxy, {}).status_code == 200
        assert ask(proxy, {}, model="away-1").status_code >= 500
        health = get(proxy, "health", {}).json()
    assert list(health) == [
        "providers",
        "upstreams",
        "cache",
        "store",
        "store_reachable",
        "version",
        "uptime_seconds",
    ]
    assert [row["name"] for row in health["providers"]] == ["dead", "library", "spare"]
    dead, library, spare = health["providers"]
    assert (dead["type"], dead["roles"], dead["state"]) == ("searxng", ["search"], "cooling_down")
    assert dead["why"]
    assert dead["until"] > before_an_hour()
    assert (dead["calls"], dead["failures"], dead["last_outcome"]) == (1, 1, "unavailable")
    assert (library["state"], library["roles"], library["until"]) == ("ok", ["search", "read"], None)
    assert (library["calls"], library["failures"], library["last_outcome"]) == (1, 0, "ok")
    assert library["last_ms"] > 0
    assert library["index"] == {"documents": 3, "pending": 0, "state": "ready", "skipped": 0}
    assert (spare["state"], spare["roles"], spare["last_outcome"], spare["last_ms"]) == ("untried", [], "", None)
    assert "index" not in spare
    away, up = health["upstreams"]
    assert (up["name"], up["type"], up["state"], up["why"], up["last_failure"]) == (
        "scripted",
        "openai",
        "ok",
        "",
        None,
    )
    assert up["last_ok"]
    assert (away["name"], away["state"], away["last_ok"]) == ("gone", "failing", None)
    assert away["why"].startswith("The last question failed (HTTP 5")
    assert health["cache"] == {"search": {"hits": 1, "misses": 2}, "read": {"hits": 0, "misses": 0}}
    assert (health["store"], health["store_reachable"]) == ("memory", True)
    assert health["uptime_seconds"] > 0


def before_an_hour() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 3000))
