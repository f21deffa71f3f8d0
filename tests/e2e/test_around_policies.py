"""Ways around what a key may do, each of which was open once: fields that name other models or let the model's server
search, addresses that are spelled otherwise, a second header, a reload that forgets the keys.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, text
from tests.faults.test_reload import Reloaded

QUESTION = {"role": "user", "content": "Why is the sky blue?"}
KEYS = [
    {"key": "key-of-quiet", "name": "quiet", "search": {"mode": "off"}},
    {"key": "key-of-small", "name": "small", "models": ["m"]},
    {"key": "key-of-admin", "name": "admin", "admin": True},
]


@pytest.fixture(scope="module", params=["auto", "off"])
def proxy(config: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"keys": KEYS}, "tools": {"mode": request.param}}) as running:
        yield running


def post(proxy: Groundwire, key: str, path: str, **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer key-of-{key}"}
    return httpx.post(f"{proxy.url}/{path}", json=body, headers=headers, timeout=20)


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_a_key_that_may_not_search_has_nobody_search_for_it(proxy: Groundwire, model: ModelServer, path: str) -> None:
    model.script(text("Blue."))
    wishes = {
        "web_search_options": {},
        "tools": [{"type": "web_search"}],
        "plugins": [{"id": "web"}, {"id": "file-parser"}],
    }
    said = {"messages": [QUESTION]} if path.startswith("chat") else {"prompt": "Why?"}
    assert post(proxy, "quiet", path, model="m:online", **said, **wishes).status_code == 200
    [asked] = model.requests
    assert asked["model"] == "m"
    assert asked["plugins"] == [{"id": "file-parser"}]
    assert "web_search_options" not in asked
    assert not asked.get("tools")


@pytest.mark.parametrize("field", ["models", "fallbacks", "Fallback_Models"])
@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
def test_a_key_with_certain_models_names_no_others(
    proxy: Groundwire, model: ModelServer, path: str, field: str
) -> None:
    model.script(text("Blue."))
    answer = post(proxy, "small", path, model="m", messages=[QUESTION], input="x", **{field: ["dear"]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "ambiguous_model")
    assert model.requests == []


def test_an_escaped_address_is_counted_all_the_same(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    body = {"model": "m", "messages": [QUESTION]}
    headers = {"authorization": "Bearer key-of-admin"}

    def requests() -> int:
        rows = httpx.get(f"{proxy.url}/groundwire/usage", headers=headers, timeout=20).json()["data"]
        return sum(row["requests"] for row in rows if row["key"] == "admin")

    before = requests()
    answer = httpx.post(f"{proxy.root}/%761/chat/completions", json=body, headers=headers, timeout=20)
    assert answer.status_code == 200
    proxy.logged(answer.headers["x-request-id"])
    assert requests() == before + 1


def test_one_content_type(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    line = http.client.HTTPConnection("127.0.0.1", int(proxy.root.rsplit(":", 1)[1]), timeout=20)
    line.putrequest("POST", "/v1/embeddings")
    line.putheader("Authorization", "Bearer key-of-admin")
    line.putheader("Content-Type", "application/json")
    line.putheader("Content-Type", "multipart/form-data; boundary=b")
    line.putheader("Content-Length", "2")
    line.endheaders(b"{}")
    assert line.getresponse().status == 400
    line.close()
    assert model.requests == []


def test_a_reload_without_keys_opens_no_door(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    with Reloaded({**config, "server": {"keys": KEYS}}) as running:
        assert "no client keys any more" in running.reload(config)
        answer = httpx.post(f"{running.url}/chat/completions", json={"model": "m", "messages": [QUESTION]}, timeout=20)
        assert answer.status_code == 401
        assert post(running, "admin", "chat/completions", model="m", messages=[QUESTION]).status_code == 200
