"""Keys and passwords, kept out of what others read. Handed a text and the secrets that may be in it, because servers
like to repeat what they complain about; hands on the text without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SHORTEST = 8  # what is shorter is no secret, and stands in ordinary words
PIECE = 16  # of a secret that gives it away; less than that is in ordinary words too

# What people write where a client insists on some key. Gone from an error, they would take its sense along.
_NO_KEYS = (
    "anything dummy-key fake-key llama-cpp lm-studio local-key no-api-key no-key-needed no-key-required not-needed "
    "not-used passthrough placeholder sk-no-key-required undefined unused-key whatever"
)
PLACEHOLDERS = frozenset(_NO_KEYS.split())
# Our own words in answers, logs and reports: codes, outcomes, names of fields and paths. They tell nobody that a key is
# one of them, or a part of one.
_OURS = (
    "admin_only ambiguous_key ambiguous_model array_above_max_length authentication_error bad_host bad_request "
    "budget_exceeded client_cancelled client_left client_stalled events_not_kept expired_api_key head_too_large "
    "host_not_allowed insufficient_quota internal_error invalid_api_key invalid_json invalid_request_error "
    "invalid_type invalid_value item_not_found lease_lost missing_field missing_required_parameter model_not_found "
    "no_provider no_websockets not_found not_found_error not_installed not_permitted origin_not_allowed overloaded "
    "pages_failed permission_error previous_response_not_found provider_called providers_failed rate_limit_error "
    "rate_limit_exceeded request_timeout response_not_finished server_error shutting_down store_unavailable too_large "
    "too_many_headers too_many_parts too_many_requests unknown_parameter unsupported_media_type unsupported_parameter "
    "upstream_auth upstream_bad_response upstream_key_missing upstream_proxy_auth upstream_proxy_refused "
    "upstream_proxy_unreachable upstream_timeout upstream_tls upstream_truncated upstream_unreachable uri_too_long "
    "wrong_method "
    "citations completions contents estimated_tokens failed_calls first_content first_token_ms groundwire input_tokens "
    "messages model_failures output_tokens provider providers queued_ms question responses searches traceback upstream"
)
OUR_WORDS = frozenset(word for word in _OURS.split() if len(word) >= SHORTEST)
_LONGEST = max(map(len, OUR_WORDS))
_HIDDEN = "***"
_WORD_END = re.compile(r"\W|\Z")


def masked(text: str, secrets: Iterable[str]) -> str:
    """Without the secrets, nor any piece of `PIECE` characters of one that looks random: some servers quote half. Words
    of ours stay."""
    for secret in sorted(filter(is_secret, secrets), key=len, reverse=True):
        if secret in text:
            text = _without(text, secret)
        if any(character.isdigit() for character in secret):
            text = _without_pieces(text, secret)
    return text


def is_secret(value: str) -> bool:
    return len(value) >= SHORTEST and value.lower() not in PLACEHOLDERS


def _without(text: str, secret: str) -> str:
    kept, end = [], 0
    at = text.find(secret)
    while at >= 0:
        after = at + len(secret)
        kept += [text[end:at], secret if _is_ours(text, at, after) else _HIDDEN]
        end, at = after, text.find(secret, after)
    return "".join([*kept, text[end:]])


def _without_pieces(text: str, secret: str) -> str:
    covered: set[int] = set()
    pieces = {secret[start : start + PIECE] for start in range(len(secret) - PIECE + 1)}
    for piece in pieces:
        in_our_words = any(piece in word for word in OUR_WORDS)
        at = text.find(piece)
        while at >= 0:
            if not (in_our_words and _is_ours(text, at, at + PIECE)):
                covered.update(range(at, at + PIECE))
            at = text.find(piece, at + 1)
    if not covered:
        return text
    shown = [_HIDDEN if at - 1 not in covered else "" for at in range(len(text))]
    return "".join(shown[at] if at in covered else character for at, character in enumerate(text))


def _is_ours(text: str, start: int, end: int) -> bool:
    """Does what stands there lie within one of our own words?"""
    before = re.search(r"\w*\Z", text[max(0, start - _LONGEST) : start])
    after = _WORD_END.search(text, end, end + _LONGEST)
    if before is None or after is None:
        return False
    return text[start - len(before[0]) : after.start()] in OUR_WORDS
