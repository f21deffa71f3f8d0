"""`groundwire check` of upstreams: servers that are not there or elsewhere, models that take no tools, and aliases that
lead nowhere.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_check import DEMO, FakeModels, check, only
from tests.e2e.test_check import servers as servers
from tests.fakes.groundwire import config_file, gone, groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.service import HTML_ERROR, JSON_ERROR, KEY, Asked, Reply, as_json


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
    assert only(report, "tools")["detail"] == "m: it cannot call tools, so Groundwire searches first (tool_calls: none)"
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


class ModelsUnderV1(FakeModels):
    """As Ollama and vLLM have it: what is not under /v1 is not there."""

    path = ""

    def reply_to(self, asked: Asked) -> Reply:
        return self.reply if asked.path == "/v1/models" else Reply(404, b"404 page not found")


@pytest.mark.parametrize("written", ["", "/", "/v1/chat/completions", "/v1/models", "/api"])
def test_an_address_that_leaves_its_end_away(servers: ExitStack, tmp_path: Path, written: str) -> None:
    server = servers.enter_context(ModelsUnderV1())
    upstream = {"name": "up", "base_url": server.url + written, "api_key": KEY}
    [finding] = check(tmp_path, 1, upstreams=[upstream])["findings"]
    assert finding["url"] == server.url + written.rstrip("/") + "/models"
    if written == "/api":
        assert "it goes up to and including /v1" in finding["fix"], "there is nothing under /api/v1 either"
    else:
        assert finding["detail"] == f"nothing is there, but {server.url}/v1/models lists 1 model"
        assert finding["fix"] == f"set `base_url: {server.url}/v1` of upstream 'up'"


def test_an_upstream_that_is_this_server(tmp_path: Path) -> None:
    config_file(tmp_path, {"upstreams": [{"name": "up", "base_url": "http://localhost:8080/v1"}], "providers": []})
    said = groundwire(tmp_path, "check", code=2).stderr
    assert "port 8080 of this machine is Groundwire itself" in said


# Aliases


@pytest.mark.parametrize(
    ("target", "model"), [("qwen3:8", "qwen3:8"), ("up/llama", "llama"), ("up/qwen3", ""), ("m", ""), ("gpt/5", "")]
)
def test_an_alias_that_leads_nowhere(servers: ExitStack, tmp_path: Path, target: str, model: str) -> None:
    """Known are the listed names, for Ollama also without the tag `latest`, and what matches a pattern in the list."""
    server = servers.enter_context(FakeModels())
    server.reply = as_json({"data": [{"id": name} for name in ("m", "qwen3:latest", "qwen3:8b", "gpt/*")]})
    upstream = {"name": "up", "base_url": server.url, "tool_calls": "none"}
    report = check(tmp_path, 1 if model else 0, upstreams=[upstream], aliases={"mine": target})
    found = [finding for finding in report["findings"] if finding["kind"] == "alias"]
    if not model:
        assert found == []
        return
    [finding] = found
    assert (finding["subject"], finding["url"]) == ("mine", f"{server.url}/models")
    assert finding["detail"] == f"leads nowhere: upstream 'up' lists no model {model}"
    assert finding["fix"].startswith("correct `aliases: mine`; upstream 'up' has ")


def test_an_alias_that_no_upstream_serves(tmp_path: Path) -> None:
    upstream = {"name": "up", "base_url": "http://127.0.0.1:9/v1", "models": ["a*"]}
    config_file(tmp_path, {"upstreams": [upstream], "providers": [], "aliases": {"mine": "b"}})
    assert "aliases.mine: must be a model that an upstream here serves" in groundwire(tmp_path, "check", code=2).stderr
