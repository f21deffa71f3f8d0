"""openai-python: `create` whole and streamed, the `.stream()` helper, and the async client."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessage
from seen import QUESTION, Seen, base_url, report

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
SCENARIOS = ("rounds", "letters", "function", "endless", "plain", "usage", "refused", "busy")
STREAMED = (*SCENARIOS, "death", "pings")


def options(model: str) -> dict[str, Any]:
    """Retries are left to the client, but for the one scenario in which they are right and would only take time."""
    retries = {"max_retries": 0} if model.endswith("/busy") else {}
    return {"base_url": base_url(model), "api_key": "sk-client", "timeout": 30, **retries}


def request(model: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": QUESTION}]}
    if model.endswith("/function"):
        asked["tools"] = [WEATHER]
    return asked


def streamed(model: str) -> dict[str, Any]:
    wanted = {"stream_options": {"include_usage": True}} if model.endswith("/usage") else {}
    return {**request(model), "stream": True, **wanted}


async def create(model: str, seen: Seen) -> None:
    with OpenAI(**options(model)) as client:
        answer = client.chat.completions.create(**request(model))
    take_message(seen, answer.choices[0].message)
    seen["finish"] = answer.choices[0].finish_reason
    seen["usages"] = [answer.usage.total_tokens] if answer.usage else []


async def stream(model: str, seen: Seen) -> None:
    with OpenAI(**options(model)) as client:
        for chunk in client.chat.completions.create(**streamed(model)):
            take_chunk(seen, chunk)


async def async_stream(model: str, seen: Seen) -> None:
    async with AsyncOpenAI(**options(model)) as client:
        async for chunk in await client.chat.completions.create(**streamed(model)):
            take_chunk(seen, chunk)


async def helper(model: str, seen: Seen) -> None:
    asked = {key: value for key, value in streamed(model).items() if key != "stream"}
    with OpenAI(**options(model)) as client, client.chat.completions.stream(**asked) as events:
        for event in events:
            if event.type == "content.delta":
                seen["text"] += event.delta
        final = events.get_final_completion()
    take_message(seen, final.choices[0].message)
    seen["finish"] = final.choices[0].finish_reason
    seen["usages"] = [final.usage.total_tokens] if final.usage else []


def take_message(seen: Seen, message: ChatCompletionMessage) -> None:
    seen["text"] = message.content
    seen["citations"] = [citation.to_dict()["url_citation"] for citation in message.annotations or ()]
    calls = message.tool_calls or ()
    seen["calls"] = [[index, call.function.name, call.function.arguments] for index, call in enumerate(calls)]


def take_chunk(seen: Seen, chunk: ChatCompletionChunk) -> None:
    seen.setdefault("ids", {})[chunk.id] = True
    usages, calls = seen.setdefault("usages", []), seen.setdefault("calls", [])
    if chunk.usage:
        usages.append(chunk.usage.total_tokens)
        seen["usage_choices"] = len(chunk.choices)
    for choice in chunk.choices:
        seen["text"] += choice.delta.content or ""
        seen["finish"] = choice.finish_reason
        if annotations := getattr(choice.delta, "annotations", None):
            seen.setdefault("citations", []).extend(citation["url_citation"] for citation in annotations)
        for call in choice.delta.tool_calls or ():
            if call.id:
                calls.append([call.index, call.function.name, ""])
            calls[call.index][2] += call.function.arguments


if __name__ == "__main__":
    report(
        {
            "create": dict.fromkeys(SCENARIOS, create),
            "stream": dict.fromkeys(STREAMED, stream),
            "helper": dict.fromkeys(STREAMED, helper),
            "async": dict.fromkeys(STREAMED, async_stream),
        }
    )
