"""openai-python with responses in the background: begun at one server and taken up at another, by polling, by a stream
that goes on after an event, and cancelled. Handed the addresses of both; prints what its user saw.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from openai import BadRequestError, OpenAI

QUESTION = "Why is the sky blue?"
ONE, OTHER = (OpenAI(base_url=url, api_key="sk-client", timeout=30, max_retries=0) for url in sys.argv[1:3])


def polled() -> dict[str, Any]:
    response = ONE.responses.create(model="quick", input=QUESTION, background=True)
    began = response.status
    while response.status in ("queued", "in_progress"):
        time.sleep(0.05)
        response = OTHER.responses.retrieve(response.id)
    return {"began": began, "status": response.status, "text": response.output_text, "background": response.background}


def taken_up() -> dict[str, Any]:
    """The stream breaks off after its first word."""
    kinds, text, number, id_ = [], "", -1, ""
    with ONE.responses.create(model="quick", input=QUESTION, background=True, stream=True) as stream:
        for event in stream:
            kinds.append(type(event).__name__)
            number = event.sequence_number
            if event.type == "response.created":
                id_ = event.response.id
            if event.type == "response.output_text.delta":
                text += event.delta
                break
    numbers = []
    for event in OTHER.responses.retrieve(id_, stream=True, starting_after=number):
        numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            text += event.delta
        last = event
    in_order = numbers == list(range(number + 1, number + 1 + len(numbers)))
    return {"kinds": kinds[:3], "text": text, "last": last.type, "whole": last.response.output_text, "order": in_order}


def cancelled() -> dict[str, Any]:
    response = ONE.responses.create(model="held", input=QUESTION, background=True)
    stream = OTHER.responses.retrieve(response.id, stream=True)
    for event in stream:
        if event.type == "response.output_text.delta":
            break
    statuses = [client.responses.cancel(response.id).status for client in (OTHER, ONE)]
    last = list(stream)[-1]
    return {"statuses": statuses, "last": last.type, "status": last.response.status}


def refused() -> list[Any]:
    id_ = ONE.responses.create(model="quick", input=QUESTION).id
    said: list[Any] = []
    for ask in (
        lambda: ONE.responses.cancel(id_),
        lambda: ONE.responses.retrieve(id_, stream=True),
        lambda: ONE.responses.create(model="quick", input=QUESTION, background=True, store=False),
    ):
        try:
            ask()
        except BadRequestError as error:
            said.append([error.status_code, error.param])
    return said


if __name__ == "__main__":
    played = {"polled": polled(), "taken up": taken_up(), "cancelled": cancelled(), "refused": refused()}
    print(json.dumps(played))
