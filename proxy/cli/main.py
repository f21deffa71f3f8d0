"""The command line. Handed arguments; runs the command of the file that has its name, and hands back its exit code.

The file of a command is imported only when it is run: `--help` and `--version` load none of them. Every mistake of the
operator ends in one readable message and exit code 2, Ctrl-C in 130.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from .parser import parser


def main(arguments: Sequence[str] | None = None) -> int:
    code = _run(arguments)
    if arguments is None:  # then there is nothing left but the end of Python itself
        from .interruption import ignore

        ignore()
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        given = parser().parse_args(arguments)
        from .interruption import ended_at_once

        with ended_at_once():
            command = _imported(given.command)
        code: int = command.run(given)
        sys.stdout.flush()  # here, where a closed pipe is still ours to handle
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough, as in `groundwire search … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more as it ends
        return 0


def _imported(name: str) -> ModuleType:
    """The file of a command, with all that it uses. All of this stays until the end, so the collector of cycles looks
    at it neither while it comes nor later: that would take a seventh of the time to start."""
    import gc

    gc.disable()
    try:
        return import_module(f".{name}", __package__)
    finally:
        gc.freeze()
        gc.enable()
