"""openai-agents: `Runner.run` and `Runner.run_streamed`, with a function tool of the agent's own beside our search."""

from __future__ import annotations

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from agents.items import MessageOutputItem, ToolCallItem
from agents.result import RunResultBase
from openai import AsyncOpenAI
from openai.types.responses import ResponseOutputText
from seen import QUESTION, Seen, base_url, report

SCENARIOS = ("rounds", "letters", "function", "endless", "refused", "busy")
STREAMED = (*SCENARIOS, "death", "pings")


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


def agent(model: str) -> Agent:
    retries = {"max_retries": 0} if model.endswith("/busy") else {}
    client = AsyncOpenAI(base_url=base_url(model), api_key="sk-client", timeout=30, **retries)
    chat = OpenAIChatCompletionsModel(model=model, openai_client=client)
    return Agent(name="Helper", instructions="Be brief.", model=chat, tools=[weather])


async def run(model: str, seen: Seen) -> None:
    take(seen, await Runner.run(agent(model), QUESTION))


async def run_streamed(model: str, seen: Seen) -> None:
    result = Runner.run_streamed(agent(model), QUESTION)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            seen["text"] += event.data.delta
    take(seen, result)


def take(seen: Seen, result: RunResultBase) -> None:
    seen["text"] = result.final_output
    called = [item.raw_item for item in result.new_items if isinstance(item, ToolCallItem)]
    seen["calls"] = [[index, call.name, call.arguments] for index, call in enumerate(called)]
    messages = [item.raw_item for item in result.new_items if isinstance(item, MessageOutputItem)]
    parts = [part for message in messages for part in message.content if isinstance(part, ResponseOutputText)]
    seen["citations"] = [citation.model_dump() for part in parts for citation in part.annotations]


if __name__ == "__main__":
    set_tracing_disabled(True)
    report({"agents-run": dict.fromkeys(SCENARIOS, run), "agents-streamed": dict.fromkeys(STREAMED, run_streamed)})
