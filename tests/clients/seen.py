"""What a client saw, as one line of JSON. Handed the scenarios of one client, by name; plays each in turn, on the model
that is called after the client and the scenario, and prints what came out, an exception included.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

QUESTION = "Why is the sky blue?"
BASE_URL, PINGED_URL = sys.argv[1:3]

Seen = dict[str, Any]
Scenario = Callable[[str, Seen], Awaitable[None]]


def base_url(model: str) -> str:
    """Where a scenario is played: through Groundwire, or on a recorded stream that is full of pings."""
    return PINGED_URL if model.endswith("/pings") else BASE_URL


def report(clients: Mapping[str, Mapping[str, Scenario]]) -> None:
    print(json.dumps(asyncio.run(_play_all(clients))))


async def _play_all(clients: Mapping[str, Mapping[str, Scenario]]) -> dict[str, Seen]:
    return {
        f"{client}/{name}": await _play(f"{client}/{name}", scenario)
        for client, scenarios in clients.items()
        for name, scenario in scenarios.items()
    }


async def _play(model: str, scenario: Scenario) -> Seen:
    seen: Seen = {"text": "", "error": None}
    try:
        await scenario(model, seen)
    except Exception as error:  # whatever a client raises is what its user gets, so it is part of the report
        kinds = [kind.__name__ for kind in type(error).__mro__]
        details = {name: getattr(error, name, None) for name in ("status_code", "code", "request_id")}
        seen["error"] = {"kinds": kinds, "message": str(error), **details}
    return seen
