"""What to search for before a model that cannot call tools is asked. Handed the messages of a conversation; hands on a
`Plan`: what is searched, which pages are read that the user names, or the reason why neither. The model itself is asked
in one short call; where it says nothing that can be used, a short question of the user's is searched as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from providers.records import dataclass
from providers.text.patterns import pattern
from tools import prompts
from tools.clean import clean, one_line

from ..values.messages import role_of, text_of
from .short_question import MOST_WORDS, WORD, Message, count_words, is_unsaid, readable

FEWEST_KEYWORDS, MOST_KEYWORDS = 2, 6
LONGEST_KEYWORD = 30
LONGEST_QUERY = 120
LONGEST_DECISION = 100  # tokens: the answer takes a dozen, but some models think first
MOST_RETOLD = 6  # messages that the model reads for it
LONGEST_RETOLD = 600  # characters of each
MOST_COMPARED = 6  # messages, and as many results of tools, whose words may not leave
_TELLING = 4  # letters from which on a word tells something though more stands before or behind it

_THINKING = pattern(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.I | re.DOTALL)
_LABEL = pattern(r"\s*(?:[-*•>]\s+|\d[.)]\s+)?(?:\**[\w ]{0,20}(?:keywords?|query|search|answer)\**\s*[:：])?", re.I)
_NONE = pattern(r"\W*none\b\W*(?:$|\W)", re.I)
_TOOLS = ("tool", "function")
_JOINED = pattern(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")  # to words or particles
_LETTERS = pattern(r"[^\W_]+")
_NONE_WITHIN = pattern(r"\bNONE\b")  # "The answer is NONE": a sentence about the answer, and no answer
_MARKS = " \t\"'`*“”„«».!?。？！"


@dataclass(frozen=True, slots=True)
class Plan:
    query: str = ""  # empty: do not search
    urls: tuple[str, ...] = ()  # pages that the last user message itself names
    reason: str = ""  # why nothing is searched, in one word


class Planner:
    """`forced`: the client demands a search, so only a message without any words goes without. `inside`: whoever is
    searched belongs to the operator, so a question may be about the user and hold what they pasted."""

    def __init__(self, messages: Sequence[Any], *, forced: bool = False, inside: bool = False) -> None:
        self._messages = messages
        self._message = Message(question(messages))
        self._urls = tuple(self._message.urls)
        self._forced = forced
        self._inside = inside

    @property
    def has_words(self) -> bool:
        return bool(self._message.lines)

    def alone(self) -> Plan:
        """What is searched without the model. A page that the user names says more than a search."""
        query = self._message.question_of_anything if self._inside else self._message.question
        if self._forced and not query:
            query = " ".join(self._message.head.split()[:MOST_WORDS])
        if self._urls and not self._forced:
            query = ""
        return self._plan(query, "no_question")

    def decided(self, answer: str) -> Plan:
        """The same after the model was asked."""
        said = _first_line(answer)
        if _NONE.match(said) and not self._forced:
            return self._plan("", "no_need")
        return self._plan(query, "") if (query := self._keywords(said)) else self.alone()

    def _plan(self, query: str, reason: str) -> Plan:
        return Plan(query, self._urls, "" if query or self._urls else reason)

    def _keywords(self, said: str) -> str:
        """The model's keywords, if that is what they are and nothing leaves with them that the user only pasted."""
        words = said.replace(",", " ").replace("，", " ").replace("、", " ").split()
        query = " ".join(words)
        if not FEWEST_KEYWORDS <= max(len(words), count_words(query)) <= MOST_KEYWORDS * (2 if len(words) == 1 else 1):
            return ""
        if len(query) > LONGEST_QUERY or max(map(len, words)) > LONGEST_KEYWORD or is_unsaid(query):
            return ""
        if _NONE_WITHIN.search(query):
            return ""
        may_leave = self._inside or not (self._message.is_own_matter or self._is_pasted(query))
        return query if may_leave else ""

    def _is_pasted(self, query: str) -> bool:
        """Is a word of it, or a part of one, in what people and tools put into the conversation, and not among the
        user's own?"""
        asked = [text_of(one, "\n") for one in self._messages if role_of(one) == "user"][-MOST_COMPARED:]
        results = [text_of(one, "\n") for one in self._messages if role_of(one) in _TOOLS][-MOST_COMPARED:]
        own = " ".join(Message(text).own for text in asked).casefold()
        given = "\n".join(map(readable, [*asked, *results])).casefold()
        foreign = set(_LETTERS.findall(given)).difference(_LETTERS.findall(own))
        for word in _LETTERS.findall(query.casefold()):
            if any(pair in given and pair not in own for pair in _pairs(word)) or _is_of(word, foreign, own):
                return True
        return False


def _is_of(word: str, foreign: Collection[str], own: str) -> bool:
    """Is it one of these words, or one of them with more before or behind it?"""
    if len(word) < 2 or _stands_in(word, own):
        return False
    telling = [one for one in foreign if len(one) >= _TELLING]
    return word in foreign or any(one in word or (len(word) >= _TELLING and word in one) for one in telling)


def _pairs(word: str) -> list[str]:
    """Where no blanks part the words, two letters that follow each other are one."""
    return [word[at : at + 2] for at in range(max(len(word) - 1, 1))] if _JOINED.search(word) else []


def _stands_in(word: str, text: str) -> bool:
    return re.search(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", text) is not None


def _first_line(answer: str) -> str:
    """What a model says when it is done thinking, without the label and the marks around it."""
    said = _THINKING.sub("", answer).rpartition("</think>")[2]
    lines = [_LABEL.sub("", line, count=1).strip(_MARKS) for line in clean(said, 4000).split("\n")]
    return next((line for line in lines if WORD.search(line) and not line.endswith((":", "："))), "")


def deciding(body: Mapping[str, Any], today: str) -> dict[str, Any]:
    """One short call that asks the same model what to search. A single user message: some templates know no other
    role."""
    given = body.get("messages")
    speakers = tuple(prompts.SPEAKERS)
    said = [message for message in given if role_of(message) in speakers] if isinstance(given, list) else []
    lines = [f"{prompts.SPEAKERS[message['role']]}: {_retold(message)}" for message in said[-MOST_RETOLD:]]
    prompt = "\n".join([*lines, "", prompts.TODAY.format(today=today), prompts.DECIDE_SEARCH])
    limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    asked: dict[str, Any] = {"model": body.get("model"), "messages": [{"role": "user", "content": prompt}]}
    return {**asked, "stream": False, "temperature": 0, limit: LONGEST_DECISION}


def _retold(message: Any) -> str:
    return one_line(readable(text_of(message, "\n")), LONGEST_RETOLD)


# Messages


def question(messages: Sequence[Any]) -> str:
    """The text of the last user message."""
    asked = [message for message in messages if role_of(message) == "user"]
    return text_of(asked[-1], "\n") if asked else ""


def with_sources(messages: Sequence[Any], sources: str) -> list[Any]:
    """The sources in front of the question, in the same message: strict templates allow no other."""
    out = list(messages)
    place = next((place for place in reversed(range(len(out))) if role_of(out[place]) == "user"), None)
    if not sources:
        return out
    if place is None:
        return [*out, {"role": "user", "content": sources}]
    content = out[place].get("content")
    if isinstance(content, list):
        longer: Any = [{"type": "text", "text": f"{sources}\n\n"}, *content]
    else:
        longer = f"{sources}\n\n{content}" if content else sources
    out[place] = {**out[place], "content": longer}
    return out
