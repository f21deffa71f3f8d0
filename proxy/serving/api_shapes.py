"""The shapes of our own bodies, for `/openapi.json`: JSON Schemas by name, written by hand and in full, and the words
that they are written in. Handed on to api_paths.py; those of other people's APIs are in other_api_shapes.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.page_reader import MOST_URLS
from tools.pages import SHORTEST
from tools.web_search import MAX_QUERY, MOST_RESULTS

from ..values.usage_rows import FIGURES

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
DAY: Schema = {"type": "string", "format": "date"}
ANY: Schema = {}


def named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def said(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text}


def exactly(properties: Mapping[str, Schema], *optional: str) -> Schema:
    """An object with these fields and no other; all but `optional` are there."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


def at_least(properties: Mapping[str, Schema], *required: str) -> Schema:
    """An object of somebody else's API: the fields that matter, whatever else is in it."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": True,
    }


DOMAINS = list_of(TEXT)
_FILTERS = {
    "allowed_domains": said(DOMAINS, "Only these, with all that stands below them."),
    "blocked_domains": DOMAINS,
    "time_range": said(one_of("d", "w", "m", "y", "all", "day", "week", "month", "year", "any"), "How old at most."),
    "published_after": DAY,
    "published_before": DAY,
}
_RESULT = {
    "n": said({"type": "integer", "minimum": 1}, "The number of the source."),
    "title": TEXT,
    "url": TEXT,
    "snippet": TEXT,
    "date": said(maybe(TEXT), "When it was published, if the provider says so."),
    "author": TEXT,
    "score": NUMBER,
}
_PAGE = {
    "url": TEXT,
    "title": TEXT,
    "content": said(TEXT, "Markdown."),
    "content_length": COUNT,
    "original_length": COUNT,
    "truncated": FLAG,
    "status": one_of("success", "error"),
    "error": TEXT,
    "message": said(TEXT, "That these are passages for `query`, and not the page."),
}

_CALL = exactly({"provider": TEXT, "cached": FLAG, "ms": NUMBER, "outcome": TEXT})
_ROW = {
    "id": TEXT,
    "time": said(MOMENT, "When it began."),
    "key": said(TEXT, "The name of the client's key."),
    "dialect": TEXT,
    "method": TEXT,
    "path": TEXT,
    "status": COUNT,
    "model": TEXT,
    "upstream": TEXT,
    "search": one_of("offered", "first", "off", ""),
    "reason": TEXT,
    "why": said(TEXT, "Why it searched or did not, in words."),
    "rounds": COUNT,
    "retries": COUNT,
    "searches": list_of(_CALL),
    "pages": list_of(_CALL),
    "citations": COUNT,
    "input_tokens": COUNT,
    "output_tokens": COUNT,
    "cost": said(NUMBER, "Where there are prices."),
    "first_token_ms": maybe(NUMBER),
    "ms": NUMBER,
    "queued_ms": NUMBER,
    "outcome": TEXT,
}
_STEP = at_least({"kind": TEXT, "at_ms": NUMBER, "ms": NUMBER}, "kind", "at_ms")
_CACHE = exactly({"hits": COUNT, "misses": COUNT})
_HEALTH = exactly(
    {
        "providers": list_of(
            exactly(
                {
                    "name": TEXT,
                    "type": TEXT,
                    "roles": list_of(one_of("search", "read")),
                    "state": one_of("ok", "failing", "cooling_down", "untried"),
                    "why": TEXT,
                    "until": maybe(MOMENT),
                    "calls": COUNT,
                    "failures": COUNT,
                    "last_outcome": TEXT,
                    "last_ms": maybe(NUMBER),
                    "index": exactly({"documents": COUNT, "pending": COUNT, "state": TEXT, "skipped": COUNT}),
                },
                *("index",),
            )
        ),
        "upstreams": list_of(
            exactly(
                {
                    "name": TEXT,
                    "type": TEXT,
                    "state": one_of("ok", "failing", "untried"),
                    "why": TEXT,
                    "last_ok": maybe(MOMENT),
                    "last_failure": maybe(MOMENT),
                }
            )
        ),
        "cache": exactly({"search": _CACHE, "read": _CACHE}),
        "store": one_of("memory", "redis"),
        "store_reachable": FLAG,
        "version": TEXT,
        "uptime_seconds": NUMBER,
    }
)

OUR_SHAPES: dict[str, Schema] = {
    "Requests": exactly(
        {
            "object": one_of("list"),
            "data": list_of(exactly(_ROW, "cost")),
            "contents": said(FLAG, "Do steps hold what was searched for, opened and cited?"),
            "complete": said(FLAG, "False while the store that processes share cannot be reached."),
        }
    ),
    "Request": exactly({**_ROW, "steps": list_of(_STEP)}, "cost"),
    "Health": _HEALTH,
    "Error": exactly(
        {
            "error": exactly(
                {
                    "message": said(TEXT, "What went wrong, and what to do about it."),
                    "type": TEXT,
                    "param": maybe(TEXT),
                    "code": maybe(TEXT),
                }
            )
        }
    ),
    "Status": exactly({"status": one_of("ok", "draining")}),
    "SearchRequest": exactly(
        {
            "query": {"type": "string", "minLength": 1, "maxLength": MAX_QUERY},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_RESULTS},
            "provider": said(TEXT, "The provider to ask first, by its name in the configuration."),
            "category": TEXT,
            "country": said(TEXT, "Two letters."),
            "language": said(TEXT, "Two letters; else that of `Accept-Language`."),
            **_FILTERS,
            "filters": said(exactly(_FILTERS, *_FILTERS), "The same five fields, for who likes them together."),
        },
        *("limit", "provider", "category", "country", "language", "filters", *_FILTERS),
    ),
    "SearchResults": exactly(
        {
            "query": TEXT,
            "provider": said(TEXT, "Who answered; empty if nobody did."),
            "results": list_of(exactly(_RESULT, "author", "score")),
            "message": said(TEXT, "Why there is nothing, or who failed before somebody answered."),
            "age": said(maybe(NUMBER), "Seconds, if the answer comes from the cache."),
        }
    ),
    "OpenRequest": {
        **exactly(
            {
                "url": {"anyOf": [TEXT, DOMAINS]},
                "urls": {"anyOf": [TEXT, {**DOMAINS, "maxItems": MOST_URLS}]},
                "max_length": said({"type": "integer", "minimum": SHORTEST}, "Characters of each page."),
                "start": said(COUNT, "Go on where the last part was cut."),
                "query": said({"type": "string", "maxLength": 400}, "Only the passages that speak of this."),
            },
            *("url", "urls", "max_length", "start", "query"),
        ),
        "anyOf": [{"required": ["url"]}, {"required": ["urls"]}],
    },
    "Page": exactly(_PAGE, "message"),
    "Pages": said(exactly({"pages": list_of(named("Page"))}), "Where more than one was asked for."),
    "Usage": exactly(
        {
            "object": one_of("list"),
            "data": list_of(
                exactly(
                    {
                        "day": DAY,
                        "key": said(TEXT, "The name of the client's key."),
                        "model": TEXT,
                        **{name: NUMBER if name == "cost" else COUNT for name in FIGURES},
                    }
                )
            ),
            "complete": said(FLAG, "False while the store cannot be reached."),
        }
    ),
}
