"""Calls leaked as text: every shape that a server was seen to leak, fed whole, by character and cut at every place.
The second column says who reported it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.upstreams.leaks import LeakedCall, LeakReader, recovered

TOOLS: Mapping[str, Mapping[str, Any]] = {
    "web_search": {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer"},
            "allowed_domains": {"type": "array", "items": {"type": "string"}},
            "fresh": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["query"],
    },
    "open_page": {"type": "object", "properties": {"url": {"type": ["string", "null"]}}, "required": ["url"]},
    "get_weather": {},
}
MOST_HELD = 65_536
Outcome = list[str | tuple[str, dict[str, Any]]]


def search(query: str = "tides", **more: Any) -> tuple[str, dict[str, Any]]:
    return "web_search", {"query": query, **more}


def opened(url: str = "https://a.org/") -> tuple[str, dict[str, Any]]:
    return "open_page", {"url": url}


def run(pieces: Iterable[str], tools: Mapping[str, Mapping[str, Any]] = TOOLS) -> Outcome:
    reader = LeakReader(tools)
    outcome: Outcome = []
    for made in [*map(reader.feed, pieces), reader.flush()]:
        kinds = [type(item) for item in made]
        assert (str, str) not in pairwise(kinds), "adjacent strings are joined"
        for item in made:
            if isinstance(item, LeakedCall):
                outcome.append((item.name, json.loads(item.arguments)))
                continue
            assert item, "no empty strings"
            if outcome and isinstance(outcome[-1], str):
                outcome[-1] += item
            else:
                outcome.append(item)
    return outcome


def every_way(text: str, tools: Mapping[str, Mapping[str, Any]] = TOOLS) -> Outcome:
    whole = run([text], tools)
    assert run(list(text), tools) == whole
    assert run((text[i : i + 7] for i in range(0, len(text), 7)), tools) == whole
    for cut in range(1, len(text)):
        assert run([text[:cut], text[cut:]], tools) == whole, f"cut at {cut}"
    return whole


def dsml(bars: str, wrapper: str = "") -> str:
    d = f"{bars}DSML{bars}"
    call = (
        f'<{d}invoke name="web_search">\n<{d}parameter name="query" string="true">tides</{d}parameter>\n'
        f'<{d}parameter name="limit" string="false">3</{d}parameter>\n</{d}invoke>'
    )
    return f"<{d}{wrapper}>\n{call}\n</{d}{wrapper}>" if wrapper else call


JSON = '{"name": "web_search", "arguments": {"query": "tides"}}'
LLAMA = '{"name": "web_search", "parameters": {"query": "tides"}}'
ARGUMENTS = '{"query": "tides"}'
QWEN = "<function=web_search>\n<parameter=query>\ntides\n</parameter>\n</function>"
PAGE = "<function=open_page>\n<parameter=url>\nhttps://a.org/\n</parameter>\n</function>"
INVOKE = '<invoke name="web_search"><parameter name="query">tides</parameter></invoke>'
HARMONY = f"<|channel|>commentary to=functions.web_search <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
KIMI = f"<|tool_call_begin|>functions.web_search:0<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>"
GLM = "<tool_call>web_search\n<arg_key>query</arg_key>\n<arg_value>tides</arg_value>\n</tool_call>"
NESTED = f'{{"type": "function", "function": {JSON}}}'
ENCODED = r'{"name": "web_search", "arguments": "{\"query\": \"tides\"}"}'

# Calls wherever they stand.
SHAPES: dict[str, tuple[str, str, list[tuple[str, dict[str, Any]]]]] = {
    "hermes": ("vllm#32506", f"<tool_call>\n{JSON}\n</tool_call>", [search()]),
    "hermes, one line": ("vllm#34101", f"<tool_call>{JSON}</tool_call>", [search()]),
    "hermes, no close": ("vllm#32506", f"<tool_call>\n{JSON}", [search()]),
    "hermes, two": ("vllm#34101", f"<tool_call>{JSON}</tool_call>\n<tool_call>{JSON}</tool_call>", [search()] * 2),
    "hermes, two, no close": ("vllm#34101", f"<tool_call>{JSON}\n<tool_call>{JSON}", [search()] * 2),
    "hermes, list": ("vllm#34101", f"<tool_call>[{JSON}, {LLAMA}]</tool_call>", [search()] * 2),
    "hermes, plural": ("qwen-code#10692", f"<tool_calls>[{JSON}]</tool_calls>", [search()]),
    "hermes, parameters": ("vllm#34101", f"<tool_call>{LLAMA}</tool_call>", [search()]),
    "hermes, arguments in a string": ("wire 6.2", f"<tool_call>{ENCODED}</tool_call>", [search()]),
    "hermes, OpenAI's nesting": ("groq-typescript#103", f"<tool_call>{NESTED}</tool_call>", [search()]),
    "hermes, arguments first": (
        "vllm#32506",
        '<tool_call>{"arguments": {"query": "a}\\"{"}, "name": "functions.web_search"}</tool_call>',
        [search('a}"{')],
    ),
    "hermes, no arguments": ("vllm#32506", '<tool_call>{"name": "get_weather"}</tool_call>', [("get_weather", {})]),
    "hermes, line feed in a string": (
        "vllm#32506",
        '<tool_call>{"name":"web_search","arguments":{"query":"a\nb","limit":-1.5e2,"fresh":null}}</tool_call>',
        [search("a\nb", limit=-150.0, fresh=None)],
    ),
    "hermes, with a tag in a string": (
        "vllm#32506",
        '<tool_call>{"name":"web_search","arguments":{"query":"</tool_call> `x`"}}</tool_call>',
        [search("</tool_call> `x`")],
    ),
    "qwen": ("llama.cpp#16932", f"<tool_call>\n{QWEN}\n</tool_call>", [search()]),
    "qwen, no open": ("ollama#17742", f"{QWEN}\n</tool_call>", [search()]),
    "qwen, naked": ("mlxcel#204", QWEN, [search()]),
    "qwen, two": ("qwen-code#10692", f"<tool_call>\n{QWEN}\n{PAGE}\n</tool_call>", [search(), opened()]),
    "qwen, two, no ends": (
        "qwen-code#10692",
        f"{QWEN.removesuffix('</function>')}<tool_call>{PAGE}",
        [search(), opened()],
    ),
    "qwen, no parameter end": ("omlx#844", QWEN.replace("</parameter>\n", ""), [search("tides")]),
    "qwen, types": (
        "qwen-code#10692",
        "<function=web_search><parameter=query>\n\n5\n\n</parameter><parameter=limit>\n5\n</parameter>"
        '<parameter=allowed_domains>["a.org"]</parameter><parameter=fresh>True</parameter>'
        "<parameter=other>5</parameter></function>",
        [search("\n5\n", limit=5, allowed_domains=["a.org"], fresh=True, other="5")],
    ),
    "qwen, types that do not fit": (
        "qwen-code#10692",
        "<function=web_search><parameter=query>q</parameter><parameter=limit>\nfive\n</parameter>"
        "<parameter=fresh>false</parameter></function>",
        [search("q", limit="five", fresh=False)],
    ),
    "llama function": ("langchain#31440", f"<function=web_search>{ARGUMENTS}</function>", [search()]),
    "llama function, no close": ("langchain#31440", f"<function=web_search>{ARGUMENTS}", [search()]),
    "llama, python tag": ("litellm#12481", f"<|python_tag|>{LLAMA}<|eom_id|>", [search()]),
    "mistral list": ("free-claude-code#979", f"[TOOL_CALLS][{JSON}]", [search()]),
    "mistral list, blank": ("free-claude-code#979", f"[TOOL_CALLS] [{JSON}, {JSON}]</s>", [search()] * 2),
    "mistral name": ("free-claude-code#979", f"[TOOL_CALLS]web_search[ARGS]{ARGUMENTS}", [search()]),
    "mistral name, no args tag": ("free-claude-code#979", f"[TOOL_CALLS]web_search{ARGUMENTS}", [search()]),
    "mistral call id": ("free-claude-code#979", f"[TOOL_CALLS]web_search[CALL_ID]a1b2[ARGS]{ARGUMENTS}", [search()]),
    "mistral bare name": ("free-claude-code#979", f"web_search[ARGS]{ARGUMENTS}", [search()]),
    "mistral, two": (
        "free-claude-code#979",
        f'[TOOL_CALLS]web_search[ARGS]{ARGUMENTS}[TOOL_CALLS]open_page[ARGS]{{"url": "https://a.org/"}}',
        [search(), opened()],
    ),
    "harmony": ("TensorRT-LLM#9256", HARMONY, [search()]),
    "harmony, no constrain": ("odysseus#4522", HARMONY.replace(" <|constrain|>json", ""), [search()]),
    "harmony, plain json": ("llama.cpp#15158", HARMONY.replace("<|constrain|>", ""), [search()]),
    "harmony, glued json": ("llama.cpp#15158", HARMONY.replace(" <|constrain|>", ""), [search()]),
    "harmony, start": ("TensorRT-LLM#9256", f"<|start|>assistant{HARMONY}", [search()]),
    "harmony, early recipient": (
        "TensorRT-LLM#9256",
        f"<|start|>assistant to=functions.web_search<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>",
        [search()],
    ),
    **{f"dsml {bars}": ("GenericAgent#804", dsml(bars), [search(limit=3)]) for bars in ("｜", "‖", "｜｜", "|")},
    "dsml, function_calls": ("sglang#40236", dsml("｜", "function_calls"), [search(limit=3)]),
    "dsml, tool_calls": ("vllm#54686", dsml("｜｜", "tool_calls"), [search(limit=3)]),
    "dsml, no wrapper end": (
        "sglang#40236",
        dsml("｜", "tool_calls").removesuffix("\n</｜DSML｜tool_calls>"),
        [search(limit=3)],
    ),
    "dsml, no invoke end": (
        "sglang#40236",
        dsml("｜", "tool_calls").replace("</｜DSML｜invoke>\n", ""),
        [search(limit=3)],
    ),
    "dsml, no schema": (
        "minja#11",
        '<｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="day" string="false">[2]</｜DSML｜parameter>'
        '<｜DSML｜parameter name="place" string="true">2</｜DSML｜parameter></｜DSML｜invoke>',
        [("get_weather", {"day": [2], "place": "2"})],
    ),
    "dsml, self-closed": ("sglang#40236", '<｜DSML｜invoke name="get_weather"/>', [("get_weather", {})]),
    "invoke": ("qwen-code#10692", INVOKE, [search()]),
    "invoke, wrapped": ("qwen-code#10692", f"<function_calls>\n{INVOKE}\n</function_calls>", [search()]),
    "invoke, two": ("qwen-code#10692", f"<function_calls>{INVOKE}\n{INVOKE}</function_calls>", [search()] * 2),
    "minimax": ("qwen-code#10692", f"<minimax:tool_call>\n{INVOKE}\n</minimax:tool_call>", [search()]),
    "lm studio": ("lmstudio default", f"[TOOL_REQUEST]\n{JSON}\n[END_TOOL_REQUEST]", [search()]),
    "lm studio, one line": ("lmstudio default", f"[TOOL_REQUEST]{JSON}[END_TOOL_REQUEST]", [search()]),
    "kimi": ("openai-python#3245", f"<|tool_calls_section_begin|>{KIMI}<|tool_calls_section_end|>", [search()]),
    "kimi, naked": ("openai-python#3245", KIMI, [search()]),
    "glm": ("glm template", GLM, [search()]),
    "glm, one line": ("glm template", GLM.replace("\n", ""), [search()]),
    "glm, no parameters": ("glm template", "<tool_call>get_weather</tool_call>", [("get_weather", {})]),
}
# Calls only when the message ends with them.
AT_THE_END = {
    "qwen, no ends": ("llama.cpp#16932", QWEN.removesuffix("\n</function>"), [search()]),
    "qwen, cut end": ("llama.cpp#16932", QWEN.removesuffix("tion>"), [search()]),
    "invoke, no end": ("qwen-code#10692", INVOKE.removesuffix("</invoke>"), [search()]),
    "glm, no end": ("glm template", GLM.removesuffix("\n</tool_call>"), [search()]),
    "hermes, cut end": ("vllm#32506", f"<tool_call>{JSON}</tool", [search()]),
    "dsml, blank end": ("vllm#54686", f"{dsml('｜')}\n\n ", [search(limit=3)]),
}
# Calls only as a whole message.
ALONE = {
    "llama, bare": ("litellm#12481", LLAMA, [search()]),
    "llama, bare, arguments": ("litellm#12481", f"{JSON}\n", [search()]),
    "llama, bare, typed": ("litellm#12481", NESTED, [search()]),
    "llama, bare, list": ("litellm#12481", f"[{LLAMA}, {LLAMA}]", [search()] * 2),
    "llama, bare, two": ("litellm#12481", f"{LLAMA}; {LLAMA}<|eom_id|>", [search()] * 2),
    "fenced json": ("vllm#34101", f"```json\n{JSON}\n```", [search()]),
    "fenced tag": ("vllm#34101", f"```xml\n<tool_call>\n{JSON}\n</tool_call>\n{QWEN}\n```\n", [search()] * 2),
    "fenced, no info": ("groq-typescript#28", f"```\n{INVOKE}\n```", [search()]),
    "fenced tool_call": ("vllm#34101", f"~~~tool_call\n{LLAMA}\n~~~", [search()]),
    "harmony, stripped": ("macprovider#743", f"commentary to=functions.web_search json{ARGUMENTS}", [search()]),
    "harmony, stripped, glued": ("llama.cpp#15158", f"commentary to=functions.web_searchjson{ARGUMENTS}", [search()]),
    "harmony, analysis": (
        "macprovider#743",
        f"analysisWe need assistantcommentary to do. assistantcommentary to=functions.web_search json{ARGUMENTS}",
        [search()],
    ),
    "harmony, analysis with tokens": (
        "transformers#40620",
        f"<|channel|>analysis<|message|>Need to search.<|end|><|start|>assistant{HARMONY}",
        [search()],
    ),
}
EVERYTHING = SHAPES | AT_THE_END | ALONE
LEADS = ("Let me look that up.\n\n", "I'd say 2 < 3, `<tool_call>` [1]: ")
TRAILS = (" Done.", "\n\nThat is `all` <b>", "<tool_call>", "[1]")


@pytest.mark.parametrize("shape", EVERYTHING)
def test_a_leaked_call_is_recovered(shape: str) -> None:
    _, text, calls = EVERYTHING[shape]
    assert every_way(text) == calls


@pytest.mark.parametrize("shape", SHAPES | AT_THE_END)
def test_text_before_and_after_a_call_stays(shape: str) -> None:
    _, text, calls = EVERYTHING[shape]
    for lead in LEADS:
        assert every_way(lead + text) == [lead, *calls]
    if shape in SHAPES:
        for trail in TRAILS:
            assert every_way(text + trail) == [*calls, trail]
        assert every_way(LEADS[0] + text + TRAILS[0]) == [LEADS[0], *calls, TRAILS[0]]


@pytest.mark.parametrize("shape", [shape for shape in ALONE if "harmony" not in shape and "tag" not in shape])
def test_what_is_a_call_only_alone_is_text_in_company(shape: str) -> None:
    text = ALONE[shape][1]
    assert every_way(f"Here:\n{text}") == [f"Here:\n{text}"]
    assert every_way(f"{text}\nThat is how.") == [f"{text}\nThat is how."]


@pytest.mark.parametrize("shape", EVERYTHING)
def test_a_cut_call_is_never_lost(shape: str) -> None:
    _, text, calls = EVERYTHING[shape]
    for cut in range(len(text)):
        outcome = run([text[:cut]])
        made = [item for item in outcome if not isinstance(item, str)]
        said = "".join(item for item in outcome if isinstance(item, str))
        assert len(made) <= len(calls)
        for (name, arguments), (whole_name, whole) in zip(made, calls, strict=False):
            assert name == whole_name
            assert arguments.items() <= whole.items(), "the last parameters may be missing, but none is cut"
        assert text[:cut].endswith(said) if made else said == text[:cut]


@pytest.mark.parametrize("shape", EVERYTHING)
def test_a_name_that_was_not_offered_is_text(shape: str) -> None:
    text = EVERYTHING[shape][1]
    assert every_way(text, {"lookup": {}, "web": {}, "get_weather_map": {}}) == [text]
    assert run([text], {}) == [text]


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_a_call_in_code_or_after_a_quotation_mark(shape: str) -> None:
    text = SHAPES[shape][1]
    ordinary = [f"Write:\n```\n{text}\n```\n", f"Write ``{text}`` then"]
    if "two" not in shape:  # only the call that directly follows the mark is quoted
        ordinary += [f'Write "{text}" or', f"Not \\{text}", f"„{text}“"]
    for quoted in ordinary:
        assert every_way(quoted) == [quoted]


def test_analysis_before_the_final_answer_is_dropped() -> None:
    assert every_way("analysisUser asks. Easy.assistantfinalIt is **4**.") == ["It is **4**."]
    tokens = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>It is 4."
    assert every_way(tokens) == ["It is 4."]


def test_a_call_after_a_false_alarm_is_recovered() -> None:
    for text in (
        "The tag <tool_call> and [TOOL_CALLS]: ",
        '<tool_call>{"name": "web_search", "arguments": {"query": }}</tool_call>\n',
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>\n',
        '<tool_call>{"name": "web_search", "arguments": {"query": "never closed\n</tool_call>\n',
        "<function=web_search>\n<parameter=query>x</parameter> is how it begins. ",
        "analysisWe need assistantcommentary, but no end. ",
        '{"name": "web_search", "parameters": {"query": "x"}} is Llama\'s form. ',
    ):
        assert every_way(f"{text}<tool_call>{JSON}</tool_call>") == [text, search()]


def test_a_call_is_held_up_to_the_bound() -> None:
    frame = len('<tool_call>{"name":"web_search","arguments":{"query":""}}')
    for size, is_call in ((MOST_HELD, True), (MOST_HELD + 1, False)):
        query = "x" * (size - frame)
        text = '<tool_call>{"name":"web_search","arguments":{"query":"' + query + '"}}'
        later = text + "</tool_call>" + INVOKE
        expected = [search(query), search()] if is_call else [text + "</tool_call>", search()]
        for step in (len(later), 1000, 7):
            assert run(later[i : i + step] for i in range(0, len(later), step)) == expected


def test_release_hands_out_what_is_held_and_ends_the_reading() -> None:
    reader = LeakReader(TOOLS)
    assert reader.feed("So <tool_call>{") == ["So "]
    assert reader.feed('"name": "web_search", ') == []
    assert reader.release() == '<tool_call>{"name": "web_search", '
    assert reader.feed(INVOKE) == [INVOKE]
    assert reader.flush() == []
    assert reader.release() == ""


def test_only_what_may_begin_a_call_is_held() -> None:
    reader = LeakReader(TOOLS)
    for text in ("Two ", "< three", " and a [", "1] web", "site <tool_", "kit> open_pag", "es"):
        reader.feed(text)
    assert reader.release() == ""


@pytest.mark.parametrize("shape", EVERYTHING)
def test_a_failed_generation_is_read_whatever_its_shape(shape: str) -> None:
    _, text, calls = EVERYTHING[shape]
    assert [(call.name, json.loads(call.arguments)) for call in recovered(text, TOOLS)] == calls


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"web_search{ARGUMENTS}</function>", [search()]),  # smolagents#1119
        (f"<function=web_search {ARGUMENTS} </function>", [search()]),
        (f"<function/web_search>{ARGUMENTS}</function>", [search()]),
        (f'<tool-use>\n{{"tool_calls": [{NESTED}]}}\n</tool-use>', [search()]),  # groq-typescript#103
        (f'```\n{{"tool_calls": [{JSON}, {LLAMA}]}}\n``` and so on', [search()] * 2),  # groq-typescript#28
        (f"I will call web_search with this: {{broken, functions.web_search({ARGUMENTS})", [search()]),
        ('web_search({"query": "a"}) open_page({"url": "https://a.org/"})', [search("a"), opened()]),
        (f"{JSON} and so on", [search()]),
        (f'{{"tool_calls": [{NESTED}, {LLAMA}]}}</function>', [search()] * 2),
        (f"{{broken {JSON}", [search()]),
        (ARGUMENTS, []),
        ("I cannot do that. {}", []),
        ("", []),
    ],
)
def test_a_failed_generation_is_read_leniently(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert [(call.name, json.loads(call.arguments)) for call in recovered(text, TOOLS)] == calls


PIECES = st.sampled_from(
    [shape[1] for shape in EVERYTHING.values()]
    + ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<function=", "web_search", ">", "[ARGS]", "<|channel|>", "json"]
    + ["commentary", "analysisWe", "assistantfinal", "<parameter=query>", "</parameter>", "<｜DSML｜", 'invoke name="']
    + ["{", "}", '"', "[", "]", "<", "`", "```", "\n", "\n\n", " ", "\\", "a", "é", "'", ARGUMENTS, JSON]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=8).map("".join), st.data())
@example("`" + INVOKE, None)
def test_the_cuts_do_not_matter_and_nothing_is_doubled(text: str, data: st.DataObject | None) -> None:
    whole = run([text])
    assert run(list(text)) == whole
    if data is not None and text:
        cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
        assert run(text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)) == whole
    at = 0
    for item in whole:
        if isinstance(item, str):
            at = text.index(item, at) + len(item)
    if not [item for item in whole if not isinstance(item, str)] and "final" not in text:
        assert "".join(item for item in whole if isinstance(item, str)) == text
