"""All tools, and those that this process can offer. Handed the chains of providers and the operator's policy; hands on
what the model reads of each tool, and a session for each request.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from providers.base import Role
from providers.chain import Providers, ReadChain, SearchChain

from . import open_page, web_search
from .base import Circumstances, Tool, ToolSpec
from .options import SessionOptions, ToolPolicy, day_now
from .provenance import Domains
from .session import ToolSession

# In the order in which they are offered. A client that demands a search without saying how gets the first of them.
TOOLS: tuple[Tool[Any, Any], ...] = (web_search.TOOL, open_page.TOOL)
_BY_NAME = {tool.name: tool for tool in TOOLS}
MOST_FITTED = 64  # descriptions that are kept: one for each kind of caller and request, the same all day


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
        self._chains: dict[Role, SearchChain | ReadChain | None] = {"search": search, "read": read}
        self.tools = {tool.name: tool for tool in tools if all(self._chains[role] for role in tool.needs)}
        self.specs = tuple(tool.spec(policy) for tool in self.tools.values())
        self._able: dict[tuple[bool, Providers], bool] = {}
        self._fitted: dict[tuple[bool, Providers, bool, str], tuple[ToolSpec, ...]] = {}

    def has_any(self, *, live: bool, only: Providers = None) -> bool:
        """Is there a tool for a request that may ask these providers?"""
        asked = (live, only)
        if asked not in self._able:
            if len(self._able) >= MOST_FITTED:
                self._able.clear()
            self._able[asked] = any(self._is_offered(tool, live, only) for tool in self.tools.values())
        return self._able[asked]

    def offered(
        self, *, live: bool, only: Providers = None, cite: bool = True, today: str | None = None
    ) -> tuple[ToolSpec, ...]:
        """The tools for a request, as far as those providers can serve them that it may ask. Without live access what
        an engine has found may be read, and no page be fetched. `cite`: is the model told how to cite? `today` is the
        day on which the request began."""
        asked = (live, only, cite, today or day_now())
        if asked not in self._fitted:
            if len(self._fitted) >= MOST_FITTED:
                self._fitted.clear()
            self._fitted[asked] = self._fit(*asked)
        return self._fitted[asked]

    def _fit(self, live: bool, only: Providers, cite: bool, today: str) -> tuple[ToolSpec, ...]:
        specs = [spec for spec in self.specs if self._is_offered(self.tools[spec.tool], live, only)]
        if not cite:
            specs = [replace(spec, description=spec.uncited or spec.description) for spec in specs]
        names = frozenset(spec.tool for spec in specs)
        now = Circumstances(today, names, self.search.names(only) if self.search else ())
        return tuple(self.tools[spec.tool].fit(spec, now) for spec in specs)

    def _is_offered(self, tool: Tool[Any, Any], live: bool, only: Providers) -> bool:
        chains = [self._chains[role] for role in tool.needs]
        return (live or "read" not in tool.needs) and all(chain and chain.serves(only) for chain in chains)

    def session(self, options: SessionOptions) -> ToolSession:
        return ToolSession(self, options)
