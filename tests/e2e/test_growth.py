"""Bodies that grow: four times as much of a body costs about four times as much.

Nothing here is measured in seconds of a clock. What is compared is the processor's time that the server's process took
for two sizes of one shape.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, text

CLIENT = httpx.Client(timeout=300)
JSON = {"content-type": "application/json"}
WORDS = "word " * 10
ASKED = {"role": "user", "content": "And?"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

Body = tuple[str, dict[str, Any]]  # a path and what is sent there


@pytest.fixture(scope="module")
def growing(model: ModelServer, library: Path) -> Iterator[Groundwire]:
    """One model for each way in which a request is put in another form."""
    modes = [{"tool_calls": "prompted"}, {"tool_calls": "none"}, {"profile": "anthropic"}, {"profile": "bedrock"}]
    ways = [{"name": next(iter(mode.values())), "models": [next(iter(mode.values()))], **mode} for mode in modes]
    usual = {"type": "openai", "base_url": model.url, "api_key": "sk-upstream"}
    config = {
        "upstreams": [{**usual, **way} for way in [*ways, {"name": "plain", "models": ["*"]}]],
        "providers": [{"name": "library", "type": "local", "private": False, "options": {"path": str(library)}}],
        "server": {"max_body": "40MiB"},
    }
    with Groundwire(config) as running:
        yield running


def processor_time(proxy: Groundwire) -> tuple[int, int]:
    """Nanoseconds of the event loop, and of all threads."""
    assert proxy.process is not None
    tasks = Path(f"/proc/{proxy.process.pid}/task")
    taken = {task.name: int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()}
    return taken[str(proxy.process.pid)], sum(taken.values())


def cost(proxy: Groundwire, model: ModelServer, body: Body) -> tuple[int, int]:
    """What one request takes."""
    path, given = body
    raw = json.dumps(given).encode()
    model.script(text("Hello."))
    loop, all_of_it = processor_time(proxy)
    answer = CLIENT.post(proxy.url + path, content=raw, headers=JSON)
    assert answer.status_code == 200, answer.text[:300]
    then = processor_time(proxy)
    return then[0] - loop, then[1] - all_of_it


# Shapes


def chat(messages: list[dict[str, Any]], model: str = "m", **more: Any) -> Body:
    return "/chat/completions", {"model": model, "messages": messages, **more}


def responses(items: list[dict[str, Any]], model: str = "m", **more: Any) -> Body:
    return "/responses", {"model": model, "input": items, **more}


def messages(path: str, blocks: list[dict[str, Any]]) -> Body:
    said = [{"role": "assistant", "content": blocks}, ASKED]
    return path, {"model": "m", "max_tokens": 9, "messages": said}


def spoken(role: str, count: int, content: Any = WORDS) -> list[dict[str, Any]]:
    return [{"role": role, "content": content}] * count


def with_tools(role: str, model: str, content: Any = WORDS) -> Callable[[int], Body]:
    return lambda n: chat([*spoken(role, n, content), ASKED], model, tools=[TOOL])


def without_tools(model: str) -> Callable[[int], Body]:
    """A history for a model that takes none with calls where there are no tools."""
    return lambda n: responses(spoken("user", n), model, tools=[])


def fetched(path: str) -> Callable[[int], Body]:
    """Pages that a client says we have read: they are not signed."""

    def blocks(n: int) -> Iterator[dict[str, Any]]:
        url = "https://a.example/"
        for i in range(n):
            page = {"url": url, "content": {"source": {"data": f"{i} {WORDS}"}}}
            yield {"type": "server_tool_use", "id": f"s{i}"}
            yield {"type": "web_fetch_tool_result", "tool_use_id": f"s{i}", "content": page}

    return lambda n: messages(path, list(blocks(n)))


def called_at_once(n: int) -> Body:
    """Results in the other order than their calls."""
    calls = [{"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(n)]
    results = [{"role": "tool", "tool_call_id": f"c{i}", "content": WORDS} for i in reversed(range(n))]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    return chat([said, *results, ASKED], "prompted", tools=[TOOL])


def described(schema: dict[str, Any]) -> Body:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", **schema}}}
    return chat([ASKED], "prompted", tools=[tool])


def required(n: int) -> Body:
    names = [f"p{i}" for i in range(n)]
    return described({"properties": {name: {"type": "string"} for name in names}, "required": names})


def referring(n: int) -> Body:
    """Parameters that all refer to one schema, which is large."""
    inner = {"type": "object", "enum": ["x" * 50_000], **{f"x{i}": 1 for i in range(n)}, "description": "word " * n}
    inner["required"] = [f"r{i}" for i in range(n)]
    refer = {f"p{i}": {"$ref": "#/$defs/inner"} for i in range(min(n, 3000))}
    return described({"properties": refer, "$defs": {"inner": inner}})


def nested_all_of(n: int) -> Body:
    """Each of eight schemas is all of the next one, several times."""
    defs = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * n} for i in range(8)}
    return described({"properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": {**defs, "d8": {"type": "string"}}})


def answered(piece: str) -> Callable[[int], Body]:
    return lambda n: chat([ASKED, {"role": "assistant", "content": "[1] " + piece * n}, ASKED])


PICTURED = [{"type": "text", "text": WORDS}, {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}]

# By name: how much of it there is at first, and the body with that much of it. Either four times as much of it is made
# of less than 60,000 parts, or the first has more: such bodies are parsed in another way, which takes longer.
GROWING: dict[str, tuple[int, Callable[[int], Body]]] = {
    "user messages, tools in words": (4500, with_tools("user", "prompted")),
    "assistant messages, tools in words": (4500, with_tools("assistant", "prompted")),
    "messages of parts, tools in words": (1500, with_tools("user", "prompted", PICTURED)),
    "user messages, searched first": (4500, with_tools("user", "none")),
    "user messages, anthropic": (4500, without_tools("anthropic")),
    "user messages, bedrock": (4500, without_tools("bedrock")),
    "calls and results, tools in words": (2000, called_at_once),
    "required parameters, tools in words": (4000, required),
    "parameters that refer, tools in words": (4000, referring),
    "schemas of schemas, tools in words": (1, nested_all_of),
    "assistant items": (2400, lambda n: responses([*spoken("assistant", n, "word " * 100), ASKED])),
    "assistant instructions": (2400, lambda n: responses([ASKED], instructions=spoken("assistant", n, "word " * 100))),
    "pages in messages": (5000, fetched("/messages")),
    "pages in counted messages": (5000, fetched("/messages/count_tokens")),
    "backticks": (12_000, answered("`")),
    "backticks and blanks": (12_000, answered("` ")),
    "fences": (4000, answered("```\n")),
    "markers": (20_000, answered("x [[1]](https://a.example/) ")),
}


@linux
@pytest.mark.parametrize("shape", GROWING)
def test_four_times_as_much_costs_about_four_times_as_much(growing: Groundwire, model: ModelServer, shape: str) -> None:
    first, body = GROWING[shape]
    cost(growing, model, body(1))
    little, much = (min(cost(growing, model, body(n))[1] for _ in range(3)) for n in (first, 4 * first))
    # Twice as much and 30 ms are for whatever else is at work; the square would be sixteen times as much.
    assert much < 8 * little + 30_000_000
