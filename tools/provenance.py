"""Which URLs `open_page` may open: those that came from the user, a search or an opened page, never the model's own.
Handed texts, results and links; hands on the address to open, in the spelling it came in, or a reason for the model.

Why exact comparison: an added query or path is how a page that gives orders would carry data out. Why so few links per
host: pages that offer /a /b /c … spell a secret letter by letter with URLs that all "appeared in context".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from providers.apart import apart
from providers.records import dataclass
from providers.text.stretches import found_in
from providers.urls import domain_of, encode_url, host_of, in_domains, remembered

from . import prompts

Mode = Literal["strict", "context", "open"]

MAX_URL = 8192
LINKS_PER_HOST = 3
LINK_DEPTH = 2
LINKS_PER_PAGE = 2000
_LINK_WEIGHT = 500  # characters of prose that are read as fast as one link

_URL_CHARACTER = r"[^\s<>\"`\\^{}|\[\]\u3000-\u303f\uff00-\uff0f\uff1a-\uff20\u2018-\u201f]"
_URL = re.compile(rf"(?:https?://(?:\[[0-9a-f:.]+\])?|\blocal:){_URL_CHARACTER}+", re.IGNORECASE)
_LABEL = r"[^\W_](?:[^\W_]|-){0,62}"
_BARE = re.compile(
    rf"(?<![\w@./:-])(?:(?:{_LABEL}\.){{1,8}}[^\W\d_]{{2,24}}|\d{{1,3}}(?:\.\d{{1,3}}){{3}})(?::\d{{1,5}})?(?![\w@])(?:/{_URL_CHARACTER}*)?"
)
_UNFIT = re.compile(r"[\x00-\x1f\x7f\\]")
_SECRETS = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-(?:[A-Za-z0-9]{1,12}-){0,4}[A-Za-z0-9_]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,})"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.|-----BEGIN[ +A-Z]{1,40}KEY"
)
# Each shape above holds one of these, and whoever adds a shape adds its telltale: to look for them costs little.
_TELLTALES = ("sk-", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "eyJ", "-----BEGIN")
SHORTEST_SECRET = 8  # a shorter key may well be a word


@dataclass(frozen=True, slots=True)
class Address:
    url: str  # as the user, the search or the page wrote it: this is what is opened
    depth: int = 0  # 0: from the user or a search; 1, 2: a link of an opened page


class Refused(Exception):
    """The URL may not be opened. The message tells the model why and what it may open."""


class Provenance:
    """One per request. What it is handed is read only when a page is opened: most requests open none."""

    def __init__(self, mode: Mode, texts: Iterable[str] = ()) -> None:
        self._mode = mode
        self._unread = list(texts)
        self._unread_urls: list[Sequence[str]] = []
        self._unread_links: list[tuple[Sequence[str], int]] = []  # of opened pages, with their depth
        self._reading = asyncio.Lock()
        self._known: dict[str, Address] = {}
        self._followed: dict[str, set[str]] = {}

    def add(self, urls: Sequence[str]) -> None:
        """URLs of the user or of search results."""
        if urls:
            self._unread_urls.append(urls)

    def add_page(self, opened: Address, final_url: str, links: Sequence[str]) -> None:
        """An opened page: where it was in the end may be opened again, and its links if the mode and depth allow."""
        if page := normalise(final_url):
            self._known.setdefault(page, _address(final_url, opened.depth))
        if self._mode == "context" and opened.depth < LINK_DEPTH:
            self._unread_links.append((links[:LINKS_PER_PAGE], opened.depth + 1))

    async def read_apart(self) -> None:
        """What `admit` would read else. A long conversation and the links of large pages take a while."""
        async with self._reading:  # who comes second waits for what the first one reads
            links = sum(map(len, self._unread_urls)) + sum(len(links) for links, _ in self._unread_links)
            await apart(sum(map(len, self._unread)) + _LINK_WEIGHT * links, self._read)

    def admit(self, url: str) -> Address:
        page = normalise(url)
        if not page:
            raise Refused(prompts.NO_ADDRESS)
        self._read()
        address = self._known.get(page)
        if self._mode == "open":
            return address or _address(url)
        if address is None:
            raise Refused(prompts.UNKNOWN_ADDRESS.format(offer=self._offer()))
        if address.depth:
            followed = self._followed.setdefault(host_of(page), set())
            if page not in followed and len(followed) >= LINKS_PER_HOST:
                raise Refused(prompts.TOO_MANY_LINKS.format(most=LINKS_PER_HOST, offer=self._offer()))
            followed.add(page)
        return address

    def _read(self) -> None:
        """What it reads is put aside when it is known, so that nobody else misses it."""
        while self._unread_urls:
            self._know(self._unread_urls[0])
            del self._unread_urls[0]
        while self._unread:
            self._know(urls_in(self._unread[0]))
            del self._unread[0]
        while self._unread_links:
            links, depth = self._unread_links[0]
            for link in links:
                if page := normalise(link):
                    self._known.setdefault(page, _address(link, depth))
            del self._unread_links[0]

    def _know(self, urls: Iterable[str]) -> None:
        for url in urls:
            if page := normalise(url):
                self._known[page] = _address(url)

    def _offer(self) -> str:
        first = [encode_url(address.url) for address in self._known.values() if not address.depth]
        offered = [url for url in first if len(url) <= 300][-8:]
        return prompts.MAY_OPEN.format(urls=", ".join(offered)) if offered else prompts.SEARCH_FIRST


def _address(url: str, depth: int = 0) -> Address:
    url = url.strip()
    return Address(url if url[:6].lower() == "local:" else url.replace(" ", "%20"), depth)


@dataclass(frozen=True, slots=True)
class Domains:
    """Domain rules of the config, the request and the call: every list of allowed ones must agree, any may block."""

    layers: tuple[tuple[str, ...], ...] = ()
    blocked: tuple[str, ...] = ()

    def narrowed(self, allowed: Sequence[str] = (), blocked: Sequence[str] = ()) -> Domains:
        if not allowed and not blocked:
            return self
        layer = tuple(domain_of(text) for text in allowed)
        return Domains(
            (*self.layers, layer) if layer else self.layers, (*self.blocked, *(domain_of(text) for text in blocked))
        )

    def permit(self, url: str) -> bool:
        host = host_of(url)
        return all(in_domains(host, layer) for layer in self.layers) and not in_domains(host, self.blocked)

    @property
    def allowed(self) -> tuple[str, ...]:
        """What lies in all lists: what a provider is asked for. Empty with `layers` set means: nothing can match."""
        if not self.layers:
            return ()
        every = {domain for layer in self.layers for domain in layer}
        return tuple(sorted(domain for domain in every if all(in_domains(domain, layer) for layer in self.layers)))


@remembered
def normalise(url: str) -> str:
    """The spelling under which two URLs are the same address; empty if it is no URL that can be opened."""
    url = url.strip()
    if len(url) > MAX_URL:
        return ""
    if url[:6].lower() == "local:":
        return "local:" + encode_url(url[6:]).partition("#")[0]
    if _UNFIT.search(url):
        return ""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    host = host_of(url)
    if not host or "@" in parts.netloc or " " in parts.netloc:
        return ""
    netloc = f"[{host}]" if ":" in host else host
    if port is not None and port != {"http": 80, "https": 443}[parts.scheme]:
        netloc += f":{port}"
    return encode_url(urlunsplit((parts.scheme, netloc, parts.path or "/", parts.query, "")))


def urls_in(text: str) -> list[str]:
    """Every URL in a text, with and without the punctuation that may belong to the sentence; bare domains as both."""
    urls = []
    for found in found_in(_URL, text):
        urls += [found[0], _trimmed(found[0])]
    for found in found_in(_BARE, text):
        bare = _trimmed(found[0])
        urls += [f"https://{bare}", f"http://{bare}"]
    return urls


def _trimmed(url: str) -> str:
    """Without the punctuation of the sentence around it, and without a bracket that it did not open."""
    end, unopened = len(url), url.count(")") - url.count("(")
    while end and (url[end - 1] in ".,;:!?'*_~…" or (url[end - 1] == ")" and unopened > 0)):
        unopened -= url[end - 1] == ")"
        end -= 1
    return url[:end]


def holds_secret(text: str, secrets: Collection[str] = ()) -> bool:
    """Whether a query or URL would carry a key out: a known shape, or one of this request's own keys."""
    return _shows_secret(text, secrets) or ("%" in text and _shows_secret(unquote(text), secrets))


def _shows_secret(text: str, secrets: Collection[str]) -> bool:
    if any(map(text.__contains__, _TELLTALES)) and _SECRETS.search(text):
        return True
    return any(len(key) >= SHORTEST_SECRET and key in text for key in secrets)
