"""What the commands that use the config share: reading it, the log that is right for a terminal, a house that is closed
again. Handed a command as a coroutine function and the parsed arguments; hands back its exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from providers.registry import ProviderConfigError

from ..config.secrets import secrets_of
from ..config.settings import Config, ConfigError, load
from ..house import House
from ..watching.log import hide, set_up
from .interruption import ended_at_once, ended_in_time


class Mistake(Exception):
    """What was typed cannot be done; the text says why, and what can."""


ConfiguredCommand = Callable[[Config, argparse.Namespace], Coroutine[Any, Any, int]]


def run_with_config(command: ConfiguredCommand, given: argparse.Namespace, *, providers: str = "warning") -> int:
    """What commands print says it all, so the log holds its peace; of `providers` from this level on."""
    with mistakes_in_words():
        return asyncio.run(ended_in_time(command(configured(given, providers=providers), given)))


def configured(given: argparse.Namespace, *, providers: str = "warning") -> Config:
    with ended_at_once():
        config = load(given.config, os.environ)
        hide(secrets_of(config))
        set_up(config.log, groundwire="error", providers=providers)
        return config


@contextmanager
def mistakes_in_words() -> Iterator[None]:
    """What is wrong with the arguments or the config is said as it is, and the program ends."""
    try:
        yield
    except (Mistake, ConfigError, ProviderConfigError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


@asynccontextmanager
async def opened(config: Config) -> AsyncIterator[House]:
    house = House(config)
    try:
        yield house
    finally:
        await house.aclose()


def none_configured(role: str) -> int:
    print(f"No provider that can {role} is configured: see `tools.{role}` in the config file.", file=sys.stderr)
    return 2
