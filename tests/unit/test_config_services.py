"""The configuration of what stands behind the proxy: how providers are called, and where the store is."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.settings import from_environment
from tests.fakes.config import config, refusal


class TestCallingProviders:
    @pytest.mark.parametrize("written", ["off", "Off", "false", "'off'", "no", "${CACHE:-off}"])
    def test_a_cache_that_is_off_keeps_nothing(self, file: Path, written: str) -> None:
        cache = config(file, f"cache: {written}").cache
        assert (cache.search_ttl, cache.page_ttl) == (0, 0)

    def test_a_cache_of_one_kind(self, file: Path) -> None:
        cache = config(file, "cache: {page_ttl: 0, max_size: 2MiB}").cache
        assert (cache.search_ttl, cache.page_ttl, cache.max_size) == (300, 0, 2 << 20)

    def test_limits_of_a_provider(self, file: Path) -> None:
        [entry] = config(file, "providers: [{name: a, type: direct, rate: 0.5, concurrency: 2, min_gap: 1}]").providers
        assert (entry.rate, entry.concurrency, entry.min_gap) == (0.5, 2, 1)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("cache: on", "cache: must be a mapping"),
            ("cache: {ttl: 5}", "cache.ttl: unknown key; valid here: search_ttl, page_ttl, max_entries, max_size"),
            ("cache: {search_ttl: -1}", "cache.search_ttl: must be greater than or equal to 0 (given: '-1')"),
            ("cache: {search_ttl: true}", "cache.search_ttl: must be a number (given: 'true')"),
            ("cache: {max_size: 10}", "cache.max_size: must be greater than or equal to 1024 (given: '10')"),
            ("cooldown: {rate_limit: 5}", "cooldown.rate_limit: unknown key; did you mean rate_limited?"),
            ("cooldown: {auth_failed: 0}", "cooldown.auth_failed: must be greater than 0 (given: '0')"),
            ("cooldown: {failures: 1.5}", "cooldown.failures: must be a whole number (given: '1.5')"),
            ("providers: [{name: a, type: direct, rate: 0}]", "providers[0].rate: must be greater than 0 (given: '0')"),
            ("providers: [{name: a, type: direct, rate: true}]", "providers[0].rate: must be a number (given: 'true')"),
            ("providers: [{name: a, type: direct, min_gap: -1}]", "providers[0].min_gap: must be greater than 0"),
            ("providers: [{name: a, type: direct, concurrency: 0}]", "providers[0].concurrency: must be greater than"),
        ],
    )
    def test_wrong_values(self, file: Path, text: str, expected: str) -> None:
        assert f"line 1, {expected}" in refusal(file, text)


class TestTheStore:
    @pytest.mark.parametrize("url", ["redis://cache", "rediss://me:canary@cache:6380/1", "valkey://:canary@[::1]/0"])
    def test_a_redis_is_taken_and_not_shown(self, file: Path, url: str) -> None:
        taken = config(file, f"store: '{url}'")
        assert taken.store == url
        assert "cache" not in repr(taken).partition("cache=")[0]
        assert "canary" not in repr(taken)

    def test_its_password_may_come_from_the_environment(self, file: Path) -> None:
        taken = config(file, "store: redis://:${REDIS_PASSWORD}@cache", {"REDIS_PASSWORD": "canary"})
        assert taken.store == "redis://:canary@cache"

    def test_memory_if_nothing_is_said(self) -> None:
        assert from_environment({}).store == "memory"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("disk", "must be memory, or the URL of a Redis server such as redis://127.0.0.1:6379/0"),
            ("unix:///canary.sock", "must be memory, or the URL of a Redis server"),
            ("redis://:canary@", "must be redis://host:port/0, "),
            ("redis://cache:canary/0", "must be redis://host:port/0, "),
            ("redis://:can%23ary@cache/canary", "may end in nothing but the number of a database"),
            ("redis://cache/0?password=canary", "may end in nothing but the number of a database"),
            ("{url: canary}", "must be text (given: a mapping)"),
            ("5", "must be memory, or the URL"),
        ],
    )
    def test_wrong_urls_are_refused_unseen(self, file: Path, text: str, expected: str) -> None:
        problems = refusal(file, f"store: {text}")
        assert f"line 1, store: {expected}" in problems
        assert "canary" not in problems


class TestProviders:
    @pytest.mark.parametrize("kind", ["searxng", "tavily", "model"])
    def test_none_may_be_ourselves(self, file: Path, kind: str) -> None:
        entry = f"providers: [{{name: a, type: {kind}, base_url: 'http://localhost:8080', options: {{}}}}]"
        assert "providers[0].base_url: must be another server: port 8080" in refusal(file, entry)
        assert config(file, entry, port=8081).providers[0].base_url == "http://localhost:8080"

    def test_nor_by_an_option(self, file: Path) -> None:
        entry = "providers: [{name: a, type: model, options: {model: m, base_url: 'http://127.0.0.1:8080/v1'}}]"
        assert "providers[0].options.base_url: must be another server: port 8080" in refusal(file, entry)
        assert config(file, entry, port=8081).providers

    @pytest.mark.parametrize("base_url", ["http://localhost:8081", "https://localhost", "http://[::1", "nothing"])
    def test_others_may_be_anybody(self, file: Path, base_url: str) -> None:
        assert config(file, f"providers: [{{name: a, type: searxng, base_url: '{base_url}'}}]").providers

    def test_documents_may_be_cited_wherever_they_are(self, file: Path) -> None:
        entry = "providers: [{name: a, type: local, base_url: 'http://localhost:8080/docs', options: {path: .}}]"
        assert config(file, entry).providers
