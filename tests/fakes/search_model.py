"""A model with search of its own on loopback, in the formats of those who sell one. Handed to the contract suite as one
more search service; what its request says in a nest is laid out flat for the suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from providers.base import SearchQuery, SearchResult
from providers.errors import NoResults, Unavailable
from providers.registry import ProviderEntry
from providers.services.model import rules
from tests.fakes.search_engine import HITS, QUERIES, FakeEngine
from tests.fakes.service import KEY, Asked, Fault, Reply, as_json, usual_faults

NAME = "sonar"


def lines(hits: Sequence[SearchResult]) -> list[str]:
    return [f"- {hit.snippet}" for hit in hits]


def cited(hits: Sequence[SearchResult], *, nested: bool) -> tuple[str, list[dict[str, Any]]]:
    """A text as OpenAI writes it, and its annotations."""
    text, notes = "", []
    for hit, line in zip(hits, lines(hits), strict=True):
        link = f"([example.org]({hit.url}))"
        begin = len(text) + len(line) + 1
        note = {"start_index": begin, "end_index": begin + len(link), "title": hit.title, "url": hit.url}
        notes.append({"type": "url_citation", **({"url_citation": note} if nested else note)})
        text += f"{line} {link}\n"
    return text, notes


def chat(text: str, notes: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "annotations": list(notes)}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **more}


def responses(text: str, notes: Sequence[Any] = (), sources: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    action = {"type": "search", "query": "heat", "sources": [{"type": "url", "url": url} for url in sources]}
    piece = {"type": "output_text", "text": text, "annotations": list(notes)}
    output = [
        {"type": "web_search_call", "status": "completed", "action": action},
        {"type": "message", "role": "assistant", "content": [piece]},
    ]
    return {"object": "response", "status": "completed", "output": output, **more}


def said(query: SearchQuery) -> dict[str, Any]:
    place = {"type": "approximate", "approximate": {"country": query.country}}
    options = {"user_location": place} if query.country else {}
    return {"q": query.text, "rules": rules(query), "model": NAME, "web_search_options": options}


class FakeModelSearch(FakeEngine):
    type = "model"
    faults: ClassVar = usual_faults({
        "empty": Fault(as_json(chat("I know of nothing.")), NoResults, "named no source"),
        "nothing at all": Fault(as_json({}), NoResults),
        "odd": Fault(as_json({"choices": [7], "citations": 7, "search_results": {}}), NoResults),
        "an error in a 200": Fault(as_json({"error": {"message": KEY, "code": 429}}), Unavailable, "error"),
    })  # fmt: skip
    filters: ClassVar = {name: (query, said(replace(query, limit=len(HITS)))) for name, query in QUERIES.items()}

    def entry(self, timeout: float = 10.0, **options: Any) -> ProviderEntry:
        return ProviderEntry.model_validate(
            {
                "name": "fake",
                "type": self.type,
                "api_key": KEY,
                "base_url": self.url,
                "timeout": timeout,
                "options": {"model": NAME, **options},
            }
        )

    def answer(self, asked: Asked) -> Reply:
        """A model of Responses is tried elsewhere; here the messages are laid out as a service's parameters are."""
        params = dict(asked.params)
        if "messages" in params:
            system, user = params.pop("messages")
            assert (system["role"], user["role"]) == ("system", "user")
            params |= {"rules": system["content"], "q": user["content"]}
        return super().answer(replace(asked, params=params))

    def check(self, asked: Asked) -> None:
        assert (asked.method, asked.path) in (("POST", "/chat/completions"), ("POST", "/responses"))
        assert asked.headers["authorization"] == f"Bearer {KEY}"

    def page(self, hits: tuple[SearchResult, ...]) -> Reply:
        return as_json(chat(*cited(hits, nested=True)))

    def bare_page(self) -> Reply:
        notes = [{"type": "url_citation", "url_citation": {"url": HITS[0].url}}, {"title": "no address"}, "odd"]
        return as_json(chat("", notes))
