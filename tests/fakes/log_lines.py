"""The log of a running Groundwire, as an operator reads it: the line that holds some words, and what it says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from tests.fakes.groundwire import Groundwire

T = TypeVar("T")


def eventually(find: Callable[[], T]) -> T:
    """What `find` finds as soon as there is something: a line may be written a moment after the answer is sent."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if found := find():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def line(proxy: Groundwire, words: str) -> str:
    """The first line that holds them, once it is there to its end."""

    def find() -> str:
        lines = proxy.log.read_text(errors="replace").splitlines(keepends=True)
        return next((found for found in lines if words in found and found.endswith("\n")), "")

    return eventually(find)


def entry(proxy: Groundwire, answer: httpx.Response) -> dict[str, Any]:
    """What the log, as JSON, says of the request that was answered with this."""
    said: dict[str, Any] = json.loads(line(proxy, answer.headers["x-request-id"]))
    assert 0 <= said.get("first_content", 0) <= said["seconds"]
    return said
