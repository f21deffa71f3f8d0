"""Which URLs may be opened, which domains may be seen, and what must not leave."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.provenance import Address, Domains, Mode, Provenance, Refused, holds_secret, normalise, urls_in


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("HTTPS://Example.ORG", "https://example.org/"),
        ("https://example.org:443/a#frag", "https://example.org/a"),
        ("http://example.org:80/", "http://example.org/"),
        ("http://example.org:8080/", "http://example.org:8080/"),
        ("https://example.org/a b", "https://example.org/a%20b"),
        ("https://example.org/Foo_(bar)", "https://example.org/Foo_%28bar%29"),
        ("https://bücher.example/x", "https://xn--bcher-kva.example/x"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("local:docs/my file.md", "local:docs/my%20file.md"),
        ("LOCAL:docs/a.md#part", "local:docs/a.md"),
    ],
)
def test_normalise(url: str, same: str) -> None:
    assert normalise(url) == same
    assert normalise(same) == same


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://e.org", "javascript:alert(1)", "file:///etc/passwd", "https://", "http://[bad/"),
        *("https://e.org:99999/", "https://user@e.org/", "http://127.0.0.1\\@1.1.1.1/", "https://e.org/\nHost: x"),
        *("https://a b/", "https://e.org/" + "x" * 9000),
    ],
)
def test_what_cannot_be_opened(url: str) -> None:
    assert normalise(url) == ""


def test_different_addresses_stay_different() -> None:
    urls = [
        "https://e.org/",
        "http://e.org/",
        "https://e.org/a",
        "https://e.org/a/",
        "https://e.org/?q=1",
        "https://e.org/?q=2",
    ]
    assert len({normalise(url) for url in urls}) == len(urls)


@given(st.text(max_size=80) | st.text("htps:/.#?@[]%ae1\\ ", max_size=60).map(lambda text: "http://" + text))
@settings(max_examples=200)
def test_normalise_is_stable_and_never_raises(url: str) -> None:
    assert normalise(normalise(url)) == normalise(url)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("see https://e.org/a.", "https://e.org/a"),
        ("(see https://e.org/a)", "https://e.org/a"),
        ("https://en.wikipedia.org/wiki/A_(b)", "https://en.wikipedia.org/wiki/A_(b)"),
        ("[text](https://e.org/a), more", "https://e.org/a"),
        ("[https://e.org/a](https://e.org/b)", "https://e.org/a"),
        ("[https://e.org/a](https://e.org/b)", "https://e.org/b"),
        ("**https://e.org/a**", "https://e.org/a"),
        ("<https://e.org/a>", "https://e.org/a"),
        ('"https://e.org/a?x=1&y=2"', "https://e.org/a?x=1&y=2"),
        ("请看 https://e.org/a。谢谢", "https://e.org/a"),
        ("| https://e.org/a | b |", "https://e.org/a"),
        ("HTTP://E.org/A!", "HTTP://E.org/A"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("open local:docs/guide.md, please", "local:docs/guide.md"),
        ("what is on example.com?", "https://example.com"),
        ("what is on example.com?", "http://example.com"),
        ("read docs.example.co.uk/a/b.", "https://docs.example.co.uk/a/b"),
        ("the box at 10.0.0.5:3000/x", "http://10.0.0.5:3000/x"),
    ],
)
def test_urls_are_found_in_text(text: str, url: str) -> None:
    assert url in urls_in(text)


@pytest.mark.parametrize("text", ["mail me@example.com", "no url here", "3.14 and 2.0", "a/b/c", "hello.", "..."])
def test_no_url_is_found(text: str) -> None:
    assert urls_in(text) == []


@pytest.mark.parametrize("unit", ["a.", "http://", "a-", "https://e.org/(", "1.", "local:", "e.org "])
def test_finding_urls_is_linear(unit: str) -> None:
    started = time.perf_counter()
    urls_in(unit * (300_000 // len(unit)))
    assert time.perf_counter() - started < 10


def opens(provenance: Provenance, url: str) -> bool:
    try:
        provenance.admit(url)
    except Refused:
        return False
    return True


@pytest.mark.parametrize("mode", ["strict", "context"])
def test_only_what_was_seen_may_be_opened(mode: Mode) -> None:
    provenance = Provenance(mode, ["please read https://e.org/a?x=1."])
    provenance.add(["https://found.org/page"])
    assert opens(provenance, "https://E.org/a?x=1#part")
    assert opens(provenance, "https://found.org/page")
    for built in (
        "https://e.org/a", "https://e.org/a?x=1&data=secret", "https://e.org/a/b?x=1", "https://found.org/page?leak=1",
        "https://found.org/page/", "http://found.org/page", "https://found.org.evil.example/page",
    ):  # fmt: skip
        assert not opens(provenance, built)


def test_open_mode_opens_anything_that_is_an_address() -> None:
    assert opens(Provenance("open"), "https://anything.org/?x=1")
    assert not opens(Provenance("open"), "file:///etc/passwd")


def test_the_spelling_of_the_source_is_what_is_opened() -> None:
    provenance = Provenance("context")
    provenance.add(["local:docs/my file.md", "https://e.org/Foo_(bar)"])
    assert provenance.admit("local:docs/my%20file.md").url == "local:docs/my file.md"
    assert provenance.admit("https://e.org/Foo_%28bar%29").url == "https://e.org/Foo_(bar)"


def test_refusal_names_what_may_be_opened() -> None:
    provenance = Provenance("context", ["https://e.org/typed"])
    provenance.add(["https://found.org/page"])
    with pytest.raises(Refused, match=r"https://found\.org/page.*https://e\.org/typed"):
        provenance.admit("https://evil.example/")


def test_links_three_per_host_and_two_deep() -> None:
    provenance = Provenance("context")
    provenance.add(["https://e.org/"])
    start = provenance.admit("https://e.org/")
    provenance.add_page(
        start, "https://e.org/", [f"https://e.org/{letter}" for letter in "abcde"] + ["https://other.org/"]
    )
    assert [opens(provenance, f"https://e.org/{letter}") for letter in "abcde"] == [True, True, True, False, False]
    assert opens(provenance, "https://e.org/b")
    other = provenance.admit("https://other.org/")
    assert other.depth == 1
    provenance.add_page(other, other.url, ["https://third.org/"])
    third = provenance.admit("https://third.org/")
    assert third.depth == 2
    provenance.add_page(third, third.url, ["https://fourth.org/"])
    assert not opens(provenance, "https://fourth.org/")


def test_strict_follows_no_links_but_knows_where_a_redirect_led() -> None:
    provenance = Provenance("strict")
    provenance.add(["https://e.org/"])
    provenance.add_page(provenance.admit("https://e.org/"), "https://www.e.org/home", ["https://e.org/link"])
    assert opens(provenance, "https://www.e.org/home")
    assert not opens(provenance, "https://e.org/link")


def test_a_link_that_a_search_finds_is_no_longer_a_mere_link() -> None:
    provenance = Provenance("context")
    provenance.add_page(Address("https://e.org/"), "https://e.org/", ["https://e.org/x"])
    provenance.add(["https://e.org/x"])
    assert provenance.admit("https://e.org/x").depth == 0


def test_domains_match_exactly_or_below() -> None:
    domains = Domains().narrowed(["Example.org", "*.test.dev", "https://docs.site.com/path"], ["bad.example.org"])
    allowed = ["https://example.org/", "https://a.example.org/", "https://x.test.dev/", "https://docs.site.com/"]
    refused = [
        "https://badexample.org/",
        "https://example.org.evil.com/",
        "https://bad.example.org/",
        "https://a.bad.example.org/",
    ]
    assert all(domains.permit(url) for url in allowed)
    assert not any(domains.permit(url) for url in [*refused, "https://site.com/"])


def test_allowed_lists_intersect_and_blocked_ones_add_up() -> None:
    domains = (
        Domains()
        .narrowed(["example.org", "b.com"], ["x.example.org"])
        .narrowed(["docs.example.org", "c.com"], ["d.com"])
    )
    assert domains.allowed == ("docs.example.org",)
    assert domains.blocked == ("x.example.org", "d.com")
    assert domains.permit("https://docs.example.org/")
    assert not domains.permit("https://example.org/")
    assert not domains.permit("https://c.com/")
    assert Domains().narrowed(["a.com"]).narrowed(["b.com"]).allowed == ()


@pytest.mark.parametrize(
    "text",
    [
        "what is sk-abcdefghijklmnopqrstuvwx",
        "https://e.org/?k=sk-proj-Ab12Cd34Ef56Gh78Ij90",
        "sk-ant-api03-Ab12Cd34Ef56Gh78Ij90Kl",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "-----BEGIN RSA PRIVATE KEY-----",
        "https://e.org/?k=-----BEGIN%20PRIVATE%20KEY-----",
        "my own-key-123",
        "https://e.org/?q=own%2Dkey%2D123",
    ],
)
def test_secrets_are_seen(text: str) -> None:
    assert holds_secret(text, ["own-key-123", "", "abc"])


@pytest.mark.parametrize(
    "text", ["sk-learn tutorial", "https://e.org/task-management-systems-overview", "abc", "eyJ and jwt", "AKIA keys"]
)
def test_ordinary_text_is_no_secret(text: str) -> None:
    assert not holds_secret(text, ["own-key-123", "", "abc"])
