"""Responses requests: `decode(body)` → ResponsesRequest. Handed a client's bytes; hands on its items in one normal
form, everything else as the body of a Chat Completions request, and what the response object repeats of it all.

Bad input is refused here, with the exact `param`. Messages are made later, in `history`, for which the store
must be asked first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from providers.records import dataclass

from ...values.errors import refuse
from ...values.request import SearchOptions, check_length, json_object
from ..search import is_hosted_search, take_out_search
from .declared_tools import DeclaredTools, declared_tools
from .items import declares_tools, invalid, missing, normalise
from .tool_choice import chat_tool_choice

# These do not go up by their own name. All others do, unknown ones too: servers have fields of their own.
_CONSUMED = {
    *("input", "messages", "instructions", "previous_response_id", "conversation", "prompt", "store", "background"),
    *("include", "max_output_tokens", "max_tool_calls", "truncation", "reasoning", "text", "metadata", "top_logprobs"),
    *("tools", "tool_choice", "parallel_tool_calls", "stream_options", "client_metadata"),
}
_UNSUPPORTED = {
    "conversation": "Conversations are not supported: use `previous_response_id` instead.",
    "prompt": "Prompt templates are not supported: send `instructions` and `input` instead.",
}
_KINDS: dict[str, tuple[type, ...]] = {
    "stream": (bool,),
    "store": (bool,),
    "background": (bool,),
    "parallel_tool_calls": (bool,),
    "previous_response_id": (str,),
    "instructions": (str, list),
    "metadata": (dict,),
    "reasoning": (dict,),
    "text": (dict,),
    "temperature": (int, float),
    "top_p": (int, float),
    "max_output_tokens": (int,),
    "max_tool_calls": (int,),
    "tools": (list,),
    "include": (list,),
}
_IN_WORDS = {bool: "true or false", str: "a string", list: "a list", dict: "an object", int: "a number", float: ""}


@dataclass(slots=True, kw_only=True)
class ResponsesRequest:
    raw: bytes
    model: str
    stream: bool
    items: list[dict[str, Any]]  # the input, normalised
    instructions: str | list[dict[str, Any]] | None
    previous_response_id: str
    store: bool
    include: frozenset[str]
    search: SearchOptions
    body: dict[str, Any]  # Chat Completions, all but `messages`
    echo: dict[str, Any]  # the fields of the response object that repeat the request
    tools: DeclaredTools
    shows_searches: bool  # are our searches items of the answer?
    wants_no_tools: bool  # an empty list, where leaving it out would do: how Codex has a conversation summed up
    background: bool = False  # go on when the client leaves


def decode(raw: bytes) -> ResponsesRequest:
    given = _load(raw)
    model = given.get("model")
    if not isinstance(model, str) or not model:
        raise refuse(400, "`model` is missing: name the model that should answer.", param="model", code="missing_field")
    for check in _CHECKS:
        check(given)
    items = _items(given)
    added = {f"input[{i}].tools": item["tools"] for i, item in enumerate(items) if declares_tools(item)}
    tools = declared_tools(given.get("tools") or [], added)
    search, body = take_out_search(_body(given, tools))
    if given.get("max_tool_calls") is not None:
        search = replace(search, max_calls=given["max_tool_calls"])
    include = frozenset(given.get("include") or ())
    return ResponsesRequest(
        raw=raw,
        model=model,
        stream=bool(given.get("stream")),
        items=items,
        instructions=_instructions(given.get("instructions")),
        previous_response_id=given.get("previous_response_id") or "",
        store=given.get("store") is not False,
        include=include,
        search=search,
        body=body,
        echo=_echo(given, model),
        tools=tools,
        shows_searches=_shows_searches(tools, search, include),
        wants_no_tools=given.get("tools") == [] and not added,
        background=bool(given.get("background")),
    )


def _shows_searches(tools: DeclaredTools, search: SearchOptions, include: frozenset[str]) -> bool:
    """Who declared no such tool may not know what these items are."""
    return bool(tools.hosted) or search.forced or any(wanted.startswith("web_search_call") for wanted in include)


def _body(given: Mapping[str, Any], tools: DeclaredTools) -> dict[str, Any]:
    """The request as Chat Completions has it, all but its messages."""
    body = {key: value for key, value in given.items() if key not in _CONSUMED and value is not None}
    body.update(_renamed(given))
    if tools.functions or tools.hosted:
        body["tools"] = tools.functions + tools.hosted
        if given.get("parallel_tool_calls") is not None:
            body["parallel_tool_calls"] = given["parallel_tool_calls"]
    choice = chat_tool_choice(given.get("tool_choice"), tools)
    if choice is not None and (
        choice != "auto" or tools.functions
    ):  # a server may refuse even `auto` where no tool stands
        body["tool_choice"] = choice
    if body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    return body


def _load(raw: bytes) -> dict[str, Any]:
    body = json_object(raw)
    try:
        orjson.dumps([[[[body]]]])  # it reads deeper than it writes, and the answer holds parts of this
    except orjson.JSONEncodeError:
        raise refuse(400, "The request body is nested too deeply.", code="invalid_json") from None
    return body


# What is refused


def _check_supported(given: Mapping[str, Any]) -> None:
    for name, text in _UNSUPPORTED.items():
        if given.get(name):
            raise refuse(400, text, param=name, code="unsupported_parameter")


def _check_kinds(given: Mapping[str, Any]) -> None:
    for name, kinds in _KINDS.items():
        value = given.get(name)
        if value is not None and not _is_of(value, kinds):
            wanted = " or ".join(filter(None, (_IN_WORDS[kind] for kind in kinds)))
            raise refuse(400, f"`{name}` must be {wanted}.", param=name, code="invalid_type")


def _is_of(value: Any, kinds: tuple[type, ...]) -> bool:
    """To Python a truth value is a number; here it is none."""
    return type(value) in kinds if isinstance(value, bool) else isinstance(value, kinds)


def _check_values(given: Mapping[str, Any]) -> None:
    for name in ("max_output_tokens", "max_tool_calls"):
        if given.get(name) is not None and given[name] < 1:
            raise invalid(name, f"`{name}` must be at least 1.")
    if given.get("truncation") not in (None, "auto", "disabled"):
        raise invalid("truncation", "`truncation` must be 'auto' or 'disabled'.")


def _check_include(given: Mapping[str, Any]) -> None:
    for i, wanted in enumerate(given.get("include") or ()):
        if not isinstance(wanted, str):
            raise refuse(400, f"`include[{i}]` must be a string.", param=f"include[{i}]", code="invalid_type")


def _check_background(given: Mapping[str, Any]) -> None:
    if given.get("background") and given.get("store") is False:
        text = "What is made in the background must be stored: leave `store` out, or `background`."
        raise refuse(400, text, param="background", code="invalid_value")


_CHECKS = (_check_supported, _check_kinds, _check_values, _check_include, _check_background)


# What is asked


def _items(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    value = given.get("input")
    if value is None or value == []:
        if given.get("previous_response_id"):
            return []
        raise refuse(400, "`input` is missing: a string or a list of items.", param="input", code="missing_field")
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise refuse(400, "`input` must be a string or a list of items.", param="input", code="invalid_type")
    check_length(value, "input")
    return [normalise(item, f"input[{i}]") for i, item in enumerate(value)]


def _instructions(value: Any) -> str | list[dict[str, Any]] | None:
    if isinstance(value, list):
        check_length(value, "instructions")
        return [normalise(item, f"instructions[{i}]") for i, item in enumerate(value)]
    return value or None


# Fields


def _renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    """What Chat Completions calls by another name."""
    text, reasoning = given.get("text") or {}, given.get("reasoning") or {}
    renamed = {
        "max_completion_tokens": given.get("max_output_tokens"),
        "reasoning_effort": reasoning.get("effort"),
        "verbosity": text.get("verbosity"),
        "response_format": _response_format(text.get("format")),
    }
    return {key: value for key, value in renamed.items() if value is not None}


def _response_format(wanted: Any) -> dict[str, Any] | None:
    if wanted is None:
        return None
    if not isinstance(wanted, dict):
        raise invalid("text.format", '`text.format` must be an object such as {"type": "text"}.')
    kind = wanted.get("type")
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind != "json_schema":
        raise invalid("text.format.type", "`text.format.type` must be 'text', 'json_object' or 'json_schema'.")
    for name, what in (("name", str), ("schema", dict)):
        if not isinstance(wanted.get(name), what):
            raise missing(f"text.format.{name}")
    return {"type": kind, kind: {key: v for key, v in wanted.items() if key != "type" and v is not None}}


# What the answer repeats


def _echo(given: Mapping[str, Any], model: str) -> dict[str, Any]:
    text, reasoning = given.get("text") or {}, given.get("reasoning") or {}
    return {
        "background": bool(given.get("background")),
        "instructions": given.get("instructions"),
        "max_output_tokens": given.get("max_output_tokens"),
        "max_tool_calls": given.get("max_tool_calls"),
        "metadata": given.get("metadata") or {},
        "model": model,
        "parallel_tool_calls": given.get("parallel_tool_calls") is not False,
        "previous_response_id": given.get("previous_response_id") or None,
        "prompt_cache_key": given.get("prompt_cache_key"),
        "reasoning": {"effort": None, "summary": None, **reasoning},
        "safety_identifier": given.get("safety_identifier"),
        "service_tier": "default",
        "store": given.get("store") is not False,
        "temperature": _or(given.get("temperature"), 1.0),
        "text": {
            **text,
            "format": text.get("format") or {"type": "text"},
            "verbosity": text.get("verbosity") or "medium",
        },
        "tool_choice": given.get("tool_choice") or "auto",
        "tools": [_tool_with_defaults(tool) for tool in given.get("tools") or ()],
        "top_logprobs": given.get("top_logprobs") or 0,
        "top_p": _or(given.get("top_p"), 1.0),
        "truncation": given.get("truncation") or "disabled",
        "user": given.get("user"),
    }


def _tool_with_defaults(tool: dict[str, Any]) -> dict[str, Any]:
    if tool["type"] == "function":
        return {"description": None, "parameters": None, "strict": False, **tool}
    if tool["type"] == "namespace":
        inner = [_tool_with_defaults(one) if one["type"] == "function" else one for one in tool["tools"]]
        return {"description": "", **tool, "tools": inner}
    if not is_hosted_search(tool):
        return tool
    where = tool.get("user_location")
    if isinstance(where, dict):
        where = {"type": "approximate", "city": None, "country": None, "region": None, "timezone": None, **where}
    filters = {} if tool["type"].startswith("web_search_preview") else {"filters": None}
    return {"search_context_size": "medium", **filters, **tool, "user_location": where}


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
