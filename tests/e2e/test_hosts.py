"""Hosts by the rules of IDNA 2008, everywhere the same: what is dialled is what was allowed, kept and cited. All names
are resolved by a proxy on loopback, which remembers who was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from providers.base import SearchResult
from tests.fakes.egress import Authority, HttpProxy, TlsFront
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text
from tests.fakes.pages import PageServer
from tests.fakes.search import FakeSearxng

ZWNJ = "\u200c"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


def page_of(name: str) -> bytes:
    return f"<html><title>{name}</title><body><p>This is the page of {name}, and of no other bank.</p></body>".encode()


@contextmanager
def internet(**names: str) -> Iterator[HttpProxy]:
    """A proxy behind which each of these hosts has a page that says its name."""
    with ExitStack() as stack, HttpProxy() as proxy:
        for name, host in names.items():
            server = stack.enter_context(PageServer())
            server.page("*", page_of(name))
            proxy.names[host] = ("127.0.0.1", server.port)
        yield proxy


def config(proxy: HttpProxy, model: ModelServer, **sections: Any) -> dict[str, Any]:
    return {
        "network": {"proxy": proxy.url(), "proxy_for_pages": True, "no_proxy": ["127.0.0.1"]},
        "upstreams": [{"name": "up", "base_url": model.url}],
        "providers": [{"name": "reader", "type": "direct"}],
        **sections,
    }


def opened(running: Groundwire, url: str) -> dict[str, Any]:
    page: dict[str, Any] = httpx.post(f"{running.url}/open", json={"url": url}, timeout=30).json()
    return page


@pytest.mark.parametrize(
    ("written", "other", "hosts"),
    [
        ("straße-bank.example", "strasse-bank.example", ("xn--strae-bank-83a.example", "strasse-bank.example")),
        ("οδος.example", "οδοσ.example", ("xn--pxavbm.example", "xn--pxavbq.example")),
    ],
)
def test_two_hosts_have_no_cached_page_in_common(
    model: ModelServer, written: str, other: str, hosts: tuple[str, str]
) -> None:
    with internet(first=hosts[0], second=hosts[1]) as proxy, Groundwire(config(proxy, model)) as running:
        first, second = (opened(running, f"http://{host}/") for host in (written, other))
        again = opened(running, f"http://{hosts[0]}/")
    assert (first["title"], second["title"], again["title"]) == ("first", "second", "first")
    assert proxy.hosts == list(hosts)  # the third was kept


def test_a_host_that_cannot_be_looked_up_has_no_cached_page(model: ModelServer) -> None:
    with internet(bank="bank.example") as proxy, Groundwire(config(proxy, model)) as running:
        assert opened(running, "http://bank.example/")["title"] == "bank"
        for host in (f"ba{ZWNJ}nk.example", "ba%6Ek.example", "ba\u00adnk.example"):
            assert "bank, and of no" not in str(opened(running, f"http://{host}/")), host


def test_a_page_read_in_the_clear_does_not_answer_for_https(model: ModelServer, authority: Authority) -> None:
    with ExitStack() as stack:
        clear, secure = stack.enter_context(PageServer()), stack.enter_context(PageServer())
        clear.page("/", page_of("in the clear"))
        secure.page("/", page_of("over TLS"))
        front = stack.enter_context(TlsFront(authority.server("bank.example"), secure.port))
        proxy = stack.enter_context(HttpProxy({"bank.example": ("127.0.0.1", clear.port)}))
        sections = config(proxy, model)
        sections["network"]["ca_file"] = str(authority.file)
        running = stack.enter_context(Groundwire(sections))
        assert opened(running, "http://bank.example/")["title"] == "in the clear"
        proxy.names["bank.example"] = ("127.0.0.1", front.port)
        assert opened(running, "https://bank.example/")["title"] == "over TLS"


RULES = [
    ("blocked_domains", "straße.example", "xn--strae-oqa.example", False),
    ("blocked_domains", "straße.example", "STRAẞE.example", False),
    ("blocked_domains", "xn--strae-oqa.example", "straße.example", False),
    ("blocked_domains", "straße.example", "strasse.example", True),
    ("allowed_domains", "fass.example", "faß.example", False),
    ("allowed_domains", "fass.example", "FASS.example.", True),
    ("allowed_domains", "faß.example", "faß.example", True),
    ("allowed_domains", "faß.example", "fass.example", False),
]
HOSTS = {"a": "xn--strae-oqa.example", "b": "strasse.example", "c": "fass.example", "d": "xn--fa-hia.example"}


def key_of(rule: str, domain: str) -> str:
    return f"key-of-{rule}-{domain.encode().hex()}"


@pytest.fixture(scope="module")
def sites() -> Iterator[HttpProxy]:
    with internet(**HOSTS) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def ruled(sites: HttpProxy, model: ModelServer) -> Iterator[Groundwire]:
    """With one key for each rule, and one without."""
    rules = dict.fromkeys((rule, domain) for rule, domain, *_ in RULES)
    keys = [{"key": key_of(rule, domain), "search": {rule: [domain]}} for rule, domain in rules]
    server = {"keys": [*keys, {"key": "key-without-rules"}]}
    with Groundwire(config(sites, model, server=server, cache={"page_ttl": 0})) as running:
        yield running


@pytest.mark.parametrize(("rule", "domain", "host", "read"), RULES)
@pytest.mark.parametrize("place", ["key", "request"])
def test_a_domain_rule_means_what_is_dialled(
    place: str, rule: str, domain: str, host: str, read: bool, ruled: Groundwire, sites: HttpProxy, model: ModelServer
) -> None:
    model.script(call("open_page", {"url": f"http://{host}/"}), text("Done."))
    tool = {"type": "web_search_20250305", **({rule: [domain]} if place == "request" else {})}
    sent = {"model": "m", "messages": [{"role": "user", "content": f"Read http://{host}/"}], "tools": [tool]}
    headers = {"authorization": f"Bearer {key_of(rule, domain) if place == 'key' else 'key-without-rules'}"}
    before = len(sites.hosts)
    answer = httpx.post(f"{ruled.url}/chat/completions", json=sent, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    assert len(sites.hosts) - before == read
    assert ("This is the page of" in str(model.requests[-1])) == read


CONFIGURED = [("blocked_domains", "straße.example"), ("allowed_domains", "fass.example")]


@pytest.mark.parametrize(("rule", "domain"), CONFIGURED)
def test_a_domain_rule_of_the_config_too(rule: str, domain: str, sites: HttpProxy, model: ModelServer) -> None:
    with Groundwire(config(sites, model, tools={rule: [domain]})) as running:
        for _, _, host, read in [entry for entry in RULES if entry[:2] == (rule, domain)]:
            page = opened(running, f"http://{host}/")
            assert (page["status"] == "success") == read, (host, page)


def test_a_rule_that_blocks_nothing_is_refused(model: ModelServer) -> None:
    with internet() as proxy, Groundwire(config(proxy, model)) as running:
        tool = {"type": "web_search_20250305", "blocked_domains": ["ok.example", f"نامه{ZWNJ}ای.example"]}
        sent = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "tools": [tool]}
        answer = httpx.post(f"{running.url}/chat/completions", json=sent, timeout=30)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "blocked_domains"


def test_found_opened_and_cited_under_one_name(model: ModelServer) -> None:
    """What the model is shown of a page can be opened, and is no other page's source."""
    hits = [
        SearchResult("With sharp s", "http://straße.example/page", "The street with a sharp s."),
        SearchResult("With two s", "http://strasse.example/page", "The street with two of them."),
    ]
    with internet(sharp="xn--strae-oqa.example", two="strasse.example") as proxy, FakeSearxng() as engine:
        engine.reply = engine.page(tuple(hits))
        readers = [{"name": "searx", "type": "searxng", "base_url": engine.url}, {"name": "reader", "type": "direct"}]
        with Groundwire(config(proxy, model, providers=readers)) as running:
            model.script(
                call("web_search", {"query": "street"}),
                call("open_page", {"url": "http://xn--strae-oqa.example/page"}),
                text("Sharp [1], two [2]."),
            )
            sent = {"model": "m", "messages": [{"role": "user", "content": "Which street?"}]}
            answer = httpx.post(f"{running.url}/chat/completions", json=sent, timeout=30).json()
    assert "http://xn--strae-oqa.example/page" in str(model.requests[1])
    assert "This is the page of sharp" in str(model.requests[-1])
    cited = [one["url_citation"]["url"] for one in answer["choices"][0]["message"]["annotations"]]
    assert cited == ["http://xn--strae-oqa.example/page", "http://strasse.example/page"]
