"""What a key may do holds on every path: its models, its search, its providers and domains, its style of citing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text
from tests.fakes.pages import PageServer
from tests.fakes.search import FakeSearxng

VAULT = "https://vault.example/"
QUESTION = {"role": "user", "content": "Why is the sky blue?"}
SEARCH = call("web_search", {"query": "sky blue"})
ANSWER = text("Scattering [1].")
PAGE = (
    b"<html><body><article><p>"
    + b"The sky is blue because of how air scatters light. " * 20
    + b"</p></article></body></html>"
)
KEYS: dict[str, dict[str, Any]] = {
    "free": {},
    "small": {"models": ["m", "fast", "only:online"]},
    "quiet": {"search": {"mode": "off"}},
    "asking": {"search": {"mode": "on_request"}},
    "eager": {"search": {"mode": "auto"}},
    "private": {"search": {"providers": "private"}},
    "named": {"search": {"providers": ["library"]}},
    "searcher": {"search": {"providers": ["searx"]}},
    "nobody": {"search": {"providers": []}},
    "narrow": {
        "search": {"allowed_domains": ["vault.example", "library.example"], "blocked_domains": ["vault.example"]}
    },
    "numbers": {"citations": {"style": "number"}},
    "grouped": {"group": "team"},
    "apart": {"group": "team", "search": {"mode": "auto"}},
}


@pytest.fixture(scope="module")
def searxng() -> Iterator[FakeSearxng]:
    with FakeSearxng() as fake:
        yield fake


@pytest.fixture(scope="module")
def pages() -> Iterator[PageServer]:
    with PageServer() as server:
        server.page("/page", PAGE)
        yield server


@pytest.fixture(scope="module")
def settings(model: ModelServer, library: Path, searxng: FakeSearxng) -> dict[str, Any]:
    folder = {"path": str(library)}
    keys = [{"key": f"key-of-{name}", "name": name, **policy} for name, policy in KEYS.items()]
    return {
        "server": {
            "keys": keys,
            "groups": {"team": {"models": ["m"], "search": {"mode": "off", "providers": "private"}}},
        },
        "upstreams": [
            {"name": "off", "base_url": model.url, "models": ["m-off"], "mode": "off"},
            {"name": "scripted", "base_url": model.url, "api_key": "sk-upstream", "forward": ["/v1/batches"]},
        ],
        "aliases": {"fast": "scripted/m-large", "slow": "m"},
        "providers": [
            {"name": "searx", "type": "searxng", "base_url": searxng.url, "private": False},
            {"name": "library", "type": "local", "base_url": SITE, "private": False, "options": folder},
            {"name": "vault", "type": "local", "base_url": VAULT, "options": folder},
            {"name": "reader", "type": "direct"},
        ],
        "tools": {"allow_networks": ["127.0.0.0/8"], "parameters": "full"},
    }


@pytest.fixture(scope="module")
def proxy(settings: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire(settings) as running:
        yield running


def post(proxy: Groundwire, key: str, path: str, **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer key-of-{key}", **body.pop("headers", {})}
    return httpx.post(f"{proxy.url}/{path}", json=body, headers=headers, timeout=20)


def ask(proxy: Groundwire, key: str, model: str = "m", **fields: Any) -> httpx.Response:
    return post(proxy, key, "chat/completions", model=model, messages=[QUESTION], **fields)


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def refused(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    message: str = answer.json()["error"]["message"]
    return message


def offered(model: ModelServer) -> list[str]:
    return [tool["function"]["name"] for tool in model.requests[-1].get("tools", [])]


# Models


def test_a_model_that_is_not_allowed_looks_like_one_that_is_not_there(proxy: Groundwire, model: ModelServer) -> None:
    model.script(ANSWER)
    assert said(ask(proxy, "small")) == "Scattering [1]."
    model.requests.clear()
    messages = set()
    for name in ("vendor/m", "no-such-model", "m-off", "slow", "m-large", "vendor/m:online", "no-such-model:online"):
        for path, body in (
            ("chat/completions", {"messages": [QUESTION]}),
            ("responses", {"input": "Hello"}),
            ("embeddings", {"input": "Hello"}),
            ("completions", {"prompt": "Hello"}),
        ):
            message = refused(post(proxy, "small", path, model=name, **body), 404, "model_not_found")
            messages.add(message.replace(name, "…"))
        url = f"{proxy.url}/models/{name}"
        answer = httpx.get(url, headers={"authorization": "Bearer key-of-small"}, timeout=20)
        refused(answer, 404, "model_not_found")
    assert len(messages) == 1, "nothing tells what there is from what there is not"
    assert not model.requests


@pytest.mark.parametrize(("name", "sent"), [("fast", "m-large"), ("m:online", "m"), ("only:online", "only")])
def test_the_name_that_the_client_writes_is_what_counts(
    proxy: Groundwire, model: ModelServer, name: str, sent: str
) -> None:
    """An alias is a name like others, and `:online` is no part of one."""
    model.script(SEARCH, ANSWER)
    assert "Scattering" in said(ask(proxy, "small", name))
    assert model.requests[0]["model"] == sent


def test_a_model_that_is_really_called_online_must_be_allowed_itself(
    settings: dict[str, Any], model: ModelServer
) -> None:
    with ModelServer() as listing:
        listing.listing.append({"id": "m:online", "object": "model"})
        listing.script(ANSWER)
        upstreams = [{"name": "listing", "base_url": listing.url}]
        with Groundwire({**settings, "upstreams": upstreams, "aliases": {}}) as proxy:
            refused(ask(proxy, "small", "m:online"), 404, "model_not_found")
            assert said(ask(proxy, "free", "m:online"))
    assert [request["model"] for request in listing.requests] == ["m:online"]


def test_only_what_may_be_used_is_listed(proxy: Groundwire) -> None:
    def listed(key: str) -> set[str]:
        answer = httpx.get(f"{proxy.url}/models", headers={"authorization": f"Bearer key-of-{key}"}, timeout=20)
        return {entry["id"] for entry in answer.json()["data"]}

    assert listed("free") >= {"m", "vendor/m", "fast", "slow", "m-off"}
    assert listed("small") == {"m", "fast"}
    assert listed("grouped") == {"m"}


def form(*fields: bytes) -> bytes:
    parts = [b"--b\r\nContent-Disposition: form-data; " + field + b"\r\n" for field in fields]
    sound = b'--b\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n\r\nRIFF\r\n'
    return b"".join(parts) + sound + b"--b--\r\n"


def upload(proxy: Groundwire, key: str, body: bytes) -> httpx.Response:
    headers = {"authorization": f"Bearer key-of-{key}", "content-type": "multipart/form-data; boundary=b"}
    return httpx.post(f"{proxy.url}/audio/transcriptions", content=body, headers=headers, timeout=20)


def test_forms_name_an_allowed_model_once(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Words."))
    good, other = b'name="model"\r\n\r\nm', b'name="model"\r\n\r\nvendor/m'
    assert upload(proxy, "small", form(good)).status_code == 200
    assert upload(proxy, "free", form(good, other)).status_code == 200
    assert len(model.raw) == 2
    refused(upload(proxy, "small", form(other)), 404, "model_not_found")
    refused(upload(proxy, "small", form(b'name="language"\r\n\r\nde')), 400, "missing_field")
    for odd in (
        b"name=model", b'Name = "model"', b'name="MODEL"', b'name="mod\\el"', b'name="mod%65l"',
        b"name*=utf-8''model", b'name*0="mod"; name*1="el"', b'name="model"; x=y', b"name='model'",
    ):  # fmt: skip
        for body in (form(good, odd + b"\r\n\r\nvendor/m"), form(odd + b"\r\n\r\nvendor/m", good)):
            assert upload(proxy, "small", body).status_code in (400, 404), odd
    assert len(model.raw) == 2, "nothing of this was sent"


def test_json_names_an_allowed_model_once(proxy: Groundwire, model: ModelServer) -> None:
    """Of two equal keys one server takes the first and another the last; some take `Model` for `model`."""
    model.script(ANSWER)
    question = b'"messages":[{"role":"user","content":"Hello"}],"input":"Hello"'
    headers = {"authorization": "Bearer key-of-small", "content-type": "application/json"}
    off = {**headers, "x-groundwire-search": "off"}
    for path, head in (("chat/completions", off), ("chat/completions", headers), ("embeddings", headers)):
        model.raw.clear()
        twice = b'{"model":"vendor/m","model":"m",' + question + b"}"
        assert httpx.post(f"{proxy.url}/{path}", content=twice, headers=head, timeout=20).status_code == 200
        assert b"vendor" not in model.raw[0]
        for wrong in (b'{"model":"m","model":"vendor/m",', b'{"model":"m","Model":"vendor/m",', b'{"MODEL":"m",'):
            answer = httpx.post(f"{proxy.url}/{path}", content=wrong + question + b"}", headers=head, timeout=20)
            assert answer.status_code in (400, 404), answer.text
        assert len(model.raw) == 1


def test_a_path_that_names_no_model_is_not_for_keys_with_certain_models(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("[]"))
    for path in ("moderations", "batches"):
        refused(post(proxy, "small", path, input="Hello"), 400, "missing_field")
        assert post(proxy, "free", path, input="Hello").status_code == 200


def test_a_fallback_is_the_operators_choice(model: ModelServer, settings: dict[str, Any]) -> None:
    gone = {"name": "gone", "base_url": "http://127.0.0.1:9/v1", "models": ["m"], "fallback": ["scripted/vendor/m"]}
    upstreams = [gone, {"name": "scripted", "base_url": model.url}]
    with Groundwire({**settings, "upstreams": upstreams, "aliases": {}}) as proxy:
        model.script(ANSWER)
        said(ask(proxy, "small"))
    assert model.requests[0]["model"] == "vendor/m"


# Whether it may search


@pytest.mark.parametrize(
    ("key", "fields", "expected"),
    [
        ("free", {}, "offered; reason=auto"),
        ("quiet", {}, "off; reason=key_mode_off"),
        ("quiet", {"web_search_options": {}}, "off; reason=key_mode_off"),
        ("quiet", {"headers": {"x-groundwire-search": "on"}}, "off; reason=key_mode_off"),
        ("quiet", {"model": "m-off"}, "off; reason=key_mode_off"),
        ("asking", {}, "off; reason=not_requested"),
        ("asking", {"web_search_options": {}}, "offered; reason=web_search_options"),
        ("eager", {"model": "m-off"}, "off; reason=mode_off"),
        ("nobody", {}, "off; reason=no_provider"),
        ("grouped", {}, "off; reason=key_mode_off"),
        ("apart", {}, "offered; reason=auto"),
    ],
)
@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_the_mode_of_a_key(
    proxy: Groundwire, model: ModelServer, key: str, fields: dict[str, Any], expected: str, path: str
) -> None:
    model.script(ANSWER)
    fields = dict(fields)
    if path == "responses" and "web_search_options" in fields:
        del fields["web_search_options"]
        fields["tools"] = [{"type": "web_search"}]
        expected = expected.replace("web_search_options", "tool")
    talk = {"messages": [QUESTION]} if path == "chat/completions" else {"input": "Why is the sky blue?"}
    answer = post(proxy, key, path, **{"model": "m", **talk, **fields})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-groundwire-search"] == expected
    assert bool(offered(model)) == expected.startswith("offered")
    if "key_mode_off" in expected:
        assert "web_search" not in json.dumps(model.requests), "and the model's server does not search either"


def test_the_nearest_mode_counts(settings: dict[str, Any], model: ModelServer) -> None:
    with Groundwire({**settings, "tools": {"mode": "on_request"}}) as proxy:
        model.script(ANSWER)
        assert ask(proxy, "free").headers["x-groundwire-search"] == "off; reason=not_requested"
        assert ask(proxy, "eager").headers["x-groundwire-search"] == "offered; reason=auto"
        assert ask(proxy, "quiet").headers["x-groundwire-search"] == "off; reason=key_mode_off"


def test_keys_that_may_not_search_may_not_use_the_tools_alone(proxy: Groundwire) -> None:
    for key in ("quiet", "nobody", "grouped"):
        assert f"{key!r}" not in refused(post(proxy, key, "search", query="sky"), 403, "not_permitted")
        refused(post(proxy, key, "open", url=SITE + "sky.md"), 403, "not_permitted")
    assert post(proxy, "asking", "search", query="sky").status_code == 200


# Providers


def test_a_private_key_asks_nobody_outside(
    proxy: Groundwire, model: ModelServer, searxng: FakeSearxng, pages: PageServer
) -> None:
    """Not even for what others found there and left in the cache; a page is read by ourselves."""
    assert post(proxy, "free", "search", query="sky blue").json()["provider"] == "searx"
    searxng.asked.clear()
    assert post(proxy, "private", "search", query="sky blue").json()["provider"] == "vault"
    model.script(SEARCH, ANSWER)
    assert said(ask(proxy, "private")) == f"Scattering [[1]]({VAULT}sky.md)."
    assert offered(model) == ["web_search", "open_page"]
    for name in ("searx", "library"):
        body = post(proxy, "private", "search", query="sky blue", provider=name).json()
        assert body["results"] == []
        assert "valid names: vault" in body["message"]
        model.script(call("web_search", {"query": "sky blue", "provider": name}), ANSWER)
        assert said(ask(proxy, "private")) == "Scattering [1]."
    assert not searxng.asked
    opened = post(proxy, "private", "open", url=pages.url("/page")).json()
    assert opened["status"] == "success"
    own = post(proxy, "private", "open", url=SITE + "sky.md").json()
    assert own["status"] == "success", "a file of ours is read without telling anybody"


def test_a_list_of_providers_is_exact(proxy: Groundwire, model: ModelServer, pages: PageServer) -> None:
    before = len(pages.requests)
    assert post(proxy, "named", "search", query="sky blue").json()["provider"] == "library"
    assert post(proxy, "named", "open", url=SITE + "sky.md").json()["status"] == "success"
    assert post(proxy, "named", "open", url=pages.url("/page")).json()["status"] == "error"
    assert len(pages.requests) == before


def test_without_a_reader_no_page_can_be_opened(proxy: Groundwire, model: ModelServer, pages: PageServer) -> None:
    """Also where the model calls a tool that it was not offered."""
    before = len(pages.requests)
    url = pages.url("/page")
    model.script(call("open_page", {"url": url}), ANSWER)
    ask(proxy, "searcher")
    assert offered(model) == ["web_search"]
    assert "There is no tool 'open_page'" in model.requests[1]["messages"][-1]["content"]
    assert len(pages.requests) == before
    refused(post(proxy, "searcher", "open", url=url), 403, "not_permitted")


# Domains


def test_the_domains_of_a_key_narrow_those_of_the_request(proxy: Groundwire, model: ModelServer) -> None:
    found = post(proxy, "narrow", "search", query="sky blue").json()
    assert {result["url"] for result in found["results"]} == {SITE + "sky.md"}
    assert found["provider"] == "library"
    narrower = post(proxy, "narrow", "search", query="sky blue", allowed_domains=["vault.example"]).json()
    assert narrower["results"] == []
    assert post(proxy, "narrow", "open", url=SITE + "sky.md").json()["status"] == "success"
    for url in (VAULT + "sky.md", "https://elsewhere.example/"):
        assert "domain is not among" in post(proxy, "narrow", "open", url=url).json()["error"]
    model.script(call("open_page", {"url": VAULT + "sky.md"}), ANSWER)
    post(proxy, "narrow", "chat/completions", model="m", messages=[{"role": "user", "content": f"Read {VAULT}sky.md"}])
    assert "domain is not among" in model.requests[1]["messages"][-1]["content"]


# Citations


def test_the_style_of_a_key_beats_the_operators(settings: dict[str, Any], model: ModelServer) -> None:
    with Groundwire({**settings, "citations": {"style": "openai"}}) as proxy:
        for key, expected in (("numbers", "[1]."), ("private", f"([vault.example]({VAULT}sky.md)).")):
            model.script(SEARCH, ANSWER)
            assert said(ask(proxy, key)) == f"Scattering {expected}"
