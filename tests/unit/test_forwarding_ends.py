"""How forwarded answers end before their end: time that runs out, a server that goes down, clients that leave. The
clock leaps, so the seconds are exact.
"""

from __future__ import annotations

import asyncio
import gc
import json

import pytest

from providers.web.answer import Take
from proxy.values.sse import DONE
from proxy.watching.steps import Forwarded, ModelLeft, Tokens
from tests.fakes.forwarding import (
    ANSWER,
    CUT,
    FINISH,
    HELLO,
    ROLE,
    ScriptedBody,
    ScriptedUpstream,
    cancelled,
    error,
    forwarded,
    forwarded_by,
    reply,
)


def test_time_runs_out_before_anything_was_sent() -> None:
    for stream in (True, False):
        made = forwarded(reply(ANSWER, awaited=60.0), deadline=5.0, stream=stream)
        assert (made.wire.status, json.loads(made.wire.body)["error"]["code"]) == (504, "request_timeout")
        assert set(made.wire.times) == {5.0}
        assert made.observer.outcome == "request_timeout"


def test_time_runs_out_in_a_stream() -> None:
    made = forwarded(reply(ROLE, HELLO, 60.0, FINISH), deadline=5.0)
    assert error(made.wire.bodies[-2])["code"] == "request_timeout"
    assert made.wire.times[-1] == 5.0


def test_time_that_runs_out_behind_done_changes_nothing() -> None:
    made = forwarded(reply(4.99, ANSWER, 60.0), deadline=5.0)
    assert made.wire.frames == [(4.99, ANSWER)]
    assert made.observer.outcome == "ok"


def test_a_server_that_goes_down_says_so_in_its_streams() -> None:
    made = cancelled(reply(ROLE, HELLO, 60.0), after=5.0, stopping=True)
    assert error(made.wire.bodies[-2])["code"] == "shutting_down"
    assert cancelled(reply(ROLE, awaited=60.0), after=5.0, stopping=True).wire.sent == []


def test_the_tokens_of_an_answer_that_broke_off_are_known() -> None:
    counted = HELLO.replace(b'"choices"', b'"usage":{"prompt_tokens":7,"completion_tokens":1},"choices"')
    left = cancelled(reply(ROLE, counted, 60.0, HELLO), after=5.0)
    assert left.steps(ModelLeft) == [ModelLeft("up0", Tokens(7, 1))]
    assert left.steps(Forwarded) == []
    assert left.wire.bodies == [ROLE, counted]
    broke = forwarded(reply(ROLE, counted, CUT))
    assert broke.steps(ModelLeft) == [ModelLeft("up0", Tokens(7, 1))]
    assert forwarded(reply(ROLE, counted, FINISH, DONE)).steps(ModelLeft) == []


class LeftMeanwhile(ScriptedBody):
    """Its client leaves in the moment in which a piece is on its way out."""

    async def feed(self, take: Take) -> bool:
        assert not take(await self.read())
        raise asyncio.CancelledError


class LeftUpstream(ScriptedUpstream):
    body = LeftMeanwhile


def test_nobody_waits_for_a_piece_whose_client_leaves_while_it_goes_out() -> None:
    upstream = LeftUpstream(reply(ROLE, HELLO, FINISH))
    with pytest.raises(asyncio.CancelledError):
        forwarded_by(upstream, slow=1.0)
    gc.collect()  # what was to be awaited, and was not, would say so here
    assert upstream.open == 0


def test_who_leaves_behind_done_has_had_all_of_it() -> None:
    made = cancelled(reply(ANSWER, 60.0), after=0.02)
    assert made.observer.outcome == "ok"
