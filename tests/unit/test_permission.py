"""What a key's policy means, without a server: whom a chain may ask, which names count, what body may leave."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.base import Page, SearchQuery, SearchResult
from providers.chain import Providers, ReadChain, SearchChain
from providers.errors import ProviderError
from providers.registry import NamedProvider
from proxy.callers.caller import NOBODY, Caller
from proxy.callers.permission import check_model, may_use, plain_body
from proxy.config.keys import KeyPolicy
from proxy.values.errors import RequestError
from tests.fakes.config import config, refusal
from tools.options import EVERYTHING, Permission


def caller(**policy: Any) -> Caller:
    return Caller("alice", policy=KeyPolicy.model_validate(policy))


# Who may be asked


class Engine:
    async def search(self, query: SearchQuery) -> list[SearchResult]:
        return [SearchResult("A", "https://example.org/a", "text")]

    async def read(self, url: str) -> Page:
        return Page(url, "A", "text")


class Dialler(Engine):
    uses_open_web = True


class Hosted(Dialler):
    hosted = True


MEMBERS = [
    NamedProvider("public", "test", Engine()),
    NamedProvider("hosted", "test", Hosted()),
    NamedProvider("dialler", "test", Dialler()),
    NamedProvider("own", "test", Engine(), private=True),
]


@pytest.mark.parametrize(
    ("only", "searching", "reading"),
    [
        (None, "public", "public"),
        ("private", "own", "dialler"),
        ({"own"}, "own", "own"),
        ({"own", "hosted"}, "hosted", "hosted"),
        ({"else"}, "", ""),
        (set(), "", ""),
    ],
)
async def test_who_is_asked(only: Providers, searching: str, reading: str) -> None:
    search, read = SearchChain(MEMBERS), ReadChain(MEMBERS)
    assert (search.serves(only), read.serves(only)) == (bool(searching), bool(reading))
    if searching:
        assert (await search.search(SearchQuery("q"), only=only)).provider == searching
        assert (await read.read("https://example.org/a", only=only)).provider == reading
    else:
        with pytest.raises(ProviderError):
            await search.search(SearchQuery("q"), only=only)
        with pytest.raises(ProviderError):
            await read.read("https://example.org/a", only=only)


async def test_a_provider_that_may_not_be_asked_is_not_even_named() -> None:
    with pytest.raises(ProviderError, match=r"valid names: own\.$"):
        await SearchChain(MEMBERS).search(SearchQuery("q"), "public", only="private")


def test_what_of_the_tools_a_caller_may_use() -> None:
    assert NOBODY.policy.search.permission is EVERYTHING
    assert caller(search={"mode": "off"}).policy.search.permission is EVERYTHING, "that is asked before"
    assert caller(search={"providers": "private"}).policy.search.permission == Permission("private")
    narrow = {"providers": ["a"], "allowed_domains": ["A.org"], "blocked_domains": ["b.a.org"]}
    assert caller(search=narrow).policy.search.permission == Permission(frozenset({"a"}), ("a.org",), ("b.a.org",))


def test_unknown_providers_are_config_errors_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    text = """server:
  keys:
    - {key: one, name: alice, search: {providers: [ddg]}}
    - key: two
      search:
        providers:
          - ddg
          - dgg
  groups:
    team: {search: {providers: [%s]}}
providers:
  - {name: ddg, type: duckduckgo}
"""
    problems = refusal(file, text % "reader")
    of_key, of_group = problems.splitlines()[1:]
    assert re.search(r"line 8, server\.keys\[1\].*: must be the name of a provider \(ddg\)", of_key)
    assert "line 10, server.groups.team.search.providers[0]: must be the name of a provider (ddg)" in of_group
    assert config(file, text.replace("- dgg", "- ddg") % "ddg").server.groups["team"].search.providers == ["ddg"]


# Models


def test_names_of_models() -> None:
    some = caller(models=["m", "vendor/*"])
    assert [may_use(some, name) for name in ("m", "vendor/x", "M", "m2", "", "vendor")] == [True, True, *[False] * 4]
    assert may_use(NOBODY, "anything")
    assert not may_use(caller(models=[]), "m")
    check_model(some, "m:online", "m")
    with pytest.raises(RequestError, match="does not exist here, or this key may not use it"):
        check_model(some, "n:online", "n")
    with pytest.raises(RequestError, match="name one of them"):
        check_model(some, "")


KEYS = st.sampled_from(["model", "Model", "MODEL", "modEl", "model ", "mode\u2113", "other"])
VALUES = st.sampled_from(["m", "n", 1, None, {"model": "n"}])


def as_others_read(body: bytes) -> set[Any]:
    """Every model that some parser could find: the first or the last of equal keys, in whatever case."""
    pairs: list[tuple[str, Any]] = json.loads(body, object_pairs_hook=lambda found: found)
    return {repr(value) for name, value in pairs if name.casefold() == "model"}


@given(st.lists(st.tuples(KEYS, VALUES), max_size=5))
def test_every_reader_finds_the_one_model_that_was_checked(pairs: list[tuple[str, Any]]) -> None:
    body = ("{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs) + "}").encode()
    checked = orjson.loads(body).get("model")
    try:
        left = plain_body(caller(models=["m"]), body)
    except RequestError:
        assert any(name != "model" and name.casefold() == "model" for name, _ in pairs)
        return
    assert as_others_read(left) <= {repr([("model", "n")] if checked == {"model": "n"} else checked)}
    assert orjson.loads(left) == orjson.loads(body)


def test_a_key_with_all_models_sends_what_it_likes() -> None:
    body = b'{ "model":"a", "Model":"b", "model":"c" } trailing'
    assert plain_body(NOBODY, body) is body


@pytest.mark.parametrize("body", [b"{", b'{"a":' * 300 + b"1" + b"}" * 300])
def test_a_body_that_cannot_be_read_or_written_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        plain_body(caller(models=["m"]), body)
