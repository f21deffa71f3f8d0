"""Questions to the person at the terminal, and what they are told meanwhile: all of it on stderr, so that stdout holds
nothing but what a command makes. Where nobody is to be asked, each question answers itself with its default.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .interruption import ended_at_once

_SHOWN = 20  # names


class Questions:
    def __init__(self, asking: bool) -> None:
        self._asking = asking

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def text(self, question: str, default: str) -> str:
        if not self._asking:
            return default
        with ended_at_once():
            print(f"{question}: ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
        if not line:  # Ctrl-D: whoever goes away wants none of it
            self.say("")
            raise KeyboardInterrupt
        return line.strip() or default

    def yes_or_no(self, question: str, default: bool) -> bool:
        shown = "Y/n" if default else "y/N"
        while said := self.text(f"{question} [{shown}]", ""):
            if said.lower() in ("y", "yes"):
                return True
            if said.lower() in ("n", "no"):
                return False
            self.say("Please answer y or n.")
        return default

    def choice(self, question: str, options: Sequence[str]) -> int:
        """The place of the one that was chosen; the first is the default."""
        if not self._asking or len(options) < 2:
            return 0
        for number, option in enumerate(options, 1):
            self.say(f"  {number}  {option}")
        while said := self.text(f"{question} [1]", ""):
            if said.isdecimal() and 1 <= int(said) <= len(options):
                return int(said) - 1
            self.say(f"Please answer with a number from 1 to {len(options)}.")
        return 0

    def name(self, question: str, names: Sequence[str]) -> str:
        """One of these, or nothing."""
        while (said := self.text(question, "")) and said not in names:
            more = " …" if len(names) > _SHOWN else ""
            self.say(f"There is no {said!r} among them: {', '.join(names[:_SHOWN])}{more}")
        return said
