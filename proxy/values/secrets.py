"""Keys and passwords, kept out of what others read. Handed a text and the secrets that may be in it, because servers
like to repeat what they complain about; hands on the text without them.
"""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 8  # what is shorter is no secret, and stands in ordinary words

# What people write where a client insists on some key. Gone from an error, they would take its sense along.
_NO_KEYS = (
    "anything dummy-key fake-key llama-cpp lm-studio local-key no-api-key no-key-needed no-key-required not-needed "
    "not-used passthrough placeholder sk-no-key-required undefined unused-key whatever"
)
PLACEHOLDERS = frozenset(_NO_KEYS.split())
_HIDDEN = "***"


def masked(text: str, secrets: Iterable[str]) -> str:
    """Without the secrets, nor any piece of `SHORTEST` characters of one that looks random: some servers quote half."""
    for secret in sorted(filter(is_secret, secrets), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
        if any(character.isdigit() for character in secret):
            text = _without_pieces(text, secret)
    return text


def is_secret(value: str) -> bool:
    return len(value) >= SHORTEST and value.lower() not in PLACEHOLDERS


def _without_pieces(text: str, secret: str) -> str:
    covered: set[int] = set()
    for start in range(len(secret) - SHORTEST + 1):
        piece = secret[start : start + SHORTEST]
        at = text.find(piece)
        while at >= 0:
            covered.update(range(at, at + SHORTEST))
            at = text.find(piece, at + 1)
    if not covered:
        return text
    shown = [_HIDDEN if at - 1 not in covered else "" for at in range(len(text))]
    return "".join(shown[at] if at in covered else character for at, character in enumerate(text))
