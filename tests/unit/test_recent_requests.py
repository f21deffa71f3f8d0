"""Which requests are listed, and what who asks for one gets to see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from providers.base import ProviderCall
from proxy.store.requests import MemoryRequests
from proxy.values.request_records import KEPT_REQUESTS, KEPT_SECONDS
from proxy.watching.observer import Observer
from proxy.watching.recent_requests import RecentRequests
from proxy.watching.steps import ToolBegan


def ended(recent: RecentRequests, number: int = 1, caller: str = "", searched: bool = False, **said: Any) -> None:
    given = {"method": "POST", "path": "/v1/responses", **said}
    request = Observer([recent], request_id=f"req_{number}", **given)
    request.caller, request.status = caller, 200
    if searched:
        request.tell(ToolBegan("web_search", [{"query": "sky"}]))
        request.tell(ProviderCall("web", "search", "ok", False, 0.1, "sky"))
    request.end()


def listed(recent: RecentRequests, most: int = KEPT_REQUESTS) -> list[str]:
    rows, complete = asyncio.run(recent.rows(most))
    assert complete
    return [row["id"] for row in rows]


@pytest.mark.parametrize(
    ("method", "path", "shown"),
    [
        ("POST", "/v1/chat/completions", True),
        ("POST", "/v1/messages", True),
        ("POST", "/v1/embeddings", True),
        ("POST", "/v1/search", True),
        ("GET", "/search", True),
        ("POST", "/mcp", True),
        ("POST", "/compat/openwebui/search", True),
        ("GET", "/v1/models", False),
        ("GET", "/v1/models/m", False),
        ("GET", "/v1/%6dodels", False),
        ("GET", "/v1/groundwire/requests", False),
        ("GET", "/v1/groundwire/usage", False),
        ("GET", "/healthz", False),
        ("GET", "/readyz", False),
        ("GET", "/metrics", False),
        ("GET", "/", False),
        ("GET", "/page/app.js", False),
        ("GET", "/favicon.ico", False),
        ("OPTIONS", "/v1/responses", False),
        ("GET", "/v1/responses/resp_1", False),
        ("POST", "/v1/responses/resp_1/cancel", False),
    ],
)
def test_what_people_mean_by_requests(method: str, path: str, shown: bool) -> None:
    recent = RecentRequests(MemoryRequests(), contents=False, anonymous=lambda: True)
    ended(recent, method=method, path=path)
    assert bool(listed(recent)) is shown


def test_a_search_at_the_root_is_one() -> None:
    recent = RecentRequests(MemoryRequests(), contents=False, anonymous=lambda: True)
    ended(recent, method="GET", path="/", searched=True)
    assert listed(recent) == ["req_1"]


def test_who_is_turned_away_at_the_door_pushes_nobody_out() -> None:
    recent = RecentRequests(MemoryRequests(), contents=False, anonymous=lambda: False)
    ended(recent, 1, caller="alice")
    for number in range(2, 500):
        ended(recent, number)
    assert listed(recent) == ["req_1"]


def test_thousands_of_requests_keep_the_last_of_them() -> None:
    recent = RecentRequests(MemoryRequests(), contents=False, anonymous=lambda: True)
    for number in range(5000):
        ended(recent, number)
    assert listed(recent) == [f"req_{number}" for number in range(4999, 4999 - KEPT_REQUESTS, -1)]
    assert listed(recent, 3) == ["req_4999", "req_4998", "req_4997"]


def test_what_is_too_old_is_not_shown() -> None:
    now = 0.0
    recent = RecentRequests(MemoryRequests(lambda: now), contents=False, anonymous=lambda: True)
    ended(recent)
    assert listed(recent)
    now = 10**11 + KEPT_SECONDS
    assert listed(recent) == []


@pytest.mark.parametrize("contents", [False, True])
async def test_steps_of_one_with_contents_or_without(contents: bool) -> None:
    store = MemoryRequests()
    ended(RecentRequests(store, contents=True, anonymous=lambda: True), searched=True)
    recent = RecentRequests(store, contents=contents, anonymous=lambda: True)  # of another process, as it may be
    found, everywhere = await recent.find("req_1")
    assert found
    assert everywhere
    assert found["id"] == "req_1"
    assert [step["kind"] for step in found["steps"]] == ["tool_started", "provider_called"]
    assert ("sky" in str(found)) is contents
    for unknown in ("req_2", "", "req_\ud800", "x" * 9000, "req_1\n"):
        assert await recent.find(unknown) == (None, True)
