"""What the rows about search providers and pages share: a Groundwire with chosen providers, a question whose model
calls our tools, and the one line that the log has for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, call, text
from tests.fakes.service import KEY
from tests.faults.asking import ask
from tests.faults.table import SEARCHED

LOOPBACK = ["127.0.0.0/8"]


def config(model: ModelServer, providers: Sequence[Mapping[str, Any]], **sections: Any) -> dict[str, Any]:
    """A searched answer over these providers; what is found is not kept, so that every search asks."""
    return {
        "upstreams": [{"name": "scripted", "base_url": model.url, "api_key": "sk-upstream"}],
        "providers": list(providers),
        "log": {"format": "json"},
        "cache": "off",
        **sections,
    }


def searched(proxy: Groundwire, model: ModelServer, says: str = "Heat moves [1].", **fields: Any) -> httpx.Response:
    """A question over which the model searches once, reads what came of it, and says this."""
    model.script(call("web_search", {"query": "heat"}), text(says))
    return ask(proxy, SEARCHED, **fields)


def opened(proxy: Groundwire, model: ModelServer, url: str, says: str = "It says so [1].") -> httpx.Response:
    """A question that names a page, which the model opens."""
    model.script(call("open_page", {"url": url}), text(says))
    return ask(proxy, SEARCHED, messages=[{"role": "user", "content": f"What does {url} say?"}])


def told(model: ModelServer) -> str:
    """What the model was told of its call."""
    return str(model.requests[-1]["messages"][-1]["content"])


def answer_of(response: httpx.Response) -> tuple[str, list[str]]:
    """What the client reads, and the addresses that are cited in it."""
    assert response.status_code == 200
    message = response.json()["choices"][0]["message"]
    cited = [note["url_citation"]["url"] for note in message.get("annotations") or ()]
    return message["content"], cited


def logged(proxy: Groundwire, response: httpx.Response) -> dict[str, Any]:
    """The one line of the log for a request; no key is in any line."""
    lines = eventually(lambda: _lines(proxy, response.headers["x-request-id"]))
    assert len(lines) == 1, lines
    log = proxy.log.read_text(errors="replace")
    assert not any(key in log for key in (KEY, "sk-upstream"))
    return dict(json.loads(lines[0]))


def _lines(proxy: Groundwire, words: str) -> list[str]:
    lines = proxy.log.read_text(errors="replace").splitlines(keepends=True)
    return [line for line in lines if words in line and line.endswith("\n")]


def outcomes(entry: Mapping[str, Any], kind: str = "searches") -> list[tuple[str, str]]:
    return [(call["provider"], call["outcome"]) for call in entry.get(kind, ())]
