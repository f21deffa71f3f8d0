"""The page at `/` as a server hands it out: who may have it, with which headers, and what its files may not hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire

FOLDER = Path(__file__).resolve().parents[2] / "proxy/serving/page"
FILES = sorted(path.name for path in FOLDER.iterdir())
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LARGEST = 80_000  # bytes, all files together


@pytest.fixture(scope="module")
def keyed(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"keys": ["key-of-a-client"]}}) as running:
        yield running


@pytest.fixture(scope="module")
def bare(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"playground": False}}) as running:
        yield running


def test_the_page_is_small() -> None:
    assert sum((FOLDER / name).stat().st_size for name in FILES) < LARGEST


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_at_its_head_what_it_is(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    if name.endswith(".js"):
        assert re.match(r"// .{20,}\n(?://.*\n)*\n", text)
    assert len(text.splitlines()) < 400


@pytest.mark.parametrize("name", FILES)
def test_no_file_makes_elements_of_a_text_or_names_another_place(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|\beval\b"
    assert not re.search(
        ways + r"|new Function|setAttribute\(['\"]on|javascript:|localStorage|sessionStorage|\.cookie", text
    )
    assert not re.search(r"\sstyle=|\son\w+=\"|<script>|<style", text)
    named = set(re.findall(r"https?://[\w.]+", text))
    assert named <= {"http://www.w3.org"}, "a name for a kind of drawing, which nobody asks for"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("server", ["proxy", "keyed"])
def test_every_file_is_open_to_all_and_known_again_by_its_tag(
    name: str, server: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(server).root
    for path in (f"/page/{name}", *(["/"] if name == "index.html" else [])):
        answer = httpx.get(root + path, timeout=20)
        assert answer.status_code == 200
        assert answer.content == (FOLDER / name).read_bytes()
        assert answer.headers["content-type"].startswith(KINDS[Path(name).suffix])
        known = httpx.get(root + path, headers={"If-None-Match": f'"x", W/{answer.headers["etag"]}'}, timeout=20)
        assert (known.status_code, known.content) == (304, b"")
        assert known.headers["etag"] == answer.headers["etag"]
        looked = httpx.head(root + path, timeout=20)
        assert (looked.status_code, looked.content) == (200, b"")
        assert looked.headers["content-length"] == str(len(answer.content))


def test_its_policy_lets_nothing_else_run_and_nobody_else_be_asked(proxy: Groundwire) -> None:
    headers = httpx.get(f"{proxy.root}/", timeout=20).headers
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        **dict.fromkeys(("script-src", "style-src", "img-src", "connect-src"), "'self'"),
        **dict.fromkeys(("base-uri", "form-action", "frame-ancestors"), "'none'"),
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-cache"


def test_what_it_asks_for_needs_the_key(keyed: Groundwire) -> None:
    for path in ("/v1/models", "/v1/groundwire/requests", "/v1/groundwire/health", "/?q=sky&format=json"):
        assert httpx.get(keyed.root + path, timeout=20).status_code == 401


def test_other_methods_and_other_files_are_refused(proxy: Groundwire) -> None:
    for path in ("/", "/page/main.js"):
        refused = httpx.post(proxy.root + path, json={}, timeout=20)
        assert refused.status_code == 405
        assert "GET" in refused.headers["allow"]
    for path in ("/page/", "/page/other.js", "/page/..%2fpage_route.py", "/page/%2e%2e/app.py"):
        assert httpx.get(proxy.root + path, timeout=20).status_code == 404
    assert httpx.get(f"{proxy.root}/", headers={"Host": "evil.example"}, timeout=20).status_code == 403


def test_the_same_path_searches_where_there_is_something_to_search_for(proxy: Groundwire) -> None:
    found = httpx.get(f"{proxy.root}/", params={"q": "sky blue", "format": "json"}, timeout=20)
    assert found.json()["results"][0]["url"] == "https://library.example/sky.md"
    assert httpx.get(f"{proxy.root}/?utm=q", timeout=20).headers["content-type"].startswith("text/html")


def test_without_a_playground_nothing_is_there(bare: Groundwire) -> None:
    assert httpx.get(f"{bare.root}/", timeout=20).status_code == 404
    assert httpx.get(f"{bare.root}/page/main.js", timeout=20).status_code == 404
    assert httpx.head(f"{bare.root}/", timeout=20).status_code == 200
    found = httpx.get(f"{bare.root}/", params={"q": "sky blue", "format": "json"}, timeout=20)
    assert found.json()["results"]
