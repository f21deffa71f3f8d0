"""`groundwire replay` on files that may hold anything: what cannot be read is said, and nothing reaches the terminal
that it would obey.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.groundwire import groundwire

ORDERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\r\x08\u202egnp.exe"


def line(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"req_{number:04d}",
        "time": f"2027-12-31T12:00:{number % 60:02d}.000+00:00",
        "key": "alice",
        "model": "m",
        "upstream": "local",
        "searches": [],
        "outcome": "ok",
        "steps": [],
        **more,
    }


def write(file: Path, *lines: Any) -> Path:
    texts = [said if isinstance(said, str) else json.dumps(said) for said in lines]
    file.write_text("".join(f"{text}\n" for text in texts))
    return file


def replay(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return groundwire(folder, "replay", *arguments, code=code)


def ids(shown: str) -> list[str]:
    return re.findall(r"req_\d+", shown)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def test_broken_lines_are_passed_over_and_told_of(file: Path, tmp_path: Path) -> None:
    write(file, line(1), '{"id": "req_9', "[]", "", line(2), {"time": "now", "missing": 3}, "nonsense", {"n": 1})
    done = replay(tmp_path, str(file))
    assert ids(done.stdout) == ["req_0001", "req_0002"]
    assert f"4 lines could not be read; the first is line 2 of {file}." in done.stderr
    assert "3 requests are missing" in done.stderr
    assert "could not be read" in replay(tmp_path, str(file), "req_0002").stderr


def test_files_that_were_put_aside_are_read_too(file: Path, tmp_path: Path) -> None:
    write(file, line(4))
    write(tmp_path / "audit.jsonl.1", line(3))
    write(tmp_path / "audit.jsonl.2", line(2))
    (tmp_path / "audit.jsonl.10.gz").write_bytes(gzip.compress(json.dumps(line(1)).encode() + b"\n"))
    write(tmp_path / "audit.jsonl.bak", line(5))
    assert ids(replay(tmp_path, str(file)).stdout) == ["req_0001", "req_0002", "req_0003", "req_0004"]
    assert "req_0001" in replay(tmp_path, str(file), "req_0001").stdout
    assert ids(replay(tmp_path, str(tmp_path / "audit.jsonl.2")).stdout) == ["req_0002"]


def test_ids(file: Path, tmp_path: Path) -> None:
    write(file, line(1), line(10), line(11), line(100))
    assert "alice asked m at local" in replay(tmp_path, str(file), "req_0001").stdout
    unknown = replay(tmp_path, str(file), "req_9999", code=1)
    assert unknown.stdout == ""
    assert f"There is no request req_9999 in {file}: 4 requests, from 2027-12-31T12:00:01" in unknown.stderr
    several = replay(tmp_path, str(file), "req_00", code=1)
    assert "3 requests begin with req_00: write more of the id." in several.stderr


def test_an_id_in_full_wins_over_longer_ones(file: Path, tmp_path: Path) -> None:
    write(file, line(1, id="req_a"), line(2, id="req_ab"))
    assert replay(tmp_path, str(file), "req_a").stdout.startswith(
        replay(tmp_path, str(file)).stdout.splitlines()[1][:19]
    )


def test_the_newest_are_listed_unless_all_are_wanted(file: Path, tmp_path: Path) -> None:
    write(file, *(line(number) for number in range(250)))
    done = replay(tmp_path, str(file))
    assert ids(done.stdout) == [f"req_{number:04d}" for number in range(50, 250)]
    assert "50 older ones are not shown: --all shows them." in done.stderr
    assert len(ids(replay(tmp_path, str(file), "--all").stdout)) == 250
    assert [json.loads(shown)["id"] for shown in replay(tmp_path, str(file), "--json").stdout.splitlines()][
        -1
    ] == "req_0249"


def test_nothing_to_show(file: Path, tmp_path: Path) -> None:
    write(file)
    assert "There is no request in it yet." in replay(tmp_path, str(file)).stdout
    assert "There is no file" in replay(tmp_path, str(tmp_path / "other"), code=2).stderr
    assert "cannot be read" in replay(tmp_path, str(tmp_path), code=2).stderr
    (tmp_path / "x.gz").write_text("no gzip")
    assert "cannot be read" in replay(tmp_path, str(tmp_path / "x.gz"), code=2).stderr


def test_nothing_that_a_terminal_obeys_is_printed(file: Path, tmp_path: Path) -> None:
    steps = [
        {
            "kind": "provider_called",
            "tool": "web_search",
            "asked": HOSTILE,
            "provider": HOSTILE,
            "outcome": HOSTILE,
            "ms": 1,
        },
        {
            "kind": "provider_called",
            "tool": "open_page",
            "asked": HOSTILE,
            "provider": "p",
            "outcome": "ok",
            "cached": True,
        },
        {"kind": "model_failed", "upstream": HOSTILE, "code": HOSTILE},
        {"kind": "model_failed", "upstream": "local", "status": HOSTILE},
        {"kind": "model_answered", "upstream": "local", "input_tokens": HOSTILE, "output_tokens": [HOSTILE]},
        {
            "kind": "cited",
            "n": 1,
            "url": "https://a.example/" + HOSTILE,
            "title": HOSTILE,
            "cited_text": HOSTILE,
            "basis": "page",
        },
    ]
    names = ("id", "time", "key", "model", "upstream", "outcome", "why", "method", "path", "question", "answer")
    hostile = line(1, steps=steps, **dict.fromkeys(names, f"req_1 {HOSTILE}"))
    write(file, hostile, f"broken {HOSTILE}")
    shown = [
        replay(tmp_path, str(file)),
        replay(tmp_path, str(file), "req_1"),
        replay(tmp_path, str(file), "--json"),
        replay(tmp_path, str(file), "req_1", "--json"),
        replay(tmp_path, str(file), HOSTILE.replace("\x00", ""), code=1),
    ]
    assert [found for done in shown for found in ORDERS.findall(done.stdout + done.stderr)] == []
    assert json.loads(shown[3].stdout) == hostile


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": "none"},
        {"steps": [1, None, {"kind": 3}, {"kind": "cited"}, {"kind": "provider_called"}, {"kind": "model_answered"}]},
        {"searches": 5, "time": 12, "model": None, "key": [], "outcome": {}, "ms": "long", "why": 1},
        {"question": 5, "answer": ["x"]},
        {"steps": [{"kind": "cited", "n": "1", "url": 5, "title": None, "cited_text": [], "basis": "faith"}]},
        {"time": "0001-01-01T00:00:00+14:00"},
        {"time": "9999-12-31T23:59:59-14:00"},
    ],
)
def test_fields_of_another_kind(file: Path, tmp_path: Path, wrong: dict[str, Any]) -> None:
    write(file, line(1, **wrong))
    assert "req_0001" in replay(tmp_path, str(file)).stdout
    assert "req_0001" in replay(tmp_path, str(file), "req_0001").stdout


def test_what_is_nested_deeper_than_anything_of_ours(file: Path, tmp_path: Path) -> None:
    """As deep as a line can be read at all."""
    write(file, f'{{"id": "req_0001", "more": {"[" * 1000}{"]" * 1000}}}')
    for arguments in ([], ["req_0001"], ["--json"], ["req_0001", "--json"]):
        assert "req_0001" in replay(tmp_path, str(file), *arguments).stdout


def test_of_a_line_that_cites_without_end_the_first_sources_are_shown(file: Path, tmp_path: Path) -> None:
    """Each is looked for in the answer, so a line that others wrote could take hours."""
    steps = [{"kind": "cited", "n": n, "url": f"https://a.example/{n}", "title": "A page"} for n in range(1, 3000)]
    write(file, line(1, steps=steps, answer="It is so."))
    shown = replay(tmp_path, str(file), "req_0001")
    assert [f"[{n}] A page" for n in range(1, 1001)] == re.findall(r"\[\d+\] A page", shown.stdout)


def test_a_file_whose_compressed_text_is_broken(file: Path, tmp_path: Path) -> None:
    """The beginning is right, so it passes for such a file until it is read."""
    whole = bytearray(gzip.compress(b"".join(json.dumps(line(number)).encode() + b"\n" for number in range(1000))))
    whole[10:20] = b"\xff" * 10
    (tmp_path / "x.gz").write_bytes(whole)
    assert "cannot be read" in replay(tmp_path, str(tmp_path / "x.gz"), code=2).stderr


def test_a_failover_and_a_failed_model_are_seen(file: Path, tmp_path: Path) -> None:
    steps = [
        {"kind": "model_answered", "upstream": "local", "input_tokens": 412, "output_tokens": 21, "ms": 310.0},
        {
            "kind": "provider_called",
            "tool": "web_search",
            "asked": "sky",
            "provider": "web",
            "outcome": "timed_out",
            "ms": 1000,
        },
        {
            "kind": "provider_called",
            "tool": "web_search",
            "asked": "sky",
            "provider": "ddg",
            "outcome": "ok",
            "results": 5,
            "ms": 212,
        },
        {"kind": "model_failed", "upstream": "local", "status": 503, "code": "overloaded"},
        {"kind": "forwarded", "upstream": "spare", "status": 200, "input_tokens": 9, "output_tokens": 3, "ms": 12_345},
    ]
    write(file, line(1, steps=steps))
    shown = replay(tmp_path, str(file), "req_0001").stdout.splitlines()
    assert [" ".join(row.split()) for row in shown if row.startswith("  ")] == [
        "asked local 412 + 21 tokens 310 ms",
        "searched “sky” web: timed_out 1,000 ms",
        "searched “sky” ddg: ok, 5 results 212 ms",
        "asked local failed (overloaded)",
        "asked spare 9 + 3 tokens 12.3 s",
    ]


def test_the_numbers_are_those_that_its_reader_saw(file: Path, tmp_path: Path) -> None:
    url = "https://a.example/page"
    steps = [{"kind": "cited", "n": 7, "url": url, "title": "A page", "cited_text": "It is so.", "basis": "snippet"}]
    write(file, line(1, steps=steps, question="Is it?", answer=f"It is so [[1]]({url})."))
    assert "[1] A page" in replay(tmp_path, str(file), "req_0001").stdout
