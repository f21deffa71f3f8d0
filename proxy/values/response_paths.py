"""Which requests are about one stored response. Handed a method, and a path as a route sees it, with nothing left to
decode; says whether what is asked there is ours to answer, costs no model anything and reaches no upstream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_START = "/v1/responses/"
_OF_ONE_RESPONSE = re.compile(r"/v1/responses/[^/]+(/[a-z_]+)?")  # any id: the routes answer for those of nothing too
# What stands behind the id, and how it is asked for. All else is forwarded, like every path that is unknown here.
_METHODS: Mapping[str, frozenset[str]] = {
    "": frozenset({"GET", "HEAD", "DELETE"}),
    "/input_items": frozenset({"GET", "HEAD"}),
    "/cancel": frozenset({"POST"}),
}


def is_about_stored_response(method: str, path: str) -> bool:
    if not path.startswith(_START):  # nearly all that comes
        return False
    read = _OF_ONE_RESPONSE.fullmatch(path)
    return read is not None and method in _METHODS.get(read[1] or "", ())
