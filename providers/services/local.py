"""The operator's own documents: full-text search over a folder of Markdown, HTML and text files, and reading them.

Handed a `SearchQuery`, or a URL that it gave out itself; hands on hits and pages, under `base_url` + path if that is
set, else under `local:label/path`. No file path leaves this room, and all work is done in one thread of its own.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

from pydantic import BaseModel, DirectoryPath, Field, field_validator

from ..api import check_base_url
from ..base import Page, SearchQuery, SearchResult
from ..errors import NoResults, Unavailable
from .local_files import Folder
from .local_index import Index

T = TypeVar("T")


class Local:
    private = True
    timeout = 30.0  # the first search may have to read the whole folder; what it has read is kept

    class Settings(BaseModel, extra="forbid"):
        path: DirectoryPath
        base_url: str = ""
        label: str = ""  # the folder's name unless given
        extensions: list[str] = [".md", ".markdown", ".html", ".htm", ".txt", ".rst"]
        max_file_size: int = Field(2 * 1024 * 1024, gt=0)
        index: Path | None = None  # a file that keeps the index between runs; in memory unless given
        refresh: float = Field(2.0, ge=0)  # seconds in which a change may go unseen

        @field_validator("base_url")
        @classmethod
        def _is_web_address(cls, value: str) -> str:
            return value and check_base_url(value)

    def __init__(self, settings: Settings) -> None:
        root = Path(os.path.realpath(settings.path))
        self._folder = Folder(root, frozenset(map(str.lower, settings.extensions)), settings.max_file_size)
        self._index = Index(self._folder, settings.index, settings.refresh)
        own = f"local:{quote(settings.label or root.name, safe='')}/"
        public = settings.base_url and settings.base_url.rstrip("/") + "/"
        self._prefixes = tuple(prefix for prefix in (public, own) if prefix)
        # One thread: SQLite stays in it, and searches wait for a running look at the folder instead of repeating it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="local")

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        hits = await self._run(lambda: self._index.search(query))
        if not hits:
            raise NoResults("no document matches")
        return [SearchResult(hit.title, self._url(hit.path), hit.passage, hit.date, basis="page") for hit in hits]

    def owns(self, url: str) -> bool:
        return self._document(url) is not None

    async def read(self, url: str) -> Page:
        return await self._run(lambda: self._read(url))

    async def aclose(self) -> None:
        await self._run(self._index.close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(f"the local documents cannot be searched ({type(error).__name__})") from error

    def _read(self, url: str) -> Page:
        path = self._document(url)
        document = self._folder.read(path) if path is not None else None
        if path is None or document is None:
            raise Unavailable("There is no such document.")
        links = tuple(dict.fromkeys(self._absolute(path, document.links)))
        return Page(self._url(path), document.title, document.text, document.date, links)

    def _url(self, path: str) -> str:
        return self._prefixes[0] + quote(os.fsencode(path))

    def _document(self, url: str) -> str | None:
        """The path of the document that a URL of ours names, if there is one."""
        for prefix in self._prefixes:
            if url.startswith(prefix):
                quoted = url[len(prefix) :].partition("#")[0].partition("?")[0]
                path = os.fsdecode(unquote_to_bytes(quoted.encode("utf-8", "replace")))
                return path if self._folder.holds(path) else None
        return None

    def _absolute(self, path: str, links: Iterable[str]) -> Iterator[str]:
        """The links that can be opened: those into the web, and those to other documents of the folder."""
        for link in links:
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
