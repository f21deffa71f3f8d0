"""Two small machines behind LiteLLM: the vendor's own fields put together, and lines that stay whole."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from proxy.upstreams import litellm_answers
from proxy.values.events import GatheredFields


def gathered(*deltas: dict[str, Any]) -> dict[str, Any]:
    extras = litellm_answers.Extras()
    fields = GatheredFields()
    for delta in deltas:
        fields.add(extras.gather(delta))
    return fields.whole()


def thought(text: str, **more: str) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": text, **more}
    return {"thinking_blocks": [block], "provider_specific_fields": {"thinking_blocks": [block]}}


def test_only_whole_thoughts_are_handed_on() -> None:
    one = {"type": "thinking", "thinking": "ab", "signature": "s1"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    two = {"type": "thinking", "thinking": "cd", "signature": "s2"}
    anthropic = [thought("a"), thought("b"), thought("ab", signature="s1"), {"thinking_blocks": [hidden]}]
    bedrock = [thought("c"), thought("d"), thought("", signature="s2")]
    assert gathered(*anthropic, *bedrock) == {"thinking_blocks": [one, hidden, two]}
    assert gathered(thought("a"), {"content": "unsigned"}) == {"content": "unsigned"}


def test_vendor_fields_of_all_chunks_are_kept() -> None:
    signed, other = {"thought_signatures": ["s1"]}, {"b": 1}
    assert gathered({"provider_specific_fields": signed}, {"provider_specific_fields": other}) == {
        "provider_specific_fields": {"thought_signatures": ["s1"], "b": 1}
    }


def vendors(**fields: Any) -> dict[str, Any]:
    return {"provider_specific_fields": fields}


def test_vendor_fields_are_told_once_and_add_up() -> None:
    """LiteLLM tells texts and some lists in pieces, and other lists as a whole whenever they have changed."""
    begun, done = {"id": "c1", "status": "in_progress"}, {"id": "c1", "status": "completed"}
    deltas = [
        vendors(reasoning="ab", signatures=["s1"], results=["r1"], calls=[begun], citation={"n": 1}, index=0),
        vendors(reasoning="c", signatures=["s2"], results=["r1", "r2"], calls=[done], citation={"n": 1}, index=0),
        vendors(signatures=["s3"], results=["r1", "r2", "r3"], citation={"n": 2}, refusal=None, empty=[]),
    ]
    extras = litellm_answers.Extras()
    told = [extras.gather(json.loads(json.dumps(delta))) for delta in deltas]
    assert told[1:] == [
        vendors(reasoning="c", signatures=["s2"], results=["r2"], calls=[done]),
        vendors(signatures=["s3"], results=["r3"], citation={"n": 2}),
    ]
    whole = {"reasoning": "abc", "signatures": ["s1", "s2", "s3"], "results": ["r1", "r2", "r3"], "calls": [done]}
    assert gathered(*deltas) == vendors(**whole, citation={"n": 2}, index=0)


async def test_unicode_line_ends_are_escaped_wherever_a_read_cuts_them() -> None:
    said = {"a": "x\u2028y\u2029z\x85é“”👩 \u2027\u202a"}
    raw = json.dumps(said, ensure_ascii=False).encode()
    for cut in range(len(raw) + 1):
        got = b"".join([data async for data in litellm_answers.EscapedLines(parts(raw[:cut], raw[cut:]))])
        assert json.loads(got) == said
        assert len(got.decode().splitlines()) == 1


async def parts(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
