"""Decides whether search is offered to the model and adds our tools to the request. Handed a `ChatRequest` and the
operator's mode, hands on an `Offer`: the body for the model, which names are ours, and why.

The order of the reasons is fixed: mode off > the key's mode off > header off > no provider > `tool_choice` > the
request asks > the mode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from providers.records import dataclass
from tools.base import ToolSpec
from tools.ledger import KnownSource
from tools.options import day_now
from tools.toolbox import TOOLS

from ..values.errors import refuse
from ..values.request import ChatRequest, SearchOptions
from .decoration import CleanedHistory
from .housekeeping import is_housekeeping

# A client that brings a web search of its own does not want a second one beside it.
# Whole words count: `deep_research_web`, `search_website` and `search_google_drive` look for something else.
_WORD_BEGINS = r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))"
_WORD_ENDS = r"(?:(?![A-Za-z])|(?<=[a-z])(?=[A-Z]))"
_CLIENT_SEARCH = re.compile(
    rf"{_WORD_BEGINS}(?:"
    r"(?i:(?:web|internet|online|google|bing|brave|tavily|exa|serper|duckduckgo|ddg|searxng|perplexity)[_-]?search"
    rf"|browser?[_-]search){_WORD_ENDS}(?!(?i:[_-]?(?:ads|analytics|bar|config|console|history|logs?|settings|trends)))"
    rf"|(?i:search[_-]?(?:the[_-]?)?(?:web|internet|online|google|bing)){_WORD_ENDS}"
    r"(?!(?i:[_-]?(?!and|api|content|for|news|now|pages?|query|results?|tool|using|via|with)[a-z]))"
    r")"
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
        decided = f"{'offered' if self.offered else 'off'}; reason={self.reason}"
        if not self.left_out:
            return decided
        named = dict.fromkeys(kind if _TELLABLE.fullmatch(kind) else "other" for kind in self.left_out)
        return f"{decided}; left_out={','.join(list(named)[:_MOST_TOLD])}"


_AUTO = Decision(True, "auto")  # what is decided about most requests


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
    aside = _stepping_aside(request.body)
    return Decision(False, aside) if aside else _AUTO


def make_offer(
    request: ChatRequest, specs: Sequence[ToolSpec], history: CleanedHistory | None = None, today: str | None = None
) -> Offer:
    """The request with our tools behind the client's. Everything before them stays as it was, for prompt caches.
    `history` is its history without our decoration, `today` the day that the tools say."""
    body = dict(request.body)
    tools, theirs = list(body.get("tools") or ()), frozenset(client_tools(body))
    owned: dict[str, str] = {}
    for spec in specs:
        wire = spec.tool if spec.tool not in theirs else _PREFIX + spec.tool
        owned[wire] = spec.tool
        function = {"name": wire, "description": spec.description, "parameters": dict(spec.parameters)}
        tools.append({"type": "function", "function": function})
    body["tools"] = tools
    client_choice, later = _set_choice(body, request.search, owned) if _speaks_of_choice(request) else (None, "auto")
    if request.stream:
        options = body.get("stream_options")
        body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    held = body.pop("response_format") if is_formatted(body) else None
    highest, known = 0, request.sources
    if history is not None:
        body["messages"] = history.messages
        highest, known = history.highest_number, _known(history, request.sources)
    return Offer(body, owned, theirs, client_choice, later, held, highest, known, today or day_now())


def _known(history: CleanedHistory, restored: Mapping[int, KnownSource]) -> Mapping[int, KnownSource]:
    """What the numbers in a history stand for. Those that people or clients gave to something else are theirs."""
    known = {**history.known_sources, **restored}
    return {n: source for n, source in known.items() if n not in history.claimed} if history.claimed else known


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
    if "tools" not in body:
        return []
    return [name for tool in body.get("tools") or () if (name := tool_name(tool))]


def tool_name(tool: object) -> str:
    """The name of a tool as a request describes it: `{"type": "function", "function": {"name": …}}`, or custom."""
    if type(tool) is not dict:
        return ""
    kind = tool.get("type")
    described = tool.get(kind) if type(kind) is str else None
    name = described.get("name") if type(described) is dict else None
    return name if type(name) is str else ""


def has_custom_tools(body: Mapping[str, Any]) -> bool:
    """Tools whose calls are no functions: no SDK can stream them, and we could not tell them from text."""
    return "custom" in [tool.get("type") for tool in body.get("tools") or () if type(tool) is dict]


def is_formatted(body: Mapping[str, Any]) -> bool:
    """Does the client want something other than plain text?"""
    if "response_format" not in body:
        return False
    wanted = body["response_format"]
    return isinstance(wanted, dict) and wanted.get("type", "text") != "text"


def _choice_excludes(request: ChatRequest) -> str:
    """Why the client's `tool_choice` rules search out, or nothing."""
    if "tool_choice" not in request.body or request.search.forced or request.search.allowed:
        return ""
    choice = request.body["tool_choice"]
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
    return any(map(_CLIENT_SEARCH.search, client_tools(body)))


def _stepping_aside(body: Mapping[str, Any]) -> str:
    """Why `auto` leaves a request alone, or nothing."""
    if not _TELLING_FIELDS.isdisjoint(body):  # most requests have at the most tools among these
        for reason, _, says_so in _STEPS_ASIDE:
            if says_so(body):
                return reason
    return "background" if is_housekeeping(body) else ""


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

# Why `auto` leaves a request alone, and the fields that say so. What it is asked for may say so too.
_STEPS_ASIDE: tuple[tuple[str, tuple[str, ...], Condition], ...] = (
    ("n", ("n",), _wants_several),
    ("logprobs", ("logprobs",), _wants_logprobs),
    ("response_format", ("response_format",), is_formatted),
    ("audio", ("audio", "modalities"), _wants_audio),
    ("tool_choice_required", ("tool_choice",), lambda body: body.get("tool_choice") in ("required", "any")),
    (
        "functions",
        ("functions", "function_call"),
        lambda body: bool(body.get("functions") or body.get("function_call")),
    ),
    ("custom_tools", ("tools",), has_custom_tools),
    ("client_search", ("tools",), _searches_itself),
)
_TELLING_FIELDS = frozenset(name for _, fields, _ in _STEPS_ASIDE for name in fields)


def _speaks_of_choice(request: ChatRequest) -> bool:
    return "tool_choice" in request.body or request.search.forced or request.search.allowed


def _set_choice(body: dict[str, Any], search: SearchOptions, owned: Mapping[str, str]) -> tuple[Any, Any]:
    """Sets the `tool_choice` of the first round; hands on the client's own, for the round in which only its tools are
    left, and that of the rounds after a tool of ours has run."""
    choice = body.get("tool_choice")
    forced: dict[str, Any] | None = None
    if search.forced:
        named = [wire for wire, tool in owned.items() if tool == search.forced_tool]
        forced = {"type": "function", "function": {"name": named[0] if named else next(iter(owned))}}
        body["tool_choice"] = forced
    later: Any = "auto"
    if search.allowed:
        allowed: dict[str, Any] = choice["allowed_tools"] if isinstance(choice, dict) else {"mode": "auto", "tools": []}
        both = {
            **allowed,
            "tools": [*allowed["tools"], *({"type": "function", "function": {"name": n}} for n in owned)],
        }
        body["tool_choice"] = forced or {"type": "allowed_tools", "allowed_tools": both}
        later = {"type": "allowed_tools", "allowed_tools": {**both, "mode": "auto"}}
    # A tool of ours has run by then, so the wish for any tool is met.
    if choice in ("required", "any"):
        choice = "auto"
    elif isinstance(choice, dict) and isinstance(choice.get("allowed_tools"), dict):
        choice = {**choice, "allowed_tools": {**choice["allowed_tools"], "mode": "auto"}}
    return choice, later
