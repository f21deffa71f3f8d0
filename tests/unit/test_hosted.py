"""Hosted readers: they hear of public pages only, and the guard is asked before the first of them would."""

from __future__ import annotations

from typing import Any

import pytest

from providers import errors
from providers.chain import AllFailed, Failure, ReadChain
from providers.web.guard import Guard
from providers.web.http import Fetcher
from tests.fakes.providers import Engine

URL = "https://example.org/"
INNER = "http://10.1.2.3/wiki"
BLOCKED = errors.PageBlocked("a consent wall")


class Doorman:
    """The guard's word: a verdict, or the error that it raises."""

    def __init__(self, verdict: bool | errors.ProviderError) -> None:
        self.verdict = verdict
        self.asked: list[str] = []

    async def __call__(self, url: str) -> bool:
        self.asked.append(url)
        if isinstance(self.verdict, errors.ProviderError):
            raise self.verdict
        return self.verdict


def readers(*engines: Engine, is_public: Any) -> ReadChain:
    return ReadChain([engine.named(name) for name, engine in zip("abc", engines, strict=False)], is_public=is_public)


async def test_a_public_page_goes_to_hosted_readers_and_the_guard_is_asked_once() -> None:
    first, second, third = Engine(BLOCKED), Engine(BLOCKED, hosted=True), Engine(hosted=True)
    doorman = Doorman(True)
    opened = await readers(first, second, third, is_public=doorman).read(URL)
    assert opened.provider == "c"
    assert doorman.asked == [URL]


async def test_the_guard_is_not_asked_when_no_hosted_reader_would_be() -> None:
    doorman = Doorman(True)
    await readers(Engine(), Engine(hosted=True), is_public=doorman).read(URL)
    assert doorman.asked == []


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (False, "not asked, because the page is not public and this reader is hosted by others"),
        (errors.NotAllowed("address not allowed"), "not asked, because address not allowed"),
        (errors.Unavailable("the page could not be reached"), "not asked, because the page could not be reached"),
    ],
)
async def test_what_is_not_surely_public_reaches_no_hosted_reader(verdict: Any, reason: str) -> None:
    hosted, also, own = Engine(hosted=True), Engine(hosted=True), Engine()
    doorman = Doorman(verdict)
    opened = await readers(hosted, also, own, is_public=doorman).read(INNER)
    assert opened.failures == (Failure("a", reason), Failure("b", reason))
    assert (opened.provider, hosted.asked, also.asked, doorman.asked) == ("c", [], [], [INNER])


async def test_with_hosted_readers_only_a_refusal_is_the_answer() -> None:
    hosted = Engine(hosted=True)
    with pytest.raises(errors.NotAllowed):
        await readers(hosted, Engine(hosted=True), is_public=Doorman(errors.NotAllowed("address not allowed"))).read(
            INNER
        )
    with pytest.raises(AllFailed, match="not public"):
        await readers(hosted, is_public=Doorman(False)).read(INNER)
    assert not hosted.asked


async def test_when_our_own_reader_fails_the_page_does_not_leak() -> None:
    own, hosted = Engine(BLOCKED), Engine(hosted=True)
    with pytest.raises(AllFailed, match=r"a: a consent wall; b: not asked, because the page is not public"):
        await readers(own, hosted, is_public=Doorman(False)).read(INNER)
    assert not hosted.asked


async def test_owners_read_their_documents_before_the_guard_is_asked() -> None:
    local = Engine(owns=lambda url: url.startswith("local:"))
    doorman = Doorman(errors.NotAllowed("address not allowed"))
    assert (await readers(Engine(hosted=True), local, is_public=doorman).read("local:docs/a.md")).provider == "b"
    assert doorman.asked == []


@pytest.mark.parametrize(
    ("url", "networks", "goes_out"),
    [
        ("http://93.184.216.34/", [], True),
        ("http://10.1.2.3/wiki", ["10.0.0.0/8"], False),
        ("http://10.1.2.3/wiki", [], None),
        ("http://169.254.169.254/latest", [], None),
        ("http://93.184.216.34:9999/", ["93.184.216.0/24"], False),
    ],
)
async def test_the_real_guard(url: str, networks: list[str], goes_out: bool | None) -> None:
    hosted = Engine(hosted=True)
    chain = readers(hosted, is_public=Fetcher(Guard(networks)).is_public)
    if goes_out:
        assert (await chain.read(url)).provider == "a"
    else:
        with pytest.raises(errors.NotAllowed if goes_out is None else AllFailed):
            await chain.read(url)
    assert bool(hosted.asked) is bool(goes_out)
