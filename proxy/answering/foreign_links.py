"""Takes links and images out of an answer that lead where nobody pointed: to hosts that are no source, no user's and no
client's. Handed the text behind the citer, in pieces, with its citations; hands on the text in which a foreign address
is but its host, as code (`[here](https://x.example/?q=1)` reads ``[here] (`x.example`)``), and the citations where they
stand now.

What is not surely harmless is made harmless, so that no trick has to be known: a destination stays if it is plainly
spelled and known, HTML if it is one of a few tags without attributes, code if every renderer sees code. Whatever the
pieces, the outcome is the same; at most MOST_URL characters wait for more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from providers.text.patterns import pattern

from ..values.events import Citation, TextDelta
from ..values.markdown import is_escaped
from . import addresses
from .addresses import MOST_HOST, MOST_URL
from .fenced_code import LONGEST, FencedCode
from .rewritten_text import LOOK_BACK, RewrittenText

_HOLD = -1
_MOST_SPAN = 300  # characters of code within a line

_ODD_SPACES = "\x0b\x0c\x85\u2028\u2029"
_SPECIAL = pattern(rf"[\]<&`$\r\n{_ODD_SPACES}]|!\[|(?:https?|ftp)\\?:|www\\?\.|//", re.IGNORECASE)
_HALF = pattern(r"(?:h(?:t(?:t(?:ps?\\?)?)?)?|f(?:tp?)?|ftp\\|ww?|www\\?|[!/])\Z", re.IGNORECASE)
_BOUNDARIES = " \n\t("
_MAY_STAND_BEFORE_CODE = _BOUNDARIES + "\"'*_|>"
_LINE_END = pattern(r"[\r\n]")
_LINE_HEAD = pattern(r"[\r\n][ \t>]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t][ \t>]*+)*+\Z")
_TICKS = pattern("`+")
_DESTINATION = pattern(r" ?([^\s()<>]*)")
_DEFINED = pattern(r"[ \t]*(?:(?:\r\n?|\n)[ \t]*)?(\S*)")
_ALONE = pattern(r"!\[[^\[\]`\\<]*\Z")  # an image whose words are nothing but words
_TAG_END = pattern(r"[>\n\r<`]")
_HARMLESS_TAG = pattern(r"</?(?:b|br|em|i|kbd|mark|s|small|strong|sub|sup|u)\s?/?>|</a>", re.IGNORECASE)
_TAG_BEGINS = pattern(r"[A-Za-z/!?]")
_ENTITY = pattern(r"&(?:#[xX]?[0-9A-Fa-f]{1,8}|[A-Za-z]{1,31});?")
_HALF_AN_ENTITY = pattern(r"&(?:#[xX]?[0-9A-Fa-f]{0,8}|[A-Za-z]{0,31})")
# Characters that an address is made of, and their names.
_ADDRESS_NAMES = frozenset({"colon", "sol", "bsol", "period", "commat"})


class ForeignLinks:
    """`may_link` is asked for a host, `may_load` for the address of an image and its host: that is fetched without
    anybody's click."""

    def __init__(self, may_link: Callable[[str], bool], may_load: Callable[[str, str], bool]) -> None:
        self._may_link = may_link
        self._may_load = may_load
        self._code = FencedCode()
        self._step: Callable[[ForeignLinks, str, int], int] = ForeignLinks._line
        self._tail, self._held = "\n", ""
        self._ending = self._final = False
        self._gap = False  # was the text broken off here? Then its two ends must not grow together
        self._stray = False  # may a backtick in this paragraph find another partner than ours?
        self._images = 0  # how many may be open
        self._text = RewrittenText()

    def feed(self, events: Iterable[TextDelta | Citation]) -> list[TextDelta | Citation]:
        texts = []
        for event in events:
            if isinstance(event, TextDelta):
                texts.append(event.text)
            else:
                self._text.expect(event)
        if text := "".join(texts):
            self._bridge(text)
            self._go_on(text)
        return self._text.take()

    def flush(self) -> list[TextDelta | Citation]:
        """What is held back, at the end of all text."""
        self._final = True
        return self.release()

    def release(self) -> list[TextDelta | Citation]:
        """The same where it is broken off. What comes later does not complete it."""
        within_a_line = bool(self._held) or not self._tail.endswith("\n")
        if within_a_line and self._step in (ForeignLinks._line, ForeignLinks._code_line):
            self._code.distrust()  # whether this line opens or closes a block nobody will know
        self._ending = True
        self._go_on("")
        self._ending = False
        self._gap = True
        return self._text.take()

    def end_round(self) -> list[TextDelta | Citation]:
        """The same where the model is asked again: some show what comes then apart, outside of code left open here."""
        released = self.release()
        if self._code.inside:
            self._code.distrust()
        return released

    def _bridge(self, text: str) -> None:
        if self._gap and not self._code.inside and not (self._tail[-1:].isspace() or text[0].isspace()):
            self._text.put(0, " ")
            self._tail += " "
            self._step = ForeignLinks._prose
        self._gap = False

    def _go_on(self, text: str) -> None:
        i = len(self._tail)
        text = self._tail + self._held + text
        while i < len(text) and (stop := self._step(self, text, i)) != _HOLD:
            i = stop
        self._held = text[i:]
        self._tail = text[max(0, i - LOOK_BACK) : i]

    def _pass(self, text: str, i: int, stop: int) -> int:
        if stop > i:
            self._text.keep(text[i:stop])
        return stop

    # The steps. Each is handed the text and a place in it, and says how far it read, or _HOLD: more must come first.

    def _line(self, text: str, i: int) -> int:
        found = _LINE_END.search(text, i, i + LONGEST)
        line = text[i : found.start() if found else i + LONGEST]
        complete = found is not None or len(line) == LONGEST or self._ending
        code = self._code.begin(line, complete=complete)
        if code is None:
            return _HOLD
        if code or (found and self._code.blank):
            self._stray, self._images = False, 0
        self._step = ForeignLinks._code_line if code else ForeignLinks._prose
        return i

    def _code_line(self, text: str, i: int) -> int:
        found = _LINE_END.search(text, i)
        if found is None or found.start() > i:
            return self._pass(text, i, found.start() if found else len(text))
        return self._end_line(text, i)

    def _end_line(self, text: str, i: int) -> int:
        """A lone carriage return ends a line for some and not for others: it becomes what ends it for all."""
        if text[i] == "\n":
            self._pass(text, i, i + 1)
        elif i + 1 == len(text) and not self._ending:
            return _HOLD
        elif text.startswith("\r\n", i):
            self._step = ForeignLinks._line
            return self._pass(text, i, i + 2)
        else:
            self._text.put(1, "\n")
        self._step = ForeignLinks._line
        return i + 1

    def _prose(self, text: str, i: int) -> int:
        found = _SPECIAL.search(text, i)
        if found is None:
            half = None if self._ending else _HALF.search(text, max(i, len(text) - 6))
            stop = half.start() if half else len(text)
            return self._pass(text, i, stop) if stop > i else _HOLD
        if found.start() > i:
            return self._pass(text, i, found.start())
        char = text[i]
        if char in "\r\n":
            return self._end_line(text, i)
        if char in _ODD_SPACES:
            self._text.put(1, " ")
            return i + 1
        return _STEPS.get(char, ForeignLinks._address)(self, text, i)

    def _dollar(self, text: str, i: int) -> int:
        self._stray = True  # backticks within a formula are none
        return self._pass(text, i, i + 1)

    def _bang(self, text: str, i: int) -> int:
        self._images += 1
        return self._pass(text, i, i + 2)

    def _ticks(self, text: str, i: int) -> int:
        """Code within a line stays if it ends in this line, and no renderer could pair its backticks otherwise."""
        self._stray = self._stray or addresses.reaches_to_the_end(self._text.end)
        if self._stray or is_escaped(self._text.end):
            return self._pass(text, i, i + 1)
        if self._text.end.endswith("`"):  # ours: two runs must not become one
            self._text.put(0, " ")
        found = _LINE_END.search(text, i, i + _MOST_SPAN)
        stop = found.start() if found else min(len(text), i + _MOST_SPAN)
        open_end = found is None and stop < i + _MOST_SPAN and not self._ending
        whole = found is not None or (self._ending and stop == len(text))  # else the last run may be longer
        runs = [run for run in _TICKS.finditer(text, i, stop) if whole or run.end() < stop]
        closing = next((run for run in runs[1:] if len(run[0]) == len(runs[0][0])), None) if runs else None
        if closing is None and open_end:
            return _HOLD
        if closing is None or "|" in text[i : closing.start()]:  # cells of a table come first
            self._stray = True
            return self._pass(text, i, i + 1)
        return self._pass(text, i, closing.end())

    def _bracket(self, text: str, i: int) -> int:
        follows = text[i + 1 : i + 2]
        if not follows and not self._ending:
            return _HOLD
        if follows == "(":
            return self._destination(text, i)
        if follows == ":":
            return self._definition(text, i)
        return self._pass(text, i, i + 1)

    def _destination(self, text: str, i: int) -> int:
        """`](…`: of a link or an image. What may not lead there leads nowhere with a blank between the brackets."""
        found = _DESTINATION.match(text, i + 2, i + 2 + MOST_URL)
        assert found is not None
        url, stop = found[1], found.end()
        site = addresses.site_of(url)
        if site and not self._images:  # its host is over, whatever comes
            return self._decide_link(text, i, found.start(1) + len(site), addresses.host_in(site))
        too_long = stop == i + 2 + MOST_URL
        if stop == len(text) and not too_long and not self._ending:
            return _HOLD
        stands_alone = site or self._host_is_over(text, found.start(1))
        if stands_alone is None:
            return _HOLD
        follows = text[stop : stop + 1] or ("\n" if self._final else "")
        harmless = not too_long and stands_alone and self._is_harmless_destination(url, follows)
        if self._images and _ALONE.search(text, max(0, i - LOOK_BACK), i):
            self._images -= 1
        if harmless:
            return self._pass(text, i, stop)
        return self._part_brackets(i, "] (")

    def _decide_link(self, text: str, i: int, stop: int, host: str) -> int:
        if not self._may_link(host):
            return self._part_brackets(i, "] (")
        self._step = ForeignLinks._rest
        return self._pass(text, i, stop)

    def _host_is_over(self, text: str, begin: int) -> bool | None:
        """Who sees no link here sees an address in running text: with a host alone in the brackets, what stands behind
        these must not belong to it. None: more must be known."""
        opening = addresses.OPENING.match(text, begin)
        if opening is None:
            return True
        end = addresses.AUTHORITY_END.search(text, opening.end(), opening.end() + MOST_HOST)
        if end is None and len(text) - opening.end() < MOST_HOST and not self._ending:
            return None
        stop = end.start() if end else opening.end() + MOST_HOST
        return bool(addresses.host_of_text(opening[0], text[opening.end() : stop])[0])

    def _is_harmless_destination(self, url: str, follows: str) -> bool:
        """`follows` is what stands behind it; nothing, where the text was broken off."""
        if not url:
            return follows == ")"
        if addresses.is_relative(url):
            return follows in (")", "(") or follows.isspace()
        if follows != ")" and not follows.isspace():
            return False
        host = addresses.host_in(url)
        if addresses.is_tidy(url) and self._may_load(url, host):
            return True
        return bool(host) and not self._images and self._may_link(host)

    def _part_brackets(self, i: int, parted: str) -> int:
        self._text.keep(parted[0])  # a citation may end with it
        self._text.put(1, parted[1:])
        return i + 2

    def _definition(self, text: str, i: int) -> int:
        """`]: …` may say where links and images of this name lead. It must not where an image may not be loaded."""
        found = _DEFINED.match(text, i + 2, i + 2 + MOST_HOST)
        assert found is not None
        over = found.end() < min(len(text) + self._final, i + 2 + MOST_HOST)
        if not over and len(text) < i + 2 + MOST_HOST and not self._ending:
            return _HOLD
        url = found[1]
        known = addresses.is_tidy(url) and self._may_load(url, addresses.host_in(url))
        if over and (addresses.is_ordinary(url) or known):
            return self._pass(text, i, i + 2)
        return self._part_brackets(i, "] :")

    def _angle(self, text: str, i: int) -> int:
        """`<`: HTML, or an address in angles."""
        follows = text[i + 1 : i + 2]
        alone = not follows and self._ending
        if alone or (follows and not _TAG_BEGINS.match(follows)) or self._is_escaped():
            return self._pass(text, i, i + 1)
        end = _TAG_END.search(text, i + 1, i + MOST_HOST)
        if end is None and len(text) - i < MOST_HOST and not self._ending:
            return _HOLD
        if end and end[0] == ">" and self._is_harmless(text, i):
            return self._pass(text, i, end.end())
        self._text.put(1, " &lt;" if addresses.reaches_to_the_end(self._text.end) else "&lt;")
        return i + 1

    def _is_escaped(self) -> bool:
        """By a backslash that nobody takes for the end of an address."""
        return is_escaped(self._text.end) and not addresses.reaches_to_the_end(self._text.end)

    def _is_harmless(self, text: str, i: int) -> bool:
        if link := addresses.AUTOLINK.match(text, i):
            return self._may_link(addresses.as_ascii(link[1]))
        if _LINE_HEAD.search(text, max(0, i - LOOK_BACK), i):  # here HTML could begin that no Markdown is read in
            return False
        anchor = addresses.ANCHOR.match(text, i)
        if anchor:
            return self._may_link(addresses.as_ascii(anchor[2]))
        return _HARMLESS_TAG.match(text, i) is not None

    def _ampersand(self, text: str, i: int) -> int:
        """A letter or a sign of an address, written as `&#…;`, is one for who looks for addresses afterwards."""
        half = _HALF_AN_ENTITY.match(text, i)
        if half and half.end() == len(text) and not self._ending and len(half[0]) < 33:
            return _HOLD
        entity = _ENTITY.match(text, i)
        if entity and _is_of_address(entity[0].strip("&;")) and not self._is_escaped():
            self._text.put(1, "&amp;")
        else:
            self._pass(text, i, i + 1)
        return i + 1

    def _address(self, text: str, i: int) -> int:
        """An address in running text."""
        opening = addresses.OPENING.match(text, i, i + MOST_HOST)
        if opening is None or (opening.end() == len(text) and not self._ending):
            return self._no_address(text, i)
        if opening[0] == "//" and text[i - 1] in ":/":
            return self._pass(text, i, i + 2)
        begin = opening.end()
        end = addresses.AUTHORITY_END.search(text, begin, begin + MOST_HOST)
        if end is None and len(text) - begin < MOST_HOST and not self._ending:
            return _HOLD
        stop = end.start() if end else min(len(text), begin + MOST_HOST)
        host, length = addresses.host_of_text(opening[0], text[begin:stop])
        if host and (end or self._ending) and self._may_link(host):
            stop = begin + length
            # In the middle of a word it is no link to all, and what it holds further on may be one.
            if text[stop : stop + 1] in ("/", "?", "#") and text[i - 1] in _BOUNDARIES:
                self._step = ForeignLinks._rest
            return self._pass(text, i, stop)
        apart = "" if self._text.end[-1] in _MAY_STAND_BEFORE_CODE else " "
        self._text.put(begin - i, apart + addresses.shown(text[begin:stop]))
        self._step = ForeignLinks._gone
        return begin

    def _no_address(self, text: str, i: int) -> int:
        """`https:`, `www.` or `//`, and no host behind it; or not yet."""
        special = _SPECIAL.match(text, i)
        assert special is not None
        short = len(text) - i < MOST_HOST and not self._ending
        if short and addresses.HALF_OPENING.fullmatch(text, i):
            return _HOLD
        return self._pass(text, i, special.end())

    def _rest(self, text: str, i: int) -> int:
        """Of an address that may stay."""
        found = addresses.REST.match(text, i)
        assert found is not None
        if found.end() < len(text):
            self._step = ForeignLinks._prose
        return self._pass(text, i, found.end())

    def _gone(self, text: str, i: int) -> int:
        """The same of one that may not."""
        found = addresses.GONE.match(text, i)
        assert found is not None
        punctuation = addresses.SENTENCE_END.search(text, i, found.end())
        stop = punctuation.start() if punctuation else found.end()
        if found.end() < len(text) or self._ending:
            self._step = ForeignLinks._prose
        elif stop == i:
            return _HOLD
        self._text.put(stop - i, "")
        return stop


_STEPS: dict[str, Callable[[ForeignLinks, str, int], int]] = {
    "]": ForeignLinks._bracket,
    "<": ForeignLinks._angle,
    "&": ForeignLinks._ampersand,
    "`": ForeignLinks._ticks,
    "$": ForeignLinks._dollar,
    "!": ForeignLinks._bang,
}


def _is_of_address(entity: str) -> bool:
    """Is it a character that addresses are made of?"""
    if not entity.startswith("#"):
        return entity.lower() in _ADDRESS_NAMES
    number = int(entity[2:], 16) if entity[1] in "xX" else int(entity[1:]) if entity[1:].isdigit() else -1
    return 0 <= number < 128 and (chr(number).isalnum() or chr(number) in ":/.\\@%")
