"""Numbers sources, once per request. Tools hand it what they found; it hands on numbered `Source`s, and the citer
looks numbers up in it. The same page keeps its number through all rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from providers.base import Basis
from providers.records import dataclass
from providers.urls import canonical, encode_url

MOST_GIVEN = 100_000  # characters that are remembered of one source; of more the last stay
MOST_KEPT = 6000  # of these, from one request to the next


@dataclass(frozen=True, slots=True)
class Source:
    n: int
    url: str  # encoded once, here: safe inside a Markdown link, the same bytes in text and annotation
    title: str  # never empty
    snippet: str = ""
    date: str | None = None
    author: str | None = None  # this and the score as the search that found it says
    score: float | None = None
    # The texts that the model was given of it, word for word, in their order; once text of the page itself was given
    # these alone. They grow while an answer is made, so they are no part of what tells one source from another.
    given: tuple[str, ...] = field(default=(), compare=False)
    basis: Basis = field(default="snippet", compare=False)

    def with_texts(self, given: tuple[str, ...], basis: Basis) -> Source:
        """The same source, of which the model was given these texts."""
        found = (self.n, self.url, self.title, self.snippet, self.date, self.author, self.score)
        return Source(*found, given=given, basis=basis)

    @property
    def linkable(self) -> bool:
        """A local document without a public address (`local:name/path`) is cited by title only."""
        return self.url.startswith(("http://", "https://"))

    @property
    def host(self) -> str:
        try:
            host = urlsplit(self.url).hostname or self.url
        except ValueError:  # brackets that hold no address
            host = self.url
        return host.removeprefix("www.")


class KnownSource(NamedTuple):
    """What is remembered of a source from one request to the next; its number stands beside it."""

    url: str
    title: str = ""
    given: tuple[str, ...] = ()  # some of what the model was given of it
    basis: Basis | None = None  # None: nobody knows


SourceRow = tuple[int, str, str, tuple[str, ...], Basis | None]


def known(sources: Iterable[Source]) -> dict[int, KnownSource]:
    return {s.n: KnownSource(s.url, s.title, _bounded(s.given, MOST_KEPT), s.basis) for s in sources}


def without_texts(sources: Mapping[int, KnownSource]) -> dict[int, KnownSource]:
    """Less what the model was given of them."""
    return {n: source._replace(given=()) for n, source in sources.items()}


def joined(all_of_them: Iterable[Mapping[int, KnownSource]]) -> dict[int, KnownSource]:
    """All of them, the oldest first. What is newer counts, unless it knows nothing of what the model was given."""
    together: dict[int, KnownSource] = {}
    for sources in all_of_them:
        for n, source in sources.items():
            old = None if source.given else together.get(n)
            if old is None or not old.given or old.url != source.url:
                together[n] = source
    return together


def source_rows(sources: Mapping[int, KnownSource]) -> list[SourceRow]:
    """As they are stored; `sources_from` reads them again."""
    return [(n, *source) for n, source in sources.items()]


def sources_from(rows: Iterable[Sequence[Any]]) -> dict[int, KnownSource]:
    """Rows that were stored before texts were kept end with the title."""
    return {n: KnownSource(url, title, *_texts(*kept)) for n, url, title, *kept in rows}


def _texts(given: Iterable[str] = (), basis: Basis | None = None) -> tuple[tuple[str, ...], Basis | None]:
    return tuple(given), basis


class Ledger:
    """`highest` is the highest number that the conversation already uses: ours count on from there."""

    def __init__(self, highest: int = 0) -> None:
        self._last = highest
        self._by_number: dict[int, Source] = {}
        self._by_page: dict[str, int] = {}
        self._withdrawn: set[int] = set()
        self._given: set[int] = set()  # in this request

    def add(
        self, url: str, title: str = "", snippet: str = "", date: str | None = None, *, final_url: str = ""
    ) -> Source:
        """The source for this page; a new number only if the page is new. A better title or date fills a gap.

        `final_url` is where redirects led: from now on the same page, under the number of the URL that was asked for.
        """
        spellings = [canonical(spelling) for spelling in (url, final_url) if spelling]
        known = None
        for page in spellings:
            known = known or self._by_page.get(page)
        if known is None:
            self._last += 1
            source = self._put(self._last, url, title, snippet, date)
        else:
            old = self._by_number[known]
            better_title = old.title if old.title != old.host or not title.strip() else " ".join(title.split())
            source = replace(old, title=better_title, snippet=old.snippet or snippet, date=old.date or date)
            self._by_number[known] = source
        for page in spellings:
            self._by_page.setdefault(page, source.n)
        return source

    def add_hit(
        self,
        url: str,
        title: str,
        snippet: str,
        date: str | None,
        author: str | None,
        score: float | None,
        basis: Basis,
    ) -> Source:
        """A hit of a search, whose snippet the model is given: as this search says it, but for a better title or date
        that is known. Most hits are new, and then all of it is done at once."""
        page, basis = canonical(url), basis if snippet else "snippet"
        if page in self._by_page:
            known = self.add(url, title, snippet, date)
            kept = self.give(known.n, snippet or known.snippet, basis)
            shown = snippet or kept.snippet
            return Source(kept.n, kept.url, kept.title, shown, kept.date, author, score, kept.given, kept.basis)
        self._last = n = self._last + 1
        given = _bounded((snippet,)) if snippet else ()
        hit = Source(n, encode_url(url), " ".join(title.split()), snippet, date, author, score, given, basis)
        if not hit.title:
            hit = replace(hit, title=hit.host)
        self._by_number[n] = hit
        self._by_page[page] = n
        self._given.add(n)
        return hit

    def give(self, n: int, text: str, basis: Basis) -> Source:
        """The model is given this text of the source. What the page itself says takes the place of what an engine says
        of it, and never the other way round."""
        self._withdrawn.discard(n)
        self._given.add(n)
        source = self._by_number[n]
        if text and not (source.basis == "page" and basis == "snippet"):
            before = source.given if source.basis == basis else ()
            source = self._by_number[n] = source.with_texts(_bounded((*before, text)), basis)
        return source

    def withdraw(self, *numbers: int) -> None:
        """The model is given nothing of these after all: they cannot be cited, unless it is given them again."""
        for n in numbers:
            self._by_number[n] = self._by_number[n].with_texts((), "snippet")
        self._withdrawn.update(numbers)
        self._given.difference_update(numbers)

    def restore(
        self, n: int, url: str, title: str = "", given: tuple[str, ...] = (), basis: Basis | None = None
    ) -> None:
        """A number that an earlier answer of ours gave to a page keeps it. The first to claim a number holds it."""
        page = canonical(url)
        if n not in self._by_number and page not in self._by_page:
            self._last = max(self._last, n)
            self._by_page[page] = n
            source = self._put(n, url, title, "", None)
            self._by_number[n] = source.with_texts(_bounded(given, MOST_KEPT), basis or "snippet")

    def get(self, n: int) -> Source | None:
        """The source that a marker with this number cites."""
        return None if n in self._withdrawn else self._by_number.get(n)

    def given(self) -> list[Source]:
        """Those that the model was given something of in this request, in the order of their numbers."""
        return [self._by_number[n] for n in sorted(self._given)]

    def to_keep(self) -> dict[int, KnownSource]:
        """What is remembered of all of them. Those of earlier requests have their texts there: else a conversation
        would keep them once for each of its turns."""
        return without_texts(known(self)) | known(self.given())

    def __iter__(self) -> Iterator[Source]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    def _put(self, n: int, url: str, title: str, snippet: str, date: str | None) -> Source:
        source = Source(n, encode_url(url), " ".join(title.split()), snippet, date)
        if not source.title:
            source = replace(source, title=source.host)
        self._by_number[n] = source
        return source


def _bounded(texts: tuple[str, ...], room: int = MOST_GIVEN) -> tuple[str, ...]:
    """Each text once, as far as all of them may be remembered."""
    if len(texts) == 1:
        return texts if len(texts[0]) <= room else (texts[0][:room],)
    kept: list[str] = []
    for text in reversed(dict.fromkeys(texts)):
        if room <= 0:
            break
        kept.append(text[:room])
        room -= len(text)
    return tuple(reversed(kept))
