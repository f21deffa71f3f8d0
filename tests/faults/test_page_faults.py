"""Pages that lie, never end, attack their reader or are too many: what can be read is, the rest is a plain word."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.hostile import DEEP, ENTITIES, STUCK, gzip_bomb, memory, page_processes, pdf_bomb
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer
from tests.fakes.pages import PageServer
from tests.faults.searching import LOOPBACK, answer_of, config, logged, opened, outcomes, told
from tests.faults.table import fault

PROSE = "The lighthouse keeper wrote down the weather four times a day for thirty years and never missed an entry."
STORY = f"<html><title>The log</title><body><p>{PROSE}</p></body></html>".encode()
CUT = "[The page is longer than can be read; the rest was left out.]"
GZIP = {"Content-Encoding": "gzip"}
READER = {"name": "reader", "type": "direct"}


@pytest.fixture(scope="module")
def pages() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


def reading(
    model: ModelServer, tools: dict[str, Any] | None = None, timeout: float = 15, **sections: Any
) -> dict[str, Any]:
    """A page may take so many seconds from the first to the last."""
    reader = {**READER, "timeout": timeout}
    return config(model, [reader], tools={"allow_networks": LOOPBACK, **(tools or {})}, **sections)


@pytest.fixture(scope="module")
def proxy(model: ModelServer) -> Iterator[Groundwire]:
    """It may read pages of loopback; a page has three seconds to come."""
    with Groundwire(reading(model, {"open_timeout": 3})) as running:
        yield running


def read(proxy: Groundwire, url: str, *expected: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """What became of one page, and that the log has one line for it. It is read, unless other outcomes are expected."""
    answer = httpx.post(f"{proxy.url}/open", json={"url": url}, headers=headers, timeout=60)
    assert answer.status_code == 200
    page: dict[str, Any] = answer.json()
    ((provider, outcome),) = outcomes(logged(proxy, answer), "pages")
    assert provider == "reader"
    assert outcome in (expected or ("ok",)), page
    assert (page["status"] == "success") == (outcome == "ok"), page
    return page


def peak(proxy: Groundwire) -> float:
    assert proxy.process is not None
    return memory(proxy.process.pid, "VmHWM")


@fault(49)
def test_a_gzip_bomb(proxy: Groundwire, pages: PageServer) -> None:
    read(proxy, served(pages, "/warm", STORY))
    before = peak(proxy)
    bomb = gzip_bomb(f"<p>{PROSE}</p>".encode() * 9000, 200)
    assert len(bomb) < 2_000_000
    page = read(proxy, served(pages, "/bomb", bomb, headers=GZIP))
    assert CUT in page["content"] or page["truncated"]
    assert page["original_length"] < 2_100_000
    assert peak(proxy) - before < 80  # of 200


def served(pages: PageServer, path: str, body: bytes, **options: Any) -> str:
    pages.page(path, body, **options)
    return pages.url(path)


@fault(50)
def test_encodings_that_were_not_asked_for(proxy: Groundwire, pages: PageServer) -> None:
    for number, encoding in enumerate(("gzip, gzip, gzip", "br", "zstd", "deflate", "gzip, identity, gzip")):
        body = gzip.compress(gzip.compress(gzip.compress(STORY)))
        url = served(pages, f"/encoded/{number}", body, headers={"Content-Encoding": encoding})
        page = read(proxy, url, "unavailable")
        assert "an encoding that was not asked for" in page["error"]
    once = served(pages, "/encoded/once", gzip.compress(STORY), headers={"Content-Encoding": "identity, gzip"})
    assert PROSE in read(proxy, once)["content"]


@fault(51)
def test_a_length_that_is_not_true(proxy: Groundwire, pages: PageServer) -> None:
    head = STORY.index(b"</p>")
    more = served(pages, "/more", STORY + b"<p>x</p>" * 1_000_000, headers={"Content-Length": str(head)})
    assert PROSE in read(proxy, more)["content"]
    less = served(pages, "/less", STORY, headers={"Content-Length": "10000000"})
    assert "could not be reached" in read(proxy, less, "unavailable")["error"]


def flow(piece: bytes, pause: float, ended: threading.Event) -> Callable[[], Iterator[bytes]]:
    """A page that goes on like this until its reader hangs up."""

    def pieces() -> Iterator[bytes]:
        try:
            yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
            while True:
                time.sleep(pause)
                yield piece
        finally:
            ended.set()

    return pieces


@fault(52)
def test_a_body_that_drips(proxy: Groundwire, pages: PageServer) -> None:
    hung_up = threading.Event()
    pages.raw("/drip", flow(b"x", 0.1, hung_up))
    began = time.monotonic()
    page = read(proxy, pages.url("/drip"), "timed_out")
    assert 2 < time.monotonic() - began < 30
    assert "in time" in page["error"]
    assert hung_up.wait(10)


@fault(53)
def test_a_body_without_end(proxy: Groundwire, pages: PageServer) -> None:
    hung_up, before = threading.Event(), peak(proxy)
    pages.raw("/endless", flow(f"<p>{PROSE}</p>".encode() * 500, 0.0, hung_up))
    page = read(proxy, pages.url("/endless"))
    assert page["content"].startswith(PROSE)
    assert page["original_length"] < 2_100_000
    assert hung_up.wait(10)
    assert peak(proxy) - before < 80


@fault(54)
def test_redirects_that_lead_nowhere_good(proxy: Groundwire, pages: PageServer) -> None:
    pages.redirect("/loop", "/pool")
    pages.redirect("/pool", "/loop")
    for number in range(30):
        pages.redirect(f"/chain/{number}", f"/chain/{number + 1}")
    pages.page("/chain/30", STORY)
    for path in ("/loop", "/chain/0"):
        assert "redirects more than 5 times" in read(proxy, pages.url(path), "blocked")["error"]
    assert PROSE in read(proxy, pages.url("/chain/25"))["content"]
    for number, target in enumerate(("http://169.254.169.254/", "http://10.0.0.1/", "http://[::1]/", "file:///etc")):
        pages.redirect(f"/to/{number}", target)
        outcome = "bad_request" if target.startswith("file") else "not_allowed"
        error = read(proxy, pages.url(f"/to/{number}"), outcome)["error"]
        assert not any(part in error for part in ("169.254", "10.0.0.1", "::1"))


@fault(55)
def test_labels_that_are_not_true(proxy: Groundwire, pages: PageServer) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
    for number, body in enumerate((png, b"PK\x03\x04" + bytes(500), b"\x7fELF" + bytes(500), b"GIF89a" + bytes(500))):
        error = read(proxy, served(pages, f"/binary/{number}", body), "unavailable")["error"]
        assert "not text" in error
    for kind in ("image/png", "application/octet-stream", "font/woff2", "", "text/plain"):
        url = served(pages, f"/page/{kind}", STORY, content_type=kind)
        assert PROSE in read(proxy, url)["content"]


@fault(56)
def test_html_that_attacks_its_reader(proxy: Groundwire, pages: PageServer) -> None:
    pages.page("/secret", b"the secret file")
    outside = pages.url("/secret").encode()
    entity = b'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY x SYSTEM "%b"><!ENTITY f SYSTEM "file:///etc/passwd">]>'
    external = entity % outside + b"<html><body><p>&x; &f; " + PROSE.encode() + b"</p></body></html>"
    read(proxy, served(pages, "/deep", DEEP), "ok", "blocked")
    laughs = read(proxy, served(pages, "/laughs", ENTITIES + STORY))
    assert len(laughs["content"]) < 2000
    for kind in ("text/html", "application/xml"):
        page = read(proxy, served(pages, f"/external/{kind}", external, content_type=kind))
        assert "the secret file" not in page["content"]
        assert "root:" not in page["content"]
    assert not any(asked.path == "/secret" for asked in pages.requests)


@fault(56)
def test_a_page_that_is_never_read_to_its_end(proxy: Groundwire, pages: PageServer) -> None:
    """A million attributes keep the parser busy for minutes; meanwhile everything else goes on."""
    url = served(pages, "/stuck", STUCK)
    with ThreadPoolExecutor(1) as aside:
        stuck = aside.submit(read, proxy, url, "timed_out")
        healthy = 0
        while not stuck.done():
            assert httpx.get(f"{proxy.root}/healthz", timeout=20).status_code == 200
            healthy += 1
            time.sleep(0.05)
        assert "too long to read" in stuck.result()["error"]
    assert healthy > 5
    assert PROSE in read(proxy, served(pages, "/after", STORY))["content"]


@fault(56)
def test_a_pdf_that_grows(proxy: Groundwire, pages: PageServer) -> None:
    assert proxy.process is not None
    url, seen = served(pages, "/grows.pdf", pdf_bomb(), content_type="application/pdf"), [0.0]
    with ThreadPoolExecutor(1) as aside:
        grows = aside.submit(read, proxy, url, "unavailable", "timed_out")  # whichever limit it comes to first
        while not grows.done():
            seen += [memory(process, "VmHWM") for process in page_processes(proxy.process.pid)]
            assert httpx.get(f"{proxy.root}/healthz", timeout=20).status_code == 200
        assert grows.result()["error"]
    assert max(seen) < 540
    assert PROSE in read(proxy, served(pages, "/after", STORY))["content"]


@fault(56)
def test_a_reader_that_was_killed_while_it_idled(proxy: Groundwire, pages: PageServer) -> None:
    assert proxy.process is not None
    read(proxy, served(pages, "/one", STORY))
    killed = page_processes(proxy.process.pid)
    assert killed
    for process in killed:
        os.kill(process, 9)
    assert PROSE in read(proxy, served(pages, "/two", STORY))["content"]
    assert page_processes(proxy.process.pid).isdisjoint(killed)


WORDS = "灯塔日志写了三十年"
CHARSETS = {
    "what it says": (WORDS.encode("gb18030"), "text/html; charset=gb18030"),
    "nothing said": (WORDS.encode(), "text/html"),
    "the wrong one": (WORDS.encode(), "text/html; charset=iso-8859-1"),
    "no such one": (WORDS.encode(), "text/html; charset=klingon"),
    "utf-16 with a mark": (f"<p>{WORDS}</p>".encode("utf-16"), "text/html; charset=utf-8"),
    "in the page": (b"<meta charset=gb2312>" + WORDS.encode("gb18030"), "text/html"),
    "broken bytes": (WORDS.encode() + b"\xff\xfe\x80" + WORDS.encode() * 5, "text/html; charset=utf-8"),
}


@fault(57)
def test_charsets_that_are_not_true(proxy: Groundwire, pages: PageServer) -> None:
    for number, (body, label) in enumerate(CHARSETS.values()):
        paragraph = body if body[:2] in (b"\xff\xfe", b"\xfe\xff") else b"<p>" + body + b"</p>"
        page = read(proxy, served(pages, f"/charset/{number}", paragraph, content_type=label))
        assert WORDS in page["content"]


@fault(58)
def test_a_refresh_to_a_private_address(proxy: Groundwire, pages: PageServer) -> None:
    pages.page("/inner", b"the secret file")
    inner = pages.url("/inner")
    body = (
        f'<meta http-equiv="refresh" content="0; url={inner}"><script>location = "{inner}"</script>'
        f'<body onload="location=\'{inner}\'"><iframe src="{inner}"></iframe><img src="{inner}"><p>{PROSE}</p></body>'
    )
    url = served(pages, "/refresh", body.encode(), headers={"Refresh": f"0; url={inner}"})
    assert PROSE in read(proxy, url)["content"]
    assert not any(asked.path == "/inner" for asked in pages.requests)


REFUSALS = {
    "/403": (STORY, 403, "403"),
    "/451": (STORY, 451, "451"),
    "/429": (STORY, 429, "429"),
    "/503": (b"<title>Just a moment...</title><p>Checking your browser</p>", 503, "503"),
    "/challenge": (b"<title>Just a moment...</title><p>Verify you are human</p>", 200, "human"),
    "/script": (b"<div id=root></div><script src=/app.js></script>", 200, "JavaScript"),
}


@fault(59)
def test_pages_that_refuse_to_be_read(proxy: Groundwire, model: ModelServer, pages: PageServer) -> None:
    for path, (body, status, reason) in REFUSALS.items():
        url = served(pages, path, body, status=status)
        answer = opened(proxy, model, url)
        assert answer_of(answer) == ("It says so [1].", [])  # a mark that leads nowhere: nothing was read
        assert reason in told(model)
        assert PROSE not in told(model)
        assert outcomes(logged(proxy, answer), "pages") == [("reader", "blocked")]


class Counted:
    """Slow pages, and how many of them were under way at the most."""

    def __init__(self, pages: PageServer) -> None:
        self.most = self._now = 0
        self._lock = threading.Lock()
        pages.raw("*", self._pieces)

    def _pieces(self) -> Iterator[bytes]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.1)
        with self._lock:
            self._now -= 1
        yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + STORY


@fault(60)
@pytest.mark.parametrize(
    ("tools", "most"),
    [({"max_fetches_per_host": 3}, 3), ({"max_fetches": 2}, 2), ({"max_fetches_per_host": 100}, 8)],
    ids=["per host", "in all", "per request"],
)
def test_20_pages_at_once(model: ModelServer, tools: dict[str, int], most: int) -> None:
    with PageServer() as slow, Groundwire(reading(model, {"open_timeout": 60, **tools})) as proxy:
        counted = Counted(slow)
        urls = [slow.url(f"/{number}") for number in range(20)]
        answer = httpx.post(f"{proxy.url}/open", json={"urls": urls}, timeout=60)
        assert [page["status"] for page in answer.json()["pages"]] == ["success"] * 20
        assert 1 < counted.most <= most
        assert outcomes(logged(proxy, answer), "pages") == [("reader", "ok")] * 20


@fault(60)
def test_one_callers_hostile_pages_hold_up_no_other(model: ModelServer, pages: PageServer) -> None:
    keys = [{"name": name, "key": f"gw-{name}-0123456789"} for name in ("mallory", "alice")]
    mallory, alice = ({"authorization": f"Bearer {key['key']}"} for key in keys)
    for number in range(20):
        pages.page(f"/hostile/{number}", STUCK)
    urls = [pages.url(f"/hostile/{number}") for number in range(20)]
    pages.page("/nice", STORY)
    with Groundwire(reading(model, timeout=8, server={"keys": keys})) as proxy, ThreadPoolExecutor(2) as aside:
        hostile = [
            aside.submit(httpx.post, f"{proxy.url}/open", json={"urls": urls}, headers=mallory, timeout=120)
            for _ in range(2)
        ]
        assert proxy.process is not None
        process = proxy.process.pid
        eventually(lambda: page_processes(process))
        assert PROSE in read(proxy, pages.url("/nice"), headers=alice)["content"]
        assert len(page_processes(process)) <= 6
        for request in hostile:
            assert {page["status"] for page in request.result().json()["pages"]} == {"error"}
