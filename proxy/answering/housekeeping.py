"""What chat clients ask for themselves, beside what people ask: titles, tags, follow-ups, queries, commit messages, and
summaries of conversations that grow too long. Handed a Chat Completions body; hands on whether it is such housekeeping,
which `auto` never searches for. Pure.

A signal is how the text of one client begins, in as few words as tell it from what a person may write. A missed one
costs a search; a false one would take search from a person, so each wants words that only the client writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from providers.records import dataclass

from ..values.messages import texts_in

Place = Literal["system", "last"]  # the first system message, or the last message
_INSTRUCTS = ("system", "developer")
_ASKS = ("user", *_INSTRUCTS)  # NextChat lets its system ask for the summary
_BEGINNING = 400  # characters of a message in which a signal's first words stand


class Said:
    """A message's text, and its beginning as signals are written."""

    __slots__ = ("beginning", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.beginning = " ".join(text[:_BEGINNING].lower().split())


@dataclass(frozen=True, slots=True)
class Signal:
    """`begins`: the first words, in small letters, with one space where the client has white space of any kind.
    `holds`: what else the beginning holds, or behind it the whole text where `anywhere` says so.
    `with_tools`: it is sent with the client's tools too; others are told from a conversation by their absence."""

    client: str
    version: str  # in which it was seen
    where: Place
    begins: str
    holds: str = ""
    anywhere: bool = False
    with_tools: bool = False

    def fits(self, said: Said) -> bool:
        if not said.beginning.startswith(self.begins):
            return False
        return self.holds in (said.text.lower() if self.anywhere else said.beginning)


def _open_webui(begins: str, holds: str = "</chat_history>") -> Signal:
    return Signal("Open WebUI", "0.12", "last", "### task: " + begins, holds, anywhere=True)


SIGNALS: tuple[Signal, ...] = (
    _open_webui("generate a concise, 3-5 word title"),
    _open_webui("generate a concise title"),
    _open_webui("generate 1-3 broad tags"),
    _open_webui("suggest 3-5 relevant follow-up questions"),  # until 0.10
    _open_webui("predict 3-5 useful messages"),
    _open_webui("generate search queries"),
    _open_webui("analyze the chat history to determine the necessity of generating"),  # queries, until 0.10
    _open_webui("generate a detailed prompt for am image"),
    _open_webui("you are an autocompletion system. continue the text in", "</text>"),
    _open_webui("summarize the conversation history that will be compacted out of", ""),
    Signal("Open WebUI", "0.10", "last", "your task is to reflect the speaker's likely facial expression"),
    Signal("opencode", "1.18", "system", "you are a title generator. you output only"),
    Signal("opencode", "1.18", "system", "you are a context summarization agent. you are given a conversation"),
    Signal("opencode", "1.18", "system", "summarize what was done in this conversation. write like a pull request"),
    Signal("gptme", "0.32", "system", "generate concise conversation titles."),
    Signal("gptme", "0.33", "last", "your task: create a 2-4 word title for this conversation"),
    Signal("gptme", "0.33", "last", "generate a descriptive name for this conversation. the name should"),
    Signal("aider", "0.86", "system", "you are an expert software engineer that generates concise, one-line git"),
    Signal("aider", "0.86", "system", "*briefly* summarize this partial conversation"),
    Signal("Codex", "0.166", "last", "you are performing a context checkpoint compaction. create", with_tools=True),
    Signal("LibreChat", "0.8", "last", "provide a concise, 5-word-or-less title for the conversation, using"),
    Signal("LibreChat", "0.8", "last", "analyze this conversation and provide: 1. the detected language"),
    Signal(
        "LibreChat",
        "0.8",
        "last",
        "please generate a concise title (max 40 characters) for a conversation that starts with:",
    ),
    Signal("LibreChat", "0.8", "last", "summarize the conversation by integrating new lines into the current"),
    Signal("LobeChat", "2.0", "system", "you are a professional conversation summarizer. generate a concise title"),
    Signal("LobeChat", "2.0", "system", "you're an assistant who's good at extracting key takeaways from conv"),
    Signal("LobeChat", "2.0", "system", "you are an emoji expert who selects the most appropriate emoji"),
    Signal("LobeChat", "2.0", "system", "你是一名擅长会话标签总结的助理"),
    Signal("LobeChat", "2.0", "system", "你是一名擅长起名的起名大师，名字需要有文学内涵", "字以内的角色"),
    Signal("LobeChat", "2.0", "system", "你是一名擅长技能总结的助理"),
    Signal("LobeChat", "2.0", "system", "你是一位资深的 ai 艺术创作者和语言大师。你需要根据"),
    Signal("Continue", "1.5", "last", "given the following... please reply with a title for the chat"),
    Signal(
        "Continue",
        "1.5",
        "last",
        "create a comprehensive summary of this conversation that captures all essential",
        with_tools=True,
    ),
    Signal(
        "Continue",
        "1.5",
        "last",
        "please provide a concise summary of our conversation so far, capturing",
        with_tools=True,
    ),
    Signal("Cline", "4.1", "system", "you are a helpful assistant that generates informative git commit messages"),
    Signal("Cline", "4.1", "system", "summarize the provided coding session into a concise continuation note"),
    Signal(
        "Roo Code", "3.52", "system", "you are a helpful ai assistant tasked with summarizing conv", with_tools=True
    ),
    Signal("Roo Code", "3.52", "last", "critical: this summarization request is a system operation", with_tools=True),
    Signal(
        "Claude Code",
        "2.1",
        "last",
        "your task is to create a detailed summary of the conversation so far, paying",
        with_tools=True,
    ),
    Signal("Claude Code", "2.1", "last", "critical: respond with text only.", "do not call any tools", with_tools=True),
    Signal("Qwen Code", "0.22", "system", "you are the component that summarizes a conversation when", with_tools=True),
    Signal("Qwen Code", "0.22", "system", "generate a concise, sentence-case title (3-7 words)"),
    Signal("Crush", "0.90", "system", "you will generate a short title based on the first message"),
    Signal("Crush", "0.90", "system", "you are summarizing a conversation to preserve context", with_tools=True),
    Signal("Vercel's chatbot", "3", "system", "- you will generate a short title based on the first message"),
    Signal(
        "Cherry Studio", "2.0", "system", "you are an assistant skilled in conversation. you need to summarize the user"
    ),
    Signal("NextChat", "2.16", "last", "please generate a four to five word title summarizing our conversation"),
    Signal("NextChat", "2.16", "last", "summarize the discussion briefly in 200 words or less to use as a prompt"),
)


@cache  # made when it is first asked for: it takes milliseconds
def _any_beginning(where: Place) -> re.Pattern[str]:
    """What every text with a signal at this place begins with, and hardly any other text."""
    begins = [signal.begins.split() for signal in SIGNALS if signal.where == where]
    return re.compile(r"\s*+" + _any_of(begins), re.IGNORECASE)


def _any_of(begins: list[list[str]]) -> str:
    """Words that several of them begin with are read once."""
    if not all(begins):
        return ""
    words = [(re.escape(word), [rest[1:] for rest in rests]) for word, rests in groupby(sorted(begins), itemgetter(0))]
    return "(?:" + "|".join(word + (r"\s++" + more if (more := _any_of(rests)) else "") for word, rests in words) + ")"


def is_housekeeping(body: Mapping[str, Any]) -> bool:
    """Does the client ask for itself?"""
    messages = body.get("messages")
    if not messages:
        return False
    first, last = messages[0], messages[-1]
    return _is_signal("system", first, _INSTRUCTS, body) or _is_signal("last", last, _ASKS, body)


def _is_signal(where: Place, message: Mapping[str, Any], speakers: tuple[str, ...], body: Mapping[str, Any]) -> bool:
    if message.get("role") not in speakers:
        return False
    content = message.get("content")
    text = content if type(content) is str else "\n".join(texts_in(content))
    if not _any_beginning(where).match(text, 0, _BEGINNING):  # nearly all that comes
        return False
    said, has_tools = Said(text), bool(body.get("tools"))
    told = [signal for signal in SIGNALS if signal.where == where and (signal.with_tools or not has_tools)]
    return any(signal.fits(said) for signal in told)
