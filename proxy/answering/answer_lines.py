"""The lines of an answer, as far as they matter to a place in the last one. Handed the answer in pieces; says how the
current line begins and ends, and what the lines before it make of it: part of a diff, of values with commas between
them, of a list of sources, of a tag's content.
"""

from __future__ import annotations

from providers.text.patterns import pattern

from .enclosures import Enclosures

MOST_KNOWN = 160  # characters at the beginning and at the end of a line

_CODE = pattern("[^`~]+")
_ITEM = pattern(r"[ \t>]*(?:[-*+•‣◦–]|\d{1,3}[.)])[ \t]")
_DIFF_BEGINS = pattern(r"diff --git |@@ -\d|\+\+\+ \S")
_DIFF_LINE = pattern(r"[-+ @\\]|diff |index ")
_DIFF_LINE_AFTER_BLANK = pattern(r"[-+](?! )|@@|diff |index ")
_HEADER_KEY = pattern(r"[a-z_][\w-]*:(?:\s|$)")
# A comma without a blank behind it, which is not inside a number, between two markers, or in Chinese or Japanese.
_VALUE = r"[^\s,\[\]【】\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]"
_GLUED_COMMA = pattern(rf"(?<={_VALUE}),(?={_VALUE})(?!(?<=\d,)\d{{1,3}}(?!\d))")
_SOURCE_LINE = pattern(r"[ \t]*(?:(?:[-*+•]|\d{1,3}[.)]) +)?(?:\[\d{1,3}\]|【\d{1,3}(?:†[^】]*)?】)[ \t]+\S")
_GOES_ON = pattern(r"[ \t]|https?:|<https?:")
_AROUND_HEADING = "#*_:：= \t\r.-–—>"
_SOURCE_HEADINGS = frozenset(
    (
        *("source", "sources", "reference", "references", "citation", "citations", "sources cited", "works cited"),
        *("bibliography", "further reading", "links", "sources and references", "list of sources", "source list"),
        *("quelle", "quellen", "quellenangaben", "quellenverzeichnis", "literatur", "referenzen", "einzelnachweise"),
        *("référence", "références", "bibliographie", "sources et références", "source(s)"),
        *("fuente", "fuentes", "referencia", "referencias", "bibliografía"),
        *("fonte", "fonti", "riferimenti", "fontes", "referências"),
        *("bronnen", "źródła", "källor", "kilder", "kaynaklar"),
        *("参考", "参考文献", "参考资料", "参考来源", "参考链接", "来源", "资料来源", "信息来源", "引用", "引用来源"),
        *("參考", "參考文獻", "參考資料", "來源", "資料來源"),
        *("出典", "参照", "参考資料", "参考サイト", "参考リンク", "情報源", "引用元", "ソース"),
        *("출처", "참고", "참고 문헌", "참고문헌", "참고 자료", "참고자료"),
        *("المصادر", "المراجع", "مصادر", "مراجع"),
        *("источник", "источники", "ссылки", "литература", "список источников", "джерела"),
        *("स्रोत", "संदर्भ", "सन्दर्भ"),
    )
)


class AnswerLines:
    def __init__(self) -> None:
        self.head = ""  # the first characters of this line
        self.tail = ""  # its last ones
        self.length = 0  # of all of it
        self.margin = 0  # how far the text of the list item is indented that is open; 0: none is
        self.in_sources = False  # the lines above are the heading of a list of sources, or lines of one
        self._enclosures = Enclosures()
        self._diff = self._paused = False  # paused: by a blank line
        self._header = ""  # of a document: "begun" behind a line `---`, "open" where its keys stand
        self._values = False  # the line above holds values with commas between them

    @property
    def is_data(self) -> bool:
        """Do the lines above, or a tag, make this line one that a program reads?"""
        if self._enclosures.open:
            return True
        if self._diff and self._is_diff_line():
            return True
        if self._header and (self._header == "open" or _HEADER_KEY.match(self.head)):
            return True
        return _count_values(self.head) >= (1 if self._values else 2)

    def read(self, text: str, code: bool = False) -> None:
        """`code` is what Markdown shows as code, in a line or over many."""
        begin = 0
        while (end := text.find("\n", begin)) >= 0:
            self._extend(text[begin:end], code)
            self._end_line(code)
            begin = end + 1
        self._extend(text[begin:], code)

    def _extend(self, piece: str, code: bool) -> None:
        if not piece:
            return
        if code:  # what stands in it says nothing about the line around it
            piece = _CODE.sub(lambda said: "·" * len(said.group()), piece)
        if self.length < MOST_KNOWN:
            self.head += piece[: MOST_KNOWN - self.length]
        self.tail = (self.tail + piece)[-MOST_KNOWN:]
        self.length += len(piece)
        if code:
            self._enclosures.skip(piece)
        else:
            self._enclosures.read(piece)

    def _end_line(self, code: bool) -> None:
        line = self.head.rstrip()
        self._enclosures.end_line()
        if code:
            self._diff, self._header, self._values, self.in_sources = False, "", False, False
        elif line:
            self._note(line)
        else:
            self._paused, self._header, self._values = True, "", False
        self.head = self.tail = ""
        self.length = 0

    def _note(self, line: str) -> None:
        """What a line that is not blank means for those below it."""
        self._diff = _DIFF_BEGINS.match(line) is not None or (self._diff and self._is_diff_line())
        self._paused = False
        self._header = self._header_behind(line)
        self._values = _count_values(line) >= 2 or (self._values and "," in line)
        if item := _ITEM.match(line):
            self.margin = len(item.group().expandtabs(4))
        elif not line.startswith(("  ", "\t")):
            self.margin = 0
        self.in_sources = is_source_heading(line) or (
            self.in_sources and (_SOURCE_LINE.match(line) or _GOES_ON.match(line)) is not None
        )

    def _is_diff_line(self) -> bool:
        return (_DIFF_LINE_AFTER_BLANK if self._paused else _DIFF_LINE).match(self.head) is not None

    def _header_behind(self, line: str) -> str:
        if line == "---":
            return "" if self._header else "begun"
        if self._header == "begun":
            return "open" if _HEADER_KEY.match(line) else ""
        return self._header


def _count_values(line: str) -> int:
    """How many commas stand between values, not between words."""
    return len(_GLUED_COMMA.findall(line)) if "," in line else 0


def is_source_heading(line: str) -> bool:
    return len(line) <= 60 and line.strip(_AROUND_HEADING).casefold() in _SOURCE_HEADINGS
