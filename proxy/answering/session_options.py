"""What our tools may do in one request, and what they know of it. Handed the request, its offer and its context; hands
on the options of its session, and the texts in which people named addresses: those may be opened and linked to.
"""

from __future__ import annotations

import orjson

from tools.ledger import Ledger
from tools.options import SessionOptions

from ..context import RequestContext
from ..values.messages import answered_id, call_name, calls_in, image_urls, texts_in
from ..values.request import ChatRequest
from .fenced_reading import without_reading
from .offer import OUR_NAMES, Offer

_RESULTS_PER_CONTEXT_SIZE = {"low": 3, "medium": 5, "high": 10}


def session_options(
    request: ChatRequest, offer: Offer, context: RequestContext, ledger: Ledger, *, assist: bool, room: int | None
) -> SessionOptions:
    """`room` is how many characters of the web the model can hold; None: nobody knows, or it is seen to elsewhere."""
    search, caller = request.search, context.caller
    return SessionOptions(
        ledger=ledger,
        seen_texts=texts_of_people(offer),
        found_before=[source.url for source in request.sources.values()],
        country=search.country,
        language=search.language,
        limit=_RESULTS_PER_CONTEXT_SIZE.get(search.context_size),
        allowed_domains=search.allowed_domains,
        blocked_domains=search.blocked_domains,
        page_domains=(search.page_domains.allowed, search.page_domains.blocked) if search.page_domains else None,
        secrets=caller.secrets,
        caller=caller.owner,
        permission=caller.policy.search.permission,
        offered=frozenset(offer.owned.values()),
        names=(*sorted(offer.client_tools), *offer.owned),
        room=room,
        most_calls=search.max_calls,
        most_pages=search.max_pages,
        most_searches=_least(context.searches_left, search.max_searches),
        assist=assist,
        today=offer.today,
        cite=offer.response_format is None,
        observe=context.observer.tell,
    )


def texts_of_people(offer: Offer) -> list[str]:
    """What people and their tools said, for the URLs in it: those may be opened. What a model wrote proves nothing, and
    neither do the results of our own tools that were put back: a page that they showed may have named anything."""
    own = _calls_of_ours(offer)
    texts: list[str] = []
    for message in offer.body["messages"]:
        if message.get("role") != "assistant" and answered_id(message) not in own:
            texts += map(without_reading, texts_in(message.get("content")))
    return texts


def _calls_of_ours(offer: Offer) -> set[str]:
    """The ids of the calls of our tools in the history."""
    calling = list(filter(calls_in, offer.body["messages"]))
    if not calling:
        return set()
    ours = {*offer.owned, *OUR_NAMES} - offer.client_tools
    return {call["id"] for message in calling for call in calls_in(message) if call_name(call) in ours}


def texts_of_client(request: ChatRequest, offer: Offer) -> list[str]:
    """All that the user and the client wrote: what is named in it was named by one of them."""
    theirs = [tool for tool in request.body.get("tools") or () if isinstance(tool, dict)]
    images = [url for message in request.body["messages"] for url in image_urls(message.get("content"))]
    return [*texts_of_people(offer), *images, orjson.dumps(theirs).decode()]


def _least(one: int | None, other: int | None) -> int | None:
    if one is None:
        return other
    return one if other is None else min(one, other)
