"""How answers leave: what is sent and when, whatever becomes of the events, the writer and the client. The clock leaps,
so the seconds are exact.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy.serving.delivery import send_json, while_connected
from proxy.values.events import (
    Begun,
    Event,
    Failed,
    Finished,
    SearchedFirst,
    TextDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from proxy.values.request import SEARCH_HEADER
from proxy.values.sse import PING, PING_EVENT
from proxy.watching.observer import Observer
from tests.fakes.clock import in_leaping_time
from tests.fakes.delivery import DECIDED, Answer, Wire, cancelled, crashing, delivered

BUSY = Failed(429, {"message": "busy", "type": "", "param": None, "code": "busy"}, {"retry-after": "7"})
HELLO: list[Event] = [Begun("m"), TextDelta("Hello")]
END: list[Event] = [UsageSeen({"total_tokens": 3}), Finished("stop")]
BOTH_WAYS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])

# As it should be


def test_a_stream_goes_out_as_it_comes() -> None:
    wire = delivered(1.0, HELLO, 2.0, [TextDelta("you")], 3.0, END).wire
    assert wire.frames == [(1.0, b"begun\nHello\n"), (3.0, b"you\n"), (6.0, b"usageseen\nfinished\n")]
    assert wire.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        SEARCH_HEADER: DECIDED,
    }


def test_the_last_words_say_that_the_end_follows() -> None:
    wire = delivered(HELLO, 1.0, END).wire
    assert [message.get("end_follows", False) for message in wire.sent] == [False, False, True, False]


def test_so_does_an_error_that_ends_the_stream() -> None:
    wire = delivered(HELLO, 700.0, END).wire
    assert wire.frames[-1] == (600.0, b"error request_timeout\n")
    assert [message.get("end_follows", False) for message in wire.sent[-2:]] == [True, False]


def test_a_whole_answer_goes_out_in_one_piece_at_its_end() -> None:
    wire = delivered(1.0, HELLO, 60.0, [TextDelta("you")], END, stream=False).wire
    assert (wire.status, wire.body) == (200, b"all of begun Hello you usageseen finished")
    assert wire.headers[SEARCH_HEADER] == DECIDED
    assert set(wire.times) == {61.0}


def test_a_batch_that_makes_no_bytes_sends_none() -> None:
    wire = delivered(1.0, [SearchedFirst(False, "no_need")], 1.0, [*HELLO, *END]).wire
    assert [at for at, _ in wire.frames] == [2.0]


# Large pieces


def test_a_large_piece_leaves_in_parts_and_no_ping_stands_between_them() -> None:
    """A client that reads slowly has not all of it waiting for it."""
    large = "x" * 1_000_000
    wire = delivered(1.0, HELLO, 1.0, [TextDelta(large)], END, slow=30.0).wire
    sent = [data for _, data in wire.frames]
    assert max(map(len, sent)) <= 65_536
    assert (
        b"".join(data for data in sent if data != PING) == b"begun\nHello\n%b\nusageseen\nfinished\n" % large.encode()
    )
    first, last = (min(parts := [n for n, data in enumerate(sent) if b"xx" in data]), max(parts))
    assert PING not in sent[first : last + 1]


def test_where_a_large_piece_is_cut_short_what_is_said_then_is_a_frame_of_its_own() -> None:
    wire = delivered(1.0, HELLO, 1.0, [TextDelta("x" * 1_000_000)], END, slow=30.0, deadline=100.0).wire
    sent = [data for _, data in wire.frames if data != PING]
    assert sent[-1] == b"\n\nerror request_timeout\n"
    assert set(sent[-2]) == {ord("x")}


# Pings


def test_silence_is_filled_with_pings() -> None:
    wire = delivered(47.0, HELLO, 5.0, [TextDelta("you")], 25.0, END).wire
    pings = [at for at, data in wire.frames if data == PING]
    assert pings == [15.0, 25.0, 35.0, 45.0, 62.0, 72.0]
    assert wire.times[0] == 15.0, "the first of them begins the stream"
    assert [at for at, data in wire.frames if data != PING] == [47.0, 52.0, 77.0]


def test_an_api_may_have_pings_of_its_own() -> None:
    """In Anthropic's they are events; ours by default are comments, which no reader of events sees."""
    wire = delivered(17.0, HELLO, 11.0, END, ping=PING_EVENT).wire
    assert [at for at, data in wire.frames if data == PING_EVENT] == [15.0, 27.0]
    assert PING not in wire.bodies


def test_the_first_silence_is_no_longer_than_the_others() -> None:
    wire = delivered(1.0, HELLO, 25.0, END).wire
    assert [at for at, data in wire.frames if data == PING] == [11.0, 21.0]


def test_no_ping_while_something_is_sent() -> None:
    wire = delivered(14.0, HELLO, *[9.0, [TextDelta("on")]] * 20, END).wire
    assert PING not in wire.bodies


def test_no_ping_behind_the_last_words_while_the_work_ends() -> None:
    wire = delivered(HELLO, 9.0, END, 5.0).wire
    assert wire.frames == [(0.0, b"begun\nHello\n"), (9.0, b"usageseen\nfinished\n")]
    assert wire.times[-1] == 14.0


def test_no_ping_into_a_whole_answer() -> None:
    wire = delivered(100.0, HELLO, 100.0, END, stream=False).wire
    assert wire.body


def test_pings_go_on_while_the_answer_is_kept() -> None:
    async def slowly() -> None:
        await asyncio.sleep(22)

    wire = delivered(HELLO, END, keeping=slowly).wire
    assert wire.bodies == [b"begun\nHello\n", PING, PING, b"usageseen\nfinished\n", b""]


# Failures


@BOTH_WAYS
@pytest.mark.parametrize("batch", [[BUSY], [Begun("m"), BUSY]], ids=["alone", "behind its beginning"])
def test_a_failure_before_anything_was_sent_keeps_its_status(stream: bool, batch: list[Event]) -> None:
    answer = delivered(14.0, batch, stream=stream)
    assert (answer.wire.status, answer.wire.body) == (429, b'{"refused": "busy"}')
    assert answer.wire.headers["retry-after"] == "7"
    assert answer.wire.headers[SEARCH_HEADER] == DECIDED
    assert answer.observer.outcome == "busy"


def test_no_ping_comes_between_the_parts_of_a_failure() -> None:
    wire = delivered(14.0, [BUSY], slow=5.0).wire
    assert (wire.status, wire.body) == (429, b'{"refused": "busy"}')


def test_a_failure_in_a_stream_is_one_event_and_then_it_is_closed() -> None:
    answer = delivered(HELLO, 1.0, [TextDelta("you"), BUSY])
    assert answer.wire.frames == [(0.0, b"begun\nHello\n"), (1.0, b"you\nerror busy\n")]
    assert answer.observer.outcome == "busy"


def test_a_failure_behind_a_ping_is_an_event_too() -> None:
    wire = delivered(16.0, [BUSY]).wire
    assert wire.frames == [(15.0, PING), (16.0, b"error busy\n")]


def test_a_failure_in_a_whole_answer_keeps_its_status_however_late_it_comes() -> None:
    answer = delivered(HELLO, 60.0, [BUSY], stream=False)
    assert (answer.wire.status, answer.wire.body) == (429, b'{"refused": "busy"}')
    assert answer.observer.outcome == "busy"


@BOTH_WAYS
def test_time_runs_out_before_anything_was_sent(stream: bool) -> None:
    answer = delivered(14.0, HELLO, END, stream=stream, deadline=5.0)
    assert (answer.wire.status, answer.wire.body) == (504, b'{"refused": "request_timeout"}')
    assert set(answer.wire.times) == {5.0}
    assert answer.wire.headers[SEARCH_HEADER] == DECIDED
    assert answer.observer.outcome == "request_timeout"


def test_time_runs_out_in_a_stream() -> None:
    answer = delivered(1.0, HELLO, 9.0, END, deadline=5.0)
    assert answer.wire.frames == [(1.0, b"begun\nHello\n"), (5.0, b"error request_timeout\n")]
    assert answer.observer.outcome == "request_timeout"


def test_time_runs_out_in_a_stream_that_only_pinged() -> None:
    wire = delivered(60.0, HELLO, END, deadline=17.0).wire
    assert wire.frames == [(15.0, PING), (17.0, b"error request_timeout\n")]


def test_time_runs_out_in_a_whole_answer_that_had_begun() -> None:
    answer = delivered(HELLO, 60.0, END, stream=False, deadline=5.0)
    assert (answer.wire.status, answer.wire.body) == (504, b'{"refused": "request_timeout"}')


def test_time_runs_out_while_a_server_goes_on_behind_its_last_word() -> None:
    answer = delivered(HELLO, END, stream=False, deadline=5.0, closing=60.0)
    assert (answer.wire.status, answer.wire.body) == (504, b'{"refused": "request_timeout"}')
    assert set(answer.wire.times) == {5.0}


def test_a_whole_answer_has_an_end_even_if_the_model_finds_none() -> None:
    """A server may stream for ever though it was asked not to."""
    endless = [[TextDelta("word" * 25_000)]] * 1000
    answer = delivered(HELLO, *endless, END, stream=False)
    assert (answer.wire.status, answer.wire.body) == (502, b'{"refused": "upstream_bad_response"}')
    assert answer.observer.outcome == "upstream_bad_response"


# Faults of ours


def test_a_fault_in_a_stream_is_said_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    answer = delivered(HELLO, 1.0, KeyError("a bug"))
    assert answer.wire.frames == [(0.0, b"begun\nHello\n"), (1.0, b"error internal_error\n")]
    assert answer.observer.outcome == "internal_error"
    assert "KeyError: 'a bug'" in caplog.text


@BOTH_WAYS
def test_a_fault_before_anything_was_sent_is_the_edges_affair(stream: bool) -> None:
    answer = crashing(lambda: Answer(1.0, KeyError("a bug"), stream=stream), KeyError)
    assert answer.wire.sent == []


def test_a_timeout_that_is_not_ours_is_a_fault_too(caplog: pytest.LogCaptureFixture) -> None:
    """Sockets, libraries and bugs raise the same class as a deadline of ours does."""
    answer = delivered(HELLO, 1.0, TimeoutError("a socket's"))
    assert answer.wire.frames[-1] == (1.0, b"error internal_error\n")
    assert answer.observer.outcome == "internal_error"
    assert "TimeoutError: a socket's" in caplog.text


@BOTH_WAYS
def test_and_so_it_is_before_anything_was_sent(stream: bool) -> None:
    answer = crashing(lambda: Answer(1.0, TimeoutError("a socket's"), stream=stream), TimeoutError)
    assert answer.wire.sent == []


# What is kept


@BOTH_WAYS
def test_an_answer_is_kept_before_the_client_hears_of_its_end(stream: bool) -> None:
    heard: list[bool] = []
    answers: list[Answer] = []

    async def keeping() -> None:
        await asyncio.sleep(1)
        heard.append(any(b"finished" in body for body in answers[0].wire.bodies))

    async def run() -> None:
        answers.append(Answer(HELLO, END, stream=stream, keeping=keeping))
        await answers[0].deliver()

    in_leaping_time(run())
    assert heard == [False]
    assert b"finished" in answers[0].wire.bodies[-2 if stream else -1]


@BOTH_WAYS
def test_an_answer_that_fails_is_not_kept(stream: bool) -> None:
    kept: list[str] = []

    async def keeping() -> None:
        kept.append("all of it")

    delivered(HELLO, [BUSY], stream=stream, keeping=keeping)
    delivered(HELLO, 9.0, END, stream=stream, keeping=keeping, deadline=5.0)
    assert kept == []


async def failing() -> None:
    raise KeyError("a bug")


def test_a_stream_that_cannot_be_kept_does_not_look_finished() -> None:
    wire = delivered(HELLO, END, keeping=failing).wire
    assert wire.frames == [(0.0, b"begun\nHello\n"), (0.0, b"error internal_error\n")]


def test_a_whole_answer_that_cannot_be_kept_is_not_sent() -> None:
    answer = crashing(lambda: Answer(HELLO, END, stream=False, keeping=failing), KeyError)
    assert answer.wire.sent == []


# A search that came first


SEARCHING: list[Event] = [Begun(), ToolStarted("first_1", "web_search", {"query": "sky"})]
FOUND: list[Event] = [ToolFinished("first_1", "web_search", True)]


def test_a_search_that_came_first_stands_in_the_header_and_waits_for_the_model() -> None:
    wire = delivered(1.0, [SearchedFirst(True)], SEARCHING, 3.0, FOUND, 2.0, [TextDelta("Hello")], END).wire
    assert wire.headers[SEARCH_HEADER] == f"{DECIDED}; searched=first"
    held = b"begun\ntoolstarted\ntoolfinished\nHello\n"
    assert wire.frames == [(6.0, held), (6.0, b"usageseen\nfinished\n")]


def test_a_model_that_refuses_behind_a_search_keeps_its_status() -> None:
    wire = delivered([SearchedFirst(True)], SEARCHING, 3.0, FOUND, 5.0, [BUSY]).wire
    assert (wire.status, wire.headers["retry-after"]) == (429, "7")
    assert wire.headers[SEARCH_HEADER] == f"{DECIDED}; searched=first"
    assert json.loads(wire.body) == {"refused": "busy"}


@pytest.mark.parametrize("slow", ["search", "model"])
def test_what_takes_long_behind_a_search_first_is_heard_of_after_15_seconds(slow: str) -> None:
    waits = (20.0, 1.0) if slow == "search" else (1.0, 20.0)
    wire = delivered([SearchedFirst(True)], SEARCHING, waits[0], FOUND, waits[1], [BUSY]).wire
    seen = b"begun\ntoolstarted\n"
    late = [(15.0, seen), (20.0, b"toolfinished\n")] if slow == "search" else [(15.0, seen + b"toolfinished\n")]
    assert wire.frames == [*late, (21.0, b"error busy\n")]


@pytest.mark.parametrize("search", [3.0, 17.0], ids=["at_once", "behind_a_ping"])
def test_words_behind_a_search_first_are_taken_in_the_moment_in_which_they_come(search: float) -> None:
    answer = delivered([SearchedFirst(True)], SEARCHING, search, FOUND, 1.0, [TextDelta("Hello")], 1.0, END)
    assert answer.batches.asked[:1] == [search + 1.0]


def test_a_search_that_is_still_looked_for_pings_as_everything_else() -> None:
    wire = delivered([SearchedFirst(True)], 20.0, SEARCHING, FOUND, [TextDelta("Hello")], END).wire
    assert wire.frames[0] == (15.0, PING)


def test_no_search_first_changes_the_header_alone() -> None:
    wire = delivered([SearchedFirst(False, "no_need")], 3.0, [*HELLO, *END]).wire
    assert wire.headers[SEARCH_HEADER] == "off; reason=no_need"
    assert wire.times[0] == 3.0


def test_no_search_first_and_then_a_failure_keeps_its_status() -> None:
    wire = delivered([SearchedFirst(False, "no_need")], [BUSY]).wire
    assert (wire.status, wire.headers[SEARCH_HEADER]) == (429, "off; reason=no_need")


@pytest.mark.parametrize(
    ("event", "header"),
    [
        (SearchedFirst(True), f"{DECIDED}; searched=first"),
        (SearchedFirst(False, "no_need"), "off; reason=no_need"),
    ],
)
@pytest.mark.parametrize("end", [END, [BUSY]], ids=["answered", "failed"])
def test_a_whole_answer_says_it_too(event: SearchedFirst, header: str, end: list[Event]) -> None:
    wire = delivered([event], HELLO, end, stream=False).wire
    assert wire.headers[SEARCH_HEADER] == header
    assert PING not in wire.bodies


# The client leaves, and the server goes down


@BOTH_WAYS
def test_an_answer_that_is_broken_off_says_no_more(stream: bool) -> None:
    answer = cancelled(HELLO, 60.0, END, after=5.0, stream=stream)
    assert answer.wire.bodies == ([b"begun\nHello\n"] if stream else [])


def test_who_leaves_behind_the_end_has_had_all_of_it() -> None:
    answer = cancelled(HELLO, END, 60.0, after=5.0)
    assert answer.observer.outcome == "ok"


def test_a_server_that_goes_down_says_so_in_its_streams() -> None:
    answer = cancelled(HELLO, 60.0, END, after=5.0, stopping=True)
    assert answer.wire.frames == [(0.0, b"begun\nHello\n"), (5.0, b"error shutting_down\n")]
    assert answer.observer.outcome == "shutting_down"


@BOTH_WAYS
def test_a_server_that_goes_down_before_anything_was_sent_leaves_it_to_the_edge(stream: bool) -> None:
    answer = cancelled(14.0, HELLO, END, after=5.0, stopping=True, stream=stream)
    assert answer.wire.sent == []


def watched(work: Callable[[Wire], Coroutine[Any, Any, object]], leaves: float | None = None) -> tuple[Wire, Observer]:
    """Work that is done while the client is there."""

    async def run() -> tuple[Wire, Observer]:
        wire, observer = Wire(), Observer()
        if leaves is not None:
            asyncio.get_running_loop().call_later(leaves, wire.leave.set)
        await while_connected(wire.receive, work(wire), observer)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0, "our own cancellation is taken back"
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {task}, "no watcher is left behind"
        return wire, observer

    return in_leaping_time(run())


@BOTH_WAYS
def test_a_client_that_leaves_ends_its_answer(stream: bool) -> None:
    answers: list[Answer] = []

    async def work(_: Wire) -> None:
        answers.append(Answer(HELLO, 60.0, END, stream=stream))
        await answers[0].deliver()

    _, observer = watched(work, leaves=5.0)
    assert answers[0].closed
    assert b"finished" not in b"".join(answers[0].wire.bodies)
    assert observer.outcome == "client_left"


def test_a_client_that_stays_gets_all_of_it() -> None:
    wire, observer = watched(lambda wire: send_json(wire.send, 200, b"{}"))
    assert wire.body == b"{}"
    assert observer.outcome == ""


def test_a_cancellation_from_outside_passes_through() -> None:
    async def run() -> None:
        wire, observer = Wire(), Observer()
        task = asyncio.create_task(while_connected(wire.receive, asyncio.sleep(60), observer))
        asyncio.get_running_loop().call_later(5, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert observer.outcome == ""

    in_leaping_time(run())
