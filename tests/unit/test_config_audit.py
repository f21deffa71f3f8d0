"""What an operator may say about the audit: a file, or a file and more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.config import config, refusal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def test_a_name_alone_is_enough(file: Path) -> None:
    short, long = config(file, "audit: audit.jsonl").audit, config(file, "audit: {file: audit.jsonl}").audit
    assert short == long
    assert (short.file, short.max_size, short.keep) == ("audit.jsonl", 100 << 20, 5)
    assert config(file, 'audit: ""').audit.file == ""
    assert config(file, "audit: ${NAME}", {"NAME": "/var/log/a"}).audit.file == "/var/log/a"
    assert config(file, "audit: {file: a, max_size: 1MiB, keep: 1}").audit.max_size == 1 << 20


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("audit: folder/", "audit.file: must be the name of a file"),
        ("audit: {name: a}", "audit.name: unknown key"),
        ("audit: {file: a, max_size: 1KB}", "audit.max_size: must be"),
        ("audit: {file: a, keep: 0}", "audit.keep: must be"),
        ("audit: true", "audit: must be a mapping"),
        ("audit: [a]", "audit: must be a mapping"),
    ],
)
def test_mistakes_have_their_place(file: Path, said: str, place: str) -> None:
    assert f"line 1, {place}" in refusal(file, said)
