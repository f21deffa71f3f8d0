"""What an operator may say about traces: the `traces` section, strict and frozen. Handed values from the config, and
then the environment, whose variables OpenTelemetry fixes; hands on where spans go, and how many of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from providers.settings import no_switch

from .file import ConfigError
from .upstreams import STRICT, Headers

_PATH = "/v1/traces"
_WHOLE, _BASE = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
_MISSING = "needs OpenTelemetry's packages: pip install 'groundwire[otel]'"


def _address(value: str) -> str:
    """Of a collector, by its base or in full; "" stays what it is."""
    if not value:
        return value
    try:
        parts = urlsplit(value)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or not value.isprintable() or " " in value:
        raise ValueError("must be the URL of a collector that speaks OTLP over HTTP, such as http://127.0.0.1:4318")
    if not installed():
        raise ValueError(_MISSING)
    base = value.rstrip("/")
    return base if base.endswith(_PATH) else base + _PATH


def installed() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # not even the folder above it
        return False


class TracesConfig(BaseModel):
    """`endpoint` is where spans are posted to; empty: there are none."""

    model_config = STRICT

    endpoint: Annotated[str, AfterValidator(_address), Field(repr=False)] = ""
    """The collector; `/v1/traces` is added where it is missing. Empty: the one that `OTEL_EXPORTER_OTLP_ENDPOINT`
    names, if this section is there at all; else there are no traces. Reached through [`network`](#network), but not
    through a SOCKS proxy. Needs `pip install 'groundwire[otel]'`.
    """
    headers: Annotated[Headers, Field(repr=False)] = {}
    """Sent to the collector, for example its key."""
    sample: Annotated[float, BeforeValidator(no_switch), Field(ge=0, le=1)] = 1.0
    """The share of traces that are recorded, where no client has decided it."""

    def in_environment(self, environ: Mapping[str, str]) -> Self:
        """The same section with the variables' collector, where it names none. Raises `ConfigError`."""
        name = next((name for name in (_WHOLE, _BASE) if environ.get(name)), None)
        if self.endpoint or name is None:
            return self
        try:
            known = _address(environ[name])
        except ValueError as error:
            raise ConfigError(name, [f"{error}; it is read because of the section `traces`"]) from None
        return self.model_copy(update={"endpoint": environ[name] if name == _WHOLE else known})
