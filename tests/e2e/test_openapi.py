"""`GET /openapi.json`: a valid document, which says of every endpoint what a running Groundwire really does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from proxy.serving.api_paths import document
from proxy.serving.app import build
from proxy.serving.edge import OPEN_PATHS
from proxy.serving.endpoint import Endpoint
from proxy.serving.forward_route import _FORWARDED_PATHS
from tests.e2e.conftest import SITE
from tests.fakes.config import config as config_of
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text

METHODS = {"get", "post", "delete"}
STATIC = "/page/"  # the files of the page are no API
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
KEYS = [{"key": "gw-key-of-alice", "name": "alice"}, {"key": "gw-key-of-the-admin", "name": "chief", "admin": True}]
ADMIN = {"authorization": "Bearer gw-key-of-the-admin"}


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"keys": KEYS}}) as running:
        yield running


def described() -> set[tuple[str, str]]:
    return {(path, method) for path, item in document()["paths"].items() for method in item.keys() & METHODS}


def served(tmp_path: Path) -> set[tuple[str, str]]:
    edge: Any = build(config_of(tmp_path / "config.yaml", "upstreams: [{name: demo, type: demo}]"))
    routes = [route for route in edge._app._app.endpoints if isinstance(route, Endpoint)]
    return {
        (re.sub(r":path}", "}", route.path), method.lower()) for route in routes for method in route.methods or {"POST"}
    }


def test_it_is_valid(proxy: Groundwire) -> None:
    answer = httpx.get(proxy.root + "/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == document()
    OpenAPIV31SpecValidator(answer.json()).validate()
    assert httpx.get(proxy.root + "/openapi.json").content == answer.content


def test_it_names_every_endpoint_and_no_other(tmp_path: Path) -> None:
    real = {(path, method) for path, method in served(tmp_path) if method in METHODS and not path.startswith(STATIC)}
    forwarding = ("/v1/{path}", "post")
    assert forwarding in real
    forwarded = {
        (path, method)
        for path, method in described() - real
        if method == "post" and _FORWARDED_PATHS.fullmatch(path.removeprefix("/v1/").replace("{operation}", "x"))
    }
    assert described() - real == forwarded
    assert real - described() == {forwarding}
    alternatives = {name.removesuffix("/.+") for name in _FORWARDED_PATHS.pattern.split("|")}
    assert {path.removeprefix("/v1/").removesuffix("/{operation}") for path, _ in forwarded} == alternatives


def test_every_shape_is_used() -> None:
    made = document()
    used = set(re.findall(r"#/components/schemas/(\w+)", str(made)))
    assert used == made["components"]["schemas"].keys()


def test_it_is_open_like_the_probes_and_says_so(proxy: Groundwire) -> None:
    open_to_all = {path for path, item in document()["paths"].items() if item.get("get", {}).get("security") == []}
    assert open_to_all == OPEN_PATHS
    for path in open_to_all:
        assert httpx.get(proxy.root + path).status_code == 200
    assert httpx.get(proxy.url + "/groundwire/usage").status_code == 401


ASKED: list[tuple[str, str, str, Any]] = [
    ("get", "/healthz", "/healthz", None),
    ("get", "/readyz", "/readyz", None),
    ("get", "/v1/groundwire/usage", "/v1/groundwire/usage", None),
    ("get", "/v1/groundwire/requests", "/v1/groundwire/requests?limit=200", None),
    ("get", "/v1/groundwire/health", "/v1/groundwire/health", None),
    ("get", "/v1/models", "/v1/models", None),
    ("get", "/v1/models/{id}", "/v1/models/m", None),
    ("post", "/v1/search", "/v1/search", {"query": "sky blue", "limit": 2, "filters": {"time_range": "all"}}),
    ("post", "/v1/open", "/v1/open", {"url": SITE + "sky.md", "query": "scattering"}),
    ("post", "/v1/open", "/v1/open", {"urls": [SITE + "sky.md", "http://127.0.0.1:1/x"], "max_length": 500}),
    ("post", "/search", "/search", {"query": "sky blue", "include_raw_content": True}),
    ("get", "/search", "/search?q=sky+blue&format=json", None),
    ("get", "/", "/?q=sky+blue&format=json", None),
    ("post", "/extract", "/extract", {"urls": [SITE + "sky.md", "http://127.0.0.1:1/x"]}),
    ("post", "/compat/openwebui/search", "/compat/openwebui/search", {"query": "sky blue", "count": 2}),
    ("post", "/compat/openwebui/load", "/compat/openwebui/load", {"urls": [SITE + "sky.md"]}),
    ("post", "/v1/alpha/search", "/v1/alpha/search", {"commands": {"search_query": [{"q": "sky blue"}]}}),
    ("post", "/mcp", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ("post", "/v1/chat/completions", "/v1/chat/completions", {"model": "m", "messages": QUESTION}),
    ("post", "/v1/responses", "/v1/responses", {"model": "m", "input": "Why is the sky blue?"}),
    ("post", "/v1/messages", "/v1/messages", {"model": "m", "max_tokens": 100, "messages": QUESTION}),
    ("post", "/v1/messages/count_tokens", "/v1/messages/count_tokens", {"model": "m", "messages": QUESTION}),
]


def check(value: Any, schema: dict[str, Any]) -> None:
    whole = {**schema, "components": document()["components"]}
    Draft202012Validator(whole, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)


def content_of(method: str, path: str, status: str = "200") -> dict[str, Any]:
    schema: dict[str, Any] = document()["paths"][path][method]["responses"][status]["content"]["application/json"]
    return dict(schema["schema"])


@pytest.mark.parametrize(("method", "path", "address", "body"), ASKED)
def test_answers_are_as_it_says(
    proxy: Groundwire, model: ModelServer, method: str, path: str, address: str, body: Any
) -> None:
    model.script(call("web_search", {"query": "sky blue"}), text("It is blue [1]."))
    operation = document()["paths"][path][method]
    headers = {**ADMIN, "accept": "application/json, text/event-stream"}
    if body is not None:
        check(body, operation["requestBody"]["content"]["application/json"]["schema"])
    answer = httpx.request(method.upper(), proxy.root + address, json=body, headers=headers, timeout=20)
    assert answer.status_code == 200, answer.text
    assert operation["responses"]["200"]["headers"].keys() == {
        name for name in ("X-Request-Id", "X-Groundwire-Search") if name.lower() in answer.headers
    }
    if answer.headers["content-type"].startswith("application/json"):
        check(answer.json(), content_of(method, path))
    else:
        assert answer.headers["content-type"].partition(";")[0] in operation["responses"]["200"]["content"]


def test_a_stored_response_is_as_it_says(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    body = {"model": "m", "input": "Why is the sky blue?", "background": True}
    made = httpx.post(proxy.url + "/responses", json=body, headers=ADMIN, timeout=20).json()
    path, address = "/v1/responses/{id}", f"{proxy.url}/responses/{made['id']}"
    listed = httpx.get(address + "/input_items", headers=ADMIN).json()
    check(listed, content_of("get", path + "/input_items"))
    assert listed["data"]
    check(httpx.post(address + "/cancel", headers=ADMIN).json(), content_of("post", path + "/cancel"))
    check(httpx.get(address, headers=ADMIN).json(), content_of("get", path))
    check(httpx.delete(address, headers=ADMIN).json(), content_of("delete", path))


@pytest.mark.parametrize(
    ("method", "path", "address", "body"), [asked for asked in ASKED if asked[1] not in OPEN_PATHS]
)
def test_refusals_are_as_it_says(proxy: Groundwire, method: str, path: str, address: str, body: Any) -> None:
    answer = httpx.request(method.upper(), proxy.root + address, json=body, timeout=20)
    assert answer.status_code == 401
    check(answer.json(), content_of(method, path, "default"))


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/search", {"query": ""}), ("/v1/open", {}), ("/v1/search", {"q": "x"})]
)
def test_what_is_refused_is_no_valid_body(proxy: Groundwire, path: str, body: Any) -> None:
    schema = document()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": document()["components"]}
    assert not Draft202012Validator(whole).is_valid(body)
    assert httpx.post(proxy.root + path, json=body, headers=ADMIN).status_code == 400
