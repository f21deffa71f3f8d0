"""The words for upstreams that an operator may write and the upstreams act on: repairs, each with who needs it, and the
profiles of servers. Plain names; what they do stands in `upstreams/`.
"""

from __future__ import annotations

REPAIRS = {
    "call_index": "calls without an index, all with index 0, or two with one: Gemini, Ollama, mistral.rs, vLLM",
    "call_id": "an id that another call of the turn already has: local models; a missing one is always made",
    "call_name": "names with control tokens or a `functions.` prefix: gpt-oss on vLLM, Kimi",
    "call_arguments": "arguments encoded twice or with text around the object: local models",
    "finish_reason": "`stop` with calls, `tool_calls` without, unknown reasons: Ollama, vLLM, Gemini, OpenRouter",
    "content_parts": "content as a list of parts, thinking among them: Mistral",
    "leaked_calls": "calls written as text: Qwen, Hermes, Llama, Mistral, gpt-oss, DeepSeek, MiniMax, LM Studio",
    "failed_generation": "a refused call that comes back inside an error: Groq",
    "thinking": "`<think>` at the start of the text: R1, Qwen and other local models without a reasoning parser",
}

PROFILES = ("openai", "groq", "mistral", "deepseek", "gemini", "ollama", "anthropic", "bedrock", "cohere")
