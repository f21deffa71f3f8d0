"""Where prose cites: whether a marker at a place of an answer is a citation, or belongs to code or data. Handed the
answer in pieces, and at each marker what stands right behind it; says yes, no, or that more must be known.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from providers.text.patterns import pattern
from tools.ledger import Source

from ..values.markdown import is_escaped
from .answer_lines import MOST_KNOWN, AnswerLines, is_source_heading
from .code_lines import is_code, is_statement, may_be_ended
from .sentences import CLOSERS, ENDS, goes_on, is_short_form

MOST_AHEAD = 9  # characters behind a marker that can matter
MOST_ROW = 55  # characters of a row of markers that a line begins with, and of the word behind it

_BLANKS = " \t\u00a0\u202f\u3000\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u205f"
_COLUMN = 4  # so many blanks set columns apart
_MOST_BETWEEN = 4  # characters between two markers that belong together
_LINE_BEGIN = pattern(
    r"(?:[ \t>|]|[-*+•‣◦–](?=[ \t])|\d{1,3}[.)](?=[ \t])|\.{2,3}(?=[ \t])|#{1,6}(?=[ \t])|\[[ xX]\](?=[ \t]))*"
)
_BULLET = pattern(r"[ \t]*(?:(?:[-*+•]|\d{1,3}[.)])[ \t]+)?")
_BARE_NUMBERS = pattern(r"\[\[?\d{1,3}(?:, ?\d{1,3})*\]{1,2}|【[^】]*】?")
_JOINING_WORD = r"(?<!\w)(?:and|to|or|und|bis|oder|et|ou|y|e|o|ed|en|of|og|i|и)(?!\w)"
_JOINING = pattern(rf"\d{{1,3}}[.)](?=\s)|{_JOINING_WORD}", re.IGNORECASE)
_WORDS = pattern(r"\w")
_IS_NUMBER = pattern(rf"[{_BLANKS}]*\[\[?\d{{1,3}}\]")
_MAY_BE_NUMBER = pattern(r"\[\[?\d{0,3}")
_NO_SENTENCES = pattern(r"[ \t>]*(?:#{1,6}[ \t]|\|)")  # a heading, a row of a table
_ITEM_OF_WORDS = pattern(r"[ \t>]*(?:[-*+•‣◦–]|\d{1,3}[.)])[ \t]+(?![*_]{2}[^*_]*[*_]{2}$)")
_SENTENCE_ENDS = frozenset(ENDS)
_BETWEEN_MARKERS = pattern(rf"[{_BLANKS},;&/–—-]*")

# The end of a sentence, a bracket, a quotation; what follows a number.
_ENDS = frozenset(".!?…。！？．｡؟؛।॥۔፡።၊။⁇‼⁉)）〕］｝〉》」』】〙〛%‰٪°′″™®©†‡¹²³，、；،`")
_QUOTES = "\"'“”„‟‘’‚‛«»‹›"
_EMPHASIS = "*_~"
_BEFORE_TITLE = "*_\"'“„«<[("
_LIKE_NAME = 40  # characters of a title or an address that tell it from others
_LIST_SIGNS = " \t>|-*+•#_~"
_AUTOLINK = pattern(r"<(?:https?://|mailto:)[^\s<>]*>\Z", re.IGNORECASE)
_END_OF_EMPHASIS = pattern(r"</(?:a|abbr|b|cite|del|em|i|ins|mark|q|s|small|span|strong|sub|sup|u)>\Z", re.IGNORECASE)
_NAME_WITH_SIGN = pattern(r"(?:(?<!\w)[A-Z][A-Za-z0-9]*\+{1,2}|\d\+|(?<!\w)[A-Z]#)\Z")
_BRACKETED_WORDS = pattern(r"\[[^\[\]]*[^\W\d_]{2}[^\[\]]*\]\Z")
_COMMAND = pattern(r"\\[A-Za-z]+\*?\Z")
_PARENTHESIS = pattern(r"[()]")
_CALL = pattern(r"(?:(?<!\w)[a-z_]\w*|\w\.\w+)!?\(", re.ASCII)
_OPEN_INDEX = pattern(r"\w\[[^\[\]]*\Z")
_MEMBER_OF_SET = pattern(r"(?<!\w)(?:[a-z]|[a-z]\w*_\w+)\s+in\Z")
# Behind these words two numbers and more are a value.
_VALUE_FOLLOWS = pattern(
    r"\b(?:interval|intervall|intervalle|intervalo|intervallo)s?\Z|\bin (?:the )?range\Z|区[间間]\Z|"
    r"\b(?:is|are|(?:represented|written|given|stored) as)\Z",
    re.IGNORECASE,
)
# An item of something is meant by a bracket that sticks to a word, where this stands before it in the line.
_EXPRESSION = pattern(r"[={}]\s*(?:\S+\s+)?\S*\Z|\w\[0\]|\w\[\d\] ?[+*/<>] ?\w")
_CONDITION = pattern(
    r"[ \t]*(?:assert|case|del|elif|else|for|if|print|puts|return|switch|unless|until|when|while|yield)\b"
)
_GOES_ON_AS_CODE = pattern(r"\.[a-z]|[-*/+%][\w(]|[ \t]*(?:[-+*/%|&^<>!=]==?|<-|[+<>])\s", re.ASCII)
_MAY_GO_ON_AS_CODE = pattern(r"\.|[ \t]*(?:[-*/%|&^+<>!=]={0,2}|<-)")
_OPEN_FORMULA = pattern(r"\\\((?:(?!\\\)).)*\Z|(?<![\w$])\$(?=[^\s\d$])[^$]*[\\^_=][^$]*\Z")
_STATEMENT_MAY_END = pattern(r";[ \t\r]*")
# A line that begins with markers is a sentence if a small word follows them; else it may be an item of a list.
_BETWEEN_ROW = rf"(?:[{_BLANKS},;&]|{_JOINING_WORD})"
_ROW = pattern(rf"(?:{_BETWEEN_ROW}{{0,6}}(?:{_BARE_NUMBERS.pattern}))*", re.IGNORECASE)
_MAY_BE_ROW = pattern(
    rf"{_BETWEEN_ROW}*(?:['’]?[^\W\d_]*[{_BLANKS}]*|\[\[?[\d, ]{{0,12}}\]?|【[^】]{{0,8}})", re.IGNORECASE
)
# A word alone may be a choice or a chapter: `[1] yes`.
_SMALL_WORD = pattern(
    rf"{_BETWEEN_ROW}*(?:(?<=[{_BLANKS}])(?=[^\W\d_]{{2}})(\w++)(?![:=/(\[\\]|[{_BLANKS}]*(?:\n|\Z))|['’](s)(?=[{_BLANKS}]))"
)
_WORD = pattern(r"[^\W\d_]{2,}")
_IS_WORDS = 3  # so many of them are a sentence, so far
_SENTENCE_GOES_ON = frozenset((*".,;:!?)\n", ""))
_LABEL = pattern(r"(?:^|[(*_]|[.!?\])][ \t]+)[*_ \t]*([^:：(*_.!?\])]+)[*_]*[:：][*_]*\Z")
_SOURCE_WORDS = pattern(rf"[{_BLANKS}]+[\w\"'“„«‘*\[<(「『《（【–—-]")

_IDENTIFIER = pattern(r"(?<!\w)[A-Za-z_][A-Za-z0-9_]*\Z")
# A name that only a program would use: x, x_1, x1, rowData. Not GPT4, CO2, 1990s, OpenAI, macOS, iPhone, _emphasis_.
_PROGRAM_NAME = pattern(r"[A-Za-z]|\w*[A-Za-z0-9]_[A-Za-z0-9]\w*|[a-z]+[0-9]\w*|[a-z]{2,}[A-Z][a-z]\w*")
_MEMBER_OF = pattern(r"(?:[$@]|->|::|[\w)\]]\.)\Z")
_ARRAY_NAME = pattern(
    "arr(ay)?|arg[sv]|ba[rz]|buf|cols?|data|dict|foo|items|li?st|map|mat(rix)?|nums|rows?|str|tuple|vec|[xyz]s"
)
# In the middle of a sentence these are words: hepatitis B, vitamin C, according to recent data.
_PROSE_WORD = pattern("[A-Z]|data|items|list|map")
_AFTER_A_WORD = pattern(r"[a-z]{2} \Z")
_AFTER_DOT = pattern("com|org|net|edu|gov|js")  # example.com and Node.js are words that hold a dot


class CitingPlaces:
    """`in_sentences`: may a marker be a part of its sentence, such as its subject? Not if markers are not shown."""

    def __init__(self, *, in_sentences: bool = True) -> None:
        self._in_sentences = in_sentences
        self._lines = AnswerLines()
        self._last_marker = -1  # where the last marker of this line ended
        self._in_row = False  # does this line begin with markers that a sentence follows?
        self._judged_at = -1  # how long the line was when it was last judged
        self._is_code = self._may_hold_marker = False  # and how

    def read(self, text: str, code: bool = False) -> None:
        """`code` is what Markdown shows as code."""
        if "\n" in text:
            self._last_marker = self._judged_at = -1
            self._in_row = False
        self._lines.read(text, code)

    def marked(self, marker: str) -> None:
        """A marker was read, and counts. Another one may follow it at once."""
        self.read(marker)
        self._last_marker = self._lines.length

    def may_hold_marker(self) -> bool:
        """Is the line, up to here, none that a program reads?"""
        lines = self._lines
        if self._judged_at != lines.length:
            if self._judged_at < MOST_KNOWN:  # beyond that nothing is known that was not before
                self._is_code = is_code(lines.head, lines.margin)
            self._judged_at = lines.length
            self._may_hold_marker = not self._is_code and not lines.is_data
        return self._may_hold_marker

    def may_end_sentence(self, follows: str) -> bool:
        """May a sentence of running text end here? `follows` is the first character behind it that is not blank."""
        lines = self._lines
        if not self.may_hold_marker() or lines.in_sources or _NO_SENTENCES.match(lines.head):
            return False
        if follows in ("[", "【"):
            return False  # the model's own marker, it may be
        before = lines.tail.rstrip(CLOSERS)
        if before[-1:] in _SENTENCE_ENDS:
            return not goes_on(follows) and not is_short_form(before)
        # Without a full stop a line is a heading as well as a sentence, but for an item of a list.
        return follows == "\n" and _ITEM_OF_WORDS.match(lines.head) is not None and not lines.tail.endswith("  ")

    def cites(self, numbers: str, after: str, ended: bool) -> bool | None:
        """Is a marker with these numbers a citation here? `after` is what stands behind it; None: too little does.
        With `ended` there is no more of it to know."""
        near = after[:MOST_AHEAD]
        if not ended and len(near) < MOST_AHEAD and self._is_too_short(near):
            return None
        follows = near.lstrip(_BLANKS)
        if follows.startswith("=") or (self._lines.length <= MOST_KNOWN and is_statement(self._lines.head, follows)):
            return False
        if self._begins_line():
            return self._begins_source(near) or (self._in_sentences and self._begins_sentence(after, ended))
        if not self._says_anything():
            return self._in_row
        if self._follows_marker() or self._is_cited(numbers, near):
            return True
        return self._in_sentences and self._goes_on(numbers, near)

    def _is_too_short(self, after: str) -> bool:
        """Could more text behind the marker change what it is? Mostly the first character that is not blank decides."""
        follows = after.lstrip(_BLANKS)
        if not follows or (_STATEMENT_MAY_END.fullmatch(follows) and may_be_ended(self._lines.head)):
            return True
        if _MAY_GO_ON_AS_CODE.fullmatch(after) and _ends_like_name(self._lines.tail):
            return True
        if _MAY_BE_NUMBER.fullmatch(follows) and self._lines.in_sources and self._begins_line():
            return True
        opened = _emphasis(self._lines.tail)
        if opened and after.startswith(opened):
            return not after[len(opened) :].lstrip(_BLANKS)
        return len(after) < len(opened) and opened.startswith(after)

    def _says_anything(self) -> bool:
        """Is there more in this line than numbers in brackets and what joins them? Such a list cites nothing."""
        lines = self._lines
        said = lines.head if lines.length <= MOST_KNOWN else f"{lines.head} {lines.tail}"
        without, count = _BARE_NUMBERS.subn(" ", said)
        return not count or _WORDS.search(_JOINING.sub(" ", without)) is not None

    def _begins_line(self) -> bool:
        head = self._lines.head
        begin = _LINE_BEGIN.match(head.rstrip(_EMPHASIS) + " ")
        return begin is not None and begin.end() > len(head.rstrip(_EMPHASIS)) and self._lines.length == len(head)

    def _begins_source(self, after: str) -> bool:
        """A line of a list of sources that the model wrote itself: `[1] Title`."""
        lines = self._lines
        if not lines.in_sources or _BULLET.fullmatch(lines.head) is None or _IS_NUMBER.match(after):
            return False
        return _SOURCE_WORDS.match(after) is not None

    def lists(self, source: Source, after: str, ended: bool) -> bool | None:
        """Does the line begin with this marker, and with the title or the address of its source behind it?"""
        if not self._in_sentences or not self._begins_line():
            return False
        said = after.lstrip(_BLANKS + _BEFORE_TITLE).casefold()
        for name in (source.title.casefold(), source.url.casefold()):
            if name and said.startswith(name[:_LIKE_NAME]) and (ended or len(said) > len(name)):
                return len(name) >= _LIKE_NAME or not said[len(name) : len(name) + 1].isalnum()
            if not ended and name.startswith(said):
                return None
        return False

    def _begins_sentence(self, after: str, ended: bool) -> bool | None:
        """`[1] says so`, `[1] and [2] agree`. Not `[1] Title`, `[1] 3 5 7`, `[1], [2] and [3]`."""
        head = self._lines.head
        behind = after.removeprefix(_emphasis(head))
        row = _ROW.match(behind)
        behind = behind[row.end() :] if row else behind
        if not ended and _MAY_BE_ROW.fullmatch(behind):
            return None
        word = _SMALL_WORD.match(behind)
        small = word is not None and (word[1] or word[2])[0].islower()
        self._in_row = ".." not in head and (small or _is_unspaced(behind[:1]))
        return self._in_row

    def _goes_on(self, numbers: str, after: str) -> bool:
        """Behind a comma, a colon or an opening bracket: in the middle of a sentence, not of values."""
        before = self._lines.tail
        opened = _emphasis(before)
        words = before.removesuffix(opened).rstrip(_BLANKS)
        sign, said = words[-1:], words[:-1]
        after = after.removeprefix(opened)
        follows = after.lstrip(_BLANKS)[:1]
        if stands_in_call(words) or _OPEN_INDEX.search(words) or _OPEN_FORMULA.search(words):
            return False
        spaced = before.removesuffix(opened) != words
        count = len(_WORD.findall(words))
        then_word = (after[:1] in _BLANKS and follows.islower()) or _is_unspaced(after[:1])
        if sign in ("", "|"):
            return bool(sign) and spaced and then_word
        if sign == "(":
            named = count >= 2 or (count == 1 and words.lstrip(_LIST_SIGNS)[:1].isupper())
            return not spaced and said[-1:] in tuple(_BLANKS) and named and (then_word or follows in (")", ",", ";"))
        if is_source_label(words):
            return then_word or follows in _SENTENCE_GOES_ON
        if opened and then_word and spaced and _is_end_of_words(words):  # `… and **[1] says**`
            return True
        if not spaced or sign not in (",", ";", ":", "&", "-") or not _is_end_of_words(said.rstrip(_BLANKS)):
            return False
        if then_word:
            return count >= _IS_WORDS or self._last_marker >= 0
        return sign in (",", ";") and "," not in numbers and count > _IS_WORDS and follows in _SENTENCE_GOES_ON

    def _follows_marker(self) -> bool:
        gap = self._lines.length - self._last_marker
        if self._last_marker < 0 or gap > _MOST_BETWEEN:
            return False
        tail = self._lines.tail
        return _BETWEEN_MARKERS.fullmatch(tail, len(tail) - gap) is not None

    def _is_cited(self, numbers: str, after: str) -> bool:
        before = self._lines.tail
        opened = _emphasis(before)
        if opened and after.startswith(opened):
            before = before.removesuffix(opened)  # the marker itself is emphasized
        words = before.rstrip(_BLANKS)
        glued = words == before
        if _stands_in_column(words, len(before) - len(words)) or not _is_end_of_words(words):
            return False
        if stands_in_call(words) or _OPEN_INDEX.search(words) or _OPEN_FORMULA.search(words):
            return False
        if _MEMBER_OF_SET.search(words) or ("," in numbers and _VALUE_FOLLOWS.search(words)):
            return False
        if glued and _ends_like_name(words) and (_EXPRESSION.search(words) or _CONDITION.match(self._lines.head)):
            return False
        return not _is_glued_to_code(words, after, glued)


def is_source_label(words: str) -> bool:
    """`Source:`, `(Quelle:`, `**Sources**:`; in small letters it is a key of data."""
    found = _LABEL.search(words)
    return found is not None and not found[1][0].islower() and is_source_heading(found[1])


def _is_unspaced(char: str) -> bool:
    """A letter of a script in which no blank stands behind a marker."""
    return not char.isascii() and char.isalpha() and not char.isupper() and not char.islower()


def _emphasis(before: str) -> str:
    return before[len(before.rstrip(_EMPHASIS)) :]


def _is_end_of_words(words: str) -> bool:
    """Does this end with a word, or with what closes a sentence, a bracket, a quotation or emphasis?"""
    char = words[-1:]
    if not char:
        return False
    if char.isalnum():
        return _COMMAND.search(words) is None
    if char in _QUOTES or char in _EMPHASIS or char == "$":
        return _closes(words)
    if char in _ENDS:
        return not words.endswith("?.")
    if char in "—–":
        return len(words) > 1
    if char in "+#":
        return _NAME_WITH_SIGN.search(words) is not None
    if char == "]":
        return _BRACKETED_WORDS.search(words) is not None
    if char == ">":
        return bool(_AUTOLINK.search(words) or _END_OF_EMPHASIS.search(words))
    return not char.isascii() and unicodedata.category(char) in ("Mn", "Mc", "Me", "So", "Sc", "Sk", "Cf", "Lm")


def _closes(words: str) -> bool:
    """Is the quotation mark or emphasis at the end one that closes? Then mostly no blank stands before it."""
    inner = words.rstrip(_QUOTES + _EMPHASIS + "$")
    if not inner:
        return False
    if inner[-1] in _BLANKS:
        return _ends_quotation(inner, words[-1])
    return inner[-1] not in "=:([{,<|"


def _ends_quotation(inner: str, mark: str) -> bool:
    """In French, and where people are careless, a blank stands before the mark that closes."""
    if mark == '"':
        return inner.count(mark) % 2 == 1
    return {"»": "«", "”": "“"}.get(mark, "\n") in inner


def _stands_in_column(words: str, blanks: int) -> bool:
    """`a     [1]`: the second column of a table without lines."""
    return blanks >= _COLUMN and len(words.split()) <= 2


def _is_glued_to_code(words: str, after: str, glued: bool) -> bool:
    """`amazing [1]grace`, `[1]{3}`, `file[1].txt`, `f(x)[1]`."""
    follows = after[:1]
    if follows.isalnum():
        sticks = follows.isascii() and words[-1].isascii() and words[-1].isalnum()
    else:
        sticks = follows in tuple("{=^+\\$>")
    if sticks or not glued or not _ends_like_name(words):
        return sticks
    return _GOES_ON_AS_CODE.match(after) is not None or _is_call(words)


def _ends_like_name(text: str) -> bool:
    """Could this be an expression that a bracket behind it takes an item of?"""
    return bool(text) and text[-1].isascii() and (text[-1].isalnum() or text[-1] in "_)")


def _is_call(words: str) -> bool:
    """`f(x)`, `f(g(x))`: what is closed at the end was opened right behind a word."""
    if not words.endswith(")"):
        return False
    begin = _opening(words[:-1])
    char = words[begin - 1 : begin] if begin > 0 else ""
    return char.isascii() and (char.isalnum() or char == "_")


def stands_in_call(words: str) -> bool:
    """`print(a`, `math.sqrt(2 * (a`: a bracket is open that a program's name stands before."""
    called = {found.end() - 1 for found in _CALL.finditer(words)}
    return bool(called) and any(begin in called for begin in _openings(words))


def _opening(words: str) -> int:
    """Where the last parenthesis opens that is not closed again; -1: there is none."""
    return next(_openings(words), -1)


def _openings(words: str) -> Iterator[int]:
    """Where the parentheses open that are not closed again, the last one first."""
    closed = 0
    for found in reversed(list(_PARENTHESIS.finditer(words))):
        if found.group() == ")":
            closed += 1
        elif closed:
            closed -= 1
        else:
            yield found.start()


def may_begin_marker(before: str) -> bool:
    """May a `[` after this text begin a marker? Not if escaped, nor in `[Paris][1]`, `foo()[1]`, `a[1]`, `a[[1]]`."""
    before = before.removesuffix("[")
    if before.endswith(("]", "()")) or is_escaped(before):
        return False
    found = _IDENTIFIER.search(before)
    if found is None:
        return True
    word = found.group()
    if _PROSE_WORD.fullmatch(word) and _AFTER_A_WORD.search(before, 0, found.start()):
        return True
    if _MEMBER_OF.search(before, 0, found.start()):
        return _AFTER_DOT.fullmatch(word) is not None
    return not (_PROGRAM_NAME.fullmatch(word) or _ARRAY_NAME.fullmatch(word))
