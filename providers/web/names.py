"""The addresses of a name, from the system's resolver. It blocks, for half a minute if a name server never answers; so
each lookup has a thread of its own, which nobody waits for at the end, and hostile names hold up nobody else's.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

_MOST = 128  # lookups under way, those included that nobody waits for any more

_places = threading.BoundedSemaphore(_MOST)


async def resolve_host(host: str, port: int) -> list[str]:
    """All addresses of a name, in the order the system prefers."""
    if not _places.acquire(blocking=False):
        raise socket.gaierror(socket.EAI_AGAIN, "too many names are being looked up")
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()
    thread = threading.Thread(target=_look_up, args=(host, port, loop, found), name="name lookup", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the system has no more threads to give
        _places.release()
        raise socket.gaierror(socket.EAI_AGAIN, "too many names are being looked up") from error
    return await found


def _look_up(host: str, port: int, loop: asyncio.AbstractEventLoop, found: asyncio.Future[list[str]]) -> None:
    addresses: list[str] | None = None
    error: OSError | None = None
    try:
        addresses = [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except UnicodeError:  # no name that a resolver could be asked for
        error = socket.gaierror(socket.EAI_NONAME, "no such name")
    except OSError as caught:
        error = caught
    finally:
        _places.release()
    with suppress(RuntimeError):  # the loop is gone, and who asked with it
        loop.call_soon_threadsafe(_tell, found, addresses, error)


def _tell(found: asyncio.Future[list[str]], addresses: list[str] | None, error: OSError | None) -> None:
    if found.done():  # nobody waits for it any more
        return
    if addresses is None:
        found.set_exception(error or OSError())
    else:
        found.set_result(addresses)
