"""What to search for before a model that cannot call tools is asked. Handed the messages of a conversation; hands on a
`Plan`: a query that can be understood without the conversation, pages the user named, or the reason why neither.
The word lists only save searches and shorten queries: a language they do not know is searched as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tools import prompts
from tools.clean import clean, cut_place, one_line
from tools.provenance import normalise, urls_in
from tools.web_search import MAX_QUERY

from . import phrases

MOST_URLS = 3
LONGEST_MESSAGE = 12_000  # of a longer one the beginning and the end are read: there the request stands
LONG = 140  # from here on only the sentences that ask
LONGEST_REWRITTEN = 200
MOST_BACK = 5  # earlier messages of the user that a question may lean on
MOST_WORDS = 10  # taken over from each of them
MOST_NAMES = 3  # taken over from the answer before


@dataclass(frozen=True, slots=True)
class Plan:
    query: str = ""  # empty: do not search
    urls: tuple[str, ...] = ()  # pages that the last user message itself names
    reason: str = ""  # why nothing is searched, in one word


# What stands around a question

_FENCED = re.compile(r"(`{3,}|~{3,}).*?(?:\1|\Z)", re.DOTALL)
_PASTED = re.compile(
    r'^[ \t]*>[^\n]*$|"""[\s\S]*?(?:"""|\Z)|"[^"]{80,}"|“[^“”]{80,}”|«[^«»]{80,}»|„[^„“]{80,}“|「[^「」]{80,}」',
    re.MULTILINE,
)
_QUOTE = re.compile(r"""["“„«「『]\s*\w|(?<!\w)['‘]\w[^'’\n]*['’](?!\w)""")
_ADDRESS = re.compile(r"(?:https?://|\bwww\.)\S+", re.I)
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\((?:https?://[^()\s]*)?\)", re.I)
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
_WORD = re.compile(r"[^\W_](?:[\w'’.-]*[^\W_])?[+#]*")

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


def plan(messages: Sequence[Any], *, forced: bool = False) -> Plan:
    """`forced`: the client demands a search, so only a message without any words goes without."""
    users = [message for message in messages if _role(message) == "user"]
    texts = [_readable(_text(message)) for message in users[-1 - MOST_BACK :]]
    if not texts:
        return Plan(reason="no_question")
    asked = _Message(texts[-1])
    urls = tuple(asked.urls[:MOST_URLS])
    reason = "" if forced else _needless(asked, any(_role(message) == "assistant" for message in messages))
    if reason:  # links inside a text that is given are no pages to read
        return Plan("", () if reason in ("translation", "rewriting") else urls, reason)
    query = asked.core
    if len(texts) > 1 and _leans(query):
        query = _leaning(query, texts[:-1], _last_answer(messages))
    query = _cut(query) if _telling(query) or " " in query else ""
    if forced:
        query = query or _cut(" ".join(_WORD.findall(_ADDRESS.sub(" ", texts[-1]))))
    elif urls and not _telling(phrases.SUMMARISE.sub(" ", _PAGE_WORDS.sub(" ", query))):
        query = ""
    return Plan(query, urls, "" if query else "url" if urls else "no_question")


def question(messages: Sequence[Any]) -> str:
    """The text of the last user message."""
    return next((_text(message) for message in reversed(messages) if _role(message) == "user"), "")


def rewriting(body: Mapping[str, Any]) -> dict[str, Any]:
    """One short call that asks the same model for a query. A single user message: some templates know no other role."""
    given = body.get("messages")
    said = [message for message in given if _role(message) in ("user", "assistant")] if isinstance(given, list) else []
    lines = [f"{prompts.SPEAKERS[message['role']]}: {_told(message)}" for message in said[-6:]]
    prompt = "\n".join([*lines, "", prompts.REWRITE_QUERY])
    limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    return {"model": body.get("model"), "messages": [{"role": "user", "content": prompt}], "stream": False, limit: 200}


def rewritten(answer: str, plan: Plan) -> Plan:
    """The plan with the model's query, if what it answered can be one."""
    said = _THINKING.sub("", answer).rpartition("</think>")[2]
    lines = [_LABEL.sub("", line, count=1).strip(" \t\"'`*“”„«»") for line in clean(said, 4000).split("\n")]
    query = next((line for line in lines if _WORD.search(line) and not line.endswith(":")), "")
    query = " ".join(query.split())
    if not plan.query or not query or len(query) > LONGEST_REWRITTEN or _NO_QUERY.match(query):
        return plan
    return replace(plan, query=query)


def with_sources(messages: Sequence[Any], sources: str) -> list[Any]:
    """The sources in front of the question, in the same message: strict templates allow no other."""
    out = list(messages)
    place = next((place for place in reversed(range(len(out))) if _role(out[place]) == "user"), None)
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


class _Message:
    """A user message, taken apart: what it says, and what it only brings along."""

    def __init__(self, text: str) -> None:
        without_code = _FENCED.sub("\n", text)
        prose = _PASTED.sub("\n", without_code)
        self.pasted = len(without_code) != len(text) or len(prose) != len(without_code)
        lines = prose.split("\n")
        code = [line for line in lines if _CODE_LINE.fullmatch(line)]
        unfenced = len(code) > 2 or (len(code) == 2 and len(lines) < 5)
        spans = [span for span in _CODE_SPAN.findall(prose) if len(span) > 19 and len(_SYMBOL.findall(span)) > 3]
        self.listing = "```" in text or "~~~" in text or unfenced or bool(spans)
        if unfenced:
            prose = "\n".join(line for line in lines if not _CODE_LINE.fullmatch(line))
        self.urls = list(dict.fromkeys(_urls(prose)))
        prose = re.sub(r"[(\[<]\s", " ", _ADDRESS.sub(" ", _LINK.sub(r" \1 ", prose)))
        self.prose = _CODE_SPAN.sub(r"\1", prose).strip()
        self.core = _core(self.prose)


def _needless(asked: _Message, answered: bool) -> str:
    """Why this message needs no search, or nothing."""
    prose = asked.prose
    if len(prose) < 120 and not asked.listing:
        small = phrases.SMALL_TALK.fullmatch(prose)
        if small or phrases.GREETED.fullmatch(prose):
            return "thanks" if small and small[1] else "greeting"
    if not asked.listing and len(prose) < 300 and phrases.CONVERSATION.search(prose):
        return "conversation"
    if _is_sum(prose):
        return "arithmetic"
    lines = [line for line in prose.split("\n") if line.strip()]
    for line in dict.fromkeys([*lines[:1], *lines[-1:]]):
        task = _bare(line)
        order, _, behind = re.sub("：", ":", task).partition(":")
        if phrases.CURRENT.search(_QUOTE.sub(" ", order)):
            continue
        words = len(_WORD.findall(behind)) + sum(len(_WORD.findall(other)) for other in lines if other is not line)
        brought = asked.pasted or bool(_QUOTE.search(task))
        translate, rewrite, summarise = (
            pattern.match(task) for pattern in (phrases.TRANSLATE, phrases.REWRITE, phrases.SUMMARISE)
        )
        if asked.urls and not brought and words < 4 and (translate or rewrite or summarise) and len(_telling(task)) < 6:
            return "url"
        if phrases.SAY.fullmatch(task) or (translate and (brought or words or phrases.INTO.match(order))):
            return "translation"
        if asked.listing:
            continue
        if (rewrite and (brought or words)) or (summarise and (brought or words > 8 or len(behind) > 40)):
            return "rewriting"
        if answered and (rewrite or summarise) and phrases.IT.match(task):
            return "conversation"
    about_code = asked.listing and not phrases.CURRENT.search(prose)
    return "code" if about_code and (phrases.CODE_TALK.search(prose) or len(_WORD.findall(prose)) < 5) else ""


def _is_sum(text: str) -> bool:
    if len(text) > 200:
        return False
    plain, named = phrases.SUM_WORDS.subn("+", text)
    asked = phrases.SUM_ASKED.search(plain)
    plain = phrases.SUM_ASKED.sub(" ", plain)
    if not phrases.SUM.fullmatch(plain) or not re.search(r"\d", plain):
        return False
    operators = named or re.search(r"\d\s*[-+*/x×÷^%√]\s*[\d(√-]|√|\d!", plain)
    return bool(operators) and (bool(asked and asked[1]) or not phrases.DATE.fullmatch(plain.strip(" ?=")))


# The question itself


def _core(prose: str) -> str:
    """The sentences that ask, without politeness and without orders to the model."""
    sentences = [(sentence, _bare(sentence)) for sentence in _SENTENCE.split(prose) if sentence]
    sentences = [(sentence, bare) for sentence, bare in sentences if _WORD.search(bare)]
    kept = [
        (sentence, bare)
        for sentence, bare in sentences
        if not (
            phrases.ORDER.match(sentence)
            or phrases.ORDER.match(bare)
            or (len(bare) < 60 and phrases.SMALL_TALK.fullmatch(bare))
        )
    ]
    kept = kept or sentences[:1]
    asking = [bare for _, bare in kept]
    if sum(map(len, asking)) > LONG:
        asking = [bare for sentence, bare in kept if phrases.ASKS.match(sentence)] or [asking[0], asking[-1]]
        if _leans(" ".join(asking)):
            rest = " ".join(bare for _, bare in kept if bare not in asking)
            asking = [*_names(rest, MOST_NAMES * 2), *asking]
    return " ".join(dict.fromkeys(asking))


def _bare(sentence: str) -> str:
    """One sentence without its frame: list mark, greeting, politeness, the shape that the answer should have."""
    bare = _LIST_MARK.sub("", sentence, count=1) if _LIST_MARK.match(sentence) else sentence
    for _ in range(6):
        shorter = bare[:-200] + phrases.POLITE_END.sub("", phrases.SHAPE_END.sub("", bare[-200:]))
        start = phrases.POLITE_START.match(shorter)
        shorter = shorter[start.end() :] if start else shorter
        if shorter == bare or not _WORD.search(shorter):
            break
        bare = shorter
    return bare.strip(' \t\n.!?…。！？,;:，、：；¿¡*_"“”()-–—')


def _leans(text: str) -> bool:
    """Can it be understood only with what came before?"""
    text = text[:1000]
    start = phrases.LEAN_START.match(text)
    rest = text[start.end() :] if start else text
    telling = _telling(rest)
    if not telling or phrases.BARE_CASE.fullmatch(rest):
        return True
    named = bool(_names(rest.partition(" ")[2], 1))
    if start and len(telling) < 4 and not (len(telling) > 1 and named and phrases.ASKS.match(rest)):
        return True
    rest = phrases.EXPLETIVE.sub(" ", rest[:1].lower() + rest[1:])
    for pronoun in phrases.PRONOUN.finditer(rest):
        before = rest[: pronoun.start()]
        if pronoun[0] in phrases.WEAK and (len(telling) > 2 or named):
            continue
        clauses = list(phrases.CLAUSE.finditer(before))
        if not _names(before.partition(" ")[2], 1) and not (clauses and _telling(before[: clauses[-1].start()])):
            return True
    return False


def _leaning(text: str, earlier: Sequence[str], answer: str) -> str:
    """The question with the telling words of what it leans on in front."""
    words: list[str] = []
    for message in reversed(earlier):
        if len(message) < 120 and phrases.SMALL_TALK.fullmatch(message):
            continue
        core = _Message(message).core
        words = [*_telling(core)[:MOST_WORDS], *words]
        if core and not _leans(core):
            break
    start = phrases.LEAN_START.match(text)
    own = text[start.end() :] if start else text
    own = "" if phrases.AGREED.fullmatch(own) else own.removesuffix("呢")
    without = phrases.PRONOUN.sub(" ", own[:1].lower() + own[1:])
    without = own[:1] + without[1:] if without[:1] != " " else without
    if without != own or not words:
        words += _names(_Message(answer[:1000]).prose[:600], MOST_NAMES)
    own = " ".join(without.split()).lstrip("的の ")
    have = {word.casefold() for word in _WORD.findall(own)}
    return " ".join([*(word for word in dict.fromkeys(words) if word.casefold() not in have), own]).strip()


def _telling(text: str) -> list[str]:
    """The words that carry meaning, as they are written; a capital by itself does (Model Y, vitamin A)."""
    words = dict.fromkeys(_WORD.findall(text))
    return [w for w in words if _plain(w) not in phrases.COMMON or (len(w) == 1 and w.isupper() and w != "I")]


def _plain(word: str) -> str:
    return word.casefold().replace("’", "'")


def _names(text: str, most: int) -> list[str]:
    """Runs of capitalised words."""
    names: list[str] = []
    end = -2
    for found in _WORD.finditer(text):
        word = found[0]
        if not word[0].isupper():
            continue
        if names and found.start() == end + 1 and text[end] == " ":
            names[-1] += f" {word}"
        elif _plain(word) not in phrases.COMMON:
            names.append(word)
        else:
            continue
        end = found.end()
    return list(dict.fromkeys(names))[:most]


# Texts


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def _text(message: Any) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _readable(text: str) -> str:
    half = LONGEST_MESSAGE // 2
    whole = text if len(text) <= LONGEST_MESSAGE else f"{text[:half]}\n{text[-half:]}"
    return clean(whole, LONGEST_MESSAGE + 1)


def _told(message: Any) -> str:
    text = _readable(_text(message))
    return one_line(_Message(text).prose or text, 600)


def _last_answer(messages: Sequence[Any]) -> str:
    return next((_readable(_text(message)) for message in reversed(messages) if _role(message) == "assistant"), "")


def _urls(text: str) -> Iterable[str]:
    for found in _ADDRESS.findall(text):
        spelled = urls_in(found)
        whole = found[:4].lower() == "http"
        if len(spelled) > whole and normalise(spelled[whole]):  # with a scheme the second spelling is the trimmed one
            yield spelled[whole]


def _cut(text: str) -> str:
    """One line, at most as long as a query may be, cut between two words."""
    line = " ".join(text.split())
    if len(line) <= MAX_QUERY:
        return line
    blank = line.rfind(" ", MAX_QUERY // 2, MAX_QUERY + 1)
    return line[: blank if blank > 0 else cut_place(line, MAX_QUERY)]
