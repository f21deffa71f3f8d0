"""The log: one line for each request, for people or as JSON, and the other lines of the house in the same form. Handed
requests by their observers; writes to stderr, a server through a queue. Never what people wrote, unless the operator
said `log.contents: true`.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, ClassVar, TextIO

import orjson

from providers.base import ProviderCall

from ..config.settings import LogConfig
from ..values.secrets import masked
from .contents import ContentsHidden, code_word, printable
from .log_writer import HurriedWriter, LogWriter
from .observer import Listener, Observer

_PLAIN = re.compile(r"[\w.:/@%+,;=()~!*'&$\[\]-]{1,200}")
_LONGEST_NAME = 200  # characters of a path or of a model's name: clients choose them
_LONGEST_CONTENT = 1000  # of a query or an address
_TELLTALE = 12  # characters of a secret that give it away
_KEPT = frozenset({"method", "path", "status", "seconds"})  # said even if they are empty
_THEIRS = ("method", "path", "model", "outcome")  # what clients and servers chose of it
_OURS = ("groundwire", "providers")  # the HTTP libraries would log every address that people look up


class RequestLog(Listener):
    """A listener that writes a line when a request has ended. `write` takes one line without its end."""

    def __init__(self, config: LogConfig, write: Callable[[str], None] | None = None) -> None:
        self._contents = config.contents
        self._line = _json_line if config.format == "json" else _text_line
        self._silent = logging.getLevelName(config.level.upper()) > logging.INFO
        self._write = write or write_line

    def ended(self, request: Observer) -> None:
        if self._silent:
            return
        facts = facts_of(request)
        if self._contents and (contents := request.summary.contents()):
            facts["contents"] = [_printable(shown) for shown in contents]
        self._write(_without_secrets(self._line(facts), facts))


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
    held = any(secret[:_TELLTALE] in text for secret in _Lines.secrets)
    return masked(text, _Lines.secrets) if held else text


def facts_of(request: Observer) -> dict[str, Any]:
    """What the log says of a request, in the order in which it says it. What is not known is left out."""
    summary = request.summary
    facts = {
        "method": request.method,
        "path": printable(request.path, _LONGEST_NAME),
        "status": request.status,
        "seconds": round(request.seconds, 3),
        "queued": round(summary.queued, 3),
        "first_content": None if summary.first_content is None else round(summary.first_content, 3),
        "key": request.caller,
        "model": printable(summary.model, _LONGEST_NAME),
        "upstream": summary.upstream,
        "search": summary.search,
        "reason": summary.reason,
        "rounds": summary.rounds,
        "retries": summary.retries,
        "searches": [_call(call) for call in summary.calls if call.role == "search"],
        "pages": [_call(call) for call in summary.calls if call.role == "read"],
        "failed_calls": sum(not tool.ok for tool in summary.tools),
        "model_failures": [{"upstream": failed.upstream, "status": failed.status} for failed in summary.model_failures],
        "citations": summary.citations,
        "input_tokens": summary.input_tokens,
        "output_tokens": summary.output_tokens,
        "estimated_tokens": summary.estimated_tokens,
        "cost": round(summary.cost, 8),
        "outcome": code_word(request.outcome),
        "request": request.id,
    }
    return {name: value for name, value in facts.items() if name in _KEPT or value not in ("", None, [], 0)}


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
            write_line(masked(self.format(record), self.secrets))
        except Exception:  # as the library's own handlers do it
            self.handleError(record)


def _without_secrets(line: str, facts: Mapping[str, Any]) -> str:
    """A client may have put its key where a model's name belongs, and a server into the code of an error. There is one
    such line for each request, so only what is theirs is looked through, and for whole keys."""
    theirs = line if "contents" in facts else "{} {} {} {}".format(*(facts.get(name, "") for name in _THEIRS))
    return without_secrets(line) if any(secret in theirs for secret in _Lines.secrets) else line


def _writer(handler: logging.Handler) -> LogWriter | None:
    if sys.stderr is None:  # its number may be another file's by now
        return None

    def lost(lines: int) -> str:
        said = {"msg": "%d lines of the log were lost, because nobody took them", "args": (lines,)}
        return handler.format(logging.makeLogRecord({"levelname": "WARNING", **said}))

    return LogWriter(sys.stderr.fileno(), lost, encoding=sys.stderr.encoding)


def _call(call: ProviderCall) -> dict[str, Any]:
    return {
        "provider": call.provider,
        "outcome": call.outcome,
        "cached": call.cached,
        "ms": round(call.seconds * 1000),
    }


def _json_line(facts: dict[str, Any]) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return orjson.dumps({"time": now, "level": "info", **facts}, default=str).decode()


def _text_line(facts: dict[str, Any]) -> str:
    shown = dict(facts)
    method, path, status = (shown.pop(name) for name in ("method", "path", "status"))
    first = [_one_word(method), _one_word(path), str(status or "-")]
    shown["seconds"] = f"{shown.get('seconds', 0):.3f}"
    for name in ("searches", "pages"):
        if name in shown:
            shown[name] = ",".join(_call_text(call) for call in shown[name])
    if "model_failures" in shown:
        shown["model_failures"] = ",".join(f"{f['upstream']}:{f['status']}" for f in shown["model_failures"])
    pairs = [f"{name}={_one_word(value)}" for name, value in shown.items()]
    return " ".join([time.strftime("%H:%M:%S"), *first, *pairs])


def _printable(shown: Mapping[str, str]) -> dict[str, str]:
    return {name: printable(text, _LONGEST_CONTENT) for name, text in shown.items()}


def _call_text(call: dict[str, Any]) -> str:
    return f"{call['provider']}:{call['outcome']}:{'cache' if call['cached'] else str(call['ms']) + 'ms'}"


def _one_word(value: Any) -> str:
    """As it is where it cannot be mistaken for more than one field; else quoted, on one line."""
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return orjson.dumps(value, default=str).decode()


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
