"""Open WebUI's external search and external web loader. Handed the body of either; hands on the search or the pages
that it asks for, and of what was found the list that Open WebUI reads. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from tools.render import SearchAnswer

from ..values.request import json_object
from .search_engines import EngineSearch, ReadText, Shape, Strings, checked

MOST_RESULTS = 20
MOST_URLS = 20  # as many as Open WebUI sends at once


class _Search(Shape):
    query: str
    count: Annotated[int, Field(ge=1)] | None = None


class _Load(Shape):
    urls: Annotated[Strings, Field(min_length=1, max_length=MOST_URLS)]


def decode_search(raw: bytes) -> EngineSearch:
    body = checked(_Search, json_object(raw))
    return EngineSearch({"query": body.query}, limit=body.count and min(body.count, MOST_RESULTS))


def decode_load(raw: bytes) -> list[str]:
    return list(dict.fromkeys(checked(_Load, json_object(raw)).urls))


def search_answer(found: SearchAnswer) -> list[dict[str, Any]]:
    return [{"link": source.url, "title": source.title, "snippet": source.snippet} for source in found.sources]


def load_answer(pages: Sequence[ReadText]) -> list[dict[str, Any]]:
    """A page that could not be read is left out: Open WebUI would take a word on it for what the page says."""
    return [
        {"page_content": page.text, "metadata": {"source": page.url, "title": page.title}}
        for page in pages
        if not page.error
    ]
