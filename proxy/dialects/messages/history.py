"""Messages → the chat messages that the model is asked with. Handed a decoded request and the handles of its caller;
hands on a `Conversation`, put together by `values/history.py`.

A message of ours may hold several rounds: searches with their results stand in it as blocks. They become rounds again,
as far as their handles can be opened; what cannot be is left out, and its text stays. In a message whose client calls
carry our key our blocks are left out altogether: what belongs there is kept in the store (`answering/turns.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import orjson

from providers.base import Basis
from providers.records import dataclass
from tools.base import OPEN_PAGE, WEB_SEARCH
from tools.ledger import KnownSource

from ...answering.turns import keys_in
from ...values.errors import quoted, refuse
from ...values.events import GatheredFields
from ...values.history import AssistantTurn, History, HistoryCall, with_unique_ids
from ...values.messages import role_of
from ..tool_names import short_enough
from .content import blocks_of, chat_content, chat_parts, result_parts, text_of
from .declared_tools import DeclaredTools
from .handles import Handles

OWN_SIGNATURE = "Z3JvdW5kd2lyZQ=="  # of thinking that its model did not sign: some clients send back signed blocks only
_ROLES = ("user", "assistant", "system")
# Claude Code tells its vendor's billing what it is, differently each time: no model needs it, and no cache outlives it.
_NOT_FOR_MODELS = "x-anthropic-billing-header:"


@dataclass(frozen=True, slots=True)
class Conversation:
    messages: list[dict[str, Any]]
    sources: dict[int, KnownSource] = field(default_factory=dict)  # by number, from handles


def conversation(
    system: Any, messages: Sequence[Any], tools: DeclaredTools, handles: Handles | None = None
) -> Conversation:
    reader = _Reader(tools, handles)
    if told := _system_text(system, "system"):
        reader.history.add({"role": "system", "content": told})
    for place, message in enumerate(messages):
        reader.read(message, f"messages.{place}")
    told_messages = _without_old_thoughts(with_unique_ids(reader.history.messages()))
    if all(role_of(message) == "system" for message in told_messages):
        raise refuse(400, "`messages` holds nothing to answer.", param="messages", code="invalid_value")
    return Conversation(told_messages, reader.known_sources())


def _system_text(system: Any, param: str) -> str:
    if system is None:
        return ""
    told = [block for block in blocks_of(system, param) if block["type"] == "text"]
    return text_of([block for block in told if not block["text"].startswith(_NOT_FOR_MODELS)], "\n\n")


def _without_old_thoughts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Thinking goes back while the model is still at work on the question; before that only what is signed does."""
    asked = max((at for at, message in enumerate(messages) if role_of(message) == "user"), default=0)
    return [
        {key: value for key, value in message.items() if key != "reasoning_content"}
        if at < asked and "thinking_blocks" not in message
        else message
        for at, message in enumerate(messages)
    ]


class _Reader:
    def __init__(self, tools: DeclaredTools, handles: Handles | None) -> None:
        self.history = History()
        self._sources: dict[int, KnownSource] = {}
        self._given: dict[tuple[str, Basis], dict[str, None]] = {}  # what the model has read of a source, in order
        self._handles = handles
        self._names = {tool["function"]["name"] for tool in tools.functions}
        self._uses: dict[str, Mapping[str, Any]] = {}  # id → a server tool's use that waits for its result
        self._said = GatheredFields()  # by the turn under way: text and thinking come in blocks
        self._has_text = False  # of that turn

    def read(self, message: Any, param: str) -> None:
        role = role_of(message)
        if role not in _ROLES:
            text = f"`{param}.role` must be one of {', '.join(_ROLES)}."
            raise refuse(400, text, param=f"{param}.role", code="invalid_value")
        if role == "system":
            if told := _system_text(message.get("content"), f"{param}.content"):
                self.history.add({"role": "system", "content": told})
            return
        blocks = blocks_of(message.get("content"), f"{param}.content")
        if role == "user":
            self._read_user(blocks, f"{param}.content")
        else:
            read = self._read_kept if keys_in([_as_calls(blocks)]) else self._read_assistant
            read(blocks)
            self._end_turn()
            self.history.part()

    def known_sources(self) -> dict[int, KnownSource]:
        return {n: self._with_texts(source) for n, source in self._sources.items()}

    def _with_texts(self, source: KnownSource) -> KnownSource:
        """What the page itself says, else what was said about it."""
        of_page, about = (self._given.get((source.url, basis), {}) for basis in ("page", "snippet"))
        basis: Basis | None = "page" if of_page else "snippet" if about else None
        return source._replace(given=tuple(of_page or about), basis=basis)

    # What the user says

    def _read_user(self, blocks: Sequence[Mapping[str, Any]], param: str) -> None:
        parts: list[dict[str, Any]] = []
        for place, block in enumerate(blocks):
            if block["type"] == "tool_result":
                parts += self._read_result(block, f"{param}.{place}")
            else:
                parts += chat_parts(block, f"{param}.{place}")
        if parts:
            self.history.add({"role": "user", "content": chat_content(parts)})

    def _read_result(self, block: Mapping[str, Any], param: str) -> list[dict[str, Any]]:
        call_id = block.get("tool_use_id")
        text, others = result_parts(block, param)
        if not isinstance(call_id, str) or not self.history.answer(call_id, {"role": "tool", "content": text}):
            said = f"`{param}`: no `tool_use` block before it has the id {quoted(call_id)}."
            raise refuse(400, said, param=f"{param}.tool_use_id", code="invalid_value")
        return others

    # What the assistant said

    def _turn(self) -> AssistantTurn:
        """The turn that what is said next belongs to."""
        last = self.history.entries[-1] if self.history.entries else None
        if isinstance(last, AssistantTurn) and last.takes(""):
            return last
        self._end_turn()
        return self.history.begin_turn({"role": "assistant", "content": None}, is_open=True)

    def _end_turn(self) -> None:
        """All that was said in it is known: only now it is put together, for each block would copy those before it."""
        last = self.history.entries[-1] if self.history.entries else None
        if isinstance(last, AssistantTurn):
            last.message |= self._said.whole()
        self._said, self._has_text = GatheredFields(), False

    def _read_kept(self, blocks: Sequence[Mapping[str, Any]]) -> None:
        """With what the client saw, as the store's turn is compared with it."""
        self._turn()
        for block in blocks:
            if block["type"] == "text":
                self._say(block["text"])
            elif block["type"] in ("thinking", "redacted_thinking"):
                self._said.add(_thoughts(block))
            elif block["type"] == "tool_use":
                self._call(block)
            elif block["type"] == "web_search_tool_result":
                self._found(block.get("content"))  # for what is cited of it from here on

    def _read_assistant(self, blocks: Sequence[Mapping[str, Any]]) -> None:
        for block in blocks:
            kind = block["type"]
            if kind == "text":
                self._read_text(block)
            elif kind in ("thinking", "redacted_thinking"):
                self._turn()
                self._said.add(_thoughts(block))
            elif kind == "tool_use":
                self._turn()
                self._call(block)
            elif kind == "server_tool_use":
                self._turn()
                self._uses[str(block.get("id"))] = block
            elif kind in ("web_search_tool_result", "web_fetch_tool_result"):
                self._read_found(block)

    def _say(self, text: str) -> None:
        if text:
            self._said.add({"content": text})
            self._has_text = True

    def _read_text(self, block: Mapping[str, Any]) -> None:
        self._turn()
        text = self._marked(block)
        self._say(text if self._has_text else text.removeprefix("\n\n"))  # what parts two rounds is nobody's

    def _marked(self, block: Mapping[str, Any]) -> str:
        """The text with the model's own markers where our citations stand."""
        text: str = block["text"]
        cited = block.get("citations")
        listed = [mark for mark in cited if isinstance(mark, dict)] if isinstance(cited, list) else []
        found = [self._opened(mark.get("encrypted_index")) for mark in listed]
        marks: dict[int, list[int]] = {}
        for mark in found:
            if mark and self._learn(mark) and not mark.get("auto"):  # what it did not write the model does not read
                marks.setdefault(min(mark.get("behind", 0), len(text)), []).append(mark["n"])
        pieces: list[str] = []
        end = len(text)
        for behind, numbers in sorted(marks.items()):  # from its end on
            at = len(text) - behind
            pieces += [text[at:end], " " + "".join(f"[{n}]" for n in numbers)]
            end = at
        return "".join([text[:end], *reversed(pieces)])

    def _opened(self, handle: object) -> Any:
        return self._handles.open(handle) if self._handles else None

    def _learn(self, source: Mapping[str, Any]) -> bool:
        """Whether its number is its own: the first page to claim one holds it."""
        known = KnownSource(source["url"], source["title"])
        if source.get("snippet"):
            self._give(known.url, source["snippet"], source.get("basis", "snippet"))
        return self._sources.setdefault(source["n"], known).url == known.url

    def _give(self, url: str, text: str, basis: Basis) -> None:
        self._given.setdefault((url, basis), {})[text] = None

    def _call(self, block: Mapping[str, Any]) -> None:
        id_, name = block.get("id"), block.get("name")
        if not isinstance(id_, str) or not isinstance(name, str):
            raise refuse(400, "A `tool_use` block needs an `id` and a `name`.", param="messages", code="missing_field")
        self._add_call(id_, id_, short_enough(name), block.get("input"))

    def _add_call(self, id_: str, shown: str, name: str, arguments: Any) -> None:
        written = arguments  # as the model wrote them, where that is known
        if not isinstance(written, str):
            written = orjson.dumps(arguments if isinstance(arguments, dict) else {}).decode()
        call = {"id": id_, "type": "function", "function": {"name": name, "arguments": written}}
        last = self.history.entries[-1]
        self.history.call([HistoryCall(call, (shown,), place=len(last.calls))])

    # What was searched and read for it

    def _read_found(self, block: Mapping[str, Any]) -> None:
        shown = str(block.get("tool_use_id"))
        use = self._uses.pop(shown, None)
        last = self.history.entries[-1] if self.history.entries else None
        if use is None or not isinstance(last, AssistantTurn):
            return
        is_search = block["type"] == "web_search_tool_result"
        found = self._found(block.get("content")) if is_search else _read(block.get("content"))
        if found is None:
            return
        call_id, arguments, text = found
        if not is_search:
            self._give(str(block["content"].get("url")), text, "page")
        name = self._our_name(WEB_SEARCH if is_search else OPEN_PAGE)
        self._add_call(call_id or shown, shown, name, arguments or use.get("input"))
        self.history.answer(shown, {"role": "tool", "content": text})

    def _our_name(self, tool: str) -> str:
        return tool if tool not in self._names else f"groundwire_{tool}"

    def _found(self, results: Any) -> tuple[str, Any, str] | None:
        """What a search found: the id and the arguments of the call, and what the model read."""
        if not isinstance(results, list):
            return None
        opened = [self._opened(result.get("encrypted_content")) for result in results if isinstance(result, dict)]
        known = [source for source in opened if source]
        for source in known:
            self._learn(source)
        if not known:
            return None
        call: Mapping[str, Any] = next((source for source in known if source.get("text")), {})
        rows = "\n\n".join(f"[{s['n']}] {s['title']}\n{s['url']}\n{s.get('snippet', '')}".strip() for s in known)
        return call.get("id", ""), call.get("arguments"), call.get("text") or rows


def _read(content: Any) -> tuple[str, Any, str] | None:
    """What a page said. It is not signed: all of it stands in the open."""
    document = content.get("content") if isinstance(content, dict) else None
    source = document.get("source") if isinstance(document, dict) else None
    text = source.get("data") if isinstance(source, dict) else None
    return ("", None, text) if isinstance(text, str) else None


def _as_calls(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    calls = [{"id": block.get("id")} for block in blocks if block["type"] == "tool_use"]
    return {"role": "assistant", "tool_calls": calls}


def _thoughts(block: Mapping[str, Any]) -> dict[str, Any]:
    """As the model's server takes them back: what it signed verbatim, beside it what there is to read."""
    said = block.get("thinking")
    fields: dict[str, Any] = {"reasoning_content": said} if isinstance(said, str) and said else {}
    if block["type"] == "redacted_thinking" or block.get("signature") not in (None, "", OWN_SIGNATURE):
        fields["thinking_blocks"] = [{key: value for key, value in block.items() if key != "cache_control"}]
    return fields
