"""Ids that are made many at once: no two are the same, in no process."""

from __future__ import annotations

import os
import re

from providers.random_ids import random_id


def test_no_two_are_the_same() -> None:
    made = [random_id() for _ in range(2000)]
    assert len(set(made)) == 2000
    assert all(re.fullmatch(r"[0-9a-f]{24}", each) for each in made)


def test_two_processes_make_different_ones() -> None:
    random_id()  # so that there is a stock that both could draw from
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, "".join(random_id() for _ in range(300)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 300 * 24).decode()
    os.close(reading)
    os.close(writing)
    assert not {theirs[at : at + 24] for at in range(0, len(theirs), 24)} & {random_id() for _ in range(300)}
