"""Which tool a Responses request wants to be called. Handed its `tool_choice` and the declared tools; hands on the
choice as Chat Completions has it, or refuses one that names a tool that is not there or that only its vendor can run.
"""

from __future__ import annotations

from typing import Any

from tools.base import WEB_SEARCH

from ...values.errors import RequestError
from ...values.request import MOST_TOOLS, check_length
from ..search import is_hosted_search
from .declared_tools import TOOL_SEARCH, DeclaredTool, DeclaredTools
from .items import invalid, missing


def chat_tool_choice(choice: Any, tools: DeclaredTools) -> Any:
    if choice == "required" and tools.left_out and not (tools.functions or tools.hosted):
        raise _not_ours("tool_choice", tools.left_out[0])
    if choice is None or choice in ("none", "auto", "required"):
        return choice
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "allowed_tools":
        return _allowed(choice, tools)
    if not isinstance(kind, str):
        raise invalid("tool_choice", "`tool_choice` must be 'none', 'auto', 'required', or an object with a `type`.")
    named = _named(choice, tools, "tool_choice")
    return named[0] if len(named) == 1 else _any_of(named, "required")


def _allowed(choice: dict[str, Any], tools: DeclaredTools) -> Any:
    """A list of tools of which any may be called; those that only their vendor can run are none of them."""
    listed, mode = choice.get("tools"), choice.get("mode") or "auto"
    if not isinstance(listed, list) or not listed:
        raise missing("tool_choice.tools")
    check_length(listed, "tool_choice.tools", MOST_TOOLS)
    if mode not in ("auto", "required"):
        raise invalid("tool_choice.mode", "`tool_choice.mode` must be 'auto' or 'required'.")
    ours = [(i, tool) for i, tool in enumerate(listed) if not _is_left_out(tool, tools)]
    if not ours and mode == "required":
        raise _not_ours("tool_choice.tools[0]", listed[0]["type"])
    if not ours:
        return "none"
    named: list[dict[str, Any]] = []
    told: set[str] = set()  # namespaces; each is told once, as it may hold much
    for i, tool in ours:
        namespace = _namespace_in(tool, tools)
        if namespace and namespace in told:
            continue
        told.add(namespace)
        named += _named(tool, tools, f"tool_choice.tools[{i}]")
    return _any_of(named, mode)


def _any_of(named: list[dict[str, Any]], mode: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


def _named(tool: Any, tools: DeclaredTools, param: str) -> list[dict[str, Any]]:
    """A choice of one tool: a function or a custom tool by its name, a hosted one or a search for tools by its type.
    A namespace stands for all its tools."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(kind, str):
        raise missing(f"{param}.type")
    if kind in ("function", "custom"):
        return [_function(tool, tools, param)]
    if namespace := _namespace_in(tool, tools):
        return [_by_wire_name(one) for one in tools.tools_in(namespace)]
    if kind == TOOL_SEARCH and tools.tool_search:
        return [_by_wire_name(tools.tool_search)]
    if _is_left_out(tool, tools):
        raise _not_ours(param, kind)
    if not (tools.hosted and is_hosted_search(tool)):
        raise _not_found(kind)
    return [{"type": kind}]


def _namespace_in(tool: Any, tools: DeclaredTools) -> str:
    """The namespace that is chosen, if it is one that holds tools."""
    name = tool.get("name") if isinstance(tool, dict) and tool.get("type") == "namespace" else None
    return str(name) if tools.tools_in(name) else ""


def _by_wire_name(tool: DeclaredTool) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool.wire_name}}


def _function(tool: dict[str, Any], tools: DeclaredTools, param: str) -> dict[str, Any]:
    name, namespace = tool.get("name"), tool.get("namespace")
    if not isinstance(name, str):
        raise missing(f"{param}.name")
    found = tools.tools_named(name, namespace if isinstance(namespace, str) and namespace else None)
    if len(found) > 1:
        raise invalid("tool_choice", f"Tool choice '{name}' stands in several namespaces: add its `namespace`.")
    if not found and not (name == WEB_SEARCH and tools.hosted):
        raise _not_found(name)
    return _by_wire_name(found[0]) if found else {"type": "function", "function": {"name": name}}


def _is_left_out(tool: Any, tools: DeclaredTools) -> bool:
    if _namespace_in(tool, tools):
        return False
    if tools.tool_search and isinstance(tool, dict) and tool.get("type") == TOOL_SEARCH:
        return False
    return isinstance(tool, dict) and tool.get("type") in tools.left_out


def _not_ours(param: str, kind: str) -> RequestError:
    text = f"Only its vendor can run a tool of type '{kind}': it is left out here, and cannot be forced."
    return invalid(param, text)


def _not_found(name: str) -> RequestError:
    return invalid("tool_choice", f"Tool choice '{name}' not found in 'tools' parameter.")
