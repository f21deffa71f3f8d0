"""A plain answer and a structured one, as the documentation of each Python client shows them. Handed the address of a
Groundwire, prints what every client gave its user, under the name of the model that it asked."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

URL = sys.argv[1]
QUESTION = "Why is the sky blue?"
CLIENT = OpenAI(base_url=URL, api_key="x", max_retries=0)


class Colour(BaseModel):
    name: str
    numbers: list[int]


def chat_plain(model: str) -> Any:
    said = CLIENT.chat.completions.create(model=model, messages=[{"role": "user", "content": QUESTION}])
    return said.choices[0].message.content


def chat_structured(model: str) -> Any:
    asked = [{"role": "user", "content": QUESTION}]
    said = CLIENT.chat.completions.parse(model=model, messages=asked, response_format=Colour, web_search_options={})
    return said.choices[0].message.parsed.model_dump()


def responses_plain(model: str) -> Any:
    return CLIENT.responses.create(model=model, input=QUESTION).output_text


def responses_structured(model: str) -> Any:
    tools = [{"type": "web_search"}]
    return CLIENT.responses.parse(
        model=model, input=QUESTION, text_format=Colour, tools=tools
    ).output_parsed.model_dump()


def langchain(model: str, responses: bool) -> ChatOpenAI:
    return ChatOpenAI(model=model, base_url=URL, api_key="x", use_responses_api=responses)


def langchain_plain(model: str, responses: bool = False) -> Any:
    return langchain(model, responses).invoke(QUESTION).text


def langchain_structured(model: str, responses: bool = False) -> Any:
    structured = langchain(model, responses).with_structured_output(Colour, method="json_schema")
    return structured.invoke(QUESTION).model_dump()


def agent(model: str, responses: bool, **more: Any) -> Any:
    kind = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
    client = AsyncOpenAI(base_url=URL, api_key="x", max_retries=0)
    return Runner.run_sync(Agent(name="a", model=kind(model, client), **more), QUESTION).final_output


def agents_plain(model: str, responses: bool = False) -> Any:
    return agent(model, responses)


def agents_structured(model: str, responses: bool = False) -> Any:
    return agent(model, responses, output_type=Colour).model_dump()


CLIENTS: dict[str, Callable[[str], Any]] = {
    "openai-chat-plain": chat_plain,
    "openai-chat-structured": chat_structured,
    "openai-responses-plain": responses_plain,
    "openai-responses-structured": responses_structured,
    "langchain-chat-plain": langchain_plain,
    "langchain-chat-structured": langchain_structured,
    "langchain-responses-plain": lambda model: langchain_plain(model, True),
    "langchain-responses-structured": lambda model: langchain_structured(model, True),
    "agents-chat-plain": agents_plain,
    "agents-chat-structured": agents_structured,
    "agents-responses-plain": lambda model: agents_plain(model, True),
    "agents-responses-structured": lambda model: agents_structured(model, True),
}


def main() -> None:
    set_tracing_disabled(True)
    seen = {}
    for name, ask in CLIENTS.items():
        try:
            seen[name] = ask(name)
        except Exception:
            seen[name] = traceback.format_exc()
    print(json.dumps(seen))


main()
