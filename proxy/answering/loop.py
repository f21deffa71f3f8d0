"""The rounds of one answer, as a pure state machine: no I/O, no clock. The engine hands it what the model said and
what the tools found; it hands on what the client may see and says what to do next.

A round asks the model once. Text and thinking pass straight through; calls of the client's tools pass, renumbered
from 0; our own calls, and calls of tools nobody offered, are held back and answered here. Then the model is asked
again, with the hidden turn behind the conversation, until it answers, calls the client, or has used up its rounds: then
it is told to answer, in the last result and, where the client has no tools, by `tool_choice`. The list of tools stays
as it was, because servers read the whole prompt again when it changes; only who calls ours all the same loses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from providers.records import dataclass
from tools import prompts
from tools.base import ToolCall, ToolResult

from ..upstreams.failures import is_overflow
from ..upstreams.repairs import new_call_id
from ..upstreams.thinking import without_thinking
from ..values.events import (
    Begun,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    Replan,
    RoundFinished,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
    merge_fields,
)
from ..values.messages import calls_in
from ..values.usage import add_usage
from .announced_search import announces_search
from .model_round import ModelRound, PendingCall
from .offer import Offer, tool_name, with_client_tools_alone
from .turns import marked, new_key

MOST_REPLANS = 16  # of one request: one for each fallback, and some for upstreams that change their mind


@dataclass(frozen=True, slots=True)
class SearchFirst:
    """The model cannot call: search before it is asked, and hand `searched` what to ask it with."""


@dataclass(frozen=True, slots=True)
class AskModel:
    body: dict[str, Any]
    known_tools: Sequence[Any] | None = None  # that it has heard of, where these are more than the body offers


@dataclass(frozen=True, slots=True)
class RunTools:
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class KeepTurn:
    """The client is called, and something stays hidden from it: store that under the key before the answer ends."""

    key: str
    before: list[dict[str, Any]]
    calls: dict[str, Any]
    results: dict[str, str]


@dataclass(frozen=True, slots=True)
class End:
    pass


Action = SearchFirst | AskModel | RunTools | KeepTurn | End
_END = End()


class ToolLoop:
    """Obey `next_action()`; feed `receive()`, `searched()`, `tools_done()` or `turn_kept()`; pass on what they return.

    `search_first` says that the model is known to be one that cannot call."""

    def __init__(self, offer: Offer, max_rounds: int, assist: bool = False, search_first: bool = False) -> None:
        self._max_rounds = max_rounds
        self._key = ""  # made when the client is called while something may stay hidden from it
        self._last_turn: list[dict[str, Any]] = []  # the client's turn, with what ran in it
        self._reason = ""  # how the answer will end once its turn is kept
        self._stop_word = ""  # at which the round under way was stopped
        self._rounds = 0
        self._replans = 0
        self._round = ModelRound()
        self._ours_taken_away = False  # because the model called them in the last round all the same
        self._ran = False
        self._begun = False
        self.called = False  # has the model called anything?
        self._shown_calls = 0
        self._last_text = " "  # of what is shown so far; before any, a blank
        self._usage: dict[str, Any] = {}
        self._bare: Offer | None = None  # without what a first search found
        self.gave_up_reading = False  # because the model could not hold that
        self._take(offer)
        self._may_nudge = assist and bool(offer.owned)  # may the model be reminded of a search that it only announced?
        self._action: Action | None = SearchFirst() if search_first and offer.owned else None  # None: ask the model

    def _take(self, offer: Offer) -> None:
        self._offer = offer
        self._messages: list[Any] = list(offer.body["messages"])
        self._given = len(self._messages)  # what comes behind these is hidden from the client
        self._last = not offer.owned  # is the round under way one in which our tools may not be called?
        self._formatted = offer.response_format is None or not offer.owned
        self._used_ids: set[str] | None = None  # of calls; known when the model calls

    @property
    def reading(self) -> str:
        return self._offer.reading

    def begin(self) -> list[Event]:
        """What an answer begins with, unless it has begun."""
        return self._begin(Begun())

    def next_action(self) -> Action:
        if self._action:
            return self._action
        return AskModel(self._request(), self._offer.body["tools"] if self._offer.owned else None)

    def searched(self, offer: Offer, usage: Mapping[str, Any], bare: Offer | None = None) -> None:
        """The search before the question is over: `offer` is what the model is asked now, `usage` what that cost;
        `bare` is what it is asked if it cannot hold that."""
        self._take(offer)
        self._bare = bare if offer.reading else None
        self._may_nudge = False
        add_usage(self._usage, usage)
        self._next_round()

    def receive(self, events: Sequence[Event]) -> list[Event]:
        out = [] if self._begun else self._begin_with(events[0])
        for event in events:
            if type(event) is TextDelta:  # nearly all there is, so not by a call of its own
                said = self._round.text
                said.append(event.text)
                if self._formatted:  # else it is not the answer: the final, formatted request is still to come
                    shown = event if len(said) > 1 else self._set_off(event)
                    self._last_text = shown.text
                    out.append(shown)
            elif type(event) in _RECEIVERS:
                _RECEIVERS[type(event)](self, event, out)
        return out

    def _fail(self, event: Failed, out: list[Event]) -> None:
        """The end; unless it is only too much that we gave the model to read, and it has said nothing yet."""
        spoken = self._round.text or self._round.calls or len(self._messages) > self._given
        if self._bare is None or spoken or not is_overflow(event):
            self._action = _END
            out.append(event)
            return
        bare, self._bare = self._bare, None
        self.gave_up_reading = True
        self._take(bare)
        self._next_round()

    def _begin_with(self, event: Event) -> list[Event]:
        """Whatever the model says first, the answer begins with `Begun`: its own, or ours where it sent none."""
        if type(event) is Begun:
            return self._begin(event)
        return [] if isinstance(event, Failed | Replan) else self._begin(Begun())

    def _begin(self, event: Begun) -> list[Event]:
        if self._begun:
            return []
        self._begun = True
        return [event]

    def _replan(self, event: Replan, out: list[Event]) -> None:
        """The model is asked again as it can be asked. What the client has seen goes on, with our tools in words."""
        self._replans += 1
        if self._replans > MOST_REPLANS:
            self._action = _END
            out.append(event.failed)
            return
        self._next_round()
        if event.tool_mode == "none" and self._offer.owned and not self._begun:
            self._action = SearchFirst()

    def tools_done(self, results: Sequence[ToolResult], *, spent: bool = False) -> list[Event]:
        """The tools have run. `spent` says that a budget is used up: then the next round is the last."""
        calls = list(self._round.calls.values())
        names = {call.id: self._tool_of(call) for call in calls}
        finished: list[Event] = [ToolFinished(r.id, names[r.id], r.ok, r.provider, r.sources) for r in results]
        if self._reason:  # the client was called in the same turn: it goes on when the client has answered
            self._keep_turn(calls, {result.id: result.text for result in results})
            return finished
        answered = [_result_message(result.id, result.text) for result in results]
        self._rounds += 1
        self._ran = True
        self._last = spent or self._rounds >= self._max_rounds
        self._formatted = self._formatted or self._last
        if self._last:
            answered[-1]["content"] += "\n\n" + prompts.ANSWER_NOW
        return [*finished, self._grow([self._assistant_message(calls), *answered])]

    def turn_kept(self) -> list[Event]:
        return self._end(self._reason)

    def ready(self) -> list[ToolCall]:
        """Our calls that are complete while the client's are still being streamed: they may run meanwhile."""
        calls = list(self._round.calls.values())
        if not calls or calls[-1].ours or self._last:
            return []
        return [self._as_tool_call(call) for call in self._round.ours]

    # What the model says

    def _set_off(self, event: TextDelta) -> TextDelta:
        """The first text of a round, behind that of the round before."""
        if self._last_text[-1].isspace() or event.text[0].isspace():
            return event
        return TextDelta("\n\n" + event.text, ("\n\n" + event.cut[0], *event.cut[1:]))

    def _receive_thought(self, event: ReasoningDelta, out: list[Event]) -> None:
        if event.echoed:
            self._round.think(event.fields)
        out.append(event)

    def _receive_call(self, event: ToolCallDelta, out: list[Event]) -> None:
        call = self._round.calls.get(event.index)
        self.called = True
        if call is None:
            ours = bool(self._offer.owned) and event.name not in self._offer.client_tools
            call = PendingCall(self._fresh_id(event.id), event.name, [], {}, ours)
            if not ours:
                if not self._key and (self._offer.owned or self._offer.reading):
                    self._key = new_key()
                call.shown_as = self._shown_calls
                self._shown_calls += 1
            self._round.begin_call(event.index, call)
        call.arguments.append(event.arguments)
        if event.extra:
            merge_fields(call.extra, event.extra)
        if not call.ours:
            id_ = call.id if event.id else ""
            shown = marked(id_, self._key) if id_ and self._key else id_
            out.append(ToolCallDelta(call.shown_as, shown, event.name, event.arguments, event.extra))

    def _receive_usage(self, event: UsageSeen, out: list[Event]) -> None:
        add_usage(self._usage, event.usage)

    def _receive_end(self, event: Finished, out: list[Event]) -> None:
        self._stop_word = event.stop_word
        out += self._close_round(event.reason)

    def _fresh_id(self, given: str) -> str:
        """Some models number their calls anew every turn; in one history every id must stand once."""
        if self._used_ids is None:
            self._used_ids = {call["id"] for message in self._messages for call in calls_in(message)}
        fresh = given if given not in self._used_ids else new_call_id()
        self._used_ids.add(fresh)
        return fresh

    def _close_round(self, reason: str) -> list[Event]:
        ours, theirs = self._round.ours, self._round.theirs
        if theirs:
            return self._call_client(ours, theirs, reason)
        if ours and self._may_run(ours, reason):
            return self._run(ours)
        if ours and self._must_be_refused():
            return self._refuse(ours)
        if not ours and self._only_announced(reason):
            return [self._nudge()]
        if not self._formatted:
            self._formatted = self._last = True
            self._next_round()
            return []
        return self._end("stop" if reason == "tool_calls" else reason)

    def _may_run(self, ours: Sequence[PendingCall], reason: str) -> bool:
        was_cut = reason == "length" and ours[-1].is_cut()
        return not self._last and not was_cut

    def _must_be_refused(self) -> bool:
        """Calls of ours in the last round. What the model said beside them may be the answer, unless nothing but words
        kept it from calling."""
        return self._last and not self._ours_taken_away and (self._was_only_told() or not self._round.text)

    def _refuse(self, ours: Sequence[PendingCall]) -> list[Event]:
        """The model is asked once more, with none of our tools in sight."""
        self._ours_taken_away = True
        if not self._was_only_told():
            self._next_round()
            return []
        refused = [_result_message(call.id, prompts.NO_MORE_CALLS) for call in ours]
        return [self._grow([self._assistant_message(list(ours)), *refused])]

    def _was_only_told(self) -> bool:
        """Where the client may be called, no `tool_choice` says that ours may not. With a format what was said counts:
        it would be written twice."""
        return self._client_may_be_called() and self._offer.response_format is None

    def _client_may_be_called(self) -> bool:
        offer = self._offer
        return offer.client_choice != "none" and any(tool_name(tool) not in offer.owned for tool in offer.body["tools"])

    def _only_announced(self, reason: str) -> bool:
        """Has the model promised a search instead of calling for it, and may it be reminded?"""
        if self._last or not self._may_nudge or reason not in ("stop", "tool_calls"):
            return False
        return announces_search("".join(self._round.text))

    def _nudge(self) -> Event:
        self._may_nudge = False
        text = prompts.NUDGE.format(tool=next(iter(self._offer.owned)))
        return self._grow([self._assistant_message([]), {"role": "user", "content": text}])

    def _run(self, ours: Sequence[PendingCall]) -> list[Event]:
        self._action = RunTools(tuple(map(self._as_tool_call, ours)))
        return [ToolStarted(call.id, self._tool_of(call), call.as_object()) for call in ours]

    def _call_client(self, ours: Sequence[PendingCall], theirs: Sequence[PendingCall], reason: str) -> list[Event]:
        """The client's turn. Ours beside its calls run first; all that it does not see is kept for when it returns."""
        cut = reason in ("length", "content_filter")  # its arguments are not mended, and ours may be half
        empty = [] if cut else [call for call in theirs if not any(call.arguments)]
        out: list[Event] = [ToolCallDelta(call.shown_as, arguments="{}") for call in empty]
        self._reason = reason if cut else "tool_calls"
        if ours and not cut and not self._last:
            return out + self._run(ours)
        if len(self._messages) > self._given or self._offer.reading:
            self._keep_turn(list(theirs), {})
            return out
        return out + self._end(self._reason)

    def _keep_turn(self, calls: list[PendingCall], results: dict[str, str]) -> None:
        hidden, said = self._messages[self._given :], self._assistant_message(calls)
        self._last_turn = [said, *(_result_message(id_, text) for id_, text in results.items())]
        self._action = KeepTurn(self._key, hidden, said, results)

    def _as_tool_call(self, call: PendingCall) -> ToolCall:
        return ToolCall(call.id, self._tool_of(call), "".join(call.arguments))

    def _end(self, reason: str) -> list[Event]:
        self._action = _END
        last = self._last_turn or [self._assistant_message(self._round.theirs)]
        return [RoundFinished(tuple(last)), UsageSeen(self._usage), Finished(reason, self._stop_word)]

    # What the model is asked

    def _grow(self, messages: list[dict[str, Any]]) -> Event:
        """The round is over and the conversation longer: the model is asked again."""
        self._messages += messages
        self._next_round()
        return RoundFinished(tuple(messages))

    def _next_round(self) -> None:
        self._round = ModelRound()
        self._action = None

    def _request(self) -> dict[str, Any]:
        offer = self._offer
        body = {**offer.body, "messages": self._messages}
        if not offer.owned:
            return body
        if self._formatted and offer.response_format is not None:
            body["response_format"] = offer.response_format
        if self._ours_taken_away:
            return with_client_tools_alone(body, offer)
        if self._last and not self._client_may_be_called():
            body["tool_choice"] = "none"
        elif (self._ran or self._last) and "tool_choice" in body:
            body["tool_choice"] = offer.free_choice
        return body

    def _assistant_message(self, calls: Sequence[PendingCall]) -> dict[str, Any]:
        text, thought = without_thinking("".join(self._round.text)), self._round.fields
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = list(map(PendingCall.as_message, calls))
        return message | thought.whole() if thought else message

    def _tool_of(self, call: PendingCall) -> str:
        return self._offer.owned.get(call.name, call.name)


def _result_message(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


_RECEIVERS: dict[type, Callable[[ToolLoop, Any, list[Event]], None]] = {
    ToolCallDelta: ToolLoop._receive_call,
    ReasoningDelta: ToolLoop._receive_thought,
    UsageSeen: ToolLoop._receive_usage,
    Finished: ToolLoop._receive_end,
    Failed: ToolLoop._fail,
    Replan: ToolLoop._replan,
}
