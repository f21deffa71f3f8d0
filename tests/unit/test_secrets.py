"""Keys and passwords: which a config holds, and that no text keeps any of them, nor a piece that says much."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.secrets import secrets_of
from proxy.values.secrets import OUR_WORDS, PIECE, PLACEHOLDERS, SHORTEST, is_secret, masked
from tests.fakes.config import config

PRINTABLE = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="*")
KEY = "sk-proj-Zx81Kq77Lm02Pw45"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"bad key {KEY}.", "bad key ***."),
        (f"{KEY}{KEY}", "******"),
        (f"bad key {KEY[:16]}…{KEY[-4:]}", f"bad key ***…{KEY[-4:]}"),
        (f"bad key {KEY[:12]}…{KEY[-4:]}", f"bad key {KEY[:12]}…{KEY[-4:]}"),
        (f"key=…{KEY[4:]}!", "key=…***!"),
        (f"{KEY[:16]} and {KEY[8:]}", "*** and ***"),
        (f"{KEY[:15]} and {KEY[9:]}", f"{KEY[:15]} and {KEY[9:]}"),
        ("nothing to hide: sk-prod", "nothing to hide: sk-prod"),
        ("", ""),
    ],
)
def test_a_key_goes_whole_and_in_pieces(text: str, shown: str) -> None:
    assert masked(text, [KEY]) == shown


def test_ordinary_words_stay() -> None:
    text = "the model ollama wants is lm-studio's; not-needed"
    assert masked(text, ["ollama", "", "lm-studio", "not-needed", "none"]) == text
    assert masked("application refused", ["application/json"]) == "application refused"
    assert masked("hunter-two said no", ["hunter-two"]) == "*** said no"


@pytest.mark.parametrize(
    ("text", "secret", "shown"),
    [
        ("upstream_truncated: upstream", "upstream", "upstream_truncated: upstream"),
        ("outcome=upstream_truncated", "upstream-key-12345", "outcome=upstream_truncated"),
        ("rate_limit_exceeded", "x-rate_limit_exceeded-1", "rate_limit_exceeded"),
        ("groundwire said no", "groundwire", "groundwire said no"),
        ("upstreams upstream-1", "upstream", "***s upstream-1"),
        ("upstream-key-12345.", "upstream-key-12345", "***."),
        ("server_error my-secret-word", "my-secret-word", "server_error ***"),
    ],
)
def test_our_own_words_stay(text: str, secret: str, shown: str) -> None:
    assert masked(text, [secret]) == shown


def test_our_own_words_are_all_known() -> None:
    """Every code of an error that is written in the sources."""
    sources = (Path(__file__).parents[2] / "proxy").rglob("*.py")
    codes = {
        word
        for source in sources
        for word in re.findall(r'\b(?:code|kind)="([a-z_]+)"', source.read_text(encoding="utf-8"))
        if len(word) >= SHORTEST
    }
    assert len(codes) > 30
    assert codes - OUR_WORDS == set(), "add them to proxy/values/secrets.py"


def test_the_longer_of_two_is_hidden_whole() -> None:
    assert masked("x secret-one-more y", ["secret-one", "secret-one-more"]) == "x *** y"


@given(st.text(max_size=60), st.text(PRINTABLE, min_size=8, max_size=40))
def test_nothing_of_a_secret_is_left(before: str, secret: str) -> None:
    shown = masked(f"{before}{secret}{before[::-1]}{secret[3:]}", [secret])
    if is_secret(secret):
        assert secret not in shown
        if any(character.isdigit() for character in secret):
            assert not any(secret[at : at + PIECE] in shown for at in range(len(secret) - PIECE + 1))


def test_every_secret_of_a_config_is_known(file: Path) -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    text = f"""
server: {{keys: [client-key-1, {{hash: "sha256:{digest}", name: a}}]}}
store: "redis://me:redis%2Fpassword@127.0.0.1/0"
network: {{proxy: "http://me:proxy-password@proxy.example"}}
upstreams:
  - {{name: a, base_url: "http://a.example/v1", api_key: upstream-key, headers: {{X-Some: "Bearer header-key"}},
      proxy: "socks5://me:own-password@proxy.example"}}
  - {{name: b, base_url: "http://b.example/v1", api_key: passthrough}}
  - {{name: c, type: litellm, models: [bedrock/*], options: {{aws_secret_access_key: option-key, region: eu-central,
      nested: {{session_token: nested-key}}}}}}
providers:
  - {{name: a, type: searxng, base_url: "http://me:base-url-password@s.example",
      options: {{password: option-password}}}}
  - {{name: b, type: exa, api_key: provider-key, proxy: "http://me:third-password@proxy.example"}}
"""
    known = secrets_of(config(file, text, {"GROUNDWIRE_KEYS": "environment-key"}))
    wanted = {
        "client-key-1", "environment-key", digest, "redis/password", "redis%2Fpassword", "proxy-password",
        "upstream-key", "header-key", "own-password", "option-key", "nested-key", "base-url-password",
        "option-password", "provider-key", "third-password",
    }  # fmt: skip
    assert wanted <= set(known)
    assert not {"passthrough", "eu-central", "me"} & set(known)
    assert list(known) == sorted(known, key=lambda secret: (-len(secret), secret))


def test_placeholders_are_of_those_that_would_be_hidden() -> None:
    assert all(len(word) >= SHORTEST for word in PLACEHOLDERS)
