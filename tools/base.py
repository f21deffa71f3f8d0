"""What a tool is, what it is handed and what it hands back. Handed a `ToolCall` by the loop, a session runs the `Tool`
of that name and answers a `ToolResult`. `decode_arguments` reads the call's JSON as models really write it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, FailFast, ValidationError

from providers.base import Role
from providers.records import dataclass

from . import prompts
from .ledger import Source

if TYPE_CHECKING:
    from .options import ToolPolicy
    from .session import ToolSession

WEB_SEARCH = "web_search"
OPEN_PAGE = "open_page"

MAX_ARGUMENTS = 65_536


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    tool: str  # our name (`web_search`, `open_page`), or whatever unknown name the model made up
    arguments: str  # the JSON text as the model wrote it


@dataclass(frozen=True, slots=True)
class ToolResult:
    id: str
    text: str  # what the model reads
    ok: bool = True
    provider: str = ""
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool found. The session makes a result of it for each call that asked for it."""

    text: str
    ok: bool = True
    provider: str = ""
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is offered to the model. Constant bytes for a day: but for the date, nothing in it depends on the
    request, only on what its caller may use."""

    tool: str
    description: str
    parameters: Mapping[str, Any]
    uncited: str = ""  # the description without the rule for citing; empty: it holds none


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a tool may have to say of the request that it is offered to."""

    today: str  # YYYY-MM-DD, the same for all of a request
    tools: frozenset[str]  # all of ours that are offered
    searchers: tuple[str, ...] = ()  # the search providers that may be asked


def described(
    schemas: Mapping[str, Mapping[str, Any]], words: Mapping[str, str], **places: object
) -> dict[str, dict[str, Any]]:
    """The parameters of a tool, each with what the model reads of it."""
    return {name: {**schema, "description": words[name].format(**places)} for name, schema in schemas.items()}


class BadArguments(Exception):
    """The call cannot be understood or may not run. The message says to the model what is wrong with it; `problems` are
    its parts, each with the argument that it is about, where that is known."""

    def __init__(self, message: str, problems: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


# Models write one item where a list belongs. Of a long list in which all is wrong the first says enough.
Strings = Annotated[
    list[str], FailFast(), BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value)
]
Arguments = TypeVar("Arguments", bound=BaseModel)
Finding = TypeVar("Finding")


async def as_it_is(session: ToolSession, finding: Any) -> Any:
    return finding


def as_ever(spec: ToolSpec, now: Circumstances) -> ToolSpec:
    return spec


def nothing_shown(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    return []


@dataclass(frozen=True, slots=True)
class Tool(Generic[Arguments, Finding]):
    """One thing that the model may call, as far as anybody has to know it. A new one is a file with such a value in it
    and a line in `toolbox.TOOLS`.

    The calls of a turn `run` together; then each is settled in its turn, so that sources are numbered in the order of
    the calls. A tool without sources leaves `settle` out and hands back a `ToolOutput` at once. `progress` and
    `actions` get the arguments as the model wrote them: these may be anything.
    """

    name: str
    spec: Callable[[ToolPolicy], ToolSpec]
    arguments: type[Arguments]
    form: str  # arguments that are right, for a model whose were not
    run: Callable[[ToolSession, Arguments], Coroutine[Any, Any, Finding]]
    progress: Callable[[Mapping[str, Any]], str]  # one line for people
    settle: Callable[[ToolSession, Finding], Awaitable[ToolOutput]] = as_it_is
    actions: Callable[[Mapping[str, Any]], list[dict[str, Any]]] = nothing_shown  # the `action`s of Responses
    needs: tuple[Role, ...] = ()  # what some provider must be able to do; who needs `read` fetches pages
    fit: Callable[[ToolSpec, Circumstances], ToolSpec] = as_ever  # the spec as one request is offered it


def decode_arguments(text: str) -> dict[str, Any]:
    """The object in the arguments text: also if it is missing, encoded twice, or has words around it."""
    if len(text) > MAX_ARGUMENTS:
        raise BadArguments(prompts.TOO_LONG)
    value: Any = text
    for _ in range(3):
        if isinstance(value, dict):
            return value
        if value is None or (isinstance(value, str) and not value.strip()):
            return {}
        if not isinstance(value, str):
            break
        value = _json_in(value)
    raise BadArguments(prompts.NOT_AN_OBJECT)


_READER = json.JSONDecoder(strict=False)


def _json_in(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # it may still be JSON to who is more patient: with a line break in a string, NaN, …
        pass
    try:
        return _READER.decode(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _READER.raw_decode(text, text.index("{"))[0]
    except (ValueError, RecursionError):
        raise BadArguments(prompts.NOT_JSON) from None


def validate(kind: type[Arguments], given: Mapping[str, Any]) -> Arguments:
    """The arguments as the tool's own model. Nulls and empty strings count as left out, unknown keys as not there."""
    try:
        return kind.model_validate({key: value for key, value in given.items() if value is not None and value != ""})
    except ValidationError as error:
        problems = [_problem(detail) for detail in error.errors(include_url=False)[:3]]
        raise BadArguments("; ".join(" ".join(filter(None, problem)) for problem in problems), problems) from None


def _problem(detail: Mapping[str, Any]) -> tuple[str, str]:
    what = prompts.MISSING if detail["type"] == "missing" else detail["msg"].removeprefix("Input ")
    return ".".join(str(part) for part in detail["loc"]), what
