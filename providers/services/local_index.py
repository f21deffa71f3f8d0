"""The full-text index of `local`: SQLite FTS5 over a folder, in memory or in a file, looked after before each search.

Handed a `Folder` and a query; hands on `Hit`s, best first. One thread uses it: its connection belongs to the first
that asks.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..api import days_of
from ..base import SearchQuery
from .local_files import Folder

SCHEMA_VERSION = 1
SCHEMA = """
DROP TABLE IF EXISTS documents;
DROP TABLE IF EXISTS words;
CREATE TABLE documents (id INTEGER PRIMARY KEY, path BLOB UNIQUE, mtime INTEGER, size INTEGER, title TEXT, date TEXT);
CREATE VIRTUAL TABLE words USING fts5 (title, body, tokenize = 'porter unicode61 remove_diacritics 2');
"""
# `rank` sorts inside FTS5, so that passages are cut only for the rows that leave. A word in the title weighs more.
SEARCH = """
SELECT path, documents.title, date, snippet(words, 1, '', '', '…', 48)
FROM words JOIN documents ON documents.id = words.rowid
WHERE words MATCH ? AND rank MATCH 'bm25(4.0, 1.0)' AND date BETWEEN ? AND ?
ORDER BY rank LIMIT ?
"""
MAX_TERMS = 32
STOP_WORDS = frozenset(
    "a about an and any are as at be been but by can could did do does for from had has have how i "  # noqa: SIM905
    "if in into is it its me my no not of on or our should so than that the their them then there these they this to "
    "us was we were what when where which who why will with would you your".split()
)
# Scripts without spaces between words. Each character becomes a word of its own, and a query asks for pairs of them.
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
ONE_UNSPACED = re.compile(f"[{UNSPACED}]")
RUN = re.compile(f"[{UNSPACED}]+|[^\\W_{UNSPACED}]+")
SEAM = "\u200b"  # invisible, and no part of a word for FTS5; taken out again before anything is shown


@dataclass(frozen=True, slots=True)
class Hit:
    path: str
    title: str
    date: str
    passage: str


class Index:
    def __init__(self, folder: Folder, file: Path | None, refresh: float) -> None:
        self._folder = folder
        self._file = file
        self._refresh = refresh
        self._looked: float | None = None
        self._connection: sqlite3.Connection | None = None

    def search(self, query: SearchQuery) -> list[Hit]:
        connection = self._open()
        self._look(connection)
        first, last = days_of(query, relative=True)
        earliest, latest = str(first or ""), str(last or "9999")
        terms = _terms(query.text)
        for match in (_any_of(terms), _any_of(terms, prefix=True)):
            rows = connection.execute(SEARCH, (match, earliest, latest, query.limit)).fetchall() if match else ()
            if rows:
                return [Hit(os.fsdecode(path), title, date, _shown(passage)) for path, title, date, passage in rows]
        return []

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._file or ":memory:", timeout=20, isolation_level=None)
            if connection.execute("PRAGMA user_version").fetchone() != (SCHEMA_VERSION,):
                connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            self._connection = connection
        return self._connection

    def _look(self, connection: sqlite3.Connection) -> None:
        """Reads again what changed since the last look, and forgets what vanished."""
        if self._looked is not None and time.monotonic() - self._looked < self._refresh:
            return
        with _transaction(connection):
            rows = connection.execute("SELECT path, id, mtime, size FROM documents").fetchall()
            known = {os.fsdecode(path): (number, mtime, size) for path, number, mtime, size in rows}
            for path, mtime, size in self._folder.walk():
                number, *stamp = known.pop(path, (None, None, None))
                if stamp != [mtime, size]:
                    self._forget(connection, number)
                    self._learn(connection, path, mtime, size)
            for number, _, _ in known.values():
                self._forget(connection, number)
        self._looked = time.monotonic()

    def _learn(self, connection: sqlite3.Connection, path: str, mtime: int, size: int) -> None:
        document = self._folder.read(path)
        if document is None:
            return
        row = (os.fsencode(path), mtime, size, document.title, document.date)
        number = connection.execute(
            "INSERT INTO documents (path, mtime, size, title, date) VALUES (?, ?, ?, ?, ?)", row
        ).lastrowid
        words = (number, _seamed(document.title), _seamed(document.plain))
        connection.execute("INSERT INTO words (rowid, title, body) VALUES (?, ?, ?)", words)

    def _forget(self, connection: sqlite3.Connection, number: int | None) -> None:
        if number is not None:
            connection.execute("DELETE FROM documents WHERE id = ?", (number,))
            connection.execute("DELETE FROM words WHERE rowid = ?", (number,))


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")  # another process may keep the same file up to date
    with connection:
        yield


def _terms(text: str) -> list[str]:
    """The words worth looking for, each once; the stop words too if there is nothing else."""
    terms: list[str] = []
    for run in RUN.findall(text.lower()):
        if ONE_UNSPACED.match(run):
            pairs = pairwise(run)
            terms.extend([" ".join(pair) for pair in pairs] or [run])
        else:
            terms.append(run)
    telling = [term for term in terms if term not in STOP_WORDS]
    return list(dict.fromkeys(telling or terms))[:MAX_TERMS]


def _any_of(terms: list[str], *, prefix: bool = False) -> str:
    """An FTS5 expression. A term holds letters and digits only, so the quotes around it cannot be broken out of."""
    return " OR ".join(f'"{term}"*' if prefix and len(term) > 2 else f'"{term}"' for term in terms)


def _seamed(text: str) -> str:
    if text.isascii():
        return text
    # Line by line: one pattern over a whole book would hold up every other thread.
    return "\n".join(ONE_UNSPACED.sub(rf"{SEAM}\g<0>{SEAM}", line) for line in text.split("\n"))


def _shown(passage: str) -> str:
    return " ".join(passage.replace(SEAM, "").split())
