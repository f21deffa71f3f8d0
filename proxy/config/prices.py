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
    output: Price = 0
    cached_input: Price | None = None


class ProviderPrice(_Section):
    """For one call."""

    search: Price = 0
    read: Price = 0


class PricesConfig(_Section):
    """Models by pattern, of their own name or of `upstream/name`, the first that matches; providers by name."""

    models: dict[Name, ModelPrice] = {}
    providers: dict[Name, ProviderPrice] = {}
