"""Work that is large goes on in a thread; a large text is read in pieces, and gives the same as if read whole."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.apart import WORTH_A_THREAD, apart
from providers.text.stretches import STRETCH
from proxy.answering.decoration import _highest_number, strip_decoration

BITS = ["[[1]](https://a.example/x)", "[2]", "[31, 7]", "【44】", "word ", "\n", " ", "[[", "](", "[1](", "日本"]


async def test_small_work_is_done_at_once_and_large_work_elsewhere() -> None:
    here = threading.current_thread().name
    assert await apart(WORTH_A_THREAD - 1, lambda: threading.current_thread().name) == here
    assert await apart(WORTH_A_THREAD, lambda: threading.current_thread().name) != here


async def test_what_work_raises_is_raised() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    for size in (0, WORTH_A_THREAD):
        with pytest.raises(ZeroDivisionError):
            await apart(size, fail)


@given(st.lists(st.sampled_from(BITS), max_size=60).map("".join))
@settings(max_examples=300)
def test_the_highest_number_is_the_same_in_pieces(text: str) -> None:
    whole = _highest_number(text, 0, len(text), 0)
    for before in (STRETCH - 90, STRETCH - 20):
        long = "x" * before + text
        assert _highest_number(long, 0, len(long), 0) == whole


def test_a_long_answer_of_ours_is_stripped_as_a_short_one() -> None:
    line = "Cats purr [[1]](https://a.example/x). Dogs bark [[2]](https://b.example/y).\n"
    once, often = (
        strip_decoration([{"role": "assistant", "content": line * n}], footer=False).messages[0]["content"]
        for n in (1, 4000)
    )
    assert once == "Cats purr [1]. Dogs bark [2].\n"
    assert often == once * 4000
