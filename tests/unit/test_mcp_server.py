"""What MCP's clients hear where something of ours is broken or refuses them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp import MCPError
from mcp_types import CallToolRequestParams

from proxy.callers.caller import Caller
from proxy.context import RequestContext, attach
from proxy.dialects.mcp import McpDialect
from proxy.house import House
from proxy.serving.mcp_server import McpServer
from proxy.values.errors import busy
from proxy.watching.observer import Observer

EMPTY_HOUSE = cast(House, SimpleNamespace(config=SimpleNamespace(server=SimpleNamespace(max_body=1000))))


async def test_what_breaks_inside_is_told_to_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The SDK sends the text of whatever was raised, and that may hold a key."""
    observer = Observer((), request_id="req_1", method="POST", path="/mcp", dialect="mcp")
    scope: dict[str, Any] = {}
    attach(scope, RequestContext("req_1", McpDialect(), 0.0, observer, Caller(), {}, None))
    asked = SimpleNamespace(request=SimpleNamespace(scope=scope))
    with pytest.raises(MCPError) as caught:
        await McpServer(EMPTY_HOUSE)._call(asked, CallToolRequestParams(name="web_search", arguments={"query": "sky"}))
    assert "attribute" not in str(caught.value)
    assert "log" in str(caught.value)
    assert "req_1" in caplog.text
    assert "AttributeError" in caplog.text


def test_a_refusal_is_an_error_of_the_protocol() -> None:
    said = json.loads(McpDialect().error(busy(429, "Wait.", code="too_many_requests", wait=1)))
    assert said == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32000, "message": "Wait.", "data": {"code": "too_many_requests"}},
    }
