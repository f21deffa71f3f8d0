"""Whatever a client sends as messages is refused in words or becomes a history that models accept: nothing crashes."""

from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.answering.turns import restored
from proxy.dialects.messages.encoder import Encoder
from proxy.dialects.messages.history import conversation
from proxy.dialects.messages.request import decode
from proxy.dialects.messages.token_estimate import estimated_tokens
from proxy.values.errors import RequestError
from proxy.values.events import Begun, Finished, TextDelta, UsageSeen
from tests.unit.messages_scripts import FETCH_TOOL, HANDLES, SERVER_TOOL
from tests.unit.test_turns import assert_valid

SOURCE = {"n": 1, "url": "https://x.example/", "title": "X", "snippet": "x"}
RESULT = HANDLES.seal({**SOURCE, "id": "c", "arguments": "{}", "text": "found"})
INDEX = HANDLES.seal({**SOURCE, "behind": 1})

scalar = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "x", "a_gwABCDEFGHIJKL", RESULT, INDEX])
)
ids = st.sampled_from(["a", "b", "a_gwABCDEFGHIJKL", "srvtoolu_1"])
handles = st.sampled_from([RESULT, INDEX, "junk", None])
found = st.lists(st.fixed_dictionaries({"encrypted_content": handles}), max_size=2)
marks = st.one_of(scalar, st.lists(st.one_of(scalar, st.fixed_dictionaries({"encrypted_index": handles})), max_size=2))
text = st.fixed_dictionaries(
    {"type": st.just("text"), "text": st.text("ab. \n[]1", max_size=6)}, optional={"citations": marks}
)
block: st.SearchStrategy[Any] = st.one_of(
    text,
    st.fixed_dictionaries(
        {"type": st.sampled_from(["tool_use", "server_tool_use"]), "id": ids, "name": ids, "input": st.just({})}
    ),
    st.fixed_dictionaries(
        {"type": st.just("tool_result"), "tool_use_id": ids, "content": st.one_of(scalar, st.lists(text))}
    ),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["web_search_tool_result", "web_fetch_tool_result"]),
            "tool_use_id": ids,
            "content": st.one_of(scalar, found),
        }
    ),
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": scalar, "signature": scalar}),
    st.fixed_dictionaries({"type": st.sampled_from(["image", "document", "search_result", "x"]), "source": scalar}),
    st.dictionaries(st.sampled_from(["type", "text", "source", "content", "id"]), scalar, max_size=3),
    scalar,
)
message = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "assistant", "system"]),
        "content": st.one_of(scalar, st.lists(block, max_size=5)),
    }
)
sent = st.fixed_dictionaries(
    {"model": st.just("m"), "messages": st.lists(st.one_of(message, message, message, scalar), max_size=5)},
    optional={
        "system": st.one_of(scalar, st.lists(text, max_size=2)),
        "tool_choice": st.one_of(scalar, st.just({"type": "any"})),
    },
)
words = ["type", "name", "tool", "any", "web_search", "weather", "enabled", "json_schema", "format", "schema", "effort"]
anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(scalar, st.sampled_from(words), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(words), inner, max_size=3)),
    max_leaves=6,
)
tool = st.one_of(
    st.sampled_from([SERVER_TOOL, FETCH_TOOL, {"name": "weather", "input_schema": {}}, {"name": "web_search"}]),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["web_search_20250305", "web_fetch_x", "custom", "bash_1"])},
        optional=dict.fromkeys(("name", "max_uses", "allowed_domains", "user_location", "parameters"), anything),
    ),
    anything,
)
_FIELDS = ("thinking", "output_config", "output_format", "stop_sequences", "max_tokens", "metadata")
around = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.one_of(anything, st.lists(tool, max_size=3)),
        "tool_choice": st.one_of(anything, st.fixed_dictionaries({"type": anything, "name": anything})),
        **dict.fromkeys(_FIELDS, anything),
    },
)


@settings(max_examples=400, deadline=None)
@given(around)
def test_whatever_stands_around_the_messages(fields: dict[str, Any]) -> None:
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}).encode()
    refused: RequestError | None = None
    try:
        asked = decode(raw)
    except RequestError as error:
        refused = error
    if refused:
        assert (refused.failed.status, bool(refused.failed.error["message"])) == (400, True)
    else:
        orjson.dumps(asked.body)
        Encoder(asked, HANDLES).feed([Begun(), TextDelta("x"), UsageSeen({}), Finished("stop")])


@settings(max_examples=400, deadline=None)
@given(sent)
def test_refused_in_words_or_a_valid_history(body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    refused: RequestError | None = None
    try:
        asked = decode(raw)
        talk = conversation(asked.system, asked.messages, asked.tools, HANDLES)
    except RequestError as error:
        refused = error
    if refused:
        assert (refused.failed.status, bool(refused.failed.error["message"])) == (400, True)
    else:
        assert estimated_tokens(raw) > 0
        assert_valid(restored(talk.messages, {}).messages)
