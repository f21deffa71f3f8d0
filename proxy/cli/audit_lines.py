"""The lines of an audit, oldest first: of the file itself, and of those that were put aside beside it when it was full
(`FILE.1`, `FILE.2`, also compressed). Handed a file's name; hands on requests, and remembers what could not be read.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import orjson

_LONGEST = 16 << 20  # bytes of a line: what is longer was not written by us


class Unreadable(Exception):
    """Its text says which file, and why."""


class AuditLines:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._broken = 0
        self._first_broken = ""
        self._missing = 0
        self.count = 0  # requests that were read so far
        self._times: list[str] = []  # of the first and of the last

    def requests(self) -> Iterator[dict[str, Any]]:
        for path in self._files():
            yield from self._of(path)

    def described(self) -> str:
        """What there is, for who looks for something else."""
        if not self._times:
            return f"{self._file}, and no other either"
        return f"{self._file}: {self.count} requests, from {self._times[0]} to {self._times[-1]}"

    def remarks(self) -> Iterator[str]:
        if self._broken:
            lines = "1 line" if self._broken == 1 else f"{self._broken} lines"
            yield f"{lines} could not be read; the first is {self._first_broken}."
        if self._missing:
            yield f"{self._missing} requests are missing: they could not be written down at the time."

    def _files(self) -> list[Path]:
        """A name that was put aside itself is read alone."""
        if not self._file.exists():
            raise Unreadable(f"There is no file {self._file}. The name of yours stands in the config, as `audit`.")
        pattern = re.compile(re.escape(self._file.name) + r"\.([1-9][0-9]{0,3})(?:\.gz)?")
        aside = [(int(found[1]), path) for path in self._neighbours() if (found := pattern.fullmatch(path.name))]
        return [*(path for _, path in sorted(aside, reverse=True)), self._file]

    def _neighbours(self) -> list[Path]:
        try:
            return list(self._file.parent.iterdir())
        except OSError:  # a file may be readable where its folder is not
            return []

    def _of(self, path: Path) -> Iterator[dict[str, Any]]:
        try:
            with _opened(path) as file:
                number = 0
                while line := file.readline(_LONGEST):
                    number += 1
                    if line.strip() and (request := self._read(line, f"line {number} of {path}")):
                        yield request
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or "it is no file of this kind"
            raise Unreadable(f"{path} cannot be read: {reason}.") from None

    def _read(self, line: bytes, place: str) -> dict[str, Any] | None:
        try:
            said = orjson.loads(line)
        except orjson.JSONDecodeError:
            said = None
        if isinstance(said, dict) and isinstance(said.get("missing"), int):
            self._missing += said["missing"]
            return None
        if not isinstance(said, dict) or not isinstance(said.get("id"), str):
            self._broken += 1
            self._first_broken = self._first_broken or place
            return None
        self.count += 1
        self._times = [*self._times[:1], str(said.get("time", "?"))[:40]]
        return said


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")
