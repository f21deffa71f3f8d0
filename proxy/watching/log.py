"""The log: one line for each request, for people or as JSON, and the other lines of the house in the same form. Handed
requests by their observers; writes to stderr, a server through a queue. Never what people wrote, unless the operator
said `log.contents: true`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import ClassVar, TextIO

import orjson

from ..config.settings import LogConfig
from ..values.secrets import PIECE, masked
from .contents import ContentsHidden, printable
from .log_writer import HurriedWriter, LogWriter
from .observer import Listener, Observer
from .request_line import json_line, said_by_others, text_line

_LONGEST_CONTENT = 1000  # of a query or an address
_OURS = ("groundwire", "providers")  # the HTTP libraries would log every address that people look up


class RequestLog(Listener):
    """A listener that writes a line when a request has ended. `write` takes one line without its end."""

    def __init__(self, config: LogConfig, write: Callable[[str], None] | None = None) -> None:
        self._contents = config.contents
        self._line = json_line if config.format == "json" else text_line
        self._silent = logging.getLevelName(config.level.upper()) > logging.INFO
        self._write = write or write_line

    def ended(self, request: Observer) -> None:
        if self._silent:
            return
        contents = [_printable(shown) for shown in request.summary.contents()] if self._contents else ()
        line = self._line(request, contents)
        self._write(_without_secrets(line, line if contents else said_by_others(request)))


def set_up(config: LogConfig, *, queued: bool = False, hurried: bool = False, **levels: str) -> None:
    """The other lines of the house, in the same form and from the same level on; `levels` are for one logger each.
    `queued` is for a server: its lines, those of requests too, are written by a thread, and nobody waits for them.
    `hurried` is for who may have no thread: what cannot be written at once is lost."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # not in our lines, and not free
    handler = _Lines()
    handler.setFormatter(_JsonFormatter() if config.format == "json" else _TEXT)
    if queued:
        _Lines.writer = _writer(handler)
    elif hurried and sys.stderr is not None:
        _Lines.writer = HurriedWriter(sys.stderr.fileno())
    if not config.contents:
        handler.addFilter(ContentsHidden())
    logging.basicConfig(handlers=[handler])
    for name in _OURS:
        logging.getLogger(name).setLevel(levels.get(name, config.level).upper())


def hide(secrets: Sequence[str]) -> None:
    """Keeps these out of every line from now on, whoever wrote them into it. Each line is looked through for them, so
    they are those of the config and no more."""
    _Lines.secrets = tuple(secrets)


def without_secrets(text: str) -> str:
    """For other places that show what clients and servers wrote. What was cut may end within a secret."""
    held = any(secret[:PIECE] in text for secret in _Lines.secrets)
    return masked(text, _Lines.secrets) if held else text


def write_line(line: str, stream: TextIO | None = None) -> None:
    """Past the logging machinery, which would cost as much as reading the request did."""
    if _Lines.writer is not None:
        _Lines.writer.write(line)
        return
    stream = stream or sys.stderr
    if stream is None:  # started without one
        return
    with suppress(OSError, ValueError):  # nobody reads the log any more; requests go on
        stream.write(line + "\n")


def lines_dropped() -> int:
    """How many were lost because nobody took them."""
    return _Lines.writer.dropped if _Lines.writer is not None else 0


class _Lines(logging.Handler):
    """The other lines of the house go the same way as those of requests."""

    writer: ClassVar[LogWriter | HurriedWriter | None] = None
    secrets: ClassVar[tuple[str, ...]] = ()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if record.name.partition(".")[0] in _OURS and isinstance(record.args, tuple):
                write_line(self.format(_without_secrets_in(record)))
            else:
                write_line(masked(self.format(record), self.secrets))
        except Exception:  # as the library's own handlers do it
            self.handleError(record)


def _without_secrets_in(record: logging.LogRecord) -> logging.LogRecord:
    """The words of a line of ours stay as they are: only what was put into it may hold a secret."""
    shown = logging.makeLogRecord(record.__dict__)
    arguments = record.args if isinstance(record.args, tuple) else ()
    shown.args = tuple(each if isinstance(each, int | float) else _Masked(each) for each in arguments)
    if record.exc_info:
        shown.exc_text = masked(record.exc_text or _TEXT.formatException(record.exc_info), _Lines.secrets)
    return shown


class _Masked:
    """What is put into a line, without secrets, however it is printed."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return masked(str(self._value), _Lines.secrets)

    def __repr__(self) -> str:
        return masked(repr(self._value), _Lines.secrets)


def _without_secrets(line: str, theirs: str) -> str:
    """A client may have put its key where a model's name belongs, and a server into the code of an error. There is one
    such line for each request, so only what is `theirs` is looked through, and for whole keys."""
    for secret in _Lines.secrets:
        if secret in theirs:
            return without_secrets(line)
    return line


def _writer(handler: logging.Handler) -> LogWriter | None:
    if sys.stderr is None:  # its number may be another file's by now
        return None

    def lost(lines: int) -> str:
        said = {"msg": "%d lines of the log were lost, because nobody took them", "args": (lines,)}
        return handler.format(logging.makeLogRecord({"levelname": "WARNING", **said}))

    return LogWriter(sys.stderr.fileno(), lost, encoding=sys.stderr.encoding)


def _printable(shown: Mapping[str, str]) -> dict[str, str]:
    return {name: printable(text, _LONGEST_CONTENT) for name, text in shown.items()}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = record.exc_text or self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


_TEXT = logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S")
