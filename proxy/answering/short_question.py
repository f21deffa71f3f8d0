"""What of a user's message may be searched where no model says so: a short question of its own, and nothing that was
pasted. Handed the text of a message; hands on that question, the words that are the user's own, and the pages that it
names. Pure. When in doubt nothing is searched: a search too few costs less than a text that leaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from providers.text.patterns import pattern
from tools.clean import clean
from tools.provenance import normalise, urls_in

from . import question_words as words
from .task_words import BESIDE, LOOK_UP, TASK

MOST_WORDS = 12
LONGEST_MESSAGE = 12_000  # of a longer one the beginning and the end are read: there the request stands
MOST_URLS = 3
_FEWEST_WORDS = 3
_MOST_TYPED = 5  # words of what is typed as into a search box
_MOST_BEFORE, _MOST_BEHIND = 2, 5  # words of other sentences: a greeting, and how to answer

WORD = pattern(r"[^\W_](?:[\w'’.+#-]*[^\W_.])?[+#]*")
_UNSPACED = pattern(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_ADDRESS = pattern(r"(?:https?://|\bwww\.)\S+", re.I)
_CODE = pattern(r"(`{3,}|~{3,}).*?(?:\1|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED = pattern(
    r'^[ \t]*>[^\n]*$|"""[\s\S]*?(?:"""|\Z)|"[^"\n]*"|“[^”\n]*”?|„[^“”\n]*[“”]?|«[^»\n]*»?|「[^」\n]*」?|『[^』\n]*』?'
    r"|(?<!\w)['‘][^'’\n]{1,1000}['’](?!\w)",
    re.MULTILINE,
)
# What a colon announces is another text; so is what stands behind a dash.
_COLON = pattern(r"(?<!\d):|:(?!\d)|：|\s[-–—]+\s|—|;\s")
_SENTENCE = pattern(r"(?<=[.!…])(?<!\b[A-Z]\.)\s+|(?<=[?？؟])\s*|(?<=[。！])|(?=¿)|(?<=[,，]) (?=¿)")
_MARKS = " \t.,;!?…。！？؟¿¡,，、-–—*_()"
_QUESTION_MARK = pattern(r"[?？؟]")
_INNER_MARK = pattern(r"[.,;!،؛](?:\s|$)")
# Addresses of people, numbers of accounts and telephones, markup and data: no question of a person's holds them.
_NOT_SAID = pattern(
    r"@|[<>{}|=\\]|\d(?:[ ./-]?\d){6,}|(?:\d{1,3}\.){3}\d|\S{30,}|(?=\S*\d)(?=\S*[a-z])(?=\S*[A-Z])[\w-]{12,}|\w[(\[]"
    r"|\b(?i:pass(?:word|code|wort)|contraseña|пароль)\W+\w*\d|\b(?:SELECT|INSERT|UPDATE|DELETE)\b.*\b(?:FROM|INTO|SET|WHERE)\b"
)


_UNSPACED_LANGUAGE = words.Language(*[frozenset[str]()] * 5)


class Message:
    """`head` is what the user says in the first line; `material` says whether other text stands beside it."""

    def __init__(self, text: str) -> None:
        said = _QUOTED.sub(" ", _CODE.sub(" ", readable(text)))
        self.urls = list(dict.fromkeys(_named_pages(said)))[:MOST_URLS]
        self.lines = [line for line in _ADDRESS.sub(" ", said).split("\n") if WORD.search(line)]
        self.head, self.cut = _before_colon(self.lines[0] if self.lines else "")

    @property
    def question(self) -> str:
        """The short question that the message is; empty if it is none, or none that may leave."""
        return "" if len(self.lines) > 1 else short_question(self.head)

    @property
    def question_of_anything(self) -> str:
        """The same where nothing leaves: it may be about the user."""
        return "" if len(self.lines) > 1 else short_question(self.head, personal=True)

    @property
    def own(self) -> str:
        """What the user said and did not paste, as far as that can be told, and does not speak of themselves."""
        said = _asked_in(self.head) if len(self.lines) == 1 else self._asked_at_an_end()
        return "" if is_unsaid(said) or self._is_personal(said) else said

    def _asked_at_an_end(self) -> str:
        """The question in the first or the last line, where hardly anything else stands: more would be a text, and the
        question may be of it."""
        if not self.lines:
            return ""
        place = next((place for place in (0, -1) if short_question(self.lines[place])), None)
        if place is None or any(map(is_task, self.lines)):
            return ""
        others = self.lines[1:] if place == 0 else self.lines[:-1]
        short = _length(others) <= (_MOST_BEHIND if place == 0 else _MOST_BEFORE)
        return self.lines[place] if short and all(map(_may_stand_beside, others)) else ""

    def _is_personal(self, said: str) -> bool:
        plain = words.COURTESY.sub(" ", words.ANYBODY.sub(" ", said)).strip(_MARKS)
        languages = asking_languages(plain or said) or asking_languages(said)
        return _holds(plain, words.own_of(languages))

    @property
    def is_own_matter(self) -> bool:
        """Does it order something about the user's own people and things, and ask nothing?"""
        text = " ".join(self.lines)
        return not asks(text) and _holds(text, words.POSSESSIVE)


def readable(text: str) -> str:
    half = LONGEST_MESSAGE // 2
    whole = text if len(text) <= LONGEST_MESSAGE else f"{text[:half]}\n{text[-half:]}"
    return clean(whole, LONGEST_MESSAGE + 1)


def short_question(line: str, *, personal: bool = False) -> str:
    """The question in a line that holds little else, without the marks around it. With `personal` it may speak of the
    user."""
    sentences = [sentence.strip() for sentence in _SENTENCE.split(line) if WORD.search(sentence)]
    place = next((place for place, sentence in enumerate(sentences) if asking_languages(sentence)), None)
    if place is None or _NOT_SAID.search(line) or is_task(line):
        return ""
    before, asked, behind = sentences[:place], sentences[place], sentences[place + 1 :]
    if not all(map(_may_stand_beside, (*before, *behind))):
        return ""
    if _length(before) > _MOST_BEFORE or _length(behind) > _MOST_BEHIND:
        return ""
    if not personal and _is_personal(line, asked):
        return ""
    return " ".join(asked.strip(_MARKS).split()) if _FEWEST_WORDS <= _length([asked]) <= MOST_WORDS else ""


def asking_languages(sentence: str) -> list[words.Language]:
    """The languages in which it is a question; of scripts without blanks there is no more to know."""
    if words.ASKING_UNSPACED.search(sentence):
        return [_UNSPACED_LANGUAGE]
    spelled = [word.casefold().replace("’", "'") for word in WORD.findall(sentence)[:2]]
    marked = _QUESTION_MARK.search(sentence) is not None
    if not spelled or not (marked or _is_typed_in_passing(sentence)):
        return []
    begins = {spelled[0], spelled[0].partition("'")[0], " ".join(spelled)}
    return [one for one in words.LANGUAGES if begins & one.asking or (marked and begins & one.inverted)]


def _is_typed_in_passing(sentence: str) -> bool:
    """As people type into a search box: no capital at its beginning, no mark in it. Sentences of texts begin like
    questions too."""
    first = sentence[0]
    has_case = first.lower() != first.upper()
    return not (has_case and first.isupper()) and _INNER_MARK.search(sentence) is None


def asks(text: str) -> bool:
    return bool(_QUESTION_MARK.search(text)) or any(map(asking_languages, _SENTENCE.split(text)))


def count_words(text: str) -> int:
    """Two characters of a script without blanks count as a word."""
    unspaced = len(_UNSPACED.findall(text))
    return len(WORD.findall(_UNSPACED.sub(" ", text))) + -(-unspaced // 2)


def is_unsaid(text: str) -> bool:
    return _NOT_SAID.search(text) is not None


def _length(sentences: Iterable[str]) -> int:
    return sum(map(count_words, sentences))


def _is_personal(line: str, asked: str) -> bool:
    """Does it speak of the user, to the model, or of a text beside it? In the words of its own language: what is "you"
    in one is "of the" in another."""
    plain = words.ANYBODY.sub(" ", line)
    return any(_holds(plain, language.own) for language in asking_languages(asked))


def _holds(text: str, own: frozenset[str]) -> bool:
    """Capitals make a name of it: `US` is a country."""
    spelled = re.findall(r"[^\W\d_]+", text)
    plain = (word.casefold() for word in spelled if len(word) == 1 or not word.isupper())
    return not own.isdisjoint(plain) or words.OWN_UNSPACED.search(text) is not None


def _before_colon(line: str) -> tuple[str, bool]:
    found = _COLON.search(line)
    return (line[: found.start()], True) if found else (line, False)


def is_task(text: str) -> bool:
    """Does it ask for work on a text, or is it a letter?"""
    return TASK.search(text) is not None


def _asked_in(line: str) -> str:
    """What a line asks for: its questions, and nothing that stands beside them; else all of it, where it is short, as
    people type into a search box, or says that something is to be looked up."""
    if is_task(line) or is_unsaid(line):
        return ""
    sentences = [sentence for sentence in _SENTENCE.split(line) if WORD.search(sentence)]
    asked = [sentence for sentence in sentences if asking_languages(sentence)]
    if asked:
        return " ".join(asked) if all(map(_may_stand_beside, sentences)) else ""
    if len(sentences) > 1:
        return ""
    marked = _QUESTION_MARK.search(line) is not None and count_words(line) <= MOST_WORDS
    return line if marked or LOOK_UP.search(line) or count_words(line) <= _MOST_TYPED else ""


def _may_stand_beside(sentence: str) -> bool:
    """Another question, a greeting, or how to answer."""
    return bool(asking_languages(sentence)) or BESIDE.match(sentence) is not None


def _named_pages(text: str) -> Iterable[str]:
    """The addresses in the user's own words: before the colon of the first line, or where nothing else stands."""
    first, *rest = text.split("\n")
    head, _ = _before_colon(_ADDRESS.sub(lambda found: found[0].replace(":", "\0"), first))
    own = head.replace("\0", ":")
    behind = first[len(own) :].lstrip(":： ")
    for place in (own, *(line for line in (behind, *rest) if not WORD.search(_ADDRESS.sub(" ", line)))):
        yield from _urls(place)


def _urls(text: str) -> Iterable[str]:
    for found in _ADDRESS.findall(text):
        spelled = urls_in(found)
        whole = found[:4].lower() == "http"
        if len(spelled) > whole and normalise(spelled[whole]):  # with a scheme the second spelling is the trimmed one
            yield spelled[whole]
