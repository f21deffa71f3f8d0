"""What a place in an answer stands in: the content of a tag, or JSON. Handed an answer's prose in pieces, line by line;
says whether the place behind it is inside of something that programs read.
"""

from __future__ import annotations

import re

_MOST_TAG = 200
# Tags that people shape prose with: what stands in them is still prose.
_PROSE_TAGS = frozenset(
    (
        *("a", "abbr", "b", "big", "br", "center", "cite", "del", "details", "dfn", "em", "font"),
        *("hr", "i", "img", "ins", "mark", "q", "s", "small", "span", "strike", "strong", "sub"),
        *("summary", "sup", "u", "wbr"),
    )
)
_CLOSED_AT_ONCE = frozenset(("area", "base", "col", "embed", "input", "link", "meta", "param", "source", "track"))
# These are never only mentioned, and open behind a letter too, where `<…>` is else a type (`List<int>`).
_NEVER_MENTIONED = frozenset(("code", "content", "pre", "script", "style", "tool_call"))
_BEHIND_A_MENTION = " \t:,.;)"
_VALUE = r"\"[^\"]*\"|'[^']*'|[^\s\"'=]+"
_OPENING = re.compile(rf"([A-Za-z][\w.:-]*)(?:=[\w.:-]+)?(?:\s+[\w:@.-]+\s*=\s*(?:{_VALUE}))*\s*(/?)")
_IN_VALUE = re.compile(rf"[A-Za-z][\w.:-]*(?:\s+[\w:@.-]+\s*=\s*(?:{_VALUE}))*\s+[\w:@.-]+\s*=\s*(?:\"[^\"]*|'[^']*)")
_CLOSING = re.compile(r"/([A-Za-z][\w.:-]*)\s*")
_TAG_STOP = re.compile("[<>]")
_PROSE_STOP = re.compile(r"[<{\[]")
_JSON_STOP = re.compile(r"[\"{}\[\]]")
_STRING_STOP = re.compile(r"[\"\\]")
_NOT_BLANK = re.compile(r"\S")


class Enclosures:
    """A line's pieces are handed over in order, and then its end."""

    def __init__(self) -> None:
        self._line = ""  # the beginning of this line, as far as a tag may be looked for in it
        self._length = 0  # of this line
        self._tag: str | None = None  # what is known of a tag that is being written
        self._open = ""  # the outermost open tag
        self._nested = 0  # tags of the same name in it
        self._opened_at = 0  # where its content begins in this line; -1: in an earlier one
        self._fresh = False  # nothing but white space stands before it in its line
        self._opener = ""  # a `{` or `[` that may begin JSON
        self._depth = 0  # of open brackets in JSON
        self._in_string = self._escaped = False

    @property
    def open(self) -> bool:
        if self._depth or (self._open and not self._is_mentioned()):
            return True
        return self._tag is not None and (self._tag.startswith("!--") or _IN_VALUE.fullmatch(self._tag) is not None)

    def read(self, piece: str) -> None:
        begin = self._length
        self.skip(piece)
        i = 0
        while i < len(piece):
            if self._tag is not None:
                i = self._read_tag(piece, i, begin)
            elif self._depth:
                i = self._read_json(piece, i)
            elif self._opener:
                i = self._read_opened(piece, i)
            else:
                i = self._read_prose(piece, i)

    def skip(self, piece: str) -> None:
        """A part of the line that is code: nothing in it opens or closes."""
        if len(self._line) < _MOST_TAG:
            self._line += piece[: _MOST_TAG - len(self._line)]
        self._length += len(piece)

    def end_line(self) -> None:
        blank = not self._line.strip()
        if self._opener and (self._opener == "{" or self._line.strip() == "["):
            self._depth = 1
        elif blank:
            self._depth = 0  # JSON has no blank lines: it was none, or broke off
        self._opener, self._tag = "", None
        self._in_string = self._escaped = False
        if self._open and self._opened_at >= 0 and not self._goes_on():
            self._open = ""
        self._opened_at = -1
        self._line, self._length = "", 0

    def _goes_on(self) -> bool:
        """Does the content of a tag that was opened in this line go on in the next one?"""
        behind = self._line[self._opened_at :]
        if self._opened_at == self._length or (behind and not behind.strip()):
            return True
        return self._fresh and bool(behind) and not self._is_mentioned()

    def _is_mentioned(self) -> bool:
        """`Use a <form> for this`: no content is right behind the tag."""
        if self._open in _NEVER_MENTIONED or not 0 <= self._opened_at < len(self._line):
            return False
        return self._line[self._opened_at] in _BEHIND_A_MENTION

    def _read_prose(self, piece: str, i: int) -> int:
        found = _PROSE_STOP.search(piece, i)
        if found is None:
            return len(piece)
        if found.group() == "<":
            self._tag = ""
        elif not self._open:
            self._opener = found.group()
        return found.end()

    def _read_opened(self, piece: str, i: int) -> int:
        """Behind a `{` or `[`: JSON goes on with a string or with another opening bracket."""
        found = _NOT_BLANK.search(piece, i)
        if found is None:
            return len(piece)
        if found.group() in ("\"'" if self._opener == "{" else '"{'):
            self._depth = 1
        self._opener = ""
        return found.start()

    def _read_json(self, piece: str, i: int) -> int:
        if self._escaped:
            self._escaped = False
            return i + 1
        found = (_STRING_STOP if self._in_string else _JSON_STOP).search(piece, i)
        if found is None:
            return len(piece)
        char = found.group()
        if char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = not self._in_string
        else:
            self._depth += 1 if char in "{[" else -1
        return found.end()

    def _read_tag(self, piece: str, i: int, begin: int) -> int:
        assert self._tag is not None
        found = _TAG_STOP.search(piece, i)
        stop = found.start() if found else len(piece)
        self._tag += piece[i : min(stop, i + _MOST_TAG)]
        if len(self._tag) > _MOST_TAG:
            self._tag = None
            return stop
        if found is None:
            return stop
        if found.group() == "<":
            self._tag = ""
        else:
            self._end_tag(self._tag, begin + found.end())
            self._tag = None
        return found.end()

    def _end_tag(self, tag: str, at: int) -> None:
        if closing := _CLOSING.fullmatch(tag):
            self._close(closing[1])
        elif (opening := _OPENING.fullmatch(tag)) and not opening[2]:
            self._begin(opening[1], at, at - len(tag) - 2)

    def _close(self, name: str) -> None:
        if name == self._open:
            self._nested -= 1
            if not self._nested:
                self._open = ""

    def _begin(self, name: str, at: int, begin: int) -> None:
        if self._open:
            self._nested += name == self._open
            return
        if name.lower() in _PROSE_TAGS or name.lower() in _CLOSED_AT_ONCE:
            return
        before = self._line[:begin]
        if before[-1:].isalnum() and name not in _NEVER_MENTIONED:
            return
        self._open, self._nested = name, 1
        self._opened_at = at
        self._fresh = begin <= len(self._line) and not before.strip()
