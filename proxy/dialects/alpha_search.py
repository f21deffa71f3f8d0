"""`POST /v1/alpha/search`, as Codex's own search client speaks it: a bundle of commands, answered with one text that a
model reads. Handed a body; hands on an `AlphaSearch`, and of what was found the text, no longer than was asked for.

A page is referred to by its URL, so nothing has to be remembered between two requests. Pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from providers.records import dataclass
from providers.text.cuts import cut
from providers.text.passages import GAP
from providers.urls import encode_url
from tools import prompts
from tools.base import BadArguments
from tools.clean import one_line
from tools.pages import ReadPage
from tools.render import dated, escape, fenced

from ..values.errors import refuse
from ..values.request import MOST_DOMAINS, check_blocked, check_count, check_length, json_object
from .search_engines import since

CHARACTERS_PER_TOKEN = 4
_RESULTS = {"short": 3, "medium": 5, "long": 10, "low": 3, "high": 10}
MOST_COMMANDS = 20  # those that nobody knows too
MOST_NAMED = 12  # of those
MOST_LINKS = 40  # that are listed behind a page
MOST_FINDS = 20
_AROUND = 150  # characters on either side of what was found


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class SearchFor(_Shape):
    q: str
    recency: Annotated[int, Field(ge=0)] | None = None  # days
    domains: list[str] | None = None

    def arguments(self, today: dt.date) -> dict[str, Any]:
        """As `web_search` takes them."""
        recent = since(self.recency, today) if self.recency else {}
        return {"query": self.q, "allowed_domains": self.domains or [], **recent}


class OpenPage(_Shape):
    ref_id: str
    lineno: Annotated[int, Field(ge=0)] | None = None


class Click(_Shape):
    ref_id: str
    id: Annotated[int, Field(ge=0)]


class Find(_Shape):
    ref_id: str
    pattern: str


class _Commands(_Shape):
    search_query: list[SearchFor] | None = None
    open: list[OpenPage] | None = None
    click: list[Click] | None = None
    find: list[Find] | None = None
    response_length: Literal["short", "medium", "long"] | None = None


_KNOWN_COMMANDS = frozenset(_Commands.model_fields)


class _Location(_Shape):
    country: str | None = None


class _Filters(_Shape):
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class _Settings(_Shape):
    user_location: _Location | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    filters: _Filters | None = None
    external_web_access: bool | str | None = None


class _Body(_Shape):
    commands: _Commands
    settings: _Settings | None = None
    max_output_tokens: Annotated[int, Field(gt=0)] | None = None


Command = SearchFor | OpenPage | Click | Find


@dataclass(frozen=True, slots=True)
class AlphaSearch:
    commands: tuple[Command, ...]
    unknown: tuple[str, ...]  # the names of commands that nobody here can run
    limit: int | None
    country: str
    allowed_domains: tuple[str, ...]
    blocked_domains: tuple[str, ...]
    live: bool  # may pages be fetched for it?
    most: int | None  # characters of the output


def decode(raw: bytes) -> AlphaSearch:
    given = json_object(raw)
    _check_sizes(given)
    body = _checked(given)
    asked, settings = body.commands, body.settings or _Settings()
    commands = [*(asked.search_query or ()), *(asked.open or ()), *(asked.click or ()), *(asked.find or ())]
    filters = settings.filters or _Filters()
    check_blocked(filters.blocked_domains or (), "settings.filters.blocked_domains")
    return AlphaSearch(
        commands=tuple(commands),
        unknown=tuple(_unknown(given["commands"])),
        limit=_RESULTS.get(asked.response_length or settings.search_context_size or ""),
        country=(settings.user_location and settings.user_location.country) or "",
        allowed_domains=tuple(filters.allowed_domains or ()),
        blocked_domains=tuple(filters.blocked_domains or ()),
        live=settings.external_web_access in (None, True, "live"),
        most=None if body.max_output_tokens is None else body.max_output_tokens * CHARACTERS_PER_TOKEN,
    )


def _unknown(commands: Mapping[str, Any]) -> list[str]:
    return [name for name, wanted in commands.items() if wanted and name not in _KNOWN_COMMANDS]


def _check_sizes(given: Mapping[str, Any]) -> None:
    """Before anybody looks at each entry of lists that may be long."""
    commands = _mapping(given.get("commands"))
    known = [listed for name in _KNOWN_COMMANDS if isinstance(listed := commands.get(name), list)]
    check_count(sum(map(len, known)) + len(_unknown(commands)), "commands", MOST_COMMANDS, "commands")
    searches = commands.get("search_query")
    for n, search in enumerate(searches if isinstance(searches, list) else ()):
        _check_domains(_mapping(search).get("domains"), f"commands.search_query.{n}.domains")
    filters = _mapping(_mapping(given.get("settings")).get("filters"))
    for name in _Filters.model_fields:
        _check_domains(filters.get(name), f"settings.filters.{name}")


def _check_domains(listed: object, param: str) -> None:
    if isinstance(listed, list):
        check_length(listed, param, MOST_DOMAINS)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _checked(given: Mapping[str, Any]) -> _Body:
    try:
        return _Body.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        param = ".".join(str(part) for part in first["loc"])
        text = f"`{param}` is wrong: {first['msg'].rstrip('.')}."
        raise refuse(400, text, param=param, code="invalid_value") from None


# What was found, as a model reads it


def page_text(page: ReadPage, lineno: int, most: int, fence: str) -> str:
    """The page from a line on, counted from 1, and where its links lead."""
    lines = page.text.split("\n")
    begin, url = max(lineno, 1), encode_url(page.final_url)
    if begin > len(lines):
        return prompts.BEYOND_LINES.format(url=url, line=begin, lines=len(lines))
    links = _links(page, most // 4)
    shown = _lines_within(lines[begin - 1 :], most - sum(map(len, links)))
    end = begin + len(shown) - 1
    where = prompts.LINES.format(first=begin, last=end, lines=len(lines))
    if end < len(lines):
        where += prompts.READ_ON_LINE.format(line=end + 1)
    head = [page.title, prompts.source_url(url), *dated(page.date)]
    blocks = ["\n".join(block) for block in (head, shown, links) if block]
    return "\n".join([where, prompts.UNTRUSTED, *fenced(fence, blocks)])


def _lines_within(lines: Sequence[str], most: int) -> list[str]:
    """As many of them as fit; of the first as much as fits."""
    shown: list[str] = []
    for line in lines:
        most -= len(line) + 1
        if most < 0:
            break
        shown.append(line)
    return shown or [lines[0][: cut(lines[0], 0, most + len(lines[0]) + 1)] + GAP]


def _links(page: ReadPage, most: int) -> list[str]:
    """As many as fit, each behind the number by which it is clicked."""
    links: list[str] = []
    for number, url in enumerate(page.links[:MOST_LINKS], 1):
        most -= len(url) + 4
        if most < 0:
            break
        links.append(f"{number} {escape(one_line(url, len(url)))}")
    return [prompts.LINKS, *links] if links else []


def link_of(page: ReadPage, number: int) -> str:
    """Where the link leads that stands under this number behind the page."""
    if not 1 <= number <= len(page.links):
        raise BadArguments(prompts.NO_SUCH_LINK.format(number=number, links=len(page.links)))
    return page.links[number - 1]


def found_text(page: ReadPage, pattern: str, fence: str) -> str:
    """The places of a page where the pattern stands, word for word but for case and white space, each with its line."""
    wanted, url = " ".join(pattern.lower().split()), encode_url(page.final_url)
    lines = [(number, " ".join(line.split())) for number, line in enumerate(page.text.split("\n"), 1)]
    found = [(number, line, line.lower().find(wanted)) for number, line in lines if wanted in line.lower()]
    if not found or not wanted:
        return prompts.NOT_FOUND.format(pattern=_shown(pattern), url=url)
    places = [f"{number}: {_around(line, at, len(wanted))}" for number, line, at in found[:MOST_FINDS]]
    head = prompts.FOUND.format(pattern=_shown(pattern), url=url, count=len(found), shown=len(places))
    return "\n".join([head, prompts.UNTRUSTED, *fenced(fence, ["\n".join(places)])])


def _around(line: str, at: int, length: int) -> str:
    begin, end = max(at - _AROUND, 0), at + length + _AROUND
    return ("…" if begin else "") + line[begin:end] + ("…" if end < len(line) else "")


def _shown(pattern: str) -> str:
    return " ".join(pattern.split())[:100]


def output(texts: Sequence[str], most: int | None, fence: str) -> str:
    """All texts as one of at most `most` characters. Who is short leaves its room to the others."""
    if most is None or sum(map(len, texts)) + 2 * len(texts) <= most:
        return "\n\n".join(texts)
    room, shares = most - 2 * len(texts), dict[int, int]()
    shortest_first = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    for done, at in enumerate(shortest_first):
        shares[at] = min(len(texts[at]), max(room, 0) // (len(texts) - done))
        room -= shares[at]
    return "\n\n".join(_cut_short(text, shares[at], fence) for at, text in enumerate(texts))[:most]


def _cut_short(text: str, most: int, fence: str) -> str:
    if len(text) <= most:
        return text
    closing = f"\n{fence}>>>" if f"<<<{fence}" in text else ""
    kept = text[: max(most - len(closing) - len(prompts.CUT) - 1, 0)]
    closed = closing if f"<<<{fence}" in kept else ""
    return f"{kept}{closed}\n{prompts.CUT}".lstrip("\n")
