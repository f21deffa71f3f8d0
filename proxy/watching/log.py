"""The log: one line for each request, for people or as JSON, and the other lines of the house in the same form. Handed
requests by their observers; writes to stderr. Never what people wrote, unless the operator said `log.contents: true`.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from providers.base import ProviderCall

from ..config.settings import LogConfig
from .observer import Observer
from .steps import Step

_PLAIN = re.compile(r"[\w.:/@%+,;=()~!*'&$\[\]-]{1,200}")
_OURS = ("groundwire", "providers")  # the HTTP libraries would log every address that people look up


class RequestLog:
    """A listener that writes a line when a request has ended. `write` takes one line without its end."""

    def __init__(self, config: LogConfig, write: Callable[[str], None] | None = None) -> None:
        self._contents = config.contents
        self._line = _json_line if config.format == "json" else _text_line
        self._silent = logging.getLevelName(config.level.upper()) > logging.INFO
        self._write = write or write_line

    def began(self, request: Observer) -> None: ...

    def told(self, request: Observer, step: Step) -> None: ...

    def ended(self, request: Observer) -> None:
        if self._silent:
            return
        facts = facts_of(request)
        if self._contents and (contents := request.summary.contents()):
            facts["contents"] = contents
        self._write(self._line(facts))


def set_up(config: LogConfig, **levels: str) -> None:
    """The other lines of the house, in the same form and from the same level on; `levels` are for one logger each."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # not in our lines, and not free
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if config.format == "json" else _TEXT)
    logging.basicConfig(handlers=[handler])
    for name in _OURS:
        logging.getLogger(name).setLevel(levels.get(name, config.level).upper())


def facts_of(request: Observer) -> dict[str, Any]:
    """What the log says of a request, in the order in which it says it. What is not known is left out."""
    summary = request.summary
    facts = {
        "method": request.method,
        "path": request.path,
        "status": request.status,
        "seconds": round(request.seconds, 3),
        "first_content": None if summary.first_content is None else round(summary.first_content, 3),
        "key": request.caller,
        "model": summary.model,
        "upstream": summary.upstream,
        "search": summary.search,
        "reason": summary.reason,
        "rounds": summary.rounds,
        "searches": [_call(call) for call in summary.calls if call.role == "search"],
        "pages": [_call(call) for call in summary.calls if call.role == "read"],
        "model_failures": [{"upstream": failed.upstream, "status": failed.status} for failed in summary.model_failures],
        "citations": summary.citations,
        "input_tokens": summary.input_tokens,
        "output_tokens": summary.output_tokens,
        "outcome": _word(request.outcome),
        "request": request.id,
    }
    return {name: value for name, value in facts.items() if value not in ("", None, [], 0) or name == "status"}


def write_line(line: str, stream: TextIO | None = None) -> None:
    """Straight to the terminal: the logging machinery would cost as much as reading the request did."""
    with suppress(OSError, ValueError):  # nobody reads the log any more; requests go on
        (stream or sys.stderr).write(line + "\n")


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
    first = [shown.pop(name, "") for name in ("method", "path", "status")]
    first[2] = first[2] or "left"
    shown["seconds"] = f"{shown.get('seconds', 0):.3f}"
    for name in ("searches", "pages"):
        if name in shown:
            shown[name] = ",".join(_call_text(call) for call in shown[name])
    if "model_failures" in shown:
        shown["model_failures"] = ",".join(f"{f['upstream']}:{f['status']}" for f in shown["model_failures"])
    pairs = [f"{name}={_one_word(value)}" for name, value in shown.items()]
    return " ".join([time.strftime("%H:%M:%S"), *map(str, first), *pairs])


def _call_text(call: dict[str, Any]) -> str:
    return f"{call['provider']}:{call['outcome']}:{'cache' if call['cached'] else str(call['ms']) + 'ms'}"


def _one_word(value: Any) -> str:
    """As it is where it cannot be mistaken for more than one field; else quoted, on one line."""
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text if _PLAIN.fullmatch(text) or not isinstance(value, str) else orjson.dumps(text).decode()


def _word(outcome: str) -> str:
    """Codes of errors may come from a model's server, and then hold anything."""
    return outcome if re.fullmatch(r"[\w.-]{1,60}", outcome, re.ASCII) else "error"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


_TEXT = logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S")
