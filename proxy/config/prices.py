"""What an operator may say about money: what a model's tokens and a provider's calls cost. Handed the `prices` section;
hands on plain numbers in the operator's own currency. Where nothing is said, nothing is counted.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from providers.settings import no_switch

from .upstreams import STRICT, Name

Price = Annotated[float, BeforeValidator(no_switch), Field(ge=0, le=10**6)]


class _Section(BaseModel):
    model_config = STRICT


class ModelPrice(_Section):
    """For a million tokens each. `cached_input`: of the input, what the model's server had in its cache."""

    input: Price = 0
    """The price of a million input tokens."""
    output: Price = 0
    """The price of a million output tokens."""
    cached_input: Price | None = None
    """The price of a million input tokens that the model's server had in its cache, as it reports in `cached_tokens`.
    Unset: as `input`.
    """


class ProviderPrice(_Section):
    """For one call."""

    search: Price = 0
    """The price of a search that the provider answered."""
    read: Price = 0
    """The price of a page that the provider read."""


class PricesConfig(_Section):
    """Models by pattern, of their own name or of `upstream/name`, the first that matches; providers by name."""

    models: dict[Name, ModelPrice] = {}
    """Prices by pattern, with `*` and `?`. The pattern is matched against the model's name as its upstream knows it, or
    against `upstream/name`. The first match counts. A name without a wildcard must be a model that an upstream serves.
    """
    providers: dict[Name, ProviderPrice] = {}
    """Prices by the name of a provider."""
