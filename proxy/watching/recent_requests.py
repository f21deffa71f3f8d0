"""The last requests, for operators. A listener that hands each request that has ended to the store as a record, which
costs next to nothing; asked by the route of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..values.request_records import RequestStore
from .counted import is_listed
from .observer import Listener, Observer
from .recording import Recording
from .step_fields import CONTENTS

Row = dict[str, Any]

_ID = re.compile(r"\w{1,100}", re.ASCII)


class RecentRequests(Listener):
    """`contents`: may what people wrote be kept and shown? `anonymous`: is anybody let in without a key?"""

    def __init__(self, store: RequestStore, *, contents: bool, anonymous: Callable[[], bool]) -> None:
        self._store = store
        self._anonymous = anonymous
        self.contents = contents

    def ended(self, request: Observer) -> None:
        if is_listed(request, self._anonymous):
            self._store.note(Recording(request, self.contents))

    async def rows(self, most: int) -> tuple[list[Row], bool]:
        """Those that ended last come first; and whether those of all processes are among them."""
        return await self._store.rows(most)

    async def find(self, request_id: str) -> tuple[Row | None, bool]:
        """One with its steps. Another process may have kept what this one may not show."""
        if not _ID.fullmatch(request_id):  # whatever it is, no store is asked for it
            return None, True
        found, everywhere = await self._store.find(request_id)
        if found and not self.contents:
            steps = [{name: value for name, value in step.items() if name not in CONTENTS} for step in found["steps"]]
            found = {**found, "steps": steps}
        return found, everywhere
