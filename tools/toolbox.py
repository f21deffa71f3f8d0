"""All tools, and those that this process can offer. Handed the chains of providers and the operator's policy; hands on
what the model reads of each tool, and a session for each request.
"""

from __future__ import annotations

from typing import Any

from providers.chain import ReadChain, SearchChain

from . import open_page, web_search
from .base import Tool, ToolSpec
from .options import SessionOptions, ToolPolicy
from .provenance import Domains
from .session import ToolSession

# In the order in which they are offered. A client that demands a search without saying how gets the first of them.
TOOLS: tuple[Tool[Any, Any], ...] = (web_search.TOOL, open_page.TOOL)
_BY_NAME = {tool.name: tool for tool in TOOLS}


def tool_named(name: str) -> Tool[Any, Any] | None:
    """The tool, or None for a name that a model made up."""
    return _BY_NAME.get(name)


class Toolbox:
    """`tools` are those of them that some provider can serve."""

    def __init__(
        self,
        search: SearchChain | None,
        read: ReadChain | None,
        policy: ToolPolicy,
        tools: tuple[Tool[Any, Any], ...] = TOOLS,
    ) -> None:
        self.search = search
        self.read = read
        self.policy = policy
        self.domains = Domains().narrowed(policy.allowed_domains, policy.blocked_domains)
        chains = {"search": search, "read": read}
        self.tools = {tool.name: tool for tool in tools if all(chains[role] for role in tool.needs)}
        self.specs = tuple(tool.spec(policy) for tool in self.tools.values())

    def offered(self, *, live: bool) -> list[ToolSpec]:
        """The tools for a request. Without live access what an engine has found may be read, and no page be fetched."""
        return [spec for spec in self.specs if live or "read" not in self.tools[spec.tool].needs]

    def session(self, options: SessionOptions) -> ToolSession:
        return ToolSession(self, options)
