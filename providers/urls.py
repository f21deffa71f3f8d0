"""What can be said of a URL by looking at it: which page it names, its host, and whether that lies in a domain.

Handed URLs as engines, people and models write them; hands on the one spelling that results, caches and the ledger
compare by. Pure, and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from ipaddress import IPv6Address
from urllib.parse import quote, urlsplit

# What only tells a site who sent the reader. `ref` is not among them: it names a branch as often as a referrer.
_TRACKING = re.compile(r"utm_\w+|gclid|dclid|fbclid|msclkid|yclid|igshid|mc_[ce]id", re.IGNORECASE)
_IPV6_SITE = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/?#\[\]]*@)?\[(?=[^\]]*:)[0-9a-f:.]+\]", re.IGNORECASE)
_NOTHING_TO_ENCODE = re.compile(r"[A-Za-z0-9%/:?#@!$&'*+,;=~._-]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}

_MAX_NAME = 253
# No user, no escape, nothing that a mapping turned into a delimiter. `_` lives in the wild.
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_IPV6 = re.compile(r"[0-9a-f:.]+", re.ASCII | re.IGNORECASE)
_JOINERS = "\u200c\u200d"
_AUTHORITY = re.compile(r"(?:.*@)?(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<name>[^@:\[\]]*))(?::[^@:]*)?", re.DOTALL)
_SITE = re.compile(r"(https?://)([^/?#@:\[\]]+)(?=[/?#]|:[0-9]*(?:[/?#]|\Z)|\Z)", re.ASCII | re.IGNORECASE)


_REMEMBERED, _LONGEST_REMEMBERED = 1024, 500  # addresses, and characters of one


def remembered(read: Callable[[str], str]) -> Callable[[str], str]:
    """What an address says is asked for five times in a search, by the chain, the ledger and those who open pages."""
    kept = lru_cache(_REMEMBERED)(read)

    @wraps(read)
    def reading(url: str) -> str:
        return kept(url) if len(url) <= _LONGEST_REMEMBERED else read(url)

    return reading


def ascii_host(name: str) -> str:
    """A name as it is looked up (UTS-46, IDNA 2008), in lower case and without the last dot; empty if it cannot be.

    The only form in which hosts are compared: the guard dials by it, and caches, domain rules and sources must not
    take two hosts for one that it would tell apart, nor the other way round.
    """
    if len(name) > _MAX_NAME:
        return ""
    host = (name.lower() if name.isascii() else _mapped(name)).removesuffix(".")
    return host if len(host) <= _MAX_NAME and _NAME.fullmatch(host) else ""


def ipv6_host(text: str) -> str:
    """The address between the brackets of a URL in its one spelling; empty if it is none, or has a zone."""
    try:
        return str(IPv6Address(text)) if _IPV6.fullmatch(text) else ""
    except ValueError:
        return ""


@lru_cache(_REMEMBERED)
def _mapped(name: str) -> str:
    import idna  # its tables are large, and few names need them

    def is_invisible(character: str) -> bool:
        return character in _JOINERS or not idna.uts46_remap(character, std3_rules=False)  # the mapping would drop it

    try:
        if any(map(is_invisible, name)):
            return ""
        mapped = idna.uts46_remap(name, std3_rules=False)
        return ".".join(label if label.isascii() else idna.alabel(label).decode() for label in mapped.split("."))
    except idna.IDNAError:
        return ""


@remembered
def canonical(url: str) -> str:
    """The spelling under which two URLs count as one page: http or https, with or without `www.`, a slash at the end,
    a default port, a fragment, tracking parameters. One whose host cannot be looked up equals only itself."""
    return _spelled(url, whole=False)


@remembered
def cache_key(url: str) -> str:
    """What a read page is kept under: as `canonical`, but another scheme or host is another page. What came in the
    clear must not answer for what is asked for over TLS."""
    return _spelled(url, whole=True)


def _spelled(url: str, *, whole: bool) -> str:
    url = encode_url(url).partition("#")[0]
    scheme = scheme_of(url)
    if scheme not in _DEFAULT_PORTS:
        return url
    try:
        parts = urlsplit(url)
        host, port = _host_in(parts.netloc), parts.port
    except ValueError:  # brackets that hold no address, digits that are no port
        return url
    if not host:
        return url
    host = f"[{host}]" if ":" in host else host
    user = parts.netloc.rpartition("@")[0]
    site = f"{user}@" if user else ""
    site += host if whole else host.removeprefix("www.")
    site = site if port in (None, _DEFAULT_PORTS[scheme]) else f"{site}:{port}"
    query = "&".join(field for field in parts.query.split("&") if not _TRACKING.fullmatch(field.partition("=")[0]))
    return (f"{scheme}://" if whole else "") + site + parts.path.rstrip("/") + (f"?{query}" if query else "")


@remembered
def encode_url(url: str) -> str:
    """Percent-encodes what would end a Markdown link, break a line or look like a marker of ours or a token of a chat
    template; leaves existing escapes alone. Only an IPv6 host keeps its brackets; a name is written in ASCII."""
    if _NOTHING_TO_ENCODE.fullmatch(url):
        return url
    quoted = quote(with_ascii_host(url.strip()), safe="%/:?#[]@!$&'*+,;=~-._", errors="replace")
    site = _IPV6_SITE.match(quoted)
    start = site.end() if site else 0
    return quoted[:start] + quoted[start:].replace("[", "%5B").replace("]", "%5D")


def with_ascii_host(url: str) -> str:
    """The URL of the same page for those who might read its name by other rules. A name that cannot be looked up, or
    that stands behind a user, stays as it is."""
    site = None if url.isascii() else _SITE.match(url)
    host = ascii_host(site[2]) if site else ""
    return site[1] + host + url[site.end() :] if site and host else url


def scheme_of(url: str) -> str:
    return url.strip().partition(":")[0].lower()


@remembered
def host_of(url: str) -> str:
    """The host that domain filters look at, in the form of `ascii_host`; the label of a `local:label/path`; empty for
    anything else."""
    scheme = scheme_of(url)
    if scheme == "local":
        return url.strip()[len("local:") :].partition("/")[0].lower()
    try:
        return _host_in(urlsplit(url.strip()).netloc) if scheme in _DEFAULT_PORTS else ""
    except ValueError:
        return ""


def _host_in(netloc: str) -> str:
    """Not `urlsplit(…).hostname`: that is lower case by rules that are not those of names (`Σ` at a word's end)."""
    parts = _AUTHORITY.fullmatch(netloc)
    if parts is None:
        return ""
    return ascii_host(parts["name"]) if parts["ipv6"] is None else ipv6_host(parts["ipv6"])


def in_domains(host: str, domains: Iterable[str]) -> bool:
    """Exact or below: `docs.example.org` is in `example.org`, `badexample.org` is not. Without a host it is in none."""
    return bool(host) and any(host == domain or host.endswith("." + domain) for domain in domains)


def domain_of(text: str) -> str:
    """A domain as people and models write it (`*.example.org`, `https://example.org/`) in the form of `host_of`."""
    host = text.strip().partition("://")[2] or text.strip()
    return host_of("http://" + host.removeprefix("*").lstrip("."))


def clean_domains(given: Iterable[str]) -> tuple[str, ...]:
    """Those of them that are domains."""
    return tuple(domain for domain in map(domain_of, given) if domain)
