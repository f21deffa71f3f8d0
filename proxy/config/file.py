"""The config file as text: YAML in, plain values out, each with the place it came from, so that every error can say it.

Handed a path, the environment and the model that the values are for; hands on a `Document`, or raises `ConfigError`.

Why not `yaml.safe_load`: it forgets line numbers, takes the last of two equal keys, and reads `off`, `0123` and `12:30`
as something other than what was typed. Here a plain scalar is a number only if it is written the way Python prints it.
No error shows a value that may be a secret: keys and URLs are never quoted, and a quoted source line is masked.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from providers.records import dataclass

KeyPath = tuple[str | int, ...]

EXAMPLE = """\
upstreams:
  - {name: local, type: openai, base_url: "http://127.0.0.1:11434/v1"}
providers:
  - {name: ddg, type: duckduckgo}
  - {name: reader, type: direct}
tools:
  search: [ddg]
  read: [reader]
"""

_MAX_BYTES = 1 << 20
_MAX_NODES = 10_000  # after aliases are followed, so a few lines cannot unfold into millions
_MAX_DEPTH = 32
_MAX_SHOWN = 10
_SECRET = {
    "api_key",
    "keys",
    "key",
    "headers",
    "options",
    "base_url",
    "store",
    "proxy",
    "endpoint",
}  # URLs may carry a password

_REFERENCE = re.compile(
    r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}|(?P<broken>\{))", re.A
)
_LINE_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")  # what PyYAML counts as one
_WORD = re.compile(r"\$\{[A-Za-z_]\w*|[^\s:\[\]{},\"'#-]+")
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {
    _TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge", "map", "seq")
}

_SENTENCES = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("dict_type", "model_type"), "must be a mapping (key: value)"),
    **dict.fromkeys(("too_short", "string_too_short"), "must not be empty"),
    "string_type": "must be text",
    "list_type": "must be a list",
    "missing": "is missing",
}
_SHAPES: dict[type, str] = {dict: " (given: a mapping)", list: " (given: a list)"}


class ConfigError(Exception):
    """`str(error)` is the whole message: what is wrong, where, and a minimal config that works; `line` is what is
    wrong alone, for a log."""

    def __init__(self, origin: str, problems: Iterable[str]) -> None:
        found = list(problems)
        shown = "\n".join(f"  {problem}" for problem in found[:_MAX_SHOWN])
        if len(found) > _MAX_SHOWN:
            shown += f"\n  … and {len(found) - _MAX_SHOWN} more"
        self.line = f"{origin} cannot be used: " + "; ".join(
            " ".join(problem.split()) for problem in found[:_MAX_SHOWN]
        )
        example = "\n".join(f"  {line}" for line in EXAMPLE.splitlines())
        super().__init__(f"{origin} cannot be used:\n{shown}\n\nA minimal config.yaml that works:\n\n{example}")


@dataclass(frozen=True, slots=True)
class Document:
    """Plain values, and for each of them the place it came from (`line 12`, or the name of a variable)."""

    origin: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, str] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict)  # scalars as typed, before the environment is read
    words: frozenset[str] = frozenset()  # of the config language, which may be shown anywhere

    def problem(self, path: KeyPath, sentence: str) -> str:
        """`line 12, tools.max_rounds: …`; what has no place of its own has that of what it stands in."""
        place = next((self.places[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.places), "")
        return ", ".join(part for part in (place, dotted(path, self.words)) if part) + ": " + sentence

    def problems(self, error: ValidationError, schema: type[BaseModel]) -> Iterator[str]:
        for detail in error.errors(include_url=False):
            path = tuple(part for part in detail["loc"] if part != "[key]")
            kind = detail["type"]
            if kind == "extra_forbidden":
                sentence = _unknown_key(str(path[-1]), _keys_at(schema, path[:-1]))
            elif kind == "value_error":
                sentence = f"{detail['ctx']['error']}{self.given(path)}"
            else:
                wanted = _SENTENCES.get(kind) or detail["msg"].replace("Input should be", "must be")
                sentence = wanted + self._instead(path, kind, detail["input"])
            yield self.problem(path, sentence)

    def _instead(self, path: KeyPath, kind: str, value: object) -> str:
        """What stands where pydantic, whose word for the mistake is `kind`, wanted something else."""
        if kind.endswith("_type") and type(value) in _SHAPES:
            return _SHAPES[type(value)]
        # Text where a whole section should stand may be anything, a mistyped key with its secret too.
        section = kind in ("model_type", "dict_type") or (kind == "list_type" and len(path) == 1)
        return "" if section else self.given(path)

    def given(self, path: KeyPath) -> str:
        """` (given: 'abc')`, as typed in the file; nothing where that could show a secret."""
        if path not in self.written or _SECRET.intersection(path):
            return ""
        text = self.written[path]
        return f" (given: {text[:60]!r}{'…' if len(text) > 60 else ''})"


def _unknown_key(key: str, valid: list[str]) -> str:
    near = difflib.get_close_matches(key.lower(), valid, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown key; {hint}valid here: {', '.join(valid)}"


def dotted(path: KeyPath, words: frozenset[str]) -> str:
    """`('upstreams', 0, 'name')` as `upstreams[0].name`. What is not a plain word, or where keys stand not one of
    these `words`, may be a misplaced secret: masked."""
    text, secret = "", False
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        plain = re.fullmatch(r"[A-Za-z][\w-]{0,31}", part, re.A) and not secret
        text += ("." if text else "") + (part if plain or part in words else "***")
        secret = secret or part in ("keys", "api_key")
    return text


def read(path: Path, environ: Mapping[str, str], schema: type[BaseModel]) -> Document:
    return parse(_text(path), str(path), environ, schema)


def parse(text: str, origin: str, environ: Mapping[str, str], schema: type[BaseModel]) -> Document:
    """The text of a config file; `origin` is what errors call it."""
    document = Document(origin, words=_words(schema))
    try:
        root = _compose(text)
    except yaml.YAMLError as error:
        raise ConfigError(origin, [_syntax(error, text, document.words)]) from None
    if root is None:
        return document
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(origin, ["line 1: the file must be a mapping of sections (server, upstreams, …) at its top"])
    builder = _Builder(document, environ)
    document.values.update(builder.mapping(root, ()))
    if builder.problems:
        raise ConfigError(origin, builder.problems)
    return document


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        order = "the config is what --config names, else GROUNDWIRE_CONFIG, else ./config.yaml"
        raise ConfigError(str(path), [f"there is no file {path.absolute()}; {order}"]) from None
    except OSError as error:
        raise ConfigError(str(path), [f"it cannot be read: {error.strerror}"]) from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(str(path), ["it is larger than 1 MiB; is it a config file?"])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(str(path), [f"line {line}: not UTF-8 text"]) from None


class _BoundedLoader(yaml.SafeLoader):
    """PyYAML composes by recursion; a file of brackets must not reach Python's limit."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, "nested too deeply", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _compose(text: str) -> yaml.Node | None:
    loader = _BoundedLoader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _syntax(error: yaml.YAMLError, text: str, words: frozenset[str]) -> str:
    """The parser's complaint with the line it is about and a caret under the place."""
    if isinstance(error, yaml.reader.ReaderError):
        before = _LINE_BREAK.split(text[: error.position])
        line, column, complaint = len(before) - 1, len(before[-1]), "a control character is not allowed here"
    else:
        assert isinstance(error, yaml.MarkedYAMLError), "the only other kind that PyYAML raises while composing"
        line, column = _place(error, text)
        complaint = ": ".join(part for part in (error.context, error.problem) if part)
        complaint = re.sub(r"(alias|anchor|handle) '[^']*'", r"\1", complaint)  # a password may begin with * or &
    lines = _LINE_BREAK.split(text)
    source = lines[line] if line < len(lines) else ""
    hint = " (inside […] or {…} a ${NAME} needs quotes)" if "${" in source else ""
    start = max(0, column - 60)
    shown = _masked(source, words)[start : start + 100]
    return f"line {line + 1}, column {column + 1}: {complaint}{hint}\n\n    {shown}\n    {' ' * (column - start)}^"


def _place(error: yaml.MarkedYAMLError, text: str) -> tuple[int, int]:
    """Where the mistake is: where it shows, but where it began if it shows only at the end of the file."""
    at_end = error.problem_mark is None or not text[error.problem_mark.index :].strip("\0\r\n ")
    mark = error.context_mark if at_end and error.context_mark else error.problem_mark
    return (mark.line, mark.column) if mark else (0, 0)


def _masked(line: str, words: frozenset[str]) -> str:
    """The line's shape, with nothing readable in it but words of the config language, short numbers and references."""

    def cover(match: re.Match[str]) -> str:
        word = match[0]
        shown = word in words or word.startswith("${") or re.fullmatch(r"\d{1,5}", word)
        return word if shown else "*" * len(word)

    return "".join(char if char.isprintable() else " " for char in _WORD.sub(cover, line))


class _Builder:
    """Walks the composed nodes once: values, places and what was typed go into the document, complaints into a list."""

    def __init__(self, document: Document, environ: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._document = document
        self._environ = environ
        self._nodes = 0

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        seen: set[str] = set()
        for key_node, value_node in node.value:
            line = f"line {key_node.start_mark.line + 1}"
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(f"{line}, {self._place(path)}: a key must be a word")
                continue
            inner = (*path, key_node.value)
            self._document.places[inner] = line
            if key_node.value in seen:
                self._complain(inner, "the same key stands here twice")
                continue
            seen.add(key_node.value)
            if key_node.tag == _TAG + "merge":
                self.problems.append(f"{line}, {self._place(path)}: merge keys (<<) are not used in this file")
            value = self._value(value_node, inner)
            if value is not None:  # a key with nothing behind it is a key left out
                values[key_node.value] = value
        return values

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._nodes += 1
        if self._nodes > _MAX_NODES or len(path) > _MAX_DEPTH:
            problem = self._document.problem(path[:1], "too many values, or an alias that holds itself")
            raise ConfigError(self._document.origin, [problem])
        if node.tag not in _PLAIN_TAGS:
            return self._complain(path, "YAML tags (!…) are not used in this file")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._item(item, (*path, index)) for index, item in enumerate(node.value)]
        self._document.written[path] = node.value
        text = _REFERENCE.sub(lambda match: self._refer(match, path), node.value)
        return text if text != node.value else _scalar(node.tag, text)

    def _item(self, node: yaml.Node, path: KeyPath) -> Any:
        self._document.places[path] = f"line {node.start_mark.line + 1}"
        return self._value(node, path)

    def _refer(self, match: re.Match[str], path: KeyPath) -> str:
        if match["dollar"]:
            return "$"
        if match["broken"]:
            self._complain(path, "a reference is written ${NAME} or ${NAME:-default}, and a plain ${ is $${")
            return ""
        name, default = match["name"], match["default"]
        if default is not None:
            return self._environ.get(name) or default
        if name not in self._environ:
            # A default for a client key would be known to everybody who reads the file.
            is_key = path[:2] == ("server", "keys") and (len(path) == 3 or path[3:] in (("key",), ("hash",)))
            way = " to a key that `groundwire key new` makes" if is_key else f", or write ${{{name}:-default}}"
            self._complain(path, f"the variable {name} is not set; set it{way}")
        return self._environ.get(name, "")

    def _place(self, path: KeyPath) -> str:
        return dotted(path, self._document.words) or "top level"

    def _complain(self, path: KeyPath, sentence: str) -> None:
        self.problems.append(self._document.problem(path, sentence))


def _scalar(tag: str, text: str) -> object:
    if tag == _TAG + "null":
        return None
    if tag == _TAG + "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if tag in (_TAG + "int", _TAG + "float"):
        for number in (int, float):
            try:
                if str(number(text)) == text:
                    return number(text)
            except ValueError:
                continue
    return text


def _inner_model(annotation: object) -> type[BaseModel] | None:
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _keys_at(schema: type[BaseModel], path: KeyPath) -> list[str]:
    chosen = False  # is the next part a name that the operator chose?
    for part in path:
        if isinstance(part, str) and not chosen:
            kind = schema.model_fields[part].annotation
            schema = _inner_model(kind) or schema
            chosen = get_origin(kind) is dict
        else:
            chosen = False
    return list(schema.model_fields)


def _words(schema: type[BaseModel]) -> frozenset[str]:
    """Every key and every fixed value of the config language."""
    words: set[str] = {"true", "false", "null", "http", "https"}
    for name, about in schema.model_fields.items():
        words.add(name)
        if inner := _inner_model(about.annotation):
            words |= _words(inner)
        if get_origin(about.annotation) is Literal:
            words |= {str(value) for value in get_args(about.annotation)}
    return frozenset(words)
