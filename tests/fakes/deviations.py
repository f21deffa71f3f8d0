"""Answers as model servers really send them, and what each of them means. The bytes are files of tests/data/deviations,
written after the reports that `source` names, in the sender's own framing; a row here says what they come to. Each
calls our `web_search`; `Deviation.theirs()` is the very same answer with calls of the client's `weather`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "data/deviations"

LOOK = "Let me look that up."
BLUE = "It is blue."
THOUGHT = "I should look first."
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["city"],
}
THEIRS = {"web_search": "weather", "query": "city", "sky blue": "Bern", "sea salty": "Biel"}

Call = tuple[str, dict[str, Any] | str]  # name, arguments; text is what nobody can read

SKY: Call = ("web_search", {"query": "sky blue"})
SEA: Call = ("web_search", {"query": "sea salty"})
EMPTY: Call = ("web_search", {})


@dataclass(frozen=True)
class Deviation:
    file: str
    source: str
    text: str = ""
    calls: tuple[Call, ...] = (SKY,)
    thinking: dict[str, Any] = field(default_factory=dict)  # the delta's fields, as a client gets them
    usage: int = 0
    error: tuple[int, str] | None = None  # status and message, instead of an end
    status: int = 200
    content_type: str = ""
    profile: str = "openai"
    extra: dict[str, Any] = field(default_factory=dict)  # of the call, to be echoed
    in_text: bool = False  # the thinking stands in the text, so it is not echoed
    kept: str | None = None  # the text as the history may hold it, where that is not `text`
    earlier_id: bool = False  # the conversation already holds a call with this id
    retried: bool = False  # nothing in it can be used, so the model is asked once more
    unknown: bool = False  # calls a tool that nobody offered

    @property
    def name(self) -> str:
        return self.file.rpartition(".")[0]

    @property
    def finish(self) -> str:
        return "tool_calls" if self.calls else "stop"

    @property
    def streamed(self) -> bool:
        return self.file.endswith(".sse")

    @property
    def kind(self) -> str:
        return self.content_type or ("text/event-stream" if self.streamed else "application/json")

    @property
    def has_calls(self) -> bool:
        """Calls of a tool that somebody has, so that there are two to play it for."""
        return bool(self.calls) and not self.unknown

    @cached_property
    def body(self) -> bytes:
        return (FOLDER / self.file).read_bytes()

    def theirs(self) -> Deviation:
        calls = tuple((_theirs(name), _translated(given)) for name, given in self.calls)
        thinking = json.loads(_theirs(json.dumps(self.thinking)))
        other = replace(self, text=_theirs(self.text), calls=calls, thinking=thinking)
        other.__dict__["body"] = _theirs(self.body.decode()).encode()
        return other

    def letters(self) -> list[str]:
        """The text of a leak, one character per delta."""
        pieces = [chunk["choices"][0]["delta"].get("content") or "" for chunk in self._chunks()]
        return list("".join(pieces))

    def _chunks(self) -> list[dict[str, Any]]:
        lines = self.body.decode().splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def _theirs(text: str) -> str:
    for ours, other in THEIRS.items():
        text = text.replace(ours, other)
    return text


def _translated(given: dict[str, Any] | str) -> Any:
    return _theirs(given) if isinstance(given, str) else json.loads(_theirs(json.dumps(given)))


def _envelope(file: str, source: str, text: str = LOOK, **more: Any) -> Deviation:
    return Deviation(f"envelope/{file}", source, text, **more)


def _error(file: str, source: str, means: int, message: str, text: str = "It is ", **more: Any) -> Deviation:
    return Deviation(f"errors/{file}", source, text, (), error=(means, message), **more)


def _call(file: str, source: str, *calls: Call, **more: Any) -> Deviation:
    return Deviation(f"calls/{file}", source, calls=calls or (SKY,), **more)


def _thinking(file: str, source: str, text: str = "", **more: Any) -> Deviation:
    thinking = {"reasoning_content": THOUGHT}
    return Deviation(f"thinking/{file}", source, text, **{"thinking": thinking, "calls": (), **more})


def _leak(file: str, source: str, *calls: Call, text: str = LOOK + "\n\n", **more: Any) -> Deviation:
    return Deviation(f"leaks/{file}", source, text, calls or (SKY,), **more)


ENVELOPE = [  # wire 6.1
    _envelope("openrouter-comments.sse", "OpenRouter"),
    _envelope("crlf.sse", "various"),
    _envelope("crlf-comments.sse", "various", ""),
    _envelope("no-space.sse", "various"),
    _envelope("no-last-blank-line.sse", "various", ""),
    _envelope("no-done.sse", "various"),
    _envelope("no-done-no-blank-line.sse", "various", ""),
    _envelope("named-events.sse", "various"),
    _envelope("azure-filter-first.sse", "Azure"),
    _envelope("vllm-usage-on-every-chunk.sse", "vLLM", usage=28),
    _envelope("openrouter-finish-repeated.sse", "OpenRouter", usage=28),
    _envelope("openrouter-usage-on-finish.sse", "OpenRouter", usage=28),
    _envelope("litellm-ids-change.sse", "Ollama behind LiteLLM: litellm#37792"),
    _envelope("lmstudio-id-empty.sse", "LM Studio: lmstudio#378"),
    _envelope("openrouter-role-on-every-chunk.sse", "OpenRouter"),
    _envelope("llamacpp-timings.sse", "llama.cpp: openai-php/client#780"),
    _envelope("groq-extras.sse", "Groq", profile="groq", usage=28),
    _envelope("openrouter-extras.sse", "OpenRouter"),
    _envelope("litellm-end-turn.sse", "LiteLLM: litellm#12481"),
    _envelope("litellm-end-turn-text.sse", "LiteLLM: litellm#12481", BLUE, calls=()),
    _envelope("ollama-finish-empty.sse", "Ollama: ollama#4357"),
    _envelope("tgi-eos-token.sse", "text-generation-inference"),
    _envelope("tgi-eos-token-text.sse", "text-generation-inference", BLUE, calls=()),
    _envelope("openrouter-finish-error.sse", "OpenRouter"),
    _envelope("openrouter-finish-error-text.sse", "OpenRouter", BLUE, calls=()),
    _envelope("mistral-content-parts.sse", "Mistral", profile="mistral", usage=28),
    _envelope("json-for-a-stream.json", "gateways", usage=28),
    _envelope("json-labelled-stream.json", "gateways", BLUE, calls=(), usage=28, content_type="text/event-stream"),
    _envelope("json-labelled-stream-call.json", "gateways", usage=28, content_type="text/event-stream"),
    _envelope("stream-labelled-json.sse", "gateways", content_type="application/json"),
    _envelope("stream-labelled-text.sse", "gateways", "", content_type="text/plain"),
]
_REFUSED = (429, "Provider returned error")
ERRORS = [  # wire 1.6 and the last row of 6.1
    _error("openrouter-in-a-200.json", "OpenRouter", *_REFUSED, ""),
    _error("openrouter-in-a-200-labelled-stream.json", "OpenRouter", *_REFUSED, "", content_type="text/event-stream"),
    _error("first-event.sse", "OpenRouter", 402, "Insufficient credits", ""),
    _error("bare.sse", "OpenAI", 502, "The server had an error while processing your request."),
    _error("vllm-object.sse", "vLLM: block/goose#8031", 500, "EngineCore died unexpectedly"),
    _error("groq-event.sse", "Groq: anomalyco/opencode#1018", 503, "Over capacity, please try again later"),
    _error("openrouter-beside-choices.sse", "OpenRouter", 502, "Upstream provider disconnected"),
    _error("gemini-array.sse", "Gemini: securo-finance/securo#884", 503, "The model is overloaded."),
    _error(
        "gemini-whole-array.json", "Gemini: securo-finance/securo#884", 503, "The model is overloaded.", "", status=503
    ),
    _error("mistral-flat.json", "eca#233", 429, "Service tier capacity exceeded for this model.", "", status=429),
]
_GOOGLE = {"extra_content": {"google": {"thought_signature": "EjQKMgEMOdbH"}}}
_VERTEX = {"extra_content": {"vertex": {"thought_signature": "EjQKMgEMOdbH"}}}
_GROQ: dict[str, Any] = {"profile": "groq", "status": 400}
CALLS = [  # wire 6.2
    _call("gemini-no-index.sse", "Gemini: THU-MAIC/OpenMAIC#1556", SKY, SEA, profile="gemini"),
    _call("gemini-no-index-split.sse", "Gemini: open-webui/computer#224", profile="gemini"),
    _call("ollama-no-index.sse", "Ollama: ollama#7881", SKY, SEA, profile="ollama"),
    _call("mistralrs-no-index-no-id.sse", "mistral.rs#1507", SKY, SEA),
    _call("ollama-all-index-zero.sse", "Ollama: ollama#15457", SKY, SEA),
    _call("ollama-all-index-zero-one-chunk.sse", "Ollama: ollama#15457", SKY, SEA),
    _call("index-zero-no-ids.sse", "Ollama: ollama#15457", SKY, SEA),
    _call("index-from-one.sse", "wire 1.5"),
    _call("vllm-two-fragments-in-a-chunk.sse", "vLLM: openai-python#3245, openai-python#3232"),
    _call("groq-whole.sse", "Groq", profile="groq"),
    _call("mistral-whole.sse", "Mistral", profile="mistral"),
    _call("id-missing.sse", "Gemini, local servers"),
    _call("id-empty.sse", "Gemini, local servers", SKY, SEA),
    _call("id-null.sse", "llama-server: sigoden/aichat#1296"),
    _call("id-late.sse", "local servers"),
    _call("id-on-every-fragment.sse", "local servers"),
    _call("id-twice-in-a-turn.sse", "local models: eca#233", SKY, SEA),
    _call("id-of-an-earlier-turn.sse", "local models: eca#233", earlier_id=True),
    _call("mistral-foreign-id.sse", "Mistral: langchain#24668, gptel#1203, omlx#1997", profile="mistral"),
    _call("lmstudio-name-blank-later.sse", "LM Studio: lmstudio#649"),
    _call("name-null-later.sse", "local servers"),
    _call("name-on-every-fragment.sse", "compatible servers"),
    _call("name-repeated-without-id.sse", "compatible servers"),
    _call("name-after-arguments.sse", "compatible servers"),
    _call("name-last-alone.sse", "compatible servers"),
    _call("arguments-object.sse", "LiteLLM: litellm#37792"),
    _call("arguments-object-json.json", "Ollama's native shape: litellm#37792"),
    _call("arguments-null.sse", "LiteLLM: litellm#37792", EMPTY),
    _call("arguments-null-first.sse", "LiteLLM: litellm#37792"),
    _call("arguments-empty.sse", "LiteLLM: litellm#37792", EMPTY),
    _call("arguments-left-out.sse", "LiteLLM: litellm#37792", EMPTY),
    _call("arguments-encoded-twice.sse", "local models"),
    _call("arguments-encoded-twice-whole.sse", "local models"),
    _call("arguments-then-garbage.sse", "local models"),
    _call("arguments-twice.sse", "local models"),
    _call("arguments-after-words.sse", "local models"),
    _call("arguments-unterminated.sse", "local models", ("web_search", '{"query": "sky blue')),
    _call("ollama-stop-with-calls.sse", "Ollama: ollama#7963, litellm#35663"),
    _call("vllm-stop-with-calls.sse", "vLLM: vllm#9209, vllm#48201", text=LOOK),
    _call("gemini-stop-on-the-call.sse", "Gemini: open-webui/computer#224", profile="gemini"),
    Deviation("calls/tool-calls-without.sse", "Hermes parsers", BLUE, ()),
    Deviation("calls/tool-calls-empty-list.sse", "Hermes parsers", BLUE, ()),
    _call("gemini-signature.sse", "Gemini: open-webui/computer#224", extra=_GOOGLE, profile="gemini"),
    _call("gemini-signature-alone.sse", "Gemini: open-webui/computer#224", extra=_GOOGLE, profile="gemini"),
    _call("gemini-signature-alone-indexed.sse", "Vertex: earendil-works/pi#6733", extra=_VERTEX, profile="gemini"),
    _call("vllm-control-token-in-name.sse", "gpt-oss on vLLM: vllm#32633"),
    _call("vllm-functions-prefix.sse", "gpt-oss on vLLM: vllm#32633"),
    _call("vllm-prefix-and-token.sse", "gpt-oss on vLLM: vllm#32633"),
    _call("kimi-ids.sse", "Kimi: openai-python#3245", SKY, SEA),
    _call("groq-failed-generation.json", "Groq: groq-typescript#28", **_GROQ),
    _call("groq-failed-generation-no-opener.json", "Groq: smolagents#1119", **_GROQ),
    _call("groq-failed-generation-words.json", "Groq: smolagents#1119", **_GROQ),
    _call("groq-failed-generation-list.json", "Groq: groq-typescript#103", **_GROQ),
    _call("groq-failed-generation-event.sse", "Groq: anomalyco/opencode#1018", profile="groq"),
    _call("groq-failed-generation-event-no-opener.sse", "Groq: anomalyco/opencode#1018", profile="groq"),
    _call("groq-failed-generation-event-after-text.sse", "Groq: anomalyco/opencode#1018", text=LOOK, profile="groq"),
    Deviation("calls/groq-failed-generation-hopeless.json", "Groq: groq-typescript#28", "", (), **_GROQ, retried=True),
    Deviation("calls/groq-failed-generation-empty.json", "obsidian-ai-tagger#34", "", (), **_GROQ, retried=True),
    _call("unknown-name.sse", "any", ("browser.find", {"query": "sky blue"}), unknown=True),
]
_DETAILS = [
    {"type": "reasoning.text", "text": "I should ", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.text", "text": "look first.", "format": "anthropic-claude-v1", "index": 0},
    {
        "type": "reasoning.encrypted",
        "data": "gAAAAAB",
        "id": "rs_1",
        "format": "openai-responses-v1",
        "index": 1,
    },
]
_TAGGED = {"reasoning_content": "I should look first [1]."}
_LEAK_IN_THOUGHT = (
    '\nI should call\n<tool_call>\n{"name": "web_search", "arguments": {"query": "sky blue"}}\n</tool_call>\n'
)
_OPEN = "I should look first.\n</think>\n\n" + LOOK
THINKING = [  # wire 1.8
    _thinking("deepseek-reasoning-content.sse", "DeepSeek", LOOK, calls=(SKY,), profile="deepseek"),
    _thinking("llamacpp-reasoning-content.sse", "llama.cpp, LM Studio, SGLang", calls=(SKY,)),
    _thinking("vllm-reasoning.sse", "vLLM: vllm#27752", LOOK, calls=(SKY,), thinking={"reasoning": THOUGHT}),
    _thinking(
        "openrouter-reasoning-details.sse",
        "OpenRouter",
        LOOK,
        calls=(SKY,),
        thinking={"reasoning": THOUGHT, "reasoning_details": _DETAILS},
    ),
    _thinking("mistral-parts.sse", "Mistral", LOOK, calls=(SKY,), profile="mistral"),
    _thinking("mistral-parts-text.sse", "Mistral", BLUE, profile="mistral"),
    _thinking(
        "think-tag.sse", "local", BLUE, in_text=True, thinking={"reasoning_content": "\nI should look first [1].\n"}
    ),
    _thinking("think-tag-split.sse", "local", BLUE, in_text=True, thinking=_TAGGED),
    _thinking("think-tag-then-call.sse", "local", calls=(SKY,), in_text=True),
    _thinking(
        "think-tag-then-leak.sse",
        "local",
        LOOK + "\n\n",
        calls=(SKY,),
        in_text=True,
        thinking={"reasoning_content": _LEAK_IN_THOUGHT},
    ),
    _thinking("thinking-tag.sse", "local", BLUE, in_text=True),
    _thinking("magistral-tag.sse", "Magistral", BLUE, in_text=True),
    _thinking("think-tag-without-opener.sse", "local", _OPEN, calls=(SKY,), thinking={}, kept=LOOK),
]
_QUOTED = 'Write "<tool_call>{"name": "web_search", "arguments": {"query": "sky blue"}}</tool_call>" to call it.'
_FENCED = (
    'A call looks so:\n```\n<tool_call>{"name": "web_search", "arguments": {"query": "sky blue"}}</tool_call>\n```\n'
    "That is all."
)
_THREE: Call = ("web_search", {"query": "sky blue", "limit": 3})
LEAKS = [  # wire 6.3
    _leak("hermes.sse", "Qwen on vLLM: vllm#32506"),
    _leak("hermes-no-close.sse", "Qwen on vLLM: vllm#34101"),
    _leak("hermes-two.sse", "Qwen on vLLM: vllm#34101", SKY, SEA),
    _leak("hermes-list.sse", "Hermes on vLLM: vllm#34101", SKY, SEA),
    _leak("hermes-fenced.sse", "vllm#34101", text=""),
    _leak("hermes-fenced-tag.sse", "vllm#34101", text=""),
    _leak("hermes-then-text.sse", "vllm#34101", text=" One moment."),
    _leak("qwen.sse", "Qwen3-Coder: llama.cpp#16932"),
    _leak("qwen-no-opener.sse", "Qwen3-Coder: ollama#17742"),
    _leak("qwen-naked.sse", "Qwen3.5: mlxcel#204"),
    _leak("qwen-no-end.sse", "Qwen3-Coder: llama.cpp#16932"),
    _leak("qwen-typed.sse", "Qwen3-Coder: qwen-code#10692", _THREE),
    _leak("llama-function.sse", "Llama 3 on Groq: langchain#31440"),
    _leak("llama-function-no-close.sse", "Llama 3 on Groq: langchain#31440", text=""),
    _leak("mistral-list.sse", "Mistral in LM Studio: free-claude-code#979"),
    _leak("mistral-name.sse", "Devstral in LM Studio: free-claude-code#979"),
    _leak("mistral-bare-name.sse", "Devstral in LM Studio: free-claude-code#979"),
    _leak("mistral-bare-name-alone.sse", "Devstral in LM Studio: free-claude-code#979", text=""),
    _leak("llama-python-tag.sse", "Llama 3.1", text=""),
    _leak("llama-bare.sse", "Llama 3.1 on Ollama: litellm#12481", text=""),
    _leak("llama-bare-arguments.sse", "Llama 3.1 on Ollama: litellm#12481", text=""),
    _leak("llama-bare-two.sse", "Llama 3.1 on Ollama: litellm#12481", SKY, SEA, text=""),
    _leak("harmony.sse", "gpt-oss: TensorRT-LLM#9256", text=""),
    _leak("harmony-after-text.sse", "gpt-oss: TensorRT-LLM#9256"),
    _leak("harmony-no-constrain.sse", "gpt-oss: TensorRT-LLM#9256", text=""),
    _leak("harmony-start.sse", "gpt-oss: TensorRT-LLM#9256", text=""),
    _leak("harmony-analysis.sse", "gpt-oss: TensorRT-LLM#9256", text=""),
    _leak("harmony-stripped.sse", "gpt-oss: macprovider#743", text=""),
    _leak("harmony-stripped-commentary.sse", "gpt-oss: macprovider#743", text=""),
    Deviation("leaks/harmony-stripped-final.sse", "gpt-oss: macprovider#743", BLUE, ()),
    _leak("dsml-function-calls.sse", "DeepSeek V3.2: sglang#40236"),
    _leak("dsml-tool-calls.sse", "DeepSeek V4: vllm#54686"),
    _leak("dsml-no-wrapper.sse", "DeepSeek V3.2: sglang#40236"),
    _leak("dsml-double-line.sse", "DeepSeek V4: GenericAgent#804"),
    _leak("dsml-two-bars.sse", "DeepSeek V4: vllm#54686"),
    _leak("dsml-ascii-bar.sse", "DeepSeek V4: minja#11"),
    _leak("dsml-json-value.sse", "DeepSeek V3.2: sglang#40236", _THREE),
    _leak("dsml-no-wrapper-end.sse", "DeepSeek V3.2: sglang#40236"),
    _leak("invoke.sse", "Claude-style fine-tunes: qwen-code#10692"),
    _leak("invoke-function-calls.sse", "Claude-style fine-tunes: qwen-code#10692"),
    _leak("invoke-minimax.sse", "MiniMax: qwen-code#10692"),
    _leak("lmstudio.sse", "LM Studio's default format"),
    _leak("kimi.sse", "Kimi K2"),
    _leak("glm.sse", "GLM"),
    Deviation("leaks/quoted.sse", "text that is no leak", _QUOTED, ()),
    Deviation("leaks/fenced-in-prose.sse", "text that is no leak", _FENCED, ()),
]
DEVIATIONS = {deviation.name: deviation for deviation in (*ENVELOPE, *ERRORS, *CALLS, *THINKING, *LEAKS)}
