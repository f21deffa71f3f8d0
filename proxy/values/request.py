"""What every dialect becomes before anything else looks at it: the canonical Chat Completions body, plus what the
client said about search. Handed on to the preparation and the engine. Bodies are read as JSON here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import field
from typing import Any, Literal

from providers.records import dataclass
from providers.urls import domain_of
from tools.ledger import KnownSource

from . import patient_json
from .errors import quoted, refuse

CitationStyle = Literal["link", "number", "openai", "none"]
AutoMarks = Literal["off", "assist", "on"]  # for whom sentences are marked that the model left without a marker

LONGEST_QUOTE = 300  # characters
MOST_MESSAGES = 20_000  # of a conversation: each costs microseconds to prepare, and nobody else is served meanwhile
MOST_TOOLS = 2000  # of a request, those of namespaces too
MOST_DOMAINS = 1000  # in one list
CITATIONS_HEADER = "x-groundwire-citations"  # the style of the client's choice
TRACE_HEADER = "x-groundwire-trace"  # on: the client of a stream is shown each step
SEARCH_HEADER = "x-groundwire-search"  # on, off or nothing from the client; what was decided and why in the answer


@dataclass(frozen=True, slots=True)
class PageDomains:
    """Of which pages may be opened."""

    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What the client asked of search. `asked` names the field that asked, or is empty."""

    asked: str = ""
    forced: bool = False  # by a `tool_choice` that names search: the first round must search
    forced_tool: str = ""  # which of our tools it names, by our name
    allowed: bool = False  # by an `allowed_tools` list that names search
    context_size: str = ""  # low | medium | high
    country: str = ""  # ISO 3166 alpha-2
    language: str = ""  # ISO 639-1, from the request's Accept-Language
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    page_domains: PageDomains | None = None  # for pages, where what fetches them has lists of its own
    max_calls: int | None = None  # how many calls of ours may run at most
    max_searches: int | None = None  # of those, how many may search
    max_pages: int | None = None  # and how many pages may be opened
    live: bool = True  # may pages be fetched for it, or only what is cached be used?


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """`body` is Chat Completions JSON with the client's unknown fields in it and every hosted-search field taken out.

    `raw` is what the client sent; it goes up unchanged where `body` equals it. Who writes an answer holds the request
    that the client sent, whatever it was replaced by on the way to the model.
    """

    body: dict[str, Any]
    raw: bytes
    model: str
    stream: bool = False
    include_usage: bool = False
    search: SearchOptions = field(default_factory=SearchOptions)
    sources: Mapping[int, KnownSource] = field(default_factory=dict)  # by number, from turns put back
    searched: bool = False  # does the last question already stand with what was found for it?
    changed: bool = False  # does `body` differ from `raw`?
    begun: tuple[str, ...] = ()  # what the client has seen of this very answer: it called tools, and comes back
    citations: CitationStyle | None = None  # how they are to look, where anybody but the operator at large said so
    left_out: tuple[str, ...] = ()  # types of tools that only their vendor can run: the model sees none of them
    longest_quote: int = LONGEST_QUOTE  # of what a citation rests on, as its API has it
    wants_no_tools: bool = False  # did the client say in so many words that it has none?
    is_long: bool = False  # is work on all of it for a thread?


def json_object(raw: bytes) -> dict[str, Any]:
    """A body as every endpoint takes it."""
    try:
        body = patient_json.loads(raw)
    except ValueError as error:
        raise refuse(400, f"The request body is not valid JSON: {error}.", code="invalid_json") from None
    if type(body) is not dict:
        raise refuse(400, "The request body must be a JSON object.", code="invalid_type")
    return body


def check_length(entries: Sized, param: str, most: int = MOST_MESSAGES) -> None:
    """Of a conversation, or another list, under the name that the endpoint has for it."""
    if len(entries) > most:
        check_count(len(entries), param, most)


def check_blocked(domains: Iterable[str], param: str) -> None:
    """A rule that says nothing would let through what it is there to keep out."""
    for domain in domains:
        if not domain_of(domain):
            text = f"`{param}` holds {quoted(domain)}, which is not a domain like example.org."
            raise refuse(400, text, param=param, code="invalid_value")


def check_count(count: int, param: str, most: int, what: str = "entries") -> None:
    if count > most:
        text = f"`{param}` holds {count} {what}, more than the {most} that are taken: send fewer."
        raise refuse(400, text, param=param, code="array_above_max_length")
