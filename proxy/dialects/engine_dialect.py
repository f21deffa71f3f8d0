"""What clients of search engines read where they are refused: one body for all of them, whoever invented their API.
Handed a failure; hands on that body. Pure.
"""

from __future__ import annotations

import orjson

from ..values.dialect import REQUEST_ID, Decoded
from ..values.errors import refuse
from ..values.events import Failed
from ..values.request import CitationStyle
from ..values.sse import PING


class EngineDialect:
    """No model answers here: it says what went wrong, where Tavily's clients and where SearXNG's look for it."""

    name = "engine"
    citation_style: CitationStyle = "none"
    ping = PING
    id_headers = (REQUEST_ID,)

    async def decode(self, raw: bytes, owner: str, former: str = "") -> Decoded:
        raise refuse(404, "No model answers here.", code="not_found")

    def status(self, failed: Failed) -> int:
        return failed.status

    def error(self, failed: Failed) -> bytes:
        text = failed.error["message"]
        return orjson.dumps({"detail": {"error": text}, "error": text, "code": failed.error.get("code")})

    def error_event(self, failed: Failed) -> bytes:
        return self.error(failed)
