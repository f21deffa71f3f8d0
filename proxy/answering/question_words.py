"""The words of a question: which of them tell something, which are names, which only point back at what came before.
Handed a piece of prose; hands on those words, or says whether it can be understood alone. Pure.
"""

from __future__ import annotations

import re

from . import phrases

WORD = re.compile(r"[^\W_](?:[\w'’.-]*[^\W_])?[+#]*")
_LONGEST_READ = 1000


def telling_words(text: str) -> list[str]:
    """The words that carry meaning, as they are written; a capital by itself does (Model Y, vitamin A)."""
    return [word for word in dict.fromkeys(WORD.findall(text)) if not _is_common(word) or _is_lone_capital(word)]


def _is_common(word: str) -> bool:
    return word.casefold().replace("’", "'") in phrases.COMMON


def _is_lone_capital(word: str) -> bool:
    return len(word) == 1 and word.isupper() and word != "I"


def names_in(text: str, most: int) -> list[str]:
    """Runs of capitalised words."""
    names: list[str] = []
    end = -2
    for found in WORD.finditer(text):
        word = found[0]
        if not word[0].isupper():
            continue
        if names and found.start() == end + 1 and text[end] == " ":
            names[-1] += f" {word}"
        elif not _is_common(word):
            names.append(word)
        else:
            continue
        end = found.end()
    return list(dict.fromkeys(names))[:most]


def holds_name(text: str) -> bool:
    """Behind the first word, whose capital only begins the sentence."""
    return bool(names_in(text.partition(" ")[2], 1))


def without_lead(text: str) -> str:
    """What stands behind an `and`, a `but` or a `what about` that goes on from what came before."""
    lead = phrases.LEAN_START.match(text)
    return text[lead.end() :] if lead else text


def uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


def leans(text: str) -> bool:
    """Can it be understood only with what came before?"""
    text = text[:_LONGEST_READ]
    rest = without_lead(text)
    telling = telling_words(rest)
    if not telling or phrases.BARE_CASE.fullmatch(rest):
        return True
    if phrases.LEAN_START.match(text) and len(telling) < 4 and not _asks_anew(rest, telling):
        return True
    points_ahead = len(telling) > 2 or holds_name(rest)
    rest = phrases.EXPLETIVE.sub(" ", uncapitalised(rest))
    pronouns = (found for found in phrases.PRONOUN.finditer(rest) if not (points_ahead and found[0] in phrases.WEAK))
    return any(_points_back(rest[: found.start()]) for found in pronouns)


def _asks_anew(rest: str, telling: list[str]) -> bool:
    """Is it a whole question in spite of the `and` before it?"""
    return len(telling) > 1 and holds_name(rest) and phrases.ASKS.match(rest) is not None


def _points_back(before: str) -> bool:
    """Does a pronoun behind this text mean something that the text itself does not name?"""
    clauses = list(phrases.CLAUSE.finditer(before))
    named_before = clauses and telling_words(before[: clauses[-1].start()])
    return not named_before and not holds_name(before)
