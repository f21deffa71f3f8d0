"""Python libraries that talk to models, each asked as its own documentation shows, with nothing changed but the base
URL. Run in `.venv-programs` with the address of a Groundwire; prints what every one of them handed to its user.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

URL = sys.argv[1]
QUESTION = "Why is the sky blue?"
WEATHER = "Rain in Bern, and why is the sky blue?"


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: its name
    """
    return f"rain in {city}"


def pydantic_ai() -> dict[str, Any]:
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Colour(BaseModel):
        name: str
        numbers: list[int]

    def model(name: str) -> Any:
        return OpenAIChatModel(name, provider=OpenAIProvider(base_url=URL, api_key="x"))

    return {
        "searched": Agent(model("pydantic")).run_sync(QUESTION).output,
        "mixed": Agent(model("pydantic-mixed"), tools=[weather]).run_sync(WEATHER).output,
        "structured": Agent(model("pydantic-structured"), output_type=Colour).run_sync(QUESTION).output.model_dump(),
    }


def litellm_sdk() -> dict[str, Any]:
    import litellm

    def ask(name: str, **more: Any) -> Any:
        messages = [{"role": "user", "content": QUESTION}]
        return litellm.completion(f"openai/{name}", messages, api_base=URL, api_key="x", **more)

    whole = ask("litellm").choices[0].message
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask("litellm-streamed", stream=True)]
    return {
        "searched": whole.content,
        "annotations": [dict(note["url_citation"]) for note in whole.annotations],
        "streamed": "".join(pieces),
    }


def smolagents_agents() -> dict[str, Any]:
    from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

    def model(name: str) -> Any:
        return OpenAIModel(name, api_base=URL, api_key="x")

    code = CodeAgent(tools=[], model=model("smolagents-code"), max_steps=2, verbosity_level=0)
    calling = ToolCallingAgent(tools=[tool(weather)], model=model("smolagents-calls"), max_steps=3, verbosity_level=0)
    return {"code": code.run(QUESTION), "calls": calling.run(WEATHER)}


def dspy_fields() -> dict[str, Any]:
    import dspy

    dspy.configure(lm=dspy.LM("openai/dspy", api_base=URL, api_key="x", cache=False))
    said = dspy.Predict("question -> answer: str, numbers: list[int]")(question=QUESTION)
    return {"answer": said.answer, "numbers": said.numbers}


def instructor_models() -> dict[str, Any]:
    import instructor
    from openai import OpenAI
    from pydantic import BaseModel

    class Colour(BaseModel):
        name: str
        numbers: list[int]

    found = {}
    for name, mode in (("tools", instructor.Mode.TOOLS), ("json", instructor.Mode.JSON)):
        client = instructor.from_openai(OpenAI(base_url=URL, api_key="x"), mode=mode)
        messages = [{"role": "user", "content": QUESTION}]
        said = client.chat.completions.create(model=f"instructor-{name}", messages=messages, response_model=Colour)
        found[name] = said.model_dump()
    return found


def llama_index() -> dict[str, Any]:
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    def model(name: str) -> Any:
        return OpenAILike(model=name, api_base=URL, api_key="x", is_chat_model=True)

    messages = [ChatMessage(role="user", content=QUESTION)]
    return {
        "searched": model("llama").chat(messages).message.content,
        "streamed": "".join(piece.delta or "" for piece in model("llama-streamed").stream_chat(messages)),
    }


LIBRARIES = (pydantic_ai, litellm_sdk, smolagents_agents, dspy_fields, instructor_models, llama_index)


def main() -> None:
    seen: dict[str, Any] = {}
    for library in LIBRARIES:
        try:
            seen[library.__name__] = library()
        except Exception:
            seen[library.__name__] = {"error": traceback.format_exc()}
    print(json.dumps(seen))


main()
