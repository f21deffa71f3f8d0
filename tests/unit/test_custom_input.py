"""The text inside `{"input": "…"}`, read while it is written: cut at every place it is the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.responses.custom_input import CustomInput, sound_arguments

PATCH = '*** Begin Patch\n*** Add File: a "b".txt\n+\tcafé 😀 \\ / \u2028\n*** End Patch\n'
CASES = {
    '{"input": "ls -l"}': "ls -l",
    ' {\n "input" :\t"" } ': "",
    json.dumps({"input": PATCH}): PATCH,
    json.dumps({"input": PATCH}, ensure_ascii=False): PATCH,
    r'{"input": "\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\"}': 'é😀/\b\f\n\r\t"\\',
    r'{"input": "\ud83d"}': "\ufffd",
    r'{"input": "\ude00x"}': "\ufffdx",
    r'{"input": "\ud83d\ud83d\ude00"}': "\ufffd😀",
    r'{"input": "\ud83d\n"}': "\ufffd\n",
    r'{"input": "\d+\uzz"}': r"\d+\uzz",
    '{"input": "a\nb"}': "a\nb",
    '{"input": "a", "why": "b"}': "a",
    # cut short
    '{"input": "half': "half",
    r'{"input": "half\u00': "half",
    r'{"input": "half\ud83d': "half\ufffd",
    r'{"input": "half\ud83d\u': "half\ufffd",
    '{"inp': '{"inp',
    # not as it was asked for
    "": "",
    "{}": "",
    "ls -l": "ls -l",
    "\n  ls -l\n": "\n  ls -l\n",
    '"ls\\n"': "ls\n",
    '"ls" -l': '"ls" -l',
    '{"command": "ls"}': "ls",
    '{"why": "b", "input": "a"}': "a",
    '{"input": ["ls", "-l"]}': '["ls","-l"]',
    '{"a": "b", "c": "d"}': '{"a": "b", "c": "d"}',
    "{ print $1 }": "{ print $1 }",
    "[1]": "[1]",
    " " * 300 + '{"input": "far"}': "far",
}


def read(*pieces: str) -> str:
    given_ = CustomInput()
    told = "".join([*(given_.feed(piece) for piece in pieces), given_.close()])
    assert given_.text == told
    assert given_.feed("more") == given_.close() == ""
    return told


@pytest.mark.parametrize("arguments", CASES)
def test_whole_by_character_and_cut_at_every_place(arguments: str) -> None:
    assert read(arguments) == CASES[arguments]
    assert read(*arguments) == CASES[arguments]
    for cut in range(1, len(arguments)):
        assert read(arguments[:cut], arguments[cut:]) == CASES[arguments]


@given(st.text(), st.booleans(), st.integers(1, 7))
def test_any_text_comes_through(text: str, ascii_: bool, size: int) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_)
    assert read(*(arguments[at : at + size] for at in range(0, len(arguments), size))) == text


@given(st.text('{}"\\inputu:d83eé \n', max_size=40))
def test_however_it_is_cut_it_is_the_same(arguments: str) -> None:
    whole = read(arguments)
    whole.encode()
    assert read(*arguments) == whole


def test_it_streams() -> None:
    given_ = CustomInput()
    pieces = ['{"in', 'put": "a', "b", "\\", "n", "\\ud83d", "\\ude00c", '"', "}"]
    assert [given_.feed(piece) for piece in pieces] == ["", "a", "b", "", "\n", "", "😀c", "", ""]
    bare = CustomInput()
    assert [bare.feed(piece) for piece in ("\n", "ls", " -l")] == ["", "\nls", " -l"]


def test_what_is_told_to_the_model_again_is_an_object() -> None:
    assert sound_arguments('{"input" : "a"}', "a") == '{"input" : "a"}'
    for written in ('{"cmd": "a"}', "a", '"a"', "{}", "", '{"input": "b"}'):
        assert sound_arguments(written, "a") == '{"input":"a"}'
