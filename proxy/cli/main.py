"""The command line. Handed arguments; runs the command of the file that has its name, and hands back its exit code.

The file of a command is imported only when it is run: `--help` and `--version` load none of them. Every mistake of the
operator ends in one readable message and exit code 2, Ctrl-C in 130.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

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
            command = import_module(f".{given.command}", __package__)
        code: int = command.run(given)
        sys.stdout.flush()  # here, where a closed pipe is still ours to handle
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough, as in `groundwire search … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more as it ends
        return 0
