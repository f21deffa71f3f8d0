"""What can be typed: every command with its flags, its help and an example. Handed nothing; hands on the parser.

Nothing of Groundwire is imported here, so that `--help`, `--version` and shell completion cost little more than Python
itself: see tests/unit/test_command_line.py. What a command does stands in the file of its name beside this one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from .. import __version__

DESCRIPTION = "A proxy that gives any language model web search with citations."
ADVICE = """\
`groundwire COMMAND --help` shows the flags of a command and an example.
The config is the file that --config names, else the variable GROUNDWIRE_CONFIG, else ./config.yaml. Without any of them
it comes from the environment.
"""

Add = Callable[..., argparse.ArgumentParser]  # handed a command's name, what it does and examples of it


def parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter  # it leaves the lines of examples as they are
    whole = argparse.ArgumentParser(prog="groundwire", description=DESCRIPTION, epilog=ADVICE, formatter_class=raw)
    whole.add_argument(
        "--version", action="version", version=f"groundwire {__version__}", help="print the version and end"
    )
    commands = whole.add_subparsers(dest="command", required=True, metavar="command")

    def add(name: str, about: str, *examples: str) -> argparse.ArgumentParser:
        lines = ["example:" if len(examples) == 1 else "examples:", *(f"  {example}" for example in examples)]
        command = commands.add_parser(name, help=about, description=about, epilog="\n".join(lines), formatter_class=raw)
        command.add_argument("--config", type=_path, metavar="F", help="the config file")
        return command

    for declare in (_init, _serve, _ask, _chat, _search, _open, _index, _check, _key, _usage, _replay, _completion):
        declare(add)
    return whole


def commands_of(whole: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by its name."""
    (found,) = (action.choices for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found)


def _init(add: Add) -> None:
    command = add(
        "init",
        "Write a config file that works here: finds model servers and keys, tries search engines, asks the rest.",
        "groundwire init",
        "groundwire init --yes --folder ~/notes --output notes.yaml",
    )
    command.add_argument("--upstream", metavar="URL", help="the model's server; else one that is found")
    command.add_argument("--model", metavar="M", help="serve this model alone; else all that the server has")
    command.add_argument(
        "--provider", action="append", metavar="T", help="a search engine to use, such as duckduckgo; may be repeated"
    )
    command.add_argument("--folder", metavar="PATH", help="a folder of documents to search")
    command.add_argument(
        "--public-fallback",
        action="store_true",
        default=None,
        help="search the web for what the documents of --folder do not hold",
    )
    command.add_argument(
        "--key", dest="keys", action="store_true", default=None, help="make a key that clients need, and print it"
    )
    command.add_argument("--no-keys", dest="keys", action="store_false", help="let every program on this machine ask")
    command.add_argument("--yes", action="store_true", help="ask nothing: take what is found")
    command.add_argument("--offline", action="store_true", help="look for no server and try no search engine")
    command.add_argument("--output", metavar="F", help="the file to write, config.yaml if left out; - is stdout")
    command.add_argument("--force", action="store_true", help="replace the file if it is there")


def _serve(add: Add) -> None:
    command = add("serve", "Run the proxy.", "groundwire serve --port 8080")
    command.add_argument("--host", metavar="H", help="the address to listen on")
    command.add_argument("--port", type=_port, metavar="P", help="the port to listen on; 0 takes any that is free")


def _ask(add: Add) -> None:
    command = add(
        "ask",
        "Ask a question and stream the cited answer.",
        'groundwire ask "What is new in Python 3.14?"',
        'cat notes.txt | groundwire ask "Summarise this" --no-search',
        'groundwire ask "Who won?" --json | jq .citations',
    )
    command.add_argument("question", nargs="?", help="what you want to know; - reads it from the input")
    command.add_argument("--model", metavar="M", help="the model to ask; the upstream's first one if left out")
    command.add_argument("--provider", metavar="N", help="the provider to search with first, any that is configured")
    command.add_argument("--no-search", action="store_true", help="let the model answer from what it knows")
    command.add_argument("--json", action="store_true", help="print one JSON object at the end")
    command.add_argument("-v", "--verbose", action="store_true", help="show the passage that each source is cited for")


def _chat(add: Add) -> None:
    command = add("chat", "Talk with a model that searches; /help lists what you can type.", "groundwire chat")
    command.add_argument("--model", metavar="M", help="the model to ask; the upstream's first one if left out")
    command.add_argument("--provider", metavar="N", help="the provider to search with first, any that is configured")
    command.add_argument("--no-search", action="store_true", help="begin without search; /search on turns it on")
    command.add_argument("-v", "--verbose", action="store_true", help="show the passage that each source is cited for")


def _search(add: Add) -> None:
    command = add(
        "search",
        "Run one web_search, as the model would get it.",
        'groundwire search "rayleigh scattering" --limit 3',
    )
    command.add_argument("query", help="what to search for")
    command.add_argument("--provider", metavar="N", help="the provider to ask first, any that is configured")
    command.add_argument("--limit", type=int, metavar="K", help="how many results")
    command.add_argument("--json", action="store_true", help="print JSON")


def _open(add: Add) -> None:
    command = add(
        "open",
        "Run one open_page, as the model would get it.",
        "groundwire open https://example.com/",
        'groundwire open https://example.com/history.html --query "who founded it"',
    )
    command.add_argument("url", nargs="+", help="the page, or a document such as local:docs/a.md; several together")
    command.add_argument("--start", type=_count, default=0, metavar="N", help="from this character of the page on")
    command.add_argument("--query", default="", metavar="Q", help="only the passages that matter for this")
    command.add_argument("--json", action="store_true", help="print JSON; a list for several URLs")


def _index(add: Add) -> None:
    about = "Make the indexes of your folders now, and say what is in them and what is not."
    command = add("index", about, "groundwire index --provider docs")
    command.add_argument("--provider", metavar="N", help="the one of this provider alone")
    command.add_argument("--json", action="store_true", help="print JSON, with every file that was skipped")


def _check(add: Add) -> None:
    about = "Try every provider and upstream, and name what is broken and how to mend it."
    command = add("check", about, "groundwire check --config config.yaml")
    command.add_argument("--json", action="store_true", help="print JSON")


def _key(add: Add) -> None:
    command = add("key", "Make a key for a client: `groundwire key new`.", "groundwire key new --name alice")
    command.add_argument("action", choices=["new"], help="make a new one")
    command.add_argument("--name", default="", metavar="N", help="what the log calls its owner")


def _usage(add: Add) -> None:
    about = "Print what each key used, per model and day, as the running server counted it."
    command = add("usage", about, "groundwire usage --from 2027-12-01 --key alice")
    command.add_argument("--url", metavar="U", help="the server to ask; the one that the config describes if left out")
    command.add_argument("--key", metavar="N", help="of this key alone, by its name")
    command.add_argument("--from", dest="first", type=_day, metavar="D", help="from this day on, such as 2027-12-01")
    command.add_argument("--to", dest="last", type=_day, metavar="D", help="up to this day")
    command.add_argument("--json", action="store_true", help="print JSON")


def _replay(add: Add) -> None:
    command = add(
        "replay",
        "Show the requests of an audit file, or one of them with its searches, answer and sources.",
        "groundwire replay audit.jsonl",
        "groundwire replay audit.jsonl req_5f2c",
    )
    command.add_argument("file", type=_path, metavar="FILE", help="what `audit` in the config names")
    command.add_argument("id", nargs="?", default="", metavar="ID", help="the request, or the beginning of its id")
    command.add_argument("--all", action="store_true", help="list all of them, not the newest 200 alone")
    command.add_argument("--json", action="store_true", help="print JSON")


def _completion(add: Add) -> None:
    command = add(
        "completion",
        "Print a script that lets your shell complete commands and flags.",
        'eval "$(groundwire completion bash)"     # in ~/.bashrc',
        'eval "$(groundwire completion zsh)"      # in ~/.zshrc, after compinit',
        "groundwire completion fish | source      # in ~/.config/fish/config.fish",
    )
    command.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell that you use")


# What words become. What Python itself does not load is imported where it is needed.


def _path(text: str) -> object:
    from pathlib import Path

    return Path(text)


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError("must be between 0 and 65535")
    return port


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("must be a whole number, 0 or more")
    return int(text)


def _day(text: str) -> str:
    from datetime import date

    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError("must be a day such as 2027-12-31") from None
