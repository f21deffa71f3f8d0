"""Every hosted reader of the registry's table, the same assertions, against its loopback fake.

The readers that dial pages themselves (`uses_open_web`) or own them (`private`) have suites of their own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import replace
from typing import Any, cast

import pytest

from providers import registry
from providers.base import Page
from providers.chain import AllFailed, ReadChain
from providers.errors import Unavailable
from providers.registry import NamedProvider, ProviderConfigError, ProviderEntry
from tests.fakes.readers import LINKS, READERS, ROWS, TEXT, URL, bare_reply
from tests.fakes.service import FOR_OPERATORS, KEY, Asked, Reply, as_json, provider_of

FAULTS = [(kind, name) for kind, fake in READERS.items() for name in fake.faults]
NEEDED_FAULTS = {
    "empty", "401", "403", "quota", "429", "429 with Retry-After", "500 JSON", "500 HTML", "truncated",
    "wrong content", "huge", "slow", "page failed",
}  # fmt: skip


async def read(named: NamedProvider, url: str = URL) -> Page:
    return cast(Page, await cast(Any, named.provider).read(url))


def test_every_hosted_reader_has_a_fake_with_all_rows() -> None:
    services = {kind: registry.load(kind) for kind in registry.SERVICES}
    readers = {kind: service for kind, service in services.items() if callable(getattr(service, "read", None))}
    elsewhere = {
        kind
        for kind, service in readers.items()
        if getattr(service, "uses_open_web", False) or getattr(service, "private", False)
    }
    assert readers.keys() - elsewhere == READERS.keys()
    assert all(readers[kind].hosted for kind in READERS)
    for fake in READERS.values():
        assert fake.faults.keys() >= NEEDED_FAULTS


@pytest.mark.parametrize("kind", sorted(READERS))
async def test_the_page_arrives_whole(kind: str) -> None:
    with READERS[kind]() as fake:
        async with provider_of(fake.entry()) as named:
            page = await read(named)
            assert named.can_read
        (asked,) = fake.asked
    assert page == ROWS[kind].gives
    assert asked.params == ROWS[kind].sends


@pytest.mark.parametrize("kind", sorted(READERS))
async def test_missing_optional_keys_are_no_fault(kind: str) -> None:
    with READERS[kind]() as fake:
        fake.reply = bare_reply(kind)
        async with provider_of(fake.entry()) as named:
            page = await read(named)
    assert page == Page(URL, "Wärme 熱 ⚡", TEXT, None, LINKS)


@pytest.mark.parametrize("kind", sorted(READERS))
@pytest.mark.parametrize("text", ["", " \n\t "])
async def test_a_page_without_text_is_none(kind: str, text: str) -> None:
    with READERS[kind]() as fake:
        fake.reply = as_json(ROWS[kind].page(replace(ROWS[kind].gives, text=text)))
        async with provider_of(fake.entry()) as named:
            with pytest.raises(AllFailed, match="no readable text"):
                await ReadChain([named]).read("https://example.org/")


@pytest.mark.parametrize(("kind", "name"), FAULTS)
async def test_faults_become_our_errors(kind: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fault = READERS[kind].faults[name]
    with READERS[kind]() as fake:
        fake.reply = fault.reply
        async with provider_of(fake.entry(timeout=0.4 if name == "slow" else 20)) as named:
            with pytest.raises(fault.error) as caught:
                await read(named)
    assert type(caught.value) is fault.error
    assert fault.says in str(caught.value)
    assert fault.advises in caught.value.advice
    assert not FOR_OPERATORS.search(str(caught.value)), "a model reads it"
    assert caught.value.retry_after == fault.retry_after
    assert "127.0.0.1" not in str(caught.value)
    assert KEY not in str(caught.value) + caplog.text


@pytest.mark.parametrize("kind", sorted(READERS))
async def test_nobody_there(kind: str) -> None:
    with socket.socket() as closed, READERS[kind]() as fake:  # bound, never listening: nobody can take the port
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        async with provider_of(fake.entry().model_copy(update={"base_url": address})) as named:
            with pytest.raises(Unavailable) as caught:
                await read(named)
    assert "127.0.0.1" not in str(caught.value)


@pytest.mark.parametrize("kind", sorted(READERS))
async def test_one_failure_does_not_disturb_the_others(kind: str) -> None:
    class HalfBroken(READERS[kind]):  # type: ignore[misc]
        def reply_to(self, asked: Asked) -> Reply:
            return self.faults["page failed"].reply if "bad" in str(asked.params) else self.reply

    with HalfBroken() as fake:
        async with provider_of(fake.entry()) as named:
            urls = [f"https://example.org/{name}" for name in ("a", "bad", "b")]
            first, failed, last = await asyncio.gather(*(read(named, url) for url in urls), return_exceptions=True)
    assert isinstance(failed, fake.faults["page failed"].error)
    assert isinstance(first, Page)
    assert isinstance(last, Page)
    assert first.text == last.text == TEXT


@pytest.mark.parametrize("kind", sorted(READERS))
async def test_the_key_shows_nowhere(kind: str) -> None:
    with READERS[kind]() as fake:
        entry = fake.entry()
        async with provider_of(entry) as named:
            await read(named)
            shown = [entry, named, named.provider, *vars(named.provider).values()]
    assert KEY not in " ".join(map(repr, shown))


@pytest.mark.parametrize(
    ("kind", "options", "sent"),
    [
        ("tavily", {"extract_depth": "advanced"}, {"extract_depth": "advanced"}),
        ("exa", {"max_age_hours": -1}, {"maxAgeHours": -1}),
        (
            "firecrawl",
            {"formats": ["markdown"], "only_main_content": False, "max_age": 60},
            {"formats": ["markdown"], "onlyMainContent": False, "maxAge": 60000},
        ),
        ("crawl4ai", {"filter": "raw", "cache": True}, {"f": "raw", "c": "1"}),
    ],
)
async def test_options_are_sent(kind: str, options: dict[str, Any], sent: dict[str, Any]) -> None:
    with READERS[kind]() as fake:
        async with provider_of(fake.entry(**options)) as named:
            await read(named)
        assert fake.asked[0].params == {**ROWS[kind].sends, **sent}


@pytest.mark.parametrize(("timeout", "sent"), [(0.9, 1.0), (30.0, 30.0), (90.0, 60.0)])
async def test_tavily_is_told_a_time_limit_it_takes(timeout: float, sent: float) -> None:
    with READERS["tavily"]() as fake:
        async with provider_of(fake.entry(timeout=timeout)) as named:
            await read(named)
        assert fake.asked[0].params["timeout"] == sent


async def test_jina_engine_is_a_header() -> None:
    with READERS["jina"]() as fake:
        async with provider_of(fake.entry(engine="browser")) as named:
            await read(named)
        assert fake.asked[0].headers["x-engine"] == "browser"


@pytest.mark.parametrize("kind", ["jina", "firecrawl", "crawl4ai"])
async def test_an_instance_of_ones_own_may_need_no_key(kind: str) -> None:
    with READERS[kind]() as fake:
        fake.expects_key = False
        async with provider_of(fake.entry().model_copy(update={"api_key": None})) as named:
            assert (await read(named)).text == TEXT
            assert named.private
        assert "authorization" not in fake.asked[0].headers


async def test_firecrawl_takes_a_summary_for_the_page() -> None:
    with READERS["firecrawl"]() as fake:
        fake.reply = as_json({"success": True, "data": {"summary": "In short.", "metadata": {"url": "javascript:x"}}})
        async with provider_of(fake.entry(formats=["summary"])) as named:
            assert await read(named) == Page(URL, "", "In short.")


def test_no_time_limit_beyond_what_the_sdk_takes() -> None:
    with pytest.raises(ProviderConfigError, match="`timeout` is not valid"):
        registry.build([ProviderEntry(name="t", type="tavily", timeout=120)], cast(Any, None))
