"""`groundwire check`, the doctor: tries every upstream and provider, and the store, live, all together, each for a
bounded time.

Handed a config; prints what each try saw and, where something is broken, the one thing to do. What a foreign server
says is shown as one clean line, without the keys that it was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections.abc import Awaitable, Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from providers.base import Inspectable, Inspection, Role, SearchQuery
from providers.chain import AllFailed, Owner, ReadChain, SearchChain
from providers.documents.report import Indexing, summary
from providers.errors import NoResults, ProviderError, TimedOut
from providers.gateway import ProviderGateway
from providers.registry import SERVICES, NamedProvider, ProviderEntry
from providers.web.egress import Egress
from tools.clean import one_line

from ..config.secrets import secrets_of
from ..config.settings import Config
from ..config.upstreams import UpstreamConfig
from ..house import House
from ..store.store import MemoryStore, Store
from ..upstreams.client import UpstreamClient
from ..values.errors import RequestError
from ..values.events import Failed, Replan, ToolCallDelta
from ..values.secrets import masked
from . import remedies
from .remedies import PROBE_PAGE, PROBE_TEXT
from .running import opened, run_with_config

PROBE_QUERY = SearchQuery(PROBE_TEXT, limit=3)
PROBE_QUESTION = {"role": "user", "content": "Search the web for the weather in Paris."}
PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "web_search",
        "description": "Searches the web.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
LIMIT = 15.0  # seconds for each try
LOADING = 4  # times as long for a model: its server may have to load it first

# What servers list besides models that chat; asking those would say nothing about tools.
_NOT_FOR_CHAT = re.compile(
    r"embed|whisper|tts|transcri|audio|realtime|image|dall-e|sora|moderation|rerank|turbo-instruct|babbage|davinci",
    re.I,
)
_WITHOUT_TOOLS = {
    "prompted": "its tools are described in words (tool_calls: prompted)",
    "none": "the web is searched before it is asked (tool_calls: none)",
}

Kind = Literal["upstream", "tools", "search", "read", "store"]


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str  # the name of a provider or an upstream, or what the store is
    kind: Kind
    ok: bool
    seconds: float
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    findings: list[Finding]
    notes: list[str]

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)


class Trouble(Exception):
    """A try that shows what is wrong."""

    def __init__(self, detail: str, fix: str) -> None:
        super().__init__(detail)
        self.fix = fix


def run(given: argparse.Namespace) -> int:
    return run_with_config(check, given, providers="critical")  # what they say is in the report


async def check(config: Config, given: argparse.Namespace) -> int:
    """Prints the report; the exit code says whether anything is broken."""
    async with opened(config) as house:
        report = await examine(house)
    if given.json:
        findings = [asdict(finding) for finding in report.findings]
        shown = {"ok": report.ok, "findings": findings, "notes": report.notes}
        print(json.dumps(shown, ensure_ascii=False, indent=2))
    else:
        _print(report)
    return 0 if report.ok else 1


async def examine(house: House, *, page: str = PROBE_PAGE, limit: float = LIMIT) -> Report:
    """Tries everything at once, readers with `page`, each for about `limit` seconds."""
    gateway, egress = ProviderGateway(house.config.cooldown), house.config.network.egress
    entries = {entry.name: entry for entry in house.config.providers}
    async with asyncio.TaskGroup() as group:
        upstreams = [group.create_task(_try_upstream(upstream, egress, limit)) for upstream in house.upstreams]
        roles = [
            group.create_task(_try_provider(member, entries[member.name], role, gateway, page, limit))
            for role in ("search", "read")
            for member in house.providers.values()
            if role in _roles(house, member)
        ]
        store = group.create_task(_try_store(house.store, limit))
    findings = [finding for upstream in upstreams for finding in upstream.result()] + [role.result() for role in roles]
    secrets = secrets_of(house.config)  # a report is pasted into issues, and servers repeat what they were sent
    shown = [replace(found, detail=masked(found.detail, secrets)) for found in findings + store.result()]
    return Report(shown, list(_notes(house)))


def _print(report: Report) -> None:
    width = max(len(f"{finding.kind} {finding.subject}") for finding in report.findings)
    for finding in report.findings:
        subject, state = f"{finding.kind} {finding.subject}", "ok" if finding.ok else "BROKEN"
        print(f"{subject:<{width}}  {state:<6}  {finding.seconds * 1000:6.0f} ms  {finding.detail}")
        if finding.fix:
            print(f"{'':<{width}}  → {finding.fix}")
    for note in report.notes:
        print(f"note: {note}")


async def _try(subject: str, kind: Kind, attempt: Awaitable[str], limit: float, when_late: str) -> Finding:
    began = time.monotonic()
    fix = ""
    try:
        async with asyncio.timeout(limit):
            detail = await attempt
    except TimeoutError:
        detail, fix = f"no answer within {limit:g} s", when_late
    except Trouble as trouble:
        detail, fix = str(trouble), trouble.fix
    return Finding(
        subject, kind, not fix, round(time.monotonic() - began, 3), one_line(detail, 300), one_line(fix, 300)
    )


# The store


async def _try_store(store: Store, limit: float) -> list[Finding]:
    if isinstance(store, MemoryStore):
        return []
    from ..store.redis_store import RedisStore

    assert isinstance(store, RedisStore)
    start = "see that Redis runs there and that this machine reaches it, or correct `store`, or set `store: memory`"

    async def attempt() -> str:
        if complaint := await store.complaint():
            fix = "correct the user and password in `store`" if "password" in complaint else start
            raise Trouble(f"it {complaint}", fix)
        return "keeps what it is given"

    return [await _try("redis", "store", attempt(), limit, start)]


# Upstreams


async def _try_upstream(upstream: UpstreamClient, egress: Egress, limit: float) -> list[Finding]:
    config = upstream.config
    if config.passes_key:  # nobody's key is at hand
        return [Finding(config.name, "upstream", True, 0.0, "not tried: each client brings its own key")]
    listing = await _try(config.name, "upstream", _list_models(upstream, egress), limit, remedies.to_start(config))
    if not listing.ok or config.type == "demo" or not await upstream.models():
        return [listing]
    loading = "it may still be loading the model: ask it once with `groundwire ask`, then check again"
    return [listing, await _try(config.name, "tools", _call_a_tool(upstream, egress), limit * LOADING, loading)]


async def _list_models(upstream: UpstreamClient, egress: Egress) -> str:
    try:
        listed, served = await upstream.transport.models(), await upstream.models()
    except RequestError as error:
        raise _upstream_trouble(upstream.config, error.failed, egress) from None
    if not listed and upstream.config.type == "litellm":
        return "not tried: its models are patterns, and LiteLLM lists none"
    if not listed:
        raise Trouble("it answers, but lists no model", remedies.to_have_a_model(upstream.config))
    if not served:
        names = ", ".join(str(model["id"]) for model in listed[:5])
        raise Trouble(
            f"none of its models matches `models` of this upstream: {names}",
            f"correct `models` of upstream {upstream.config.name!r}",
        )
    return f"{_counted(len(served), 'model')}: {', '.join(served[:5])}"


async def _call_a_tool(upstream: UpstreamClient, egress: Egress) -> str:
    """Whether the first model that chats calls a tool; one that answers without may do so when it matters."""
    served = await upstream.models()
    model = next((name for name in served if not _NOT_FOR_CHAT.search(name)), served[0])
    mode = await upstream.look_up(model)
    if mode != "native":
        return f"{model}: {_WITHOUT_TOOLS[mode]}"
    body = {"model": model, "messages": [PROBE_QUESTION], "tools": [PROBE_TOOL], "tool_choice": "auto"}
    called = await _ask(upstream, {**body, "stream": False, "max_tokens": 64})
    if isinstance(called, Replan):
        said = str(called.failed.error["message"])
        return f"{model} is refused tools ({said}): {_WITHOUT_TOOLS[called.tool_mode]}{remedies.to_call_tools(said)}"
    if isinstance(called, Failed):
        raise _model_trouble(upstream.config, model, called, egress)
    return f"{model} calls tools" if called else f"{model} answered without calling the tool, which is fine"


async def _ask(upstream: UpstreamClient, body: dict[str, Any]) -> Failed | Replan | bool:
    called = False
    async with aclosing(upstream.stream(body, {})) as batches:
        async for batch in batches:
            for event in batch:
                if isinstance(event, Failed | Replan):
                    return event
                called = called or isinstance(event, ToolCallDelta)
    return called


def _model_trouble(config: UpstreamConfig, model: str, failed: Failed, egress: Egress) -> Trouble:
    said = str(failed.error["message"])
    trouble = _upstream_trouble(config, failed, egress)
    if "tool" in said.lower() and config.of(model).tool_calls == "native":
        fix = f"set `tool_calls: auto` for upstream {config.name!r}, so that {model} gets its tools in words"
        return Trouble(f"{model} was refused tools: {said}{remedies.to_call_tools(said)}", fix)
    no_chat = f"let `models` of upstream {config.name!r} name only models that chat"
    return Trouble(f"{model}: {trouble}", no_chat if failed.status in (400, 404, 422) else trouble.fix)


def _upstream_trouble(config: UpstreamConfig, failed: Failed, egress: Egress) -> Trouble:
    said = str(failed.error["message"])
    code = str(failed.error.get("code"))
    if code.startswith("upstream_"):
        detail = said.partition(". ")[0]  # what comes after it is advice, and ours is meant for this upstream
    else:
        detail, code = f"HTTP {failed.status}: {said}", str(failed.status)
    return Trouble(detail, remedies.for_upstream(config, code, egress))


# Providers


def _roles(house: House, member: NamedProvider) -> list[Role]:
    """What it is there for, else all that it can do. Documents of its own are tried by searching them."""
    able: list[Role] = []
    if member.can_search:
        able.append("search")
    if member.can_read:
        able.append("read")
    if isinstance(member.provider, Owner):
        return able[:1]
    used = {"search": house.searchers, "read": house.readers}
    return [role for role in able if member in used[role]] or able


async def _try_provider(
    member: NamedProvider, entry: ProviderEntry, role: Role, gateway: ProviderGateway, page: str, limit: float
) -> Finding:
    async def attempt() -> str:
        try:
            indexed = await _index(member.provider, limit) if role == "search" else ""
            found = await (_search(member, gateway) if role == "search" else _read(member, gateway, page))
            return "; ".join(filter(None, [indexed, found]))
        except ProviderError as error:
            fix = remedies.for_provider(member, entry, role, error)
            raise Trouble(str(error), fix) from None

    own = getattr(member.provider, "timeout", None)  # a slow provider that is within its own time works
    longest = max(limit, own + 2) if isinstance(own, int | float) else limit
    when_late = remedies.for_provider(member, entry, role, TimedOut(""))
    return await _try(member.name, role, attempt(), longest, when_late)


async def _index(provider: object, limit: float) -> str:
    """What is in its index, if it has one, and what is not; one that takes long is not waited for."""
    if not isinstance(provider, Indexing):
        return ""
    try:
        async with asyncio.timeout(limit):
            report = await provider.indexed()
    except TimeoutError:
        return f"{summary(await provider.index_report())} (`groundwire index` makes the index now)"
    return summary(report)


async def _search(member: NamedProvider, gateway: ProviderGateway) -> str:
    try:
        found = await SearchChain([member], gateway=gateway).search(PROBE_QUERY)
    except AllFailed as failed:
        error = failed.failures[0].error or failed
        # Somebody's documents, or what a plugin knows, need not be about our query; the web is.
        if isinstance(error, NoResults) and (isinstance(member.provider, Owner) or member.type not in SERVICES):
            return f"can be searched; nothing there is about {PROBE_QUERY.text!r}"
        raise error from None
    told = await _inspect(member)
    if told.problem:
        raise Trouble(told.problem, told.fix.format(name=repr(member.name)))
    return "; ".join(filter(None, [_counted(len(found.results.results), "result"), told.remark]))


async def _inspect(member: NamedProvider) -> Inspection:
    """What a provider that works can tell of its settings."""
    told = await member.provider.inspect() if isinstance(member.provider, Inspectable) else None
    return told if isinstance(told, Inspection) else Inspection()


async def _read(member: NamedProvider, gateway: ProviderGateway, page: str) -> str:
    try:
        read = await ReadChain([member], gateway=gateway).read(page)
    except AllFailed as failed:
        raise failed.failures[0].error or failed from None
    return f"{_counted(len(read.page.text), 'character')} of {page}"


def _notes(house: House) -> Iterator[str]:
    for member in house.providers.values():
        if member not in house.searchers and member not in house.readers:
            yield f"provider {member.name!r} is configured, but neither `tools.search` nor `tools.read` uses it"
    if not house.searchers:
        yield "no configured provider can search, so models are not offered web_search"
    if all(isinstance(member.provider, Owner) for member in house.readers):
        yield "no configured reader can open web pages; `{name: reader, type: direct}` under `providers` can"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
