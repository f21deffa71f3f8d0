"""What a request says about search, in whatever dialect: hosted-search fields, tools and choices. Handed a Chat
Completions body; hands on `SearchOptions` and the body without those fields, which no other upstream knows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from typing import Any

from providers.records import dataclass
from tools.base import OPEN_PAGE, WEB_SEARCH
from tools.toolbox import tool_named

from ..answering.offer import client_tools
from ..values.request import MOST_DOMAINS, MOST_TOOLS, PageDomains, SearchOptions, check_blocked, check_length

_HOSTED_TOOLS = ("web_search", "web_fetch", "openrouter:web_search")  # and whatever begins so
_FETCHES = "web_fetch"
_SIZES = ("low", "medium", "high")

_SAID_IN = frozenset({"web_search_options", "tools", "tool_choice"})  # where a request may speak of search


@dataclass(slots=True)
class _Wish:
    """What was found so far. The first field that asks is the one that is named; its options win over later ones."""

    asked: str = ""
    forced: bool = False
    forced_tool: str = ""
    allowed: bool = False
    live: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    pages: dict[str, Any] = field(default_factory=dict)  # what is said of fetching them

    def ask(self, name: str) -> None:
        self.asked = self.asked or name


def take_out_search(body: dict[str, Any]) -> tuple[SearchOptions, dict[str, Any]]:
    if _SAID_IN.isdisjoint(body):  # nearly all requests
        return _NO_WISH, body
    body, wish = dict(body), _Wish()
    _take_options(body, wish)
    _take_tools(body, wish)
    _take_choice(body, wish)
    return _search_options(wish), body


def is_hosted_search(tool: object) -> bool:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return kind != "function" and isinstance(kind, str) and kind.startswith(_HOSTED_TOOLS)


def _fetches(tool: dict[str, Any]) -> bool:
    """Is it for pages, and not for finding them?"""
    return bool(tool["type"].startswith(_FETCHES))


def _take_options(body: dict[str, Any], wish: _Wish) -> None:
    options = body.pop("web_search_options", None)
    if options is not None:
        wish.ask("web_search_options")
        wish.options = dict(_mapping(options))


def _take_tools(body: dict[str, Any], wish: _Wish) -> None:
    tools = body.get("tools") or []
    hosted = [tool for tool in tools if is_hosted_search(tool)]
    if not hosted:
        return
    wish.ask("tool")
    wish.live = all(tool.get("external_web_access") is not False for tool in hosted)
    for tool in sorted(hosted, key=_fetches):  # where both are named, what is said of search goes first
        given = {**tool, **_mapping(tool.get("parameters"))}
        if _fetches(tool):
            wish.pages = wish.pages or given
        if not _fetches(tool) or all(map(_fetches, hosted)):
            for name, value in given.items():
                wish.options.setdefault(name, value)
    body["tools"] = [tool for tool in tools if not is_hosted_search(tool)]
    if not body["tools"]:
        del body["tools"]


def _take_choice(body: dict[str, Any], wish: _Wish) -> None:
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return
    theirs = frozenset(client_tools(body))
    if _names_search(choice, theirs):
        wish.ask("tool_choice")
        wish.forced = True
        wish.forced_tool = _tool_named_by(choice)
        del body["tool_choice"]
    elif choice.get("type") == "allowed_tools":
        _take_allowed(choice, theirs, body, wish)


def _take_allowed(choice: dict[str, Any], theirs: Collection[str], body: dict[str, Any], wish: _Wish) -> None:
    """An `allowed_tools` list that names search: the client's own entries stay."""
    listed = _mapping(choice.get("allowed_tools"))
    entries = listed.get("tools")
    entries = entries if isinstance(entries, list) else []
    check_length(entries, "tool_choice.allowed_tools.tools", MOST_TOOLS)
    kept = [entry for entry in entries if not _names_search(entry, theirs)]
    if len(kept) == len(entries):
        return
    wish.ask("tool_choice")
    wish.allowed = True
    wish.forced = not kept and listed.get("mode") == "required"  # search is all that may be called, and must
    body["tool_choice"] = {**choice, "allowed_tools": {**listed, "tools": kept}} if kept else "none"


def _names_search(choice: object, theirs: Collection[str]) -> bool:
    """A hosted tool, or `web_search` as a function although the client defines no such function."""
    if is_hosted_search(choice):
        return True
    if not isinstance(choice, dict) or choice.get("type") != "function":
        return False
    name = _mapping(choice.get("function")).get("name", choice.get("name"))
    return isinstance(name, str) and tool_named(name) is not None and name not in theirs


def _tool_named_by(choice: dict[str, Any]) -> str:
    """Our tool that a choice means: what fetches pages, or what finds them."""
    if is_hosted_search(choice):
        return OPEN_PAGE if _fetches(choice) else WEB_SEARCH
    named = tool_named(str(_mapping(choice.get("function")).get("name", choice.get("name"))))
    return named.name if named else WEB_SEARCH


def _search_options(wish: _Wish) -> SearchOptions:
    options = wish.options
    location = _mapping(options.get("user_location"))
    size = options.get("search_context_size")
    filters = {**options, **_mapping(options.get("filters"))}
    return SearchOptions(
        wish.asked,
        wish.forced,
        wish.forced_tool,
        wish.allowed,
        context_size=size if size in _SIZES else "",
        country=_country(_mapping(location.get("approximate")) or location),
        allowed_domains=_domains(filters, "allowed_domains"),
        blocked_domains=_domains(filters, "blocked_domains"),
        page_domains=_page_domains(wish.pages),
        live=wish.live,
    )


def _page_domains(pages: dict[str, Any]) -> PageDomains | None:
    filters = {**pages, **_mapping(pages.get("filters"))}
    allowed, blocked = _domains(filters, "allowed_domains"), _domains(filters, "blocked_domains")
    return PageDomains(allowed, blocked) if allowed or blocked else None


def _country(location: dict[str, Any]) -> str:
    country = location.get("country")
    return country.upper() if isinstance(country, str) and len(country) == 2 else ""


def _domains(filters: dict[str, Any], name: str) -> tuple[str, ...]:
    listed = filters.get(name)
    if not isinstance(listed, list):
        return ()
    check_length(listed, name, MOST_DOMAINS)
    domains = tuple(domain for domain in listed if isinstance(domain, str) and domain)
    if name == "blocked_domains":
        check_blocked(domains, name)
    return domains


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_NO_WISH = _search_options(_Wish())
