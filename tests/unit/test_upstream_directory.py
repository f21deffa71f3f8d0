"""Which upstream serves a model: found once for each name, and never with what another caller brought."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.callers.caller import Caller
from proxy.config.upstreams import UpstreamConfig
from proxy.upstreams import directory
from proxy.upstreams.client import UpstreamClient
from proxy.upstreams.demo import DemoTransport
from proxy.upstreams.directory import UpstreamDirectory
from proxy.upstreams.fallback import FallbackPlan
from proxy.upstreams.retry import RetryBudget
from proxy.values.errors import RequestError
from proxy.watching.observer import Observer

ALICE = Caller("alice", upstream_key="Bearer alice")
BOB = Caller("bob", upstream_key="Bearer bob")


def directory_of(*entries: dict[str, Any], **aliases: str) -> UpstreamDirectory:
    configs = [UpstreamConfig.model_validate({"type": "demo", **entry}) for entry in entries]
    clients = [UpstreamClient(entry, DemoTransport(entry.name)) for entry in configs]
    return UpstreamDirectory(clients, aliases, RetryBudget(10))


def plan(upstreams: UpstreamDirectory, model: str, caller: Caller = ALICE, **headers: str) -> FallbackPlan:
    return upstreams.plan(model, headers, caller, Observer([]))


def shown(upstreams: UpstreamDirectory, model: str) -> tuple[str, str, str]:
    first = plan(upstreams, model).current
    return first.upstream.name, first.model, first.settings.tool_calls


def test_the_same_is_found_each_time() -> None:
    overrides = [{"match": "*-small", "tool_calls": "none"}]
    upstreams = directory_of({"name": "a", "models": ["a-*"], "overrides": overrides}, {"name": "b"}, quick="a/a-small")
    for _ in range(2):
        assert shown(upstreams, "a-large") == ("a", "a-large", "auto")
        assert shown(upstreams, "a-small") == ("a", "a-small", "none")
        assert shown(upstreams, "quick") == ("a", "a-small", "none")
        assert shown(upstreams, "other") == ("b", "other", "auto")


def test_each_caller_s_key_goes_with_its_own_request() -> None:
    upstreams = directory_of({"name": "a", "api_key": "passthrough", "fallback": ["b/c"]}, {"name": "b"})
    for caller in (ALICE, BOB, ALICE):
        asked = plan(upstreams, "m", caller, accept="*/*")
        assert asked.current.headers == {"accept": "*/*", "authorization": caller.upstream_key}
        [other] = asked._others
        assert (other.upstream.name, other.model, other.headers) == ("b", "c", {"accept": "*/*"})
    with pytest.raises(RequestError, match="takes your own key"):
        plan(upstreams, "m", Caller("carol"))


def test_names_that_clients_make_up_are_not_kept_for_ever() -> None:
    upstreams = directory_of({"name": "a", "models": ["a-*"]})
    for number in range(3 * directory._MOST_ROUTES):
        assert shown(upstreams, f"a-{number}")[1] == f"a-{number}"
        assert upstreams._route.cache_info().currsize <= directory._MOST_ROUTES
    for model in ("b", "a-" + "x" * 1000):
        known = upstreams._route.cache_info().currsize
        with pytest.raises(RequestError, match="model"):
            plan(upstreams, model)
        assert upstreams._route.cache_info().currsize == known
