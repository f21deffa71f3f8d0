"""Requests that stay under way for as long as a test wants: streams whose model has said a word and says no more.
Handed a running Groundwire; each has begun when it is handed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import Turn, text
from tests.fakes.samples import Samples

HELD = "held"  # the model that plays this part
HELD_TURN: Turn = text("word ", "word ", end="hang", finish=None, usage=None)


@contextmanager
def held(
    proxy: Groundwire, count: int, headers: dict[str, str] | None = None, **fields: Any
) -> Iterator[list[ExitStack]]:
    """Each of them ends when its stack is closed, at the latest with the context."""
    body = {"model": HELD, "messages": [{"role": "user", "content": "Go on."}], "stream": True, **fields}
    with ExitStack() as all_of_them:
        streams = []
        for _ in range(count):
            stack = all_of_them.enter_context(ExitStack())
            url = f"{proxy.url}/chat/completions"
            answer = stack.enter_context(httpx.stream("POST", url, json=body, headers=headers, timeout=20))
            assert answer.status_code == 200
            pieces = answer.iter_text()
            stack.callback(pieces.close)  # type: ignore[attr-defined]  # forgotten, it would end the answer
            said = ""
            while "word" not in said:
                said += next(pieces)
            streams.append(stack)
        yield streams


def waiting(proxy: Groundwire, headers: dict[str, str] | None = None) -> float:
    """How many wait to be let in."""
    answer = httpx.get(f"{proxy.root}/metrics", headers=headers, timeout=20)
    return Samples(answer.content)("groundwire_waiting")
