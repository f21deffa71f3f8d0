"""The audit: one line of JSON for each request, with what was searched for, opened and cited, in a file that the
operator has asked for. A listener; handed requests that have ended, hands their lines to a thread that writes them.
Questions and answers are in it only with `log.contents: true`. Keys never are.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from ..config.audit import AuditConfig
from .audit_file import open_audit
from .counted import is_listed
from .log import without_secrets
from .log_writer import LineWriter
from .observer import Listener, Observer
from .recording import Recording
from .transcript import Transcript

ROOM = 32 << 20  # characters that may wait, as far as they can be foreseen
_WEIGHT = 2000  # of a line, besides its steps, its question and its answer


class Audit(Listener):
    """`contents`: are questions and answers written down too? `anonymous`: is anybody let in without a key? If not, who
    is turned away at the door does not fill the disk. Raises `ConfigError` where the file cannot be opened."""

    def __init__(self, config: AuditConfig, *, contents: bool, anonymous: Callable[[], bool] = lambda: True) -> None:
        self._writer = LineWriter(open_audit(config), _missing, name="audit", room=ROOM)
        self._contents = contents
        self._anonymous = anonymous

    @property
    def dropped(self) -> int:
        return self._writer.dropped

    def began(self, request: Observer) -> None:
        if self._contents:
            request.transcript = Transcript()

    def ended(self, request: Observer) -> None:
        if is_listed(request, anonymous=self._anonymous):
            self._writer.write(AuditLine(request))

    def close(self) -> None:
        self._writer.close()


class AuditLine:
    """A line that is put together by the thread that writes it."""

    def __init__(self, request: Observer) -> None:
        self._recording = Recording(request, contents=True)
        self._transcript = request.transcript

    def __len__(self) -> int:
        return _WEIGHT + self._recording.weight + (self._transcript.size if self._transcript else 0)

    def __str__(self) -> str:
        said: dict[str, Any] = {**self._recording.row(), "steps": self._recording.steps()}
        if self._transcript is not None:
            said |= {"question": self._transcript.question(), "answer": self._transcript.answer()}
        return orjson.dumps(_shown(said), default=str).decode()


def _shown(value: Any) -> Any:
    """Without secrets in what was said; the names of fields are ours."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    return [_shown(each) for each in value] if isinstance(value, list | tuple) else value


def _missing(lines: int) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return orjson.dumps({"time": now, "missing": lines}).decode()
