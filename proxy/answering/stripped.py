"""An answer without foreign links, where the operator wants it: stands in the citer's place, and thinking passes here
too. Handed the model's text and thinking; hands on both with links left only to sources of this request and to hosts
that the user or the client named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from providers.urls import host_of, scheme_of
from tools.ledger import Ledger
from tools.provenance import urls_in

from ..values.events import Citation, Event, ReasoningDelta, TextDelta
from .citations import Citer
from .foreign_links import ForeignLinks

_THOUGHTS = ("reasoning_content", "reasoning")  # the fields that clients show


class NamedHosts:
    """`texts` is what the user and the client wrote; it is read when the first address is met, and often none is."""

    def __init__(self, ledger: Ledger, texts: Callable[[], Iterable[str]]) -> None:
        self._ledger = ledger
        self._texts = texts
        self._named: frozenset[str] | None = None
        self._sources: frozenset[str] = frozenset()
        self._counted = 0  # the sources that these hosts are of

    def may_link(self, host: str) -> bool:
        return self._bare(host) in self._source_hosts() or self._is_named(host)

    def may_load(self, url: str, host: str) -> bool:
        """An image is fetched by showing it, so that a page which was read could ask for one on its own host, with the
        conversation in the address: it must be a source itself, or on a host that was named."""
        return any(source.url == url for source in self._ledger) or (bool(host) and self._is_named(host))

    def _is_named(self, host: str) -> bool:
        if self._named is None:
            found = (url for text in self._texts() for url in urls_in(text))
            self._named = frozenset(self._bare(_host(url)) for url in found) - {""}
        return self._bare(host) in self._named

    def _source_hosts(self) -> frozenset[str]:
        if len(self._ledger) != self._counted:
            self._counted = len(self._ledger)
            self._sources = frozenset(self._bare(_host(source.url)) for source in self._ledger) - {""}
        return self._sources

    @staticmethod
    def _bare(host: str) -> str:
        return host.removeprefix("www.")


def _host(url: str) -> str:
    """Without a port; of a local document none."""
    return "" if scheme_of(url) == "local" else host_of(url)


class StrippedCiter:
    """A citer whose text has no foreign links."""

    def __init__(self, citer: Citer, hosts: NamedHosts) -> None:
        self._citer = citer
        self._links = ForeignLinks(hosts.may_link, hosts.may_load)

    def passes(self, text: str) -> bool:
        return False  # links are looked for in all of it

    def feed(self, text: str) -> list[TextDelta | Citation]:
        return self._links.feed(self._citer.feed(text))

    def release(self) -> list[TextDelta | Citation]:
        return self._links.feed(self._citer.release()) + self._links.release()

    def end_round(self) -> list[TextDelta | Citation]:
        return self._links.feed(self._citer.end_round()) + self._links.end_round()

    def flush(self) -> list[TextDelta | Citation]:
        return self._links.feed(self._citer.flush()) + self._links.flush()


class StrippedThoughts:
    """Thinking is shown as Markdown by many. What waited comes before whatever else happens."""

    def __init__(self, hosts: NamedHosts) -> None:
        self._hosts = hosts
        self._links: dict[str, ForeignLinks] = {}
        self._open = False

    def filter(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, ReasoningDelta):
                yield ReasoningDelta(
                    {name: self._feed(name, said) for name, said in event.fields.items()}, event.echoed
                )
                continue
            if self._open and (held := self._release()):
                yield ReasoningDelta(held, echoed=False)
            yield event

    def _feed(self, name: str, said: object) -> object:
        if name not in _THOUGHTS or not isinstance(said, str):
            return said
        self._open = True
        if name not in self._links:
            self._links[name] = ForeignLinks(self._hosts.may_link, self._hosts.may_load)
        return _text(self._links[name].feed([TextDelta(said)] if said else []))

    def _release(self) -> dict[str, str]:
        self._open = False
        released = {name: _text(links.release()) for name, links in self._links.items()}
        return {name: text for name, text in released.items() if text}


def _text(events: Iterable[TextDelta | Citation]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))
