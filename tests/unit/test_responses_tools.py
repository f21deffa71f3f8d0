"""The tools of a Responses request: what the model is told of them, under which names, and how its calls and the
client's histories find their way between the two.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.answering.offer import OUR_NAMES
from proxy.dialects.responses.declared_tools import declared_tools
from proxy.dialects.responses.encoder import Encoder
from proxy.dialects.responses.history import conversation
from proxy.dialects.responses.request import ResponsesRequest, decode
from proxy.dialects.tool_names import LONGEST_NAME
from proxy.values.errors import RequestError
from proxy.values.events import Begun, Finished, RoundFinished, ToolCallDelta, UsageSeen

USER = {"role": "user", "content": "hi"}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": GRAMMAR}


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}, **more}


def namespace(name: str, *tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": list(tools), **more}


def read(*items: Any, **fields: Any) -> ResponsesRequest:
    return decode(json.dumps({"model": "m", "input": list(items) or [USER], **fields}).encode())


def names(*tools: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in declared_tools(tools).functions]


def refusal(**fields: Any) -> tuple[str, str]:
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert caught.value.failed.status == 400
    return caught.value.failed.error["param"], caught.value.failed.error["message"]


# What the model is told


def test_functions_of_a_namespace_stand_in_its_place_under_their_own_names() -> None:
    agents = namespace("agents", function("spawn", description="Starts one."), function("stop"), description="Helpers.")
    told = declared_tools([function("a"), agents, function("b")]).functions
    assert [tool["function"]["name"] for tool in told] == ["a", "spawn", "stop", "b"]
    assert told[1]["function"]["description"] == "(agents: Helpers.)\n\nStarts one."
    assert "description" not in told[2]["function"]


def test_names_that_are_alike_bear_their_namespace() -> None:
    one, two = namespace("mcp__one", function("read"), function("x")), namespace("mcp__two", function("read"))
    assert names(one, two) == ["mcp__one__read", "x", "mcp__two__read"]
    assert names(namespace("n", function("read")), function("read")) == ["n__read", "read"]
    assert names(namespace("n", function("web_search"))) == ["n__web_search"], "ours are for us"
    assert names(namespace("n", function("a"), function("a")), namespace("n", function("a"))) == ["a"]
    assert names(namespace("a b", function("x")), function("x")) == ["a_b__x", "x"]


def test_names_that_need_no_fitting_choose_first() -> None:
    fitted = names(namespace("n", function("a.b"), function("a b"), function("a_b")))
    assert fitted[0] == "n__a_b"
    assert fitted[1].startswith("n__a_b_")
    assert fitted[2] == "a_b"
    assert names(namespace("n", function("a.b")), namespace("m", function("a_b"))) == ["n__a_b", "a_b"]


def test_there_is_an_end_to_their_number() -> None:
    """However they are nested, and wherever they stand."""
    many = [function(f"f{n}") for n in range(2001)]
    item = {"type": "additional_tools", "tools": many[:1000]}
    for tools in (many, [namespace("n", *many)], [namespace(f"n{n}") for n in range(2001)], many * 20):
        param, text = refusal(tools=tools)
        assert (param, "2000" in text) == ("tools", True)
    assert len(read(tools=[namespace("n", *many[:2000])]).body["tools"]) == 2000
    assert refusal(tools=many[:1001], input=[USER, item])[0] == "input[1].tools"
    assert read(USER, item, tools=many[1000:2000]).body["tools"]
    choice = {"type": "allowed_tools", "tools": [function("f1")] * 2001}
    assert refusal(tools=many[:2], tool_choice=choice)[0] == "tool_choice.tools"


NAMES = st.text("ab_é-", min_size=1, max_size=4)
LONG = st.sampled_from(["web_search", "x" * 60, "x" * 64, "x" * 65, "x" * 64 + "y"])


@given(st.lists(st.tuples(NAMES | LONG, st.lists(NAMES | LONG, max_size=4)), max_size=4), st.lists(NAMES, unique=True))
def test_names_are_short_and_each_stands_for_one_tool(spaces: list[tuple[str, list[str]]], own: list[str]) -> None:
    given_ = [function(name) for name in own] + [namespace(n, *map(function, inner)) for n, inner in spaces]
    declared = declared_tools(given_)
    made = [tool["function"]["name"] for tool in declared.functions]
    assert len(set(made)) == len(made) == len(own) + len({(n, name) for n, inner in spaces for name in inner})
    assert made[: len(own)] == own
    assert all(len(name) <= LONGEST_NAME and name not in OUR_NAMES for name in made[len(own) :])
    for name in made:
        tool = declared.tool_called(name)
        assert declared.tools_named(tool.name, tool.namespace) == [tool]
    assert [t["function"]["name"] for t in declared_tools(given_).functions] == made


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    (told,) = declared_tools([PATCH]).functions
    described = told["function"]
    assert described["name"] == "apply_patch"
    assert described["description"] == "Edits files.\n\n`input` must match this lark grammar:\nstart: /a+/"
    assert described["parameters"]["required"] == ["input"]
    assert described["parameters"]["properties"]["input"]["type"] == "string"
    regex = {"type": "grammar", "syntax": "regex", "definition": "a+"}
    (plain, strict) = declared_tools(
        [{"type": "custom", "name": "a", "format": {"type": "text"}}, {"type": "custom", "name": "b", "format": regex}]
    ).functions
    assert plain["function"]["description"] == ""
    assert strict["function"]["description"] == "`input` must match this regular expression:\na+"
    (inner,) = declared_tools([namespace("n", PATCH)]).functions
    assert inner["function"]["parameters"] == described["parameters"]


def test_what_only_its_vendor_can_run_is_left_out_and_named() -> None:
    kinds = ["file_search", "code_interpreter", "image_generation", "computer_use_preview", "mcp", "local_shell"]
    request = read(tools=[function("a"), *({"type": kind} for kind in kinds), {"type": "mcp", "server_label": "x"}])
    assert request.tools.left_out == tuple(kinds)
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["a"]
    assert [tool["type"] for tool in request.echo["tools"]] == ["function", *kinds, "mcp"]
    assert "tools" not in read(tools=[{"type": "mcp"}]).body


@pytest.mark.parametrize("kind", ["t98", "é", "a\r\nSet-Cookie: b", "x" * 99])
def test_whatever_is_left_out_cannot_be_forced(kind: str) -> None:
    tools = [*({"type": f"t{n}"} for n in range(99)), namespace("n", {"type": kind})]
    assert kind in read(tools=tools).tools.left_out
    assert read(tools=tools, tool_choice={"type": "allowed_tools", "tools": [{"type": kind}]}).body == {
        "model": "m",
        "tool_choice": "none",
    }
    with pytest.raises(RequestError) as caught:
        read(tools=tools, tool_choice={"type": kind})
    assert caught.value.failed.error["message"].startswith("Only its vendor can run")


def test_fields_that_only_its_vendor_reads_stay_here() -> None:
    more = {"defer_loading": True, "allowed_callers": ["direct"], "output_schema": {}, "async": False}
    assert declared_tools([function("a", strict=True, **more)]).functions == [
        {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}, "strict": True}}
    ]
    assert "client_metadata" not in read(client_metadata={"installation": "x"}).body


def test_items_of_the_input_may_declare_tools() -> None:
    """As Codex does for newer models: then `tools` stands nowhere else."""
    item = {"type": "additional_tools", "role": "developer", "tools": [namespace("n", function("x"), PATCH)]}
    request = read(item, USER, tools=[function("a")])
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["a", "x", "apply_patch"]
    assert chat(item, USER) == ["user hi"]
    assert not read(item, USER, tools=[]).wants_no_tools
    assert refusal(input=[USER, {"type": "additional_tools"}])[0] == "input[1].tools"
    assert refusal(input=[USER, {**item, "tools": [{"type": "custom"}]}])[0] == "input[1].tools[0].name"


def test_an_empty_list_is_a_word() -> None:
    assert read(tools=[]).wants_no_tools
    assert not read().wants_no_tools
    assert not read(tools=None).wants_no_tools


def test_odd_tools_hurt_nobody() -> None:
    inner = namespace("inner", function("x"))
    odd = [namespace("n", function("a", description=3), inner, {"type": "namespace"}, description="About.")]
    request = read(tools=odd)
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["a"]
    assert request.tools.left_out == ("namespace",)
    strange = {"type": "custom", "name": "c", "description": 3, "format": {"type": "grammar", "syntax": {}}}
    assert names(strange, {**strange, "name": "d", "format": 3}) == ["c", "d"]


# Tools that the client searches for

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}}
SEEK = {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": QUERY}
SOUGHT = {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "garden"}}
FOUND = {"type": "tool_search_output", "call_id": "s", "execution": "client", "status": "completed"}


def test_a_search_for_tools_that_the_client_runs_is_a_function() -> None:
    described = {"name": "tool_search", "description": "Finds tools.", "parameters": QUERY}
    assert declared_tools([SEEK]).functions == [{"type": "function", "function": described}]
    for other in ({**SEEK, "execution": "server"}, {"type": "tool_search"}, {**SEEK, "parameters": None}):
        assert (declared_tools([other]).functions, declared_tools([other]).left_out) == ([], ("tool_search",))


def test_what_was_found_is_declared_from_then_on() -> None:
    garden = namespace("garden", function("water"), function("read", defer_loading=True))
    items = [USER, SOUGHT, {**FOUND, "tools": [garden, function("plain")]}]
    request = read(*items, tools=[SEEK, function("read")])
    told = [tool["function"]["name"] for tool in request.body["tools"]]
    assert told == ["tool_search", "read", "water", "garden__read", "plain"]
    assert chat(*items, tools=[SEEK, function("read")]) == [
        "user hi",
        'assistant tool_search({"query":"garden"})',
        "tool These tools can be called now: water, garden__read, plain.",
    ]
    again = read(*items, *items[1:], tools=[SEEK, function("read")])
    assert [tool["function"]["name"] for tool in again.body["tools"]] == told
    assert chat(USER, SOUGHT, {**FOUND, "tools": []})[2] == "tool No tool was found."
    assert chat(USER, {**FOUND, "tools": [garden]}) == ["user hi"]
    assert chat(USER, {**SOUGHT, "call_id": None}, {**FOUND, "call_id": None, "tools": []}) == ["user hi"]


def test_the_client_is_asked_to_search_for_tools() -> None:
    encoder = answered(read(tools=[SEEK]), "tool_search", '{"query": "garden"}')
    (item,) = encoder.response["output"]
    assert (item["type"], item["execution"], item["status"]) == ("tool_search_call", "client", "completed")
    assert (item["call_id"], item["arguments"], item["id"][:4]) == ("c", {"query": "garden"}, "tsc_")
    (known,) = encoder.known_items
    items = [USER, item, {**FOUND, "call_id": "c", "tools": []}]
    messages = conversation(read(*items), (), {item["id"]: known}).messages
    assert spoken(messages)[1] == 'assistant tool_search({"query": "garden"})', "as the model wrote it"
    (item,) = answered(read(tools=[SEEK]), "tool_search", "garden").response["output"]
    assert item["arguments"] == {}


def test_a_function_may_be_called_what_the_search_for_tools_is() -> None:
    """Then that goes by another name, here and in every history."""
    both = [function("tool_search"), SEEK]
    other = "client__tool_search"
    assert names(*both) == ["tool_search", other]
    assert names(*reversed(both)) == [other, "tool_search"]
    assert names(SEEK, SEEK) == ["tool_search", "tool_search"], "for the server to judge"
    assert names(*both, function(other))[1].startswith("__tool_search_")
    (item,) = answered(read(tools=both), other, '{"query": "x"}').response["output"]
    assert item["type"] == "tool_search_call"
    (item,) = answered(read(tools=both), "tool_search").response["output"]
    assert (item["type"], item["name"]) == ("function_call", "tool_search")
    turn = [USER, SOUGHT, {**FOUND, "tools": []}]
    assert chat(*turn, tools=both)[1] == 'assistant client__tool_search({"query":"garden"})'
    assert chat(USER, called("tool_search"), RESULT, tools=both)[1] == "assistant tool_search({})"
    assert chat(*turn)[1] == chat(*turn, tools=[SEEK])[1] == 'assistant tool_search({"query":"garden"})'


@pytest.mark.parametrize("begun_with", [[SEEK], [function("tool_search"), SEEK]])
def test_a_stored_search_for_tools_goes_by_the_name_that_it_has_now(begun_with: list[dict[str, Any]]) -> None:
    encoder = answered(read(tools=begun_with), names(*begun_with)[-1], '{"query": "x"}')
    found = {**FOUND, "call_id": "c", "tools": []}
    for tools in ([SEEK], [function("tool_search"), SEEK], []):
        told = spoken(conversation(read(found, tools=tools), [USER, *encoder.rounds.messages], {}).messages)[1]
        assert told == f'assistant {names(*tools)[-1] if tools else "tool_search"}({{"query": "x"}})'


# Choices

SPACES = [namespace("one", function("read"), PATCH), namespace("two", function("read"), function("write")), PATCH]
CHOOSABLE = [*SPACES, SEEK, namespace("three", function("lone"))]


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "name": "write"}, "write"),
        ({"type": "function", "name": "write", "namespace": "two"}, "write"),
        ({"type": "function", "name": "read", "namespace": "two"}, "two__read"),
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "custom", "name": "apply_patch", "namespace": "one"}, "one__apply_patch"),
        ({"type": "tool_search"}, "tool_search"),
        ({"type": "namespace", "name": "three"}, "lone"),
    ],
)
def test_a_choice_names_a_tool(choice: dict[str, Any], name: str) -> None:
    up = {"type": "function", "function": {"name": name}}
    assert read(tools=CHOOSABLE, tool_choice=choice).body["tool_choice"] == up
    listed = {"type": "allowed_tools", "tools": [{"type": "mcp"}, choice]}
    body = read(tools=[*CHOOSABLE, {"type": "mcp"}], tool_choice=listed).body
    assert body["tool_choice"]["allowed_tools"]["tools"] == [up]


def test_a_choice_of_a_namespace_is_one_of_its_tools() -> None:
    two = [{"type": "function", "function": {"name": name}} for name in ("two__read", "write")]
    choice = {"type": "namespace", "name": "two"}
    wanted = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": two}}
    assert read(tools=SPACES, tool_choice=choice).body["tool_choice"] == wanted
    listed = {"type": "allowed_tools", "tools": [choice, {"type": "tool_search"}, choice]}
    sought = {"type": "function", "function": {"name": "tool_search"}}
    up = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [*two, sought]}}
    assert read(tools=CHOOSABLE, tool_choice=listed).body["tool_choice"] == up
    nested = [*CHOOSABLE, namespace("n", namespace("inner")), {"type": "tool_search"}]
    assert read(tools=nested, tool_choice=listed).body["tool_choice"] == up, "others of these types are left out"
    both = [function("tool_search"), SEEK]
    chosen = read(tools=both, tool_choice={"type": "tool_search"}).body["tool_choice"]
    assert chosen["function"]["name"] == "client__tool_search"
    chosen = read(tools=both, tool_choice={"type": "function", "name": "tool_search"}).body["tool_choice"]
    assert chosen["function"]["name"] == "tool_search"


def test_choices_that_cannot_be() -> None:
    tools = [*SPACES, {"type": "mcp"}]
    assert "several namespaces" in refusal(tools=tools, tool_choice={"type": "function", "name": "read"})[1]
    wrong = {"type": "function", "name": "write", "namespace": "one"}
    assert "not found" in refusal(tools=tools, tool_choice=wrong)[1]
    param, text = refusal(tools=tools, tool_choice={"type": "mcp", "server_label": "x"})
    assert (param, "Only its vendor" in text) == ("tool_choice", True)
    only = {"type": "allowed_tools", "tools": [{"type": "mcp"}]}
    assert read(tools=tools, tool_choice=only).body["tool_choice"] == "none"
    assert refusal(tools=tools, tool_choice={**only, "mode": "required"})[0] == "tool_choice.tools[0]"
    assert "Only its vendor" in refusal(tools=[{"type": "mcp"}], tool_choice="required")[1]
    assert "not found" in refusal(tools=SPACES, tool_choice={"type": "mcp"})[1]
    assert "not found" in refusal(tools=SPACES, tool_choice={"type": "tool_search"})[1]
    for odd in ("four", "", None, 3, []):
        assert "not found" in refusal(tools=SPACES, tool_choice={"type": "namespace", "name": odd})[1]
    assert "Only its vendor" in refusal(tools=[{"type": "tool_search"}], tool_choice={"type": "tool_search"})[1]


# Histories


def chat(*items: Any, **fields: Any) -> list[str]:
    return spoken(conversation(read(*items, **fields), (), {}).messages)


def spoken(messages: list[dict[str, Any]]) -> list[str]:
    """Each message in a line: its calls by name and arguments."""
    out = []
    for message in messages:
        calls = [f"{c['function']['name']}({c['function']['arguments']})" for c in message.get("tool_calls", ())]
        assert all(c.keys() == {"id", "type", "function"} for c in message.get("tool_calls", ()))
        out.append(" ".join([message["role"], *calls] if calls else [message["role"], str(message["content"])]))
    return out


def called(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": "{}", **more}


RESULT = {"type": "function_call_output", "call_id": "c", "output": "done"}
CUSTOM_CALL = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": 'a "b"\n'}
CUSTOM_RESULT = {"type": "custom_tool_call_output", "call_id": "c", "output": "done"}


def test_calls_go_up_under_the_name_that_their_tool_has() -> None:
    turn = [USER, called("read", namespace="two"), RESULT]
    assert chat(*turn, tools=SPACES) == ["user hi", "assistant two__read({})", "tool done"]
    assert chat(*turn, tools=SPACES[1:]) == ["user hi", "assistant read({})", "tool done"]
    assert chat(*turn, tools=[]) == ["user hi", "assistant read({})", "tool done"]
    assert chat(USER, called("read"), RESULT, tools=SPACES) == ["user hi", "assistant read({})", "tool done"]


def test_calls_of_custom_tools_go_up_as_the_functions() -> None:
    arguments = '{"input":"a \\"b\\"\\n"}'
    up = ["user hi", f"assistant apply_patch({arguments})", "tool done"]
    assert chat(USER, CUSTOM_CALL, CUSTOM_RESULT, tools=[PATCH]) == up
    assert chat(USER, CUSTOM_CALL, RESULT) == up
    parts = {**CUSTOM_RESULT, "output": [{"type": "input_text", "text": "done"}]}
    assert chat(USER, {**CUSTOM_CALL, "namespace": "one"}, parts, tools=SPACES) == [
        "user hi",
        f"assistant one__apply_patch({arguments})",
        "tool done",
    ]


VENDORS = [
    "file_search_call",
    "code_interpreter_call",
    "computer_call",
    "computer_call_output",
    "image_generation_call",
]
VENDORS += ["mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "local_shell_call"]
VENDORS += ["local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output"]
VENDORS += ["tool_search_call", "tool_search_output", "compaction", "reasoning"]


@pytest.mark.parametrize("kind", VENDORS)
def test_items_of_vendors_are_left_out(kind: str) -> None:
    item = {"type": kind, "id": "x", "call_id": "c", "output": {"type": "computer_screenshot"}}
    assert chat(item, USER, item) == ["user hi"]


# Answers


def answered(request: ResponsesRequest, name: str, arguments: str = "{}") -> Encoder:
    """One call of the client's, in a turn as the engine hands it on."""
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
    grown = {"role": "assistant", "content": None, "tool_calls": [call]}
    encoder = Encoder(request, "resp_1")
    encoder.feed([Begun("m"), ToolCallDelta(0, "c", name, arguments), RoundFinished((grown,))])
    encoder.feed([UsageSeen({}), Finished("tool_calls")])
    return encoder


def test_a_call_comes_back_with_its_plain_name_and_its_namespace() -> None:
    (item,) = answered(read(tools=SPACES), "two__read").response["output"]
    assert (item["type"], item["name"], item["namespace"], item["arguments"]) == ("function_call", "read", "two", "{}")
    (item,) = answered(read(tools=SPACES), "nobodys").response["output"]
    assert (item["name"], "namespace" in item) == ("nobodys", False)
    (item,) = answered(read(tools=SPACES), "one__apply_patch", '{"input": "a"}').response["output"]
    assert (item["type"], item["name"], item["namespace"], item["input"]) == (
        "custom_tool_call",
        "apply_patch",
        "one",
        "a",
    )
    assert (item["id"][:4], item["call_id"], item["status"]) == ("ctc_", "c", "completed")


@pytest.mark.parametrize(
    ("name", "written", "told"),
    [
        ("two__read", '{"x": 1}', 'read({"x": 1})'),
        ("one__apply_patch", '{"input" : "a"}', 'apply_patch({"input" : "a"})'),
        ("one__apply_patch", "*** Patch", 'apply_patch({"input":"*** Patch"})'),
    ],
)
def test_a_stored_conversation_keeps_the_namespace(name: str, written: str, told: str) -> None:
    """Whether it is built on, sent again or referred to, and whatever else is declared by then."""
    encoder = answered(read(tools=SPACES), name, written)
    (known,) = encoder.known_items
    (item,) = encoder.response["output"]
    for tools, prefix in (([*SPACES], name.split("__")[0] + "__"), ([SPACES[0]], ""), ([SPACES[1]], "")):
        expected = ["user hi", f"assistant {prefix}{told}", "tool done"]
        echo = conversation(read(USER, item, RESULT, tools=tools), (), {item["id"]: known})
        assert spoken(echo.messages) == expected
        referred = [USER, {"type": "item_reference", "id": item["id"]}, RESULT]
        assert spoken(conversation(read(*referred, tools=tools), (), {item["id"]: known}).messages) == expected
        before = [USER, *encoder.rounds.messages]
        assert spoken(conversation(read(RESULT, tools=tools), before, {}).messages) == expected
        later = conversation(read({**USER, "content": "and?"}, tools=SPACES), [USER, *echo.own[1:]], {})
        assert spoken(later.messages)[1] == f"assistant {name.split('__')[0]}__{told}", "what it stored is complete"


def test_an_edited_custom_call_counts_as_the_client_wrote_it() -> None:
    encoder = answered(read(tools=[PATCH]), "apply_patch", "*** Patch")
    (known,) = encoder.known_items
    (item,) = encoder.response["output"]
    messages = conversation(read(USER, {**item, "input": "b"}, RESULT), (), {item["id"]: known}).messages
    assert spoken(messages)[1] == 'assistant apply_patch({"input":"b"})'
