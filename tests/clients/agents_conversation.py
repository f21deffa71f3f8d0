"""openai-agents in conversation: `Runner.run` and `Runner.run_streamed`, on a chat model and on a responses model,
where the hosted search tool stands beside the agent's own function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    WebSearchTool,
    function_tool,
    set_tracing_disabled,
)
from agents.items import MessageOutputItem, ToolCallItem
from agents.result import RunResultBase
from conversation import CLIENT, MOST_STEPS, QUESTIONS, play, take_answer, take_call, take_search, take_usage, weather
from openai import AsyncOpenAI
from seen import Scenario, Seen

Ask = Callable[[Agent, list[Any]], Awaitable[RunResultBase]]


def over_chat(model: str) -> Agent:
    chat = OpenAIChatCompletionsModel(model=model, openai_client=AsyncOpenAI(**CLIENT))
    settings = ModelSettings(include_usage=True)
    return Agent(name="Helper", model=chat, model_settings=settings, tools=[function_tool(weather)])


def over_responses(model: str) -> Agent:
    responses = OpenAIResponsesModel(model=model, openai_client=AsyncOpenAI(**CLIENT))
    return Agent(name="Helper", model=responses, tools=[function_tool(weather), WebSearchTool()])


def conversation(build: Callable[[str], Agent], ask: Ask) -> Scenario:
    async def converse(model: str, seen: Seen) -> None:
        agent = build(model)
        items: list[Any] = []
        for question in QUESTIONS:
            result = await ask(agent, [*items, {"role": "user", "content": question}])
            items = result.to_input_list()
            take(seen, result)

    return converse


def take(seen: Seen, result: RunResultBase) -> None:
    """The runner has run the function itself: what it was asked is told again here."""
    for response in result.raw_responses:
        take_usage(seen, response.usage.total_tokens)
    called = [item.raw_item for item in result.new_items if isinstance(item, ToolCallItem)]
    for search in (call for call in called if call.type == "web_search_call"):
        take_search(seen, search.action.query)
    for index, call in enumerate(call for call in called if call.type == "function_call"):
        take_call(seen, index, call.name, call.arguments, call.call_id)
    messages = [item.raw_item for item in result.new_items if isinstance(item, MessageOutputItem)]
    citations = [c.model_dump() for message in messages for part in message.content for c in part.annotations]
    take_answer(seen, result.final_output, citations)


async def run(agent: Agent, items: list[Any]) -> RunResultBase:
    return await Runner.run(agent, items, max_turns=MOST_STEPS)


async def run_streamed(agent: Agent, items: list[Any]) -> RunResultBase:
    result = Runner.run_streamed(agent, items, max_turns=MOST_STEPS)
    async for _ in result.stream_events():
        pass
    return result


if __name__ == "__main__":
    set_tracing_disabled(True)
    play(
        {
            "agents-run": conversation(over_chat, run),
            "agents-streamed": conversation(over_chat, run_streamed),
            "agents-responses-run": conversation(over_responses, run),
            "agents-responses-streamed": conversation(over_responses, run_streamed),
        }
    )
