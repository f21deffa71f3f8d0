"""Blocks to Markdown, and Markdown to plain text.

Handed the blocks worth reading, hands on one text in which headings, lists, quotes, tables and code look like it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .blocks import HEADINGS, Block

_FENCE = re.compile(r"^(```|~~~~)[\w+#]*\n(.*?)\n\1$", re.MULTILINE | re.DOTALL)
_RULE = re.compile(r"^\|(?: --- \|)+\n", re.MULTILINE)
_PREFIX = re.compile(r"^[ >]*(?:#{1,6} |[-*] |\d+\. )?", re.MULTILINE)
_LINK = re.compile(r"!?\[((?:\\.|[^\[\]\\])*)\]\([^()\s]*\)")
_MARK = re.compile(r"\*\*|~~|[*`]")
_ESCAPED = re.compile(r"\\([\[\]|])")


def write_markdown(blocks: Sequence[Block]) -> str:
    text: list[str] = []
    before: Block | None = None
    for block in blocks:
        if before is not None:
            text.append("\n" if _is_next_line(before, block) else "\n\n")
        text.append(_dress(block))
        before = block
    return "".join(text)


def plain_text(markdown: str) -> str:
    """The words alone: no marks, no targets of links."""
    pieces, end = [], 0
    for fence in _FENCE.finditer(markdown):
        pieces += [_undress(markdown[end : fence.start()]), fence[2]]
        end = fence.end()
    return "".join([*pieces, _undress(markdown[end:])])


def _is_next_line(before: Block, block: Block) -> bool:
    if block.close and before.tag == block.tag:
        return True
    both_items = before.level and block.level and (block.marker or block.level > before.level)
    return bool(both_items) and before.tag not in HEADINGS and block.tag not in HEADINGS


def _dress(block: Block) -> str:
    text = block.text
    if block.tag in HEADINGS:
        text = f"{'#' * HEADINGS[block.tag]} {text}"
    elif block.level:
        indent = "  " * (block.level - 1)
        first = f"{indent}{block.marker} " if block.marker else f"{indent}  "
        text = first + text.replace("\n", f"\n{indent}  ")
    if block.quotes:
        quote = "> " * block.quotes
        text = quote + text.replace("\n", f"\n{quote}")
    return text


def _undress(markdown: str) -> str:
    text = _PREFIX.sub("", _RULE.sub("", markdown))
    while text != (unlinked := _LINK.sub(r"\1", text)):
        text = unlinked
    return _ESCAPED.sub(r"\1", _MARK.sub("", text).replace(" | ", " ").strip("|"))
