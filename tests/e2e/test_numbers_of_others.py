"""Numbers that stand for something else: lists that people and clients write themselves, and documents that cannot be
linked to. Whatever the turn, none of them leads to a page of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text

Message = dict[str, Any]
SKY = f"{SITE}sky.md"
SEARCH = call("web_search", {"query": "sky blue"})
NOTES = "My notes:\n[1] The contract with Bob ends in May.\n[2] Rent is due.\nWhich note is about Bob?"


def ask(proxy: Groundwire, messages: list[Message]) -> Message:
    body = {"model": "m", "messages": messages}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    said: Message = answer.json()["choices"][0]["message"]
    return said


def user(words: str) -> Message:
    return {"role": "user", "content": words}


def test_a_list_of_the_users_keeps_its_numbers(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Air scatters light [1]."))
    history = [user("Why is the sky blue?")]
    history += [{"role": "assistant", "content": ask(proxy, history)["content"]}, user(NOTES)]
    model.script(text("The contract with Bob ends in May [1]."))
    said = ask(proxy, history)
    assert said["content"] == "The contract with Bob ends in May [1]."
    assert "annotations" not in said
    assert model.requests[-1]["messages"][1]["content"] == "Air scatters light [1].", "the beginning stays as it was"


def test_a_number_that_the_user_only_mentions_is_still_ours(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Air scatters light [1]."))
    history = [user("Why is the sky blue?")]
    history += [{"role": "assistant", "content": ask(proxy, history)["content"]}, user("What else does [1] say?")]
    model.script(text("Only that [1]."))
    assert ask(proxy, history)["content"] == f"Only that [[1]]({SKY})."


def test_the_same_over_stored_responses(proxy: Groundwire, model: ModelServer) -> None:
    def respond(**body: Any) -> Any:
        return httpx.post(f"{proxy.url}/responses", json={"model": "m", **body}, timeout=30).json()

    model.script(SEARCH, text("Air scatters light [1]."))
    first = respond(input="Why is the sky blue?")
    model.script(text("The contract with Bob ends in May [1]."))
    second = respond(input=NOTES, previous_response_id=first["id"])
    assert second["output"][-1]["content"][0]["text"] == "The contract with Bob ends in May [1]."


def test_documents_that_a_client_puts_into_every_question(proxy: Groundwire, model: ModelServer) -> None:
    """They stand in the question that is asked, and not in the history."""
    documents = "<context>\n[1] handbook: holidays are 30 days\n[2] contract: Bob leaves in May\n</context>\n"
    first = "Why is the sky blue?"
    model.script(SEARCH, text("The handbook says so [1]. Air scatters light [3]."))
    said = ask(proxy, [user(documents + first)])["content"]
    assert said == f"The handbook says so [1]. Air scatters light [[1]]({SKY})."
    history = [user(first), {"role": "assistant", "content": said}]
    model.script(text("Bob leaves in May [2]."))
    assert ask(proxy, [*history, user(documents + "When does Bob leave?")])["content"] == "Bob leaves in May [2]."


@pytest.mark.parametrize("space", ["\u200a", "\u2009", "\u00a0", "\u202f", "\u2002", "\u3000"], ids=ascii)
@pytest.mark.parametrize("behind", ["(about 16 ft)", "([16 ft](https://feet.example/))", "[3]", "[16 ft]", "【3】"])
def test_no_kind_of_blank_takes_words_out_of_an_echo(
    proxy: Groundwire, model: ModelServer, space: str, behind: str
) -> None:
    said = f"It is 5 m{space}{behind} high, and \u200a—\u200a(so) on."
    model.script(text("Yes."))
    ask(proxy, [user("How high?"), {"role": "assistant", "content": said}, user("Sure?")])
    assert model.requests[-1]["messages"][1]["content"] == said


@pytest.fixture(scope="module")
def private(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groundwire]:
    """A Groundwire with a second folder, whose documents have no address."""
    folder: Path = tmp_path_factory.mktemp("private")
    (folder / "salary.md").write_text("# Salaries\n\nThe salary of the director is 5 gold coins.\n")
    hidden = {"name": "private", "type": "local", "options": {"path": str(folder)}}
    with Groundwire({**config, "providers": [*config["providers"], hidden]}) as running:
        yield running


def test_a_document_without_a_link_has_a_number_of_its_own(private: Groundwire, model: ModelServer) -> None:
    """In the echo it is known by its number alone, and that must not be the one of another page."""
    history = [user("Why is the sky blue?")]
    model.script(call("web_search", {"query": "sky blue", "provider": "library"}), text("Air scatters light [1]."))
    history += [{"role": "assistant", "content": ask(private, history)["content"]}, user("And the salary?")]
    model.script(call("web_search", {"query": "salary", "provider": "private"}), text("He earns 5 coins [2]."))
    said = ask(private, history)["content"]
    assert said == "He earns 5 coins [2]."
    history += [{"role": "assistant", "content": said}, user("Sure?")]
    model.script(text("Yes, 5 coins [2], and the sky is blue [1]."))
    assert ask(private, history)["content"] == f"Yes, 5 coins [2], and the sky is blue [[1]]({SKY})."
