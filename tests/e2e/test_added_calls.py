"""Calls that a client adds to a turn in which ours are hidden: the model reads them behind its own, answered once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.test_mixed_turns import ASKED, BOTH_WAYS, RESULTS, SEARCH, USER, WEATHER, ask, last_read, ran
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text

ADDED: dict[str, Any] = {"id": "mine", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
TOLD = {"role": "tool", "tool_call_id": "mine", "content": "noon"}


@BOTH_WAYS
@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_a_call_that_the_client_adds_reaches_the_model(
    proxy: Groundwire, model: ModelServer, stream: bool, first: bool
) -> None:
    model.script(Turn(calls=[SEARCH, WEATHER]), text("Yes."))
    seen = ask(proxy, [ASKED], stream=stream)
    calls = seen.message["tool_calls"]
    message = {**seen.message, "tool_calls": [ADDED, *calls] if first else [*calls, ADDED]}
    results = [TOLD, *ran(seen)] if first else [*ran(seen), TOLD]
    ask(proxy, [ASKED, message, *results], stream=stream)
    assert last_read(model) == [
        USER,
        "assistant - a=web_search b=weather mine=clock",
        RESULTS["a"],
        RESULTS["b"],
        "tool mine noon",
    ]
