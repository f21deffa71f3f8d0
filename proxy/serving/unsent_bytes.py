"""How much of what was written to a client it has not taken. Handed the client's transport; hands on a number of bytes:
those in our buffer and those in the kernel's.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from contextlib import suppress


def bytes_unsent(transport: asyncio.Transport) -> int:
    waiting = transport.get_write_buffer_size()
    with suppress(OSError, ValueError):
        answer = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        waiting += struct.unpack("i", answer)[0]
    return waiting
