"""URLs by their looks: which of them name one page, and what any text at all is taken for."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from providers.errors import BadRequest, NotAllowed
from providers.urls import (
    ascii_host,
    cache_key,
    canonical,
    clean_domains,
    domain_of,
    encode_url,
    host_of,
    in_domains,
    with_ascii_host,
)
from providers.web.guard import Guard


@pytest.mark.parametrize(
    "other",
    [
        "http://example.org/a?x=1",
        "https://www.example.org/a?x=1",
        "HTTPS://EXAMPLE.ORG/a?x=1",
        "https://example.org./a?x=1",
        "https://example.org:443/a?x=1",
        "http://example.org:80/a?x=1",
        "https://example.org/a/?x=1",
        "https://example.org/a?x=1#part",
        " https://example.org/a?x=1 ",
        "https://example.org/a?utm_source=n&x=1&UTM_Campaign=b",
        "https://example.org/a?gclid=1&x=1&fbclid=2&mc_cid=3&mc_eid=4&msclkid=5",
    ],
)
def test_spellings_of_one_page(other: str) -> None:
    assert canonical(other) == canonical("https://example.org/a?x=1") == "example.org/a?x=1"


@pytest.mark.parametrize(
    "other",
    [
        "https://example.org/A?x=1",
        "https://example.org/a?x=2",
        "https://example.org/a?x=1&ref=main",
        "https://example.org/a?x=1&utm=1",
        "https://example.org:8443/a?x=1",
        "https://example.org:80/a?x=1",
        "http://example.org:443/a?x=1",
        "https://docs.example.org/a?x=1",
        "https://me@example.org/a?x=1",
        "ftp://example.org/a?x=1",
        "local:example.org/a?x=1",
    ],
)
def test_other_pages(other: str) -> None:
    assert canonical(other) != canonical("https://example.org/a?x=1")


def test_a_query_of_tracking_alone_is_none() -> None:
    assert canonical("https://example.org/?utm_source=n") == canonical("https://example.org") == "example.org"


def test_international_hosts_and_addresses() -> None:
    assert canonical("https://bücher.example/ä") == canonical("https://xn--bcher-kva.example/%C3%A4")
    assert canonical("http://[2001:DB8::1]:80/") == canonical("https://[2001:db8::1]/")
    assert canonical("http://[2001:db8::1]:8080/") != canonical("http://[2001:db8::1]/")
    assert canonical("http://[2001:db8::1]:8080/") != canonical("http://[2001:db8::1:8080]/")
    assert canonical("http://[2001:db8:0::1]/") == canonical("http://[2001:db8::1]/")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("straße.de", "strasse.de"), ("οδος.gr", "οδοσ.gr"), ("a\u200db.de", "ab.de"),
        ("نامه\u200cای.com", "نامهای.com"), ("a\u00adb.de", "ab.de"), ("e%78ample.org", "example.org"),
        ("a.org%2Fb", "a.org/b"), ("☃.net", "xn--n3h.net"),
    ],
)  # fmt: skip
def test_hosts_that_are_not_one(one: str, other: str) -> None:
    for key in (canonical, cache_key, host_of, encode_url):
        assert key(f"https://{one}/") != key(f"https://{other}/")


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("STRAẞE.de", "xn--strae-oqa.de"), ("straße.de.", "xn--strae-oqa.de"), ("ΟΔΟΣ.gr", "xn--pxavbq.gr"),
        ("x.ΟΔΟΣ", "x.xn--pxavbq"), ("bücher。example", "xn--bcher-kva.example"), ("ＥＸample.org", "example.org"),
    ],
)  # fmt: skip
def test_spellings_of_one_host(written: str, host: str) -> None:
    assert ascii_host(written) == host_of(f"https://{written}:8443/ä") == domain_of(f"*.{written}/x") == host
    assert encode_url(f"https://{written}:8443/ä") == f"https://{host}:8443/%C3%A4"
    assert cache_key(f"https://{written}/") == f"https://{host}"
    assert in_domains(host_of(f"https://a.{written}/"), clean_domains([written]))


@pytest.mark.parametrize(
    "written", ["", ".", "a..b", "a b", "a@b", "a:b", "ａ／b.de", "a\u200db.de", "☃.net", "x" * 64, "a." * 200]
)
def test_what_is_no_host(written: str) -> None:
    assert ascii_host(written) == ""
    assert not in_domains(ascii_host(written), ["", "b", "de"])


HOSTS = st.text("aAsSßẞςΣσiİı0.。-_\u200d\u00adüéö٣☃:@%[]", max_size=12) | st.text(max_size=12)


@given(HOSTS, HOSTS)
@settings(max_examples=300)
def test_hosts_are_one_where_the_guard_dials_one(one: str, other: str) -> None:
    guard = Guard(["0.0.0.0/0", "::/0"])
    dialled = []
    for host in (one, other):
        try:
            target = guard.parse(f"http://{host}/")
        except (BadRequest, NotAllowed):
            dialled.append(host)
            continue
        assert host_of(f"http://{host}/") == target.host
        assert cache_key(f"http://{host}/") == cache_key(target.url)
        assert with_ascii_host(f"http://{host}/") in (f"http://{host}/", target.url)
        dialled.append(f"dialled {target.host} {target.port}")
    same = cache_key(f"http://{one}/") == cache_key(f"http://{other}/")
    assert same == (dialled[0] == dialled[1]) or "dialled" not in "".join(dialled)


@pytest.mark.parametrize(
    ("url", "encoded"),
    [
        ("https://a.org/?[/INST]x[7]", "https://a.org/?%5B/INST%5Dx%5B7%5D"),
        ("https://a.org/[INST]#[1]", "https://a.org/%5BINST%5D#%5B1%5D"),
        ("https://[7]/", "https://%5B7%5D/"),
        ("https://[INST]a.org/", "https://%5BINST%5Da.org/"),
        ("https://[::1][7]/", "https://[::1]%5B7%5D/"),
        ("https://[2001:DB8::1]:8080/[7]", "https://[2001:DB8::1]:8080/%5B7%5D"),
        ("http://me@[::ffff:10.0.0.1]/", "http://me@[::ffff:10.0.0.1]/"),
        ("https://a.org/http://[::1]/", "https://a.org/http://%5B::1%5D/"),
        ("local:docs/[1].md", "local:docs/%5B1%5D.md"),
    ],
)
def test_only_an_address_keeps_its_brackets(url: str, encoded: str) -> None:
    assert encode_url(url) == encode_url(encoded) == encoded


def test_local_documents_keep_their_case_and_lose_their_fragment() -> None:
    assert canonical("local:docs/A.md#part") == "local:docs/A.md"
    assert canonical("local:docs/a.md") != canonical("local:docs/A.md")


@given(st.text(max_size=60))
@example("HTTP")
@settings(max_examples=200)
def test_any_text_has_one_spelling_encoded_or_not(text: str) -> None:
    for url in (text, "https://" + text, "local:" + text):
        assert canonical(encode_url(url)) == canonical(url)


@given(st.text(max_size=60), st.lists(st.text(max_size=20), max_size=3))
@settings(max_examples=200)
def test_hosts_and_domains_of_any_text(url: str, domains: list[str]) -> None:
    for address in (url, "https://" + url, "local:" + url):
        assert in_domains(host_of(address), clean_domains(domains)) in (True, False)
