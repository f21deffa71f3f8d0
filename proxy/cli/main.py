"""The command line: `serve`, `ask`, `search`, `open`, `check`. Handed arguments and the environment; reads the config,
puts the house together and prints. Every mistake of the operator ends in one readable message and exit code 2.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from providers.registry import ProviderConfigError

from ..config.settings import Config, ConfigError, load
from ..watching.log import set_up

Command = Callable[[Config, argparse.Namespace], Coroutine[Any, Any, int]]


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        if given.command == "serve":
            return _serve(given)
        from . import check as doctor
        from . import terminal

        config = load(given.config, os.environ)
        # What they print says it all; but `check` sends people to `search` and `open` to see where a provider fails.
        set_up(config.log, groundwire="error", providers="critical" if given.command == "check" else "warning")
        command: Command = doctor.check if given.command == "check" else getattr(terminal, given.command)
        code = asyncio.run(command(config, given))
        sys.stdout.flush()  # here, where a closed pipe is still ours to handle
        return code
    except (ConfigError, ProviderConfigError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough, as in `groundwire search … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more as it ends
        return 0


def _serve(given: argparse.Namespace) -> int:
    config = _config_to_serve(given)
    set_up(config.log)
    from ..serving.process import bind, serve  # the web server is only loaded where one is wanted

    try:
        listener = bind(config)
    except OSError as error:
        where = f"{config.server.host}:{config.server.port}"
        print(f"Cannot listen on {where}: {error.strerror}. Choose another with --port or --host.", file=sys.stderr)
        return 2
    host, port = listener.getsockname()[:2]
    server = config.server.model_copy(update={"port": port})
    shown = f"[{host}]" if ":" in host else host

    def started() -> None:
        print(f"Groundwire is listening on http://{shown}:{port}", flush=True)
        print(f'Point any OpenAI client at it: OpenAI(base_url="http://{shown}:{port}/v1")', flush=True)

    serve(config.model_copy(update={"server": server}), listener, started)
    return 0


def _config_to_serve(given: argparse.Namespace) -> Config:
    """The config. A container is open to others from the start, so without keys it makes one and prints it."""
    environ = dict(os.environ)
    wanted = environ.get("GROUNDWIRE_GENERATE_KEY") == "1"
    if wanted and not load(given.config, environ, host="127.0.0.1", port=given.port).server.keys:
        environ["GROUNDWIRE_KEYS"] = "gw-" + secrets.token_urlsafe(24)
        print(f"No keys are configured. Clients need this one: {environ['GROUNDWIRE_KEYS']}", flush=True)
    return load(given.config, environ, host=given.host, port=given.port)


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError("must be between 0 and 65535")
    return port


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="groundwire", description="A proxy that gives any language model web search with citations."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--config", type=Path, metavar="F", help="the config file")
        return command

    serve = add("serve", "Run the proxy.")
    serve.add_argument("--host", metavar="H", help="the address to listen on")
    serve.add_argument("--port", type=_port, metavar="P", help="the port to listen on; 0 takes any that is free")

    ask = add("ask", "Ask a question and stream the cited answer.")
    ask.add_argument("question")
    ask.add_argument("--model", metavar="M", help="the model to ask; the upstream's first one if left out")

    search = add("search", "Run one web_search, as the model would get it.")
    search.add_argument("query")
    search.add_argument("--provider", metavar="N", help="the provider to ask first")
    search.add_argument("--limit", type=int, metavar="K", help="how many results")
    search.add_argument("--json", action="store_true", help="print JSON")

    read = add("open", "Run one open_page, as the model would get it.")
    read.add_argument("url", nargs="+")
    read.add_argument("--json", action="store_true", help="print JSON; a list for several URLs")

    check = add("check", "Try every provider and upstream, and name what is broken and how to mend it.")
    check.add_argument("--json", action="store_true", help="print JSON")
    return parser
