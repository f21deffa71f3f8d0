"""A path, the methods that are served there and the application behind it. Handed the path of a request; says whether
it is meant, and what stands in its place for each name in braces: `{id}` is one segment, `{rest:path}` all that comes.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.types import ASGIApp

_NAMED = re.compile(r"\{(\w+)(:path)?\}")


class Endpoint:
    """Without `methods` it serves them all. Who serves GET serves HEAD too."""

    __slots__ = ("_pattern", "app", "methods", "path")

    def __init__(self, path: str, app: ASGIApp, methods: Collection[str] = ()) -> None:
        self.path = path
        self.app = app
        self.methods = frozenset(methods) | ({"HEAD"} if "GET" in methods else set())
        self._pattern = re.compile(_expression(path))

    def serves(self, method: str) -> bool:
        return not self.methods or method in self.methods

    def named_in(self, path: str) -> dict[str, str] | None:
        """What this path holds for each name; None: it is another one's."""
        read = self._pattern.fullmatch(path)
        return None if read is None else read.groupdict()


def _expression(path: str) -> str:
    texts, end = [], 0
    for named in _NAMED.finditer(path):
        texts += [re.escape(path[end : named.start()]), f"(?P<{named[1]}>{'.*' if named[2] else '[^/]+'})"]
        end = named.end()
    return "".join([*texts, re.escape(path[end:])])
