"""What an operator may say about upstreams and models, and every way it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.config import config, refusal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


class TestUpstreams:
    def test_defaults(self, file: Path) -> None:
        [upstream] = config(file, "upstreams: [{name: a, base_url: 'http://models.example/v1/'}]").upstreams
        assert (upstream.type, upstream.tool_calls, upstream.models) == ("openai", "auto", ["*"])
        assert upstream.base_url == "http://models.example/v1"
        assert (upstream.connect_timeout, upstream.first_byte_timeout, upstream.idle_timeout) == (5, 120, 60)
        assert (upstream.retries, upstream.retry_wait, upstream.max_retry_after) == (2, 0.25, 5)
        assert upstream.max_answer == 64 * 1024 * 1024

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("{name: a}", "upstreams[0]: type openai needs a base_url"),
            ("{name: a, type: demo, base_url: 'http://x'}", "upstreams[0]: type demo is built in"),
            (
                "{name: a, type: demo, tool_calls: words}",
                "upstreams[0].tool_calls: must be 'auto', 'native', 'prompted'",
            ),
            ("{name: a, type: demo, options: {a: 1}}", "upstreams[0]: options are for type litellm"),
            (
                "{name: a, type: litellm, api_key: canary}",
                "upstreams[0]: type litellm with an api_key needs models of one",
            ),
            (
                "{name: a, type: litellm, api_key: canary, models: ['anthropic/*', 'groq/*']}",
                "upstreams[0]: type litellm with an api_key needs models of one",
            ),
            ("{name: a, type: demo, profile: grok}", "upstreams[0].profile: must be auto or one of openai, groq"),
            (
                "{name: a, type: demo, without_repairs: [x]}",
                "upstreams[0].without_repairs[0]: must be a repair (call_index",
            ),
            (
                "{name: a, type: demo, drop: [tools]}",
                "upstreams[0].drop[0]: must not be one that the answer depends on",
            ),
            ("{name: a, type: demo, context: 5}", "upstreams[0].context: "),
            ("{name: a, type: demo, retries: 3}", "upstreams[0].retries: "),
            ("{name: a, type: demo, retries: true}", "upstreams[0].retries: must be a number"),
            ("{name: a, type: demo, retry_wait: 0}", "upstreams[0].retry_wait: "),
            ("{name: a, type: demo, max_answer: 5}", "upstreams[0].max_answer: "),
            ("{name: a, type: demo, overrides: [{assist: true}]}", "upstreams[0].overrides[0].match: is missing"),
            ("{name: a, type: demo, fallback: [a]}", "upstreams[0].fallback[0]: must begin with the name of another"),
            ("{name: a, type: demo, fallback: [b/x]}", "upstreams[0].fallback[0]: must begin with the name of another"),
            (
                "{name: a, type: demo, fallback: [b]}, {name: b, base_url: 'http://x', api_key: passthrough}",
                "upstreams[0].fallback[0]: must not be an upstream with api_key: passthrough",
            ),
            ("{name: a, type: anthropic}", "upstreams[0].type: must be 'openai', 'litellm' or 'demo'"),
            ("{name: a, base_url: 'ftp://x'}", "upstreams[0].base_url: must be a URL such as"),
            ("{name: a, base_url: 'http://x:99999'}", "upstreams[0].base_url: must be a URL such as"),
            ("{name: a, base_url: 'http://[::1'}", "upstreams[0].base_url: must be a URL such as"),
            ("{name: a, base_url: 'http://u:canary@x'}", "upstreams[0].base_url: must be a bare URL"),
            ("{name: a, base_url: 'http://x/?key=canary'}", "upstreams[0].base_url: must be a bare URL"),
            ("{name: a, type: demo, models: []}", "upstreams[0].models: must not be empty"),
            ("{name: a, type: demo, forward: [/v1/../x]}", "upstreams[0].forward[0]: must be a path"),
            ("{name: a, type: demo, forward: [files]}", "upstreams[0].forward[0]: must be a path"),
            ('{name: a, type: demo, headers: {X: "canary\\nY: z"}}', "upstreams[0].headers: must be header names"),
            ("{type: demo}", "upstreams[0].name: is missing"),
            ("{name: a, type: demo}, {name: a, type: demo}", "upstreams[1].name: must not be the name of another"),
        ],
    )
    def test_refusals(self, file: Path, text: str, expected: str) -> None:
        problems = refusal(file, f"upstreams: [{text}]")
        assert f"line 1, {expected}" in problems
        assert "canary" not in problems

    def test_an_empty_list_is_refused(self, file: Path) -> None:
        assert "line 1, upstreams: must not be empty" in refusal(file, "upstreams: []")

    @pytest.mark.parametrize(
        ("host", "port", "url", "own"),
        [
            ("127.0.0.1", 8080, "http://localhost:8080/v1", True),
            ("127.0.0.1", 8080, "http://0.0.0.0:8080/v1", True),
            ("0.0.0.0", 8080, "http://127.0.0.1:8080/v1", True),
            ("192.168.1.5", 8080, "http://192.168.1.5:8080", True),
            ("127.0.0.1", 80, "http://localhost/v1", True),
            ("127.0.0.1", 443, "https://localhost/v1", True),
            ("127.0.0.1", 8080, "http://127.0.0.1:8081/v1", False),
            ("127.0.0.1", 8080, "http://models.example:8080/v1", False),
            ("192.168.1.5", 8080, "http://127.0.0.1:8080/v1", False),
        ],
    )
    def test_our_own_listener(self, file: Path, host: str, port: int, url: str, own: bool) -> None:
        server = f"server: {{host: {host}, port: {port}, keys: [a-key-that-is-long]}}"
        text = f"{server}\nupstreams:\n  - name: a\n    base_url: {url}\n"
        if own:
            assert "line 4, upstreams[0].base_url: must be the model's server" in refusal(file, text)
        else:
            assert config(file, text).upstreams[0].base_url == url

    def test_forward_and_headers(self, file: Path) -> None:
        text = "upstreams: [{name: a, type: demo, forward: ['/v1/batches/*'], headers: {X-Team: 7}}]"
        [upstream] = config(file, text).upstreams
        assert upstream.forward == ["/v1/batches/*"]
        assert upstream.headers == {"X-Team": "7"}

    def test_a_key_of_the_clients_own(self, file: Path) -> None:
        where = "base_url: 'http://x'"
        text = f"upstreams: [{{name: a, {where}, api_key: passthrough}}, {{name: b, {where}, api_key: k}}]"
        passing, keeping = config(file, text).upstreams
        assert (passing.passes_key, passing.key) == (True, "")
        assert (keeping.passes_key, keeping.key) == (False, "k")

    def test_overrides(self, file: Path) -> None:
        text = """
upstreams:
  - name: a
    type: demo
    tool_calls: native
    context: 8192
    drop: [store]
    overrides:
      - {match: "small-*", tool_calls: none, assist: true, mode: off}
      - {match: "*", context: 4096, drop: []}
"""
        (upstream,) = config(file, text).upstreams
        small, other = upstream.of("small-1"), upstream.of("large")
        assert (small.tool_calls, small.assist, small.mode, small.context, small.drop) == (
            "none",
            True,
            "off",
            8192,
            ["store"],
        )
        assert (other.tool_calls, other.assist, other.mode, other.context, other.drop) == (
            "native",
            False,
            None,
            4096,
            [],
        )


class TestAliases:
    DEMO = "upstreams: [{name: a, type: demo, models: [demo, 'x/*']}]\n"

    @pytest.mark.parametrize("target", ["demo", "x/y", "a/anything"])
    def test_they_lead_somewhere(self, file: Path, target: str) -> None:
        assert config(file, self.DEMO + f"aliases: {{fast: {target}}}").aliases == {"fast": target}

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("{fast: nobody}", "aliases.fast: must be a model that an upstream here serves"),
            ("{fast: b/demo}", "aliases.fast: must be a model that an upstream here serves"),
            ("{fast: quick, quick: demo}", "aliases.fast: must name a model, not another alias"),
            ("{fast: ''}", "aliases.fast: must not be empty"),
        ],
    )
    def test_refusals(self, file: Path, text: str, expected: str) -> None:
        assert f"line 2, {expected}" in refusal(file, self.DEMO + f"aliases: {text}")
