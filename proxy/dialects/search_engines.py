"""What the APIs of search engines have in common, whoever invented them: a search that one was asked for, as our tools
take it, and what they give back. Handed on by the dialects of those engines. Pure.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, ValidationError
from pydantic_core import PydanticCustomError

from providers.records import dataclass

from ..values.errors import refuse

_RANGES = ((1, "d"), (7, "w"), (31, "m"), (366, "y"))  # days, and the range that holds as many
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ][0-9:.+Z-]{1,30})?")


def _day(given: object) -> dt.date:
    """Numbers are none: what counts seconds or spells a day without its dashes would become another day."""
    found = _DAY.fullmatch(given) if isinstance(given, str) else None
    try:
        return dt.date.fromisoformat(found[1] if found else "")
    except ValueError:
        raise PydanticCustomError("day", "it must be a day such as 2026-01-31") from None


Day = Annotated[dt.date, BeforeValidator(_day)]
# Of a long list in which all is wrong the first entry says enough: each costs microseconds and memory, and nobody else
# is served meanwhile.
Strings = Annotated[list[str], FailFast()]


@dataclass(frozen=True, slots=True)
class EngineSearch:
    """`arguments` are those of `web_search`, and `names` what the engine's clients call them."""

    arguments: Mapping[str, Any]
    names: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    country: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True)
class ReadText:
    """What a page says, or why it could not be read."""

    url: str  # as it was asked for
    title: str = ""
    text: str = ""
    error: str = ""


class Shape(BaseModel):
    """A body of such an API. What we do not know in it belongs to somebody's newer version, and does no harm."""

    model_config = ConfigDict(extra="ignore")


Body = TypeVar("Body", bound=Shape)


def checked(kind: type[Body], given: Mapping[str, Any]) -> Body:
    """Nulls count as left out."""
    try:
        return kind.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = str(first["loc"][0]) if first["loc"] else ""
        text = f"`{param}` is wrong: {first['msg'].rstrip('.')}."
        raise refuse(400, text, param=param, code="invalid_value") from None


def since(days: int, today: dt.date) -> dict[str, str]:
    """The last so many days: exactly for who knows days, as the next larger range for all others."""
    days = min(days, (today - dt.date(1970, 1, 1)).days)
    first = (today - dt.timedelta(days)).isoformat()
    return {"time_range": next((name for most, name in _RANGES if days <= most), "all"), "published_after": first}


def score_of(rank: int) -> float:
    """Of our providers few say how well a page fits; their order does. Clients leave out what is below a half."""
    return round(max(1 - rank * 0.02, 0.5), 2)
