"""What can be said of a URL by looking at it: which page it names, its host, and whether that lies in a domain.

Handed URLs as engines, people and models write them; hands on the one spelling that results, caches and the ledger
compare by. Pure, and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, wraps
from urllib.parse import quote, unquote, urlsplit

# What only tells a site who sent the reader. `ref` is not among them: it names a branch as often as a referrer.
_TRACKING = re.compile(r"utm_\w+|gclid|dclid|fbclid|msclkid|yclid|igshid|mc_[ce]id", re.IGNORECASE)
_IPV6_SITE = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/?#\[\]]*@)?\[(?=[^\]]*:)[0-9a-f:.]+\]", re.IGNORECASE)
_NOTHING_TO_ENCODE = re.compile(r"[A-Za-z0-9%/:?#@!$&'*+,;=~._-]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


_REMEMBERED, _LONGEST_REMEMBERED = 1024, 500  # addresses, and characters of one


def remembered(read: Callable[[str], str]) -> Callable[[str], str]:
    """What an address says is asked for five times in a search, by the chain, the ledger and those who open pages."""
    kept = lru_cache(_REMEMBERED)(read)

    @wraps(read)
    def reading(url: str) -> str:
        return kept(url) if len(url) <= _LONGEST_REMEMBERED else read(url)

    return reading


@remembered
def canonical(url: str) -> str:
    """The spelling under which two URLs count as one page: http or https, with or without `www.`, a slash at the end,
    a default port, a fragment, tracking parameters."""
    url = encode_url(url).partition("#")[0]
    scheme = scheme_of(url)
    if scheme not in _DEFAULT_PORTS:
        return url
    try:
        parts = urlsplit(url)
        host, port = _ascii(unquote(parts.hostname or "")).removeprefix("www."), parts.port
    except ValueError:  # brackets that hold no address, digits that are no port
        return url
    user = parts.netloc.rpartition("@")[0]
    site = f"{user}@{host}" if user else host
    site = site if port in (None, _DEFAULT_PORTS[scheme]) else f"{site}:{port}"
    query = "&".join(field for field in parts.query.split("&") if not _TRACKING.fullmatch(field.partition("=")[0]))
    return site + parts.path.rstrip("/") + (f"?{query}" if query else "")


@remembered
def encode_url(url: str) -> str:
    """Percent-encodes what would end a Markdown link, break a line or look like a marker of ours or a token of a chat
    template; leaves existing escapes alone. Only an IPv6 host keeps its brackets."""
    if _NOTHING_TO_ENCODE.fullmatch(url):
        return url
    quoted = quote(url.strip(), safe="%/:?#[]@!$&'*+,;=~-._", errors="replace")
    site = _IPV6_SITE.match(quoted)
    start = site.end() if site else 0
    return quoted[:start] + quoted[start:].replace("[", "%5B").replace("]", "%5D")


def scheme_of(url: str) -> str:
    return url.strip().partition(":")[0].lower()


@remembered
def host_of(url: str) -> str:
    """The host that domain filters look at, in ASCII; the label of a `local:label/path`; empty for anything else."""
    scheme = scheme_of(url)
    if scheme == "local":
        return url.strip()[len("local:") :].partition("/")[0].lower()
    try:
        return _ascii(urlsplit(url.strip()).hostname or "") if scheme in _DEFAULT_PORTS else ""
    except ValueError:
        return ""


def in_domains(host: str, domains: Iterable[str]) -> bool:
    """Exact or below: `docs.example.org` is in `example.org`, `badexample.org` is not."""
    return any(host == domain or host.endswith("." + domain) for domain in domains)


def clean_domains(given: Iterable[str]) -> tuple[str, ...]:
    """Domains as people and models write them (`*.example.org`, `https://example.org/`), in the form of `host_of`."""

    def bare() -> Iterator[str]:
        for text in given:
            host = text.strip().lower().partition("://")[2] or text.strip().lower()
            yield _ascii(re.split(r"[/:?#]", host, maxsplit=1)[0].removeprefix("*").strip("."))

    return tuple(domain for domain in bare() if domain)


def _ascii(host: str) -> str:
    host = host.lower().rstrip(".")
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return host
