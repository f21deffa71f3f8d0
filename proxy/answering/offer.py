"""Decides whether search is offered to the model and adds our tools to the request. Handed a `ChatRequest` and the
operator's mode, hands on an `Offer`: the body for the model, which names are ours, and why.

The order of the reasons is fixed: mode off > the key's mode off > header off > no provider > `tool_choice` > the
request asks > the mode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tools.base import ToolSpec
from tools.ledger import KnownSource
from tools.options import day_now
from tools.toolbox import TOOLS

from ..values.errors import refuse
from ..values.request import ChatRequest
from .housekeeping import is_housekeeping

# A client that brings a web search of its own does not want a second one beside it.
_CLIENT_SEARCH = re.compile(
    r"(?:web|internet|online|google|bing|brave|tavily|exa|serper|duckduckgo|ddg|searxng|perplexity)[_-]?search"
    r"|search[_-]?(?:the[_-]?)?(?:web|internet|online|google|bing)|browser?[_-]search|^websearch$",
    re.IGNORECASE,
)
_TELLABLE = re.compile(r"[A-Za-z0-9_.:-]{1,48}")  # what may stand in a header
_MOST_TOLD = 12
_PREFIX = "groundwire_"
OUR_NAMES = frozenset(prefix + tool.name for tool in TOOLS for prefix in ("", _PREFIX))  # all that they are ever called


@dataclass(frozen=True, slots=True)
class Decision:
    offered: bool
    reason: str
    left_out: tuple[str, ...] = ()  # types of tools that the client declared and the model does not see

    @property
    def header(self) -> str:
        named = dict.fromkeys(kind if _TELLABLE.fullmatch(kind) else "other" for kind in self.left_out)
        left_out = f"; left_out={','.join(list(named)[:_MOST_TOLD])}" if named else ""
        return f"{'offered' if self.offered else 'off'}; reason={self.reason}{left_out}"


@dataclass(frozen=True, slots=True)
class Offer:
    """A request ready for the loop. With nothing owned it is simply the client's request."""

    body: dict[str, Any]
    owned: Mapping[str, str] = field(default_factory=dict)  # name on the wire → our tool
    client_tools: frozenset[str] = frozenset()
    client_choice: Any = None  # the client's own `tool_choice`, for the round in which only its tools are left
    free_choice: Any = "auto"  # what a forced choice becomes once a tool of ours has run
    response_format: Any = None  # held back until the final request
    highest_number: int = 0  # the highest number in square brackets that the conversation already uses
    known_sources: Mapping[int, KnownSource] = field(default_factory=dict)  # by number
    today: str = field(default_factory=day_now)  # as our tools say it: one day for all rounds of the request
    reading: str = ""  # what was read before the model is asked, for one that cannot call


def decide(request: ChatRequest, mode: str, header: str, available: bool, *, key_off: bool = False) -> Decision:
    """`header` is the client's `X-Groundwire-Search`; `available` says whether any provider could serve a search;
    `key_off` that the caller's key may not search at all."""
    asked = request.search.asked or ("header" if header == "on" else "")
    if mode == "off":
        return Decision(False, "mode_off")
    if key_off:
        return Decision(False, "key_mode_off")
    if header == "off":
        return Decision(False, "header")
    if not available:
        return Decision(False, "no_provider")
    choice = _choice_excludes(request)
    if choice:
        return Decision(False, choice)
    if asked:
        for param, says_so, text in _NOT_WITH_SEARCH:
            if says_so(request.body):
                raise refuse(400, text, param=param, code="invalid_value")
        return Decision(False, "custom_tools") if has_custom_tools(request.body) else Decision(True, asked)
    if mode == "on_request":
        return Decision(False, "not_requested")
    if request.wants_no_tools:
        return Decision(False, "background")
    aside = next((reason for reason, says_so in _STEPS_ASIDE if says_so(request.body)), "")
    return Decision(not aside, aside or "auto")


def make_offer(request: ChatRequest, specs: Sequence[ToolSpec]) -> Offer:
    """The request with our tools behind the client's. Everything before them stays as it was, for prompt caches."""
    tools = list(request.body.get("tools") or ())
    theirs = frozenset(client_tools(request.body))
    names = {spec.tool: spec.tool if spec.tool not in theirs else _PREFIX + spec.tool for spec in specs}
    body = {**request.body, "tools": tools + [_as_function(spec, names[spec.tool]) for spec in specs]}
    client_choice = body.get("tool_choice")
    # A tool of ours has run by then, so the wish for any tool is met.
    if client_choice in ("required", "any"):
        client_choice = "auto"
    elif isinstance(client_choice, dict) and isinstance(client_choice.get("allowed_tools"), dict):
        client_choice = {**client_choice, "allowed_tools": {**client_choice["allowed_tools"], "mode": "auto"}}
    first, later = _choices(request, names)
    if first is not None:
        body["tool_choice"] = first
    if request.stream:
        options = body.get("stream_options")
        body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    held = body.pop("response_format") if is_formatted(body) else None
    owned = {wire: tool for tool, wire in names.items()}
    return Offer(body, owned, theirs, client_choice, later, held)


def without_ours(offered: Offer) -> Offer:
    """The same request with none of our tools in it, for a model that is handed what was found instead."""
    body = with_client_tools_alone(offered.body, offered)
    if offered.response_format is not None:
        body["response_format"] = offered.response_format
    return replace(offered, body=body, owned={}, response_format=None)


def with_client_tools_alone(body: Mapping[str, Any], offered: Offer) -> dict[str, Any]:
    """A body without our tools, under the client's own choice."""
    theirs = [tool for tool in body["tools"] if tool_name(tool) not in offered.owned]
    bare = {key: value for key, value in body.items() if key not in ("tools", "tool_choice")}
    if theirs:
        bare["tools"] = theirs
        if offered.client_choice is not None:
            bare["tool_choice"] = offered.client_choice
    return without_idle_choice(bare)


def without_idle_choice(body: Mapping[str, Any]) -> dict[str, Any]:
    """What spoke of tools goes with the last of them."""
    if "tools" in body:
        return dict(body)
    return {key: value for key, value in body.items() if key not in ("tool_choice", "parallel_tool_calls")}


def client_tools(body: Mapping[str, Any]) -> list[str]:
    """The names of the client's own tools."""
    return [name for tool in body.get("tools") or () if (name := tool_name(tool))]


def tool_name(tool: object) -> str:
    """The name of a tool as a request describes it: `{"type": "function", "function": {"name": …}}`, or custom."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    described = tool.get(kind) if isinstance(tool, dict) and isinstance(kind, str) else None
    name = described.get("name") if isinstance(described, dict) else None
    return name if isinstance(name, str) else ""


def has_custom_tools(body: Mapping[str, Any]) -> bool:
    """Tools whose calls are no functions: no SDK can stream them, and we could not tell them from text."""
    return any(isinstance(tool, dict) and tool.get("type") == "custom" for tool in body.get("tools") or ())


def is_formatted(body: Mapping[str, Any]) -> bool:
    """Does the client want something other than plain text?"""
    wanted = body.get("response_format")
    return isinstance(wanted, dict) and wanted.get("type", "text") != "text"


def _choice_excludes(request: ChatRequest) -> str:
    """Why the client's `tool_choice` rules search out, or nothing."""
    choice = request.body.get("tool_choice")
    if request.search.forced or request.search.allowed:
        return ""
    if choice == "none":
        return "tool_choice_none"
    if not isinstance(choice, dict):
        return ""
    return "tool_choice_allowed_tools" if choice.get("type") == "allowed_tools" else "tool_choice_client_tool"


def _wants_several(body: Mapping[str, Any]) -> bool:
    return (body.get("n") or 1) != 1


def _wants_logprobs(body: Mapping[str, Any]) -> bool:
    return bool(body.get("logprobs"))


def _wants_audio(body: Mapping[str, Any]) -> bool:
    modalities = body.get("modalities")
    return bool(body.get("audio")) or (isinstance(modalities, list) and "audio" in modalities)


def _searches_itself(body: Mapping[str, Any]) -> bool:
    return any(_CLIENT_SEARCH.search(name) for name in client_tools(body))


Condition = Callable[[Mapping[str, Any]], bool]

# What a request that asks for search must not hold: the field, when it is at fault, and what to do.
_NOT_WITH_SEARCH: tuple[tuple[str, Condition, str], ...] = (
    ("n", _wants_several, "Web search gives one answer: leave out `n` or set it to 1."),
    ("logprobs", _wants_logprobs, "Web search gives no `logprobs`, as its answers are changed: leave them out."),
    (
        "functions",
        lambda body: bool(body.get("functions")),
        "Web search cannot be combined with the legacy `functions`: use `tools` instead.",
    ),
)

# Why `auto` leaves a request alone.
_STEPS_ASIDE: tuple[tuple[str, Condition], ...] = (
    ("n", _wants_several),
    ("logprobs", _wants_logprobs),
    ("response_format", is_formatted),
    ("audio", _wants_audio),
    ("tool_choice_required", lambda body: body.get("tool_choice") in ("required", "any")),
    ("functions", lambda body: bool(body.get("functions") or body.get("function_call"))),
    ("custom_tools", has_custom_tools),
    ("client_search", _searches_itself),
    ("background", is_housekeeping),
)


def _choices(request: ChatRequest, names: Mapping[str, str]) -> tuple[Any, Any]:
    """The `tool_choice` of the first round, and of those after a tool of ours has run. None: leave it out."""
    first = names.get(request.search.forced_tool) or next(iter(names.values()))  # the search, if there is one
    search = {"type": "function", "function": {"name": first}}
    if request.search.allowed:
        choice = request.body.get("tool_choice")
        allowed: dict[str, Any] = choice["allowed_tools"] if isinstance(choice, dict) else {"mode": "auto", "tools": []}
        ours = [{"type": "function", "function": {"name": wire}} for wire in names.values()]
        both = {**allowed, "tools": [*allowed["tools"], *ours]}
        later = {"type": "allowed_tools", "allowed_tools": {**both, "mode": "auto"}}
        return search if request.search.forced else {"type": "allowed_tools", "allowed_tools": both}, later
    return (search, "auto") if request.search.forced else (None, "auto")


def _as_function(spec: ToolSpec, name: str) -> dict[str, Any]:
    function = {"name": name, "description": spec.description, "parameters": dict(spec.parameters)}
    return {"type": "function", "function": function}
