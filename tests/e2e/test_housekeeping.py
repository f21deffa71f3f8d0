"""What clients ask for themselves, on its way to the model: nothing of ours in it."""

from __future__ import annotations

import json

import httpx

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, text


def test_what_a_client_asks_for_itself_goes_up_as_it_is(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue sky"))
    title = "### Task:\nGenerate a concise, 3-5 word title.\n<chat_history>\nUSER: Why?\n</chat_history>"
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": title}]}).encode()
    answer = httpx.post(
        f"{proxy.url}/chat/completions", content=raw, headers={"content-type": "application/json"}, timeout=20
    )
    assert answer.headers["x-groundwire-search"] == "off; reason=background"
    assert model.raw == [raw]


def test_codex_compacts_without_a_search(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("So far: …"))
    asked = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary."
    turns = [{"role": "user", "content": "Update it."}, {"role": "assistant", "content": "Done."}]
    body = {"model": "m", "instructions": "You are Codex.", "input": [*turns, {"role": "user", "content": asked}]}
    answer = httpx.post(f"{proxy.url}/responses", json={**body, "tools": [], "store": False}, timeout=20)
    assert answer.headers["x-groundwire-search"] == "off; reason=background"
    assert "tools" not in model.requests[0]
