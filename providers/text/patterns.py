"""Regular expressions that are compiled when they are first used. Handed one as `re.compile` takes it; hands on what
can be used like a compiled one. To compile all of ours would take a sixth of the time to start, and a server uses few
of them. What every request uses is better compiled at once, with `re` itself.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, Generic, cast


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    return cast("re.Pattern[AnyStr]", Uncompiled(text, flags))


class Uncompiled(Generic[AnyStr]):
    """The first method that is asked for compiles it. From then on its methods are the compiled one's own."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self.pattern: AnyStr = text
        self.flags = flags
        self._compiled: re.Pattern[AnyStr] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself asks for, such as `copy`: of this object, as it is
            raise AttributeError(name)
        if self._compiled is None:
            self._compiled = re.compile(self.pattern, self.flags)
        value = getattr(self._compiled, name)
        setattr(self, name, value)
        return value
