"""The road of a question that is typed here: the same preparation and engine that answer a client. Handed a house and
the messages of a conversation; hands on the events of the answer.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from providers.registry import able_to

from ..config.settings import Config
from ..context import RequestContext
from ..dialects.chat import ChatDialect
from ..house import House
from ..serving.telling import AnswerTelling
from ..values.errors import refuse
from ..values.events import Event
from ..values.request import SEARCH_HEADER, ChatRequest
from ..watching.observer import Observer
from ..watching.reasons import why, why_decided
from .activity import Activity

Messages = Sequence[Mapping[str, Any]]


class UnknownProvider(Exception):
    """Its text names those that there are."""


def config_to_ask(config: Config, provider: str = "") -> Config:
    """Citations as plain numbers, listed by us; and `provider` searches first, also one that `tools.search` omits."""
    citations = config.citations.model_copy(update={"style": "number", "footer": False})
    config = config.model_copy(update={"citations": citations})
    if not provider:
        return config
    able = able_to("search", config.providers)
    if provider not in able:
        raise UnknownProvider(f"There is no search provider {provider!r}; valid names: {', '.join(able) or 'none'}.")
    order = [provider, *(name for name in config.tools.search if name != provider)]
    return config.model_copy(update={"tools": config.tools.model_copy(update={"search": order})})


async def first_model(house: House) -> str:
    for upstream in house.upstreams:
        if served := await upstream.models():
            return served[0]
    raise refuse(404, "No upstream lists a model; name one with --model.")


class Asking:
    """`search`: is the model offered search? Who types a question here wants one, as by the header of a client.
    `explained`: is it said in the end whether and why something was searched?"""

    def __init__(self, house: House, model: str, *, search: bool = True, explained: bool = False) -> None:
        self._house = house
        self.explained = explained
        self.model = model
        self.search = search

    def activity(self, now: float) -> Activity:
        house = self._house
        searchers, readers = ([named.name for named in members] for members in (house.searchers, house.readers))
        return Activity(self.model, now, searchers, readers)

    async def answer(self, messages: Messages, activity: Activity) -> AsyncGenerator[list[Event], None]:
        """Raises `RequestError` where the question cannot be asked at all."""
        house = self._house
        headers = {SEARCH_HEADER: "on" if self.search else "off"}
        context = RequestContext("", ChatDialect(), math.inf, Observer([activity]), headers=headers)
        body = {"model": self.model, "stream": True, "messages": list(messages)}
        prepared = await house.preparation.prepare(ChatRequest(body, b"", self.model, stream=True), context)
        if self.search and not prepared.decision.offered:
            activity.notice = f"Nothing was searched. {why_decided(prepared.decision.reason, offered=False)}"
        offer = house.preparation.offer(prepared.request, context.caller, prepared.decision.offered)
        telling = AnswerTelling(context, streamed=True)
        async with aclosing(house.engine.answer(prepared.request, offer, prepared.plan, context)) as batches:
            async for batch in batches:
                telling.see(batch)
                yield batch
        if self.explained and prepared.decision.offered:
            activity.notice = why(context.observer.summary, context.observer.outcome or "ok")
