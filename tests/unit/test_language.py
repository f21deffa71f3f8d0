"""Which language a client wants, read from what it says."""

from __future__ import annotations

import pytest

from proxy.values.language import accepted_language, primary_language


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("de", "de"),
        ("de-CH;q=0.9", "de"),
        ("de-CH, en;q=0.5", "de"),
        ("en;q=0.5, de-CH", "de"),
        ("en;q=0.5,de;q=0.9,fr;q=0.7", "de"),
        ("en-US,en;q=0.9,de;q=0.8", "en"),
        ("DE-ch", "de"),
        ("zh-Hant-TW", "zh"),
        ("fr;q=0.8, de;q=0.8", "fr"),  # the first of equals
        ("de ; Q=0.3 , en ; q=0.4", "en"),
        ("gsw, de;q=0.8", "de"),  # one that has no two-letter code
        ("xx, de;q=0.8", "de"),
        ("de;q=0, en;q=0.1", "en"),
        ("de;q=1.000", "de"),
        ("fr;q=0.9, *;q=0.5", "fr"),
        ("*", ""),
        ("*;q=0.5", ""),
        ("*, de;q=0.5", ""),  # any other is more welcome than German
        ("", ""),
        (" , ,", ""),
        ("de;q=0", ""),
        ("i-klingon", ""),
        ("german", ""),
        ("d", ""),
        ("12", ""),
        ("de_CH", ""),
        ("dé", ""),
        ("de;q=high", ""),
        ("de;q=2", ""),
        ("de;q=-1", ""),
        ("de;q=nan", ""),
        ("de;v=1", ""),
        ("d" * 100_000, ""),
        ("," * 100_000 + "de", "de"),
    ],
)
def test_what_accept_language_asks_for(header: str, language: str) -> None:
    assert accepted_language(header) == language


@pytest.mark.parametrize(
    ("tag", "language"), [("de", "de"), (" De-CH ", "de"), ("gsw", ""), ("xx", ""), ("*", ""), ("", "")]
)
def test_the_language_of_a_tag(tag: str, language: str) -> None:
    assert primary_language(tag) == language
