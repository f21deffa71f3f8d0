"""anthropic-python in conversation: `create` and `stream`, with the server's web search bound and without it. The whole
content of every answer goes back, as the SDK's own examples have it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
from conversation import CITY, CLIENT, MOST_STEPS, QUESTIONS, play, take_answer, take_call, take_search, take_usage
from seen import Scenario, Seen

OWN = {"name": "weather", "description": "The weather of a city.", "input_schema": CITY}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}

Ask = Callable[..., Awaitable[Any]]


def client() -> anthropic.AsyncAnthropic:
    """A new one for each question: every scenario has an event loop of its own."""
    return anthropic.AsyncAnthropic(**{**CLIENT, "base_url": CLIENT["base_url"].removesuffix("/v1")})


def conversation(ask: Ask, tools: list[dict[str, Any]]) -> Scenario:
    async def converse(model: str, seen: Seen) -> None:
        messages: list[Any] = []
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            for _ in range(MOST_STEPS):
                message = await ask(model=model, max_tokens=500, messages=messages, tools=tools)
                take_usage(seen, message.usage.input_tokens + message.usage.output_tokens)
                messages.append({"role": "assistant", "content": message.content})
                for block in message.content:
                    if block.type == "server_tool_use":
                        take_search(seen, block.input["query"])
                calls = [block for block in message.content if block.type == "tool_use"]
                assert (message.stop_reason == "tool_use") is bool(calls)
                if not calls:
                    break
                results = [take_call(seen, at, call.name, call.input, call.id) for at, call in enumerate(calls)]
                answered = zip(calls, results, strict=True)
                content = [{"type": "tool_result", "tool_use_id": call.id, "content": said} for call, said in answered]
                messages.append({"role": "user", "content": content})
            texts = [block for block in message.content if block.type == "text"]
            cited = [mark for block in texts for mark in block.citations or ()]
            assert all(0 < len(mark.cited_text) <= 150 for mark in cited)
            take_answer(seen, "".join(block.text for block in texts), [{"url": m.url, "title": m.title} for m in cited])

    return converse


async def create(**asked: Any) -> Any:
    return await client().messages.create(**asked)


async def stream(**asked: Any) -> Any:
    async with client().messages.stream(**asked) as answer:
        text = "".join([piece async for piece in answer.text_stream])
        message = await answer.get_final_message()
    assert text == "".join(block.text for block in message.content if block.type == "text")
    return message


play(
    {
        "py-messages-create": conversation(create, [OWN]),
        "py-messages-stream": conversation(stream, [OWN]),
        "py-messages-create-tool": conversation(create, [OWN, SEARCH]),
        "py-messages-stream-tool": conversation(stream, [OWN, SEARCH]),
    }
)
