"""Pages and answers that were made to be slow: each of these once took longer than a client waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text
from tests.fakes.pages import PageServer

PATIENCE = 30.0  # seconds: all of this takes one or two, and took a minute and more


@pytest.fixture(scope="module")
def pages() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


@pytest.fixture(scope="module")
def reading(config: dict[str, Any], pages: PageServer) -> Iterator[Groundwire]:
    """It reads pages of this machine, and a model that writes its calls as text."""
    (given,) = config["upstreams"]
    changed = {
        **config,
        "upstreams": [
            {**given, "models": ["m"]},
            {**given, "name": "in-words", "models": ["w"], "tool_calls": "prompted"},
        ],
        "providers": [*config["providers"], {"name": "web", "type": "direct"}],
        "tools": {"search": ["library"], "read": ["web"], "allow_networks": ["127.0.0.0/8"], "provenance": "open"},
        "citations": {"auto": "on"},
    }
    with Groundwire(changed) as running:
        yield running


def ask(proxy: Groundwire, model: str, *, stream: bool = False) -> str:
    asked = {"model": model, "messages": [{"role": "user", "content": "Why is the sky blue?"}], "stream": stream}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=asked, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text[:500]
    return answer.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "said",
    [" " * 60_000 + "<tool_call>no</tool_call>", "\t" * 60_000 + "<tool_call>no</tool_call>", "<tool_call>" * 20_000],
    ids=["blanks", "tabs", "openers"],
)
def test_an_answer_that_was_made_to_be_slow_arrives(
    reading: Groundwire, model: ModelServer, said: str, stream: bool
) -> None:
    model.script(text(said), text("The air scatters blue light. End."))
    assert "End." in ask(reading, "w", stream=stream)


SLOW_PAGES = {
    "backticks": "`" * 900_000 + " [1]",
    "runs-of-backticks": "` `` ``` " * 100_000 + "[1]",
    "marks": "\u0315\u0300" * 60_000,
    "double-marks": "\u0f73" * 60_000,
    "fences": "```\n" * 200_000 + "<!-- x -->",
    "comments-that-end-nothing": "It is written <!--> or <!--->. " * 10,
    "stops": ". " * 400_000,
}


@pytest.mark.parametrize("name", SLOW_PAGES)
def test_a_page_that_was_made_to_be_slow_is_read(
    reading: Groundwire, model: ModelServer, pages: PageServer, name: str
) -> None:
    page = f"# Sky\n\nThe sky is blue.\n\n{SLOW_PAGES[name]}"
    pages.page(f"/{name}.md", page.encode(), content_type="text/markdown; charset=utf-8")
    opened = call("open_page", {"url": pages.url(f"/{name}.md"), "query": "sky blue"})
    model.script(opened, text("The sky is blue [1]. End."))
    assert "End." in ask(reading, "m")
    assert "The sky is blue." in str(model.requests[-1]["messages"][-1])
