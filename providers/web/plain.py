"""Pages that are no HTML: plain text, programs and Markdown as servers send it. Handed the text, what it was called and
where it lay; hands on Markdown in which a program stands in a code block, so that nobody takes its brackets for
citations or its comments for something to leave out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urljoin, urlsplit

from ..text.patterns import pattern

_MARKDOWN_TYPES = frozenset({"text/markdown", "text/x-markdown"})
_PROSE_ENDINGS = frozenset({"md", "markdown", "mdx", "rst", "adoc"})
_PROGRAM_ENDINGS = (  # noqa: SIM905 - a hundred quoted strings read worse
    "asm bash bat c cc cfg cjs clj cmake conf cpp cs css csv cxx d dart diff el erl ex exs f90 fish fs go gradle "
    "groovy h hcl hpp hs ini ipynb java jl js jsx kt kts less lisp log lua m mjs ml mk nim nix patch php pl pm "
    "properties proto ps1 py pyi r rb rs sass scala scm scss sh sol sql svelte swift tcl tex tf toml ts tsv tsx v "
    "vb vim vue yaml yml zig zsh"
).split()
_PROGRAM_TYPES = pattern(
    r"text/(?:x-(?!markdown|rst|web)|css|javascript|csv)|application/(?:x-(?!www)|java|ecma|typescript|toml|yaml|sql)"
)
# A line that prose does not have. Of a program at least every fourth is such a line.
_PROGRAM_LINE = pattern(
    r"\s*(?:"
    r"#!|#include\b|//|/\*|\*/|@\w+\s*$|@\w+\(|[\])}]+[;,]?\s*$"
    r"|(?:def|class|fn|func|function|const|let|var|struct|enum|impl|public|private|static) +\w.*[={(:;]"
    r"|from \S+ import\b|import [\w.]+(?: as \w+)?;?\s*$|import\b.*\bfrom ['\"]|return\b.*[\[({'\"=\d;]|return\s*$"
    r"|(?:if|elif|else|for|while|try|except|with|switch|case)\b.*[:{]\s*$"
    r"|[\w.\[\]\"'$@]+ ?(?:=|:=|\+=|-=) ?[^=\s]"
    r"|.*[{};]\s*$"
    r")"
)
_SHARE = 0.25
_LOOKED_AT = 400  # lines
_TICKS = pattern(r"`{3,}")
_TARGET = pattern(r"(?<=\]\()(<?)([^\s()<>]{1,2000})(?=[\s)>])")
_FRONT_MATTER = pattern(r"---\n(.{0,5000}?)\n---\n", re.DOTALL)
_TITLE = pattern(r"""^title:\s*["']?(.+?)["']?\s*$""", re.MULTILINE)
_HEADING = pattern(r"^# +(\S.*)$", re.MULTILINE)


def is_markdown(content_type: str) -> bool:
    return content_type in _MARKDOWN_TYPES


def is_program(text: str, content_type: str, url: str) -> bool:
    """By what it is called, else by how its lines look."""
    ending = urlsplit(url).path.rpartition("/")[2].rpartition(".")[2].lower()
    if is_markdown(content_type) or ending in _PROSE_ENDINGS:
        return False
    if ending in _PROGRAM_ENDINGS or _PROGRAM_TYPES.match(content_type):
        return True
    return not _TICKS.search(text) and _looks_like_program(text)


def as_code(text: str, language: str = "") -> str:
    """In a code block whose fence stands nowhere in it."""
    fence = "`" * (max((len(run) for run in re.findall(r"`{3,}", text)), default=2) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def with_whole_addresses(markdown: str, url: str) -> str:
    """Markdown whose links can be followed from anywhere."""
    return _TARGET.sub(lambda found: found[1] + _joined(url, found[2]), markdown)


def targets(markdown: str) -> Iterable[str]:
    return (found[2] for found in _TARGET.finditer(markdown) if found[2].startswith(("https://", "http://")))


def markdown_title(markdown: str) -> str:
    matter = _FRONT_MATTER.match(markdown)
    named = _TITLE.search(matter[1]) if matter else None
    return named[1].strip() if named else first_heading(markdown)


def first_heading(markdown: str) -> str:
    found = _HEADING.search(markdown)
    return found[1].strip() if found else ""


def _joined(url: str, target: str) -> str:
    try:
        return target if target.startswith("#") else urljoin(url, target)
    except ValueError:
        return target


def _looks_like_program(text: str) -> bool:
    lines = [line for line in text.split("\n", _LOOKED_AT)[:_LOOKED_AT] if line.strip()]
    likely = sum(bool(_PROGRAM_LINE.match(_ends_of(line))) for line in lines)
    return likely >= max(1, _SHARE * len(lines))


def _ends_of(line: str) -> str:
    """Of a very long line, as programs for machines have it, how it begins and how it ends."""
    return line if len(line) <= 300 else line[:150] + line[-150:]
