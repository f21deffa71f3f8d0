"""Which requests people mean when they speak of requests: questions to models and to our tools. Not what probes,
scrapers and pages ask, nor who only looks which models there are. Handed a request that has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from urllib.parse import unquote

from ..values.response_paths import is_about_stored_response
from .observer import Observer

_COUNTED = ("/v1/", "/compat/")
_ENGINES = frozenset({"/search", "/extract", "/mcp"})
_UNCOUNTED = ("/v1/groundwire/", "/v1/models")  # of those


def is_counted(request: Observer) -> bool:
    """At the root some clients of SearXNG search; whoever else comes there only looks."""
    return _is_counted_path(request.path) or (request.path == "/" and request.summary.searches > 0)


@lru_cache(maxsize=32)  # asked by several for each request, and most have the path of one before them
def _is_counted_path(path: str) -> bool:
    if "%" in path:
        path = unquote(path)  # as it is routed
    if path.startswith(_COUNTED):
        return not path.startswith(_UNCOUNTED)
    return path in _ENGINES


def is_listed(request: Observer, anonymous: Callable[[], bool]) -> bool:
    """Is it one that lists of requests show? Who waits for a response in the background looks after it every second:
    that is not what was asked. Unless `anonymous` nobody is let in without a key, and who is turned away at the door
    must not push out those who were served."""
    if not is_counted(request) or is_about_stored_response(request.method, request.path):
        return False
    return request.method != "OPTIONS" and (bool(request.caller) or anonymous())
