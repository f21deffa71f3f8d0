"""The operator's own documents: full-text search over a folder (Markdown, HTML, text, PDF, DOCX, PPTX, EPUB), and
reading them.

Handed a `SearchQuery`, or a URL that it gave out itself; hands on hits and pages, under `base_url` + path if that is
set, else under `local:label/path`. No file path leaves this room. What happens to files is in `providers/documents/`.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

from pydantic import BaseModel, DirectoryPath, Field, field_validator

from ..base import MOST_LINKS, Page, SearchQuery, SearchResult, SearchResults
from ..documents.folder import Folder
from ..documents.index import MOST_WORDS, Hit
from ..documents.keeping import MEMORY, default_file
from ..documents.library import READ_LIMIT, Library
from ..documents.reading import INSIDE, needs_no_parser, read_document
from ..documents.report import IndexState, Progress, Report
from ..documents.words import question_words
from ..errors import NoResults, Unavailable
from ..queries import days_of
from ..settings import check_base_url
from ..web.extract import Extracted
from ..web.workers import Workers

EXTENSIONS = [".md", ".markdown", ".html", ".htm", ".txt", ".rst", ".pdf", ".docx", ".pptx", ".epub"]
_INSIDE = re.compile(re.escape(INSIDE) + r"([^\s()<>\]]*)")


class Local:
    private = True
    timeout = 45.0  # a large PDF takes its time

    class Settings(BaseModel, extra="forbid"):
        path: DirectoryPath
        """The folder with your documents."""
        base_url: str = ""
        """Where people find the same files on the web. [Citations](documents.md#how-documents-are-cited) then link
        there.
        """
        label: str = ""
        """The name in `local:` addresses and in the log. Unset: the folder's name."""
        extensions: list[str] = EXTENSIONS
        """Which files are documents, by the ending of their names. Name other endings and those files are read as plain
        text.
        """
        max_file_size: int = Field(20 * 1024 * 1024, gt=0)
        """Larger files are skipped. In bytes; the default is 20 MiB."""
        index: Path | None = None
        """The file that keeps the index between starts, or `memory` to keep none. Unset: a file in your cache folder,
        see [the index](documents.md#the-index).
        """
        refresh: float = Field(2.0, ge=0)
        """How many seconds a changed file may go unnoticed. The folder is looked through at most this often, when
        somebody searches.
        """
        wait: float = Field(2.0, ge=0)
        """How many seconds a search waits for an index that is still being made."""

        @field_validator("base_url")
        @classmethod
        def _is_web_address(cls, value: str) -> str:
            return value and check_base_url(value)

    def __init__(self, settings: Settings) -> None:
        root = Path(os.path.realpath(settings.path))
        label = settings.label or root.name
        self._folder = Folder(root, frozenset(map(str.lower, settings.extensions)), settings.max_file_size)
        kept = settings.index or default_file(self._folder, os.environ)
        self._library = Library(
            self._folder,
            None if kept == MEMORY else kept,
            own_folder=settings.index is None,
            refresh=settings.refresh,
            label=label,
        )
        self._wait = settings.wait
        self._workers = Workers(READ_LIMIT)  # what can be indexed can be read
        own = f"local:{quote(label, safe='')}/"
        public = settings.base_url and settings.base_url.rstrip("/") + "/"
        self._prefixes = tuple(prefix for prefix in (public, own) if prefix)

    # The index, for those who look after it

    def start_index(self) -> None:
        """Begins to make the index, for a server that will be asked later."""
        self._library.begin()

    async def indexed(self, watch: Callable[[Progress], None] | None = None) -> Report:
        """Waits until the index is whole; `watch` is told how far it is."""
        try:
            await self._library.ready(watch)
            return await self._library.report()
        except (sqlite3.Error, OSError) as error:
            raise _trouble(error) from error

    async def index_report(self) -> Report:
        return await self._library.report()

    def index_state(self) -> IndexState:
        return self._library.state()

    # The contract of a provider

    async def search(self, query: SearchQuery) -> SearchResults:
        first, last = days_of(query, relative=True)
        words = question_words(query.text, MOST_WORDS)
        try:
            hits, progress = await self._library.search(
                words, str(first or ""), str(last or "9999"), query.limit, self._wait
            )
        except (sqlite3.Error, OSError) as error:
            raise _trouble(error) from error
        unready = _unready(progress)
        if not hits:
            raise NoResults("no document matches" + (f" ({unready})" if unready else ""))
        results = tuple(self._result(hit) for hit in hits)
        return SearchResults(results, note=unready, partial=bool(unready))

    def _result(self, hit: Hit) -> SearchResult:
        return SearchResult(hit.title, self._url(hit.path), hit.passage, hit.date or None, basis="page")

    def owns(self, url: str) -> bool:
        return self._document(url) is not None

    async def read(self, url: str) -> Page:
        path = self._document(url)
        body = await asyncio.to_thread(self._folder.read, path) if path is not None else None
        if path is None or body is None:
            raise Unavailable("There is no such document.")
        page = await self._read(path, body)
        return await asyncio.to_thread(self._page, path, page)  # links are looked for on the disk

    def _page(self, path: str, page: Extracted) -> Page:
        own_links = self._own_links(_INSIDE.findall(page.text))
        text = _INSIDE.sub(lambda link: own_links.get(link[1], link[1]), page.text)
        links = tuple(dict.fromkeys(self._absolute(path, page.links[:MOST_LINKS])))
        return Page(self._url(path), page.title, text, page.date, links, cut_short=page.cut_short)

    async def _read(self, path: str, body: bytes) -> Extracted:
        if needs_no_parser(path, len(body)):
            return await asyncio.to_thread(read_document, path, body)
        return await self._workers.read_document(path, body)

    async def aclose(self) -> None:
        await self._library.aclose()
        await self._workers.aclose()

    def _url(self, path: str) -> str:
        return self._prefixes[0] + quote(os.fsencode(path))

    def _document(self, url: str) -> str | None:
        """The path of the document that a URL of ours names, if there is one."""
        for prefix in self._prefixes:
            if url.startswith(prefix):
                return self._path(url[len(prefix) :])
        return None

    def _path(self, quoted: str) -> str | None:
        quoted = quoted.partition("#")[0].partition("?")[0]
        path = os.fsdecode(unquote_to_bytes(quoted.encode("utf-8", "replace")))
        return path if self._folder.holds(path) else None

    def _own_links(self, quoted: Iterable[str]) -> dict[str, str]:
        """Links of a page to other documents of the folder; one that leads nowhere stays as it was written, or so."""
        links = list(dict.fromkeys(quoted))[:MOST_LINKS]
        return {link: self._url(path) for link in links if (path := self._path(link)) is not None}

    def _absolute(self, path: str, links: Iterable[str]) -> Iterator[str]:
        """The links that can be opened: those into the web, and those to other documents of the folder."""
        for link in links:
            if link.startswith(INSIDE):
                if inside := self._path(link.removeprefix(INSIDE)):
                    yield self._url(inside)
                continue
            try:
                parts = urlsplit(link)
            except ValueError:
                continue
            if parts.scheme in ("http", "https"):
                yield link
            elif parts.path and not parts.scheme and not parts.netloc:
                target = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), unquote(parts.path)))
                if self._folder.holds(target.lstrip("/")):
                    yield self._url(target.lstrip("/"))


def _trouble(error: Exception) -> Unavailable:
    return Unavailable(f"the local documents cannot be searched ({type(error).__name__})")


def _unready(progress: Progress) -> str:
    """Said with an answer from an index that is not whole."""
    if not progress.total or not progress.left:
        return ""
    return f"{progress.ready:,} of {progress.total:,} documents are indexed so far, the others were not searched"
