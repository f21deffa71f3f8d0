"""What runs in a process of its own: reading one page or document after the other, within limits of memory and time.

Handed pages on standard input until that ends, each with what is wanted of it; hands back on standard output a sign
that it has taken the page, and then what reading gave or raised. `workers` starts it and speaks to it. A page that
breaks a limit breaks the process.
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, BinaryIO

from ..documents.reading import read_document, read_passages
from ..errors import ProviderError
from .extract import extract

FRAME = struct.Struct(">II")  # the lengths of the JSON and of the body that follow it
TAKEN = b"+"  # from here on, whatever goes wrong is the page's doing
LONGEST_ANSWER = 32 << 20  # more than the longest text that `extract` gives

_MEMORY = 512 << 20
_FRESH = 160 << 20  # who holds more than this after a page makes room for a new process
_DEEPEST = 20  # calls of a stack that are told
_NICE = 5  # the server goes first


def serve(limit: float) -> None:
    """`limit` is how many seconds of CPU time a page may take."""
    _bound_process()
    jobs, answers = sys.stdin.buffer, sys.stdout.buffer
    while job := _next_job(jobs):
        answers.write(TAKEN)
        answers.flush()
        _bound_time(limit)
        answer = json.dumps(_answer(*job), ensure_ascii=False).encode("utf-8", "replace")
        answers.write(FRAME.pack(len(answer), 0) + answer)
        answers.flush()
        del job, answer
        if _held() > _FRESH:
            return


def _next_job(jobs: BinaryIO) -> tuple[dict[str, str], bytes] | None:
    head = jobs.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    length, size = FRAME.unpack(head)
    return json.loads(jobs.read(length)), jobs.read(size)


def _read_page(job: dict[str, str], body: bytes) -> Any:
    return extract(body, job["content_type"], job["charset"], job["url"])


_TASKS: dict[str, Callable[[dict[str, str], bytes], Any]] = {
    "page": _read_page,
    "document": lambda job, body: read_document(os.fsdecode(bytes.fromhex(job["path"])), body),
    "passages": lambda job, body: read_passages(os.fsdecode(bytes.fromhex(job["path"])), body),
}


def _answer(job: dict[str, str], body: bytes) -> dict[str, Any]:
    try:
        return asdict(_TASKS[job.get("task", "page")](job, body))
    except ProviderError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except MemoryError:
        return {"error": "Unavailable", "message": "the page takes more memory than reading it may"}
    except Exception as error:  # a boundary: whatever a page does to the parsers, the next page finds us at work
        # Source lines only: the text of the exception may hold what stands on the page.
        stack = "".join(traceback.format_tb(error.__traceback__, -_DEEPEST))
        message = f"the page cannot be read ({type(error).__name__})"
        return {"error": "Unavailable", "message": message, "stack": stack}


def _bound_process() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(AttributeError, OSError):
        os.nice(_NICE)
    # What a parser says when it breaks is no business of the server's log; up to here, anything may be said.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _bound_time(limit: float) -> None:
    """Counts from now on. It holds even if whoever should end us is gone."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + limit), most))


def _held() -> int:
    """The memory that this process holds now, in bytes; nothing where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
