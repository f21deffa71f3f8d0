"""The full-text index of a folder: passages of documents in SQLite FTS5, in a file or in memory. It does as it is told;
`library` looks after it.

Handed what `reading` gave, path by path; hands on `Hit`s, best first: each document once, by its best passage, and
documents that say the same once. Two threads may use it at once, one of them to write.
"""

from __future__ import annotations

import math
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..records import dataclass
from .folder import Stamp
from .words import fingerprint, index_words

SCHEMA_VERSION = 3
SCHEMA = """
CREATE TABLE about (fingerprint TEXT);
CREATE TABLE contents (id INTEGER PRIMARY KEY, digest TEXT UNIQUE, title TEXT);
CREATE TABLE passages (id INTEGER PRIMARY KEY AUTOINCREMENT, content INTEGER, heading TEXT, text TEXT);
CREATE INDEX passages_of ON passages (content);
CREATE TABLE documents (
  path BLOB PRIMARY KEY, mtime INTEGER, size INTEGER, content INTEGER, title TEXT, date TEXT, reason TEXT
) WITHOUT ROWID;
CREATE INDEX documents_of ON documents (content);
CREATE VIRTUAL TABLE words USING fts5 (title, body, content = '', tokenize = 'ascii');
"""
# The words are told apart by `words`, so that all that FTS5 has to see are the blanks between them. It keeps no text of
# its own; to take a passage out of it, it must be told the same words again.
TABLES = ("about", "contents", "passages", "documents", "words")
# `rank` sorts inside FTS5. A word in the title or the heading weighs more.
SEARCH = """
SELECT passages.content, contents.title, heading, text
FROM words JOIN passages ON passages.id = words.rowid JOIN contents ON contents.id = passages.content
WHERE words MATCH ? AND rank MATCH 'bm25(3.0, 1.0)' AND words.rowid <= ? ORDER BY rank LIMIT ?
"""
COUNT = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
NTH = "SELECT rowid FROM words WHERE words MATCH ? LIMIT 1 OFFSET ?"
# Of documents that say the same the first by name. A document without a date may be of any.
DOCUMENT = """
SELECT path, title, date FROM documents WHERE content = ? AND (date = '' OR date BETWEEN ? AND ?)
ORDER BY path LIMIT 1
"""
COMMIT_EVERY = 0.5  # seconds
FIRST_PASSAGES, MOST_PASSAGES = 60, 3000  # that are looked at for the best documents
# Ranking costs about a microsecond for each passage and word. So the rare words choose the passages, which they do
# better than the common ones anyhow, and all words together put the best of these in order.
REORDERED = 20  # of the best passages
ABOVE = 0.5  # what a word counts that only the title or the heading holds: many passages stand below these
RANKED = 4000  # passages that a search may rank
MERGE_FROM = 500  # documents written at once, after which the index is put in order for those who search
PATIENCE = 20.0  # seconds to wait for another process that writes
MOST_WORDS = 64  # of a question; in scripts without blanks they are short


Row = tuple[int, str, str, str]  # what a passage belongs to, its title, its heading, its text


@dataclass(frozen=True, slots=True)
class Hit:
    path: str
    title: str
    date: str
    passage: str


@dataclass(frozen=True, slots=True)
class Counts:
    documents: int
    equal: int  # of these, how many say the same as another
    skipped: list[tuple[str, str]]  # path and reason


class Index:
    """`file` is where it is kept; None keeps it in memory, where one connection serves both threads."""

    def __init__(self, file: Path | None) -> None:
        self._writer = _connect(file)
        self._reader = self._writer if file is None else _connect(file)
        self._writing = threading.Lock()
        self._reading = self._writing if file is None else threading.Lock()
        self._began: float | None = None  # the transaction that is under way
        self._written = 0

    # Reading

    def search(self, words: list[str], first: str, last: str, limit: int) -> list[Hit]:
        """The documents of the days from `first` to `last` that hold any of the words, else any that begins so."""
        with self._reading:
            for phrases in (_quoted(words), _quoted(words, prefix=True)):
                if counted := self._count(phrases):
                    return self._search(counted, first, last, limit)
        return []

    def known(self) -> dict[str, Stamp]:
        with self._reading:
            rows = self._reader.execute("SELECT path, mtime, size FROM documents").fetchall()
        return {os.fsdecode(path): (mtime, size) for path, mtime, size in rows}

    def version(self) -> int:
        """Another number after another process wrote."""
        with self._reading:
            return int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def counts(self) -> Counts:
        with self._reading:
            (documents,) = self._reader.execute("SELECT count(content) FROM documents").fetchone()
            (contents,) = self._reader.execute("SELECT count(*) FROM contents").fetchone()
            rows = self._reader.execute("SELECT path, reason FROM documents WHERE content IS NULL").fetchall()
        return Counts(documents, documents - contents, [(os.fsdecode(path), reason) for path, reason in rows])

    def _count(self, phrases: list[str]) -> dict[str, int]:
        """In how many passages each one is, the rarest first; nothing of those that are nowhere."""
        counted = {phrase: self._reader.execute(COUNT, (phrase, RANKED)).fetchone()[0] for phrase in phrases}
        return dict(sorted(((phrase, count) for phrase, count in counted.items() if count), key=lambda pair: pair[1]))

    def _search(self, counted: dict[str, int], first: str, last: str, limit: int) -> list[Hit]:
        weights = {phrase.strip('"*'): 1 / math.log2(1 + count) for phrase, count in counted.items()}
        for expression in _expressions(counted):
            bound = self._reader.execute(NTH, (expression, RANKED)).fetchone()
            most = bound[0] if bound else sys.maxsize
            hits = self._best(expression, most, weights, first, last, limit)
            if hits:
                return hits
        return []

    def _best(
        self, expression: str, bound: int, weights: Mapping[str, float], first: str, last: str, limit: int
    ) -> list[Hit]:
        looked_at = FIRST_PASSAGES
        while True:
            rows = self._reader.execute(SEARCH, (expression, bound, looked_at)).fetchall()
            hits = self._hits(_in_order(rows, weights), first, last, limit)
            if len(hits) == limit or len(rows) < looked_at or looked_at >= MOST_PASSAGES:
                return hits
            looked_at = min(looked_at * 7, MOST_PASSAGES)  # one long document may hold all of the best

    def _hits(self, found: list[tuple[int, str]], first: str, last: str, limit: int) -> list[Hit]:
        best: dict[int, str] = {}
        for content, text in found:
            best.setdefault(content, text)
        hits = []
        for content, text in best.items():
            if row := self._reader.execute(DOCUMENT, (content, first, last)).fetchone():
                hits.append(Hit(os.fsdecode(row[0]), row[1], row[2], text))
            if len(hits) == limit:
                break
        return hits

    # Writing

    def put(self, path: str, stamp: Stamp, document: Mapping[str, Any]) -> None:
        with self._transaction() as connection:
            old = self._content_of(path)
            content = self._content(document)
            row = (os.fsencode(path), *stamp, content, document["title"], document["date"], "")
            connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            if old != content:
                self._drop_unused(old)

    def skip(self, path: str, stamp: Stamp, reason: str) -> None:
        """Remembers why a document cannot be read, so that it is not tried again before it changes."""
        with self._transaction() as connection:
            old = self._content_of(path)
            row = (os.fsencode(path), *stamp, None, "", "", reason)
            connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            self._drop_unused(old)

    def forget(self, path: str) -> None:
        with self._transaction() as connection:
            old = self._content_of(path)
            connection.execute("DELETE FROM documents WHERE path = ?", (os.fsencode(path),))
            self._drop_unused(old)

    def commit(self, *, last: bool = True) -> None:
        """What was written so far stays. `last`: nothing more comes, so there is time to put things in order."""
        with self._writing:
            if last and self._written >= MERGE_FROM:
                self._writer.execute("INSERT INTO words (words) VALUES ('optimize')")
            self._commit()
            self._written = 0 if last else self._written

    def close(self) -> None:
        with self._reading:
            self._reader.close()
        if self._writer is not self._reader:
            with self._writing:
                self._writer.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Many documents share one: each by itself would wait for the disk. What fails takes all of them back."""
        with self._writing:
            if self._began is None:
                self._writer.execute("BEGIN IMMEDIATE")
                self._began = time.monotonic()
            try:
                yield self._writer
            except BaseException:
                self._began = None
                with suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                raise
            self._written += 1
            if time.monotonic() - self._began > COMMIT_EVERY:
                self._commit()

    def _commit(self) -> None:
        if self._began is not None:
            self._began = None
            self._writer.execute("COMMIT")

    def _content_of(self, path: str) -> int | None:
        found = self._writer.execute("SELECT content FROM documents WHERE path = ?", (os.fsencode(path),)).fetchone()
        return found[0] if found else None

    def _content(self, document: Mapping[str, Any]) -> int:
        """The number of what the document says, which others may have said before."""
        digest, title = document["digest"], document["title"]
        if found := self._writer.execute("SELECT id FROM contents WHERE digest = ?", (digest,)).fetchone():
            return int(found[0])
        row = (digest, title)
        content = self._writer.execute("INSERT INTO contents (digest, title) VALUES (?, ?)", row).lastrowid
        assert content is not None
        for passage in document["passages"]:
            kept = (content, passage["heading"], passage["text"])
            number = self._writer.execute(
                "INSERT INTO passages (content, heading, text) VALUES (?, ?, ?)", kept
            ).lastrowid
            words = (number, _title_words(title, passage["heading"]), passage["words"])
            self._writer.execute("INSERT INTO words (rowid, title, body) VALUES (?, ?, ?)", words)
        return content

    def _drop_unused(self, content: int | None) -> None:
        if content is None:
            return
        if self._writer.execute("SELECT 1 FROM documents WHERE content = ?", (content,)).fetchone():
            return
        (title,) = self._writer.execute("SELECT title FROM contents WHERE id = ?", (content,)).fetchone()
        rows = self._writer.execute("SELECT id, heading, text FROM passages WHERE content = ?", (content,)).fetchall()
        for number, heading, text in rows:
            words = (number, _title_words(title, heading), index_words(text))
            self._writer.execute("INSERT INTO words (words, rowid, title, body) VALUES ('delete', ?, ?, ?)", words)
        self._writer.execute("DELETE FROM passages WHERE content = ?", (content,))
        self._writer.execute("DELETE FROM contents WHERE id = ?", (content,))


def _connect(file: Path | None) -> sqlite3.Connection:
    # Threads take turns by locks of ours.
    connection = sqlite3.connect(file or ":memory:", timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        with suppress(sqlite3.OperationalError):  # another process is at it, or the disk cannot; then without
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Makes the tables, also where they are those of another version or of another way to tell words."""
    if _is_current(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    if not _is_current(connection):  # another process may have been faster
        for table in TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO about VALUES (?)", (fingerprint(),))
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _is_current(connection: sqlite3.Connection) -> bool:
    if connection.execute("PRAGMA user_version").fetchone() != (SCHEMA_VERSION,):
        return False
    return bool(connection.execute("SELECT fingerprint FROM about").fetchone() == (fingerprint(),))


def is_broken(error: sqlite3.Error) -> bool:
    """Whether the file is no index any more, as against one that cannot be used right now."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_out_of_room(error: sqlite3.Error) -> bool:
    """Whether the disk takes no more, or may not be written to."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def _title_words(title: str, heading: str) -> str:
    return index_words(title if heading == title else f"{title} {heading}")


def _quoted(words: list[str], *, prefix: bool = False) -> list[str]:
    """The words as FTS5 phrases. The quotes around a word cannot be broken out of."""
    bare = (word.replace('"', "").replace("\0", "").strip() for word in words)
    return [f'"{word}"*' if prefix and len(word) > 2 else f'"{word}"' for word in bare if word]


def _expressions(counted: dict[str, int]) -> Iterator[str]:
    """What to look for, one after the other until something is found: any of the rare words; where all are common,
    passages that hold all of them, and then the rarest."""
    chosen: list[str] = []
    for phrase, total in zip(counted, accumulate(counted.values()), strict=True):
        if total <= RANKED:
            chosen.append(phrase)
    if chosen:
        yield " OR ".join(chosen)
        return
    if len(counted) > 1:
        yield " AND ".join(counted)
    yield next(iter(counted))


def _in_order(rows: list[Row], weights: Mapping[str, float]) -> list[tuple[int, str]]:
    """The best passages, put in order by what they hold of the whole question, then as they came."""

    def weight(row: Row) -> float:
        _, title, heading, text = row
        said, above = set(index_words(text).split()), set(_title_words(title, heading).split())
        return -sum(rare * (1.0 if word in said else ABOVE * (word in above)) for word, rare in weights.items())

    best = sorted(rows[:REORDERED], key=weight) if len(weights) > 1 else rows[:REORDERED]
    return [(content, text) for content, _, _, text in [*best, *rows[REORDERED:]]]
