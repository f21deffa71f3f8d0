"""A very small MCP server: JSON-RPC in lines on stdin and stdout, run as a script by a client that starts it. It has
two tools, `water`, and `view_image`, which Codex has one of its own of; each says what it was called with.
"""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = [
    {
        "name": name,
        "description": f"Does {name}.",
        "inputSchema": {"type": "object", "properties": {"plant": {"type": "string"}}},
    }
    for name in ("water", "view_image")
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "garden", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        said = f"{params['name']} was given {json.dumps(params.get('arguments'))}"
        return {"content": [{"type": "text", "text": said}]}
    return {} if method == "ping" else None


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or "method" not in asked:
            continue
        result = answer(asked["method"], asked.get("params") or {})
        unknown = {"error": {"code": -32601, "message": "no such method"}}
        reply = {"jsonrpc": "2.0", "id": asked["id"], **({"result": result} if result is not None else unknown)}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
