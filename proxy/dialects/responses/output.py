"""What a response is made of: stretches of text, calls of the client's tools, and our own searches and pages, each
with a place in the output. Handed pieces by the encoder; hands on items as they stand, and the usage as Responses
counts it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal

import orjson

from providers.records import dataclass
from tools.ledger import Source
from tools.toolbox import tool_named

from ...values.events import Citation, ToolStarted
from ...values.messages import arguments_of
from ..proof_fields import proof_fields
from .custom_input import CustomInput, sound_arguments
from .declared_tools import DeclaredTool

Kind = Literal["output_text", "refusal", "reasoning"]

_NO_IMAGES = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "total_tokens": 0,
}


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


@dataclass(slots=True)
class Said:
    """A stretch of text: a message with an answer or a refusal in it, or thinking.

    Thinking is shown as a summary, not as `reasoning_text`: the AI SDK and LangChain read nothing else, and all others
    read both.
    """

    kind: Kind
    index: int
    start: int  # where it begins, in code points over the whole answer
    text: list[str] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    status: str = "in_progress"
    id: str = field(init=False)
    part_event: str = field(init=False)  # what the events of its one part are called, and those of the part's text
    text_event: str = field(init=False)
    place: dict[str, Any] = field(init=False)
    logprobs: dict[str, Any] = field(init=False)
    delta: bytes = field(init=False)  # an event with more of its text, up to that text

    def __post_init__(self) -> None:
        thought = self.kind == "reasoning"
        self.id = new_id("rs" if thought else "msg")
        self.part_event = "response.reasoning_summary_part" if thought else "response.content_part"
        self.text_event = "response.reasoning_summary_text" if thought else f"response.{self.kind}"
        self.place = {
            "item_id": self.id,
            "output_index": self.index,
            "summary_index" if thought else "content_index": 0,
        }
        self.logprobs = {"logprobs": []} if self.kind == "output_text" else {}
        fields = orjson.dumps({"type": f"{self.text_event}.delta", **self.place, **self.logprobs})
        self.delta = b'event: %b.delta\ndata: %b,"delta":' % (self.text_event.encode(), fields[:-1])

    @property
    def said(self) -> dict[str, Any]:
        return {"refusal" if self.kind == "refusal" else "text": "".join(self.text)}

    def cite(self, citation: Citation) -> dict[str, Any]:
        annotation = {
            "type": "url_citation",
            "start_index": max(citation.start - self.start, 0),
            "end_index": max(citation.end - self.start, 0),
            "url": citation.source.url,
            "title": citation.source.title,
            **proof_fields(citation),
        }
        self.annotations.append(annotation)
        return annotation

    def part(self) -> dict[str, Any]:
        if self.kind == "output_text":
            return {"type": self.kind, **self.said, "annotations": list(self.annotations), "logprobs": []}
        return {"type": "summary_text" if self.kind == "reasoning" else "refusal", **self.said}

    def item(self) -> dict[str, Any]:
        begun = [self.part()] if self.text or self.status != "in_progress" else []
        if self.kind == "reasoning":
            return {"id": self.id, "type": "reasoning", "summary": begun, "encrypted_content": None}
        return {"id": self.id, "type": "message", "status": self.status, "role": "assistant", "content": begun}


@dataclass(slots=True)
class Called:
    """A call of one of the client's functions."""

    index: int
    call_id: str
    tool: DeclaredTool
    id: str = field(default_factory=lambda: new_id("fc"))
    status: str = "in_progress"
    arguments: list[str] = field(default_factory=list)

    event: ClassVar[str] = "response.function_call_arguments"

    @property
    def place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index}

    @property
    def whole(self) -> dict[str, Any]:
        """What the event says that ends it."""
        return {"arguments": "".join(self.arguments), "name": self.tool.name}

    def write(self, arguments: str) -> str:
        """More of the arguments; hands on what the client is told of them."""
        self.arguments.append(arguments)
        return arguments

    def end(self) -> str:
        """What the client must still be told."""
        return ""

    def told(self, arguments: str) -> str:
        """The arguments that the model wrote, as it is told them again."""
        return arguments

    def item(self) -> dict[str, Any]:
        whole = {"id": self.id, "type": "function_call", "status": self.status, "call_id": self.call_id}
        named = {"name": self.tool.name, **self._namespace(), "arguments": "".join(self.arguments)}
        return {**whole, **named}

    def _namespace(self) -> dict[str, Any]:
        return {"namespace": self.tool.namespace} if self.tool.namespace else {}


@dataclass(slots=True)
class CustomCalled(Called):
    """A call of a custom tool: for the model a function with one argument, for the client the text in that."""

    id: str = field(default_factory=lambda: new_id("ctc"))
    input: CustomInput = field(default_factory=CustomInput)

    event: ClassVar[str] = "response.custom_tool_call_input"

    @property
    def whole(self) -> dict[str, Any]:
        return {"input": self.input.text}

    def write(self, arguments: str) -> str:
        return self.input.feed(arguments)

    def end(self) -> str:
        return self.input.close()

    def told(self, arguments: str) -> str:
        return sound_arguments(arguments, self.input.text)

    def item(self) -> dict[str, Any]:
        whole = {"id": self.id, "type": "custom_tool_call", "status": self.status, "call_id": self.call_id}
        return {**whole, "name": self.tool.name, **self._namespace(), "input": self.input.text}


@dataclass(slots=True)
class ToolsSought(Called):
    """A call of the client's search for tools. It is told whole: there are no events for less."""

    id: str = field(default_factory=lambda: new_id("tsc"))

    event: ClassVar[str] = ""

    def write(self, arguments: str) -> str:
        self.arguments.append(arguments)
        return ""

    def item(self) -> dict[str, Any]:
        given = arguments_of("".join(self.arguments)) if self.status != "in_progress" else {}
        whole = {"id": self.id, "type": "tool_search_call", "status": self.status, "call_id": self.call_id}
        return {**whole, "execution": "client", "arguments": given if isinstance(given, dict) else {}}


CALLS: Mapping[str, type[Called]] = {"function": Called, "custom": CustomCalled, "tool_search": ToolsSought}


@dataclass(slots=True)
class Searched:
    """One action of ours: a search, or a page that is opened."""

    index: int
    action: dict[str, Any]
    id: str = field(default_factory=lambda: new_id("ws"))
    results: list[dict[str, Any]] | None = None
    status: str = "in_progress"

    @property
    def place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index}

    def found(self, sources: Iterable[Source], include: frozenset[str]) -> None:
        """Everything that a search returned, as far as the client wants to know."""
        if self.action["type"] != "search":
            return
        sources = list(sources)
        if "web_search_call.action.sources" in include:
            self.action["sources"] = [{"type": "url", "url": source.url} for source in sources]
        if "web_search_call.results" in include:
            self.results = [_result(source) for source in sources]

    def item(self) -> dict[str, Any]:
        results = {} if self.results is None else {"results": self.results}
        whole = {"id": self.id, "type": "web_search_call", "status": self.status, "action": dict(self.action)}
        return {**whole, **results}


def _result(source: Source) -> dict[str, Any]:
    known = {"url": source.url, "title": source.title, "snippet": source.snippet, "date": source.date}
    return {**known, "basis": source.basis}


Item = Said | Called | Searched


def actions(event: ToolStarted) -> list[dict[str, Any]]:
    """What a call of ours does; nothing if nobody offered such a tool: the model is told so, the client has no use
    for it."""
    tool = tool_named(event.tool)
    return tool.actions(event.arguments) if tool else []


def as_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens of all rounds. The AI SDK wants numbers, so what a server did not say is none."""
    given, made = _number(usage, "prompt_tokens"), _number(usage, "completion_tokens")
    details, made_of = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return {
        "input_tokens": given,
        "input_tokens_details": {
            "cached_tokens": _number(details, "cached_tokens"),
            "cache_write_tokens": _number(details, "cache_write_tokens"),
        },
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": _number(made_of, "reasoning_tokens")},
        "total_tokens": _number(usage, "total_tokens") or given + made,
        **({"cost": usage["cost"]} if "cost" in usage else {}),
    }


def tool_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    searches = _number(usage.get("server_tool_use"), "web_search_requests")
    return {"image_gen": _NO_IMAGES, "web_search": {"num_requests": searches}}


def _number(of: Any, name: str) -> int:
    value = of.get(name) if isinstance(of, Mapping) else None
    return int(value) if isinstance(value, int | float) else 0
