"""What can be asked of us, for `/openapi.json`: every endpoint with its bodies, headers and errors, written by hand. A
test compares it with the routes and with real answers. Handed the shapes; hands on the whole document.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from ..values.request_records import KEPT_REQUESTS
from ..watching.metrics import CONTENT_TYPE
from .api_shapes import COUNT, DAY, OUR_SHAPES, TEXT, Schema, named, one_of
from .other_api_shapes import OTHER_SHAPES

_JSON, _EVENTS = "application/json", "text/event-stream"
_DESCRIPTION = (
    "A proxy that gives any language model web search with citations. Bodies of OpenAI's, Anthropic's and the search "
    "engines' APIs are described by what matters of them here; their makers' own pages say the rest."
)

Operation = dict[str, Any]


def _header(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def _in_path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": TEXT}


def _in_query(name: str, schema: Schema, text: str, *, required: bool = False) -> Schema:
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": text}


def _content(schema: Schema, kind: str = _JSON) -> Schema:
    return {kind: {"schema": schema}}


def _operation(
    tag: str,
    text: str,
    answer: Schema,
    *,
    body: str = "",
    parameters: tuple[Schema, ...] = (),
    error: str = "Error",
    streams: bool = False,
    searches: bool = False,
    **more: Any,
) -> Operation:
    """`answer` is the content of a 200. `searches`: its header says what was decided about search."""
    headers = {"X-Request-Id": {"$ref": "#/components/headers/RequestId"}}
    if searches:
        headers["X-Groundwire-Search"] = {"$ref": "#/components/headers/Decided"}
    if streams:
        answer = {**answer, **_content(TEXT, _EVENTS)}
    made: Operation = {
        "tags": [tag],
        "summary": text,
        "responses": {
            "200": {"description": "As asked.", "headers": headers, "content": answer},
            "default": {"description": "What went wrong, and what to do.", "content": _content(named(error))},
        },
        **more,
    }
    if body:
        made["requestBody"] = {"required": True, "content": _content(named(body))}
    if parameters:
        made["parameters"] = list(parameters)
    return made


def _answers(
    tag: str, text: str, body: str, answer: str, error: str = "Error", more: tuple[Schema, ...] = ()
) -> Operation:
    """A model answers, with search where that is wanted."""
    return _operation(
        tag,
        text,
        _content(named(answer)),
        body=body,
        parameters=(_header("Search"), _header("Citations"), *more),
        error=error,
        streams=True,
        searches=True,
    )


def _probe(text: str) -> Operation:
    made = _operation("operating", text, _content(named("Status")), security=[])
    made["responses"]["503"] = {"description": "It is going down.", "content": _content(named("Status"))}
    return made


def _forwarded(text: str, *parameters: Schema) -> Operation:
    answer = _content(named("ForwardedAnswer"), "*/*")
    return _operation("models", text, answer, body="ForwardedRequest", parameters=parameters)


def _engine(text: str, body: str, answer: str) -> Operation:
    return _operation("search engines", text, _content(named(answer)), body=body, error="EngineError")


_SEARXNG = (
    _in_query("q", TEXT, "What is searched for.", required=True),
    _in_query("format", one_of("json"), "Nothing else is spoken."),
    _in_query("pageno", {"type": "integer", "minimum": 1}, "There are two."),
    _in_query("time_range", one_of("day", "week", "month", "year"), "How old at most."),
    _in_query("language", TEXT, "`de` or `de-CH`."),
    _in_query("categories", TEXT, "The first that is not `general`."),
)
_ID = _in_path("id")
_STREAM_AGAIN = (
    _in_query("stream", one_of("true"), "The events of a response that was made in the background."),
    _in_query("starting_after", COUNT, "Only those behind this one."),
)
_PAGES_OF_INPUT = (
    _in_query("order", one_of("asc", "desc"), "The newest first if left out."),
    _in_query("after", TEXT, "Those behind this item."),
    _in_query("limit", {"type": "integer", "minimum": 1, "maximum": 100}, "20 if left out."),
)
_USAGE_OF = (
    _in_query("key", TEXT, "Of this key alone, by its name."),
    _in_query("from", DAY, "From this day on."),
    _in_query("to", DAY, "Up to this day."),
)


def _searxng(text: str) -> Operation:
    answer = _content(named("SearxngResults"))
    return _operation("search engines", text, answer, parameters=_SEARXNG, error="EngineError")


PATHS: dict[str, dict[str, Operation]] = {
    "/v1/chat/completions": {
        "post": _answers("models", "OpenAI's Chat Completions.", "ChatRequest", "ChatCompletion"),
    },
    "/v1/responses": {
        "post": _answers("models", "OpenAI's Responses.", "ResponsesRequest", "Response", more=(_header("Trace"),)),
    },
    "/v1/responses/{id}": {
        "get": _operation(
            "models",
            "A response that is kept.",
            _content(named("Response")),
            parameters=(_ID, *_STREAM_AGAIN),
            streams=True,
        ),
        "delete": _operation("models", "Deletes a response.", _content(named("DeletedResponse")), parameters=(_ID,)),
    },
    "/v1/responses/{id}/input_items": {
        "get": _operation(
            "models", "What it was asked.", _content(named("ResponseItems")), parameters=(_ID, *_PAGES_OF_INPUT)
        ),
    },
    "/v1/responses/{id}/cancel": {
        "post": _operation(
            "models", "Ends one that is made in the background.", _content(named("Response")), parameters=(_ID,)
        ),
    },
    "/v1/messages": {
        "post": _answers("models", "Anthropic's Messages.", "MessagesRequest", "Message", "MessagesError"),
    },
    "/v1/messages/count_tokens": {
        "post": _operation(
            "models",
            "About how many tokens a request has.",
            _content(named("CountedTokens")),
            body="MessagesRequest",
            error="MessagesError",
        ),
    },
    "/v1/models": {
        "get": _operation(
            "models",
            "The models that the caller may use; in Anthropic's shape where `anthropic-version` is sent.",
            _content(named("Models")),
        ),
    },
    "/v1/models/{id}": {
        "get": _operation("models", "One of them.", _content(named("Model")), parameters=(_ID,)),
    },
    "/v1/completions": {"post": _forwarded("Forwarded to the upstream that serves the model.")},
    "/v1/embeddings": {"post": _forwarded("Forwarded.")},
    "/v1/rerank": {"post": _forwarded("Forwarded.")},
    "/v1/moderations": {"post": _forwarded("Forwarded.")},
    "/v1/images/{operation}": {
        "post": _forwarded("Forwarded; a form of type `multipart/form-data` too.", _in_path("operation")),
    },
    "/v1/audio/{operation}": {
        "post": _forwarded("Forwarded; a form of type `multipart/form-data` too.", _in_path("operation")),
    },
    "/v1/search": {
        "post": _operation(
            "tools", "One search, as a model would make it.", _content(named("SearchResults")), body="SearchRequest"
        ),
    },
    "/v1/open": {
        "post": _operation(
            "tools",
            "One page, or several, as a model would read them.",
            _content({"anyOf": [named("Page"), named("Pages")]}),
            body="OpenRequest",
        ),
    },
    "/v1/alpha/search": {
        "post": _operation(
            "search engines", "Codex's own search client.", _content(named("CodexOutput")), body="CodexCommands"
        ),
    },
    "/search": {
        "post": _engine("Tavily's search.", "TavilySearchRequest", "TavilySearchResults"),
        "get": _searxng("SearXNG's search."),
    },
    "/": {"get": _searxng("The same; without `q` it is no search but the page, where there is one.")},
    "/extract": {"post": _engine("Tavily's reader.", "TavilyExtractRequest", "TavilyPages")},
    "/compat/openwebui/search": {
        "post": _engine("Open WebUI's external search.", "OpenWebuiSearchRequest", "OpenWebuiResults"),
    },
    "/compat/openwebui/load": {
        "post": _engine("Open WebUI's external loader.", "OpenWebuiLoadRequest", "OpenWebuiPages"),
    },
    "/mcp": {
        "post": _operation(
            "search engines",
            "The two tools by the Model Context Protocol; an extra.",
            _content(named("JsonRpc")),
            body="JsonRpc",
            error="JsonRpc",
            streams=True,
        ),
    },
    "/healthz": {"get": _probe("Alive.")},
    "/readyz": {"get": _probe("Ready to take work.")},
    "/metrics": {
        "get": _operation("operating", "For Prometheus; an admin's.", _content(TEXT, CONTENT_TYPE)),
    },
    "/v1/groundwire/usage": {
        "get": _operation(
            "operating",
            "What each key used, per model and day; an admin's.",
            _content(named("Usage")),
            parameters=_USAGE_OF,
        ),
    },
    "/v1/groundwire/requests": {
        "get": _operation(
            "operating",
            "The last requests, the newest first; an admin's.",
            _content(named("Requests")),
            parameters=(_in_query("limit", {"type": "integer", "minimum": 1, "maximum": KEPT_REQUESTS}, "At most."),),
        ),
    },
    "/v1/groundwire/requests/{id}": {
        "get": _operation(
            "operating",
            "One of them with its steps; an admin's.",
            _content(named("Request")),
            parameters=(_ID,),
        ),
    },
    "/v1/groundwire/health": {
        "get": _operation(
            "operating",
            "How every provider and upstream does, by what was seen of it; an admin's.",
            _content(named("Health")),
        ),
    },
    "/openapi.json": {
        "get": _operation("operating", "This document.", _content({"type": "object"}), security=[]),
    },
}

_HEADERS: dict[str, Schema] = {
    "RequestId": {"description": "Its name in the log.", "schema": TEXT},
    "Decided": {
        "description": "What was decided about search and why, such as `offered; reason=auto`.",
        "schema": TEXT,
    },
}

_PARAMETERS: dict[str, Schema] = {
    "Search": {
        "name": "X-Groundwire-Search",
        "in": "header",
        "description": "Asks for search, or for none.",
        "schema": one_of("on", "off"),
    },
    "Citations": {
        "name": "X-Groundwire-Citations",
        "in": "header",
        "description": "How citations look in this answer.",
        "schema": one_of("link", "number", "openai", "none"),
    },
    "Trace": {
        "name": "X-Groundwire-Trace",
        "in": "header",
        "description": "With `on` a stream also carries what is done for it: events `groundwire.step`.",
        "schema": one_of("on"),
    },
}

_SECURITY: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key of `server.keys`."},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "The same."},
    "x-groundwire-key": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Groundwire-Key",
        "description": "The same, where `Authorization` holds a key for the model's server.",
    },
}


def document() -> dict[str, Any]:
    """Without keys in the configuration none is needed: that is the empty choice at the end of `security`."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Groundwire", "version": version("groundwire"), "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [*({name: []} for name in _SECURITY), {}],
        "tags": [{"name": name} for name in ("models", "tools", "search engines", "operating")],
        "paths": PATHS,
        "components": {
            "schemas": {**OUR_SHAPES, **OTHER_SHAPES},
            "headers": _HEADERS,
            "parameters": _PARAMETERS,
            "securitySchemes": _SECURITY,
        },
    }
