"""What MCP's clients read where the edge refuses them, before the SDK's server is asked. Handed a failure; hands on an
error of JSON-RPC: such a client shows what that says, and of every other body only that there was an error. Pure.
"""

from __future__ import annotations

import orjson

from ..values.events import Failed
from .engine_dialect import EngineDialect

_REFUSED = -32000  # what JSON-RPC leaves to servers; the status says more


class McpDialect(EngineDialect):
    name = "mcp"

    def error(self, failed: Failed) -> bytes:
        said = {"code": _REFUSED, "message": failed.error["message"], "data": {"code": failed.error.get("code")}}
        return orjson.dumps({"jsonrpc": "2.0", "id": None, "error": said})
