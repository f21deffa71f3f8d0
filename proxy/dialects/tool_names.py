"""What the client's tools are called on the way to the model. Handed a name as the client wrote it; hands on one that
servers take, always the same for the same tool, so that histories and prompt caches agree.
"""

from __future__ import annotations

import re
from hashlib import sha256

LONGEST_NAME = 64  # that servers take; Anthropic's API allows 128, and names of MCP tools are long
_MARK = 8  # hexadecimal digits, by which shortened names differ where their beginnings do not
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def fitting(name: str) -> str:
    """The name with nothing in it that a server refuses."""
    return shortened(name) if len(name) > LONGEST_NAME else _NOT_IN_NAMES.sub("_", name)


def short_enough(name: str) -> str:
    """The name as it is, unless it is too long."""
    return shortened(name) if len(name) > LONGEST_NAME else name


def shortened(name: str, meaning: str = "") -> str:
    """`meaning` tells it from another tool of that name, where there may be one."""
    mark = sha256((meaning or name).encode("utf-8", "surrogatepass")).hexdigest()[:_MARK]
    return f"{_NOT_IN_NAMES.sub('_', name)[: LONGEST_NAME - _MARK - 1]}_{mark}"
