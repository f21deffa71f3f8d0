"""`/v1/search` and `/v1/open`: the tools without a model, behind the same keys and limits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, text


def post(proxy: Groundwire, path: str, body: Any, **headers: str) -> httpx.Response:
    return httpx.post(f"{proxy.url}/{path}", json=body, headers=headers, timeout=20)


def test_a_search(proxy: Groundwire) -> None:
    found = post(proxy, "search", {"query": "sky blue", "limit": 2}).json()
    assert found["query"] == "sky blue"
    assert found["provider"] == "library"
    assert found["results"][0]["url"] == SITE + "sky.md"
    assert found["results"][0].keys() == {"n", "title", "url", "snippet", "date"}
    assert len(found["results"]) <= 2
    again = post(proxy, "search", {"query": "sky blue", "limit": 2}).json()
    assert again["results"] == found["results"]
    assert found["age"] is None
    assert again["age"] >= 0


def test_filters(proxy: Groundwire) -> None:
    body = {"query": "sky", "filters": {"blocked_domains": ["library.example"]}}
    found = post(proxy, "search", body).json()
    assert found["results"] == []
    assert found["message"]


def test_a_page_and_several(proxy: Groundwire) -> None:
    page = post(proxy, "open", {"url": SITE + "sky.md"}).json()
    assert (page["status"], page["title"]) == ("success", "Why the sky is blue")
    assert "Rayleigh" in page["content"]
    several = post(proxy, "open", {"urls": [SITE + "sea.md", "http://127.0.0.1:1/x"], "max_length": 500}).json()
    good, bad = several["pages"]
    assert (good["status"], bad["status"]) == ("success", "error")
    odd = post(proxy, "open", {"url": [SITE + "sea.md", SITE + "sky.md"]}).json()
    assert [page["status"] for page in odd["pages"]] == ["success", "success"]
    site = post(proxy, "open", {"urls": [f"{SITE}sky.md?{n}" for n in range(12)]}).json()
    assert not any("not allowed in one answer" in page["error"] for page in site["pages"])
    assert bad["error"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("search", {}, None),
        ("search", {"query": " "}, "query"),
        ("search", {"query": "x" * 500}, "query"),
        ("search", {"query": "x", "filters": []}, "filters"),
        ("search", {"query": "x", "limits": 5}, "limits"),
        ("search", {"query": "x", "filters": {"alowed_domains": []}}, "filters.alowed_domains"),
        ("open", {}, None),
        ("open", {"url": "not a url at all"}, None),
        ("open", {"urls": []}, None),
        ("open", {"url": SITE, "depth": 2}, "depth"),
    ],
)
def test_bad_arguments_are_refused(proxy: Groundwire, path: str, body: Any, param: str | None) -> None:
    answer = post(proxy, path, body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == param


def test_bodies_that_are_no_objects(proxy: Groundwire) -> None:
    assert post(proxy, "search", ["x"]).status_code == 400
    answer = httpx.post(f"{proxy.url}/open", content=b"{", headers={"content-type": "application/json"}, timeout=20)
    assert answer.json()["error"]["code"] == "invalid_json"


def test_they_stand_behind_the_same_keys(config: dict[str, Any]) -> None:
    with Groundwire({**config, "server": {"keys": ["key-of-a-client"]}}) as proxy:
        for path, body in (("search", {"query": "sky"}), ("open", {"url": SITE + "sky.md"})):
            assert post(proxy, path, body).status_code == 401
            assert post(proxy, path, body, authorization="Bearer key-of-a-client").status_code == 200


def test_without_providers_there_is_nothing_to_ask(config: dict[str, Any]) -> None:
    with Groundwire({**config, "tools": {"search": [], "read": []}}) as proxy:
        for path, body in (("search", {"query": "sky"}), ("open", {"url": SITE + "sky.md"})):
            answer = post(proxy, path, body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_provider")


def test_the_guide_shows_requests_that_work(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
    shown = re.findall(r"curl -s http://127\.0\.0\.1:8080/v1/([\w/]+) .*?-d '(.*?)'\n", guide, re.DOTALL)
    assert [path for path, _ in shown] == [
        "chat/completions",
        *("responses", "responses", "search", "open", "alpha/search"),
    ]
    for path, body in shown:
        assert post(proxy, path, json.loads(body)).status_code == 200


# A plugin

PLUGIN = """
class Slow:
    def __init__(self, settings): ...

    async def search(self, query):
        raise TimeoutError("some socket of the plugin")
"""


def test_a_timeout_of_a_plugins_own_is_its_failure_and_in_the_log(config: dict[str, Any], tmp_path: Path) -> None:
    """Nothing of ours took too long: it says what was raised, and where."""
    (tmp_path / "slow_plugin.py").write_text(PLUGIN)
    info = tmp_path / "slow_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[groundwire.providers]\nslow = slow_plugin:Slow\n")
    plugged = {**config, "providers": [{"name": "slow", "type": "slow"}]}
    with Groundwire(plugged, {"PYTHONPATH": str(tmp_path)}, faulty=True, script=True) as proxy:
        answer = post(proxy, "search", {"query": "sky blue"})
        assert "the provider failed (TimeoutError)" in answer.text
        assert "in time" not in answer.text
        proxy.logged("provider slow raised TimeoutError")
        proxy.logged("slow_plugin.py")
