"""What the log says of a request: one line, and how it ended."""

from __future__ import annotations

import re

import httpx

from tests.fakes.groundwire import Groundwire

KEY = "sk-canary-7f3a9c1e5b8d2046a1c3e5f7092b4d6e"  # no word in it: pieces of a key are hidden too


def outcome(proxy: Groundwire, asked: httpx.Response | str) -> str:
    """Of an answered request; or of one that nobody got an answer to, by words that only its line holds."""
    words = asked if isinstance(asked, str) else asked.headers["x-request-id"]
    line = proxy.logged(words)
    log = proxy.log.read_text(errors="replace")
    assert log.count(words) == 1, "one line for each request"
    assert KEY not in log
    found = re.search(r" outcome=(\S+) ", line)
    assert found, line
    return found[1]


def figure(proxy: Groundwire, words: str, name: str) -> str:
    """A figure in the line with these words; empty where it does not stand there."""
    found = re.search(rf" {name}=(\S+) ", proxy.logged(words))
    return found[1] if found else ""
