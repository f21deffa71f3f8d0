"""`make docs`: writes the tables of settings in these pages, from the models that read the settings.

Handed nothing: a table stands behind a line `<!-- table: NAME -->`, and NAME says which models it shows. The text of a
row is the docstring below the field, its type the field's annotation. `--check` writes nothing, and fails where a page
differs.
"""
# ruff: noqa: T201 - it is a command, and says what it wrote

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ByteSize, DirectoryPath, PositiveFloat, PositiveInt, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from providers.registry import SERVICES, ProviderEntry
from providers.registry import load as service
from providers.settings import BaseUrl, Count, Key, PerSecond, Seconds, TimeToLive
from providers.web.egress import ProxyUrl
from proxy.config.keys import Amount, ClientKey, Domain, KeyPolicy, Money
from proxy.config.prices import Price
from proxy.config.settings import Config, Host, Network, Origin
from proxy.config.upstreams import ContextSize

HERE = Path(__file__).parent
END = "<!-- end of table -->"
TABLE = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(?=^" + re.escape(END) + ")", re.S | re.M)

# What people call a kind of value. The first that fits counts, so the narrower kinds stand first.
WORDS: tuple[tuple[Any, str], ...] = (
    *((kind, "seconds") for kind in (Seconds, TimeToLive)),
    (PerSecond, "calls per second"),
    (ContextSize, "tokens"),
    *((kind, "number") for kind in (Count, Amount, PositiveInt, PositiveFloat)),
    *((kind, "amount") for kind in (Money, Price)),
    (Domain, "domain"),
    (Network, "network"),
    (Host, "host name"),
    (Origin, "origin"),
    (ProxyUrl, "URL"),
    (BaseUrl, "URL"),
    (Key, "secret"),
    (DirectoryPath, "folder"),
    (ByteSize, "size"),
    (SecretStr, "secret"),
    (bool, "true or false"),
    (int, "number"),
    (float, "number"),
    (datetime, "day or moment"),
    (Path, "file"),
    (str, "text"),
)
NAMED_IN_LISTS = ("domain", "host name", "network", "origin", "URL")
MANY = 1_000_000  # a bound that nobody reaches is not worth a word


# The words of a field


@cache
def described(model: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field; a field that a model inherits is described where it was written."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if isinstance(base, type) and issubclass(base, BaseModel) and base is not BaseModel:
            found |= _docstrings(ast.parse(textwrap.dedent(inspect.getsource(base))).body[0])
    return found


def _docstrings(node: ast.AST) -> dict[str, str]:
    assert isinstance(node, ast.ClassDef)
    found = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def kind_of(hint: Any) -> str:
    """What may be written there, in words."""
    for known, word in WORDS:
        if (within := _narrowed(hint, known)) is not None:
            return word if word == "size" else word + _bounds(within)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return kind_of(inner[0]) + _bounds(inner[1:])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is list:
        word = kind_of(inner[0])
        return f"list of {word}s" if word in NAMED_IN_LISTS else f"list of {word}" if "`" in word else "list"
    if origin is dict or _is_model(hint):
        return "mapping"
    kinds = [kind_of(one) for one in inner if one is not NoneType]
    return ", or ".join(kinds)


def _narrowed(hint: Any, known: Any) -> tuple[Any, ...] | None:
    """What `hint` says beyond `known`: `Annotated[Count, Field(le=50)]` is a Count, and its bounds are beyond."""
    if hint is known:
        return ()
    parts, base = get_args(hint), get_args(known)
    if get_origin(hint) is not Annotated:
        return None
    if get_origin(known) is not Annotated:
        return parts[1:] if parts[0] is known else None
    return parts[len(base) :] if parts[: len(base)] == base else None


def _bounds(notes: tuple[Any, ...]) -> str:
    """` from 1 to 50`, of what a field says about its smallest and its largest value."""
    inner = [part for note in notes for part in (note.metadata if isinstance(note, FieldInfo) else [note])]
    low: list[Any] = [part.ge if isinstance(part, Ge) else part.gt for part in inner if isinstance(part, Ge | Gt)]
    high: list[Any] = [part.le if isinstance(part, Le) else part.lt for part in inner if isinstance(part, Le | Lt)]
    top = f"{high[-1]:,}" if high and high[-1] < MANY else ""
    if low and top:
        return f" from {low[-1]} to {top}"
    return f" up to {top}" if top else f" from {low[-1]}" if low and low[-1] > 0 else ""


def default_of(field: FieldInfo) -> str:
    """As YAML writes it."""
    value = field.get_default(call_default_factory=True, validated_data={})
    match value:
        case _ if value is PydanticUndefined:
            return "required"
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case ByteSize():
            return f"`{value.human_readable().replace('.0', '')}`"
        case SecretStr() | "":
            return '`""`'
        case list():
            return "`[" + ", ".join(item if item.startswith(".") else f'"{item}"' for item in value) + "]`"
        case float():
            return f"`{value:g}`"
    return f"`{value}`"


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


# The tables


def keys_of(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Each key below `prefix` with its type, default and meaning. What groups say is what keys say: it stands there."""
    hints, words = get_type_hints(model, include_extras=True), described(model)
    for name in _ordered(model):
        field, key = model.model_fields[name], f"{prefix}{name}"
        inner = next((part for part in (field.annotation, *get_args(field.annotation)) if _is_model(part)), None)
        if inner is None or name in words:
            yield key, kind_of(hints[name]), default_of(field), words[name]
        if inner is not None and inner is not KeyPolicy:
            within = "." if inner is field.annotation else ".*." if get_origin(field.annotation) is dict else "[]."
            yield from keys_of(inner, key + within)


def _ordered(model: type[BaseModel]) -> list[str]:
    """A key's own fields before those that it shares with groups."""
    names = list(model.model_fields)
    return sorted(names, key=lambda name: name in KeyPolicy.model_fields) if model is ClientKey else names


def section(name: str) -> Iterator[str]:
    """A section of the config."""
    field = Config.model_fields[name]
    (model,) = [part for part in (field.annotation, *get_args(field.annotation)) if _is_model(part)] or [None]
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    if model is None:
        hint = get_type_hints(Config, include_extras=True)[name]
        rows = [(name, kind_of(hint), default_of(field), described(Config)[name])]
    else:
        rows = list(keys_of(model, name + ("[]." if get_origin(field.annotation) is list else ".")))
    for key, kind, default, meaning in rows:
        yield f"| `{key}` | {kind} | {default} | {meaning} |"


COMMON = {"api_key", "base_url", "timeout"} | set(ProviderEntry.model_fields) - {"rate", "type"}


def options(kind: str) -> list[str]:
    """The settings of one service, besides those that every entry of `providers` has."""
    settings: type[BaseModel] = service(kind).Settings
    own = "base_url" if kind == "local" else ""  # there it is an option: where people find the same files
    hints, words = get_type_hints(settings, include_extras=True), described(settings)
    return [
        f"`{name}` | {kind_of(hints[name])} | {default_of(field)} | {words[name]} |"
        for name, field in settings.model_fields.items()
        if name == own or name not in COMMON
    ]


def services() -> Iterator[str]:
    """Every option of every built-in service."""
    yield "| service | option | type | default | meaning |\n|---|---|---|---|---|"
    yield from (f"| `{kind}` | {row}" for kind in sorted(SERVICES) for row in options(kind))


def timeouts() -> Iterator[str]:
    yield "| seconds | services |\n|---|---|"
    found: dict[str, list[str]] = {}
    for kind in sorted(SERVICES):
        if field := service(kind).Settings.model_fields.get("timeout"):
            found.setdefault(default_of(field).strip("`"), []).append(f"`{kind}`")
    yield from (f"| {seconds} | {', '.join(found[seconds])} |" for seconds in sorted(found, key=float))


def one_service(kind: str) -> Iterator[str]:
    yield "| option | type | default | meaning |\n|---|---|---|---|"
    yield from (f"| {row}" for row in options(kind))


SPECIAL: dict[str, Callable[[], Iterator[str]]] = {"services": services, "timeouts": timeouts}


def table(name: str) -> str:
    if name.startswith("options:"):
        rows = one_service(name.partition(":")[2])
    else:
        rows = SPECIAL[name]() if name in SPECIAL else section(name)
    return "\n".join(rows) + "\n"


def written(text: str) -> str:
    """A page with its tables as they ought to be."""
    return TABLE.sub(lambda found: found[1] + table(found[2]), text)


def main() -> None:
    stale = []
    for page in sorted(HERE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (new := written(text)) != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(new, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"{', '.join(stale)}: the tables differ from the models; `make docs` writes them")
    print(f"wrote {', '.join(stale)}" if stale else "the tables are those of the models")


if __name__ == "__main__":
    main()
