"""What each kind of model server wants to be asked, and how. Handed a Chat Completions body, a profile hands on the
body that its servers accept: fields they reject left out, ids and choices in their form, the last round forced in the
way they know. Everything here changes requests; what is wrong with answers is mended in `repairs`.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from providers.records import dataclass

from .prompted import flattened

_ALPHABET = string.digits + string.ascii_letters
# Fields of OpenAI's own service that strict servers refuse, and nobody else acts on.
_OPENAI_ONLY = frozenset(
    {
        "store",
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "verbosity",
        "moderation",
    }
)
_PLAIN_MESSAGE = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})


@dataclass(frozen=True, slots=True)
class Profile:
    """`last_round`: how a model is kept from calling tools once it must answer (tools kept with `tool_choice: none`,
    tools removed, or removed and their turns written as text)."""

    drop: frozenset[str] = frozenset()
    rename: Mapping[str, str] | None = None
    message_fields: frozenset[str] | None = None  # None: all of them
    call_fields: bool = True  # may a call carry more than its id, type and function?
    short_ids: bool = False  # must call ids be nine alphanumerics?
    thinking_parts: bool = False  # does it want its thinking back as a part of the content?
    developer: bool = True  # does it know the role `developer`?
    required: str = "required"  # its word for `tool_choice: required`
    last_round: Literal["keep", "remove", "flatten"] = "keep"
    bare_history: bool = True  # does it accept turns with tool calls in a request without tools?

    def fitted(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body for this server. What needs no change stays the very same object, be it the body itself."""
        choice = body.get("tool_choice")
        fit = body
        if self.rename or choice == "required" or not self.drop.isdisjoint(body):
            fit = self._with_its_names(body)
        if choice == "none" and self.last_round != "keep":
            fit = without_tools(fit)
        bare = not self.bare_history and not fit.get("tools")
        if bare or (choice == "none" and self.last_round == "flatten"):
            fit = {**fit, "messages": flattened(fit["messages"])}
        if self._changes_messages:
            fit = {**fit, "messages": [self._message(message) for message in fit["messages"]]}
        return fit

    def _with_its_names(self, body: dict[str, Any]) -> dict[str, Any]:
        """The fields that it knows, by its own names for them."""
        fit = {key: value for key, value in body.items() if key not in self.drop}
        for old, new in (self.rename or {}).items():
            if old in fit:
                fit.setdefault(new, fit.pop(old))
        if fit.get("tool_choice") == "required":
            fit["tool_choice"] = self.required
        return fit

    @property
    def reads_messages(self) -> bool:
        """Does it look at each message of some request?"""
        return self._changes_messages or not self.bare_history or self.last_round == "flatten"

    @property
    def _changes_messages(self) -> bool:
        return self.message_fields is not None or self.short_ids or not (self.developer and self.call_fields)

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        fit = message
        if self.message_fields is not None:
            fit = {key: value for key, value in message.items() if key in self.message_fields}
        if self.thinking_parts and isinstance(thought := message.get("reasoning_content"), str):
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
            text = [{"type": "text", "text": fit["content"]}] if isinstance(fit.get("content"), str) else []
            fit["content"] = [thinking, *text]
        if not self.developer and fit.get("role") == "developer":
            fit = {**fit, "role": "system"}
        calls = fit.get("tool_calls")
        if calls and isinstance(calls, list):  # what is no list is for the server to judge
            fit = {**fit, "tool_calls": [self._call(call) for call in calls]}
        if self.short_ids and isinstance(fit.get("tool_call_id"), str):
            fit = {**fit, "tool_call_id": short_id(fit["tool_call_id"])}
        return fit

    def _call(self, call: Any) -> Any:
        if not isinstance(call, dict):
            return call
        if not self.call_fields:
            call = {key: value for key, value in call.items() if key in ("id", "type", "function")}
        if self.short_ids and isinstance(call.get("id"), str):
            call = {**call, "id": short_id(call["id"])}
        return call


PROFILES: dict[str, Profile] = {
    "openai": Profile(),  # OpenAI, vLLM, SGLang, llama.cpp, LM Studio, OpenRouter and whoever follows them
    "groq": Profile(
        drop=_OPENAI_ONLY | {"logit_bias"},
        message_fields=_PLAIN_MESSAGE,
        call_fields=False,
        developer=False,
    ),
    "mistral": Profile(
        drop=_OPENAI_ONLY | {"stream_options", "user", "logprobs", "top_logprobs", "logit_bias", "service_tier"},
        rename={"max_completion_tokens": "max_tokens", "seed": "random_seed"},
        message_fields=_PLAIN_MESSAGE | {"prefix"},
        call_fields=False,
        short_ids=True,
        thinking_parts=True,
        developer=False,
        required="any",
    ),
    "deepseek": Profile(drop=_OPENAI_ONLY, developer=False),
    "gemini": Profile(drop=_OPENAI_ONLY | {"parallel_tool_calls", "logit_bias", "service_tier"}, developer=False),
    "ollama": Profile(drop=_OPENAI_ONLY, developer=False, last_round="remove"),  # it never heeded `tool_choice`
    "anthropic": Profile(bare_history=False, developer=False),
    "bedrock": Profile(last_round="flatten", bare_history=False, developer=False),
    "cohere": Profile(drop=_OPENAI_ONLY, message_fields=_PLAIN_MESSAGE, call_fields=False, developer=False),
}
_HOSTS = {
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "codestral.mistral.ai": "mistral",
    "api.deepseek.com": "deepseek",
    "generativelanguage.googleapis.com": "gemini",
    "api.anthropic.com": "anthropic",
    "api.cohere.ai": "cohere",
    "api.cohere.com": "cohere",
}
# By the model's prefix. LiteLLM itself translates fields; what is left to us are histories and last rounds.
_LITELLM = {
    "bedrock": PROFILES["bedrock"],
    "anthropic/": PROFILES["anthropic"],
    "vertex_ai/claude": PROFILES["anthropic"],
    "mistral/": Profile(short_ids=True, message_fields=_PLAIN_MESSAGE, call_fields=False),
    "groq/": PROFILES["groq"],
    "ollama": PROFILES["ollama"],
}
_OLLAMA_PORT = 11434


def profile_of(said: str, kind: str, base_url: str, model: str) -> Profile:
    """The one that the operator names, else the one that the address or, for litellm, the model's prefix tells."""
    if said != "auto":
        return PROFILES[said]
    if kind == "litellm":
        return next((known for prefix, known in _LITELLM.items() if model.startswith(prefix)), PROFILES["openai"])
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if host.startswith("bedrock-runtime."):
        return PROFILES["bedrock"]
    return PROFILES["ollama" if parts.port == _OLLAMA_PORT else _HOSTS.get(host, "openai")]


def without_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in ("tools", "tool_choice", "parallel_tool_calls")}


def short_id(given: str) -> str:
    """Nine alphanumerics for any id, always the same ones, so that a call and its result still meet."""
    if len(given) == 9 and given.isascii() and given.isalnum():
        return given
    number = int.from_bytes(hashlib.sha256(given.encode("utf-8", "replace")).digest()[:8], "big")
    digits = []
    for _ in range(9):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


def speaks_of_tools(body: Mapping[str, Any]) -> bool:
    """Does it offer tools, or tell of calls?"""
    return bool(body.get("tools")) or has_tool_turns(body["messages"])


def has_tool_turns(messages: Sequence[Any]) -> bool:
    return any(message.get("tool_calls") or message.get("role") in ("tool", "function") for message in messages)
