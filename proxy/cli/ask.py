"""`groundwire ask`: one question, asked through the engine itself. Handed the parsed arguments and what is piped in;
shows the answer as it streams, and its sources below.
"""

from __future__ import annotations

import argparse
import stat
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from os import fstat

from ..config.settings import Config
from ..values.errors import RequestError
from .answer_view import show, view_for
from .asking import Asking, UnknownProvider, config_to_ask, first_model
from .indexing import await_indexes
from .interruption import ended_at_once
from .running import opened, run_with_config
from .terminal_text import accept_any_character

_LONGEST = 10 << 20  # bytes of a question: as many as the proxy takes of a request
_NOTHING = 'There is no question. Ask one as in: groundwire ask "What is new in Python?"'
_TYPE = "Type the question; Ctrl-D on a line of its own ends it."
_TOO_LONG = f"The question is longer than {_LONGEST >> 20} MB. Give it less to read."


class NoQuestion(Exception):
    """Its text says what to do."""


def run(given: argparse.Namespace) -> int:
    accept_any_character(sys.stdout)
    try:
        with ended_at_once():
            given.question = question_of(given.question or "")
    except NoQuestion as error:
        print(error, file=sys.stderr)
        return 2
    return run_with_config(ask, given)


def question_of(typed: str) -> str:
    """What was typed and what was piped in; both, if there are both."""
    piped = _piped() if typed == "-" or _is_piped() else ""
    parts = [typed if typed != "-" else "", piped]
    question = "\n\n".join(part.strip() for part in parts if part.strip())
    if not question:
        raise NoQuestion(_NOTHING)
    return question


def _is_piped() -> bool:
    """A pipe or a file: not a terminal, and not whatever else a program that starts us has for an input."""
    try:
        mode = fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or none at all
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _piped() -> str:
    if sys.stdin.isatty():
        print(_TYPE, file=sys.stderr)
    raw = _read_input()
    if len(raw) > _LONGEST:
        raise NoQuestion(_TOO_LONG)
    return raw.decode(errors="replace")


def _read_input() -> bytes:
    """In a thread, while this one wakes up now and then: a Ctrl-C that comes just before a read blocks is only heard
    when the read is over."""
    with ThreadPoolExecutor(1) as pool:
        reading: Future[bytes] = pool.submit(sys.stdin.buffer.read, _LONGEST + 1)
        while not reading.done():
            wait([reading], timeout=0.1)
        return reading.result()


async def ask(config: Config, given: argparse.Namespace) -> int:
    try:
        config = config_to_ask(config, given.provider or "")
    except UnknownProvider as error:
        print(error, file=sys.stderr)
        return 2
    async with opened(config) as house:
        asking = Asking(house, given.model or "", search=not given.no_search, explained=given.verbose)
        activity = asking.activity(time.monotonic())
        view = view_for(sys.stdout, sys.stderr, activity, as_json=given.json, verbose=given.verbose)
        try:
            activity.model = asking.model = asking.model or await first_model(house)
            if asking.search:
                await await_indexes(house.searchers, drawn_only=True)
            question = {"role": "user", "content": given.question}
            return await show(asking.answer([question], activity), view)
        except RequestError as error:
            view.take([error.failed])
            view.end()
            return 1
