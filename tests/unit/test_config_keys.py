"""What an operator may say about keys, groups and prices: what it means, and every way in which it is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pydantic import BaseModel

from proxy.config.keys import Budget, ClientKey, KeyPolicy, digest
from tests.fakes.config import config, refusal

HASH = "sha256:" + digest("gw-secret")
PROVIDERS = "providers: [{name: web, type: jina}, {name: reader, type: direct}]\n"


class TestKeys:
    def test_a_key_is_known_by_its_hash_however_that_is_written(self) -> None:
        by_hash = [ClientKey(hash=HASH), ClientKey(hash=HASH.replace(HASH[7:], HASH[7:].upper()))]
        assert {key.digest for key in [*by_hash, ClientKey.model_validate("gw-secret")]} == {digest("gw-secret")}

    @pytest.mark.parametrize("written", ["gw-secret", "sha256:", "sha256:abc", "md5:" + "0" * 64, HASH + "0"])
    def test_a_hash_that_is_none(self, file: Path, written: str) -> None:
        problems = refusal(file, f"server:\n  keys:\n    - {{hash: '{written}'}}\n")
        assert "line 3, server.keys[0].hash: must be sha256: and 64 hexadecimal digits" in problems
        assert "secret" not in problems

    @pytest.mark.parametrize("said", ["{name: alice}", f"{{key: a, hash: '{HASH}'}}"])
    def test_either_a_key_or_its_hash(self, file: Path, said: str) -> None:
        assert "server.keys[0]: must have either key or hash" in refusal(file, f"server: {{keys: [{said}]}}")

    def test_the_same_key_twice(self, file: Path) -> None:
        keys = f"    - {{name: a, key: gw-secret}}\n    - b\n    - {{name: c, hash: '{HASH}'}}\n"
        problems = refusal(file, f"server:\n  keys:\n{keys}")
        assert problems.endswith("\n  line 5, server.keys[2]: must not be the same key as another one")
        assert "same key" in refusal(file, "server: {keys: [a]}", {"GROUNDWIRE_KEYS": "b,a"})

    @pytest.mark.parametrize(
        ("written", "ends"),
        [
            ("2027-12-31", datetime(2027, 12, 31, 23, 59, 59, 999_999, UTC)),
            ("9999-12-31", datetime.max.replace(tzinfo=UTC)),
            ("2027-12-31T18:00:00Z", datetime(2027, 12, 31, 18, tzinfo=UTC)),
            ("2027-12-31 18:00", datetime(2027, 12, 31, 18, tzinfo=UTC)),
            ("2027-12-31T18:00:00+02:00", datetime(2027, 12, 31, 18, tzinfo=timezone(timedelta(hours=2)))),
        ],
    )
    def test_when_a_key_ends(self, file: Path, written: str, ends: datetime) -> None:
        (key,) = config(file, f"server:\n  keys:\n    - key: a\n      expires: {written}\n").server.keys
        assert key.expires == ends

    @pytest.mark.parametrize("written", ["soon", "2027-13-01", "31.12.2027", "1767139200", "true", "[2027-12-31]"])
    def test_no_end(self, file: Path, written: str) -> None:
        problems = refusal(file, f"server:\n  keys:\n    - key: a\n      expires: {written}\n")
        assert "line 4, server.keys[0].expires: must be a day such as 2027-12-31" in problems

    def test_what_is_wrong_with_a_limit_is_said_by_its_name(self, file: Path) -> None:
        key = "{name: alice, key: gw-secret, requests_per_minute: many, budget: {day: {tokens: 0}}, sk-canary: 1}"
        problems = refusal(file, f"server:\n  keys:\n    - {key}\n")
        assert "line 3, server.keys[0].requests_per_minute: must be a whole number" in problems
        assert "line 3, server.keys[0].budget.day.tokens: must be greater than or equal to 1" in problems
        assert "line 3, server.keys[0].***: unknown key" in problems
        assert "secret" not in problems
        assert "canary" not in problems


class TestGroups:
    def test_what_a_key_says_itself_counts_first_field_by_field(self, file: Path) -> None:
        text = """
            server:
              keys:
                - {key: a, name: a, group: team, tokens_per_minute: 5, budget: {day: {tokens: 7}}}
                - {key: b, name: b, group: team}
                - {key: c, name: c, tokens_per_minute: 5}
              groups:
                team: {requests_per_minute: 1, tokens_per_minute: 2, budget: {day: {searches: 3}, month: {tokens: 4}}}
        """
        server = config(file, text).server
        own, shared, alone = (key.policy(server.groups) for key in server.keys)
        day = {"tokens": 7, "searches": 3}
        assert own == KeyPolicy(
            requests_per_minute=1,
            tokens_per_minute=5,
            budget=Budget.model_validate({"day": day, "month": {"tokens": 4}}),
        )
        assert shared.tokens_per_minute == 2
        assert (alone.requests_per_minute, alone.budget) == (None, Budget())

    def test_a_group_that_is_not_there(self, file: Path) -> None:
        text = "server:\n  keys:\n    - {key: a, group: teem}\n  groups:\n    team: {}\n"
        assert "line 3, server.keys[0].group: must be one of server.groups (team)" in refusal(file, text)

    @pytest.mark.parametrize("name", ["team", "search"])
    def test_an_unknown_key_in_a_group(self, file: Path, name: str) -> None:
        """Whatever the group is called: a name is not a part of the config's language."""
        text = f"server:\n  groups:\n    {name}: {{modles: [a]}}\n"
        problems = refusal(file, text)
        assert f"line 3, server.groups.{name}.modles: unknown key; did you mean models? valid here: models," in problems


class TestPrices:
    def test_prices_by_pattern_and_by_provider(self, file: Path) -> None:
        text = "prices: {models: {'gpt-*': {input: 2.5, output: 10}, default/m: {}}, providers: {web: {search: 1}}}"
        prices = config(file, PROVIDERS + text).prices
        assert list(prices.models) == ["gpt-*", "default/m"]
        assert (prices.models["gpt-*"].input, prices.models["gpt-*"].cached_input) == (2.5, None)

    @pytest.mark.parametrize(
        ("said", "problem"),
        [
            ("{providers: {wep: {search: 1}}}", "must be the name of a provider that can search (web)"),
            ("{providers: {reader: {search: 1}}}", "must be the name of a provider that can search (web)"),
            ("{providers: {web: {open: 1}}}", "unknown key; valid here: search, read"),
            ("{models: {m: {inptu: 1}}}", "unknown key; did you mean input? valid here: input, output, cached_input"),
            ("{models: {m: {input: -1}}}", "must be greater than or equal to 0"),
            ("{models: {m: {input: true}}}", "must be a number"),
            ("{models: {m: 1}}", "must be a mapping"),
        ],
    )
    def test_wrong_prices(self, file: Path, said: str, problem: str) -> None:
        assert problem in refusal(file, f"{PROVIDERS}prices: {said}")

    def test_a_model_that_nobody_serves(self, file: Path) -> None:
        upstreams = "upstreams: [{name: cloud, base_url: 'http://127.0.0.1:1/v1', models: ['gpt-*']}]\n"
        assert (
            "gpt-5" in config(file, upstreams + "prices: {models: {gpt-5: {}, 'o*': {}, cloud/o1: {}}}").prices.models
        )
        problems = refusal(file, upstreams + "prices: {models: {o1: {input: 1}}}")
        assert "prices.models.o1: must be a pattern, a model that an upstream here serves" in problems

    @pytest.mark.parametrize("span", ["day", "month"])
    def test_a_budget_of_money_needs_prices(self, file: Path, span: str) -> None:
        budget = f"{{budget: {{{span}: {{cost: 5}}}}}}"
        key = budget.replace("{budget", "{key: a, budget")
        problems = refusal(file, f"server: {{keys: [{key}], groups: {{team: {budget}}}}}")
        assert f"server.keys[0].budget.{span}.cost: needs `prices`" in problems
        assert f"server.groups.team.budget.{span}.cost: needs `prices`" in problems
        priced = config(file, f"server: {{keys: [{key}]}}\nprices: {{models: {{'*': {{input: 1}}}}}}")
        allowance: BaseModel = getattr(priced.server.keys[0].budget, span)
        assert allowance.model_dump()["cost"] == 5
