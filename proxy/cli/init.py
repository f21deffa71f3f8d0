"""`groundwire init`: writes a config file that works here. Handed the parsed arguments; looks for servers of models on
this machine and for keys in the environment, tries the search engines that need none, asks on a terminal for what no
flag says, and writes. Nothing is written before all of it is known, and no file is replaced without `--force`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from providers.registry import DEFAULT_SEARCH, SERVICES, ProviderEntry

from ..config.keys import HASHED, digest
from ..config.settings import check_text
from .config_text import Choices, ChosenEngine, config_text, searchers
from .engine_tries import try_engines
from .found_upstreams import FoundUpstream, find_upstreams, look_at_upstream
from .key import generated
from .questions import Questions
from .running import Mistake, mistakes_in_words

USUAL_FILE = "config.yaml"
_PORT, _OTHER_PORT = 8080, 8081
_DECIDING = ("upstream", "model", "provider", "folder", "public_fallback", "keys")


def run(given: argparse.Namespace) -> int:
    with mistakes_in_words():
        return _init(given, os.environ)


def _init(given: argparse.Namespace, environ: Mapping[str, str]) -> int:
    file = _file_to_write(given)
    questions = _questions(given)
    upstream, others = _upstream(given, questions, environ)
    model = given.model or _model(upstream, questions)
    folder = _folder(given, questions)
    engines = _engines(given, environ)
    on_the_web = any(engine.kept for engine in engines)
    fallback = bool(folder) and on_the_web and _fallback(given, questions)
    key = generated() if _wants_key(given, questions) else ""
    chosen = Choices(
        day=datetime.now(UTC).date().isoformat(),
        upstream=upstream.chosen(model),
        others=[other.chosen("") for other in others],
        engines=engines,
        folder=folder,
        public_fallback=fallback,
        key_hash=HASHED + digest(key) if key else "",
        port=_OTHER_PORT if any(found.is_at(_PORT) for found in (upstream, *others)) else _PORT,
    )
    text = config_text(chosen)
    check_text(text, "The config that would be written", environ)
    _write(file, text, given.force)
    _tell_what_next(chosen, file, key)
    return 0


# Where it goes


def _file_to_write(given: argparse.Namespace) -> Path | None:
    """None is stdout."""
    if given.output == "-":
        return None
    file = Path(given.output or given.config or USUAL_FILE)
    if file.exists() and not given.force:
        raise Mistake(f"{file} is there already: --force replaces it, --output F writes another file.")
    if not file.parent.is_dir():
        raise Mistake(f"{file} cannot be written: there is no folder {file.parent}.")
    return file


def _write(file: Path | None, text: str, force: bool) -> None:
    if file is None:
        print(text, end="")
        return
    try:
        if force:
            _replace(file.resolve(), text)
        else:
            with file.open("x", encoding="utf-8") as written:
                written.write(text)
    except OSError as error:
        raise Mistake(f"{file} cannot be written: {error.strerror}.") from None


def _replace(file: Path, text: str) -> None:
    """What was there stays until all of the new text is on the disk."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with beside.open("x", encoding="utf-8") as written:
            written.write(text)
        if file.exists():
            shutil.copymode(file, beside)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


# What is chosen


def _questions(given: argparse.Namespace) -> Questions:
    """They are asked on a terminal, unless `--yes`. Elsewhere flags must say that nobody needs to be asked."""
    asking = sys.stdin.isatty() and not given.yes
    if not asking and not given.yes and not any(getattr(given, name) not in (None, False) for name in _DECIDING):
        raise Mistake(
            "`groundwire init` asks questions, and here is no terminal to ask them on. Add --yes to take what it "
            "finds, or say what you want: `groundwire init --help`."
        )
    return Questions(asking)


def _folder(given: argparse.Namespace, questions: Questions) -> str:
    said = (
        given.folder
        if given.folder is not None
        else questions.text("A folder of documents to search (empty: none)", "")
    )
    if not said:
        return ""
    folder = Path(said).expanduser()
    if not folder.is_dir():
        raise Mistake(f"There is no folder {said}.")
    return str(folder.resolve())  # wherever it is started from later


def _upstream(
    given: argparse.Namespace, questions: Questions, environ: Mapping[str, str]
) -> tuple[FoundUpstream, list[FoundUpstream]]:
    """The one to use, and those that were found besides."""
    if given.upstream:
        found = asyncio.run(look_at_upstream(given.upstream, environ, ask=not given.offline))
        questions.say(f"model   {found.sentence}")
        return found, []
    all_found = asyncio.run(find_upstreams(environ, ask=not given.offline))
    for found in all_found:
        questions.say(f"model   {found.sentence}")
    if not any(found.may_serve for found in all_found):
        elsewhere = questions.text("The address of your model's server, if it is elsewhere (empty: that one)", "")
        if elsewhere:
            found = asyncio.run(look_at_upstream(elsewhere, environ, ask=not given.offline))
            questions.say(f"model   {found.sentence}")
            return found, []
    place = questions.choice("Which one has your model?", [found.title for found in all_found])
    return all_found[place], [found for at, found in enumerate(all_found) if at != place]


def _model(upstream: FoundUpstream, questions: Questions) -> str:
    if len(upstream.models) < 2:
        return ""
    return questions.name("One model alone, by its name (empty: all of them)", upstream.models)


def _fallback(given: argparse.Namespace, questions: Questions) -> bool:
    if given.public_fallback is not None:
        return bool(given.public_fallback)
    return questions.yes_or_no("May what your documents do not hold be searched on the web?", False)


def _wants_key(given: argparse.Namespace, questions: Questions) -> bool:
    if given.keys is not None:
        return bool(given.keys)
    return questions.yes_or_no("Shall clients need a key?", False)


# Engines


def _engines(given: argparse.Namespace, environ: Mapping[str, str]) -> list[ChosenEngine]:
    """Those that were named, else those whose variable is set and those that need none. Which of the latter answer is
    found out; one that was named is kept all the same."""
    wanted = [_engine(kind, environ) for kind in dict.fromkeys(given.provider or _usual(environ))]
    free = [engine for engine in wanted if engine.sets == "base_url" or not engine.variable]
    entries = [_entry(engine, environ) for engine in free]
    silent = {} if given.offline else asyncio.run(try_engines(entries))
    told = Questions(asking=False)
    decided = []
    for engine in wanted:
        reason = silent.get(engine.kind, "")
        kept = not reason or bool(given.provider) or bool(engine.variable)
        told.say(f"search  {_sentence(engine, reason, engine.kind in silent)}")
        decided.append(ChosenEngine(engine.kind, engine.variable, engine.sets, engine.reads, reason, kept))
    return decided


def _usual(environ: Mapping[str, str]) -> list[str]:
    """The default stands last: the others were chosen by somebody."""
    usual = [kind for kind, service in SERVICES.items() if environ.get(service.variable) or service.keyless]
    return [*usual, DEFAULT_SEARCH]


def _engine(kind: str, environ: Mapping[str, str]) -> ChosenEngine:
    able = [name for name, service in SERVICES.items() if "search" in service.roles and name not in ("local", "model")]
    if kind not in able:
        raise Mistake(f"There is no search engine {kind!r}. There are: {', '.join(able)}.")
    service = SERVICES[kind]
    is_set = bool(environ.get(service.variable))
    if service.variable and not is_set and not service.keyless:
        raise Mistake(f"{kind} needs the variable {service.variable}, which is not set.")
    return ChosenEngine(kind, service.variable if is_set else "", service.sets, is_set and "read" in service.roles)


def _entry(engine: ChosenEngine, environ: Mapping[str, str]) -> ProviderEntry:
    needs = {engine.sets: environ[engine.variable]} if engine.variable else {}
    return ProviderEntry.model_validate({"name": engine.kind, "type": engine.kind, **needs})


def _sentence(engine: ChosenEngine, reason: str, was_tried: bool) -> str:
    source = f"{engine.kind} ({engine.variable} is set)" if engine.variable else f"{engine.kind} (without a key)"
    if not was_tried:
        return source
    return f"{source} does not answer: {reason}" if reason else f"{source} answers"


# What is said at the end


def _tell_what_next(chosen: Choices, file: Path | None, key: str) -> None:
    told = Questions(asking=False)
    if key:
        told.say(f"\nClients need this key, which is not kept anywhere: {key}")
    if not searchers(chosen):
        told.say("\nNo search engine answered, so models will not search. Take the # away from one under `providers`")
        told.say("and add it to `tools.search`, or set a key such as TAVILY_API_KEY and run this again.")
    if file is None:
        return
    named = "" if str(file) == USUAL_FILE else f" --config {file}"
    told.say(f"\nWrote {file}. Next:")
    told.say(f"  groundwire check{named}    # tries all of it")
    told.say(f'  groundwire ask{named} "…"    # a question, here')
    told.say(f"  groundwire serve{named}    # the proxy, on http://127.0.0.1:{chosen.port}/v1, and its page on /")
