"""LangChain's ChatOpenAI: `invoke` and `stream`, as a chain would use them."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_openai import ChatOpenAI
from seen import QUESTION, Seen, base_url, report

SCENARIOS = ("rounds", "letters", "function", "endless", "plain", "refused", "busy")
STREAMED = (*SCENARIOS, "usage", "death", "pings")


def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


def chat(model: str) -> Runnable[Any, AIMessage]:
    retries = {"max_retries": 0} if model.endswith("/busy") else {}
    usage = {"stream_usage": True} if model.endswith("/usage") else {}
    found = ChatOpenAI(model=model, base_url=base_url(model), api_key="sk-client", timeout=30, **retries, **usage)
    return found.bind_tools([weather]) if model.endswith("/function") else found


async def invoke(model: str, seen: Seen) -> None:
    take(seen, chat(model).invoke(QUESTION))


async def stream(model: str, seen: Seen) -> None:
    whole = None
    for chunk in chat(model).stream(QUESTION):
        seen["text"] += chunk.content
        whole = chunk if whole is None else whole + chunk
    take(seen, whole)


def take(seen: Seen, message: AIMessage) -> None:
    seen["text"] = message.content
    seen["finish"] = message.response_metadata["finish_reason"]
    seen["calls"] = [[index, call["name"], call["args"]] for index, call in enumerate(message.tool_calls)]
    seen["usages"] = [message.usage_metadata["total_tokens"]] if message.usage_metadata else []


if __name__ == "__main__":
    report({"lc-invoke": dict.fromkeys(SCENARIOS, invoke), "lc-stream": dict.fromkeys(STREAMED, stream)})
