"""Which addresses may stand among results, by their looks alone: no name is resolved, and nothing private is cited."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.base import SearchQuery, SearchResult
from providers.chain import AllFailed, SearchChain
from providers.errors import BadRequest, NotAllowed
from providers.registry import NamedProvider
from providers.web.guard import Guard
from tests.fakes.providers import Engine

CASES = json.loads((Path(__file__).parents[1] / "data/ssrf_cases.json").read_text())["cases"]
LOOKS = [case for case in CASES if not case.keys() & {"dns", "dns_seq", "redirects"}]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in LOOKS])
def test_what_may_not_be_opened_by_its_looks_may_not_be_named(case: dict[str, str]) -> None:
    assert Guard().may_name(case["url"]) == (case["expect"] == "allowed")


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a b", " https://example.org/ ", "https://example.org:9000/", "https://bücher.example/",
        "http://93.184.215.14/", "http://[2606:4700:4700::1111]/x", "https://a_b.example.org/", "https://example.org./",
    ],
)  # fmt: skip
def test_public_addresses_may_be_named_however_they_are_written(url: str) -> None:
    assert Guard().may_name(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/", "http://10.1.2.3/", "http://192.168.0.1", "http://[::1]/",
        "http://[::ffff:127.0.0.1]/", "http://[fd00::1]/", "http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/",
        "http://127.1/", "http://localhost/", "http://LOCALHOST.:8080/", "http://a.localhost/", "http://printer/",
        "http://nas.local/", "http://metadata.google.internal/", "http://router.home.arpa/", "http://abc.onion/",
        "http://user:pass@example.org/", "https://user@example.org/", "javascript:alert(1)", "data:text/html,x",
        "file:///etc/passwd", "ftp://example.org/", "//example.org/", "example.org", "", "http:///", "http://a\\@b.org/",
        "http://１２７.0.0.1/", "http://127。0。0。1/", "https://example.org/\x00", "local:x",
    ],
)  # fmt: skip
def test_private_addresses_and_what_is_no_page_may_not(url: str) -> None:
    assert not Guard().may_name(url)


def test_localhost_is_known_without_asking_anybody() -> None:
    assert Guard(["127.0.0.0/8"]).may_name("http://localhost:3000/")
    assert Guard(["::1/128"]).may_name("http://app.localhost/")
    assert not Guard(["10.0.0.0/8"]).may_name("http://localhost:3000/")


def test_our_own_address_is_never_named() -> None:
    guard = Guard(["127.0.0.0/8"], own=[("127.0.0.1", 8080)])
    assert guard.may_name("http://127.0.0.1:8081/")
    assert not guard.may_name("http://127.0.0.1:8080/v1/models")
    assert not guard.may_name("http://localhost:8080/v1/models")


@given(st.text(max_size=60) | st.text(max_size=40).map(lambda text: f"http://{text}/"))
@settings(max_examples=300, deadline=None)
def test_it_never_raises_and_is_no_laxer_than_the_guard(url: str) -> None:
    named = Guard().may_name(url)
    try:
        Guard().parse(url)
    except (BadRequest, NotAllowed):
        return
    assert named


# In the chain


def hits(*urls: str) -> list[SearchResult]:
    return [SearchResult("t", url) for url in urls]


INSIDE = ["http://127.0.0.1/a", "http://10.0.0.5:3000/b", "http://[::1]/", "http://router/", "http://wiki.internal/x"]


async def found_by(provider: NamedProvider, *networks: str) -> list[str]:
    chain = SearchChain([provider], guard=Guard(networks))
    return [hit.url for hit in (await chain.search(SearchQuery("q", 9))).results.results]


@pytest.mark.parametrize("private", [True, False])
async def test_no_provider_names_addresses_inside_a_network(private: bool) -> None:
    found = hits(*INSIDE, "javascript:alert(1)", "https://u:p@example.org/", "https://example.org/")
    assert await found_by(Engine(found).named(private=private)) == ["https://example.org/"]


async def test_what_lies_in_an_allowed_network_may_be_named() -> None:
    found = hits(*INSIDE, "https://example.org/")
    private, public = Engine(found).named(private=True), Engine(found).named()
    assert await found_by(private, "10.0.0.0/8") == [INSIDE[1], *INSIDE[3:], "https://example.org/"]
    assert await found_by(private, "127.0.0.0/8", "::1/128") == [INSIDE[0], *INSIDE[2:], "https://example.org/"]
    assert await found_by(public, "10.0.0.0/8") == [INSIDE[1], *INSIDE[3:], "https://example.org/"]
    assert await found_by(public) == ["https://example.org/"]


async def test_a_provider_names_its_own_documents_wherever_they_are() -> None:
    found = hits("http://10.0.0.5/handbook/a", "http://10.0.0.6/other", "local:handbook/b")
    provider = Engine(found, owns=lambda url: url.startswith(("http://10.0.0.5/handbook/", "local:")))
    assert await found_by(provider.named(private=True)) == ["http://10.0.0.5/handbook/a", "local:handbook/b"]


async def test_who_found_nothing_that_may_be_shown_is_told_so() -> None:
    with pytest.raises(AllFailed, match="found only addresses that may not be shown") as raised:
        await found_by(Engine(hits(*INSIDE)).named(private=True))
    assert "`tools.allow_networks`" in raised.value.advice
