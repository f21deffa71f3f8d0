"""Search providers that are down, slow, hostile or only odd: the answer comes all the same, with nothing bad in it."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from providers.base import SearchQuery
from providers.chain import AllFailed, SearchChain
from providers.gateway import ProviderGateway
from providers.settings import CacheSettings, CooldownSettings
from tests.fakes.groundwire import Groundwire, config_file, gone, groundwire
from tests.fakes.hostile import gzip_bomb, memory
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, call, text
from tests.fakes.pages import PageServer
from tests.fakes.providers import until
from tests.fakes.search import FakeSearxng
from tests.fakes.search_engine import HITS
from tests.fakes.search_hosted import HOSTED
from tests.fakes.service import HTML_ERROR, KEY, Asked, Reply, as_json, provider_of
from tests.faults.asking import ask
from tests.faults.searching import LOOPBACK, answer_of, config, logged, outcomes, searched, told
from tests.faults.table import SEARCHED, fault

GOOD = "https://example.org/heat/pumps.md"  # the first hit of the fakes


def searxng(name: str, fake: FakeSearxng, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "searxng", "base_url": fake.url, **more}


def searches(fake: FakeSearxng) -> int:
    """How often it was asked; further pages of a search that found little do not count."""
    return sum("pageno" not in asked.params for asked in fake.asked)


class Gated(FakeSearxng):
    """Answers when the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def reply_to(self, asked: Asked) -> Reply:
        self.gate.wait(30)
        return super().reply_to(asked)


@fault(40)
def test_a_provider_that_is_down(model: ModelServer) -> None:
    down = {"name": "down", "type": "searxng", "base_url": gone()["base_url"]}
    with FakeSearxng() as fake, Groundwire(config(model, [down, searxng("spare", fake)])) as proxy:
        answer = searched(proxy, model)
        assert answer_of(answer) == (f"Heat moves [[1]]({GOOD}).", [GOOD])
        assert outcomes(logged(proxy, answer)) == [("down", "unavailable"), ("spare", "ok")]
        assert "down: SearXNG cannot be reached" in told(model)
    with Groundwire(config(model, [down])) as proxy:  # and where there is no other
        answer = searched(proxy, model, "I could not look it up.")
        assert answer_of(answer) == ("I could not look it up.", [])
        assert "No search provider had an answer" in told(model)
        entry = logged(proxy, answer)
        assert (outcomes(entry), entry["outcome"], entry["failed_calls"]) == ([("down", "unavailable")], "ok", 1)


@fault(41)
def test_429_to_everything(model: ModelServer) -> None:
    with FakeSearxng() as long, FakeSearxng() as short:
        long.reply = Reply(429, headers={"Retry-After": "3600"})
        short.reply = Reply(429, headers={"Retry-After": "1"})
        with Groundwire(config(model, [searxng("long", long), searxng("short", short)])) as proxy:
            first = searched(proxy, model, "I could not look it up.")
            assert answer_of(first)[0] == "I could not look it up."
            assert outcomes(logged(proxy, first)) == [("long", "rate_limited"), ("short", "rate_limited")]
            short.reply = short.page(HITS)  # it is back, and whoever asks first when its time is over will find out

            def back() -> httpx.Response | None:
                answer = searched(proxy, model)
                return answer if answer_of(answer)[1] else None

            answer = eventually(back)
            assert outcomes(logged(proxy, answer)) == [("long", "cooling_down"), ("short", "ok")]
            assert (searches(long), searches(short)) == (1, 2)
            assert "groundwire_provider_cooldowns_total" in httpx.get(f"{proxy.root}/metrics", timeout=20).text


@fault(42)
def test_a_slow_provider(model: ModelServer) -> None:
    with FakeSearxng() as slow, FakeSearxng() as spare:
        slow.reply = Reply(wait=60)
        providers = [searxng("slow", slow, timeout=0.5), searxng("spare", spare)]
        with Groundwire(config(model, providers)) as proxy:
            began = time.monotonic()
            answer = searched(proxy, model)
            assert time.monotonic() - began < 30
            assert answer_of(answer)[1] == [GOOD]
            assert outcomes(logged(proxy, answer)) == [("slow", "timed_out"), ("spare", "ok")]


ODD = {
    "html": Reply(body=HTML_ERROR),
    "nothing": Reply(),
    "no object": as_json(["x"]),
    "another schema": as_json({"results": {"a": 1}, "answers": 7, "unresponsive_engines": "x"}),
    "nulls": as_json({"results": None, "answers": None}),
    "broken": Reply(body=b'{"results": [{"url": "https://a'),
}


@fault(43)
def test_answers_that_nobody_can_read(model: ModelServer) -> None:
    with FakeSearxng() as odd, FakeSearxng() as spare:
        cooldown = {"failures": 100}
        with Groundwire(config(model, [searxng("odd", odd), searxng("spare", spare)], cooldown=cooldown)) as proxy:
            for reply in ODD.values():
                odd.reply = reply
                answer = searched(proxy, model)
                assert answer_of(answer) == (f"Heat moves [[1]]({GOOD}).", [GOOD])
                (_, outcome), spared = outcomes(logged(proxy, answer))
                assert outcome in ("unavailable", "empty")
                assert spared == ("spare", "ok")
            rows = [{"url": None}, 7, {"title": "none"}, {"url": "https://one.example/", "title": None, "content": 5}]
            odd.reply = as_json({"results": [*rows, None]})
            answer = searched(proxy, model)
            assert answer_of(answer)[1] == ["https://one.example/"]  # one row that can be read is enough
            assert outcomes(logged(proxy, answer)) == [("odd", "ok")]


PRIVATE = (
    "http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://[::1]/", "http://localhost:9/",
    "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/", "http://wiki.internal/",
    "http://nas.local/", "http://router/", "http://user:pass@example.org/", "javascript:alert(1)",
    "data:text/html,hello",
)  # fmt: skip


@fault(44)
def test_private_addresses_among_the_results(model: ModelServer, tmp_path: Path) -> None:
    with FakeSearxng() as fake, PageServer() as pages:
        urls = [*PRIVATE, pages.url("/secret"), GOOD]
        fake.reply = as_json({"results": [{"url": url, "title": "Heat", "content": url} for url in urls]})
        reader = {"name": "reader", "type": "direct"}
        tools = {"max_results": 50}
        said = config(model, [searxng("engine", fake), reader], tools=tools)
        with Groundwire(said) as proxy:
            marks = "".join(f" so [{n}]" for n in range(1, len(urls) + 1))
            answer = searched(proxy, model, f"Heat moves{marks}.")
            assert answer_of(answer)[1] == [GOOD]
            assert not any(url in answer.text for url in urls[:-1])
            assert not any(url in told(model) for url in urls[:-1])
            assert outcomes(logged(proxy, answer)) == [("engine", "ok")]
            model.script(
                call("web_search", {"query": "heat"}), call("open_page", {"url": pages.url("/secret")}), text("No.")
            )
            ask(proxy, SEARCHED)
            assert "could not be opened" in told(model)
            found = httpx.post(f"{proxy.url}/search", json={"query": "heat"}, timeout=20).json()
            assert [row["url"] for row in found["results"]] == [GOOD]
            assert not pages.requests
        command = groundwire(tmp_path, "search", "heat", "--json", "--config", config_file(tmp_path, said))
        assert [row["url"] for row in json.loads(command.stdout)["results"]] == [GOOD]
        with Groundwire({**said, "tools": {**tools, "allow_networks": LOOPBACK}}) as proxy:  # unless they are listed
            found = httpx.post(f"{proxy.url}/search", json={"query": "heat", "limit": 20}, timeout=20).json()
            shown = [row["url"] for row in found["results"]]
            assert pages.url("/secret") in shown
            assert not {"http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/"} & {*shown}


@fault(44)
def test_documents_of_a_private_address_of_our_own(model: ModelServer, library: Path) -> None:
    own = {"name": "handbook", "type": "local", "base_url": "http://10.0.0.5/docs/", "options": {"path": str(library)}}
    with Groundwire(config(model, [own])) as proxy:
        model.script(call("web_search", {"query": "sky blue"}), text("Air scatters light [1]."))
        answer = ask(proxy, SEARCHED)
        assert answer_of(answer)[1] == ["http://10.0.0.5/docs/sky.md"]
        assert outcomes(logged(proxy, answer)) == [("handbook", "ok")]


MANY = [{"url": f"https://example.org/{n}", "content": "heat " * 20} for n in range(10_000)]
LARGE = {
    "10,000 results": as_json({"results": MANY}),
    "one long row": as_json({"results": [{"url": GOOD, "title": "x" * 500_000, "content": "heat " * 600_000}]}),
}  # fmt: skip
TOO_LARGE = {
    "5 MB": as_json({"results": [{"url": GOOD, "content": "x" * 5_000_000}]}),
    "a gzip bomb": Reply(body=gzip_bomb(b" " * 1_000_000, 300), headers={"Content-Encoding": "gzip"}),
    "nested": Reply(body=gzip.compress(gzip.compress(b"{}")), headers={"Content-Encoding": "gzip, gzip"}),
    "a million lists": Reply(body=b'{"results": [' + b"[]," * 1_000_000 + b"[]]}"),
}


@fault(45)
def test_megabytes_of_results(model: ModelServer) -> None:
    with FakeSearxng() as fake:
        said = config(model, [searxng("engine", fake)], cooldown={"failures": 100})
        with Groundwire(said) as proxy:
            assert proxy.process is not None
            answer_of(searched(proxy, model))
            before = memory(proxy.process.pid, "VmHWM")
            for reply in LARGE.values():
                fake.reply = reply
                answer = searched(proxy, model)
                assert len(answer_of(answer)[1]) == 1
                assert len(told(model)) < 30_000
                assert outcomes(logged(proxy, answer)) == [("engine", "ok")]
            for reply in TOO_LARGE.values():
                fake.reply = reply
                answer = searched(proxy, model, "I could not look it up.")
                assert answer_of(answer) == ("I could not look it up.", [])
                assert outcomes(logged(proxy, answer)) == [("engine", "unavailable")]
            assert memory(proxy.process.pid, "VmHWM") - before < 80  # the bomb alone is 300


@fault(46)
def test_a_key_that_is_refused(model: ModelServer) -> None:
    with HOSTED["brave"]() as brave, FakeSearxng() as spare:
        brave.reply = Reply(401, b'{"error": "no such key: %s"}' % KEY.encode())
        keyed = {"name": "web", "type": "brave", "base_url": brave.url, "api_key": KEY, "private": True}
        with Groundwire(config(model, [keyed, searxng("spare", spare)])) as proxy:
            assert outcomes(logged(proxy, searched(proxy, model))) == [("web", "auth_failed"), ("spare", "ok")]
            second = searched(proxy, model)
            assert answer_of(second)[1] == [GOOD]
            assert outcomes(logged(proxy, second)) == [("web", "cooling_down"), ("spare", "ok")]
            assert len(brave.asked) == 1
            assert "cools down for 600 s: Brave refused the key" in proxy.logged("cools down")
            assert KEY not in json.dumps(model.requests)
            metrics = httpx.get(f"{proxy.root}/metrics", timeout=20).text
            assert 'groundwire_provider_cooldowns_total{provider="web"} 1.0' in metrics


@fault(47)
async def test_500_equal_queries_at_once() -> None:
    with Gated() as fake:
        async with provider_of(fake.entry()) as named:
            gateway = ProviderGateway(CooldownSettings(failures=1000), CacheSettings())
            chain = SearchChain([named], gateway=gateway)

            async def all_at_once() -> list[Any]:
                fake.gate.clear()
                asking = [asyncio.create_task(chain.search(SearchQuery("heat"))) for _ in range(500)]
                await until(lambda: fake.asked)
                await asyncio.sleep(0.05)
                fake.gate.set()
                return await asyncio.gather(*asking, return_exceptions=True)

            fake.reply = Reply(500)
            failed = await all_at_once()
            assert {type(outcome) for outcome in failed} == {AllFailed}
            assert searches(fake) == 1
            fake.asked.clear()
            fake.reply = fake.page(HITS)
            found = await all_at_once()  # the failure was told to those who waited, and to nobody after them
            assert {outcome.results.results[0].url for outcome in found} == {GOOD}
            assert searches(fake) == 1


@fault(48)
async def test_the_one_who_asked_first_leaves() -> None:
    with Gated() as fake:
        async with provider_of(fake.entry()) as named:
            chain = SearchChain([named])
            leader = asyncio.create_task(chain.search(SearchQuery("heat")))
            await until(lambda: fake.asked)
            followers = [asyncio.create_task(chain.search(SearchQuery("heat"))) for _ in range(20)]
            await asyncio.sleep(0.05)
            leader.cancel()
            await asyncio.wait([leader])
            fake.gate.set()
            found = await asyncio.gather(*followers)
    assert leader.cancelled()
    assert {answer.results.results[0].url for answer in found} == {GOOD}
    assert searches(fake) == 1


@fault(48)
def test_a_client_that_asked_first_hangs_up(model: ModelServer) -> None:
    with Gated() as fake, Groundwire(config(model, [searxng("engine", fake)])) as proxy:
        host, port = proxy.root.removeprefix("http://").split(":")
        sent = b'{"query": "heat"}'
        head = f"POST /v1/search HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        followers: list[httpx.Response] = []

        def follow() -> None:
            followers.append(httpx.post(f"{proxy.url}/search", json={"query": "heat"}, timeout=30))

        with socket.create_connection((host, int(port)), timeout=10) as leader:
            leader.sendall(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
            eventually(lambda: fake.asked)
            threads = [threading.Thread(target=follow) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.3)  # for most of them to stand behind the first one
        assert "client_left" in proxy.logged("client_left")
        fake.gate.set()
        for thread in threads:
            thread.join(30)
        assert [answer.json()["results"][0]["url"] for answer in followers] == [GOOD] * 3
