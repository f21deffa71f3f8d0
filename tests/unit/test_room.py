"""How much a model can be handed: what is counted, what is left, and what is learned from a model's own counting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.answering.room import CAUTIOUS, room_for
from proxy.upstreams.failures import is_overflow, tokens_refused
from proxy.upstreams.learned import Learned, rate_in
from proxy.values.estimates import likely_tokens
from proxy.values.events import Failed


def body(*texts: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts], **more}


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("word", 1), ("word " * 100, 125), ("空が青い", 4), ("небо", 2), ("空 sky", 2)]
)
def test_likely_tokens_by_script(text: str, tokens: float) -> None:
    assert likely_tokens(text) == tokens


@given(st.text(), st.text())
def test_tokens_add_up(one: str, two: str) -> None:
    assert likely_tokens(one + two) == pytest.approx(likely_tokens(one) + likely_tokens(two))


def test_what_the_conversation_and_the_answer_take_is_not_left() -> None:
    free = room_for(body("hi", max_tokens=100), 4096, 1.0).left
    assert free == pytest.approx(4096 * 0.97 - 100 - 8 - 0.5)
    assert room_for(body("hi", max_tokens=600), 4096, 1.0).left == free - 500
    assert room_for(body("hi", max_completion_tokens=600), 4096, 1.0).left == free - 500
    assert room_for(body("x" * 4000, "hi", max_tokens=100), 4096, 1.0).left == pytest.approx(free - 1008)
    assert room_for(body("hi", max_tokens=100), 4096, 2.0).left < free
    assert room_for(body("hi"), 4096, 1.0).left == free + 100 - 1024
    assert room_for(body("hi"), 2048, 1.0).left == pytest.approx(2048 * 0.97 - 512 - 8.5)


def test_a_model_that_has_not_counted_yet_is_handed_less() -> None:
    assert room_for(body("hi"), 4096, 0.0).rate == CAUTIOUS


def test_where_nobody_knows_the_context_everything_fits() -> None:
    room = room_for(body("x" * 100_000), 0, 2.0)
    assert room.holds("y" * 1_000_000)
    assert room.for_passages > 0


def test_a_picture_takes_room_though_it_is_no_text() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, picture, picture]}]}
    assert room_for(asked, 8192, 1.0).left == room_for(body("hi"), 8192, 1.0).left - 2000


def test_too_little_room_is_none() -> None:
    assert room_for(body("x" * 12_000), 4096, 1.0).for_passages == 0
    assert room_for(body("x" * 40_000), 4096, 1.0).for_passages == 0


@given(st.text(max_size=200), st.integers(0, 200_000), st.floats(0.3, 4.0), st.text(max_size=2000))
def test_what_fits_leaves_the_answer_its_place(said: str, context: int, rate: float, sources: str) -> None:
    room = room_for(body(said, max_tokens=50), context, rate)
    if room.bounded and room.holds(sources):
        assert (likely_tokens(said) + likely_tokens(sources)) * rate + 50 <= context


# What is learned


def test_the_rate_is_what_the_model_counted_for_what_is_likely() -> None:
    assert rate_in(body("word " * 100), 250) == 2.0
    assert rate_in(body("word " * 10), 50) == 0.0, "the template weighs too much in it"
    assert rate_in(body("word " * 100), 12_000) == 0.0
    assert rate_in(body("word " * 100, tools=[{}]), 250) == 0.0
    image = {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "word " * 100}]}
    assert rate_in({"messages": [image]}, 250) == 0.0
    assert (
        rate_in({"messages": [{"role": "assistant", "tool_calls": [{}]}, *body("word " * 100)["messages"]]}, 250) == 0
    )
    assert rate_in({}, 250) == rate_in({"messages": [7]}, 250) == 0.0


def test_it_is_kept_and_one_odd_request_does_not_turn_it_over() -> None:
    learned = Learned(lambda: 0.0)
    assert learned.of("m").rate == 0.0
    learned.keep_rate("m", 1.0)
    learned.keep_rate("m", 3.0)
    assert (learned.of("m").rate, learned.of("other").rate) == (2.0, 0.0)


# Overflows, in servers' own words


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "request (4250 tokens) exceeds the available context size (4096 tokens), try increasing it"}),
        (400, {"message": "This model's maximum context length is 4096 tokens. However, you requested 5000."}),
        (400, {"message": "no", "code": "context_length_exceeded"}),
        (400, {"message": "no", "type": "exceed_context_size_error"}),
        (400, {"message": "prompt is too long: 210000 tokens > 200000 maximum"}),
        (400, {"message": "The input token count (5000) exceeds the maximum number of tokens allowed (4096)."}),
        (413, {"message": "Request too large for model: too many tokens"}),
        (500, {"message": "input is too large to process. increase the physical batch size: prompt too long"}),
        (422, {"message": "`inputs` tokens + `max_new_tokens` must be <= 4096; input length exceeds it"}),
    ],
)
def test_an_overflow_is_known(status: int, error: dict[str, str]) -> None:
    assert is_overflow(Failed(status, error))


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ("request (4250 tokens) exceeds the available context size (4096 tokens), try increasing it", 4250),
        ("This model's maximum context length is 4096 tokens. However, your messages resulted in 4250 tokens.", 4250),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 4550 tokens (4250 in the "
            "messages, 300 in the completion).",
            4250,
        ),
        ("prompt is too long: 4250 tokens > 4096 maximum", 4250),
        ("The input token count (4250) exceeds the maximum number of tokens allowed (4096).", 4250),
        ("This model's maximum context length is 4096 tokens.", 0),
        ("your messages resulted in 4250 tokens", 0),
    ],
)
def test_a_refusal_may_say_what_was_counted(message: str, tokens: int) -> None:
    assert tokens_refused(Failed(400, {"message": message})) == tokens


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "no such model"}),
        (429, {"message": "rate limit: too many tokens per minute"}),
        (401, {"message": "prompt is too long"}),
        (400, {"message": None}),
        (500, {"message": "broken"}),
        (400, {"message": "max_tokens is too large: 99999. This model supports at most 4096 completion tokens"}),
    ],
)
def test_other_refusals_are_none(status: int, error: dict[str, Any]) -> None:
    assert not is_overflow(Failed(status, error))


SAID = [
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
    "Please reduce the length of the messages or completion.",
    "Token limit exceeded",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Range of input length should be [1, 30720]",
    "Input length and `max_tokens` exceed context limit",
    "context shift is disabled",
]


@pytest.mark.parametrize("message", SAID)
def test_vendors_say_it_in_many_words(message: str) -> None:
    assert is_overflow(Failed(400, {"message": message}))
