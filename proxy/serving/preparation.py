"""What happens to every question before it is answered, whatever dialect it came in: whose it is, which upstreams may
serve it, what earlier turns belong back into it, and whether search is offered. Handed a `ChatRequest` and the scope it
came with; hands on the request made ready, the plan and the decision.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace

from starlette.types import Scope

from ..answering.offer import Decision, decide
from ..dialects.chat import SUFFIX
from ..house import House
from ..upstreams.fallback import FallbackPlan
from ..values.request import ChatRequest
from .delivery import SEARCH_HEADER
from .forwarding import headers_of, upward


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    request: ChatRequest
    plan: FallbackPlan
    decision: Decision
    mode: str


async def prepare(house: House, scope: Scope, request: ChatRequest) -> PreparedRequest:
    headers = headers_of(scope)
    request = await _without_suffix(house, request)
    plan = house.plan(request.model, upward(headers), scope["client_key"])
    candidate = plan.current
    passed = candidate.headers.get("authorization", "").removeprefix("Bearer ")
    request.secrets = tuple(filter(None, (scope.get("credential", ""), passed)))
    request.caller = await owner(house, scope)
    mode = candidate.settings.mode or house.config.tools.mode
    wish = headers.get(SEARCH_HEADER, "").strip().lower()
    decision = decide(request, mode, wish, bool(house.specs(request)))
    if mode != "off":
        request = await house.restored(request, whole=decision.offered)
    scope["notes"].append(f"search {decision.header}")
    if decision.offered:  # a fallback whose mode is off is none for a request with search
        plan = FallbackPlan([candidate, *(other for other in plan.candidates[1:] if other.settings.mode != "off")])
    return PreparedRequest(request, plan, decision, mode)


async def owner(house: House, scope: Scope) -> str:
    """Who asks, in a form that gives no key away: by the key for this server, else by the one for an upstream that
    takes each client's own. Empty where nobody presents any."""
    key = scope.get("credential", "")
    if not key and any(upstream.config.passes_key for upstream in house.upstreams):
        key = (scope["client_key"] or "").removeprefix("Bearer ")
    if not key:
        return ""
    return hmac.digest(await house.store.secret(), key.encode("latin-1"), "sha256").hex()


async def _without_suffix(house: House, request: ChatRequest) -> ChatRequest:
    """`:online` is a wish for search, unless the upstream lists that very name."""
    plain = request.model.removesuffix(SUFFIX)
    if plain == request.model or not plain:
        return request
    upstream, name = house.upstream_for(plain)
    if (upstream.config.of(name).mode or house.config.tools.mode) == "off":
        return request
    for upstream in house.upstreams:
        if upstream.serves(request.model) and any(m["id"] == request.model for m in await upstream.listed()):
            return request
    search = replace(request.search, asked=request.search.asked or "model_suffix")
    body = {**request.body, "model": plain}
    return replace(request, model=plain, body=body, search=search, changed=True)
