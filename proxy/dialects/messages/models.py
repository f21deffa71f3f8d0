"""Which model answers a Messages request. Handed the name that a client sent; hands on one that an upstream serves: the
name itself, or the one that this caller used last, because some programs ask for fixed names of their vendor's beside
the one that their user chose. Where there is neither, the refusal shows what to write.
"""

from __future__ import annotations

from ...answering.preparation import ONLINE
from ...store.store import Store
from ...upstreams.directory import UpstreamDirectory
from ...values.errors import refuse

_KEPT = 30 * 86_400.0  # seconds
_KIND, _KEY = "messages_model", "last"
_VENDORS_OWN = "claude-"


class LastModels:
    def __init__(self, upstreams: UpstreamDirectory, store: Store) -> None:
        self._upstreams = upstreams
        self._store = store

    async def chosen(self, model: str, owner: str) -> str:
        is_known = self._upstreams.knows(model) or self._upstreams.knows(model.removesuffix(ONLINE))
        # Only of these names it is likely that a program asks for them whatever there is.
        if is_known and (not model.startswith(_VENDORS_OWN) or await self._upstreams.has(model)):
            await self._store.put(_KIND, owner, _KEY, model.encode("utf-8", "replace"), _KEPT)
            return model
        last = await self._store.get(_KIND, owner, _KEY)
        if last is not None and self._upstreams.knows(last.decode().removesuffix(ONLINE)):
            return last.decode()
        if is_known:
            return model
        alias = f"{_VENDORS_OWN}*" if model.startswith(_VENDORS_OWN) else model
        text = (
            f"The model '{model}' does not exist: no upstream here serves it. To have one of yours answer instead, "
            f'write `aliases: {{"{alias}": your-model}}` in config.yaml.'
        )
        raise refuse(404, text, param="model", code="model_not_found")
