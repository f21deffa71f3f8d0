"""The text of a config file, with a comment to each line that a person may want to change. Handed what was chosen;
hands on YAML. Pure. Keys of services are written as references to the environment, never as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from providers.records import dataclass

DOCUMENTS, READER = "documents", "reader"  # what the two providers are called that are no search engines
_COMMENT = 44  # the column of comments


@dataclass(frozen=True, slots=True)
class ChosenUpstream:
    name: str
    base_url: str
    address: str = ""  # the variable that holds its base_url
    api_key: str = ""  # the one that holds its key
    models: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class ChosenEngine:
    kind: str
    variable: str = ""  # the one that holds what it needs
    sets: str = "api_key"  # what of its entry that is
    reads: bool = False  # can it open pages too?
    silent: str = ""  # why it did not answer
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Choices:
    day: str
    upstream: ChosenUpstream
    others: Sequence[ChosenUpstream] = ()  # found too, and left out
    engines: Sequence[ChosenEngine] = ()
    folder: str = ""
    public_fallback: bool = False
    key_hash: str = ""
    port: int = 8080


def config_text(chosen: Choices) -> str:
    sections = [_head(chosen), _server(chosen), _upstreams(chosen), _providers(chosen), _tools(chosen), _rest()]
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def searchers(chosen: Choices) -> list[str]:
    folder = [DOCUMENTS] if chosen.folder else []
    return folder + [engine.kind for engine in chosen.engines if engine.kept]


def _head(chosen: Choices) -> Iterator[str]:
    yield f"# Groundwire's configuration, written by `groundwire init` on {chosen.day}. `groundwire check` tries it."
    yield "# ${NAME} reads the environment: no key stands here. What else may be said: docs/configuration.md."


def _server(chosen: Choices) -> Iterator[str]:
    yield "server:"
    yield _line("  host: 127.0.0.1", "any other address needs client keys")
    yield _line(f"  port: {chosen.port}")
    if chosen.key_hash:
        yield _line("  keys:", "what clients send; `groundwire key new` makes more")
        yield f"    - {{name: first, admin: true, hash: {_quoted(chosen.key_hash)}}}"
    else:
        yield _line("  keys: []", "none: whoever is on this machine may ask; `groundwire key new` makes one")


def _upstreams(chosen: Choices) -> Iterator[str]:
    yield _line("upstreams:", "where models live")
    yield from _upstream(chosen.upstream)
    for other in chosen.others:
        yield "  # This one was found too:"
        yield from (f"  # {line[2:]}" for line in _upstream(other))


def _upstream(upstream: ChosenUpstream) -> Iterator[str]:
    yield f"  - name: {upstream.name}"
    yield _line("    type: openai", "any server that speaks Chat Completions")
    yield f"    base_url: {_reference(upstream.address) if upstream.address else _literal(upstream.base_url)}"
    if upstream.api_key:
        yield f"    api_key: {_reference(upstream.api_key)}"
    else:
        yield _line(f"    # api_key: {_reference('NAME')}", "if the server wants one: the variable that holds it")
    yield _line(
        f"    models: {_list(map(_literal, upstream.models))}", 'patterns of the names that it serves; "*": all'
    )
    yield _line("    tool_calls: auto", "auto | native | prompted (in words) | none (search first)")


def _providers(chosen: Choices) -> Iterator[str]:
    yield _line("providers:", "where information comes from")
    if chosen.folder:
        yield f"  - {{name: {DOCUMENTS}, type: local, options: {{path: {_literal(chosen.folder)}}}}}"
    for engine in chosen.engines:
        yield from _engine(engine, chosen.day)
    yield _line(f"  - {{name: {READER}, type: direct}}", "opens pages of the web itself")


def _engine(engine: ChosenEngine, day: str) -> Iterator[str]:
    reference = f", {engine.sets}: {_reference(engine.variable)}" if engine.variable else ""
    entry = f"- {{name: {engine.kind}, type: {engine.kind}{reference}}}"
    silent = f"did not answer on {day}: {engine.silent}" if engine.silent else ""
    yield _line(f"  {entry}" if engine.kept else f"  # {entry}", silent)


def _tools(chosen: Choices) -> Iterator[str]:
    kept = [engine for engine in chosen.engines if engine.kept]
    folder = [DOCUMENTS] if chosen.folder else []
    readers = [*folder, READER, *(engine.kind for engine in kept if engine.reads)]
    yield "tools:"
    yield _line("  mode: auto", "auto (the model decides) | on_request | off")
    yield _line(f"  search: {_list(searchers(chosen))}", "in the order in which they are asked")
    yield _line(f"  read: {_list(readers)}", "who opens pages, in this order")
    if chosen.folder:
        said = "true: what they do not hold is searched on the web, so the query leaves this machine"
        yield _line(f"  public_fallback: {'true' if chosen.public_fallback else 'false'}", said)


def _rest() -> Iterator[str]:
    yield "citations:"
    yield _line("  footer: false", "true: a list of sources below each answer")
    yield ""
    yield "log:"
    yield _line("  level: info")
    yield _line("  contents: false", "true: also what is searched for, which may be what people asked")


def _line(text: str, comment: str = "") -> str:
    return f"{text:<{_COMMENT}} # {comment}" if comment else text


def _list(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"


def _reference(variable: str) -> str:
    return f'"${{{variable}}}"'


def _literal(text: str) -> str:
    """A text that must not be read as a reference."""
    return _quoted(text.replace("$", "$$"))


def _quoted(text: str) -> str:
    """As YAML reads it, which knows the escapes of JSON but wants more of them."""
    written = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in written)
