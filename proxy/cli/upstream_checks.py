"""Of `groundwire check`: every upstream is asked for its models, one of them for a tool call; every alias is followed.

Handed the parts of a house; hands on findings. Where a server answers at another address than the config says, that
address is found and named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import aclosing
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from providers.web.egress import Egress
from tools.clean import one_line

from ..config.upstreams import UpstreamConfig
from ..house import House, transport_to
from ..upstreams.client import UpstreamClient
from ..values.errors import RequestError
from ..values.events import Failed, Replan, ToolCallDelta
from . import remedies
from .findings import Finding, Trouble, counted, tried

PROBE_QUESTION = {"role": "user", "content": "Search the web for the weather in Paris."}
PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "web_search",
        "description": "Searches the web.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
LOADING = 4  # times as long for a model: its server may have to load it first

# What servers list besides models that chat; asking those would say nothing about tools.
_NOT_FOR_CHAT = re.compile(
    r"embed|whisper|tts|transcri|audio|realtime|image|dall-e|sora|moderation|rerank|turbo-instruct|babbage|davinci",
    re.I,
)
_WITHOUT_TOOLS = {
    "prompted": "its tools are described in words (tool_calls: prompted)",
    "none": "it cannot call tools, so Groundwire searches first (tool_calls: none)",
}
_MODELS, _CHAT = "/models", "/chat/completions"
_SILENT = {"upstream_unreachable", "upstream_timeout", "upstream_tls"}  # nobody there who could answer elsewhere
_LONGEST = 300  # characters of what names others chose
_SEEN = 5  # names that a finding shows


async def try_upstream(upstream: UpstreamClient, egress: Egress, limit: float) -> list[Finding]:
    config = upstream.config
    if config.passes_key:  # nobody's key is at hand
        return [Finding(config.name, "upstream", True, 0.0, "", "not tried: each client brings its own key")]
    listing = await tried(
        config.name,
        "upstream",
        _list_models(upstream, egress),
        limit,
        remedies.to_start(config),
        url=_address(config, _MODELS),
    )
    if not listing.ok or config.type == "demo" or not await upstream.models():
        return [listing]
    loading = "it may still be loading the model: ask it once with `groundwire ask`, then check again"
    calling = tried(
        config.name,
        "tools",
        _call_a_tool(upstream, egress),
        limit * LOADING,
        loading,
        url=_address(config, _CHAT),
    )
    return [listing, await calling]


def _address(config: UpstreamConfig, path: str) -> str:
    """Where it is asked; of LiteLLM only the library knows."""
    return config.base_url + path if config.type == "openai" else config.base_url


async def _list_models(upstream: UpstreamClient, egress: Egress) -> str:
    try:
        listed, served = await upstream.transport.models(), await upstream.models()
    except RequestError as error:
        trouble = _upstream_trouble(upstream.config, error.failed, egress)
        answers = error.failed.error.get("code") not in _SILENT
        raise (answers and await _elsewhere(upstream.config, egress)) or trouble from None
    if not listed and upstream.config.type == "litellm":
        return "not tried: its models are patterns, and LiteLLM lists none"
    if not listed:
        nothing = Trouble("it answers, but lists no model", remedies.to_have_a_model(upstream.config))
        raise await _elsewhere(upstream.config, egress) or nothing
    if not served:
        names = ", ".join(str(model["id"]) for model in listed[:_SEEN])
        raise Trouble(
            f"none of its models matches `models` of this upstream: {names}",
            f"correct `models` of upstream {upstream.config.name!r}",
        )
    return f"{counted(len(served), 'model')}: {', '.join(served[:_SEEN])}"


async def _elsewhere(config: UpstreamConfig, egress: Egress) -> Trouble | None:
    """The address that was meant, if the server lists its models there."""
    for meant in _likely_addresses(config):
        transport = transport_to(config.model_copy(update={"base_url": meant}), egress)
        try:
            found = await transport.models()
        except RequestError:
            continue
        finally:
            await transport.aclose()
        if found:
            fix = f"set `base_url: {meant}` of upstream {config.name!r}"
            return Trouble(f"nothing is there, but {meant}{_MODELS} lists {counted(len(found), 'model')}", fix)
    return None


def _likely_addresses(config: UpstreamConfig) -> Iterator[str]:
    """What people mean who leave the end of the address away, or copy more than its beginning."""
    if config.type != "openai":
        return
    base = config.base_url
    for path in (_CHAT, _MODELS):
        base = base.removesuffix(path)
    if base != config.base_url:
        yield base
    if not base.endswith("/v1"):
        yield base + "/v1"


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
        detail, _, advice = said.partition(". ")  # ours is meant for this upstream, but a certificate has its own
        if code == "upstream_tls" and advice:
            return Trouble(detail, f"{advice[0].lower()}{advice[1:].rstrip('.')}")
    else:
        detail, code = f"HTTP {failed.status}: {said}", str(failed.status)
    return Trouble(detail, remedies.for_upstream(config, code, egress))


# Aliases


async def try_aliases(house: House) -> list[Finding]:
    """Those whose model the upstream does not list. One that lists nothing, or is down, has a finding of its own."""
    found = [await _follow(house, alias, target) for alias, target in house.config.aliases.items()]
    return [finding for finding in found if finding is not None]


async def _follow(house: House, alias: str, target: str) -> Finding | None:
    found = house.upstreams.find_target(target)
    assert found is not None, "the config was checked"
    client, model = found
    if client.config.type != "openai" or client.config.passes_key or model in client.config.models:
        return None
    listed = [str(entry["id"]) for entry in await client.listed()]
    if not listed or any(_is_same_model(model, name) for name in listed):
        return None
    near = get_close_matches(model, listed, n=1, cutoff=0.3) or listed[:1]
    return Finding(
        alias,
        "alias",
        False,
        0.0,
        _address(client.config, _MODELS),
        one_line(f"leads nowhere: upstream {client.name!r} lists no model {model}", _LONGEST),
        one_line(f"correct `aliases: {alias}`; upstream {client.name!r} has {near[0]}, for example", _LONGEST),
    )


def _is_same_model(model: str, listed: str) -> bool:
    """Ollama takes a name without its tag; gateways list patterns."""
    return listed in (model, f"{model}:latest") or fnmatchcase(model, listed)
