"""The shapes of what comes in and goes out, for `/openapi.json`: JSON Schemas by name, written by hand. Our own bodies
are described in full, those of other people's APIs by what matters of them. Handed on to api_paths.py.
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


_DOMAINS = list_of(TEXT)
_FILTERS = {
    "allowed_domains": said(_DOMAINS, "Only these, with all that stands below them."),
    "blocked_domains": _DOMAINS,
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

_OURS: dict[str, Schema] = {
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
                "url": {"anyOf": [TEXT, _DOMAINS]},
                "urls": {"anyOf": [TEXT, {**_DOMAINS, "maxItems": MOST_URLS}]},
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

_USAGE = at_least({"prompt_tokens": COUNT, "completion_tokens": COUNT, "total_tokens": COUNT})
_MODEL = said(TEXT, "A model of `/v1/models`, or an alias. Behind it `:online` asks for search.")
_STREAM = said(FLAG, "Server-sent events instead of one body.")
_CITATION = at_least(
    {
        "type": one_of("url_citation"),
        "url_citation": at_least({"url": TEXT, "title": TEXT, "start_index": COUNT, "end_index": COUNT}),
        "cited_text": said(TEXT, "The passage that the model was given."),
        "basis": said(one_of("page", "snippet"), "What that passage is of."),
    },
    "type",
)

_MODELS_APIS: dict[str, Schema] = {
    "ChatRequest": at_least(
        {
            "model": _MODEL,
            "messages": list_of(at_least({"role": TEXT, "content": ANY}, "role")),
            "stream": _STREAM,
            "tools": list_of(at_least({"type": TEXT}, "type")),
            "tool_choice": ANY,
            "web_search_options": said(at_least({}), "Asks for search."),
        },
        *("model", "messages"),
    ),
    "ChatCompletion": at_least(
        {
            "id": TEXT,
            "object": TEXT,
            "created": COUNT,
            "model": TEXT,
            "choices": list_of(
                at_least(
                    {
                        "index": COUNT,
                        "finish_reason": maybe(TEXT),
                        "message": at_least(
                            {"role": TEXT, "content": maybe(TEXT), "annotations": list_of(named("Citation"))}
                        ),
                    }
                )
            ),
            "search_results": said(list_of(at_least({"title": TEXT, "url": TEXT})), "Every source that was found."),
            "usage": _USAGE,
        },
        *("choices",),
    ),
    "Citation": _CITATION,
    "ResponsesRequest": at_least(
        {
            "model": _MODEL,
            "input": {"anyOf": [TEXT, list_of(at_least({}))]},
            "instructions": maybe(TEXT),
            "tools": list_of(at_least({"type": TEXT}, "type")),
            "include": list_of(TEXT),
            "previous_response_id": maybe(TEXT),
            "store": said(FLAG, "Kept for seven days unless this is false."),
            "background": said(FLAG, "The work goes on without its client."),
            "stream": _STREAM,
        },
        *("model",),
    ),
    "Response": at_least(
        {
            "id": TEXT,
            "object": one_of("response"),
            "status": TEXT,
            "model": TEXT,
            "output": list_of(at_least({"type": TEXT}, "type")),
            "error": maybe(at_least({"code": TEXT, "message": TEXT})),
            "usage": maybe(at_least({"input_tokens": COUNT, "output_tokens": COUNT})),
        },
        *("id", "object", "status", "output"),
    ),
    "DeletedResponse": exactly({"id": TEXT, "object": one_of("response"), "deleted": FLAG}),
    "ResponseItems": exactly(
        {
            "object": one_of("list"),
            "data": list_of(at_least({"type": TEXT})),
            "first_id": maybe(TEXT),
            "last_id": maybe(TEXT),
            "has_more": FLAG,
        }
    ),
    "MessagesRequest": at_least(
        {
            "model": _MODEL,
            "max_tokens": COUNT,
            "messages": list_of(at_least({"role": TEXT, "content": ANY}, "role")),
            "system": ANY,
            "tools": list_of(at_least({})),
            "stream": _STREAM,
        },
        *("model", "messages"),
    ),
    "Message": at_least(
        {
            "id": TEXT,
            "type": one_of("message"),
            "role": one_of("assistant"),
            "model": TEXT,
            "content": list_of(at_least({"type": TEXT}, "type")),
            "stop_reason": maybe(TEXT),
            "usage": at_least({"input_tokens": COUNT, "output_tokens": COUNT}),
        },
        *("id", "type", "role", "content"),
    ),
    "CountedTokens": exactly({"input_tokens": COUNT, "estimated": FLAG}),
    "MessagesError": at_least(
        {"type": one_of("error"), "error": at_least({"type": TEXT, "message": TEXT}, "type", "message")},
        *("type", "error"),
    ),
    "Model": at_least({"id": TEXT, "object": TEXT, "created": COUNT, "owned_by": TEXT}, "id"),
    "Models": at_least({"object": TEXT, "data": list_of(named("Model"))}, "data"),
    "ForwardedRequest": at_least({"model": _MODEL}),
    "ForwardedAnswer": said({}, "What the model's server answers, byte for byte."),
}

_ENGINE_APIS: dict[str, Schema] = {
    "EngineError": exactly({"detail": exactly({"error": TEXT}), "error": TEXT, "code": maybe(TEXT)}),
    "TavilySearchRequest": at_least(
        {
            "query": TEXT,
            "max_results": COUNT,
            "topic": one_of("general", "news", "finance"),
            "time_range": TEXT,
            "start_date": DAY,
            "end_date": DAY,
            "include_domains": _DOMAINS,
            "exclude_domains": _DOMAINS,
            "include_answer": ANY,
            "include_raw_content": ANY,
            "api_key": said(TEXT, "The client's key, where no header holds it."),
        },
        *("query",),
    ),
    "TavilySearchResults": at_least(
        {
            "query": TEXT,
            "answer": maybe(TEXT),
            "results": list_of(at_least({"url": TEXT, "title": TEXT, "content": TEXT, "score": NUMBER}, "url")),
            "response_time": NUMBER,
            "request_id": TEXT,
        },
        *("query", "results"),
    ),
    "TavilyExtractRequest": at_least({"urls": {"anyOf": [TEXT, _DOMAINS]}, "query": TEXT, "api_key": TEXT}, "urls"),
    "TavilyPages": at_least(
        {
            "results": list_of(at_least({"url": TEXT, "raw_content": TEXT}, "url", "raw_content")),
            "failed_results": list_of(exactly({"url": TEXT, "error": TEXT})),
        },
        *("results", "failed_results"),
    ),
    "SearxngResults": at_least(
        {
            "query": TEXT,
            "results": list_of(at_least({"url": TEXT, "title": TEXT, "content": TEXT}, "url")),
            "answers": list_of(TEXT),
            "unresponsive_engines": list_of(list_of(TEXT)),
        },
        *("query", "results"),
    ),
    "OpenWebuiSearchRequest": at_least({"query": TEXT, "count": {"type": "integer", "minimum": 1}}, "query"),
    "OpenWebuiResults": list_of(exactly({"link": TEXT, "title": TEXT, "snippet": TEXT})),
    "OpenWebuiLoadRequest": at_least({"urls": {**_DOMAINS, "minItems": 1}}, "urls"),
    "OpenWebuiPages": list_of(
        exactly({"page_content": TEXT, "metadata": exactly({"source": TEXT, "title": TEXT})}),
    ),
    "CodexCommands": at_least(
        {"commands": at_least({}), "settings": maybe(at_least({})), "max_output_tokens": maybe(COUNT)},
        *("commands",),
    ),
    "CodexOutput": exactly({"output": said(TEXT, "For the client's model to read.")}),
    "JsonRpc": at_least({"jsonrpc": one_of("2.0"), "id": ANY, "method": TEXT, "params": ANY}, "jsonrpc"),
}

SCHEMAS: dict[str, Schema] = {**_OURS, **_MODELS_APIS, **_ENGINE_APIS}
