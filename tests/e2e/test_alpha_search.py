"""`/v1/alpha/search`: every command of Codex's own search client, run by our tools."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.pages import PageServer
from tools import prompts

KEY = "key-of-a-client"
HTML = (
    "<html><head><title>Tea houses</title></head><body><article><h1>Tea houses</h1>"
    + "".join(f"<p>Paragraph {n} speaks of tea, and at some length, so that it is text.</p>" for n in range(1, 30))
    + "<p>The oldest of them stands in <a href='/nagoya'>Nagoya</a>, says the guide.</p></article></body></html>"
)
OTHER = (
    "<html><head><title>Nagoya</title></head><body><article><h1>Nagoya</h1><p>A city with tea houses, on the Pacific "
    "coast of Japan, with a castle that is well worth seeing.</p></article></body></html>"
)


@pytest.fixture(scope="module")
def pages() -> Iterator[PageServer]:
    with PageServer() as server:
        server.page("/tea", HTML.encode())
        server.page("/nagoya", OTHER.encode())
        yield server


@pytest.fixture(scope="module")
def codex(config: dict[str, Any], pages: PageServer) -> Iterator[Groundwire]:
    providers = [*config["providers"], {"name": "reader", "type": "direct"}]
    tools = {"search": ["library"], "read": ["library", "reader"], "allow_networks": ["127.0.0.0/8"]}
    keys = [
        {"name": "codex", "key": KEY, "admin": True},
        {"name": "two", "key": "two-searches", "searches_per_minute": 2},
        {"name": "none", "key": "no-search-at-all", "search": {"mode": "off"}},
        {"name": "reads", "key": "pages-and-no-search", "search": {"providers": ["reader"]}},
    ]
    with Groundwire({**config, "providers": providers, "tools": tools, "server": {"keys": keys}}) as running:
        yield running


def post(proxy: Groundwire, commands: Any, key: str = KEY, **more: Any) -> httpx.Response:
    body = {"id": "session", "model": "m", "commands": commands, **more}
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{proxy.url}/alpha/search", json=body, headers=headers, timeout=20)


def output(proxy: Groundwire, commands: Any, **more: Any) -> str:
    answer = post(proxy, commands, **more)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"output"}
    text = answer.json()["output"]
    assert isinstance(text, str)
    return text


def test_searches_stand_in_their_order(codex: Groundwire) -> None:
    text = output(codex, {"search_query": [{"q": "sky blue"}, {"q": "green tea", "domains": ["library.example"]}]})
    assert f"URL: {SITE}sky.md" in text
    assert text.index("Why the sky is blue") < text.index("Green tea")
    assert prompts.REF_OF_RESULT in text
    assert "To cite" not in text


def test_domains_and_settings_narrow(codex: Groundwire) -> None:
    elsewhere = output(codex, {"search_query": [{"q": "sky", "domains": ["elsewhere.example"]}]})
    blocked = output(
        codex, {"search_query": [{"q": "sky"}]}, settings={"filters": {"blocked_domains": ["library.example"]}}
    )
    for text in (elsewhere, blocked):
        assert "gave nothing" in text
    few = output(
        codex, {"search_query": [{"q": "why green sky sea tea blue"}]}, settings={"search_context_size": "low"}
    )
    assert few.count("URL: ") <= 3


def test_a_page_is_opened_by_its_url(codex: Groundwire, pages: PageServer) -> None:
    text = output(codex, {"open": [{"ref_id": pages.url("/tea")}, {"ref_id": SITE + "sky.md"}]})
    assert "Tea houses" in text
    assert "Rayleigh" in text
    assert f"1 {pages.url('/nagoya')}" in text
    rest = output(codex, {"open": [{"ref_id": pages.url("/tea"), "lineno": 30}]})
    assert rest.startswith("Lines 30 to ")
    assert "Paragraph 1 " not in rest


def test_a_link_is_clicked(codex: Groundwire, pages: PageServer) -> None:
    assert "well worth seeing" in output(codex, {"click": [{"ref_id": pages.url("/tea"), "id": 1}]})
    assert "there is no link 7 on it" in output(codex, {"click": [{"ref_id": pages.url("/tea"), "id": 7}]})


def test_a_pattern_is_found(codex: Groundwire, pages: PageServer) -> None:
    text = output(codex, {"find": [{"ref_id": pages.url("/tea"), "pattern": "Oldest of them"}]})
    assert "stands in 1 lines" in text
    assert "The oldest of them stands in" in text
    assert "does not stand in" in output(codex, {"find": [{"ref_id": pages.url("/tea"), "pattern": "coffee"}]})


def test_a_dozen_of_what_is_not_there_is_named(codex: Groundwire) -> None:
    text = output(codex, {f"unknown_{n}": [{}] for n in range(20)})
    assert text.split("\n\n") == [prompts.NO_SUCH_COMMAND.format(name=f"unknown_{n}") for n in range(12)]


@pytest.mark.parametrize("name", ["image_query", "screenshot", "finance", "weather", "sports", "time", "levitate"])
def test_what_is_not_there_is_said_and_the_rest_runs(codex: Groundwire, name: str) -> None:
    text = output(codex, {name: [{"q": "x", "ref_id": "x"}], "search_query": [{"q": "sky blue"}]})
    assert "Why the sky is blue" in text
    assert text.endswith(prompts.NO_SUCH_COMMAND.format(name=name))


def test_one_failure_does_not_fail_the_others(codex: Groundwire, pages: PageServer) -> None:
    commands = {
        "search_query": [{"q": ""}, {"q": "sky blue"}],
        "open": [
            {"ref_id": "turn0search0"},
            {"ref_id": "http://10.0.0.1/"},
            {"ref_id": pages.url("/missing")},
            {"ref_id": pages.url("/tea")},
        ],
    }
    text = output(codex, commands)
    assert "The call was not run" in text
    assert "Why the sky is blue" in text
    assert prompts.REF_IS_URL in text
    assert text.count("could not be opened") == 3
    assert "Paragraph 1 " in text


def test_without_live_access_nothing_is_fetched(codex: Groundwire, pages: PageServer) -> None:
    commands = {"search_query": [{"q": "sky blue"}], "open": [{"ref_id": pages.url("/tea")}]}
    pages.requests.clear()
    text = output(codex, commands, settings={"external_web_access": False})
    assert "Why the sky is blue" in text
    assert prompts.NOT_LIVE in text
    assert pages.requests == []


def test_the_output_is_bounded(codex: Groundwire, pages: PageServer) -> None:
    commands = {"open": [{"ref_id": pages.url("/tea")}], "search_query": [{"q": "sky blue"}]}
    text = output(codex, commands, max_output_tokens=400)
    assert len(text) <= 1600
    assert "to read on, open it again with lineno" in text
    tiny = output(codex, commands, max_output_tokens=50)
    assert len(tiny) <= 200
    assert "[Cut here" in tiny


def test_no_command(codex: Groundwire) -> None:
    assert output(codex, {}) == prompts.NO_COMMAND


def test_a_wrong_shape(codex: Groundwire) -> None:
    answer = post(codex, {"open": [{"url": "https://a.org"}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "commands.open.0.ref_id")


def test_keys_limits_and_usage(codex: Groundwire) -> None:
    search = {"search_query": [{"q": "sky"}]}
    assert post(codex, search, "wrong").status_code == 401
    assert post(codex, search, "no-search-at-all").status_code == 403
    three = {"search_query": [{"q": "sky"}, {"q": "sea"}, {"q": "tea"}]}
    text = post(codex, three, "two-searches").json()["output"]
    assert text.count("Results for") == 2
    assert "the search limit of this user is reached" in text
    after = post(codex, {**search, "open": [{"ref_id": SITE + "sky.md"}]}, "two-searches")
    assert "the search limit of this user is reached" in after.json()["output"]
    assert "Rayleigh" in after.json()["output"], "pages are no searches"
    assert used(codex, "two")["requests"] == 2
    assert used(codex, "two")["searches"] == 2


def test_a_key_that_may_only_read(codex: Groundwire, pages: PageServer) -> None:
    """Codex ends its turn at a refusal: what may be done is done, and of the rest its model is told."""
    commands = {"search_query": [{"q": "sky"}], "open": [{"ref_id": pages.url("/tea")}]}
    answer = post(codex, commands, "pages-and-no-search")
    assert answer.status_code == 200, answer.text
    assert "gave nothing" in answer.json()["output"]
    assert "Results for" not in answer.json()["output"]
    assert "URL: " in answer.json()["output"]


def used(proxy: Groundwire, key: str) -> dict[str, Any]:
    """The row of a key, once both of its requests are in it: each is written when it has ended."""
    end, found = time.monotonic() + 10, dict[str, Any]()
    while found.get("requests") != 2 and time.monotonic() < end:
        headers = {"authorization": f"Bearer {KEY}"}
        rows = httpx.get(f"{proxy.url}/groundwire/usage", params={"key": key}, headers=headers, timeout=20).json()
        found = rows["data"][0] if rows["data"] else {}
    return found
