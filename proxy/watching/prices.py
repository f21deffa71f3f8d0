"""What a request costs, by the operator's `prices`: handed the tokens of an answer or a call of a provider, hands on an
amount in the operator's own currency. Frozen: a request keeps the prices that it began with.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from providers.base import ProviderCall

from ..config.prices import ModelPrice, PricesConfig, ProviderPrice
from .steps import Tokens

_MILLION = 1_000_000
_MOST_KNOWN = 1000  # models' names are the clients' words
_FREE_MODEL = ModelPrice()
_FREE_PROVIDER = ProviderPrice()


class PriceList:
    """`set` says whether there are any prices: where there are none, nobody speaks of costs."""

    def __init__(self, config: PricesConfig | None = None) -> None:
        said = config or PricesConfig()
        self._models = said.models
        self._providers = said.providers
        self._known: dict[tuple[str, str], ModelPrice] = {}
        self.set = bool(said.models or said.providers)

    def of_tokens(self, upstream: str, model: str, tokens: Tokens) -> float:
        price = self._price(upstream, model)
        cached = min(tokens.cached, tokens.input)
        cached_price = price.input if price.cached_input is None else price.cached_input
        given = (tokens.input - cached) * price.input + cached * cached_price
        return (given + tokens.output * price.output) / _MILLION

    def of_call(self, call: ProviderCall) -> float:
        if call.cached or not call.answered:  # a call that failed is not paid for
            return 0.0
        price = self._providers.get(call.provider, _FREE_PROVIDER)
        return price.search if call.role == "search" else price.read

    def _price(self, upstream: str, model: str) -> ModelPrice:
        known = self._known.get((upstream, model))
        if known is None:
            full = f"{upstream}/{model}"
            found = (
                price for name, price in self._models.items() if fnmatchcase(model, name) or fnmatchcase(full, name)
            )
            known = next(found, _FREE_MODEL)
            if len(self._known) < _MOST_KNOWN:
                self._known[upstream, model] = known
        return known


NO_PRICES = PriceList()
