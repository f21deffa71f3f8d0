"""What to search for before a model that cannot call tools is asked. Handed the messages of a conversation; hands on a
`Plan`: a query that can be understood without the conversation, pages the user named, or the reason why neither.
The word lists only save searches and shorten queries: a language they do not know is searched as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from providers.text.cuts import cut_place
from tools import prompts
from tools.clean import clean, one_line
from tools.web_search import MAX_QUERY

from ..values.messages import role_of, text_of
from . import phrases
from .question_words import WORD, leans, names_in, telling_words, uncapitalised, without_lead
from .search_need import needless
from .user_message import ADDRESS, MOST_NAMES, UserMessage

MOST_URLS = 3
LONGEST_MESSAGE = 12_000  # of a longer one the beginning and the end are read: there the request stands
LONGEST_REWRITTEN = 200
MOST_BACK = 5  # earlier messages of the user that a question may lean on
MOST_WORDS = 10  # taken over from each of them
MOST_RETOLD = 6  # messages that the rewriter reads

_TEXT_IS_GIVEN = ("translation", "rewriting")  # reasons with which links in the message are no pages to read
_PAGE_WORDS = re.compile(
    r"\b(?:read|open|visit|check|look|see|page|article|post|blog|link|url|site|website|paper|think)s?\b", re.I
)
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.I | re.DOTALL)
_LABEL = re.compile(
    r"\s*(?:[-*•>]\s+|\d[.)]\s+)?(?:\**(?:(?:web )?search )?(?:query|suchanfrage|requête|consulta|查询"
    r"|検索)\**\s*[:：])?",
    re.I,
)
_NO_QUERY = re.compile(
    r"(?:i['’ ]?(?:m|am|can|cannot|can't)|sorry|none|no (?:search|query)|n/a|sure|as an ai)(?!\w)|.*<\w+", re.I
)


@dataclass(frozen=True, slots=True)
class Plan:
    query: str = ""  # empty: do not search
    urls: tuple[str, ...] = ()  # pages that the last user message itself names
    reason: str = ""  # why nothing is searched, in one word


def plan(messages: Sequence[Any], *, forced: bool = False) -> Plan:
    """`forced`: the client demands a search, so only a message without any words goes without."""
    texts = [_readable(message) for message in _said_by("user", messages)[-1 - MOST_BACK :]]
    if not texts:
        return Plan(reason="no_question")
    asked = UserMessage(texts[-1])
    urls = tuple(asked.urls[:MOST_URLS])
    answers = _said_by("assistant", messages)
    reason = "" if forced else needless(asked, answered=bool(answers))
    if reason:
        return Plan("", () if reason in _TEXT_IS_GIVEN else urls, reason)
    query = asked.core
    if len(texts) > 1 and leans(query):
        query = _leaning(query, texts[:-1], _readable(answers[-1]) if answers else "")
    query = _cut(query) if telling_words(query) or " " in query else ""
    if forced:
        query = query or _cut(" ".join(WORD.findall(ADDRESS.sub(" ", texts[-1]))))
    elif urls and _is_about_page(query):
        query = ""
    return Plan(query, urls, _lacking(query, urls))


def _is_about_page(query: str) -> bool:
    """Does it tell nothing besides that a page is to be read?"""
    return not telling_words(phrases.SUMMARISE.sub(" ", _PAGE_WORDS.sub(" ", query)))


def _lacking(query: str, urls: Sequence[str]) -> str:
    if query:
        return ""
    return "url" if urls else "no_question"


# What leans on what came before


def _leaning(text: str, earlier: Sequence[str], answer: str) -> str:
    """The question with the telling words of what it leans on in front."""
    own = without_lead(text)
    own = "" if phrases.AGREED.fullmatch(own) else own.removesuffix("呢")
    without = _without_pronouns(own)
    words = _words_of(earlier)
    if without != own or not words:
        words += names_in(UserMessage(answer[:1000]).prose[:600], MOST_NAMES)
    own = " ".join(without.split()).lstrip("的の ")
    have = {word.casefold() for word in WORD.findall(own)}
    return " ".join([*(word for word in dict.fromkeys(words) if word.casefold() not in have), own]).strip()


def _words_of(earlier: Sequence[str]) -> list[str]:
    """The telling words of earlier messages, back to the first that can be understood alone."""
    words: list[str] = []
    for message in reversed(earlier):
        if len(message) < 120 and phrases.SMALL_TALK.fullmatch(message):
            continue
        core = UserMessage(message).core
        words = [*telling_words(core)[:MOST_WORDS], *words]
        if core and not leans(core):
            break
    return words


def _without_pronouns(text: str) -> str:
    without = phrases.PRONOUN.sub(" ", uncapitalised(text))
    return without if without[:1] == " " else text[:1] + without[1:]


# The query in the model's own words


def rewriting(body: Mapping[str, Any]) -> dict[str, Any]:
    """One short call that asks the same model for a query. A single user message: some templates know no other role."""
    given = body.get("messages")
    speakers = tuple(prompts.SPEAKERS)
    said = [message for message in given if role_of(message) in speakers] if isinstance(given, list) else []
    lines = [f"{prompts.SPEAKERS[message['role']]}: {_retold(message)}" for message in said[-MOST_RETOLD:]]
    prompt = "\n".join([*lines, "", prompts.REWRITE_QUERY])
    limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    return {"model": body.get("model"), "messages": [{"role": "user", "content": prompt}], "stream": False, limit: 200}


def _retold(message: Any) -> str:
    text = _readable(message)
    return one_line(UserMessage(text).prose or text, 600)


def rewritten(answer: str, plan: Plan) -> Plan:
    """The plan with the model's query, if what it answered can be one."""
    said = _THINKING.sub("", answer).rpartition("</think>")[2]
    lines = [_LABEL.sub("", line, count=1).strip(" \t\"'`*“”„«»") for line in clean(said, 4000).split("\n")]
    query = next((line for line in lines if WORD.search(line) and not line.endswith(":")), "")
    query = " ".join(query.split())
    if not plan.query or not query or len(query) > LONGEST_REWRITTEN or _NO_QUERY.match(query):
        return plan
    return replace(plan, query=query)


# Messages


def question(messages: Sequence[Any]) -> str:
    """The text of the last user message."""
    asked = _said_by("user", messages)
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


def _said_by(role: str, messages: Sequence[Any]) -> list[Any]:
    return [message for message in messages if role_of(message) == role]


def _readable(message: Any) -> str:
    text, half = text_of(message, "\n"), LONGEST_MESSAGE // 2
    whole = text if len(text) <= LONGEST_MESSAGE else f"{text[:half]}\n{text[-half:]}"
    return clean(whole, LONGEST_MESSAGE + 1)


def _cut(text: str) -> str:
    """One line, at most as long as a query may be, cut between two words."""
    line = " ".join(text.split())
    if len(line) <= MAX_QUERY:
        return line
    blank = line.rfind(" ", MAX_QUERY // 2, MAX_QUERY + 1)
    return line[: blank if blank > 0 else cut_place(line, MAX_QUERY)]
