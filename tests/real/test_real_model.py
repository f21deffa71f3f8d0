"""The whole road with a real language model: SmolLM2 behind llama.cpp's server, Groundwire, and a few documents.

Only `make test-model` runs it, because it needs some 220 MB of packages and minutes of computing. Every fact in the
documents is invented, so the model can have it from nowhere else. What the model makes of them is printed as it is;
asserted is what Groundwire owes it and its user.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.groundwire import Groundwire
from tests.real.asking import SITE, ask, assert_a_whole_stream, library, upstream
from tests.real.server import CONTEXT, NAME, RealModel

pytestmark = pytest.mark.timeout(900)

FACT = "The clock of Skarholm lighthouse was repaired in 1987 by Ada Lindqvist, a watchmaker from Visby."
QUESTION = "Who repaired the clock of Skarholm lighthouse, and in which year?"
CORPUS = {
    "clock.md": f"# The clock of Skarholm lighthouse\n\n{FACT} It had stood still for eleven years.\n",
    "lamp.md": "# The lamp\n\nThe lamp of Skarholm lighthouse burns rapeseed oil and is seen for nineteen miles.\n",
    "keeper.md": "# The keepers\n\nThe last keeper, Olof Brandt, left Skarholm in 1961 with two goats and a piano.\n",
    "ferry.md": "# The ferry\n\nThe ferry to Skarholm sails on Tuesdays at 9:40 and takes thirty passengers.\n",
    "storm.md": "# The storm\n\nIn the storm of 1936 the sea broke eight windows of the tower.\n",
}


def config(model: RealModel, folder: Path, documents: dict[str, str], **said: Any) -> dict[str, Any]:
    for name, text in documents.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {"upstreams": [upstream(model, **said)], "providers": [library(folder)]}


def test_the_model_cannot_call_tools(model: RealModel) -> None:
    """The ground that the other tests stand on; its listing alone does not tell."""
    (listed,) = model.listing["data"]
    assert (listed["id"], listed["meta"]["n_ctx"]) == (NAME, CONTEXT)
    assert not model.knows_tools


def test_searched_first_it_answers_from_the_documents(model: RealModel, tmp_path: Path) -> None:
    with Groundwire(config(model, tmp_path, CORPUS, tool_calls="none", context=CONTEXT)) as proxy:
        answer = ask(proxy, QUESTION, "tool_calls: none")
    assert_a_whole_stream(answer)
    assert len(answer.text) > 5, "it comes as it is written"
    assert "searched=first" in answer.search
    assert answer.results[0]["url"] == SITE + "clock.md"
    assert {result["url"] for result in answer.results} <= {SITE + name for name in CORPUS}
    assert {citation["url"] for citation in answer.citations} <= {result["url"] for result in answer.results}
    system, user, assistant = model.prompt.split("<|im_start|>")[1:]
    assert FACT not in system
    assert user.startswith("user\n")
    assert FACT in user
    assert QUESTION in user
    assert assistant == "assistant\n"


def test_a_long_page_leaves_room_for_the_answer(model: RealModel, tmp_path: Path) -> None:
    """The page alone is three times what the model can hold; its server refuses what is too long."""
    days = [f"Day {n}: wind from the north, the clock of Skarholm lighthouse wound, all quiet." for n in range(600)]
    days[420] = FACT
    with Groundwire(
        config(model, tmp_path, {"log.md": "# Log\n\n" + "\n\n".join(days)}, tool_calls="none", context=CONTEXT)
    ) as proxy:
        answer = ask(proxy, QUESTION, "tool_calls: none, a long page")
    assert_a_whole_stream(answer)
    assert [result["url"] for result in answer.results] == [SITE + "log.md"]
    assert FACT in model.prompt


def test_with_tools_offered_and_assist_an_answer_comes(model: RealModel, tmp_path: Path) -> None:
    """The model is free to search, to announce a search, or to invent; its user gets a whole answer each time."""
    assisted = {"match": "*", "assist": True, "context": CONTEXT}
    with Groundwire(config(model, tmp_path, CORPUS, tool_calls="native", overrides=[assisted])) as proxy:
        answer = ask(proxy, QUESTION, "tool_calls: native, assist: true")
    assert_a_whole_stream(answer)
    assert answer.search == "offered; reason=auto"


def test_left_alone_it_never_searches(model: RealModel, tmp_path: Path) -> None:
    """Why the other ways exist: the template drops the tools, so the model answers out of nothing."""
    with Groundwire(config(model, tmp_path, CORPUS, tool_calls="native")) as proxy:
        answer = ask(proxy, QUESTION, "tool_calls: native")
    assert_a_whole_stream(answer)
    assert answer.search == "offered; reason=auto"
    assert not answer.results
    assert "web_search" not in model.prompt


def test_by_itself_it_is_found_out(model: RealModel, tmp_path: Path) -> None:
    """Nothing said about the model: its server says that its template has no place for tools, and how small it is."""
    with Groundwire(config(model, tmp_path, CORPUS)) as proxy:
        answer = ask(proxy, QUESTION, "tool_calls: auto")
        log = proxy.log.read_text()
    assert_a_whole_stream(answer)
    assert "searched=first" in answer.search
    assert answer.results[0]["url"] == SITE + "clock.md"
    assert "takes no tools, so it is asked with tool_calls: none" in log
