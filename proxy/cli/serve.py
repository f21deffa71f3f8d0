"""`groundwire serve`: the proxy. Handed the parsed arguments; reads the config, binds the listener, says where it is,
and serves until it is told to stop.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ..config.contradictions import weak_keys
from ..config.secrets import secrets_of
from ..config.settings import Config, ConfigError, config_file, load
from ..serving.process import bind, serve
from ..watching.audit_file import open_audit
from ..watching.log import hide
from .kept_key import kept_key
from .running import mistakes_in_words


def run(given: argparse.Namespace) -> int:
    with mistakes_in_words():
        return _serve(given)


def _serve(given: argparse.Namespace) -> int:
    environ = _environment_to_serve(given)
    config = load(given.config, environ, host=given.host, port=given.port)
    hide(secrets_of(config))
    if config.audit.file:
        open_audit(config.audit).close()  # now, where it can still be said to who started it
    try:
        listener = bind(config)
    except OSError as error:
        where = f"{config.server.host}:{config.server.port}"
        print(f"Cannot listen on {where}: {error.strerror}. Choose another with --port or --host.", file=sys.stderr)
        return 2
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host

    def started() -> None:
        print(f"Groundwire is listening on http://{shown}:{port}", flush=True)
        print(f'Point any OpenAI client at it: OpenAI(base_url="http://{shown}:{port}/v1")', flush=True)

    def reread() -> Config | None:
        if config_file(given.config, environ) is None:
            return None
        fresh = load(given.config, environ, host=given.host, port=given.port)
        _check_keys(fresh, config.server.host, str(config_file(given.config, environ)))
        hide((*secrets_of(config), *secrets_of(fresh)))
        return _on_port(fresh, port) if fresh.server.port == config.server.port else fresh

    return serve(_on_port(config, port), listener, started, reread)


def _check_keys(fresh: Config, host: str, origin: str) -> None:
    """Keys that are read again are for the address that is bound, whatever the file says of it by now."""
    server = fresh.server.model_copy(update={"host": host})
    if problems := [f"server.keys[{path[2]}]: {sentence}" for path, sentence in weak_keys(server)]:
        raise ConfigError(origin, problems)


def _on_port(config: Config, port: int) -> Config:
    """With the port that is really bound, where any was wanted."""
    return config.model_copy(update={"server": config.server.model_copy(update={"port": port})})


def _environment_to_serve(given: argparse.Namespace) -> Mapping[str, str]:
    """The environment. A container is open to others from the start, so without keys it makes one. It is printed once:
    the log of a container may go anywhere."""
    environ = dict(os.environ)
    named = environ.get("GROUNDWIRE_KEY_FILE")
    if named and not load(given.config, environ, host="127.0.0.1", port=given.port).server.keys:
        file = Path(named)
        environ["GROUNDWIRE_KEYS"], is_new = kept_key(file)
        if is_new:
            print(f"No keys are configured. Clients need this one: {environ['GROUNDWIRE_KEYS']}", flush=True)
        print(f"The client key is kept in {file.absolute()}", flush=True)
    return environ
