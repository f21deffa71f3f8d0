"""What an answer has cited, as people see it. Handed a source whenever it is cited; hands on the number that stands in
the text, and the source under the title that it has in this answer.

Clients show "the n-th source of this message" and tell sources apart by their titles. So the numbers count from 1 in
the order of first citation, whatever the model calls them, and no two pages have one title.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from tools.ledger import Source


class CitedSources:
    """`shown` are pages cited earlier in the same answer, with their numbers; without `counted` every source keeps the
    number that the model knows it by. `taken` are numbers that the model knows earlier pages by: a document without a
    link is told by its number alone, which must not be one of them when the client sends the answer back."""

    def __init__(self, shown: Mapping[str, int], taken: Collection[int] = (), *, counted: bool = True) -> None:
        self._taken = taken
        self._counted = counted
        self._numbers = dict(shown)
        self._last = max(shown.values(), default=0)
        self._cited: dict[int, Source] = {}  # by the model's number
        self._titles: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._cited)

    def __iter__(self) -> Iterator[Source]:
        """In order of first citation."""
        return iter(self._cited.values())

    def cite(self, source: Source) -> tuple[int, Source]:
        if source.n not in self._cited:
            self._cited[source.n] = self._titled(source)
            if source.url not in self._numbers:
                self._numbers[source.url] = self._next_for(source)
        return self._number_of(source), self._cited[source.n]

    def _next_for(self, source: Source) -> int:
        self._last += 1
        while not source.linkable and self._last in self._taken:
            self._last += 1
        return self._last

    def numbered(self) -> list[tuple[int, Source]]:
        """In the order of the numbers that people see."""
        return sorted(((self._number_of(source), source) for source in self), key=lambda row: row[0])

    def _number_of(self, source: Source) -> int:
        return self._numbers[source.url] if self._counted else source.n

    def _titled(self, source: Source) -> Source:
        """Under its title, with its host where another page has that title, with a count where even that is taken."""
        title, count = source.title, 1
        while title in self._titles:
            more = f", {count}" if count > 1 else ""
            title, count = f"{source.title} ({source.host}{more})", count + 1
        self._titles.add(title)
        return source if title == source.title else replace(source, title=title)
