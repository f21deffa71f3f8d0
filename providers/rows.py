"""What services send, in our terms. Handed parts of their JSON, whatever stands there; hands on texts, days, names and
scores, and nothing where there is none. Never raises; pure but for the clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

_MARKDOWN_LINK = re.compile(r"(?<!!)\[[^\[\]]{0,500}\]\(<?(https?://(?:[^\s()<>]|\([^\s()<>]{0,200}\))+)")
_AGO = re.compile(r"(\d{1,3}|an?) (minute|hour|day|week|month|year)s? ago", re.I | re.A)  # ASCII, or ı would be an i
_ENGLISH_DAY = re.compile(r"([a-z]{3})[a-z]*\.? (\d{1,2}), (\d{4}).*", re.I)
_AGO_DAYS = {"minute": 1 / 1440, "hour": 1 / 24, "day": 1, "week": 7, "month": 30, "year": 365}


def part(value: object, *keys: str) -> Any:
    """What lies under these keys, one inside the other; None where one is missing or is no object."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def records(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list of JSON; whatever else a service may have sent instead is none."""
    if not value or not isinstance(value, list):  # most of what is looked for is not there
        return []
    return [row for row in value if isinstance(row, dict)]


def error_part(body: str, *keys: str) -> Any:
    """What an error's body says under these keys, if it is JSON at all."""
    return part(parsed(body), *keys)


def as_day(value: object) -> str | None:
    """YYYY-MM-DD from ISO 8601, RFC 1123, "May 1, 2026" or "3 days ago"; None from anything else."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    if ago := _AGO.match(text):
        count = int(ago[1]) if ago[1].isdecimal() else 1
        return (datetime.now(UTC) - timedelta(days=count * _AGO_DAYS[ago[2].lower()])).date().isoformat()
    for read in (_iso, _english, parsedate_to_datetime):
        try:
            return read(text).date().isoformat()
        except (ValueError, OverflowError):
            continue
    return None


def as_author(value: object) -> str | None:
    """One name, or several in one line."""
    if value is None:
        return None
    names = value if isinstance(value, list) else [value]
    return ", ".join(name.strip() for name in names if isinstance(name, str) and name.strip()) or None


def as_score(value: object) -> float | None:
    return float(value) if type(value) is float or type(value) is int else None


def _iso(text: str) -> datetime:
    return datetime.strptime(text[:10], "%Y-%m-%d")


def _english(text: str) -> datetime:
    return datetime.strptime(_ENGLISH_DAY.sub(r"\1 \2 \3", text), "%b %d %Y")


def parsed(body: str | bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        # It takes half an emoji, where a service cut a text in its midst: one such row must not cost the others.
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def text_in(value: object) -> str:
    """A text, or several as one; nothing from what is neither."""
    if isinstance(value, list):
        return " … ".join(item.strip() for item in value if isinstance(item, str) and item.strip())
    return value.strip() if isinstance(value, str) else ""


def is_web(url: str) -> bool:
    return url.startswith(("https://", "http://"))


def links_in(markdown: str) -> Iterable[str]:
    return (found[1] for found in _MARKDOWN_LINK.finditer(markdown))
