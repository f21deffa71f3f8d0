"""What an operator may say about the way out: the `network:` section, strict and frozen. Handed values from the config,
and then the environment; hands on the `Egress` that providers, upstreams and pages share.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, PrivateAttr, SecretStr

from providers.web.egress import Bypass, Egress, Proxy, ProxyUrl, check_exception

from .file import ConfigError
from .upstreams import STRICT


def _ca_file(value: str) -> str:
    if value:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(value)
        except ssl.SSLError:
            raise ValueError("must be a file of certificates (PEM), and there is none in it") from None
        except OSError as error:
            raise ValueError(f"must be a file of certificates (PEM), and it cannot be read: {error.strerror}") from None
    return value


class NetworkConfig(BaseModel):
    model_config = STRICT

    proxy: ProxyUrl = SecretStr("")
    """The proxy for upstreams and providers: `http://`, `https://` (TLS to the proxy itself) or `socks5://`, with
    `user:password@` if the proxy wants them.
    """
    no_proxy: list[Annotated[str, AfterValidator(check_exception)]] = []
    """Hosts that are reached without the proxy, by the rules of `NO_PROXY`: `example.org` and `.example.org` (both with
    subdomains), `10.0.0.0/8`, `host:port`, `*`.
    """
    proxy_for_pages: bool = False
    """Whether `open_page` also reads pages through the proxy. See [what that gives up](#pages-through-a-proxy)."""
    trust_env: bool = False
    """Whether the proxies of the environment count: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`. `network.proxy` wins over
    them.
    """
    ca_file: Annotated[str, AfterValidator(_ca_file)] = ""
    """A PEM file with more certificate authorities, besides [the system's](#certificates). They count for upstreams,
    providers, pages, `https://` proxies, the store, traces and a browser's `cdp_url`.
    """

    # What the environment adds: its own proxies, by the scheme of what is reached, if they are trusted; and NO_PROXY.
    _proxies: dict[str, Proxy] = PrivateAttr(default_factory=dict)
    _no_proxy: list[str] = PrivateAttr(default_factory=list)

    def in_environment(self, environ: Mapping[str, str]) -> Self:
        """The same section with what the environment adds to it; raises `ConfigError` that names a wrong variable."""
        complete = self.model_copy()
        complete._no_proxy = list(_exceptions(environ))
        complete._proxies = dict(_trusted(environ)) if self.trust_env else {}
        return complete

    @property
    def egress(self) -> Egress:
        """What the file says wins over the environment. This machine is reached without a proxy."""
        url = self.proxy.get_secret_value()
        said = Proxy.read(url) if url else None
        return Egress(
            said or self._proxies.get("http"),
            said or self._proxies.get("https"),
            Bypass.read([*self.no_proxy, *self._no_proxy], loopback=True),
            self.ca_file,
        )


def _exceptions(environ: Mapping[str, str]) -> Iterator[str]:
    """NO_PROXY belongs to every program of the machine: what we cannot read in it is for others."""
    listed = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    for entry in listed.replace(",", " ").split():
        with suppress(ValueError):
            yield check_exception(entry)


def _trusted(environ: Mapping[str, str]) -> Iterator[tuple[str, Proxy]]:
    for scheme in ("http", "https"):
        names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
        name = next((name for name in names if environ.get(name)), None)
        if name is None:
            continue
        url = environ[name]
        try:
            yield scheme, Proxy.read(url if "://" in url else f"http://{url}", name)
        except ValueError as error:
            raise ConfigError(name, [f"{error}; it is read because of `network.trust_env`"]) from None
