"""The guard by itself: what it reads in a URL, which addresses it admits, and what no spelling may achieve.

The cases of `ssrf_cases.json` are driven end to end in `contract/test_fetcher.py`; here they are only the seeds of
mutation. `is_internet` below is a second opinion, written apart from the guard's lists.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from providers.errors import BadRequest, NotAllowed
from providers.web.guard import Guard, Target

SEEDS = [case["url"] for case in json.loads((Path(__file__).parents[1] / "data/ssrf_cases.json").read_text())["cases"]]
PUBLIC = "93.184.215.14"


def is_internet(text: str) -> bool:
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        groups = [int.from_bytes(address.packed[at : at + 2]) for at in range(0, 16, 2)]
        if groups[:6] == [0x64, 0xFF9B, 0, 0, 0, 0]:
            return is_internet(str(IPv4Address(int(address) & 0xFFFFFFFF)))
        first, second, third = groups[:3]
        special = (
            (first == 0x2001 and (second < 0x200 or second == 0xDB8))
            or first == 0x2002
            or (first == 0x2620 and second == 0x4F and third == 0x8000)
            or (first == 0x3FFF and second < 0x1000)
            or (groups[4] in (0, 0x100, 0x200, 0x300) and groups[5] == 0x5EFE)
        )
        return 0x2000 <= first < 0x4000 and not special
    a, b, c, d = address.packed
    private = a in (0, 10, 127) or (a == 172 and b in range(16, 32)) or (a, b) in {(192, 168), (169, 254)}
    shared = (a == 100 and b in range(64, 128)) or (a == 198 and b in (18, 19)) or a >= 224
    named = {(192, 0, 0), (192, 0, 2), (192, 31, 196), (192, 52, 193), (192, 88, 99), (192, 175, 48)}
    documented = {(198, 51, 100), (203, 0, 113)}
    return not (private or shared or (a, b, c) in named | documented or (a, b, c, d) == (168, 63, 129, 16))


def resolve_as_libc_might(host: str) -> list[str]:
    """The most generous resolver: it takes every old spelling of an address, and most names are private."""
    with suppress(OSError):
        return [socket.inet_ntoa(socket.inet_aton(host))]
    with suppress(ValueError):
        return [str(ip_address(host))]
    return [PUBLIC] if host.endswith((".com", ".org")) else ["127.0.0.1"]


@pytest.mark.parametrize(
    ("url", "normal", "host", "port"),
    [
        ("https://example.com", "https://example.com/", "example.com", 443),
        ("  HTTPS://Example.COM.:443/A?b#c  ", "https://example.com/A?b", "example.com", 443),
        ("http://example.com:8080?q", "http://example.com:8080/?q", "example.com", 8080),
        ("http://example.com:/x", "http://example.com/x", "example.com", 80),
        ("http://example.com:443/", "http://example.com:443/", "example.com", 443),
        ("https://bücher.de/ä?ö=ü#ß", "https://xn--bcher-kva.de/%C3%A4?%C3%B6=%C3%BC", "xn--bcher-kva.de", 443),
        ('https://example.com/a%20b%zz<{"}>', "https://example.com/a%20b%zz%3C%7B%22%7D%3E", "example.com", 443),
        ("https://[2606:4700:0:0:0:0:0:11]:8443/", "https://[2606:4700::11]:8443/", "2606:4700::11", 8443),
        ("http://1.1.1.1/", "http://1.1.1.1/", "1.1.1.1", 80),
        ("http://１.１。1.1/", "http://1.1.1.1/", "1.1.1.1", 80),
    ],
)
def test_a_url_is_read_one_way(url: str, normal: str, host: str, port: int) -> None:
    literal = host in ("1.1.1.1", "2606:4700::11")
    assert Guard().parse(url) == Target(normal, normal.partition(":")[0], host, port, literal)


@pytest.mark.parametrize(
    "url", ["", "   ", "example.com", "//example.com/", "ftp://example.com/", "http://", "https:///x", "mailto:a@b.c"]
)
def test_what_is_no_web_address_is_told_how_one_looks(url: str) -> None:
    with pytest.raises(BadRequest, match=r"https://example\.com/page"):
        Guard().parse(url)


def test_a_space_and_too_great_a_length_are_named() -> None:
    with pytest.raises(BadRequest, match="%20"):
        Guard().parse("https://example.com/a b")
    for path in ("a" * 8192, "ä" * 4000):  # the second is too long only once it is written out
        with pytest.raises(BadRequest, match="longer than 8192"):
            Guard().parse(f"https://example.com/{path}")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://localhost/", "http://u:p@example.com/", "http://example.com:22/", "http://a\\b.com/",
     "http://[::1]/", "http://exa\u00admple.com/", "http://example.com:0/", "http://example.com/\ud800",
     "http://example.com:000080/", "http://[2606:4700::1%25eth0]/", "http://[fe80::1]:x/", "http://example.com/\x7f",
     "http://exa\ufe0fmple.com/", "http://نامه\u200cای.com/",
     "http://example.com／x/", "http://exa℀mple.com/", "http://a%2eb.com/", "http://-.@example.com/"],
)  # fmt: skip
def test_a_refusal_says_nothing_but_that(url: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        Guard().parse(url)
    assert str(refused.value) == "address not allowed"


def test_every_answer_must_be_public_and_the_first_is_dialled() -> None:
    guard = Guard()
    target = guard.parse("https://example.com/")
    assert guard.admit(target, ["2606:4700::1111", PUBLIC]) == "2606:4700::1111"
    for answers in ([], [PUBLIC, "10.0.0.1"], ["::1", PUBLIC], ["2606:4700::1%eth0"], ["nonsense"]):
        with pytest.raises(NotAllowed):
            guard.admit(target, answers)


def test_a_dns64_answer_is_judged_by_the_address_inside() -> None:
    guard = Guard()
    target = guard.parse("https://example.com/")
    assert guard.admit(target, ["64:ff9b::5db8:d70e"]) == "64:ff9b::5db8:d70e"
    assert guard.is_public(target, ["64:ff9b::5db8:d70e"])
    for private in ("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::5db8:d70e"):
        with pytest.raises(NotAllowed):
            guard.admit(target, [private])


@pytest.mark.parametrize(
    "url",
    ["http://wiki/", "http://wiki.internal:3000/x", "http://printer.local:631/", "https://wiki.example.com:9000/"],
)
def test_an_allowed_network_is_reached_by_any_name_and_port_but_never_called_public(url: str) -> None:
    guard = Guard(["10.0.0.0/8"])
    target = guard.parse(url)
    assert guard.admit(target, ["10.1.2.3"]) == "10.1.2.3"
    assert not guard.is_public(target, ["10.1.2.3"])
    for elsewhere in (["192.168.0.1"], ["127.0.0.1"], [PUBLIC], ["10.1.2.3", PUBLIC], ["::ffff:10.1.2.3"]):
        with pytest.raises(NotAllowed):
            guard.admit(target, elsewhere)


def test_an_allowed_network_opens_nothing_else() -> None:
    guard = Guard(["127.0.0.0/8", "fd00::/8"])
    assert guard.parse("http://127.0.0.1:5000/").port == 5000
    assert guard.parse("http://[fd00::1]:5000/").host == "fd00::1"
    for url in ("http://10.0.0.1/", "http://0x7f.1/", "http://[::ffff:127.0.0.1]/", "http://1.1.1.1:22/"):
        with pytest.raises(NotAllowed):
            guard.parse(url)
    localhost = guard.parse("http://localhost:5000/")
    assert guard.admit(localhost, ["127.0.0.1"]) == "127.0.0.1"
    with pytest.raises(NotAllowed):
        guard.admit(localhost, [PUBLIC])
    ordinary = guard.parse("https://example.com/")
    assert guard.is_public(ordinary, [PUBLIC])
    assert not guard.is_public(ordinary, [PUBLIC, "127.0.0.1"])
    assert not guard.is_public(ordinary, [])


@pytest.mark.parametrize("own", ["127.0.0.1", "0.0.0.0", "::", "localhost", ""])
def test_we_never_read_ourselves(own: str) -> None:
    guard = Guard(["127.0.0.0/8"], own=[(own, 8080)])
    assert guard.parse("http://127.0.0.1:8081/").port == 8081
    with pytest.raises(NotAllowed):
        guard.parse("http://127.0.0.1:8080/")
    with pytest.raises(NotAllowed):
        guard.admit(guard.parse("http://localhost:8080/"), ["127.0.0.1"])


@pytest.mark.parametrize("own", ["127.0.0.1", "0.0.0.0", "::", "localhost"])
def test_ipv4_addresses_written_as_ipv6_lead_to_us_too(own: str) -> None:
    guard = Guard(["::ffff:0:0/96"], own=[(own, 8080)])
    assert guard.parse("http://[::ffff:127.0.0.1]:8081/").port == 8081
    with pytest.raises(NotAllowed):
        guard.parse("http://[::ffff:127.0.0.1]:8080/")


def test_our_own_public_address_and_name_are_ours_too() -> None:
    guard = Guard(own=[(PUBLIC, 8080), ("Gateway.example.com", 8080)])
    target = guard.parse("http://gateway.example.com:8080/")
    with pytest.raises(NotAllowed):
        guard.admit(target, ["1.1.1.1"])
    with pytest.raises(NotAllowed):
        guard.parse(f"http://{PUBLIC}:8080/")
    assert guard.parse(f"http://{PUBLIC}/").literal


def test_a_network_that_is_none_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        Guard(["nonsense"])


@given(st.one_of(st.ip_addresses(), st.ip_addresses(network="2000::/3"), st.ip_addresses(network="64:ff9b::/96")))
@settings(max_examples=200, deadline=None)
@example(IPv6Address("::ffff:0.0.0.0"))  # Python 3.13 prints such addresses with dots
@example(IPv6Address("2606::5efe:7f00:1"))
@example(IPv6Address("2606::300:5efe:7f00:1"))
@example(IPv6Address("2001:1ff:ffff::1"))
@example(IPv6Address("2001:200::1"))
@example(IPv6Address("2620:4f:8000::1"))
@example(IPv6Address("3fff:1000::1"))
def test_the_lists_agree_with_a_second_opinion(address: IPv4Address | IPv6Address) -> None:
    guard = Guard()
    target = guard.parse("https://example.com/")
    try:
        admitted = guard.admit(target, [str(address)]) == str(address)
    except NotAllowed:
        admitted = False
    assert admitted == is_internet(str(address)) == guard.is_public(target, [str(address)])


def test_a_closed_block_ends_exactly_at_its_edges() -> None:
    guard = Guard()
    target = guard.parse("https://example.com/")
    closed = "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12"
    closed += " 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16"
    closed += " 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24"
    for block in map(IPv4Network, closed.split()):
        for inside in (block[0], block[-1]):
            assert not guard.is_public(target, [str(inside)])
        if int(block[0]):
            assert guard.is_public(target, [str(block[0] - 1)])
        assert guard.is_public(target, [str(block[-1] + 1)])


REPLACEMENTS = [
    *((".", dot) for dot in ("。", "｡", "．", "%2e", "..")),
    *(("1", one) for one in ("１", "%31", "①")),
    *[("0", "0x0"), ("127", "0177"), ("o", "ｏ"), ("l", "ℓ"), ("s", "ſ"), ("e", "%65")],
    *[("/", "\\"), ("/", "／"), (":", "："), ("@", "＠")],
]
INSERTED = st.sampled_from(
    ["\t", "\n", "\x00", "\x7f", " ", "\u00ad", "\u200b", "\u2060", "@", "#", "?", "\\", "%00", ".", "[", "]", ":"]
)


@st.composite
def mutated_urls(draw: st.DrawFn) -> str:
    url: str = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 3))):
        match draw(st.integers(0, 3)):
            case 0:
                old, new = draw(st.sampled_from(REPLACEMENTS))
                url = url.replace(old, new, draw(st.integers(1, 3)))
            case 1:
                place = draw(st.integers(0, min(len(url), 60)))
                url = url[:place] + draw(INSERTED) + url[place:]
            case 2:
                url = url.upper() if draw(st.booleans()) else url.title()
            case _:
                place = draw(st.integers(0, min(len(url), 40)))
                url = url[:place] + url[place + 1 :]
    return url


@given(st.one_of(mutated_urls(), st.text(max_size=40).map(lambda text: f"http://{text}/")))
@settings(max_examples=200, deadline=None)
@example("httpſ://example.com/")
@example("http://example.com:８０/")
def test_no_spelling_leads_anywhere_but_the_internet(url: str) -> None:
    guard = Guard()
    try:
        target = guard.parse(url)
        dialled = guard.admit(target, [target.host] if target.literal else resolve_as_libc_might(target.host))
    except (BadRequest, NotAllowed):
        return
    assert is_internet(dialled)
    assert target.port in (80, 443, 8080, 8443)
    assert target.url.isascii()
    assert guard.parse(target.url) == target
    assert "#" not in target.url
