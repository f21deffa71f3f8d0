"""The `open_page` tool: its description, its arguments, and how a call of it becomes pages. Handed the model's
arguments and its session; hands on numbered `PagePart`s, and those as the model reads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from providers.errors import ProviderError
from providers.urls import encode_url

from . import prompts
from .base import OPEN_PAGE, Tool, ToolOutput, ToolSpec, described
from .options import ToolPolicy
from .page_reader import MOST_URLS
from .pages import SHORTEST, ReadPage
from .provenance import Refused, normalise
from .render import PagePart, sentence

if TYPE_CHECKING:
    from .session import ToolSession

_SAMPLE = 4000  # characters by which the weight of a page is known
_PARAMETERS: dict[str, dict[str, Any]] = {
    "url": {"type": "string"},
    "urls": {"type": "array", "items": {"type": "string"}},
    "max_length": {"type": "integer", "minimum": SHORTEST},
    "start": {"type": "integer", "minimum": 0},
    "query": {"type": "string"},
}


def spec(policy: ToolPolicy) -> ToolSpec:
    properties = described(_PARAMETERS, prompts.OPEN_PAGE_PARAMETERS)
    parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    return ToolSpec(OPEN_PAGE, prompts.OPEN_PAGE, parameters, prompts.OPEN_PAGE_UNCITED)


def _check_urls(given: list[str]) -> list[str]:
    """Each page once, in a form that can be opened."""
    urls = list(dict.fromkeys(_with_scheme(url.strip()) for url in given))
    for url in urls:
        if not normalise(url):
            raise PydanticCustomError("url", prompts.BAD_URL, {"url": repr(url[:200])})
    return urls


def _with_scheme(url: str) -> str:
    return url if "://" in url or url[:6].lower() == "local:" else f"https://{url}"


class OpenArguments(BaseModel):
    urls: Annotated[list[str], FailFast(), Field(max_length=MOST_URLS), AfterValidator(_check_urls)]
    max_length: int | None = None
    start: Annotated[int, Field(ge=0)] = 0
    query: Annotated[str, Field(max_length=400)] = ""

    @model_validator(mode="before")
    @classmethod
    def _one_list(cls, given: dict[str, Any]) -> dict[str, Any]:
        """`url` and `urls` become one list; either may hold what belongs in the other."""
        urls: list[Any] = []
        for value in (given.get("url"), given.get("urls")):
            urls += value if isinstance(value, list) else [value] if value is not None else []
        if not urls:
            raise PydanticCustomError("nothing", prompts.NO_URL)
        return given | {"urls": urls}


# A part is numbered when its call's turn has come; until then its page waits beside it. A part that failed has none.
Unnumbered = list[tuple[PagePart, ReadPage | None]]


async def read(session: ToolSession, given: OpenArguments) -> Unnumbered:
    """All pages of a call, together. One that fails does not fail the others."""
    each = session.reader.reserve(len(given.urls), given.max_length)
    if not each:
        return [(PagePart(encode_url(url), error=prompts.ROOM_USED_UP), None) for url in given.urls]
    parts: Unnumbered = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_read_one(session, url, given, each)) for url in given.urls]
        parts = [task.result() for task in tasks]
    finally:  # a read that was cancelled has used none
        session.reader.give_back(each * len(given.urls) - sum(len(part.content) for part, _ in parts))
    return parts


async def read_within(
    session: ToolSession, urls: Sequence[str], query: str, room: float, weigh: Callable[[str], float]
) -> Unnumbered:
    """Pages for who asked for none of them, best first: all that is chosen together weighs no more than `room`. What
    one leaves of its share is there for the next."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_sample(session, url)) for url in urls]
    parts: Unnumbered = []
    for place, (url, task) in enumerate(zip(urls, tasks, strict=True)):
        sample = task.result()
        weight = weigh(sample) / len(sample) if sample else 1.0
        share = int(room / (len(urls) - place) / weight)
        if share < SHORTEST:
            continue
        (part,) = await read(session, OpenArguments(urls=[url], query=query, max_length=share))
        parts.append(part)
        room -= weigh(part[0].content)
    return parts


async def _sample(session: ToolSession, url: str) -> str:
    """The beginning of a page; nothing of one that cannot be read, as whoever reads it will hear."""
    try:
        return (await session.reader.page(url)).text[:_SAMPLE]
    except (Refused, ProviderError):
        return ""


async def _read_one(
    session: ToolSession, url: str, given: OpenArguments, max_length: int
) -> tuple[PagePart, ReadPage | None]:
    try:
        return await session.reader.part(url, given.start, given.query, max_length)
    except (Refused, ProviderError) as error:
        return PagePart(encode_url(url), error=sentence(error)), None


def numbered(session: ToolSession, parts: Unnumbered) -> list[PagePart]:
    return [_numbered(session, part, page) for part, page in parts]


def _numbered(session: ToolSession, part: PagePart, page: ReadPage | None) -> PagePart:
    if page is None or part.error:
        return part
    known = session.ledger.add(page.address.url, page.title, date=page.date, final_url=page.final_url)
    source = session.ledger.give(known.n, part.content, "page")
    session.provenance.add_page(page.address, page.final_url, page.links)
    return replace(part, source=source, title=part.title or source.title)


async def settle(session: ToolSession, unnumbered: Unnumbered) -> ToolOutput:
    parts = numbered(session, unnumbered)
    sources = tuple(part.source for part in parts if part.source)
    provider = next((part.provider for part in parts if part.provider), "")
    return ToolOutput(session.text(parts), bool(sources), provider, sources)


def progress(arguments: Mapping[str, Any]) -> str:
    urls = arguments.get("urls") or [arguments.get("url") or ""]
    return f"Reading: {', '.join(map(str, urls)) if isinstance(urls, list) else urls}"


def actions(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One for each page."""
    given = [arguments.get("url"), arguments.get("urls")]
    urls = [url for some in given for url in (some if isinstance(some, list) else [some]) if isinstance(url, str)]
    return [{"type": "open_page", "url": url} for url in dict.fromkeys(urls) or [None]]


TOOL = Tool(
    name=OPEN_PAGE,
    spec=spec,
    arguments=OpenArguments,
    form=prompts.OPEN_PAGE_EXAMPLE,
    run=read,
    settle=settle,
    progress=progress,
    actions=actions,
    needs=("read",),
)
