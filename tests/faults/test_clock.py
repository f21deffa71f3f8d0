"""The clock of the machine jumps, by hours, days and months, forward and back: limits per minute and answers under way
do not notice, a day's budget is counted under its day, and nobody is locked out when the clock is right again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, text
from tests.faults.asking import QUESTION, ask, error_of, road_headers
from tests.faults.table import BOTH, fault

DAY = 86_400
JUMPS = (3600, -3600, DAY, -DAY, 40 * DAY, -400 * DAY)
# The console script, on a clock that is as wrong as a file says.
CODE = """
import sys, time
right, place = time.time, sys.argv.pop(1)
time.time = lambda: right() + float(open(place).read())
from proxy.cli.main import main
sys.exit(main())
"""


class OnAWrongClock(Groundwire):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config, script=True)
        self._wrong = Path(self.log.with_name("wrong"))
        self._command = [sys.executable, "-c", CODE, str(self._wrong), *self._command[1:]]
        self.jump(0)

    def jump(self, seconds: float) -> None:
        """From now on the clock is that wrong."""
        written = self._wrong.with_suffix(".new")
        written.write_text(str(seconds))
        written.rename(self._wrong)


def keys(road: str) -> list[dict[str, Any]]:
    soon = (datetime.now(UTC) + timedelta(days=10)).date().isoformat()
    return [
        {"key": f"key-minute-{road}", "name": f"minute-{road}", "requests_per_minute": 1},
        {"key": f"key-day-{road}", "name": f"day-{road}", "budget": {"day": {"tokens": 15}}},
        {"key": f"key-soon-{road}", "name": f"soon-{road}", "expires": soon},
        {"key": f"key-free-{road}", "name": f"free-{road}"},
    ]


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[OnAWrongClock]:
    with OnAWrongClock({**config, "server": {"keys": [key for road in BOTH for key in keys(road)]}}) as running:
        yield running


def asked(proxy: Groundwire, road: str, name: str) -> httpx.Response:
    """An answer, and its end: what it cost is counted a moment after its last byte is sent."""
    answer = ask(proxy, road, headers={"authorization": f"Bearer key-{name}-{road}"})
    proxy.logged(answer.headers["x-request-id"])
    return answer


@fault(83, *BOTH)
def test_a_limit_per_minute_neither_opens_nor_locks(proxy: OnAWrongClock, model: ModelServer, road: str) -> None:
    model.script(text("Blue."))
    assert asked(proxy, road, "minute").status_code == 200
    began = time.monotonic()
    for wrong in (*JUMPS, 0):
        proxy.jump(wrong)
        refused = asked(proxy, road, "minute")
        if time.monotonic() - began > 50:
            pytest.skip("this machine is too slow: the minute is over")
        assert refused.status_code == 429, wrong
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert error_of(refused)["code"] == "rate_limit_exceeded"


@fault(83, *BOTH)
def test_a_budget_is_counted_under_its_day(proxy: OnAWrongClock, model: ModelServer, road: str) -> None:
    model.script(text("Blue."))
    assert asked(proxy, road, "day").status_code == 200
    for wrong in JUMPS[2:]:
        proxy.jump(wrong)
        assert [asked(proxy, road, "day").status_code for _ in range(2)] == [200, 429], "one answer, on each day"
        proxy.jump(0)
        assert asked(proxy, road, "day").status_code == 429, "its own day was used up before"


@fault(83, *BOTH)
def test_no_key_is_lost_when_the_clock_is_right_again(proxy: OnAWrongClock, model: ModelServer, road: str) -> None:
    model.script(text("Blue."))
    proxy.jump(40 * DAY)
    assert asked(proxy, road, "soon").status_code == 401
    proxy.jump(0)
    assert asked(proxy, road, "soon").status_code == 200


@fault(83, *BOTH)
def test_an_answer_under_way_does_not_notice(proxy: OnAWrongClock, model: ModelServer, road: str) -> None:
    model.script(text(*["word "] * 20, delay=0.02))
    body = {"model": "m", "messages": [QUESTION], "stream": True}
    headers = {"authorization": f"Bearer key-free-{road}", **road_headers(road)}
    with httpx.stream("POST", f"{proxy.url}/chat/completions", json=body, headers=headers, timeout=20) as answer:
        seen = ""
        for number, line in enumerate(answer.iter_lines()):
            seen += line
            proxy.jump(JUMPS[number % len(JUMPS)])
    proxy.jump(0)
    assert seen.count("word ") == 20
    assert seen.endswith("data: [DONE]")
    logged = proxy.logged(answer.headers["x-request-id"])
    assert "outcome=ok" in logged
    assert 0 <= float(logged.partition("seconds=")[2].split()[0]) < 60
