"""Bodies that grow: four times as much of a body costs about four times as much, the event loop is left to others
meanwhile, and what has too many parts is refused before it is parsed.

Nothing here is measured in seconds of a clock. What is compared is the processor's time that the server's process took
for two sizes of one shape, or that of its first thread, which is the event loop, with that of all its threads.
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
MOST_PARTS = 400_000
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
    "messages of parts, tools in words": (1000, with_tools("user", "prompted", PICTURED)),
    "user messages, searched first": (4500, with_tools("user", "none")),
    "user messages, anthropic": (4500, without_tools("anthropic")),
    "user messages, bedrock": (4500, without_tools("bedrock")),
    "calls and results, tools in words": (1100, called_at_once),
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


LONG: dict[str, Body] = {
    "user messages, tools in words": with_tools("user", "prompted")(18_000),
    "user messages, searched first": with_tools("user", "none")(18_000),
    "assistant messages": with_tools("assistant", "m")(18_000),
    "assistant items": responses([*spoken("assistant", 18_000), ASKED]),
    "tools in words": chat(
        [ASKED], "prompted", tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(2000)]
    ),
    "100 KB of backticks": answered("`x")(49_000),
    "10 KB of backticks": answered("`x")(5000),
    "escaped backticks": answered("`é")(5000),
}


@linux
@pytest.mark.parametrize("shape", LONG)
def test_the_event_loop_does_the_least_of_it(growing: Groundwire, model: ModelServer, shape: str) -> None:
    """Where all that one request needs is done by the event loop, nobody else is served meanwhile."""
    costs = [cost(growing, model, LONG[shape]) for _ in range(3)]
    assert min(loop / all_of_it for loop, all_of_it in costs) < 0.6


# Too many parts

TAKEN = {
    "model": "m",
    "max_tokens": 9,
    "messages": [ASKED],
    "input": "Hello",
    "query": "sky",
    "url": "https://a.example/",
}
ENDPOINTS = (
    "/chat/completions",
    "/responses",
    "/messages",
    "/messages/count_tokens",
    "/embeddings",
    "/search",
    "/open",
)


def with_entries(count: int, entry: bytes = b"1,", end: bytes = b"1]}") -> bytes:
    """A body of that many values more than usual."""
    return json.dumps(TAKEN).encode()[:-1] + b', "x": [' + entry * count + end


@pytest.mark.parametrize("path", [*ENDPOINTS, "/alpha/search"])
def test_too_many_parts_are_refused_everywhere(proxy: Groundwire, model: ModelServer, path: str) -> None:
    model.script(text("Hello."))
    answer = CLIENT.post(proxy.url + path, content=with_entries(MOST_PARTS), headers=JSON)
    assert answer.status_code == 400
    told = answer.json()
    assert told["error"]["code"] == "too_many_parts"
    assert told["error"]["message"].startswith("The request body holds more than 400000 JSON values: send fewer")
    assert (told.get("type") == "error") == path.startswith("/messages")  # in the shape of the API that was asked
    assert model.requests == []


@pytest.mark.parametrize("path", ["/search", "/extract", "/mcp"])
def test_too_many_parts_are_refused_beside_v1(proxy: Groundwire, path: str) -> None:
    root = proxy.url.removesuffix("/v1")
    answer = CLIENT.post(root + path, content=with_entries(MOST_PARTS), headers=JSON)
    assert answer.status_code == 400
    assert "more than 400000 JSON values" in answer.text


def test_too_many_parts_are_refused_before_they_are_parsed(proxy: Groundwire) -> None:
    """What is no JSON after all is not found out."""
    answer = CLIENT.post(f"{proxy.url}/chat/completions", content=with_entries(MOST_PARTS, end=b"oh"), headers=JSON)
    assert answer.json()["error"]["code"] == "too_many_parts"
    few = CLIENT.post(f"{proxy.url}/chat/completions", content=with_entries(MOST_PARTS - 100, end=b"oh"), headers=JSON)
    assert few.json()["error"]["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("entry", "parts"), [(b"1,", 1), (b'"a",', 1), (b"[],", 1), (b'{"a": [ ]},', 2), (b"[[1]],", 3)]
)
def test_parts_are_the_values_of_a_body(proxy: Groundwire, model: ModelServer, entry: bytes, parts: int) -> None:
    model.script(text("Hello."))
    for count, status in ((MOST_PARTS // parts - 30, 200), (MOST_PARTS // parts + 1, 400)):
        answer = CLIENT.post(f"{proxy.url}/chat/completions", content=with_entries(count, entry), headers=JSON)
        assert answer.status_code == status, answer.text[:200]


@pytest.mark.parametrize(
    "said", ["one, two, [three], {four}\n", 'a["b", "c"], {"d": "e\\\\"}\\', "\\", '"', '\\\\",['], ids=repr
)
def test_what_stands_in_a_text_is_no_part(proxy: Groundwire, model: ModelServer, said: str) -> None:
    model.script(text("Hello."))
    for before in range(2):  # a slice of what is counted may begin anywhere in an escape
        body = {"model": "m", "messages": [{"role": "user", "content": "x" * before + said * (3_000_000 // len(said))}]}
        answer = CLIENT.post(f"{proxy.url}/chat/completions", json=body)
        assert answer.status_code == 200, answer.text[:200]


def test_a_form_has_no_parts(proxy: Groundwire, model: ModelServer) -> None:
    """Sound and pictures hold any bytes."""
    model.script(text("Hello."))
    form = {"model": (None, "m"), "file": ("a.wav", b',[{"' * 1_000_000, "audio/wav")}
    answer = CLIENT.post(f"{proxy.url}/audio/transcriptions", files=form)
    assert "too_many_parts" not in answer.text
    assert model.raw
