"""What each key used and what it cost, from a real server: in answers on every road, at `/v1/groundwire/usage`, in the
metrics, and as the command prints it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fakes.groundwire import Groundwire, config_file, gone, groundwire
from tests.fakes.model import ModelServer, Turn, call, text

QUESTION = {"role": "user", "content": "Why is the sky blue?"}
OFF = {"x-groundwire-search": "off"}
PRICES = {
    "models": {"m": {"input": 100_000, "output": 200_000}},  # so that 10 and 5 tokens cost 1 each
    "providers": {"library": {"search": 0.25, "read": 0.125}},
}
SEARCHING = (call("web_search", {"query": "sky blue"}), text("Blue [1]."))


def keys(*names: str) -> list[dict[str, Any]]:
    return [{"key": f"key-{name}", "name": name} for name in names]


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    names = ("chat", "stream", "forwarded", "responses", "tools", "left", "left-forwarded", "silent", "refused", "cli")
    server = {"keys": [*keys(*names), {"key": "key-admin", "name": "root", "admin": True}]}
    with Groundwire({**config, "server": server, "prices": PRICES, "cache": "off"}) as running:
        yield running


def asked(key: str, headers: dict[str, str] | None = None) -> dict[str, str]:
    return {"authorization": f"Bearer key-{key}", **(headers or {})}


def ask(proxy: Groundwire, key: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [QUESTION], **fields}
    return httpx.post(f"{proxy.url}/chat/completions", json=body, headers=asked(key, headers), timeout=20)


def usage(proxy: Groundwire, **wanted: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{proxy.url}/groundwire/usage", params=wanted, headers=asked("admin"), timeout=20)
    assert answer.status_code == 200
    assert answer.json()["object"] == "list"
    assert answer.json()["complete"] is True
    return list(answer.json()["data"])


def row(proxy: Groundwire, key: str, met: Callable[[dict[str, Any]], bool] = bool) -> dict[str, Any]:
    """The one row of a key. It is written when the request has ended, which may be a moment after its answer."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        found = usage(proxy, key=key)
        if found and met(found[0]):
            assert len(found) == 1
            assert re.fullmatch(r"20\d\d-\d\d-\d\d", found[0].pop("day"))
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"no such row of {key}: {usage(proxy)}")


def figures(key: str, **some: Any) -> dict[str, Any]:
    plain = {"requests": 1, "failed": 0, "input_tokens": 10, "output_tokens": 5, "estimated_tokens": 0}
    return {"key": key, "model": "m", **plain, "searches": 0, "pages": 0, "cost": 2.0, **some}


SEARCHED = {"input_tokens": 20, "output_tokens": 10, "searches": 1, "cost": 4.25}


def test_a_searched_answer(proxy: Groundwire, model: ModelServer) -> None:
    model.script(*SEARCHING)
    said = ask(proxy, "chat").json()["usage"]
    assert said["cost"] == 4.25
    assert said["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}
    assert row(proxy, "chat") == figures("chat", **SEARCHED)


def test_a_searched_stream(proxy: Groundwire, model: ModelServer) -> None:
    model.script(*SEARCHING)
    answer = ask(proxy, "stream", stream=True, stream_options={"include_usage": True})
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert events[-1]["usage"]["cost"] == 4.25
    assert row(proxy, "stream") == figures("stream", **SEARCHED)


@pytest.mark.parametrize("stream", [False, True])
def test_a_forwarded_answer_is_left_as_it_is_and_counted(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(text("Blue."))
    before = [found["requests"] for found in usage(proxy, key="forwarded")] or [0]
    answer = ask(proxy, "forwarded", OFF, stream=stream, stream_options={"include_usage": True} if stream else None)
    assert '"usage"' in answer.text
    assert '"cost"' not in answer.text
    found = row(proxy, "forwarded", lambda seen: seen["requests"] > before[0])
    times = found["requests"]
    assert found == figures(
        "forwarded", requests=times, input_tokens=10 * times, output_tokens=5 * times, cost=2.0 * times
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_response(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(*SEARCHING)
    before = [found["requests"] for found in usage(proxy, key="responses")] or [0]
    body = {"model": "m", "input": "Why is the sky blue?", "stream": stream}
    answer = httpx.post(f"{proxy.url}/responses", json=body, headers=asked("responses"), timeout=20)
    said = json.loads(answer.text.strip().rsplit("data: ", 1)[1])["response"] if stream else answer.json()
    assert said["usage"]["cost"] == 4.25
    assert row(proxy, "responses", lambda seen: seen["requests"] > before[0])["searches"] == before[0] + 1


def test_the_tools_without_a_model(proxy: Groundwire) -> None:
    found = httpx.post(f"{proxy.url}/search", json={"query": "sky"}, headers=asked("tools"), timeout=20).json()
    url = found["results"][0]["url"]
    assert httpx.post(f"{proxy.url}/open", json={"url": url}, headers=asked("tools"), timeout=20).status_code == 200
    plain = {"model": "", "requests": 2, "input_tokens": 0, "output_tokens": 0}
    assert row(proxy, "tools", lambda seen: seen["requests"] == 2) == figures(
        "tools", **plain, searches=1, pages=1, cost=0.375
    )


@pytest.mark.parametrize(("key", "headers"), [("left", {}), ("left-forwarded", OFF)], ids=["searched", "forwarded"])
def test_an_answer_that_was_left_is_estimated_and_marked(
    proxy: Groundwire, model: ModelServer, key: str, headers: dict[str, str]
) -> None:
    model.script(text(*["word"] * 200, delay=0.02))
    body = {"model": "m", "messages": [QUESTION], "stream": True}
    with httpx.stream(
        "POST", f"{proxy.url}/chat/completions", json=body, headers=asked(key, headers), timeout=20
    ) as answer:
        seen = 0
        for line in answer.iter_lines():
            seen += '"word"' in line
            if seen == 20:
                break
    found = row(proxy, key)
    assert found["failed"] == 0
    assert found["estimated_tokens"] == found["input_tokens"] + found["output_tokens"]
    assert found["input_tokens"] >= 5
    assert 15 <= found["output_tokens"] <= 200
    assert found["cost"] > 2


@pytest.mark.parametrize("headers", [{}, OFF], ids=["searched", "forwarded"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_a_server_that_counts_nothing_is_estimated(
    proxy: Groundwire, model: ModelServer, headers: dict[str, str], stream: bool
) -> None:
    """Else a key could have all it wants by asking for a stream without usage."""
    model.script(text(*["word"] * 40, usage=None))
    before = [found["estimated_tokens"] for found in usage(proxy, key="silent")] or [0]
    assert ask(proxy, "silent", headers, stream=stream).status_code == 200
    found = row(proxy, "silent", lambda seen: seen["estimated_tokens"] >= before[0] + 40)
    assert found["estimated_tokens"] == found["input_tokens"] + found["output_tokens"]
    assert found["estimated_tokens"] <= before[0] + 300, "not far from what it was: about 60"


def test_what_was_refused_counts_as_failed(proxy: Groundwire, model: ModelServer) -> None:
    assert ask(proxy, "refused", messages="none").status_code == 400
    model.script(text(status=400, body=b'{"error": {"message": "no"}}'))
    assert ask(proxy, "refused").status_code == 400
    assert ask(proxy, "nobody").status_code == 401
    found = usage(proxy, key="refused")
    assert [(seen["model"], seen["requests"], seen["failed"]) for seen in found] == [("", 1, 1), ("other", 1, 1)]
    assert not usage(proxy, key="")


def test_an_admin_alone_may_see_it(proxy: Groundwire) -> None:
    for headers, status in (({}, 401), (asked("chat"), 403), (asked("admin"), 200)):
        assert httpx.get(f"{proxy.url}/groundwire/usage", headers=headers, timeout=20).status_code == status


@pytest.mark.parametrize(("query", "param"), [("from=monday", "from"), ("to=2027-13-01", "to"), ("day=1", "day")])
def test_what_cannot_be_asked(proxy: Groundwire, query: str, param: str) -> None:
    answer = httpx.get(f"{proxy.url}/groundwire/usage?{query}", headers=asked("admin"), timeout=20)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_the_metrics_say_what_it_cost(proxy: Groundwire, model: ModelServer) -> None:
    def cost(kind: str, name: str) -> float:
        page = httpx.get(f"{proxy.root}/metrics", headers=asked("admin"), timeout=20).text
        found = re.search(rf'^groundwire_cost_total{{kind="{kind}",source="{name}"}} (\S+)$', page, re.M)
        return float(found[1]) if found else 0.0

    before = cost("model", "scripted"), cost("search", "library")
    model.script(*SEARCHING)
    ask(proxy, "chat")
    proxy.logged("cost=4.25")
    assert (cost("model", "scripted") - before[0], cost("search", "library") - before[1]) == (4.0, 0.25)


# The command


@pytest.fixture
def admin_config(proxy: Groundwire, config: dict[str, Any], tmp_path: Path) -> str:
    port = int(proxy.root.rsplit(":", 1)[1])
    server = {"port": port, "keys": [{"key": "key-admin", "name": "root", "admin": True}]}
    return config_file(tmp_path, {**config, "server": server})


def test_the_command_prints_a_table(proxy: Groundwire, model: ModelServer, tmp_path: Path, admin_config: str) -> None:
    model.script(text("Blue."))
    ask(proxy, "cli")
    ask(proxy, "cli")
    row(proxy, "cli", lambda seen: seen["requests"] == 2)
    printed = groundwire(tmp_path, "usage", "--config", admin_config, "--key", "cli").stdout.splitlines()
    assert re.split("  +", printed[0]) == [
        "day", "key", "model", "requests", "failed", "input tokens", "output tokens", "searches", "pages", "cost"
    ]  # fmt: skip
    assert printed[1].split()[1:] == ["cli", "m", "2", "0", "20", "10", "0", "0", "4"]
    assert printed[2].split() == ["total", "2", "0", "20", "10", "0", "0", "4"]
    assert len(printed) == 3
    shown = groundwire(tmp_path, "usage", "--config", admin_config, "--key", "cli", "--json").stdout
    assert json.loads(shown)["data"][0]["requests"] == 2
    late = groundwire(tmp_path, "usage", "--config", admin_config, "--from", "2099-01-01").stdout
    assert late == "Nothing was used in this time.\n"


def test_the_command_takes_an_address_and_a_key_from_elsewhere(
    proxy: Groundwire, config: dict[str, Any], tmp_path: Path
) -> None:
    here = config_file(tmp_path, config)
    url = ("usage", "--config", here, "--url", proxy.url, "--json")
    assert json.loads(groundwire(tmp_path, *url, env={"GROUNDWIRE_KEY": "key-admin"}).stdout)["data"]
    for env in ({}, {"GROUNDWIRE_KEY": "key-chat"}, {"GROUNDWIRE_KEY": "wrong"}):
        done = groundwire(tmp_path, *url, env=env, code=1)
        assert "put one with `admin: true` into the variable GROUNDWIRE_KEY" in done.stderr
        assert "key-chat" not in done.stderr


def test_the_command_says_what_is_wrong(config: dict[str, Any], tmp_path: Path, model: ModelServer) -> None:
    nobody = gone()["base_url"].removesuffix("/v1")
    here = config_file(tmp_path, config)
    done = groundwire(tmp_path, "usage", "--config", here, "--url", nobody, code=1)
    assert f"No Groundwire answers at {nobody}. Start it with `groundwire serve`" in done.stderr
    done = groundwire(tmp_path, "usage", "--config", here, "--url", model.url, code=1)
    assert "is it a Groundwire of this version?" in done.stderr
    done = groundwire(tmp_path, "usage", "--config", here, "--from", "monday", code=2)
    assert "must be a day such as 2027-12-31" in done.stderr


@pytest.mark.parametrize(
    "said",
    [
        "null",
        "5",
        '"data complete"',
        "[]",
        '{"data": null, "complete": true}',
        '{"data": {"a": 1}, "complete": true}',
        '{"data": [null], "complete": true}',
        "[" * 20_000,
        "",
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_answer_of_another_shape_is_an_error_in_words(
    config: dict[str, Any], tmp_path: Path, model: ModelServer, said: str, form: list[str]
) -> None:
    model.script(Turn(body=said.encode()))
    done = groundwire(tmp_path, "usage", "--config", config_file(tmp_path, config), "--url", model.url, *form, code=1)
    assert done.stdout == ""
    assert "answered with HTTP 200: is it a Groundwire of this version?" in done.stderr


def test_fields_that_are_missing_or_null_are_left_open(
    config: dict[str, Any], tmp_path: Path, model: ModelServer
) -> None:
    rows = [{"day": "2027-01-01", "key": None, "requests": None}, {"day": "2027-01-02", "requests": 2, "cost": 0.5}]
    model.script(Turn(body=json.dumps({"data": rows, "complete": None}).encode()))
    done = groundwire(tmp_path, "usage", "--config", config_file(tmp_path, config), "--url", model.url)
    _, first, second, total = [line.split() for line in done.stdout.splitlines()]
    assert first == ["2027-01-01", *["-"] * 9]
    assert (second[3], second[-1]) == ("2", "0.5")
    assert total == ["total", "2", "0", "0", "0", "0", "0", "0.5"]


# A key


def test_a_new_key_works_by_its_hash(config: dict[str, Any], model: ModelServer, tmp_path: Path) -> None:
    printed = groundwire(tmp_path, "key", "new", "--name", 'Anna\'s "laptop"').stdout
    key = re.search(r"^key:  (gw-[A-Za-z0-9]{32,})$", printed, re.M)
    line = re.search(r"^    (- \{.*\})$", printed, re.M)
    assert key
    assert line
    assert key[1] not in line[1]
    with Groundwire({**config, "server": {"keys": yaml.safe_load(line[1])}}) as proxy:
        model.script(text("Blue."))
        body = {"model": "m", "messages": [QUESTION]}
        url = f"{proxy.url}/chat/completions"
        right = httpx.post(url, json=body, headers={"authorization": f"Bearer {key[1]}"}, timeout=20)
        wrong = httpx.post(url, json=body, headers={"authorization": f"Bearer {key[1]}x"}, timeout=20)
        assert (right.status_code, wrong.status_code) == (200, 401)
        assert "laptop" in proxy.logged(" 200 ")
        assert key[1] not in proxy.ended_log()


def test_every_key_is_another_one_and_a_bad_name_is_refused(tmp_path: Path) -> None:
    made = {groundwire(tmp_path, "key", "new").stdout for _ in range(2)}
    assert len(made) == 2
    assert "must be one line of at most 64" in groundwire(tmp_path, "key", "new", "--name", "x" * 65, code=2).stderr


def test_a_key_that_has_ended_is_told_so(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    server = {
        "keys": [
            {"key": "key-old", "name": "old", "expires": "2020-02-29"},
            {"key": "key-past", "name": "past", "expires": "2020-02-29T12:00:00+02:00"},
            {"key": "key-new", "name": "new", "expires": "2999-12-31"},
        ]
    }
    with Groundwire({**config, "server": server}) as proxy:
        assert ask(proxy, "new").status_code == 200
        for key, end in (("old", "2020-02-29 23:59 UTC"), ("past", "2020-02-29 12:00 UTC+02:00")):
            answer = ask(proxy, key)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "expired_api_key")
            assert f"The API key '{key}' ended on {end}; ask for a new one." in answer.json()["error"]["message"]
