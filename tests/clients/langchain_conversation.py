"""LangChain's ChatOpenAI in conversation: `invoke` and `stream`, over chat and over responses, where our search is
bound beside the chain's own function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conversation import CLIENT, MOST_STEPS, QUESTIONS, play, take_answer, take_call, take_search, take_usage, weather
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_openai import ChatOpenAI
from seen import Scenario, Seen

Chain = Runnable[list[BaseMessage], AIMessage]


def over_chat(model: str) -> Chain:
    return ChatOpenAI(model=model, stream_usage=True, **CLIENT).bind_tools([weather])


def over_responses(model: str) -> Chain:
    return ChatOpenAI(model=model, use_responses_api=True, **CLIENT).bind_tools([weather, {"type": "web_search"}])


def conversation(build: Callable[[str], Chain], ask: Callable[[Chain, list[BaseMessage]], AIMessage]) -> Scenario:
    async def converse(model: str, seen: Seen) -> None:
        chain = build(model)
        history: list[BaseMessage] = []
        for question in QUESTIONS:
            history.append(HumanMessage(question))
            for _ in range(MOST_STEPS):
                message = ask(chain, history)
                history.append(message)
                take_usage(seen, message.usage_metadata["total_tokens"] if message.usage_metadata else None)
                for block in blocks(message):
                    if block["type"] == "web_search_call":
                        take_search(seen, block["action"]["query"])
                for index, call in enumerate(message.tool_calls):
                    found = take_call(seen, index, call["name"], call["args"], call["id"])
                    history.append(ToolMessage(found, tool_call_id=call["id"]))
                if not message.tool_calls:
                    break
            take_answer(seen, message.text, [c for block in blocks(message) for c in block.get("annotations", ())])

    return converse


def blocks(message: AIMessage) -> list[dict[str, Any]]:
    return message.content if isinstance(message.content, list) else []


def invoke(chain: Chain, history: list[BaseMessage]) -> AIMessage:
    return chain.invoke(history)


def stream(chain: Chain, history: list[BaseMessage]) -> AIMessage:
    whole = None
    for chunk in chain.stream(history):
        whole = chunk if whole is None else whole + chunk
    return whole


if __name__ == "__main__":
    play(
        {
            "lc-invoke": conversation(over_chat, invoke),
            "lc-stream": conversation(over_chat, stream),
            "lc-responses-invoke": conversation(over_responses, invoke),
            "lc-responses-stream": conversation(over_responses, stream),
        }
    )
