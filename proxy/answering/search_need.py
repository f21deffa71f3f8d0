"""Whether a message needs a search at all. Handed a user message, taken apart; hands on the reason why nothing has to
be looked up, in one word, or nothing. The reasons stand in tables, in the order in which they are tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import phrases
from .question_words import WORD, telling_words
from .user_message import UserMessage, bare_sentence

_QUOTE = re.compile(r"""["“„«「『]\s*\w|(?<!\w)['‘]\w[^'’\n]*['’](?!\w)""")
_DIGIT = re.compile(r"\d")
_OPERATOR = re.compile(r"\d\s*[-+*/x×÷^%√]\s*[\d(√-]|√|\d!")


def needless(message: UserMessage, *, answered: bool) -> str:
    """Why this message needs no search, or nothing. `answered`: there is an answer before it that it may speak of."""
    for reason, holds in _OF_MESSAGES:
        if holds(message):
            return reason
    for order in _orders(message, answered):
        for reason, applies in _OF_ORDERS:
            if applies(order):
                return reason
    return "code" if _is_about_code(message) else ""


# What the whole message is


def _is_thanks(message: UserMessage) -> bool:
    small = _is_short(message) and phrases.SMALL_TALK.fullmatch(message.prose)
    return bool(small and small[1])


def _is_greeting(message: UserMessage) -> bool:
    patterns = (phrases.SMALL_TALK, phrases.GREETED)
    return _is_short(message) and any(pattern.fullmatch(message.prose) for pattern in patterns)


def _is_short(message: UserMessage) -> bool:
    return len(message.prose) < 120 and not message.listing


def _is_about_conversation(message: UserMessage) -> bool:
    spoken = len(message.prose) < 300 and not message.listing
    return spoken and phrases.CONVERSATION.search(message.prose) is not None


def _is_sum(message: UserMessage) -> bool:
    if len(message.prose) > 200:
        return False
    plain, named = phrases.SUM_WORDS.subn("+", message.prose)
    asked = phrases.SUM_ASKED.search(plain)
    plain = phrases.SUM_ASKED.sub(" ", plain)
    if not phrases.SUM.fullmatch(plain) or not _DIGIT.search(plain):
        return False
    has_operator = named or _OPERATOR.search(plain)
    ordered = asked and asked[1]  # `calculate` makes a sum of what else would be a date
    return bool(has_operator) and (bool(ordered) or not phrases.DATE.fullmatch(plain.strip(" ?=")))


_OF_MESSAGES: tuple[tuple[str, Callable[[UserMessage], bool]], ...] = (
    ("thanks", _is_thanks),
    ("greeting", _is_greeting),
    ("conversation", _is_about_conversation),
    ("arithmetic", _is_sum),
)


# What it orders


@dataclass(frozen=True, slots=True)
class _Order:
    """A line that tells the model what to do, and with what."""

    message: UserMessage
    task: str  # the line without its frame
    head: str  # of the task: what stands before a colon
    material: str  # and what stands behind it
    words: int  # of the material and of all other lines
    answered: bool

    @property
    def quotes(self) -> bool:
        return self.message.pasted or _QUOTE.search(self.task) is not None

    @property
    def has_text(self) -> bool:
        """Does the message hold the text that something is to be done with?"""
        return self.words > 0 or self.quotes

    def begins(self, *patterns: re.Pattern[str]) -> bool:
        return any(pattern.match(self.task) for pattern in patterns)


def _orders(message: UserMessage, answered: bool) -> Iterator[_Order]:
    """The first line and the last, unless they ask for something current: that has to be looked up all the same."""
    lines = [line for line in message.prose.split("\n") if line.strip()]
    for line in dict.fromkeys([*lines[:1], *lines[-1:]]):
        task = bare_sentence(line)
        head, _, material = task.replace("：", ":").partition(":")
        if not phrases.CURRENT.search(_QUOTE.sub(" ", head)):
            words = _count(material) + sum(_count(other) for other in lines if other is not line)
            yield _Order(message, task, head, material, words, answered)


def _count(text: str) -> int:
    return len(WORD.findall(text))


def _is_about_page(order: _Order) -> bool:
    """Is the text of a page that it names to be translated, rewritten or summarised, and nothing more?"""
    page_alone = bool(order.message.urls) and not order.quotes and order.words < 4
    asked = page_alone and order.begins(phrases.TRANSLATE, phrases.REWRITE, phrases.SUMMARISE)
    return asked and len(telling_words(order.task)) < 6


def _is_translation(order: _Order) -> bool:
    if phrases.SAY.fullmatch(order.task):
        return True
    return order.begins(phrases.TRANSLATE) and (order.has_text or phrases.INTO.match(order.head) is not None)


def _is_rewriting(order: _Order) -> bool:
    return not order.message.listing and order.has_text and order.begins(phrases.REWRITE)


def _is_summary(order: _Order) -> bool:
    has_text = order.quotes or order.words > 8 or len(order.material) > 40
    return not order.message.listing and has_text and order.begins(phrases.SUMMARISE)


def _is_about_answer(order: _Order) -> bool:
    if order.message.listing or not order.answered:
        return False
    return order.begins(phrases.REWRITE, phrases.SUMMARISE) and order.begins(phrases.IT)


_OF_ORDERS: tuple[tuple[str, Callable[[_Order], bool]], ...] = (
    ("url", _is_about_page),
    ("translation", _is_translation),
    ("rewriting", _is_rewriting),
    ("rewriting", _is_summary),
    ("conversation", _is_about_answer),
)


# What it shows


def _is_about_code(message: UserMessage) -> bool:
    if not message.listing or phrases.CURRENT.search(message.prose):
        return False
    return _count(message.prose) < 5 or phrases.CODE_TALK.search(message.prose) is not None
