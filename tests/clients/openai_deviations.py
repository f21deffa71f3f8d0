"""openai-python against models that deviate. Handed Groundwire's address and, as JSON on standard input, the requests;
makes several at a time, and prints what their user would have seen of each, an exception included.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk

AT_ONCE = 12

Seen = dict[str, Any]


def nothing_yet() -> Seen:
    lists: Seen = {name: [] for name in ("ids", "roles", "finishes", "calls", "citations", "usages")}
    return {"text": "", "thinking": {}, "error": None, **lists}


async def raw(client: AsyncOpenAI, asked: dict[str, Any], seen: Seen) -> None:
    async for chunk in await client.chat.completions.create(**asked, stream=True):
        take(chunk, seen)


async def helper(client: AsyncOpenAI, asked: dict[str, Any], seen: Seen) -> None:
    async with client.chat.completions.stream(**asked) as events:
        async for event in events:
            if event.type == "content.delta":
                seen["text"] += event.delta
        final = await events.get_final_completion()
    choice = final.choices[0]
    message = choice.message
    assert (message.content or "") == seen["text"]
    seen["ids"], seen["roles"], seen["finishes"] = [final.id], [message.role], [choice.finish_reason]
    seen["usages"] = [final.usage.total_tokens] if final.usage else []
    seen["citations"] = [citation.to_dict()["url_citation"] for citation in message.annotations or ()]
    seen["calls"] = [as_seen(index, call) for index, call in enumerate(message.tool_calls or ())]
    seen["thinking"] = {name: value for name, value in (message.model_extra or {}).items() if name.startswith("reas")}


def take(chunk: ChatCompletionChunk, seen: Seen) -> None:
    if chunk.id not in seen["ids"]:
        seen["ids"].append(chunk.id)
    if chunk.usage:
        assert not chunk.choices
        seen["usages"].append(chunk.usage.total_tokens)
    for choice in chunk.choices:
        delta = choice.delta
        seen["text"] += delta.content or ""
        seen["roles"] += [delta.role] if delta.role else []
        seen["finishes"] += [choice.finish_reason] if choice.finish_reason else []
        for call in delta.tool_calls or ():
            if call.index == len(seen["calls"]):
                seen["calls"].append(as_seen(call.index, call))
            else:
                assert (call.id, call.type, call.function.name) == (None, None, None), "only a first piece has these"
                seen["calls"][call.index]["arguments"] += call.function.arguments
        for name, value in (delta.model_extra or {}).items():
            if name == "annotations":
                seen["citations"] += [citation["url_citation"] for citation in value]
            else:
                old = seen["thinking"].get(name)
                seen["thinking"][name] = value if old is None else old + value


def as_seen(index: int, call: Any) -> dict[str, Any]:
    function = call.function
    return {
        "index": index,
        "id": call.id,
        "type": call.type,
        "name": function.name,
        "arguments": function.arguments,
    }


async def play(client: AsyncOpenAI, way: str, asked: dict[str, Any], seats: asyncio.Semaphore) -> Seen:
    seen = nothing_yet()
    async with seats:
        try:
            await (helper if way == "helper" else raw)(client, asked, seen)
        except Exception as error:  # whatever the client raises is what its user gets
            kinds = [kind.__name__ for kind in type(error).__mro__]
            seen["error"] = {"kinds": kinds, "message": str(error), "status": getattr(error, "status_code", None)}
    return seen


async def play_all(base_url: str, requests: dict[str, dict[str, Any]]) -> dict[str, Seen]:
    seats = asyncio.Semaphore(AT_ONCE)
    async with AsyncOpenAI(base_url=base_url, api_key="sk-client", timeout=60, max_retries=0) as client:
        plays = [play(client, request["way"], request["asked"], seats) for request in requests.values()]
        return dict(zip(requests, await asyncio.gather(*plays), strict=True))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(play_all(sys.argv[1], json.load(sys.stdin)))))
