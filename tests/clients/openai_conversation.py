"""openai-python in conversation: chat, whole and by the `.stream()` helper, and responses, whole and streamed, each
with `previous_response_id` and with all items sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conversation import CITY, CLIENT, MOST_STEPS, QUESTIONS, play, take_answer, take_call, take_search, take_usage
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.responses import Response
from seen import Scenario, Seen

CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]
TOOLS = [{"type": "function", "name": "weather", "parameters": CITY, "strict": False}, {"type": "web_search"}]


# Chat


def chat(ask: Callable[[OpenAI, dict[str, Any]], ChatCompletion]) -> Scenario:
    async def converse(model: str, seen: Seen) -> None:
        messages: list[Any] = []
        with OpenAI(**CLIENT) as client:
            for question in QUESTIONS:
                messages.append({"role": "user", "content": question})
                for _ in range(MOST_STEPS):
                    completion = ask(client, {"model": model, "messages": messages, "tools": CHAT_TOOLS})
                    take_usage(seen, completion.usage.total_tokens if completion.usage else None)
                    message = completion.choices[0].message
                    messages.append(message)
                    if not message.tool_calls:
                        break
                    assert completion.choices[0].finish_reason == "tool_calls"
                    messages += run_calls(seen, message)
                citations = [citation.to_dict()["url_citation"] for citation in message.annotations or ()]
                take_answer(seen, message.content, citations)

    return converse


def run_calls(seen: Seen, message: ChatCompletionMessage) -> list[dict[str, str]]:
    results = []
    for index, call in enumerate(message.tool_calls):
        found = take_call(seen, index, call.function.name, call.function.arguments, call.id)
        results.append({"role": "tool", "tool_call_id": call.id, "content": found})
    return results


def complete(client: OpenAI, asked: dict[str, Any]) -> ChatCompletion:
    return client.chat.completions.create(**asked)


def complete_streamed(client: OpenAI, asked: dict[str, Any]) -> ChatCompletion:
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        return events.get_final_completion()


# Responses


def responses(ask: Callable[[OpenAI, dict[str, Any]], Response], *, linked: bool) -> Scenario:
    """`linked` sends what is new and the id of the last response; otherwise everything is sent every time."""

    async def converse(model: str, seen: Seen) -> None:
        items: list[Any] = []
        more: dict[str, Any] = {}
        with OpenAI(**CLIENT) as client:
            for question in QUESTIONS:
                items.append({"role": "user", "content": question})
                for _ in range(MOST_STEPS):
                    response = ask(client, {"model": model, "input": items, "tools": TOOLS, **more})
                    assert response.status == "completed"
                    take_usage(seen, response.usage.total_tokens if response.usage else None)
                    results = run_items(seen, response)
                    if linked:
                        items, more = results, {"previous_response_id": response.id}
                    else:
                        items += [*response.output, *results]
                    if not results:
                        break
                parts = [p for item in response.output if item.type == "message" for p in item.content]
                take_answer(seen, response.output_text, [c.to_dict() for part in parts for c in part.annotations])

    return converse


def run_items(seen: Seen, response: Response) -> list[dict[str, str]]:
    results: list[dict[str, str]] = []
    for item in response.output:
        if item.type == "web_search_call":
            take_search(seen, item.action.query)
        elif item.type == "function_call":
            found = take_call(seen, len(results), item.name, item.arguments, item.call_id)
            results.append({"type": "function_call_output", "call_id": item.call_id, "output": found})
    return results


def respond(client: OpenAI, asked: dict[str, Any]) -> Response:
    return client.responses.create(**asked)


def respond_streamed(client: OpenAI, asked: dict[str, Any]) -> Response:
    text = ""
    with client.responses.stream(**asked) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                text += event.delta
        response = events.get_final_response()
    assert text == response.output_text
    return response


if __name__ == "__main__":
    play(
        {
            "py-create": chat(complete),
            "py-stream": chat(complete_streamed),
            "py-responses": responses(respond, linked=True),
            "py-responses-items": responses(respond, linked=False),
            "py-responses-stream": responses(respond_streamed, linked=True),
            "py-responses-stream-items": responses(respond_streamed, linked=False),
        }
    )
