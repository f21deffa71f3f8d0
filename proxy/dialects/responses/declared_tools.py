"""The tools that a Responses request declares, as the model is told of them. Handed `tools`; hands on functions in the
form of Chat Completions, the tools that ask for search, and which types were left out because only their vendor can run
them. For a name that the model calls it knows what the client calls that tool, and the other way round.

A namespace is flattened: its functions go by their own names, and by the namespace's too where two would be alike. A
custom tool takes free text, which Chat Completions has no word for: it becomes a function with one argument, `input`. A
search for tools that the client runs itself is a function too; what it found is declared from then on. In a stored call
that has no name of its own: its namespace is null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from providers.records import dataclass
from tools import prompts

from ...answering.offer import OUR_NAMES
from ...values.request import MOST_TOOLS, check_count
from ..search import is_hosted_search
from ..tool_names import fitting, shortened
from .items import missing

# These fields of a function are about how OpenAI's own servers handle it.
_VENDOR_FIELDS = ("type", "defer_loading", "allowed_callers", "output_schema", "async", "execution")
_CALLABLE = ("function", "custom")
TOOL_SEARCH = "tool_search"


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """A function or a custom tool. `wire_name` is what the model calls it."""

    name: str
    namespace: str
    kind: str  # function | custom | tool_search
    wire_name: str


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    functions: list[dict[str, Any]] = field(default_factory=list)
    hosted: list[dict[str, Any]] = field(default_factory=list)
    left_out: tuple[str, ...] = ()
    _by_wire_name: dict[str, DeclaredTool] = field(default_factory=dict)
    _by_name: dict[str, dict[str, DeclaredTool]] = field(default_factory=dict)  # and then by namespace
    _by_namespace: dict[str, list[DeclaredTool]] = field(default_factory=dict)
    tool_search: DeclaredTool | None = None  # that the client runs

    def tool_called(self, wire_name: str) -> DeclaredTool:
        """What the model means. A name that nobody declared is the client's affair too."""
        return self._by_wire_name.get(wire_name) or DeclaredTool(wire_name, "", "function", wire_name)

    def tools_named(self, name: str, namespace: str | None) -> list[DeclaredTool]:
        """The tools that a client may mean: with no namespace its own first, then those of any namespace."""
        alike = self._by_name.get(name, {})
        if namespace is None and "" not in alike:
            return list(alike.values())
        return [alike[namespace or ""]] if (namespace or "") in alike else []

    def tools_in(self, namespace: object) -> list[DeclaredTool]:
        return self._by_namespace.get(namespace, []) if isinstance(namespace, str) and namespace else []

    def text_of_found(self, tools: Sequence[Any]) -> str:
        """What the model is told of tools that the client has found for it."""
        entries = [entry for entry in _flat({"tools": tools}) if entry.tool["type"] in _CALLABLE]
        meant = [tool for entry in entries for tool in self.tools_named(entry.name, entry.namespace)]
        names = ", ".join(dict.fromkeys(tool.wire_name for tool in meant))
        return prompts.TOOLS_FOUND.format(names=names) if names else prompts.NO_TOOL_FOUND

    def with_wire_names(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message of a stored conversation as this request's model reads it: every call under the name that its tool
        has now."""
        if not any("namespace" in call for call in message.get("tool_calls") or ()):
            return message
        return {**message, "tool_calls": [self._with_wire_name(call) for call in message["tool_calls"]]}

    def _with_wire_name(self, call: Mapping[str, Any]) -> dict[str, Any]:
        plain = {key: value for key, value in call.items() if key != "namespace"}
        if plain.keys() == call.keys():
            return plain
        name, namespace = call["function"]["name"], call["namespace"]
        found = [self.tool_search] if namespace is None else self.tools_named(name, namespace)
        wire_name = found[0].wire_name if found and found[0] else fitting(name)
        return {**plain, "function": {**call["function"], "name": wire_name}}

    def with_own_names(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message of the model's as it is stored: the calls of tools in a namespace by their own name, beside that
        namespace, for the next request may flatten it otherwise."""
        if not message.get("tool_calls"):
            return message
        return {**message, "tool_calls": [self._with_own_name(call) for call in message["tool_calls"]]}

    def _with_own_name(self, call: dict[str, Any]) -> dict[str, Any]:
        tool = self._by_wire_name.get(call["function"]["name"]) if "function" in call else None
        is_search = tool is not None and tool.kind == TOOL_SEARCH
        if tool is None or not (tool.namespace or is_search):
            return call
        namespace = None if is_search else tool.namespace
        return {**call, "function": {**call["function"], "name": tool.name}, "namespace": namespace}


@dataclass(frozen=True, slots=True)
class _Listed:
    """A tool and where it stands. `heading` is what its namespace says of itself, told with the first of its tools."""

    tool: Mapping[str, Any]
    namespace: str = ""
    heading: str = ""

    @property
    def name(self) -> str:
        """A search for tools goes by its type."""
        return str(self.tool.get("name") or self.tool["type"])

    @property
    def is_search(self) -> bool:
        return bool(self.tool["type"] == TOOL_SEARCH)

    @property
    def key(self) -> tuple[str, str, bool]:
        """A function may be called what a search for tools is."""
        return self.namespace, self.name, self.is_search


def declared_tools(given: Sequence[Any], added: Mapping[str, Sequence[Any]] | None = None) -> DeclaredTools:
    """`added`: what items of the input declare besides, by the place where it stands."""
    listed: list[_Listed] = []
    hosted: list[dict[str, Any]] = []
    left_out: list[str] = []
    all_given = {"tools": given, **(added or {})}
    _check_number(all_given)
    for entry in _flat(all_given):
        kind = entry.tool["type"]
        if kind in _CALLABLE or _is_run_by_client(entry.tool):
            listed.append(entry)
        elif is_hosted_search(entry.tool):
            hosted.append(dict(entry.tool))
        else:
            left_out.append(kind)
    names = _wire_names(listed)
    tools = [_declared(entry, names[entry.key]) for entry in listed]
    functions = [_function(entry, names[entry.key]) for entry in listed]
    by_name: dict[str, dict[str, DeclaredTool]] = {}
    by_namespace: dict[str, list[DeclaredTool]] = {}
    for tool in sorted(tools, key=lambda tool: tool.kind != TOOL_SEARCH):  # a function of that name comes over it
        by_name.setdefault(tool.name, {})[tool.namespace] = tool
        by_namespace.setdefault(tool.namespace, []).append(tool)
    return DeclaredTools(
        functions,
        hosted,
        tuple(dict.fromkeys(left_out)),
        {tool.wire_name: tool for tool in tools},
        by_name,
        by_namespace,
        next((tool for tool in tools if tool.kind == TOOL_SEARCH), None),
    )


def _check_number(given: Mapping[str, Sequence[Any]]) -> None:
    """A namespace counts as what it holds, and an empty one too."""
    count = 0
    for param, tools in given.items():
        count += sum(map(_number_in, tools))
        check_count(count, param, MOST_TOOLS, "tools in all")


def _number_in(tool: object) -> int:
    inner = tool.get("tools") if isinstance(tool, dict) and tool.get("type") == "namespace" else None
    return max(1, len(inner)) if isinstance(inner, list) else 1


def _flat(given: Mapping[str, Sequence[Any]]) -> Iterator[_Listed]:
    """All tools, those of namespaces in their place. One that a namespace or a search lists again counts once; what
    stands twice in `tools` itself is for the model's server to judge."""
    seen: set[tuple[str, str, bool]] = set()
    for param, tools in given.items():
        for entry in _listed(param, tools):
            again = entry.key in seen and (entry.namespace or param != "tools")
            if not again or entry.tool["type"] not in _CALLABLE:
                yield entry
            seen.add(entry.key)


def _listed(param: str, tools: Sequence[Any]) -> Iterator[_Listed]:
    for i, tool in enumerate(tools):
        if _type_of(tool, f"{param}[{i}]") == "namespace":
            yield from _in_namespace(tool, f"{param}[{i}]")
        else:
            yield _Listed(tool)


def _in_namespace(namespace: Mapping[str, Any], param: str) -> Iterator[_Listed]:
    name, tools = namespace.get("name"), namespace.get("tools")
    if not isinstance(name, str) or not name:
        raise missing(f"{param}.name")
    if not isinstance(tools, list):
        raise missing(f"{param}.tools")
    said = namespace.get("description")
    heading = prompts.NAMESPACE.format(name=name, description=said) if isinstance(said, str) and said else ""
    for j, tool in enumerate(tools):
        _type_of(tool, f"{param}.tools[{j}]")
        yield _Listed(tool, name, heading if j == 0 else "")


def _type_of(tool: Any, param: str) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(kind, str):
        raise missing(f"{param}.type")
    if kind in _CALLABLE and not (isinstance(tool.get("name"), str) and tool["name"]):
        raise missing(f"{param}.name")
    return kind


def _is_run_by_client(tool: Mapping[str, Any]) -> bool:
    """Does the client search for tools itself, and say with which arguments?"""
    is_clients = tool["type"] == TOOL_SEARCH and tool.get("execution") == "client"
    return is_clients and isinstance(tool.get("parameters"), dict)


# Names


def _wire_names(listed: Sequence[_Listed]) -> dict[tuple[str, str, bool], str]:
    """What stands in no namespace keeps its name, whatever it is, but for a search for tools beside a function of that
    name; what stands in one takes no name of ours. Names that a server takes as they are choose first."""
    count = Counter(entry.name for entry in listed)
    names = {entry.key: entry.name for entry in listed if not entry.namespace and not entry.is_search}
    taken = {*names.values(), *OUR_NAMES}
    others = [entry for entry in listed if entry.namespace or entry.is_search]
    for entry in sorted(others, key=lambda entry: (bool(entry.namespace), fitting(entry.name) != entry.name)):
        if entry.key not in names:  # else it stands there twice
            is_alone = count[entry.name] == 1 or not entry.namespace
            names[entry.key] = _free_name(entry, taken, is_alone=is_alone)
            taken.add(names[entry.key])
    return names


def _free_name(entry: _Listed, taken: set[str], *, is_alone: bool) -> str:
    name = entry.name
    plain, prefixed = fitting(name), fitting(f"{entry.namespace}__{name}" if entry.namespace else f"client__{name}")
    if is_alone and plain not in taken:
        return plain
    return prefixed if prefixed not in taken else shortened(f"{entry.namespace}__{name}", f"{entry.namespace}\0{name}")


# What the model is told


def _declared(entry: _Listed, wire_name: str) -> DeclaredTool:
    return DeclaredTool(entry.name, entry.namespace, entry.tool["type"], wire_name)


def _function(entry: _Listed, wire_name: str) -> dict[str, Any]:
    if entry.tool["type"] == "custom":
        described = _custom_function(entry.tool)
    else:
        described = {key: v for key, v in entry.tool.items() if key not in _VENDOR_FIELDS and v is not None}
    said = described.get("description", "")
    if entry.heading and isinstance(said, str):
        described["description"] = "\n\n".join(filter(None, (entry.heading, said)))
    return {"type": "function", "function": {**described, "name": wire_name}}


def _custom_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    said = tool.get("description")
    words = [said] if isinstance(said, str) and said else []
    wanted = tool.get("format")
    if isinstance(wanted, dict) and wanted.get("type") == "grammar":
        form = prompts.INPUT_MATCHES_REGEX if wanted.get("syntax") == "regex" else prompts.INPUT_MATCHES_GRAMMAR
        words.append(form.format(syntax=wanted.get("syntax"), definition=wanted.get("definition")))
    text = {"type": "string", "description": prompts.CUSTOM_INPUT}
    parameters = {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }
    return {"name": tool["name"], "description": "\n\n".join(words), "parameters": parameters}
