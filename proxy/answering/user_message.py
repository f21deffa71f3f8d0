"""A user message, taken apart: what it says, and what it only brings along. Handed its text; hands on its prose without
code, quotations and links, the pages that it names, and its core: the sentences that ask, without their frame. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tools.provenance import normalise, urls_in

from . import phrases
from .question_words import WORD, leans, names_in

LONG = 140  # from here on only the sentences that ask
MOST_NAMES = 3  # taken over from another text

ADDRESS = re.compile(r"(?:https?://|\bwww\.)\S+", re.I)
_FENCED = re.compile(r"(`{3,}|~{3,}).*?(?:\1|\Z)", re.DOTALL)
_PASTED = re.compile(
    r'^[ \t]*>[^\n]*$|"""[\s\S]*?(?:"""|\Z)|"[^"]{80,}"|“[^“”]{80,}”|«[^«»]{80,}»|„[^„“]{80,}“|「[^「」]{80,}」',
    re.MULTILINE,
)
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\((?:https?://[^()\s]*)?\)", re.I)
_OPEN_BRACKET = re.compile(r"[(\[<]\s")  # what is left of a link around an address
_CODE_LINE = re.compile(
    r"\s*(?:(?:def|class|import|from|func|fn|function|const|let|var|public|private|static|void|int|return|using) .*"
    r"[(){};:=\"'\]]|import \w+|#include.*|@\w+|(?:if|for|while|else|try|catch|elif|except)\b.*[{:(]|[)}\]]+[;,]?"
    r"|.*[{};]|\s+\w[\w.\[\]]* ?[-+*/]?=[^=].*|\s+[\w.]+\(.*\)|</?\w+[^>]*>.*|select .* from .*|\$ \w.*|traceback .*"
    r"|return \S+)\s*",
    re.I,
)
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_SYMBOL = re.compile(r"[(){}\[\];=<>+*]")
_SENTENCE = re.compile(r"(?<=[.!?…])(?<![A-Z]\.)(?<!\b(?:Dr|Mr|Ms|St|vs|No)\.)\s+|(?<=[。！？])|\n+")
_LIST_MARK = re.compile(r"\s*(?:[#*•-]+|\d{1,2}[.)])\s+")
_OUTER_MARKS = ' \t\n.!?…。！？,;:，、：；¿¡*_"“”()-–—'
_LONGEST_END = 200  # of a sentence: as far back politeness is looked for


class UserMessage:
    """`pasted`: it quotes somebody; `listing`: it holds code, in a fence or without."""

    def __init__(self, text: str) -> None:
        prose = _PASTED.sub("\n", _FENCED.sub("\n", text))
        self.pasted = len(prose) < len(text)  # a lone `>` quotes nothing
        lines = prose.split("\n")
        code = [line for line in lines if _CODE_LINE.fullmatch(line)]
        unfenced = len(code) > 2 or (len(code) == 2 and len(lines) < 5)
        self.listing = "```" in text or "~~~" in text or unfenced or _has_code_span(prose)
        if unfenced:
            prose = "\n".join(line for line in lines if not _CODE_LINE.fullmatch(line))
        self.urls = list(dict.fromkeys(_urls(prose)))
        prose = _OPEN_BRACKET.sub(" ", ADDRESS.sub(" ", _LINK.sub(r" \1 ", prose)))
        self.prose = _CODE_SPAN.sub(r"\1", prose).strip()
        self.core = _core(self.prose)


def _has_code_span(prose: str) -> bool:
    """Long and full of symbols: a short one is only a name."""
    return any(len(span) > 19 and len(_SYMBOL.findall(span)) > 3 for span in _CODE_SPAN.findall(prose))


def _urls(text: str) -> Iterable[str]:
    for found in ADDRESS.findall(text):
        spelled = urls_in(found)
        whole = found[:4].lower() == "http"
        if len(spelled) > whole and normalise(spelled[whole]):  # with a scheme the second spelling is the trimmed one
            yield spelled[whole]


# The question itself


@dataclass(frozen=True, slots=True)
class _Sentence:
    written: str
    bare: str

    @property
    def is_frame(self) -> bool:
        """An order to the model, or small talk."""
        ordered = phrases.ORDER.match(self.written) or phrases.ORDER.match(self.bare)
        return bool(ordered) or (len(self.bare) < 60 and phrases.SMALL_TALK.fullmatch(self.bare) is not None)


def _core(prose: str) -> str:
    """The sentences that ask, without politeness and without orders to the model."""
    sentences = [_Sentence(written, bare_sentence(written)) for written in _SENTENCE.split(prose)]
    sentences = [sentence for sentence in sentences if WORD.search(sentence.bare)]
    kept = [sentence for sentence in sentences if not sentence.is_frame] or sentences[:1]
    core = [sentence.bare for sentence in kept]
    return " ".join(dict.fromkeys(core if sum(map(len, core)) <= LONG else _asking(kept)))


def _asking(sentences: Sequence[_Sentence]) -> list[str]:
    """Of a long text the sentences that ask, else the first and the last; before them the names they lean on."""
    asking = [sentence.bare for sentence in sentences if phrases.ASKS.match(sentence.written)]
    asking = asking or [sentences[0].bare, sentences[-1].bare]
    if not leans(" ".join(asking)):
        return asking
    rest = " ".join(sentence.bare for sentence in sentences if sentence.bare not in asking)
    return [*names_in(rest, MOST_NAMES * 2), *asking]


def bare_sentence(sentence: str) -> str:
    """One sentence without its frame: list mark, greeting, politeness, the shape that the answer should have."""
    mark = _LIST_MARK.match(sentence)
    bare = sentence[mark.end() :] if mark else sentence
    for _ in range(6):
        shorter = _without_politeness(bare)
        if shorter == bare or not WORD.search(shorter):
            break
        bare = shorter
    return bare.strip(_OUTER_MARKS)


def _without_politeness(text: str) -> str:
    end = phrases.POLITE_END.sub("", phrases.SHAPE_END.sub("", text[-_LONGEST_END:]))
    shorter = text[:-_LONGEST_END] + end
    start = phrases.POLITE_START.match(shorter)
    return shorter[start.end() :] if start else shorter
