"""The way out: what may be said of proxies, which address goes through which, and the words that open a tunnel."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from providers.web.egress import Bypass, Egress, Proxy, authority, check_exception, failing
from providers.web.tunnel import Handshake, ProxyRefused, connect, handshake, shake_hands, socks5
from tests.fakes.config import config, filled_in, refusal
from tests.fakes.egress import Authority

SECRET = "hunter-2-hunter"


class TestAProxy:
    @pytest.mark.parametrize(
        ("url", "scheme", "host", "port"),
        [
            ("http://proxy.example:3128", "http", "proxy.example", 3128),
            ("http://proxy.example/", "http", "proxy.example", 80),
            ("HTTPS://proxy.example", "https", "proxy.example", 443),
            ("socks5://10.0.0.1", "socks5", "10.0.0.1", 1080),
            ("socks5h://[fd00::1]:9050", "socks5", "fd00::1", 9050),
        ],
    )
    def test_is_read_from_its_url(self, url: str, scheme: str, host: str, port: int) -> None:
        proxy = Proxy.read(url)
        assert (proxy.scheme, proxy.host, proxy.port) == (scheme, host, port)
        assert (proxy.authorization, proxy.secrets) == ("", ())

    def test_may_want_to_know_who_asks(self) -> None:
        proxy = Proxy.read("http://me%40work:p%3Ass%20w%C3%B6rd@proxy.example:3128")
        assert (proxy.user, proxy.password) == ("me@work", "p:ss wörd")
        assert proxy.authorization == "Basic bWVAd29yazpwOnNzIHfDtnJk"
        assert Proxy.read(proxy.url) == proxy
        assert set(proxy.secrets) == {"p:ss wörd", "p%3Ass%20w%C3%B6rd", "bWVAd29yazpwOnNzIHfDtnJk"}

    def test_shows_its_password_to_nobody(self) -> None:
        proxy = Proxy.read(f"http://someone:{SECRET}@proxy.example:3128")
        shown = repr(proxy) + str(proxy) + proxy.address + repr(Egress(proxy, proxy))
        shown += "".join(proxy.remedy(kind) for kind in ("unreachable", "credentials", "refused"))
        assert SECRET not in shown
        assert "someone" not in shown

    @pytest.mark.parametrize(
        "url",
        [
            "proxy.example:3128",
            "ftp://proxy.example",
            "socks4://proxy.example",
            "http://",
            "http://proxy.example:0",
            "http://proxy.example:x",
            "http://proxy.example:99999",
            "http://proxy.example/path",
            "http://proxy.example?x",
            "http://proxy.example#x",
            "http://proxy example",
            "http://proxy\n.example",
            "http://:password@proxy.example",
            "http://us%3Aer:password@proxy.example",
            "http://us%0Aer:password@proxy.example",
            f"socks5://user:{'x' * 256}@proxy.example",
            "http://[::1",
        ],
    )
    def test_is_refused_in_words_that_do_not_repeat_it(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"^must ") as raised:
            Proxy.read(url)
        assert "password@proxy.example" not in str(raised.value).replace("user:password@proxy.example", "")
        assert "x" * 20 not in str(raised.value)

    def test_its_refusals(self) -> None:
        assert [failing(status) for status in (407, 403, 502)] == ["credentials", "refused", "refused"]


class TestWhoIsReachedWithoutIt:
    @pytest.mark.parametrize(
        ("entry", "covered", "not_covered"),
        [
            ("example.org", ["example.org", "a.example.org", "EXAMPLE.org."], ["badexample.org", "example.org.evil"]),
            (".example.org", ["example.org", "a.b.example.org"], ["xexample.org"]),
            ("*.example.org", ["a.example.org"], ["example.net"]),
            ("*", ["anything", "10.0.0.1"], []),
            ("intranet", ["intranet", "a.intranet"], ["intranet.example"]),
            ("10.0.0.0/8", ["10.255.0.1"], ["11.0.0.1", "10.example", "ten.example"]),
            ("10.0.0.1", ["10.0.0.1"], ["10.0.0.11"]),
            ("fd00::/8", ["fd12::1", "[fd12::1]"], ["2001:db8::1"]),
            ("::1", ["::1"], ["::2"]),
            ("192.168.0.0/16", ["::ffff:192.168.3.4"], []),
        ],
    )
    def test_rules(self, entry: str, covered: list[str], not_covered: list[str]) -> None:
        bypass = Bypass.read([entry])
        assert all(bypass.covers(host, 443) for host in covered)
        assert not any(bypass.covers(host, 443) for host in not_covered)

    @pytest.mark.parametrize("entry", ["example.org:8080", "10.0.0.1:8080", "[::1]:8080"])
    def test_a_port_narrows_it(self, entry: str) -> None:
        host = entry.rpartition(":")[0].strip("[]")
        bypass = Bypass.read([entry])
        assert bypass.covers(host, 8080)
        assert not bypass.covers(host, 80)

    @pytest.mark.parametrize(
        "entry", ["", " ", ".", "http://x", "a b", "x:y", "x:", "[dead]", "a*", "a/b", "10.0.0.0/99"]
    )
    def test_what_cannot_be_read_is_refused(self, entry: str) -> None:
        with pytest.raises(ValueError, match=r"^must be a host"):
            check_exception(entry)

    def test_this_machine(self) -> None:
        here = ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1", "LOCALHOST."]
        assert all(Bypass(loopback=True).covers(host, 1) for host in here)
        assert not any(Bypass().covers(host, 1) for host in here)
        assert not Bypass(loopback=True).covers("localhost.example", 1)

    @given(st.text(max_size=30))
    def test_any_entry_is_read_or_refused(self, entry: str) -> None:
        with suppress(ValueError):  # and nothing else
            Bypass.read([entry]).covers("example.org", 443)


class TestTheWay:
    http, https = Proxy.read("http://one.example:1"), Proxy.read("http://two.example:2")

    def test_depends_on_the_scheme_and_the_host(self) -> None:
        egress = Egress(self.http, self.https, Bypass.read([".corp.example"], loopback=True))
        assert egress.proxy_to_url("http://a.example/x") is self.http
        assert egress.proxy_to_url("https://a.example:8443") is self.https
        assert egress.proxy_to_url("https://api.corp.example") is None
        assert egress.proxy_to_url("http://127.0.0.1:11434/v1") is None
        assert Egress().proxy_to_url("https://a.example") is None

    def test_of_one_entry_is_what_it_says(self) -> None:
        shared = Egress(self.http, self.https, Bypass.read(["*"]), "ca.pem")
        assert shared.said(None, "x") is shared
        none = shared.said(SecretStr(""), "x")
        assert (none.proxy_to_url("https://a.example"), none.ca_file) == (None, "ca.pem")
        own = shared.said(SecretStr("socks5://own.example"), "`proxy` of upstream 'a'")
        found = own.proxy_to_url("http://127.0.0.1")
        assert found is not None
        assert (found.host, found.origin) == ("own.example", "`proxy` of upstream 'a'")


def driven(shake: Handshake, answers: bytes, cuts: Callable[[int], int] = lambda size: size) -> tuple[bytes, bytes]:
    """What a handshake sends to a proxy that says `answers`, and what of them it leaves for the server. `cuts` says how
    much of what is wanted comes at once."""
    sent, at = bytearray(), 0

    async def send(data: bytes) -> None:
        sent.extend(data)

    async def receive(size: int) -> bytes:
        nonlocal at
        part = answers[at : at + max(1, min(size, cuts(size)))]
        at += len(part)
        return part

    work = shake_hands(shake, send, receive)
    with pytest.raises(StopIteration):
        work.send(None)
    return bytes(sent), answers[at:]


SOCKS_OK = b"\x05\x00" + b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50"
SOCKS_LOGIN_OK = b"\x05\x02" + b"\x01\x00" + b"\x05\x00\x00\x03\x04host\x00\x50"
HTTP_OK = b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n"


class TestHandshakes:
    def test_connect(self) -> None:
        sent, rest = driven(connect("example.org", 443, "Basic eA=="), HTTP_OK)
        assert sent == (
            b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\nProxy-Authorization: Basic eA==\r\n\r\n"
        )
        assert rest == b""
        assert driven(connect("2001:db8::1", 443), HTTP_OK)[0].startswith(b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\n")
        assert authority("a", 1) == "a:1"

    @pytest.mark.parametrize(
        ("answer", "status"),
        [
            (b"HTTP/1.1 407 Who?\r\n\r\n", 407),
            (b"HTTP/1.0 403 No\r\nX: y\r\n\r\n", 403),
            (b"HTTP/1.1 302 Found\r\nLocation: http://evil.example\r\n\r\n", 302),
            (b"HTTP/1.1 199 ?\r\n\r\n", 199),
            (b"HTTP/2 200 OK\r\n\r\n", 502),
            (b"HTTP/1.1 abc\r\n\r\n", 502),
            (b"\x05\x00\r\n\r\n", 502),
            (b"SSH-2.0-OpenSSH\r\n\r\n", 502),
            (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\nforged", 502),
            (b"x" * 20_000, 502),
            (b"", 502),
            (b"HTTP/1.1 200 OK\r\n", 502),
        ],
    )
    def test_connect_refused(self, answer: bytes, status: int) -> None:
        with pytest.raises(ProxyRefused) as raised:
            driven(connect("example.org", 443), answer)
        assert raised.value.status == status
        assert str(raised.value).startswith(f"{status} ")

    def test_socks(self) -> None:
        sent, rest = driven(socks5("example.org", 80), SOCKS_OK + b"server")
        assert sent == b"\x05\x01\x00" + b"\x05\x01\x00\x03\x0bexample.org\x00\x50"
        assert rest == b"server", "what the server says is not touched"
        assert driven(socks5("1.2.3.4", 80), SOCKS_OK)[0].endswith(b"\x05\x01\x00\x01\x01\x02\x03\x04\x00\x50")
        assert driven(socks5("::1", 80), SOCKS_OK)[0].endswith(b"\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x50")

    def test_socks_with_a_login(self) -> None:
        sent, rest = driven(socks5("a.example", 443, "me", "wörd"), SOCKS_LOGIN_OK + b"x")
        assert sent.startswith(b"\x05\x02\x00\x02" + b"\x01\x02me\x05w\xc3\xb6rd" + b"\x05\x01\x00\x03")
        assert rest == b"x"
        assert b"me" not in driven(socks5("a.example", 443, "me", "x"), SOCKS_OK)[0], "not asked for, not told"

    @pytest.mark.parametrize(
        ("answer", "status"),
        [
            (b"\x05\xff", 407),
            (b"\x05\x02\x01\x01", 407),
            (b"\x05\x01", 407),
            (b"\x04\x00", 502),
            (b"HT", 502),
            (b"\x05\x00\x05\x02\x00\x01" + bytes(6), 403),
            (b"\x05\x00\x05\x05\x00\x01" + bytes(6), 502),
            (b"\x05\x00\x04\x00\x00\x01" + bytes(6), 502),
            (b"\x05\x00\x05\x00\x00\x09" + bytes(6), 502),
            (b"\x05", 502),
            (b"\x05\x00\x05\x00\x00\x01\x7f", 502),
        ],
    )
    def test_socks_refused(self, answer: bytes, status: int) -> None:
        with pytest.raises(ProxyRefused) as raised:
            driven(socks5("example.org", 443, "me", "word"), answer)
        assert raised.value.status == status

    @given(st.lists(st.integers(1, 7), min_size=1, max_size=60))
    def test_pieces_of_any_size_come_to_the_same(self, sizes: list[int]) -> None:
        for shake, answers in (
            (lambda: connect("example.org", 443), HTTP_OK),
            (lambda: socks5("example.org", 443), SOCKS_OK),
            (lambda: socks5("example.org", 443, "me", "word"), SOCKS_LOGIN_OK),
        ):
            turns = iter(sizes * 60)
            assert driven(shake(), answers, lambda _, turns=turns: next(turns)) == driven(shake(), answers)

    @given(st.binary(max_size=200), st.sampled_from(["http", "socks5"]))
    def test_whatever_a_proxy_says_it_lets_through_or_refuses(self, answers: bytes, scheme: str) -> None:
        proxy = Proxy.read(f"{scheme}://me:word@proxy.example")
        with suppress(ProxyRefused):  # and nothing else
            driven(handshake(proxy, "example.org", 443), answers)


class TestTheConfig:
    def test_the_section(self, file: Path, tmp_path: Path) -> None:
        ca_file = Authority.make(tmp_path).file
        text = f"""
network: {{proxy: "http://me:{SECRET}@proxy.example:3128", no_proxy: [.corp.example, 10.0.0.0/8], ca_file: {ca_file}}}
upstreams:
  - {{name: a, base_url: "https://a.example/v1"}}
  - {{name: b, base_url: "https://b.example/v1", proxy: ""}}
  - {{name: c, base_url: "http://127.0.0.1:1/v1", proxy: "socks5://own.example"}}
  - {{name: d, base_url: "http://127.0.0.1:1/v1"}}
providers: [{{name: x, type: searxng, base_url: "http://10.1.1.1", proxy: "https://p.example"}}]
"""
        found = config(file, text)
        egress = found.network.egress
        proxies = [up.way_out(egress).proxy_to_url(up.base_url) for up in found.upstreams]
        assert [proxy and proxy.host for proxy in proxies] == ["proxy.example", None, "own.example", None]
        assert egress.ca_file == str(ca_file)
        assert egress.proxy_to_url("http://10.1.1.1") is None
        assert SECRET not in repr(found) + str(found.model_dump())

    def test_the_default_is_no_proxy_whatever_the_environment_says(self, file: Path) -> None:
        environ = {"HTTPS_PROXY": "http://proxy.example", "ALL_PROXY": "nonsense"}
        assert config(file, "log: {level: info}", environ).network.egress.plain

    def test_the_environment_if_it_is_trusted(self, file: Path) -> None:
        environ = {
            "http_proxy": "plain.example:1",
            "HTTP_PROXY": "http://loses.example",
            "ALL_PROXY": "socks5://all.example",
            "NO_PROXY": "corp.example, 10.0.0.0/8 ,un readable::,",
        }
        egress = config(file, "network: {trust_env: true}", environ).network.egress
        assert (egress.http and egress.http.host, egress.https and egress.https.host) == (
            "plain.example",
            "all.example",
        )
        assert egress.http is not None
        assert egress.http.origin == "http_proxy"
        assert egress.proxy_to_url("https://a.corp.example") is None
        assert egress.proxy_to_url("https://127.0.0.1") is None
        both = config(file, 'network: {trust_env: true, proxy: "http://file.example"}', environ).network.egress
        assert both.https == both.http == Proxy.read("http://file.example")

    def test_no_proxy_of_the_environment_counts_for_the_files_proxy(self, file: Path) -> None:
        text = 'network: {proxy: "http://proxy.example:3128"}'
        for name in ("NO_PROXY", "no_proxy"):
            egress = config(file, text, {name: "a.example"}).network.egress
            assert egress.proxy_to_url("https://a.example") is None
            assert egress.proxy_to_url("https://b.example") is not None

    def test_a_trusted_variable_that_is_wrong_is_named_without_its_value(self, file: Path) -> None:
        said = refusal(file, "network: {trust_env: true}", {"HTTPS_PROXY": f"gopher://me:{SECRET}@x"})
        assert said.startswith("HTTPS_PROXY cannot be used")
        assert SECRET not in said

    @pytest.mark.parametrize(
        ("text", "line", "key"),
        [
            (f'network:\n  proxy: "ftp://me:{SECRET}@x"\n', 2, "network.proxy"),
            (
                f'network: {{}}\nupstreams: [{{name: a, base_url: "http://a/v1", proxy: "{SECRET}"}}]',
                2,
                "upstreams[0].proxy",
            ),
            (f'providers: [{{name: a, type: exa, proxy: "{SECRET}"}}]', 1, "providers[0].proxy"),
            ("network:\n  no_proxy: [a b]\n", 2, "network.no_proxy[0]"),
            ("network:\n  proxy_for_pages: true\n", 2, "network.proxy_for_pages"),
            ("network:\n  trust_env: maybe\n", 2, "network.trust_env"),
            ("network:\n  ca_file: nowhere.pem\n", 2, "network.ca_file"),
            ("network:\n  ca_file: config.yaml\n", 2, "network.ca_file"),
            ("network:\n  ca_file: .\n", 2, "network.ca_file"),
            ("upstreams: [{name: a, type: demo, proxy: ''}]", 1, "upstreams[0]"),
        ],
    )
    def test_mistakes_are_named_with_their_line(
        self, file: Path, text: str, line: int, key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(file.parent)
        said = refusal(file, text)
        assert f"line {line}, {key}: " in said
        assert SECRET not in said

    def test_two_ways_for_what_litellm_keeps_as_one(self, file: Path) -> None:
        entry = "{{name: {}, type: litellm, base_url: 'https://a.example/v1', api_key: k, models: [openai/*]{}}}"
        first, second = entry.format("a", ""), entry.format("b", ", proxy: 'http://p.example'")
        assert "upstreams[1].proxy: must be that of the other" in refusal(file, f"upstreams: [{first}, {second}]")
        other = second.replace("api_key: k", "api_key: another")
        assert len(config(file, f"upstreams: [{first}, {other}]").upstreams) == 2

    @given(st.text(string.printable, max_size=40))
    def test_any_url_is_taken_or_refused_in_words(self, text: str) -> None:
        with suppress(ValueError):  # and nothing else
            proxy = Proxy.read("http://" + text)
            assert Proxy.read(proxy.url) == proxy

    def test_the_example_of_the_page_about_security_loads(self, file: Path) -> None:
        page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
        (example,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
        assert [key.name for key in config(file, *filled_in(example)).server.keys] == ["alice", "ops"]
