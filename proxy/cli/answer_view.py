"""How an answer is shown: drawn on a terminal as it streams, as plain text in a pipe, or as one JSON object. Handed the
events of an answer, batch by batch; shows them, and the sources below. `ask`, `chat` and `replay` use it.

    view = view_for(sys.stdout, sys.stderr, Activity(…))
    code = await show(batches, view)
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol, TextIO

from ..values.events import Event, TextDelta, ToolStarted
from .activity import Activity
from .gathered_answer import GatheredAnswer
from .live_region import LiveRegion, size_of
from .markdown_blocks import Block, MarkdownBlocks
from .source_lines import SourceLines
from .terminal_text import harmless, harmless_json

FRAME = 0.08  # seconds from one picture to the next
_SHARE = 5  # of the time a picture may take at most one in so many parts
_LARGEST_OPEN = 4000  # characters of an open block that is painted before it is finished
_WIDEST = 100  # columns that text is laid out on: longer lines are hard to read


class AnswerView(Protocol):
    """`answer` is what was gathered so far. `take` notes what happened; `draw` shows it, and says after how many
    seconds it wants to be asked again; `end` shows the rest and what stands below; `stop` leaves the terminal in order,
    also where the answer was broken off."""

    answer: GatheredAnswer

    def take(self, events: Sequence[Event]) -> None: ...

    def draw(self) -> float: ...

    def end(self) -> None: ...

    def stop(self) -> None: ...


async def show(batches: AsyncGenerator[list[Event], None], view: AnswerView) -> int:
    """All of an answer; the exit code. Whatever ends it, the model is no longer asked and the terminal is in order."""
    try:
        async with aclosing(batches):
            await _follow(batches, view)
        view.end()
    finally:
        view.stop()
    return 1 if view.answer.failed else 0


async def _follow(batches: AsyncGenerator[list[Event], None], view: AnswerView) -> None:
    """Draws while it waits: no task of its own, so that nothing is drawn into something else."""
    due = time.monotonic() + view.draw()
    pending = asyncio.ensure_future(_next(batches))
    try:
        while True:
            await asyncio.wait({pending}, timeout=max(0.0, due - time.monotonic()))
            if pending.done():
                if not (events := pending.result()):
                    return
                view.take(events)
                if any(isinstance(event, ToolStarted) for event in events):
                    due = 0.0  # it may be over before the next picture
                pending = asyncio.ensure_future(_next(batches))
            if time.monotonic() >= due:
                due = time.monotonic() + view.draw()
    except asyncio.CancelledError:
        view.stop()  # before what is asked is closed, which may take longer than a person who pressed Ctrl-C waits
        raise
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)


async def _next(batches: AsyncGenerator[list[Event], None]) -> list[Event]:
    """Nothing at the end: no batch is empty."""
    async for batch in batches:
        if batch:
            return batch
    return []


def view_for(
    out: TextIO, err: TextIO, activity: Activity, *, as_json: bool = False, verbose: bool = False
) -> AnswerView:
    """The one that fits where the output goes."""
    status = LiveRegion(err) if is_terminal(err) else None
    if as_json:
        return JsonView(out, err, activity, status)
    if is_terminal(out):
        return LiveView(out, err, activity, verbose=verbose)
    return PlainView(out, err, activity, status, verbose=verbose)


def is_terminal(stream: TextIO) -> bool:
    """One on which something can be drawn."""
    return stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def has_colour() -> bool:
    return not os.environ.get("NO_COLOR")


def terminal_sources(columns: int, *, verbose: bool) -> SourceLines:
    return SourceLines(verbose=verbose, terminal=True, colour=has_colour(), columns=min(columns, _WIDEST))


class _View:
    """What all have in common."""

    def __init__(self, out: TextIO, err: TextIO, activity: Activity) -> None:
        self.answer = GatheredAnswer()
        self._out, self._err = out, err
        self._activity = activity

    def take(self, events: Sequence[Event]) -> None:
        now = time.monotonic()
        self.answer.take(events, now)
        self.answer.model = self.answer.model or self._activity.model  # before a model is asked nobody has named it
        self._activity.take(events, now)

    def _complain(self) -> None:
        said = [self._activity.notice, failure(self.answer) if self.answer.failed else ""]
        self._err.write("".join(f"{line}\n" for line in said if line))
        self._err.flush()


def failure(answer: GatheredAnswer) -> str:
    assert answer.failed is not None
    said = harmless(str(answer.failed.error.get("message") or "The answer failed."))
    return f"The answer broke off: {said}" if answer.text else said


class LiveView(_View):
    """Finished blocks are printed once; the open one, and below it what goes on, is drawn again and again."""

    def __init__(self, out: TextIO, err: TextIO, activity: Activity, *, verbose: bool = False) -> None:
        from .markdown_painter import MarkdownPainter  # and with it Rich, only where something is drawn

        super().__init__(out, err, activity)
        self._region = LiveRegion(out)
        self._painter = MarkdownPainter(out)
        self._blocks = MarkdownBlocks()
        self._finished: list[Block] = []  # and not yet printed
        self._begun = False  # was anything printed?
        self._open: list[str] = []  # lines of the open block, as they were last painted
        self._changed = False
        self._columns = 0
        self._verbose = verbose

    def take(self, events: Sequence[Event]) -> None:
        super().take(events)
        for event in events:
            if isinstance(event, TextDelta):
                self._finished += self._blocks.feed(harmless(event.text))
                self._changed = True

    def draw(self) -> float:
        began = time.monotonic()
        columns = size_of(self._out).columns
        printed = self._print_finished(columns)
        live = self._open_lines(columns)
        if line := self._activity.line(time.monotonic(), columns):
            live = [*live, *([""] if live else []), _faint(line)]
        self._region.draw(live, printed)
        return max(FRAME, (time.monotonic() - began) * _SHARE)

    def end(self) -> None:
        self._finished += self._blocks.flush()
        columns = size_of(self._out).columns
        sources = terminal_sources(columns, verbose=self._verbose)
        lines = [*self._print_finished(columns), *sources.lines(self.answer)]
        self._region.draw([], lines)
        if self._activity.notice and lines:
            self._err.write("\n")
        self._complain()

    def stop(self) -> None:
        """What there is of the answer stays; the line below it goes."""
        columns = size_of(self._out).columns
        printed = self._print_finished(columns)
        if printed or not self._region.empty:
            self._region.draw(self._open_lines(columns), printed)
            self._region.leave()

    def _print_finished(self, columns: int) -> list[str]:
        printed: list[str] = []
        for block in self._finished:
            printed += self._laid_out(block, columns)
            self._begun = True
        self._finished.clear()
        return printed

    def _open_lines(self, columns: int) -> list[str]:
        if not self._changed and columns == self._columns:
            return self._open
        self._changed, self._columns = False, columns
        if not self._blocks.size:
            self._open = []
        elif self._blocks.size > _LARGEST_OPEN:
            self._open = self._tail(columns)
        else:
            self._open = self._laid_out(self._blocks.rest, columns)
        return self._open

    def _laid_out(self, block: Block, columns: int) -> list[str]:
        lines = self._painter.lines(block.text, min(columns, _WIDEST))
        return ["", *lines] if lines and self._begun and not block.joined else lines

    def _tail(self, columns: int) -> list[str]:
        """The last lines of a block that is too large to be painted again and again."""
        room = size_of(self._out).lines
        text = self._blocks.tail(room * columns)
        wide = columns if text.isascii() else max(1, columns // 2)
        lines = text.split("\n")[-room:]
        return [line[at : at + wide] for line in lines for at in range(0, max(len(line), 1), wide)][-room:]


class PlainView(_View):
    """Text as it comes and nothing else, for pipes and files. Before the first word a terminal on stderr shows what
    goes on; afterwards no more, because the text may be on its way to the same screen."""

    def __init__(
        self, out: TextIO, err: TextIO, activity: Activity, status: LiveRegion | None = None, *, verbose: bool = False
    ) -> None:
        super().__init__(out, err, activity)
        self._status = status
        self._sources = SourceLines(verbose=verbose, terminal=False, colour=False)
        self._wrote = False
        self._ended_line = True

    def take(self, events: Sequence[Event]) -> None:
        super().take(events)
        text = harmless("".join(event.text for event in events if isinstance(event, TextDelta)))
        if text:
            self._clear()
            self._wrote = True
            self._out.write(text)
            self._out.flush()
            self._ended_line = text.endswith("\n")

    def draw(self) -> float:
        if self._status is None or self._wrote:
            return 1.0
        return _draw_status(self._status, self._activity, self._err)

    def end(self) -> None:
        self._clear()
        lines = self._sources.lines(self.answer)
        self._out.write(("" if self._ended_line else "\n") + "".join(f"{line}\n" for line in lines))
        self._out.flush()
        self._complain()

    def stop(self) -> None:
        self._clear()

    def _clear(self) -> None:
        if self._status is not None and not self._status.empty:
            self._status.draw([])


class JsonView(_View):
    def __init__(self, out: TextIO, err: TextIO, activity: Activity, status: LiveRegion | None = None) -> None:
        super().__init__(out, err, activity)
        self._status = status

    def draw(self) -> float:
        return _draw_status(self._status, self._activity, self._err) if self._status else 1.0

    def end(self) -> None:
        self.stop()
        self._out.write(harmless_json(json.dumps(self.answer.as_json(), ensure_ascii=False, indent=2)) + "\n")
        self._out.flush()

    def stop(self) -> None:
        if self._status is not None and not self._status.empty:
            self._status.draw([])


def _draw_status(region: LiveRegion, activity: Activity, stream: TextIO) -> float:
    line = activity.line(time.monotonic(), size_of(stream).columns)
    region.draw([_faint(line)] if line else [])
    return FRAME


def _faint(line: str) -> str:
    return f"\x1b[2m{line}\x1b[0m" if has_colour() else line
