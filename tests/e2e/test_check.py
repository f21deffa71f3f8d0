"""`groundwire check`: what it tries, what it says of everything that can be wrong, and that no key is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest

from proxy.cli.check import examine
from proxy.cli.findings import Finding, Report
from proxy.house import House
from tests.fakes.config import config
from tests.fakes.groundwire import config_file, gone, groundwire
from tests.fakes.model import ModelServer, Turn, call
from tests.fakes.pages import PageServer
from tests.fakes.readers import READERS, TEXT
from tests.fakes.search import FakeDuckDuckGo, FakeSearxng
from tests.fakes.search_hosted import HOSTED
from tests.fakes.service import HTML_ERROR, JSON_ERROR, KEY, Asked, FakeServer, Reply, as_json

DEMO = {"name": "demo", "type": "demo"}
FINDING_KEYS = ["subject", "kind", "ok", "seconds", "url", "detail", "fix"]
Json = dict[str, Any]


class FakeModels(FakeServer):
    """A model's server that gives one reply to whatever it is asked; first of all, which models it has."""

    reply: Reply = as_json({"data": [{"id": "m"}]})
    faults: ClassVar = {}
    path = "/v1"

    def check(self, asked: Asked) -> None:
        assert asked.headers["user-agent"] == "groundwire"


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def check(folder: Path, code: int = 0, **sections: Any) -> Json:
    """The report as JSON. Whatever a test looks for in it: it has its shape, and the key is nowhere."""
    path = config_file(folder, {"upstreams": [DEMO], "providers": [], **sections})
    done = groundwire(folder, "check", "--config", path, "--json", code=code)
    assert KEY not in done.stdout + done.stderr
    assert done.stderr == ""
    report: Json = json.loads(done.stdout)
    assert list(report) == ["ok", "findings", "notes"]
    assert report["ok"] is (code == 0) is all(finding["ok"] for finding in report["findings"])
    for finding in report["findings"]:
        assert list(finding) == FINDING_KEYS
        assert finding["seconds"] >= 0
        assert bool(finding["fix"]) is not finding["ok"]
    return report


def only(report: Json, kind: str) -> Json:
    [finding] = [finding for finding in report["findings"] if finding["kind"] == kind]
    return dict(finding)


def entry(fake: Any, **more: Any) -> Json:
    given = fake.entry()
    key = {"api_key": KEY} if given.api_key else {}
    return {"name": "web", "type": given.type, "base_url": given.base_url, "options": given.options, **key, **more}


# All is well


def test_when_all_is_well(servers: ExitStack, model: ModelServer, tmp_path: Path) -> None:
    model.script(call("web_search", {"query": "weather in Paris"}))
    searx, search, reader = (servers.enter_context(fake()) for fake in (FakeSearxng, HOSTED["jina"], READERS["jina"]))
    (tmp_path / "empty").mkdir()
    report = check(
        tmp_path,
        upstreams=[{**DEMO, "models": ["demo"]}, {"name": "scripted", "base_url": model.url, "api_key": KEY}],
        providers=[
            {"name": "searx", "type": "searxng", "base_url": searx.url},
            entry(reader, name="jina", options={"search_url": search.url}),
            {"name": "library", "type": "local", "options": {"path": str(tmp_path / "empty")}},
        ],
    )
    assert [(finding["kind"], finding["subject"], finding["detail"]) for finding in report["findings"]] == [
        ("upstream", "demo", "1 model: demo"),
        ("upstream", "scripted", "2 models: m, vendor/m"),
        ("tools", "scripted", "m calls tools"),
        ("search", "searx", "3 results"),
        ("search", "jina", "3 results"),
        ("search", "library", "0 indexed; can be searched; nothing there is about 'web search'"),
        ("read", "jina", f"{len(TEXT)} characters of https://example.com/"),
    ]
    assert report["notes"] == []
    assert [finding["url"] for finding in report["findings"]] == [
        "",
        f"{model.url}/models",
        f"{model.url}/chat/completions",
        searx.url,
        search.url,
        "",
        reader.url,
    ]
    [asked] = model.requests
    assert (asked["model"], asked["tool_choice"], asked["stream"]) == ("m", "auto", False)
    assert [tool["type"] for tool in asked["tools"]] == ["function"]
    assert asked["max_tokens"] <= 100


def test_the_table(servers: ExitStack, tmp_path: Path) -> None:
    searx = servers.enter_context(FakeSearxng())
    searx.reply = Reply(403, HTML_ERROR)
    providers = [{"name": "searx", "type": "searxng", "base_url": searx.url}]
    config_file(tmp_path, {"upstreams": [DEMO], "providers": providers})
    upstream, search, fix, note = groundwire(tmp_path, "check", code=1).stdout.splitlines()
    assert [*upstream.split()[:3], *upstream.split()[4:]] == ["upstream", "demo", "ok", "ms", "1", "model:", "demo"]
    assert search.split()[:3] == ["search", "searx", "BROKEN"]
    assert search.endswith(f" ms  {searx.url}: SearXNG refused the JSON format (status 403)")
    assert fix.strip() == "→ add `json` under `search: formats:` in its settings.yml and restart it"
    assert note.startswith("note: no configured reader can open web pages; ")


def test_what_is_worth_a_note(servers: ExitStack, tmp_path: Path) -> None:
    brave, searx = servers.enter_context(HOSTED["brave"]()), servers.enter_context(FakeSearxng())
    both = [entry(brave), {"name": "searx", "type": "searxng", "base_url": searx.url}]
    report = check(tmp_path, providers=both, tools={"search": ["searx"]})
    assert [finding["subject"] for finding in report["findings"]] == ["demo", "web", "searx"], "all are tried"
    assert report["notes"][0] == "provider 'web' is configured, but neither `tools.search` nor `tools.read` uses it"
    nothing = check(tmp_path)["notes"]
    assert [note.partition(" can ")[0] for note in nothing] == ["no configured provider", "no configured reader"]


def test_no_reader_is_used(tmp_path: Path) -> None:
    reader = {"name": "reader", "type": "direct"}
    notes = check(tmp_path, 1, providers=[reader], tools={"read": []})["notes"]  # there is no web here to read
    assert "`tools.read` is empty, so models are not offered open_page; `read: [reader]` would offer it" in notes


# Providers


@pytest.mark.parametrize(
    ("kind", "reply", "detail", "fix"),
    [
        ("searxng", Reply(403, HTML_ERROR), "status 403", "add `json` under `search: formats:`"),
        ("searxng", Reply(body=HTML_ERROR), "answered with a web page", "add `json` under `search: formats:`"),
        ("searxng", Reply(401, HTML_ERROR), "wants to know who asks", "api_key, or username and password"),
        ("searxng", as_json({"results": []}), "SearXNG found nothing", "see its own settings"),
        ("searxng", Reply(404, HTML_ERROR), "status 404", "check its base_url"),
        (
            "brave",
            Reply(401, JSON_ERROR),
            "refused the key",
            "`providers[].api_key` of 'web', usually ${BRAVE_API_KEY},",
        ),
        ("exa", Reply(402, JSON_ERROR), "used up", "renew the plan, or put another provider after 'web'"),
        (
            "serper",
            Reply(429, headers={"Retry-After": "7"}),
            "rate-limiting",
            "wait 7 s, or set `rate` of provider 'web'",
        ),
        ("perplexity", Reply(500, JSON_ERROR), "having trouble", "`base_url` of provider 'web' is right"),
        ("duckduckgo", Reply(202, HTML_ERROR), "gave no results", "throttles who asks often: wait some minutes"),
    ],
)
def test_search_that_is_broken(
    servers: ExitStack, tmp_path: Path, kind: str, reply: Reply, detail: str, fix: str
) -> None:
    fakes: dict[str, Any] = {"searxng": FakeSearxng, "duckduckgo": FakeDuckDuckGo, **HOSTED}
    fake = servers.enter_context(fakes[kind]())
    fake.reply = reply
    finding = only(check(tmp_path, 1, providers=[entry(fake)], tools={"search": ["web"], "read": []}), "search")
    assert detail in finding["detail"]
    assert fix in finding["fix"]


def test_a_searxng_whose_limiter_keeps_us_out(servers: ExitStack, tmp_path: Path) -> None:
    fake = servers.enter_context(FakeSearxng())
    fake.reply = Reply(429, b"Too Many Requests")
    finding = only(check(tmp_path, 1, providers=[entry(fake)]), "search")
    assert finding["fix"].startswith("turn `server.limiter` off")
    assert "`pass_ip` in limiter.toml" in finding["fix"]


def test_settings_that_a_searxng_would_ignore(servers: ExitStack, tmp_path: Path) -> None:
    fake = servers.enter_context(FakeSearxng())
    options = {"engines": ["bravo"], "categories": ["general"]}
    finding = only(check(tmp_path, 1, providers=[entry(fake, options=options)]), "search")
    assert finding["detail"] == "SearXNG knows no engine bravo, and ignores that"
    assert finding["fix"] == "correct `options.engines` of provider 'web'; did you mean brave?"


def test_engines_that_a_searxng_is_refused_by(servers: ExitStack, tmp_path: Path) -> None:
    fake = servers.enter_context(FakeSearxng())
    answer = {"results": [{"url": "https://example.org/"}], "unresponsive_engines": [["google", "Suspended: CAPTCHA"]]}
    fake.reply = as_json(answer)
    finding = only(check(tmp_path, providers=[entry(fake)]), "search")
    assert finding["detail"] == "1 result; engines that did not answer: google (Suspended: CAPTCHA)"


def test_a_provider_that_is_not_there(tmp_path: Path) -> None:
    providers = [{"name": "searx", "type": "searxng", "base_url": gone()["base_url"]}]
    finding = only(check(tmp_path, 1, providers=providers), "search")
    assert "cannot be reached" in finding["detail"]
    assert "`base_url` of provider 'searx' is right" in finding["fix"]


def test_each_role_is_tried_by_itself(servers: ExitStack, tmp_path: Path) -> None:
    """A used-up search beside a reader that works: one instance, two findings."""
    search, reader = servers.enter_context(HOSTED["jina"]()), servers.enter_context(READERS["jina"]())
    search.reply = Reply(402, JSON_ERROR)
    report = check(tmp_path, 1, providers=[entry(reader, options={"search_url": search.url})])
    assert [only(report, kind)["ok"] for kind in ("search", "read")] == [False, True]
    report = check(
        tmp_path, providers=[entry(reader, options={"search_url": search.url})], tools={"search": [], "read": ["web"]}
    )
    assert [finding["kind"] for finding in report["findings"]] == ["upstream", "read"], "what nobody uses costs nothing"


def test_a_reader_that_cannot_reach_the_web(servers: ExitStack, tmp_path: Path) -> None:
    direct = {"name": "direct", "type": "direct", "timeout": 0.001}
    crawler = servers.enter_context(READERS["crawl4ai"]())
    crawler.reply = as_json({"detail": "Crawl failed"}, 500)
    report = check(tmp_path, 1, providers=[direct, entry(crawler)])
    fixes = {finding["subject"]: finding["fix"] for finding in report["findings"]}
    assert fixes["direct"].startswith("let this machine reach the web (network, DNS, firewall), or set `network.proxy`")
    assert fixes["web"] == "see that it runs and reaches the web, and that `base_url` of provider 'web' is right"


def test_a_key_that_is_missing(tmp_path: Path) -> None:
    config_file(tmp_path, {"upstreams": [DEMO], "providers": [{"name": "web", "type": "exa"}]})
    said = groundwire(tmp_path, "check", "--json", code=2).stderr
    assert "`api_key` is missing; set `api_key: ${EXA_API_KEY}` under provider 'web'" in said


def test_a_plugin_that_fails(tmp_path: Path) -> None:
    (tmp_path / "broken_plugin.py").write_text(
        "class Broken:\n    def __init__(self, settings): self.settings = settings\n"
        "    async def search(self, query): return self.settings['nothing']\n"
    )
    info = tmp_path / "broken_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[groundwire.providers]\nbroken = broken_plugin:Broken\n")
    config_file(tmp_path, {"upstreams": [DEMO], "providers": [{"name": "mine", "type": "broken", "api_key": KEY}]})
    env = {"PYTHONPATH": str(tmp_path)}
    done = groundwire(tmp_path, "check", "--json", code=1, env=env)
    finding = only(json.loads(done.stdout), "search")
    assert finding["detail"] == "the provider failed (KeyError)"
    assert finding["fix"] == 'run `groundwire search "x" --provider mine`, which says where the provider fails'
    said = groundwire(tmp_path, "search", "x", "--provider", "mine", code=1, env=env).stderr
    assert "provider mine raised KeyError" in said
    assert "return self.settings['nothing']" in said
    assert KEY not in done.stdout + done.stderr + said


# In this process: a page of our own, and less patience


async def examined(folder: Path, sections: Json, **more: Any) -> Report:
    house = House(config(folder / "config.yaml", json.dumps({"upstreams": [DEMO], **sections})))
    try:
        return await examine(house, **more)
    finally:
        await house.aclose()


async def test_readers_of_our_own(tmp_path: Path) -> None:
    sections = {
        "providers": [
            {"name": "direct", "type": "direct"},
            {"name": "chromium", "type": "chromium", "options": {"program": str(tmp_path / "chromium")}},
        ],
        "tools": {"allow_networks": ["127.0.0.0/8"]},
    }
    with PageServer() as pages:
        pages.page("/", b"<html><title>T</title><body><p>" + b"The tide comes in twice a day. " * 20 + b"</p></body>")
        report = await examined(tmp_path, sections, page=pages.url("/"))
    _, direct, chromium = report.findings
    assert (direct.ok, chromium.ok, report.ok) == (True, False, False)
    assert direct.detail.endswith(f" characters of {pages.url('/')}")
    assert chromium.detail == "Chromium cannot be reached (FileNotFoundError)"
    assert chromium.fix.startswith("install Chromium (Debian: `apt install chromium`), or correct `program`")


async def test_nothing_takes_longer_than_its_time(servers: ExitStack, tmp_path: Path, model: ModelServer) -> None:
    model.script(Turn(end="hang"))
    server, searx = servers.enter_context(FakeModels()), servers.enter_context(FakeSearxng())
    server.reply = searx.reply = Reply(wait=60)
    sections = {
        "upstreams": [
            {"name": "slow", "base_url": server.url, "models": ["x"]},
            {"name": "loading", "base_url": model.url},
        ],
        "providers": [{"name": "searx", "type": "searxng", "base_url": searx.url, "timeout": 0.4}],
    }
    report = await examined(tmp_path, sections, limit=0.5)
    seen: list[Finding] = [finding for finding in report.findings if not finding.ok]
    assert [(finding.kind, finding.detail) for finding in seen] == [
        ("upstream", "no answer within 0.5 s"),
        ("tools", "no answer within 2 s"),
        ("search", "SearXNG did not answer within 0.4 s"),
    ]
    assert all(finding.fix for finding in seen)
