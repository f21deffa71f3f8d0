"""Why a request was searched or not, in words for people. Handed the reason that a decision carries, or what was seen
of a request when it is over; hands on one sentence or two. Every reason has one: a test looks for those that have none.
"""

from __future__ import annotations

from collections.abc import Iterable

from providers.base import ProviderCall

from .summary import Summary

_HELD = "Search would not fit what the request holds: {what}. A request that asks for search gets it all the same."
_HELD_AND_REFUSED = "Search would not fit what the request holds: {what}."

# By the word in the header `X-Groundwire-Search`; docs/why_not_searched.md has the same list, with what to do.
OFFERED: dict[str, str] = {
    "auto": "Search is offered with every chat request, because the mode is `auto`: the model decides.",
    "web_search_options": "The request asks for search with `web_search_options`.",
    "tool": "The request asks for search with a hosted search tool in `tools`.",
    "tool_choice": "The request asks for search with its `tool_choice`.",
    "model_suffix": "The request asks for search with a model name that ends in `:online`.",
    "header": "The request asks for search with the header `X-Groundwire-Search: on`.",
}
OFF: dict[str, str] = {
    "mode_off": "Search is switched off: `tools.mode`, or the `mode` of this upstream, is `off`.",
    "key_mode_off": "This key may not search: `search.mode` of its entry in `server.keys` is `off`.",
    "header": "The request says that it wants no search, with the header `X-Groundwire-Search: off`.",
    "no_provider": (
        "There is nobody to search with: no provider is configured that this key may use. See `providers` and "
        "`tools.search`."
    ),
    "tool_choice_none": "The client forbids tools for this request: its `tool_choice` is `none`.",
    "tool_choice_client_tool": "The client's `tool_choice` makes the model call a function of the client's own.",
    "tool_choice_allowed_tools": "The client's `tool_choice` lists `allowed_tools`, and search is not among them.",
    "custom_tools": "The request brings custom tools of Chat Completions; such a request is passed on as it is.",
    "not_requested": (
        "The mode is `on_request`, and this request does not ask for search. It would with the header "
        "`X-Groundwire-Search: on`, `web_search_options`, a `web_search` tool, or a model name that ends in `:online`."
    ),
    "background": (
        "This looks like the client's own housekeeping (a title, tags, follow-up questions, a commit message, a "
        "summary), not like a question of a person. A request that asks for search gets it all the same."
    ),
    "n": _HELD_AND_REFUSED.format(what="`n` above 1"),
    "logprobs": _HELD_AND_REFUSED.format(what="`logprobs`"),
    "response_format": _HELD.format(what="a `response_format` that is not text"),
    "audio": _HELD.format(what="sound"),
    "tool_choice_required": _HELD.format(what="a `tool_choice` that demands a call of the client's tools"),
    "functions": _HELD_AND_REFUSED.format(what="the legacy `functions`; use `tools` instead"),
    "client_search": (
        "The client brings a web search function of its own, so ours stays away. A request that asks for search gets "
        "both."
    ),
    # These come of the search before a model that cannot call tools is asked.
    "searched_before": "Nothing was searched again: this turn of the conversation was searched before.",
    "no_room": "The model's context is too small to hold anything that would be found.",
    "no_question": (
        "This model cannot call tools, so Groundwire itself searches for a short question before it asks the model. "
        'The last message is none, or it speaks of the person who asks ("I", "my"), and such words are not sent to '
        "a search engine. Ask in one line of at most 12 words, or let the request ask for search."
    ),
    "no_need": "The model was asked what to search for, and said that there is no need to search.",
}

FIRST = "This model cannot call tools, so Groundwire searched first and gave it what was found."
_UNKNOWN = "No more is known than the reason: {reason}."
PASSED_ON = "It was passed on to the model's server as it is: search is offered with chat requests alone."
NOT_CALLED = (
    "Search was offered, but the model did not call it. It may have known the answer. Where it should have searched, "
    "try a `tool_choice` that names `web_search`, a model that is known to call tools, or for its upstream "
    "`tool_calls: prompted` (the tools are described in words) or `tool_calls: none` (Groundwire searches first)."
)
NOT_REACHED = "Search was offered, but the request was over before any search: see its outcome."
NOT_RUN = (
    "A search was called for, but nobody was asked: the call was malformed, held a key, or there were no searches left."
)
ALL_FAILED = (
    "It searched, but every provider that was asked failed ({failures}). `groundwire check` says what to do about it."
)
NOTHING_FOUND = "It searched, but nothing was found. Another wording, or another provider in `tools.search`, may help."
NOTHING_CITED = (
    "It searched and found something, but the answer cites none of it. `citations.auto: on` marks sentences that a "
    "source plainly holds."
)
CITED = "It searched, and the answer cites what was found."
FOUND = "It searched, and something was found."

_MOST_NAMED = 5


def why_decided(reason: str, *, offered: bool, first: bool = False) -> str:
    """The sentence for a decision. Never nothing: a reason without a sentence is named."""
    said = (OFFERED if offered else OFF).get(reason) or _UNKNOWN.format(reason=reason)
    return f"{FIRST} {said}" if first else said


def why(summary: Summary, outcome: str) -> str:
    """The answer to "why did it (not) search?", when the request is over; nothing where search was no question."""
    if summary.search == "off":
        return why_decided(summary.reason, offered=False)
    if not summary.search and not summary.tools and not summary.calls:
        return PASSED_ON if summary.rounds else ""
    if not summary.tools and not summary.calls:
        return NOT_CALLED if outcome == "ok" else NOT_REACHED
    return _why_found(summary, outcome)


def _why_found(summary: Summary, outcome: str) -> str:
    if not summary.calls:
        return NOT_RUN
    outcomes = {call.outcome for call in summary.calls}
    if "ok" not in outcomes:
        return NOTHING_FOUND if "empty" in outcomes else ALL_FAILED.format(failures=_named(summary.calls))
    if summary.citations:
        return CITED
    answered = summary.rounds and outcome == "ok"  # without a whole answer of a model, none is missed
    return NOTHING_CITED if answered else FOUND


def _named(calls: Iterable[ProviderCall]) -> str:
    failures = list(dict.fromkeys(f"{call.provider}: {call.outcome}" for call in calls))
    return ", ".join(failures[:_MOST_NAMED]) + (", …" if len(failures) > _MOST_NAMED else "")
