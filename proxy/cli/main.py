"""The command line: `serve`, `ask`, `search`, `open`, `index`, `check`, `key`, `usage`. Handed arguments and the
environment; reads the config, puts the house together and prints. Every mistake of the operator ends in one readable
message and exit code 2.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from providers.registry import ProviderConfigError

from ..config.secrets import secrets_of
from ..config.settings import Config, ConfigError, config_file, load
from ..watching.log import hide, set_up
from . import key

Command = Callable[[Config, argparse.Namespace], Coroutine[Any, Any, int]]


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        if given.command == "serve":
            return _serve(given)
        if given.command == "key":
            return key.new(given.name)
        from . import check as doctor
        from . import terminal
        from .index import index
        from .usage import usage

        config = load(given.config, os.environ)
        # What they print says it all; but `check` sends people to `search` and `open` to see where a provider fails.
        hide(secrets_of(config))
        set_up(config.log, groundwire="error", providers="critical" if given.command == "check" else "warning")
        others: dict[str, Command] = {"check": doctor.check, "usage": usage, "index": index}
        command: Command = others.get(given.command) or getattr(terminal, given.command)
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
    environ = _environment_to_serve(given)
    config = load(given.config, environ, host=given.host, port=given.port)
    hide(secrets_of(config))
    from ..serving.process import bind, serve  # the web server is only loaded where one is wanted

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
        hide((*secrets_of(config), *secrets_of(fresh)))
        return _on_port(fresh, port) if fresh.server.port == config.server.port else fresh

    return serve(_on_port(config, port), listener, started, reread)


def _on_port(config: Config, port: int) -> Config:
    """With the port that is really bound, where any was wanted."""
    return config.model_copy(update={"server": config.server.model_copy(update={"port": port})})


def _environment_to_serve(given: argparse.Namespace) -> Mapping[str, str]:
    """The environment. A container is open to others from the start, so without keys it makes one and prints it."""
    environ = dict(os.environ)
    wanted = environ.get("GROUNDWIRE_GENERATE_KEY") == "1"
    if wanted and not load(given.config, environ, host="127.0.0.1", port=given.port).server.keys:
        environ["GROUNDWIRE_KEYS"] = key.generated()
        print(f"No keys are configured. Clients need this one: {environ['GROUNDWIRE_KEYS']}", flush=True)
    return environ


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError("must be between 0 and 65535")
    return port


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError("must be a day such as 2027-12-31") from None


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
    search.add_argument("--provider", metavar="N", help="the provider to ask first, any that is configured")
    search.add_argument("--limit", type=int, metavar="K", help="how many results")
    search.add_argument("--json", action="store_true", help="print JSON")

    read = add("open", "Run one open_page, as the model would get it.")
    read.add_argument("url", nargs="+")
    read.add_argument("--json", action="store_true", help="print JSON; a list for several URLs")

    indexed = add("index", "Make the indexes of your folders now, and say what is in them and what is not.")
    indexed.add_argument("--provider", metavar="N", help="the one of this provider alone")
    indexed.add_argument("--json", action="store_true", help="print JSON, with every file that was skipped")

    made = add("key", "Make a key for a client: `groundwire key new`.")
    made.add_argument("action", choices=["new"])
    made.add_argument("--name", default="", metavar="N", help="what the log calls its owner")

    used = add("usage", "Print what each key used, per model and day, as the running server counted it.")
    used.add_argument("--url", metavar="U", help="the server to ask; the one that the config describes if left out")
    used.add_argument("--key", metavar="N", help="of this key alone, by its name")
    used.add_argument("--from", dest="first", type=_day, metavar="D", help="from this day on, such as 2027-12-01")
    used.add_argument("--to", dest="last", type=_day, metavar="D", help="up to this day")
    used.add_argument("--json", action="store_true", help="print JSON")

    check = add("check", "Try every provider and upstream, and name what is broken and how to mend it.")
    check.add_argument("--json", action="store_true", help="print JSON")
    return parser
