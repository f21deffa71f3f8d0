"""Google's Gemini API on loopback: `generateContent` and `streamGenerateContent`, parts, thoughts and their signatures.

Handed turns like every fake; asserts roles, parts, declarations and signatures of what it is sent. Gemini gives calls
no id: what a turn says of ids stays unsaid here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.fakes.model import Turn
from tests.fakes.vendor_model import VendorServer, arguments_of, reason_of

SIGNATURE = "CiQB0e2KbzF4dGhvdWdodA=="
_REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_KINDS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
_KINDS |= {429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE"}
_FIELDS = {"contents", "systemInstruction", "system_instruction", "tools", "toolConfig", "generationConfig"}
_FIELDS |= {"safetySettings", "cachedContent"}


class GeminiServer(VendorServer):
    signs_text = False  # does every piece of text have a signature of its own?

    def is_stream(self, path: str, body: dict[str, Any]) -> bool:
        return ":streamGenerateContent" in path

    def pieces(self, turn: Turn) -> Iterator[bytes]:
        parts = list(_parts(turn))
        if self.signs_text:
            parts = [{**part, "thoughtSignature": f"{SIGNATURE}{at:08}"} for at, part in enumerate(parts)]
        for part in parts[:-1]:
            yield _event(_candidate(turn, [part], last=False))
        yield _event(_candidate(turn, parts[-1:], last=True))

    def answer(self, turn: Turn) -> dict[str, Any]:
        return _candidate(turn, list(_parts(turn)), last=True)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": message, "status": _KINDS[status]}}

    def break_off(self, message: str) -> bytes:
        return _event(self.error(503, message))

    def rules(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Iterator[tuple[object, str]]:
        streamed = ":streamGenerateContent" in path and "alt=sse" in path
        yield streamed or ":generateContent" in path, f"no such path: {path}"
        yield headers.get("x-goog-api-key") or "key=" in path, "API key not valid"
        yield set(body) <= _FIELDS, f"Unknown name {sorted(set(body) - _FIELDS)}: Cannot find field."
        for tool in body.get("tools") or ():
            for declared in tool.get("functionDeclarations") or tool.get("function_declarations") or ():
                yield declared.get("name"), "function_declarations: name is required"
                yield "additionalProperties" not in (declared.get("parameters") or {}), "Unknown additionalProperties"
        contents = body["contents"]
        yield {c["role"] for c in contents} <= {"user", "model"}, "Please use a valid role: user, model."
        for before, content in zip([None, *contents], contents, strict=False):
            results = [p["name"] for p in _of(content, "function_response", "functionResponse")]
            calls = [p["name"] for p in _of(before, "function_call", "functionCall")] if before else []
            yield results == calls, f"function responses {results} must follow the function calls {calls}"
            if content["role"] == "model" and _of(content, "function_call", "functionCall"):
                signatures = [p["thoughtSignature"] for p in content["parts"] if "thoughtSignature" in p]
                known = not signatures or signatures == [SIGNATURE]
                yield known, f"Thought signature is not valid: {signatures}"


def signatures_in(content: dict[str, Any]) -> list[str]:
    """The signatures that came back on the calls of a turn."""
    return [p["thoughtSignature"] for p in content["parts"] if "thoughtSignature" in p and _is_call(p)]


def _is_call(part: dict[str, Any]) -> bool:
    return "function_call" in part or "functionCall" in part


def _of(content: dict[str, Any] | None, *names: str) -> list[dict[str, Any]]:
    return [part[name] for part in (content or {"parts": []})["parts"] for name in names if name in part]


def _event(chunk: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\r\n\r\n".encode()


def _parts(turn: Turn) -> Iterator[dict[str, Any]]:
    for thought in turn.reasoning:
        yield {"text": thought, "thought": True}
    for piece in turn.text:
        yield {"text": piece}
    for at, (_, name, given) in enumerate(turn.calls):
        # Google signs the first call of a turn and no other.
        signed = {"thoughtSignature": SIGNATURE} if turn.reasoning and not at else {}
        yield {"functionCall": {"name": name, "args": arguments_of(given)}, **signed}


def _candidate(turn: Turn, parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
    usage = turn.usage or {}
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    counts = {"promptTokenCount": usage.get("prompt_tokens", 0), "totalTokenCount": usage.get("prompt_tokens", 0)}
    if last and turn.finish is not None:
        candidate["finishReason"] = reason_of(turn, _REASONS)
        counts["candidatesTokenCount"] = usage.get("completion_tokens", 0)
        counts["totalTokenCount"] = usage.get("total_tokens", 0)
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "gemini-2.5-flash", "responseId": "r1"}
