"""What happens to every question before it is answered, whatever dialect it came in: whose it is, which upstreams may
serve it, what earlier turns belong back into it, and whether search is offered. Handed a `ChatRequest` and the scope it
came with; hands on the request made ready, the road and the decision.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace

from starlette.types import Scope

from ..answering.inject import Decision, decide
from ..dialects.chat import SUFFIX
from ..house import House
from ..upstreams.road import Road
from ..values.request import ChatRequest
from .delivery import SEARCH_HEADER
from .forwarding import headers_of, upward


@dataclass(frozen=True, slots=True)
class Received:
    request: ChatRequest
    road: Road
    decision: Decision
    mode: str


async def receive(house: House, scope: Scope, request: ChatRequest) -> Received:
    headers = headers_of(scope)
    request = await _without_suffix(house, request)
    road = house.road(request.model, upward(headers), scope["client_key"])
    stop = road.here
    passed = stop.headers.get("authorization", "").removeprefix("Bearer ")
    request.secrets = tuple(filter(None, (scope.get("credential", ""), passed)))
    request.caller = await owner(house, scope)
    mode = stop.settings.mode or house.config.tools.mode
    wish = headers.get(SEARCH_HEADER, "").strip().lower()
    decision = decide(request, mode, wish, bool(house.specs(request)))
    if mode != "off":
        request = await house.restored(request, whole=decision.offered)
    scope["notes"].append(f"search {decision.header}")
    if decision.offered:  # a fallback whose mode is off is none for a request with search
        road = Road([stop, *(other for other in road.stops[1:] if other.settings.mode != "off")])
    return Received(request, road, decision, mode)


async def owner(house: House, scope: Scope) -> str:
    """Who asks, in a form that gives no key away: by the key for this server, else by the one for an upstream that
    takes each client's own. Empty where nobody presents any."""
    key = scope.get("credential", "")
    if not key and any(lane.config.passes_key for lane in house.lanes):
        key = (scope["client_key"] or "").removeprefix("Bearer ")
    if not key:
        return ""
    return hmac.digest(await house.store.secret(), key.encode("latin-1"), "sha256").hex()


async def _without_suffix(house: House, request: ChatRequest) -> ChatRequest:
    """`:online` is a wish for search, unless the upstream lists that very name."""
    plain = request.model.removesuffix(SUFFIX)
    if plain == request.model or not plain:
        return request
    lane, name = house.lane_for(plain)
    if (lane.config.of(name).mode or house.config.tools.mode) == "off":
        return request
    for lane in house.lanes:
        if lane.serves(request.model) and any(m["id"] == request.model for m in await lane.listed()):
            return request
    search = replace(request.search, asked=request.search.asked or "model_suffix")
    body = {**request.body, "model": plain}
    return replace(request, model=plain, body=body, search=search, changed=True)
