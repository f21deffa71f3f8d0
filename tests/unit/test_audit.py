"""Lines that wait for the disk: each takes the room that it really takes, so that a disk that hangs costs lines and not
the memory of the machine.
"""

from __future__ import annotations

from typing import Any

from proxy.watching.audit import AuditLine
from proxy.watching.observer import Listener, Observer
from proxy.watching.steps import Step, ToolBegan
from proxy.watching.transcript import MOST_TEXT, Transcript


def room_of(*steps: Step, messages: list[dict[str, Any]] | None = None) -> int:
    request = Observer([Listener()], method="POST", path="/v1/responses")
    if messages is not None:
        request.transcript = Transcript()
        request.transcript.ask(messages, ())
    for step in steps:
        request.tell(step)
    request.end()
    return len(AuditLine(request))


def test_a_question_takes_room_and_what_came_before_it_takes_none() -> None:
    history = [{"role": "user", "content": "x" * 5_000_000}, {"role": "assistant", "content": "y" * 5_000_000}]
    alone = room_of(messages=[{"role": "user", "content": "z" * 50_000}])
    assert 50_000 < alone < 60_000
    assert room_of(messages=[*history, {"role": "user", "content": "z" * 50_000}]) == alone
    assert MOST_TEXT < room_of(messages=history[:1]) < MOST_TEXT + 10_000


def test_steps_and_what_was_searched_for_take_room() -> None:
    few, many = room_of(ToolBegan("web_search")), room_of(*[ToolBegan("web_search")] * 200)
    assert many > few + 200 * 100
    assert room_of(ToolBegan("web_search", [{"query": "q" * 9000}])) == few + 9000
