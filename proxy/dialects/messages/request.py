"""Messages requests: `decode(body)` → MessagesRequest. Handed a client's bytes; hands on everything but the messages as
the body of a Chat Completions request, and what the answer must look like. Bad input is refused here, with the exact
`param`; fields that only Anthropic's own service acts on are tolerated and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from providers.records import dataclass
from tools.base import OPEN_PAGE, WEB_SEARCH

from ...values.errors import refuse
from ...values.request import MOST_TOOLS, SearchOptions, check_count, check_length, json_object
from ..search import take_out_search
from .declared_tools import DeclaredTools, chat_tool_choice, declared_tools

MOST_BLOCKS = 100_000  # of a conversation, those of results too: each costs microseconds, and nobody else is served
_PASSED_ON = ("model", "stream", "max_tokens", "temperature", "top_p", "top_k")
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "stream": ((bool,), "true or false"),
    "max_tokens": ((int,), "a number"),
    "temperature": ((int, float), "a number"),
    "top_p": ((int, float), "a number"),
    "top_k": ((int,), "a number"),
    "tools": ((list,), "a list"),
    "stop_sequences": ((list,), "a list"),
    "metadata": ((dict,), "an object"),
    "thinking": ((dict,), "an object"),
    "output_config": ((dict,), "an object"),
}
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_MEDIUM, _HIGH = 4096, 16_384  # tokens of thinking from which on it is that much effort
_TOOL_OF = {"web_search": WEB_SEARCH, "web_fetch": OPEN_PAGE}


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    raw: bytes
    model: str
    stream: bool
    system: Any
    messages: list[Any]  # as they were sent
    body: dict[str, Any]  # Chat Completions, all but `messages`
    search: SearchOptions
    tools: DeclaredTools
    shown: frozenset[str]  # our tools whose calls are blocks of the answer: those that the request named
    thinks: bool  # did it ask to see thinking? Who did not reads the first block as the answer
    wants_no_tools: bool


def decode(raw: bytes) -> MessagesRequest:
    given = json_object(raw)
    _check(given)
    check_length(given.get("tools") or (), "tools", MOST_TOOLS)
    tools = declared_tools(given.get("tools") or [])
    search, body = take_out_search(_body(given, tools))
    shown = frozenset(tool for prefix, tool in _TOOL_OF.items() if tools.names_server_tool(prefix))
    return MessagesRequest(
        raw,
        given["model"],
        bool(given.get("stream")),
        given.get("system"),
        given["messages"],
        body,
        _bounded(search, tools),
        tools,
        shown,
        (given.get("thinking") or {}).get("type") in ("enabled", "adaptive"),
        given.get("tools") == [],
    )


def _check(given: Mapping[str, Any]) -> None:
    try:
        orjson.dumps([[[[given]]]])  # it reads deeper than it writes, and parts of this go up
    except orjson.JSONEncodeError:
        raise refuse(400, "The request body is nested too deeply.", code="invalid_json") from None
    model, messages = given.get("model"), given.get("messages")
    if not isinstance(model, str) or not model:
        raise refuse(400, "`model` is missing: name the model that should answer.", param="model", code="missing_field")
    if not isinstance(messages, list) or not messages:
        raise refuse(400, "`messages` must be a non-empty list.", param="messages", code="invalid_type")
    check_length(messages, "messages")
    check_count(_blocks_in(messages), "messages", MOST_BLOCKS, "blocks")
    for name, (kinds, words) in _KINDS.items():
        value = given.get(name)
        if value is not None and not (isinstance(value, kinds) and (type(value) is not bool or bool in kinds)):
            raise refuse(400, f"`{name}` must be {words}.", param=name, code="invalid_type")
    most = given.get("max_tokens")
    if most is not None and most < 1:
        raise refuse(400, "`max_tokens` must be at least 1.", param="max_tokens", code="invalid_value")


def _blocks_in(messages: Iterable[Any]) -> int:
    """How many blocks there are, with those of results: a list in a list in a list."""
    contents = [content for message in messages if (content := _listed(message))]
    inner = [found for content in contents for block in content if (found := _listed(block))]
    return sum(map(len, contents)) + sum(map(len, inner))


def _listed(holder: Any) -> list[Any]:
    content = holder.get("content") if isinstance(holder, dict) else None
    return content if isinstance(content, list) else []


def _body(given: Mapping[str, Any], tools: DeclaredTools) -> dict[str, Any]:
    """The request as Chat Completions has it, all but its messages."""
    body = {name: given[name] for name in _PASSED_ON if given.get(name) is not None}
    if stops := [stop for stop in given.get("stop_sequences") or () if isinstance(stop, str) and stop]:
        body["stop"] = stops
    if wanted := _response_format(given):
        body["response_format"] = wanted
    if effort := _effort(given):
        body["reasoning_effort"] = effort
    if body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    if tools.functions or tools.hosted:
        body["tools"] = tools.functions + tools.hosted
    choice = given.get("tool_choice")
    if (chosen := chat_tool_choice(choice, tools)) is not None:
        body["tool_choice"] = chosen
    if tools.functions and isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True:
        body["parallel_tool_calls"] = False
    return body


def _response_format(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """`output_config.format`, which was once `output_format`."""
    wanted = (given.get("output_config") or {}).get("format") or given.get("output_format")
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return None
    schema = wanted.get("schema")
    if not isinstance(schema, dict):
        name = "output_config.format.schema"
        raise refuse(400, f"`{name}` must be an object.", param=name, code="invalid_type")
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}


def _effort(given: Mapping[str, Any]) -> str:
    """How much thinking was asked for in so many words. `adaptive` leaves it to the model, and so do we: servers refuse
    a word about thinking to models that do not think."""
    thinking = given.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return ""
    said = (given.get("output_config") or {}).get("effort")
    budget = thinking.get("budget_tokens")
    if isinstance(said, str) and said in _EFFORTS:
        return _EFFORTS[said]
    if not isinstance(budget, int):
        return ""
    return "low" if budget < _MEDIUM else "medium" if budget < _HIGH else "high"


def _bounded(search: SearchOptions, tools: DeclaredTools) -> SearchOptions:
    """How often the server tools may be used: each has a count of its own."""
    if not tools.hosted:
        return search
    searches, pages = _most_uses(tools, "web_search"), _most_uses(tools, "web_fetch")
    return replace(search, max_searches=searches, max_pages=pages)


def _most_uses(tools: DeclaredTools, prefix: str) -> int | None:
    said = [tool.get("max_uses") for tool in tools.hosted if tool["type"].startswith(prefix)]
    return next((most for most in said if type(most) is int and most >= 0), None)
