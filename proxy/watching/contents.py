"""What people, models and servers wrote, on its way into the log: cut to a line's measure, harmless to a terminal, and
not shown at all unless the operator said `log.contents: true`. Handed texts, log records and exceptions.
"""

from __future__ import annotations

import logging
import re
import traceback

LONGEST_NAME = 200  # characters of a path, a model, an error's code: clients and servers choose them
_CODE = re.compile(r"[\w.-]{1,60}", re.ASCII)
_HIDDEN = "…"
_CAUSED = "\nThe above exception led to this one:\n"


class Contents(str):
    """An argument of a line in the log that others wrote: an error's text may hold the prompt that it complains of."""

    __slots__ = ()


def printable(text: str, longest: int) -> str:
    """The text as it is, if it is short and plain; what a terminal would obey is escaped."""
    text = text if len(text) <= longest else text[:longest] + _HIDDEN
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def whole_characters(text: str) -> str:
    """Without halves of pairs, which models escape and JSON cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def code_word(outcome: str) -> str:
    """Codes of errors may come from a model's server, and then hold anything."""
    return outcome if _CODE.fullmatch(outcome) else "error"


class ContentsHidden(logging.Filter):
    """Takes `Contents` out of the lines of the house."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_HIDDEN if isinstance(arg, Contents) else arg for arg in record.args)
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = stack_of(record.exc_info[1])
        return True


def stack_of(error: BaseException) -> str:
    """A traceback without what the exceptions say: a stack holds our source lines only."""
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = stack_of(earlier) + _CAUSED if earlier else ""
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    stack = "".join(traceback.format_tb(error.__traceback__))
    own = f"Traceback (most recent call last):\n{stack}{type(error).__qualname__}"
    return "\n".join([before + own, *(stack_of(part) for part in inner)])
