"""Reads the config again when a signal asks for it. Handed what reads it and who is told; client keys, their groups and
limits, and prices change for the requests to come, and the log names what else differs and waits for a restart. A
config that is not valid changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator

from pydantic import BaseModel

from ..config.keys import ClientKey
from ..config.settings import Config, ConfigError, ServerConfig

log = logging.getLogger("groundwire")

Reread = Callable[[], Config | None]

_LIVE = frozenset({"server.keys", "server.groups", "prices.models", "prices.providers"})


def is_terminal_closed() -> bool:
    """Asked by those that were started in one: then that is what SIGHUP says."""
    return not os.isatty(0)


def taken(running: Config, given: Config) -> Config | None:
    """What counts from now on: the running config with the parts of the given one that can change. None where nothing
    of it may be taken."""
    if running.server.keys and not given.server.keys:
        return None
    server = running.server.model_copy(update={"keys": given.server.keys, "groups": given.server.groups})
    return running.model_copy(update={"server": server, "prices": given.prices})


class Reloading:
    """`reread` gives the config as it would be at a start, None if there is no file; `change` is handed a config whose
    keys, groups and prices count from now on."""

    def __init__(self, running: Config, reread: Reread, change: Callable[[Config], None]) -> None:
        self._running = running
        self._reread = reread
        self._change = change
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def ask(self) -> None:
        """Reads it now, or once more when the reading that is under way has ended."""
        if self._task is not None and not self._task.done():
            self._again = True
        else:
            self._task = asyncio.create_task(self._reload())

    async def _reload(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            try:
                given = await asyncio.to_thread(self._reread)  # a large file would hold up everybody
            except ConfigError as error:
                log.error("SIGHUP: nothing is changed. %s", error.line)
                continue
            if given is None:
                log.warning("SIGHUP: there is no config file to read again; the environment is read at the start alone")
            else:
                self._take(given)

    def _take(self, given: Config) -> None:
        after = taken(self._running, given)
        if after is None:
            # The listener stays where it is, perhaps on every address, whatever the file says of it now.
            log.error("SIGHUP: nothing is changed. The file has no client keys any more; to serve without, restart.")
            return
        names = list(_differences(self._running, given))
        changed = [what for name in names if name in _LIVE for what in self._in_words(name, given)]
        waiting = [name for name in names if name not in _LIVE]
        self._change(given)
        self._running = after
        text = "SIGHUP: the config was read again. Changed: %s. Needs a restart: %s."
        log.warning(text, ", ".join(changed) or "nothing", ", ".join(waiting) or "nothing")

    def _in_words(self, name: str, given: Config) -> Iterator[str]:
        if name != "server.keys":
            yield name
            return
        before, after = _by_name(self._running.server), _by_name(given.server)
        for key in before | after:
            if before.get(key) != after.get(key):
                yield f"key {key} {'added' if key not in before else 'changed' if key in after else 'removed'}"


def _differences(before: Config, after: Config) -> Iterator[str]:
    """The keys that do not say the same, as the operator writes them; of lists as a whole."""
    for section in Config.model_fields:
        old, new = getattr(before, section), getattr(after, section)
        if isinstance(old, BaseModel):
            names = type(old).model_fields
            yield from (f"{section}.{name}" for name in names if getattr(old, name) != getattr(new, name))
        elif old != new:
            yield section


def _by_name(server: ServerConfig) -> dict[str, list[ClientKey]]:
    """A key that replaces another has the same name."""
    found: dict[str, list[ClientKey]] = {}
    for name, key in zip(server.key_names, server.keys, strict=True):
        found.setdefault(name, []).append(key)
    return found
