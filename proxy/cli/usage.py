"""`groundwire usage`: what each key used, per model and day. Handed a config and the parsed arguments; asks the running
server, which alone knows what is not written down yet, and prints a table or JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from providers.web.certificates import trusted

from ..config.settings import Config, ServerConfig
from ..watching.contents import printable
from .running import run_with_config

KEY_VARIABLE = "GROUNDWIRE_KEY"
_PATH = "/v1/groundwire/usage"
_COLUMNS = ("day", "key", "model", "requests", "failed", "input_tokens", "output_tokens", "searches", "pages", "cost")
_NAMES = 3  # of them, at the left
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 compared with, not bound
_LIMIT = 30.0  # seconds
_LONGEST = 60  # characters of a name: those of models are the clients' words


class _NoAnswer(Exception):
    """What the operator should do about it."""


def run(given: argparse.Namespace) -> int:
    return run_with_config(usage, given)


async def usage(config: Config, given: argparse.Namespace) -> int:
    wanted = {"key": given.key, "from": given.first, "to": given.last}
    try:
        answer = await _ask(
            _address(given.url, config.server), _key(config.server), wanted, trusted(config.network.ca_file)
        )
    except _NoAnswer as error:
        print(error, file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(answer, ensure_ascii=False, indent=2))
    else:
        print(_table(answer["data"]))
    if not answer["complete"]:
        print("Redis cannot be reached, so this is what one process counted since.", file=sys.stderr)
    return 0


async def _ask(url: str, key: str, wanted: Mapping[str, str | None], certificates: ssl.SSLContext) -> Any:
    headers = {"x-groundwire-key": key} if key else {}
    params = {name: value for name, value in wanted.items() if value is not None}
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=_LIMIT, verify=certificates) as client:
            answer = await client.get(url + _PATH, headers=headers, params=params)
    except (httpx.HTTPError, httpx.InvalidURL):
        text = f"No Groundwire answers at {url}. Start it with `groundwire serve`, or name another one with --url."
        raise _NoAnswer(text) from None
    if answer.status_code in (401, 403):
        text = f"{url} wants the key of an admin: put one with `admin: true` into the variable {KEY_VARIABLE}."
        raise _NoAnswer(text)
    try:
        said = answer.json() if answer.status_code == 200 else None
    except (ValueError, RecursionError):
        said = None
    rows = said.get("data") if isinstance(said, dict) and "complete" in said else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _NoAnswer(f"{url} answered with HTTP {answer.status_code}: is it a Groundwire of this version?")
    return said


def _address(url: str | None, server: ServerConfig) -> str:
    if url:
        return url.rstrip("/").removesuffix("/v1")
    host = _ANY_ADDRESS.get(server.host, server.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


def _key(server: ServerConfig) -> str:
    """The variable's, else an admin's that stands in the config as it is."""
    if said := os.environ.get(KEY_VARIABLE):
        return said
    admins = (key.key for key in server.keys if key.admin and key.key)
    return next((key.get_secret_value() for key in admins), "")


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "Nothing was used in this time."
    total = {column: sum(_number(row.get(column)) for row in rows) for column in _COLUMNS[_NAMES:]}
    names = {"day": "total", "key": "", "model": ""}
    lines = [[column.replace("_", " ") for column in _COLUMNS]]
    lines += [[_cell(row.get(column)) for column in _COLUMNS] for row in [*rows, {**names, **total}]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(line, widths) for line in lines)


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return printable(str(value), _LONGEST)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = [
        cell.ljust(width) if place < _NAMES else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(shown).rstrip()
