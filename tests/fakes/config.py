"""Config files as a person writes them: what they load to, or why they are refused."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.config.file import EXAMPLE
from proxy.config.settings import Config, ConfigError, load


def config(file: Path, text: str, environ: Mapping[str, str] | None = None, **overrides: Any) -> Config:
    file.write_text(text, encoding="utf-8")
    return load(file, environ or {}, **overrides)


def refusal(file: Path, text: str | bytes, environ: Mapping[str, str] | None = None, **overrides: Any) -> str:
    """The problems of the one error; that it ends with a working example is checked for every error there is."""
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load(file, environ or {}, **overrides)
    problems, _, example = str(caught.value).partition("\n\nA minimal config.yaml that works:\n\n")
    assert [line.removeprefix("  ") for line in example.splitlines()] == EXAMPLE.splitlines()
    return problems


def filled_in(example: str) -> tuple[str, dict[str, str]]:
    """An example of the documentation with keys in it, as a reader completes it; and the variables that it needs."""
    numbers = itertools.count()
    text = re.sub("sha256:…", lambda _: "sha256:" + hashlib.sha256(b"made %d" % next(numbers)).hexdigest(), example)
    names = dict.fromkeys(re.findall(r"\$\{(\w+)\}", example))
    return text, {name: f"gw-made-for-{name.lower()}" for name in names}
