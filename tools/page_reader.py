"""The pages of one request: which of them may be opened, and how much of them is read. Handed URLs by `open_page`;
hands on each page as it can be shown, fetched once however often it is asked for, or a reason for the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from providers.apart import in_thread
from providers.chain import ReadChain
from providers.places import asked_by
from providers.urls import host_of

from . import prompts
from .options import SessionOptions, ToolPolicy
from .pages import SHORTEST, ReadPage, part_of, prepare
from .provenance import Address, Domains, Provenance, Refused, holds_secret, normalise
from .render import PagePart

MOST_URLS = 20  # in one call
BOOK = 10_000  # characters: of hostile ones some 30 milliseconds of work

P = ParamSpec("P")
T = TypeVar("T")


class PageReader:
    """`opened` counts the pages that were really fetched."""

    def __init__(
        self,
        chain: ReadChain | None,
        policy: ToolPolicy,
        options: SessionOptions,
        domains: Domains,
        provenance: Provenance,
    ) -> None:
        self.opened = 0
        self._chain = chain
        self._options = options
        self._domains = domains
        self._provenance = provenance
        # Without a model there is nobody to mislead: whoever asks may open what it names.
        self.most = MOST_URLS if options.alone else policy.max_opens
        self._most_per_host = MOST_URLS if options.alone else policy.max_opens_per_host
        self._opened_of: dict[str, int] = {}  # by host
        self._pages: dict[str, asyncio.Task[ReadPage]] = {}
        self._room = policy.max_characters
        self._longest = policy.max_page_length
        if options.room is not None:
            self._room = min(self._room, options.room)
            self._longest = min(self._longest, max(options.room // 2, SHORTEST))

    @property
    def spent(self) -> bool:
        """Whether the pages or the characters of this request are used up."""
        return self.opened >= self.most or self._room < SHORTEST

    def reserve(self, pages: int, wanted: int | None) -> int:
        """How many characters each of so many pages may have, or 0 if there is no room left. They are taken at once,
        because the calls of a turn run together; `give_back` what is left of them.
        """
        most = self._longest if wanted is None else min(wanted, self._longest)
        each = min(max(min(most, self._room) // pages, SHORTEST), self._longest)
        if each * pages > self._room:
            return 0
        self._room -= each * pages
        return each

    def give_back(self, characters: int) -> None:
        self._room += characters

    async def part(self, url: str, start: int, query: str, max_length: int) -> tuple[PagePart, ReadPage]:
        """What was asked for of a page, and the page."""
        page = await self.page(url)
        return await aside(len(page.text), part_of, page, start, query, max_length), page

    async def page(self, url: str) -> ReadPage:
        """A page, read once per request however often and in however many parts it is asked for."""
        if holds_secret(url, self._options.secrets):
            raise Refused(prompts.CARRIES_KEY)
        if not self._domains.permit(url):
            raise Refused(prompts.FOREIGN_DOMAIN)
        await self._provenance.read_apart()
        address = self._provenance.admit(url)
        page = normalise(address.url)
        if page not in self._pages:
            self._count(host_of(page))
        if page not in self._pages or self._pages[page].cancelled():  # by somebody who could not wait for it
            self._pages[page] = asyncio.create_task(self._fetch(address))
        return await self._pages[page]

    def _count(self, host: str) -> None:
        allowed = self._options.most_pages
        if allowed is not None and self.opened >= allowed:  # the client's own bound: it may still search
            raise Refused(prompts.PAGES_USED_UP.format(opened=allowed))
        if self.opened >= self.most:
            raise Refused(prompts.PAGES_USED_UP.format(opened=self.opened))
        of_host = self._opened_of.get(host, 0)
        if of_host >= self._most_per_host:
            raise Refused(prompts.SITE_USED_UP.format(opened=of_host))
        self.opened += 1
        self._opened_of[host] = of_host + 1

    async def _fetch(self, address: Address) -> ReadPage:
        if self._chain is None:
            raise Refused(prompts.NO_READER)
        only = self._options.permission.providers
        with asked_by(self._options.caller, self._options.request):
            opened = await self._chain.read(address.url, self._options.caller, self._options.observe, only)
        if not self._domains.permit(opened.page.url or address.url):
            raise Refused(prompts.LEADS_TO_FOREIGN_DOMAIN)
        return await aside(len(opened.page.text), prepare, address, opened)


async def aside(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Text work on a page: in a thread if the page is a book, because other requests are waiting for this loop."""
    if size < BOOK:
        return work(*arguments, **named)
    return await in_thread(work, *arguments, **named)
