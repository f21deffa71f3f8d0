"""`extract` in processes of its own, so that no page can stall the event loop and a stuck one can be killed.

Handed a body with its labels, hands on what `extract` gives or raises what it raises. A process is started when a page
needs it, reused, and killed when a page takes too long or nobody waits for it any more; the next page starts another.

Why not `multiprocessing`: it would import the caller's main module into the child, and cannot kill a single job.
"""

from __future__ import annotations

import asyncio
import json
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import asdict
from typing import Any, BinaryIO

from ..errors import PageBlocked, ProviderError, TimedOut, Unavailable
from .extract import Extracted, extract

_FRAME = struct.Struct(">II")  # the lengths of the JSON and of the body that follow it
_START = "import sys; sys.path[:] = sys.argv[2:]; from providers.web.worker import serve; serve(float(sys.argv[1]))"
_ORPHAN = 5.0  # how long a page may go on beyond its limit if whoever should have killed it is gone
_MEMORY = 2 << 30
_PROCESSES = 2
_RAISED = {error.__name__: error for error in (PageBlocked, Unavailable)}


class Worker:
    """Two pages at a time, so that a slow one holds up nobody; who comes meanwhile waits.

    `limit` is how many seconds a page may take.
    """

    def __init__(self, limit: float = 10.0) -> None:
        self._processes = [_PageProcess(limit) for _ in range(_PROCESSES)]
        self._free: asyncio.LifoQueue[_PageProcess] = asyncio.LifoQueue()  # the last one used has its process at work
        for one in self._processes:
            self._free.put_nowait(one)

    async def extract(self, body: bytes, content_type: str, charset: str, url: str) -> Extracted:
        one = await self._free.get()
        try:
            return await one.extract(body, content_type, charset, url)
        finally:
            self._free.put_nowait(one)

    async def aclose(self) -> None:
        for one in self._processes:
            await one.aclose()


class _PageProcess:
    """One process, one page at a time."""

    def __init__(self, limit: float = 10.0) -> None:
        self._limit = limit
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def extract(self, body: bytes, content_type: str, charset: str, url: str) -> Extracted:
        job = json.dumps({"content_type": content_type, "charset": charset, "url": url}).encode()
        async with self._turn:
            try:
                async with asyncio.timeout(self._limit):
                    answer = json.loads(await self._ask(_FRAME.pack(len(job), len(body)) + job, body))
            except TimeoutError as error:
                await self._end()
                raise TimedOut("the page takes too long to read") from error
            except (asyncio.IncompleteReadError, OSError) as error:
                await self._end()
                raise Unavailable("the page broke the reader") from error
            except BaseException:  # nobody waits any more, and the answer must not be taken for the next page's
                await self._end()
                raise
        if "error" in answer:
            raise _RAISED[answer["error"]](answer["message"])
        return Extracted(answer["title"], answer["text"], answer["date"], tuple(answer["links"]))

    async def aclose(self) -> None:
        async with self._turn:
            await self._end()

    async def _ask(self, head: bytes, body: bytes) -> bytes:
        process = self._process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.writelines((head, body))
        await process.stdin.drain()
        length, _ = _FRAME.unpack(await process.stdout.readexactly(_FRAME.size))
        return await process.stdout.readexactly(length)

    async def _start(self) -> Process:
        # In a session of its own, so that a Ctrl-C at the terminal reaches only us; it leaves when its input ends.
        command = (sys.executable, "-I", "-c", _START, str(self._limit), *filter(None, sys.path))
        return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.communicate()


def serve(limit: float) -> None:
    """What the process does: reads pages from standard input until it ends."""
    _bound_memory()
    jobs, answers = sys.stdin.buffer, sys.stdout.buffer
    while job := _next_job(jobs):
        signal.setitimer(signal.ITIMER_REAL, limit + _ORPHAN)
        answer = json.dumps(_answer(*job)).encode()
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(_FRAME.pack(len(answer), 0) + answer)
        answers.flush()


def _next_job(jobs: BinaryIO) -> tuple[dict[str, str], bytes] | None:
    head = jobs.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    length, size = _FRAME.unpack(head)
    return json.loads(jobs.read(length)), jobs.read(size)


def _answer(job: dict[str, str], body: bytes) -> dict[str, Any]:
    try:
        return asdict(extract(body, job["content_type"], job["charset"], job["url"]))
    except ProviderError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except Exception as error:  # a boundary: whatever a page does to the parsers, the next page finds us at work
        return {"error": "Unavailable", "message": f"the page cannot be read ({type(error).__name__})"}


def _bound_memory() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
