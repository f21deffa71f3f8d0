"""`groundwire key new`: makes a key for a client. Handed the name of its owner; prints the key, which nobody keeps, and
the line for the config, which holds its hash alone.
"""

from __future__ import annotations

import argparse
import json
import secrets
import string

from pydantic import ValidationError

from ..config.file import ConfigError
from ..config.keys import HASHED, ClientKey, digest
from .running import mistakes_in_words

_LETTERS = string.ascii_letters + string.digits  # marked as one word by a double click
_LENGTH = 43  # letters: as many ways as 256 bits


def run(given: argparse.Namespace) -> int:
    with mistakes_in_words():
        return new(given.name)


def generated() -> str:
    return "gw-" + "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def new(name: str) -> int:
    made = generated()
    said = {"name": name} if name else {}
    entry = {**said, "hash": HASHED + digest(made)}
    try:
        ClientKey.model_validate(entry)
    except ValidationError:
        raise ConfigError("--name", ["must be one line of at most 64 characters"]) from None
    written = ", ".join(f"{field}: {json.dumps(value, ensure_ascii=False)}" for field, value in entry.items())
    print(f"key:  {made}\nhash: {entry['hash']}\n")
    print(
        "Give the key to the client: it is not kept anywhere. Add this line under `server: keys:` in the config file,"
    )
    print("then restart Groundwire or send it SIGHUP:\n")
    print(f"    - {{{written}}}")
    return 0
