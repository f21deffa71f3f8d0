"""The shapes of other people's APIs that are spoken here, for `/openapi.json`: what matters of them, and room for the
rest. Handed on to api_paths.py.
"""

from __future__ import annotations

from .api_shapes import (
    ANY,
    COUNT,
    DAY,
    DOMAINS,
    FLAG,
    NUMBER,
    TEXT,
    Schema,
    at_least,
    exactly,
    list_of,
    maybe,
    named,
    one_of,
    said,
)

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
            "include_domains": DOMAINS,
            "exclude_domains": DOMAINS,
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
    "TavilyExtractRequest": at_least({"urls": {"anyOf": [TEXT, DOMAINS]}, "query": TEXT, "api_key": TEXT}, "urls"),
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
    "OpenWebuiLoadRequest": at_least({"urls": {**DOMAINS, "minItems": 1}}, "urls"),
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

OTHER_SHAPES: dict[str, Schema] = {**_MODELS_APIS, **_ENGINE_APIS}
