"""Which model answers a Messages request. Handed the name that a client sent; hands on one that an upstream serves: the
name itself, or the one that this caller used last, because some programs ask for fixed names of their vendor's beside
the one that their user chose. Where there is neither, the refusal shows what to write.
"""

from __future__ import annotations

from ...answering.preparation import ONLINE
from ...store.store import Store, get_of_either
from ...upstreams.directory import UpstreamDirectory
from ...values.errors import quoted, refuse

_KEPT = 30 * 86_400.0  # seconds
_KIND, _KEY = "messages_model", "last"
_VENDORS_OWN = "claude-"
_LONGEST_SHOWN = 100  # characters of a name, in a refusal


class LastModels:
    def __init__(self, upstreams: UpstreamDirectory, store: Store) -> None:
        self._upstreams = upstreams
        self._store = store

    async def chosen(self, model: str, owner: str, former: str = "") -> tuple[str, bool]:
        """Who answers; and whether its user chose it, so that it stands in for others from now on."""
        is_known = self._upstreams.knows(model) or self._upstreams.knows(model.removesuffix(ONLINE))
        # Only of these names it is likely that a program asks for them whatever there is.
        if is_known and (not model.startswith(_VENDORS_OWN) or await self._upstreams.has(model)):
            return model, True
        last = (await get_of_either(self._store, _KIND, owner, former, [_KEY])).get(_KEY)
        if last is not None and self._upstreams.knows(last.decode().removesuffix(ONLINE)):
            return last.decode(), False
        if is_known:
            return model, False
        alias = f"{_VENDORS_OWN}*" if model.startswith(_VENDORS_OWN) else model[:_LONGEST_SHOWN]
        text = (
            f"The model {quoted(model)} does not exist: no upstream here serves it. To have one of yours answer "
            f'instead, write `aliases: {{"{alias}": your-model}}` in config.yaml.'
        )
        raise refuse(404, text, param="model", code="model_not_found")

    async def use(self, model: str, owner: str) -> None:
        """It was chosen, and its caller may use it."""
        await self._store.put(_KIND, owner, _KEY, model.encode("utf-8", "replace"), _KEPT)
