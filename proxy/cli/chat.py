"""`groundwire chat`: a conversation in the terminal, or line by line from a pipe. Handed the parsed arguments and what
is typed; shows each answer as `ask` does. Ctrl-C stops an answer; at the prompt it ends the conversation, as Ctrl-D.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..config.settings import Config
from ..house import House
from ..values.errors import RequestError
from .answer_view import is_terminal, show, terminal_sources, view_for
from .asking import Asking, UnknownProvider, config_to_ask, first_model
from .conversation import Conversation
from .indexing import await_indexes
from .interruption import CODE, end_soon, heard_at_once
from .live_region import size_of
from .running import configured, mistakes_in_words, opened
from .source_lines import SourceLines
from .terminal_text import accept_any_character, harmless

_PROMPT = "> "
_WELCOME = "Ask something. /help lists what else you can type; Ctrl-D ends."
_HELP = """\
/sources          what the answers cite, with the passages
/model [NAME]     the model that is asked; with a name, from now on that one
/search on|off    may the model search?
/save FILE        writes the conversation: Markdown, or JSON if the name ends in .json
/help             this list
/quit             ends, as Ctrl-D does; Ctrl-C stops an answer
A question that begins with a slash is asked with a blank before it."""


def run(given: argparse.Namespace) -> int:
    accept_any_character(sys.stdout)
    with mistakes_in_words():
        config = configured(given)
        try:
            config = config_to_ask(config, given.provider or "")
        except UnknownProvider as error:
            print(error, file=sys.stderr)
            return 2
        with asyncio.Runner() as runner:
            return _Chat(config, given, runner).run()


class _Ended(Exception):
    """By the person who types."""


class _Chat:
    """Typing and answering take turns: nothing runs while a line is typed."""

    def __init__(self, config: Config, given: argparse.Namespace, runner: asyncio.Runner) -> None:
        self._config = config
        self._runner = runner
        self._verbose: bool = given.verbose
        self._conversation = Conversation()
        self._typed = sys.stdin.isatty()
        self._failed = False
        self._model: str = given.model or ""
        self._search = not given.no_search
        self._opening = opened(config)
        self._house: House | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            "/sources": self._show_sources,
            "/model": self._choose_model,
            "/search": self._switch_search,
            "/save": self._save,
            "/help": lambda _: print(_HELP),
            "/quit": self._quit,
        }

    def run(self) -> int:
        try:
            self._house = self._runner.run(self._opening.__aenter__())
            if self._typed:
                _edit_lines()
                print(_WELCOME, file=sys.stderr)
            while True:
                self._take(self._next_line())
        except EOFError:
            if self._typed:
                print(file=sys.stderr)
            return self._code
        except _Ended:
            return self._code
        except KeyboardInterrupt:
            end_soon()
            if self._typed:
                print(file=sys.stderr)
            return CODE
        finally:
            with suppress(KeyboardInterrupt):
                self._runner.run(self._opening.__aexit__(None, None, None))

    @property
    def _code(self) -> int:
        """A person has seen what failed; a script has not."""
        return 1 if self._failed and not self._typed else 0

    def _next_line(self) -> str:
        if not self._typed:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line
        if is_terminal(sys.stdout):
            print()
            return input(_PROMPT)
        print(_PROMPT, end="", file=sys.stderr, flush=True)  # an output that is no terminal holds answers alone
        return input()

    def _take(self, line: str) -> None:
        if not line.strip():
            return
        if not line.startswith("/"):
            self._ask(line.strip())
            return
        name, _, rest = line.strip().partition(" ")
        if command := self._commands.get(name):
            command(rest.strip())
        else:
            _say(f"There is no command {harmless(name)}: /help lists them.")

    # Questions

    def _ask(self, question: str) -> None:
        try:
            self._runner.run(heard_at_once(self._answer(question)))
        except KeyboardInterrupt:
            if not self._typed:
                raise
            _say("Stopped.")

    async def _answer(self, question: str) -> None:
        assert self._house is not None
        asking = Asking(self._house, self._model, search=self._search, explained=self._verbose)
        activity = asking.activity(time.monotonic())
        view = view_for(sys.stdout, sys.stderr, activity, verbose=self._verbose)
        try:
            self._model = activity.model = asking.model = self._model or await first_model(self._house)
            if self._search:
                await await_indexes(self._house.searchers, drawn_only=True)
            await show(asking.answer(self._conversation.messages(question), activity), view)
        except RequestError as error:
            view.take([error.failed])
            view.end()
        finally:
            self._conversation.add(question, view.answer)
            self._failed = self._failed or view.answer.failed is not None

    # Commands

    def _show_sources(self, _: str) -> None:
        if is_terminal(sys.stdout):
            listed = terminal_sources(size_of(sys.stdout).columns, verbose=True)
        else:
            listed = SourceLines(verbose=True, terminal=False, colour=False)
        lines = listed.lines(self._conversation.sources)
        print("\n".join(lines[1:]) if lines else "No answer has cited a source yet.")

    def _choose_model(self, name: str) -> None:
        assert self._house is not None
        if name:
            self._attempt(self._find(name))
        else:
            self._attempt(self._list_models())

    async def _find(self, name: str) -> None:
        assert self._house is not None
        self._house.upstreams.find(name)
        self._model = name

    async def _list_models(self) -> None:
        assert self._house is not None
        for upstream in self._house.upstreams:
            for model in await upstream.models():
                self._model = self._model or model
                print(f"{'*' if model == self._model else ' '} {harmless(model)}")

    def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._runner.run(heard_at_once(work))
        except RequestError as error:
            _say(str(error))

    def _switch_search(self, word: str) -> None:
        if word in ("on", "off"):
            self._search = word == "on"
            _say(f"Search is {word}.")
        else:
            _say(f"Search is {'on' if self._search else 'off'}: /search on or /search off changes it.")

    def _save(self, name: str) -> None:
        if not name:
            _say("Name a file: /save talk.md")
            return
        try:
            self._conversation.save(Path(name))
        except FileExistsError:
            _say(f"{name} is there already, and not from this conversation: choose another name.")
        except (OSError, RuntimeError) as error:  # RuntimeError: a home folder that nobody has
            _say(f"{name} cannot be written: {getattr(error, 'strerror', None) or error}.")
        else:
            _say(f"Saved to {name}.")

    def _quit(self, _: str) -> None:
        raise _Ended


def _say(text: str) -> None:
    """What is no part of an answer."""
    print(harmless(text), file=sys.stderr)


def _edit_lines() -> None:
    """Arrows, history and all, where Python has them."""
    with suppress(ImportError):
        import readline  # noqa: F401  `input` uses it once it is there
