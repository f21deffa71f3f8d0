"""The tools of a Messages request as the model is told of them. Handed `tools` and `tool_choice`; hands on functions in
the form of Chat Completions, the server tools that ask for search, and which types were left out because only their
vendor knows them. For a name that the model calls it knows what the client calls that tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from providers.records import dataclass

from ...values.errors import RequestError, quoted, refuse
from ..search import is_hosted_search
from ..tool_names import short_enough


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    functions: list[dict[str, Any]] = field(default_factory=list)
    hosted: list[dict[str, Any]] = field(default_factory=list)
    left_out: tuple[str, ...] = ()
    _by_wire_name: Mapping[str, str] = field(default_factory=dict)

    def called(self, wire_name: str) -> str:
        """What the client calls it. A name that nobody declared is the client's affair too."""
        return self._by_wire_name.get(wire_name, wire_name)

    def names_server_tool(self, prefix: str) -> bool:
        return any(tool["type"].startswith(prefix) for tool in self.hosted)


def declared_tools(given: Sequence[Any]) -> DeclaredTools:
    functions: list[dict[str, Any]] = []
    hosted: list[dict[str, Any]] = []
    left_out: list[str] = []
    names: dict[str, str] = {}
    for place, tool in enumerate(given):
        if not isinstance(tool, dict):
            raise refuse(400, f"`tools.{place}` must be an object.", param=f"tools.{place}", code="invalid_type")
        kind = tool.get("type")
        if kind in (None, "custom"):
            functions.append(_function(tool, f"tools.{place}"))
            names[short_enough(tool["name"])] = tool["name"]
        elif is_hosted_search(tool):
            hosted.append(_without_empty_lists(tool))
        else:
            left_out.append(kind if isinstance(kind, str) else "other")
    return DeclaredTools(functions, hosted, tuple(dict.fromkeys(left_out)), names)


def _function(tool: Mapping[str, Any], param: str) -> dict[str, Any]:
    name, schema = tool.get("name"), tool.get("input_schema")
    if not isinstance(name, str) or not name:
        raise refuse(400, f"`{param}.name` is missing.", param=f"{param}.name", code="missing_field")
    if not isinstance(schema, dict | None):
        raise refuse(400, f"`{param}.input_schema` must be an object.", param=f"{param}.input_schema")
    function: dict[str, Any] = {"name": short_enough(name)}
    if isinstance(tool.get("description"), str):
        function["description"] = tool["description"]
    return {"type": "function", "function": {**function, "parameters": schema or {"type": "object"}}}


def _without_empty_lists(tool: Mapping[str, Any]) -> dict[str, Any]:
    """An empty list of domains is no list: clients send it where they have nothing to say."""
    return {key: value for key, value in tool.items() if value not in ([], None)}


def chat_tool_choice(choice: Any, tools: DeclaredTools) -> Any:
    """The choice as Chat Completions has it; None where there is none to make."""
    if choice is None:
        return None
    said = choice.get("type") if isinstance(choice, dict) else None
    kind = said if isinstance(said, str) else ""
    if kind == "tool":
        return _named(choice.get("name"), tools)
    plain = {"auto": "auto", "any": "required", "none": "none"}
    if kind not in plain:
        raise _wrong("`tool_choice.type` must be 'auto', 'any', 'none' or 'tool'.")
    if kind == "any" and tools.left_out and not (tools.functions or tools.hosted):
        raise _wrong(f"Only its vendor knows a tool of type {quoted(tools.left_out[0])}: it cannot be forced here.")
    return plain[kind] if kind != "auto" or tools.functions else None


def _named(name: Any, tools: DeclaredTools) -> dict[str, Any]:
    hosted = next((tool for tool in tools.hosted if name == tool.get("name", tool["type"])), None)
    if hosted and isinstance(name, str):
        return {"type": hosted["type"]}
    wanted = short_enough(name) if isinstance(name, str) else ""
    if not any(tool["function"]["name"] == wanted for tool in tools.functions):
        raise _wrong(f"Tool {quoted(name)} not found in provided tools.")
    return {"type": "function", "function": {"name": wanted}}


def _wrong(text: str) -> RequestError:
    return refuse(400, text, param="tool_choice", code="invalid_value")
