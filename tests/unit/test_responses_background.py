"""Responses in the background without a server: what their stream says in whatever state it is cancelled, what is
stored when, and what becomes of one whose worker is gone, deaf, or whose events are not kept any more.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.dialects.responses.background import BackgroundResponses, BackgroundWriter, last_number
from proxy.dialects.responses.encoder import Encoder
from proxy.dialects.responses.exchange import Exchange
from proxy.dialects.responses.foreign_end import cancelled, last_frames
from proxy.dialects.responses.state import ResponseState
from proxy.store.journal import Journal
from proxy.store.journals import MemoryJournals
from proxy.store.store import MemoryStore
from proxy.values.errors import RequestError
from proxy.values.response_paths import is_about_stored_response
from tests.unit.responses_scripts import SCRIPTS, payloads, request, text_of

OWNER = "alice"
CUTS = [(name, cut) for name, events in SCRIPTS.items() for cut in range(len(events))]


# Which paths need no place and no tokens


@pytest.mark.parametrize(
    ("method", "path", "free"),
    [
        ("GET", "/v1/responses/resp_1a", True),
        ("DELETE", "/v1/responses/resp_1a", True),
        ("GET", "/v1/responses/resp_1a/input_items", True),
        ("POST", "/v1/responses/resp_1a/cancel", True),
        ("HEAD", "/v1/responses/resp_1a", True),
        ("POST", "/v1/responses/resp_1a", False),
        ("PUT", "/v1/responses/resp_1a", False),
        ("GET", "/v1/responses/resp_1a/cancel", False),
        ("DELETE", "/v1/responses/resp_1a/cancel", False),
        ("DELETE", "/v1/responses/resp_1a/input_items", False),
        ("GET", "/v1/responses/resp_1a/other", False),
        ("GET", "/v1/responses/resp_1a/", False),
        ("POST", "/v1/responses/of_nothing/cancel", True),
        ("POST", "/v1/responses/resp_1a/input_items", False),
        ("POST", "/v1/responses", False),
        ("POST", "/v1/responses/compact", False),
        ("POST", "/v1/responses/resp_/../../chat/completions", False),
        ("POST", "/v1/responses/resp_/../../chat/completions/cancel", False),
        ("GET", "/v1/responses/resp_1a/../../chat/completions", False),
        ("POST", "/v1/responses/", False),
        ("POST", "/v1/responses//cancel", False),
        ("GET", "/v1/responses/..", True),
        ("GET", "/v1/responses/resp_1a\n", True),
    ],
)
def test_only_what_reaches_no_model_is_free(method: str, path: str, free: bool) -> None:
    assert is_about_stored_response(method, path) is free


# What the stream says


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_waits_before_it_begins_and_is_the_same_from_then_on(name: str) -> None:
    waited = Encoder(request(background=True), "resp_1")
    sent = payloads(waited.queue() + waited.feed(SCRIPTS[name]))
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    assert [event["type"] for event in sent[:2]] == ["response.created", "response.queued"]
    assert {event["response"]["status"] for event in sent[:2]} == {"queued"}
    direct = Encoder(request(background=True), "resp_1")
    kinds = [event["type"] for event in payloads(direct.feed(SCRIPTS[name]))]
    if name == "stillborn":  # one that failed before it began never was in progress
        kinds.remove("response.in_progress")
    assert [event["type"] for event in sent[2:]] == kinds[1:]


@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_it_is_cancelled_at_every_place(name: str, cut: int) -> None:
    encoder = Encoder(request(background=True), "resp_1")
    sent = payloads(encoder.queue() + encoder.feed(SCRIPTS[name][:cut]) + encoder.cancel())
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    last = sent[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
    assert last["response"] == encoder.response
    assert not {item.get("status") for item in last["response"]["output"]} & {"in_progress", "searching"}
    assert encoder.feed(SCRIPTS[name][cut:]) == b"", "nothing comes after the end"


def test_last_frames_are_numbered() -> None:
    response = {"id": "resp_1", "status": "failed"}
    sent = payloads(last_frames(response, 7))
    assert [(event["type"], event["sequence_number"]) for event in sent] == [("error", 7), ("response.failed", 8)]
    assert last_number(last_frames(response, 7)) == 8
    (sent,) = [payloads(last_frames(cancelled(response), 7))]
    assert [(event["type"], event["sequence_number"]) for event in sent] == [("response.incomplete", 7)]
    assert sent[0]["response"] == {"id": "resp_1", "status": "cancelled"}


# What is stored


def writer_of(state: ResponseState, ancestors: list[str] | None = None) -> BackgroundWriter:
    return BackgroundWriter(state, OWNER, request(background=True), ancestors or [], [{"role": "user", "content": "?"}])


async def status(state: ResponseState, id_: str) -> str:
    return str((await state.find(OWNER, id_)).response["status"])


async def begun() -> tuple[ResponseState, BackgroundWriter, Journal]:
    state = ResponseState(MemoryStore())
    writer = writer_of(state)
    return state, writer, await writer.begin()


async def refusal(asked: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        await asked
    return caught.value.failed.status, caught.value.failed.error["code"]


async def first_of(frames: Any) -> bytes:
    return bytes(await anext(frames))


async def test_what_is_stored_says_how_far_it_is() -> None:
    state, writer, journal = await begun()
    id_ = writer.response["id"]
    assert await status(state, id_) == "queued"
    assert [item["type"] for item in await state.input_items(OWNER, id_)] == ["message"]
    events = SCRIPTS["rounds"]
    writer.write(journal, writer.feed(events[:3]))
    await writer.note()
    assert await status(state, id_) == "in_progress"
    assert not writer.over
    writer.write(journal, await writer.end(events[3:]))
    assert await status(state, id_) == "completed"
    await writer.close(journal)
    assert (await state.find(OWNER, id_)).response == writer.response
    assert len((await state.chain(OWNER, id_, "previous_response_id")).messages) > 0


async def test_an_answer_that_cannot_be_kept_can_be_read_all_the_same() -> None:
    """What it builds on is gone, so nobody may build on it."""
    state = ResponseState(MemoryStore())
    writer = writer_of(state, ["resp_gone"])
    journal = await writer.begin()
    writer.write(journal, await writer.end(SCRIPTS["plain"]))
    await writer.close(journal)
    found = (await state.find(OWNER, writer.response["id"])).response
    assert (found["status"], found["store"], text_of(found)) == ("completed", False, "Hello.")


async def test_a_request_that_is_too_large_to_be_kept() -> None:
    store = MemoryStore(max_size=10)
    assert await refusal(writer_of(ResponseState(store)).begin()) == (400, "too_large")


async def test_where_all_room_is_taken_nothing_is_begun() -> None:
    state = ResponseState(MemoryStore())
    assert isinstance(state.journals, MemoryJournals)
    state.journals.most_in_all = 1000
    writer = writer_of(state)
    with pytest.raises(RequestError) as caught:
        await writer.begin()
    failed = caught.value.failed
    assert (failed.status, failed.error["code"], failed.headers["retry-after"]) == (503, "overloaded", "5")
    assert await refusal(state.find(OWNER, writer.response["id"])) == (404, "not_found")
    assert len(state.journals) == 0


async def test_what_was_deleted_does_not_come_back() -> None:
    state, writer, journal = await begun()
    await state.delete(OWNER, writer.response["id"])
    writer.write(journal, writer.cancel())
    await writer.note()
    await writer.close(journal)
    assert await refusal(state.find(OWNER, writer.response["id"])) == (404, "not_found")


# Whose worker is gone


async def test_what_nobody_works_on_has_failed() -> None:
    state, writer, journal = await begun()
    id_ = writer.response["id"]
    await state.journals.close(journal)
    failed = (await state.find(OWNER, id_)).response
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert (await state.find(OWNER, id_)).response == failed
    assert await refusal(state.chain(OWNER, id_, "previous_response_id")) == (400, "response_failed")


async def test_who_does_not_stop_is_cancelled_over_its_head() -> None:
    state, writer, journal = await begun()
    id_ = writer.response["id"]
    responses = BackgroundResponses(state, patience=0.01)
    response = await responses.cancel(OWNER, id_)
    assert (response["status"], journal.halted) == ("cancelled", "cancelled")
    assert await status(state, id_) == "cancelled"


async def test_who_cancels_waits_until_it_has_stopped() -> None:
    state, writer, journal = await begun()
    asked = asyncio.create_task(BackgroundResponses(state).cancel(OWNER, writer.response["id"]))
    await journal.halt_asked.wait()
    frames = writer.cancel()
    await writer.note()
    writer.write(journal, frames)
    assert not asked.done()
    await writer.close(journal)
    assert await asked == writer.response


async def test_events_that_are_not_kept_any_more() -> None:
    state, writer, journal = await begun()
    id_ = writer.response["id"]
    writer.write(journal, await writer.end(SCRIPTS["plain"]))
    await writer.close(journal)
    await state.journals.drop(OWNER, id_)
    responses = BackgroundResponses(state)
    assert await refusal(first_of(responses.events(OWNER, id_, -1))) == (400, "events_not_kept")
    assert await status(state, id_) == "completed"
    assert await refusal(first_of(responses.events("bob", id_, -1))) == (404, "not_found")
    assert await refusal(responses.cancel("bob", id_)) == (404, "not_found")


async def test_one_that_was_not_made_in_the_background() -> None:
    state = ResponseState(MemoryStore())
    response = {"id": "resp_1", "status": "completed", "background": False, "output": []}
    await state.keep(OWNER, response, [], Exchange([], []), [])
    responses = BackgroundResponses(state)
    assert await refusal(responses.cancel(OWNER, "resp_1")) == (400, "invalid_value")
    assert await refusal(first_of(responses.events(OWNER, "resp_1", -1))) == (400, "invalid_value")
