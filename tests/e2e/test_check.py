"""`groundwire check`: what it tries, what it says of everything that can be wrong, and that no key is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest

from proxy.cli.check import Finding, Report, examine
from proxy.house import House
from tests.fakes.config import config
from tests.fakes.groundwire import config_file, gone, groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.pages import PageServer
from tests.fakes.readers import READERS, TEXT
from tests.fakes.search import FakeDuckDuckGo, FakeSearxng
from tests.fakes.search_hosted import HOSTED
from tests.fakes.service import HTML_ERROR, JSON_ERROR, KEY, Asked, FakeServer, Reply, as_json

DEMO = {"name": "demo", "type": "demo"}
FINDING_KEYS = ["subject", "kind", "ok", "seconds", "detail", "fix"]
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
    assert search.endswith(" ms  SearXNG refused the JSON format (status 403)")
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


# Upstreams


def test_an_upstream_that_is_not_there(tmp_path: Path) -> None:
    report = check(tmp_path, 1, upstreams=[{**DEMO, "models": ["demo"]}, gone()])
    finding = report["findings"][1]
    assert finding["detail"] == "Could not connect to upstream 'gone'"
    assert finding["fix"] == "start the model's server, or correct `base_url` of upstream 'gone'"


@pytest.mark.parametrize(
    ("reply", "detail", "fix"),
    [
        (Reply(401, JSON_ERROR), "refused the key", "set `api_key` of upstream 'up' in the config, or OPENAI_API_KEY,"),
        (as_json({"data": []}), "it answers, but lists no model", "load a model there"),
        (Reply(body=HTML_ERROR), "it answers, but lists no model", "`base_url` of upstream 'up' ends in /v1"),
        (
            as_json({"data": [{"id": "b"}]}),
            "none of its models matches `models` of this upstream: b",
            "correct `models`",
        ),
        (Reply(404, b"404 page not found"), "HTTP 404", "correct `base_url` of upstream 'up': it goes up to"),
        (Reply(302, headers={"Location": "/"}), "HTTP 302", "correct `base_url` of upstream 'up': it goes up to"),
        (as_json({"error": f"quota of {KEY}"}, 429), "HTTP 429: quota of ***", "what the plan behind the key"),
        (as_json({"error": "out of \x1b[31m memory"}, 500), "HTTP 500: out of [31m memory", "log of the server"),
    ],
)
def test_an_upstream_that_lists_nothing(
    servers: ExitStack, tmp_path: Path, reply: Reply, detail: str, fix: str
) -> None:
    server = servers.enter_context(FakeModels())
    server.reply = reply
    upstream = {"name": "up", "base_url": server.url, "api_key": KEY, "models": ["a*"]}
    report = check(tmp_path, 1, upstreams=[upstream])
    [finding] = report["findings"]
    assert finding["kind"] == "upstream"
    assert detail in finding["detail"]
    assert fix in finding["fix"]


def test_ollama_is_called_by_its_name(tmp_path: Path) -> None:
    report = check(tmp_path, 1, upstreams=[{"name": "up", "base_url": "http://nowhere.invalid:11434/v1"}])
    assert only(report, "upstream")["fix"] == "start Ollama: `ollama serve`"


def refused(message: str, status: int = 400) -> Turn:
    return Turn(status=status, body=json.dumps({"error": {"message": message, "type": "api_error"}}).encode())


@pytest.mark.parametrize(
    ("turn", "detail", "fix"),
    [
        (refused(f"the plan of {KEY} is used up", 429), "m: HTTP 429: the plan of *** is used up", "the plan behind"),
        (refused(f"who is {KEY[::-1]}?", 500), "m: HTTP 500: who is ***?", "see what the log of the server"),
        (
            refused("This is not a chat model", 404),
            "m: HTTP 404: This is not a chat model",
            "name only models that chat",
        ),
        (Turn(end="reset"), "m: Upstream 'up' closed the connection", "start the model's server"),
    ],
)
def test_a_model_that_cannot_be_asked(model: ModelServer, tmp_path: Path, turn: Turn, detail: str, fix: str) -> None:
    model.script(turn)
    upstream = {"name": "up", "base_url": model.url, "api_key": KEY, "headers": {"X-Key": KEY[::-1]}}
    report = check(tmp_path, 1, upstreams=[upstream])
    assert only(report, "upstream")["ok"]
    finding = only(report, "tools")
    assert detail in finding["detail"]
    assert fix in finding["fix"]


NO_TOOLS = "registry.ollama.ai/library/gemma:2b does not support tools"
NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


@pytest.mark.parametrize(
    ("turn", "detail"),
    [
        (
            refused(NO_TOOLS),
            f"m is refused tools ({NO_TOOLS}): its tools are described in words (tool_calls: prompted)",
        ),
        (
            refused(NO_PARSER),
            "to have it call tools, start its server with --enable-auto-tool-choice --tool-call-parser",
        ),
        (refused("No endpoints found that support tool use", 404), "(tool_calls: prompted)"),
    ],
)
def test_a_model_that_takes_no_tools(model: ModelServer, tmp_path: Path, turn: Turn, detail: str) -> None:
    model.script(turn)
    report = check(tmp_path, upstreams=[{"name": "up", "base_url": model.url}])
    assert detail in only(report, "tools")["detail"]


def test_a_model_that_must_take_tools_and_does_not(model: ModelServer, tmp_path: Path) -> None:
    model.script(refused(NO_TOOLS))
    report = check(tmp_path, 1, upstreams=[{"name": "up", "base_url": model.url, "tool_calls": "native"}])
    assert only(report, "tools")["detail"] == f"m was refused tools: {NO_TOOLS}"
    assert "set `tool_calls: auto` for upstream 'up'" in only(report, "tools")["fix"]


def test_a_model_that_is_not_asked_to_call(model: ModelServer, tmp_path: Path) -> None:
    model.script(text("no"))
    report = check(tmp_path, upstreams=[{"name": "up", "base_url": model.url, "tool_calls": "none"}])
    assert only(report, "tools")["detail"] == "m: the web is searched before it is asked (tool_calls: none)"
    assert model.requests == []


@pytest.mark.parametrize(
    ("turns", "detail"),
    [
        ([text("It is sunny.")], "m answered without calling the tool, which is fine"),
        ([refused("Unsupported parameter: 'max_tokens'"), call("web_search", {"query": "x"})], "m calls tools"),
    ],
)
def test_a_model_that_takes_tools(model: ModelServer, tmp_path: Path, turns: list[Turn], detail: str) -> None:
    model.script(*turns)
    report = check(tmp_path, upstreams=[{"name": "up", "base_url": model.url}])
    assert only(report, "tools")["detail"] == detail
    assert model.requests[-1].get("max_tokens" if len(turns) == 1 else "max_completion_tokens") == 64


def test_a_model_that_chats_is_chosen(servers: ExitStack, tmp_path: Path) -> None:
    server = servers.enter_context(FakeModels())
    server.reply = as_json({"data": [{"id": name} for name in ("text-embedding-3", "whisper-1", "qwen3:8b")]})
    check(tmp_path, 1, upstreams=[{"name": "up", "base_url": server.url}])
    assert [asked.params.get("model") for asked in server.asked] == [None, "qwen3:8b"]


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
