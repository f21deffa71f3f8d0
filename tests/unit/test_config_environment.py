"""What the environment says where the config is silent: the model's server, the providers, and who searches first."""

from __future__ import annotations

from pathlib import Path

import pytest

from providers.registry import build
from providers.web.guard import Guard
from providers.web.http import Fetcher
from proxy.config.settings import ConfigError, from_environment
from tests.fakes.config import config, refusal


class TestWithoutAFile:
    @pytest.mark.parametrize(
        ("environ", "base_url", "key"),
        [
            ({}, "http://127.0.0.1:11434/v1", ""),
            ({"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1", "k"),
            ({"OPENAI_BASE_URL": "http://models.example:8000/v1/"}, "http://models.example:8000/v1", ""),
            ({"OPENAI_BASE_URL": "http://127.0.0.1:8081/v1", "OPENAI_API_KEY": "k"}, "http://127.0.0.1:8081/v1", "k"),
            ({"OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""}, "http://127.0.0.1:11434/v1", ""),
        ],
    )
    def test_the_model(self, environ: dict[str, str], base_url: str, key: str) -> None:
        [upstream] = from_environment(environ).upstreams
        assert (upstream.type, upstream.base_url, upstream.api_key.get_secret_value()) == ("openai", base_url, key)

    def test_duckduckgo_and_direct_when_nothing_is_set(self) -> None:
        assert [(entry.name, entry.type) for entry in from_environment({}).providers] == [
            ("duckduckgo", "duckduckgo"),
            ("direct", "direct"),
        ]

    def test_searxng_by_its_url(self) -> None:
        zero = from_environment({"SEARXNG_URL": "http://127.0.0.1:8888"})
        assert [(entry.name, entry.base_url) for entry in zero.providers] == [
            ("searxng", "http://127.0.0.1:8888"),
            ("direct", None),
        ]

    @pytest.mark.parametrize("kind", ["tavily", "exa", "brave", "perplexity", "serper", "jina", "firecrawl"])
    def test_a_key_brings_its_service(self, kind: str) -> None:
        zero = from_environment({f"{kind.upper()}_API_KEY": "sk-canary"})
        assert [entry.type for entry in zero.providers] == [kind, "direct"]
        key = zero.providers[0].api_key
        assert key is not None
        assert key.get_secret_value() == "sk-canary"
        assert "canary" not in repr(zero)

    @pytest.mark.parametrize("kind", ["tavily", "exa", "jina", "firecrawl"])
    def test_one_instance_searches_and_reads(self, kind: str) -> None:
        zero = from_environment({f"{kind.upper()}_API_KEY": "k"})
        assert (zero.tools.search, zero.tools.read) == ([kind], [kind, "direct"])
        named = build(zero.providers[:1], Fetcher(Guard()))[kind]
        assert (named.can_search, named.can_read) == (True, True)

    def test_several_keys_fail_over_in_a_fixed_order(self) -> None:
        environ = {
            "FIRECRAWL_API_KEY": "f",
            "SEARXNG_URL": "http://127.0.0.1:8888",
            "TAVILY_API_KEY": "t",
            "EXA_API_KEY": "",
        }
        assert from_environment(environ).tools.search == ["tavily", "searxng", "firecrawl"]
        assert from_environment(environ).tools.read == ["tavily", "firecrawl", "direct"]

    @pytest.mark.parametrize("url", ["http://localhost:8080/v1", "http://127.0.0.1:8080", "http://[::1]:8080/v1"])
    def test_our_own_listener_is_a_start_error(self, url: str) -> None:
        with pytest.raises(ConfigError, match=r"OPENAI_BASE_URL, upstreams\[0\].base_url: .*Groundwire itself"):
            from_environment({"OPENAI_BASE_URL": url})

    def test_a_bad_base_url_names_the_variable(self) -> None:
        with pytest.raises(ConfigError, match=r"The environment cannot be used:\n  OPENAI_BASE_URL, .*must be a URL"):
            from_environment({"OPENAI_BASE_URL": "localhost:11434"})


class TestFirstSearchProvider:
    FILE = """
        providers:
          - {name: ddg, type: duckduckgo}
          - {name: searx, type: searxng, base_url: "http://127.0.0.1:8888"}
        tools: {search: [ddg]}
    """

    @pytest.mark.parametrize("wanted", ["searx", "searxng"])
    def test_by_name_or_type(self, file: Path, wanted: str) -> None:
        chosen = config(file, self.FILE, {"WEB_SEARCH_PROVIDER": wanted})
        assert chosen.tools.search == ["searx", "ddg"]
        assert len(chosen.providers) == 2

    def test_one_that_is_not_configured_comes_from_the_environment(self) -> None:
        environ = {"WEB_SEARCH_PROVIDER": "duckduckgo", "SEARXNG_URL": "http://127.0.0.1:8888"}
        chosen = from_environment(environ)
        assert chosen.tools.search == ["duckduckgo", "searxng"]
        assert "duckduckgo" in [entry.name for entry in chosen.providers]

    def test_an_unknown_one_lists_the_valid_ones(self, file: Path) -> None:
        problems = refusal(file, self.FILE, {"WEB_SEARCH_PROVIDER": "altavista"})
        assert "WEB_SEARCH_PROVIDER cannot be used" in problems
        assert "'altavista'; valid here: ddg, searx, " in problems

    def test_one_that_lacks_its_variable_says_which(self) -> None:
        with pytest.raises(ConfigError, match="searxng needs SEARXNG_URL"):
            from_environment({"WEB_SEARCH_PROVIDER": "searxng"})
        with pytest.raises(ConfigError, match="brave needs BRAVE_API_KEY"):
            from_environment({"WEB_SEARCH_PROVIDER": "brave"})

    @pytest.mark.parametrize("wanted", ["reader", "direct", "crawl4ai"])
    def test_one_that_cannot_search_lists_those_that_can(self, file: Path, wanted: str) -> None:
        text = "providers: [{name: reader, type: direct}, {name: ddg, type: duckduckgo}]"
        problems = refusal(file, text, {"WEB_SEARCH_PROVIDER": wanted})
        assert f"WEB_SEARCH_PROVIDER cannot be used:\n  {wanted!r} cannot search; valid here: ddg, brave, " in problems
        assert "crawl4ai" not in problems.partition("valid here")[2]

    def test_the_name_counts_before_the_type_unless_it_cannot_search(self, file: Path) -> None:
        text = """
            providers:
              - {name: x, type: searxng, base_url: "http://127.0.0.1:8888"}
              - {name: searxng, type: duckduckgo}
              - {name: y, type: brave, api_key: k}
              - {name: brave, type: direct}
            tools: {search: []}
        """
        assert config(file, text, {"WEB_SEARCH_PROVIDER": "searxng"}).tools.search == ["searxng"]
        assert config(file, text, {"WEB_SEARCH_PROVIDER": "brave"}).tools.search == ["y"]

    def test_tavily_needs_no_key(self) -> None:
        chosen = from_environment({"WEB_SEARCH_PROVIDER": "tavily"})
        assert chosen.tools.search == ["tavily", "duckduckgo"]
        [entry] = [entry for entry in chosen.providers if entry.type == "tavily"]
        assert entry.api_key is None
        assert build([entry], Fetcher(Guard()))["tavily"].can_search
