"""What an upstream has taught us about a model: parameters that it refuses, whether it takes tools, how it counts.
Handed its refusals and its usage; hands on what to leave out next time, and how many tokens a text is to it. It is kept
for an hour, and what it refuses only once doing without has worked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, Literal
from urllib.parse import unquote

import orjson

from providers.records import dataclass
from providers.text.patterns import pattern

from ..config.upstreams import ToolCalls
from ..values.estimates import likely_tokens, texts_asked
from ..values.events import Failed, ToolMode
from ..values.messages import is_text
from .profiles import without_tools

KEPT = 3600.0
MOST_MODELS = 1000  # names come from clients

# Never left out: without them the answer would be another one than the client asked for.
_NEEDED = frozenset(
    {"model", "messages", "stream", "tools", "tool_choice", "response_format", "functions", "function_call", "n"}
)
_NEEDED_IN_MESSAGES = frozenset({"role", "content", "tool_calls", "tool_call_id"})
_OTHER_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_QUOTED = r"[`'\"\[{(]{0,2}([A-Za-z_][\w.]{0,60})"
_REFUSALS = pattern(
    "|".join(
        (
            rf"(?:unsupported|unrecognized|unrecognised|unknown|unexpected)"
            rf" (?:request )?(?:parameters?|arguments?|fields?|keys?|keyword arguments?|propert(?:y|ies)|options?)"
            rf"(?: supplied| provided| passed| name)?:? {_QUOTED}",
            rf"(?:property|parameter|field|argument|option) {_QUOTED}[`'\"]? (?:is|are|was) "
            rf"(?:unsupported|not supported|unknown|not permitted|not allowed|unexpected|not recognized)",
            rf"(?:does not|doesn't|cannot) support (?:the )?(?:parameters?|arguments?|fields?):? ?{_QUOTED}",
            rf"extra inputs are not permitted.{{0,40}}?{_QUOTED}",
            rf"{_QUOTED}[`'\"]? ?: extra inputs are not permitted",
            rf"'loc': \['body', {_QUOTED}",
            rf"(?:argument|parameter)s? not supported[^:\n]{{0,40}}: {_QUOTED}",
            rf"{_QUOTED}[`'\"]? is not (?:supported|permitted|allowed|a (?:valid|known|supported))",
        )
    ),
    re.IGNORECASE,
)
_NO_THINKING = pattern(r"(?:does not|doesn't) support (?:thinking|reasoning)\b(?![._])", re.IGNORECASE)  # Ollama's
_LONGEST_READ = 2000  # of a message: servers repeat in it what the client sent
# What is wrong is how the parameter is used, not that it is there.
_ABOUT_VALUE = pattern(r"[^.\n]{0,20}\b(?:must|should|between|out of|above|below|without|when|unless|greater|less)\b")
_ABOUT_TOOLS = pattern(
    r"(?:does not|doesn't|do not|cannot|can't|not) (?:currently )?(?:support|accept|allow|take|use)\w*"
    r"(?:(?!parallel)[^.\n]){0,40}?\b(?:tools?\b(?![_ -]choice)|tool[_ -](?:use|calls?\b|calling)|function[_ -]call)"
    r"|(?<!parallel )(?<!parallel_)\b(?:tools?|tool[_ -](?:use|calls?|calling)|function[_ -]call(?:ing|s)?)\b[`'\"]?"
    r" (?:is |are )?(?:currently )?(?:not supported|unsupported|not available|not enabled|disabled)"
    r"|tool[_ -]choice requires? --"
    r"|no endpoints? found that supports? tool"
    r"|tools? param(?:eter)? requires",
    re.IGNORECASE,
)
_MOST_SENT = 200_000  # characters of a request that an error is compared with, on the event loop: more teach nothing
_MOST_TEXTS = 5000
_DEEPEST = 40  # levels of JSON
# What stands at these places of a request is the API's own word, not the client's.
_API_KEYS = frozenset({"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"})
_API_KEYS_OF_PARTS = frozenset(
    {"role", "type", "function", "tool_calls", "tool_call_id", "function_call", "name", "description", "parameters"}
)
_API_VALUES = frozenset({("role", "tool"), ("role", "function"), ("type", "function")})
_PARTS = frozenset({"messages", "tools", "tool_calls", "tool_choice", "function"})
_ESCAPED = pattern(r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|[nrtbfv0])|&#?\w{1,8};")
_WORD = pattern(r"[a-z0-9]+")
_FOLDED = pattern("[ᴬ-ᵪ⁰-₟℀-⅏①-ⓩﬀ-ﬆ！-～𝐀-𝟿]")  # letters that a server may turn into plain ones
_SET_OFF = pattern(r"[^\w\s.,-]+")  # quotation marks, brackets, colons: what stands behind one may be quoted


@dataclass(slots=True)
class Lesson:
    """About one model. `prompted` or `none` in `tool_calls`: it takes no tools; `proven` once asking so has worked."""

    until: float = 0.0
    drop: frozenset[str] = frozenset()
    drop_in_messages: frozenset[str] = frozenset()
    rename: dict[str, str] = field(default_factory=dict)
    bare_end: bool = False  # `tool_choice: none` is refused: then the tools themselves go
    tool_calls: Literal["", "prompted", "none"] = ""
    proven: bool = False
    looked: bool = False  # has the upstream's listing been read for it?
    context: int = 0  # tokens, as listed
    rate: float = 0.0  # tokens that it makes of text for which one is likely; 0.0: it has not said
    sure: bool = True  # is it the server's own word? Else it counts for this request alone

    @property
    def changes_requests(self) -> bool:
        return bool(self.drop or self.drop_in_messages or self.rename or self.bare_end)

    def tool_mode(self, said: ToolCalls) -> ToolMode:
        """How it takes tools, as far as it is known by now. `said` is what the operator said of it."""
        return (self.tool_calls or "native") if said == "auto" else said

    def fitted(self, body: Mapping[str, Any]) -> dict[str, Any]:
        fit = {self.rename.get(key, key): value for key, value in body.items() if key not in self.drop}
        if self.drop_in_messages:
            gone = self.drop_in_messages
            fit["messages"] = [{k: v for k, v in m.items() if k not in gone} for m in fit["messages"]]
        return without_tools(fit) if self.bare_end and fit.get("tool_choice") == "none" else fit

    def merged(self, other: Lesson) -> Lesson:
        return Lesson(
            0.0,
            self.drop | other.drop,
            self.drop_in_messages | other.drop_in_messages,
            {**self.rename, **other.rename},
            other.bare_end or self.bare_end,
            other.tool_calls or self.tool_calls,
            other.proven or self.proven,
            other.looked or self.looked,
            other.context or self.context,
            other.rate or self.rate,
            other.sure and self.sure,
        )


NOTHING = Lesson()

_SHORTEST_COUNTED = 40  # likely tokens: in a shorter request the template weighs more than the text
_RATES = 0.3, 4.0  # what lies beyond counts something else


def rate_in(body: Mapping[str, Any], tokens: int) -> float:
    """How many tokens a model makes of what is likely one, by what it counted of a request; 0.0 where that cannot be
    told: tools, pictures and sounds are tokens too."""
    if body.get("tools") or any(not _is_plain(message) for message in body.get("messages") or ()):
        return 0.0
    likely = sum(map(likely_tokens, texts_asked(body)))
    rate = tokens / likely if likely >= _SHORTEST_COUNTED else 0.0
    return rate if _RATES[0] <= rate <= _RATES[1] else 0.0


def _is_plain(message: object) -> bool:
    content = message.get("content") if isinstance(message, Mapping) else None
    parts = content if isinstance(content, list) else []
    return isinstance(message, Mapping) and not message.get("tool_calls") and all(map(is_text, parts))


class Learned:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lessons: dict[str, Lesson] = {}

    def of(self, model: str) -> Lesson:
        lesson = self._lessons.get(model)
        if lesson is None:
            return NOTHING
        if lesson.until < self._clock():
            del self._lessons[model]
            return NOTHING
        return lesson

    def keep(self, model: str, lesson: Lesson) -> None:
        known = self.of(model)
        kept = known.merged(lesson)
        kept.until = known.until or self._clock() + KEPT  # the oldest fact counts: none outlives its hour
        self._lessons.pop(model, None)
        if len(self._lessons) >= MOST_MODELS:
            del self._lessons[next(iter(self._lessons))]
        self._lessons[model] = kept

    def keep_rate(self, model: str, rate: float) -> None:
        """The last counts most, but one odd request does not turn it over."""
        known = self.of(model).rate
        self.keep(model, Lesson(rate=(known + rate) / 2 if known else rate))

    def forget_mode(self, model: str) -> None:
        lesson = self._lessons.get(model)
        if lesson:
            lesson.tool_calls, lesson.proven = "", False


def lesson_in(failed: Failed, body: Mapping[str, Any], headers: Collection[str] = ()) -> Lesson | None:
    """What to do without, if the refusal names a parameter of the body that the answer does not depend on. `headers`
    are the values of those that were sent with it."""
    if failed.status not in (400, 422):
        return None
    if _is_about_the_choice(failed, body):
        return Lesson(bare_end=True, sure=not Sent(body, headers).holds("tool_choice"))
    names, sure = _refused_names(failed, body, headers)
    lesson = next((lesson for name in names if (lesson := _lesson_about(name, body))), None)
    return replace(lesson, sure=sure) if lesson else None


def _refused_names(failed: Failed, body: Mapping[str, Any], headers: Collection[str]) -> tuple[list[str], bool]:
    """The parameters that a refusal names, as they may stand in the body or, behind `messages`, in a message; and
    whether it is surely the server that names them."""
    said = str(failed.error.get("message") or "")[:_LONGEST_READ]
    thinking = _NO_THINKING.search(said)
    refusals = [found for found in _REFUSALS.finditer(said) if not _ABOUT_VALUE.match(said, found.end())]
    if not thinking and not refusals:
        return [], False
    sent = Sent(body, headers)
    if thinking and not sent.holds(thinking[0]):
        return ["reasoning_effort"], not sent.may_supply(thinking[0], but_fields=True)
    refusals = [found for found in refusals if not sent.holds(found[0])]
    if not refusals:
        return [], False
    sure = not any(sent.may_supply(found[0], but_fields=True) for found in refusals)
    named = [name for found in refusals for name in found.groups() if name]
    names = [_snake(name.removeprefix("body.")) for name in (str(failed.error.get("param") or ""), *named)]
    return names, sure


def _lesson_about(name: str, body: Mapping[str, Any]) -> Lesson | None:
    if name in body and name not in _NEEDED:
        other = _OTHER_NAMES.get(name)
        return Lesson(rename={name: other}) if other and other not in body else Lesson(drop=frozenset({name}))
    top, _, inner = name.partition(".")
    field_name = re.split(r"[.\]]", inner)[-1] if top.startswith("messages") else name
    if field_name not in _NEEDED_IN_MESSAGES and any(field_name in message for message in body["messages"]):
        return Lesson(drop_in_messages=frozenset({field_name}))
    return None


def _is_about_the_choice(failed: Failed, body: Mapping[str, Any]) -> bool:
    """Is it `tool_choice: none` that is refused, and not the tools? Only a last round says that."""
    return (
        body.get("tool_choice") == "none" and "tool_choice" in f"{failed.error.get('param')} {failed.error['message']}"
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: "_" + found[1].lower(), name)


def refuses_tools(
    failed: Failed, body: Mapping[str, Any], headers: Collection[str] = ()
) -> Literal["", "perhaps", "surely"]:
    """Does the server say that this model, or it itself, takes no tools? `perhaps`: unless it quotes the request."""
    if not body.get("tools") or failed.status not in (400, 404, 405, 422, 500, 501):
        return ""
    if _is_about_the_choice(failed, body):
        return ""
    said = str(failed.error.get("message") or "")[:_LONGEST_READ]
    refusals = [found[0] for found in _ABOUT_TOOLS.finditer(said)]
    if not refusals:
        return ""
    sent = Sent(body, headers)
    own = [words for words in refusals if not sent.holds(words)]
    if not own:
        return ""
    return "perhaps" if all(map(sent.may_supply, own)) else "surely"


class Sent:
    """The texts of a request. Servers repeat them in errors, and what is learned from an error holds for everybody.

    Texts are compared by their letters and digits alone: a server may escape, quote, cut or fold what it repeats."""

    def __init__(self, body: Mapping[str, Any], headers: Collection[str] = ()) -> None:
        self._fields: set[str] = set()  # the keys of the body and of its messages, which a refusal may well name
        self._texts: set[str] = set()
        self._left = _MOST_SENT
        self._add_fields(body, _API_KEYS)
        for value in headers:
            self._add(value)

    @property
    def is_cut(self) -> bool:
        """Is there more than these texts, so that it cannot be told what the request holds?"""
        return self._left < 0 or len(self._texts) > _MOST_TEXTS

    def holds(self, said: str) -> bool:
        """Does all of it stand in one text of the request?"""
        letters = "".join(_words(said))
        return any(letters in text.replace(" ", "") for text in self._texts | self._fields)

    def may_supply(self, said: str, *, but_fields: bool = False) -> bool:
        """Can a part of it be a text of the request, whole or cut at one end, or a quoted piece of one? A single word
        only whole: they stand in many texts. `but_fields`: other than the name of a field."""
        words = _words(said)
        runs = {" ".join(words[i:j]) for j in range(len(words) + 1) for i in range(j)}
        tails = tuple(" ".join(words[i:]) + " " for i in range(len(words) - 1))
        heads = tuple(" " + " ".join(words[:i]) for i in range(2, len(words) + 1))
        pieces = [_words(piece) for piece in _SET_OFF.split(said)]
        quoted = [f" {' '.join(piece)} " for piece in pieces if len(piece) > 1] if len(pieces) > 1 else []
        return self.is_cut or any(
            text in runs
            or f"{text} ".startswith(tails)
            or f" {text}".endswith(heads)
            or any(piece in f" {text} " for piece in quoted)
            for text in (self._texts if but_fields else self._texts | self._fields)
        )

    def _add_fields(self, part: Mapping[str, Any], api_keys: Collection[str]) -> None:
        """The body, a message, a tool, or a call."""
        for key, value in part.items():
            if self.is_cut:
                return
            if key not in api_keys:
                self._note(self._fields, key)
            if key in _PARTS:
                for inner in value if isinstance(value, list) else [value]:
                    if isinstance(inner, Mapping):
                        self._add_fields(inner, _API_KEYS_OF_PARTS)
                    else:
                        self._add(inner)
            elif not isinstance(value, str) or (key, value) not in _API_VALUES:
                self._add(value)

    def _add(self, value: Any, depth: int = 0) -> None:
        if self.is_cut:
            return
        if depth > _DEEPEST:
            self._left = -1
        elif isinstance(value, str):
            self._note(self._texts, value)
            if not self.is_cut and value.lstrip()[:1] in ("{", "["):  # the arguments of a call
                with suppress(orjson.JSONDecodeError):
                    self._add(orjson.loads(value), depth + 1)
        elif isinstance(value, int | float):
            self._note(self._texts, str(value))
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                self._note(self._texts, str(key))
                self._add(inner, depth + 1)
        elif isinstance(value, list):
            for inner in value:
                self._add(inner, depth + 1)

    def _note(self, texts: set[str], text: str) -> None:
        self._left = -1 if _FOLDED.search(text) else self._left - len(text)
        if self._left >= 0 and (words := _words(text)):
            texts.add(" ".join(words))


def _words(text: str) -> list[str]:
    """The plain letters and digits, small, without the escapes of JSON, Python, HTML and addresses."""
    text = _ESCAPED.sub(lambda found: chr(int(found[1] or found[2] or "20", 16)), text)
    return _WORD.findall(unquote(text).casefold())
