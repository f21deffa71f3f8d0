"""The processes in which pages are read, so that no page can stall the event loop and a stuck one can be killed.

Handed a body with its labels, hands on what `extract` gives or raises what it raises; for documents of a folder what
`providers/documents/reading.py` gives. Places are fair between callers.
A page that takes long leaves its place as soon as somebody waits for it, and is read anew among the slow ones, of which
there are few; so neither many hostile pages nor a large honest one hold up the others. One whose process died is read
anew there too, once.

Why not `multiprocessing`: it would import the caller's main module into the child, and cannot kill a single job.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import orjson

from ..deadlines import time_limit
from ..errors import PageBlocked, ProgramFailed, TimedOut, Unavailable
from ..places import Places
from .extract import Extracted
from .worker import FRAME, LONGEST_ANSWER, TAKEN

log = logging.getLogger(__name__)

_START = "import sys; sys.path[:] = sys.argv[2:]; from providers.web.worker import serve; serve(float(sys.argv[1]))"
_START_LIMIT = 20.0  # seconds, on a machine that is busy with other things
_LAST = 19  # the priority of slow pages: what the others leave over
_RAISED = {error.__name__: error for error in (PageBlocked, Unavailable)}
_BROKEN = "the page broke its reader: it is damaged, or takes too much memory"


class Workers:
    """`limit` is how many seconds a page may take, `quick` for how many it may keep others waiting. `places` are how
    many are read at once, if not as many as fit many callers."""

    def __init__(self, limit: float = 6.0, quick: float = 0.3, places: Places | None = None) -> None:
        self._limit = limit
        self._quick = quick
        self._places = places or Places(4, most_of_caller=3, most_of_request=2)
        self._slow_places = Places(2, most_of_caller=1, most_of_request=1)
        self._idle: list[_PageProcess] = []  # the last one used goes first: it is awake
        self._processes: set[_PageProcess] = set()

    async def extract(self, body: bytes, content_type: str, charset: str, url: str) -> Extracted:
        labels = {"content_type": content_type, "charset": charset, "url": url}
        return _extracted(await self._answer(_Page(body, {"task": "page", **labels})))

    async def read_document(self, path: str, body: bytes) -> Extracted:
        return _extracted(await self._answer(_Page(body, {"task": "document", "path": os.fsencode(path).hex()})))

    async def read_passages(self, path: str, body: bytes) -> dict[str, Any]:
        """The fields of an `Indexed`, as JSON has them: who asks keeps them, and makes nothing of them first."""
        answer = await self._answer(_Page(body, {"task": "passages", "path": os.fsencode(path).hex()}))
        return dict(answer)

    async def _answer(self, page: _Page) -> Any:
        async with self._places.place():
            answer = await self._read(page)
        if answer is None:
            async with self._slow_places.place():
                answer = await self._read(page, slow=True)
        if "error" in answer:
            if "stack" in answer:
                log.warning("reading a page failed: %s\n%s", answer["message"], answer["stack"])
            raise _RAISED[answer["error"]](answer["message"])
        return answer

    async def aclose(self) -> None:
        await asyncio.gather(*(process.end() for process in self._processes))
        self._processes.clear()
        self._idle.clear()

    async def _read(self, page: _Page, *, slow: bool = False) -> Any:
        """The answer, or None if the page must be read anew among the slow ones: others wait for its place, or its
        process died over it, which may have been somebody else's doing."""
        process, answer = await self._at_work(page), None
        try:
            if slow:
                process.step_back()
            async with time_limit(self._limit, _late()):
                answer = await (process.answer() if slow else self._unless_wanted(process.answer()))
            return orjson.loads(answer) if answer is not None else None
        except (asyncio.IncompleteReadError, OSError) as error:
            if slow:
                raise Unavailable(_BROKEN) from error
            return None
        finally:
            # One that still reads would answer the next page with this one; one that stepped back stays slow.
            if answer is None or slow:
                self._processes.discard(process)
                await process.end()
            else:
                self._idle.append(process)

    async def _unless_wanted(self, answering: Coroutine[Any, Any, bytes]) -> bytes | None:
        answer, wanted = asyncio.create_task(answering), asyncio.create_task(self._wanted())
        try:
            await asyncio.wait([answer, wanted], return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            answer.cancel()
            wanted.cancel()
            await asyncio.gather(answer, wanted, return_exceptions=True)  # two may not listen to one process

    async def _wanted(self) -> None:
        await asyncio.sleep(self._quick)
        await self._places.wanted()

    async def _at_work(self, page: _Page) -> _PageProcess:
        """A process that has taken the page. One that is found dead did not die of it: the next one takes the page."""
        while self._idle:
            process = self._idle.pop()
            if await self._gives(process, page):
                return process
        process = await self._started()
        if await self._gives(process, page):
            return process
        raise ProgramFailed("the program that reads pages cannot be started")

    async def _started(self) -> _PageProcess:
        try:
            process = _PageProcess(await _start(self._limit))
        except OSError as error:
            raise ProgramFailed("the program that reads pages cannot be started") from error
        self._processes.add(process)
        return process

    async def _gives(self, process: _PageProcess, page: _Page) -> bool:
        taken = False
        try:
            async with time_limit(_START_LIMIT, _late()):
                taken = await process.take(page)
        finally:
            if not taken:
                self._processes.discard(process)
                await process.end()
        return taken


def _late() -> TimedOut:
    return TimedOut("the page takes too long to read")


def _extracted(answer: Any) -> Extracted:
    return Extracted(**{**answer, "links": tuple(answer["links"])})


class _Page:
    """A page as it goes over to a process."""

    def __init__(self, body: bytes, labels: dict[str, str]) -> None:
        job = json.dumps(labels).encode()
        self.head = FRAME.pack(len(job), len(body)) + job
        self.body = body


class _PageProcess:
    """One process, one page at a time."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._jobs, self._answers = process.stdin, process.stdout

    async def take(self, page: _Page) -> bool:
        """Whether it has taken the page; not, if it is dead."""
        try:
            self._jobs.writelines((page.head, page.body))
            await self._jobs.drain()
            return await self._answers.readexactly(len(TAKEN)) == TAKEN
        except (asyncio.IncompleteReadError, OSError, RuntimeError):  # uvloop's word for a pipe that is closed
            return False

    async def answer(self) -> bytes:
        length, _ = FRAME.unpack(await self._answers.readexactly(FRAME.size))
        if length > LONGEST_ANSWER:
            raise OSError("a longer answer than any page has")
        return await self._answers.readexactly(length)

    def step_back(self) -> None:
        with suppress(AttributeError, OSError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, _LAST)

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._jobs.close()
        await self._process.communicate()


async def _start(limit: float) -> Process:
    # In a session of its own, so that a Ctrl-C at the terminal reaches only us; it leaves when its input ends.
    command = (sys.executable, "-I", "-c", _START, str(limit), *filter(None, sys.path))
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
