"""A folder with PDFs in front of a real, small model: is the document that holds the answer among what it reads, and is
nothing looked for where the user's own matters are asked about? The island of the documents does not exist, so nobody
knows an answer from elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.island import ANSWERS, QUESTIONS, make_island
from tests.fakes.search import FakeSearxng
from tests.real.asking import SITE, ask, assert_a_whole_stream, library, upstream
from tests.real.server import CONTEXT, RealModel

pytestmark = pytest.mark.timeout(1800)

PRIVATE = [
    "Extract names as JSON from: Alice met Bob at the Siemens office in Erlangen on Tuesday.",
    "write me an email to my boss saying I am sick",
    "Summarize this review: The hotel was awful, Mrs. Tanaka at the desk was rude and our room 412 smelled of smoke.",
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n### Chat History:\n"
    "<chat_history>\nUSER: How do I tell Clara that I am leaving?\n</chat_history>",
    "Translate into French: Dear Ms Okafor, your account 99-1234-7 has been closed.",
    "Where is the quarterly report for Project Falcon?\nTom\n\nRewrite this mail so that it sounds nicer.",
    "My husband Mark lost his job at Bosch and drinks. What should I do?",
    "```\nAPI_KEY=sk-live-51Habc\n``` what is wrong with this config?",
    "What is the IBAN of the Weber family again, DE89 3704 0044 0532 0130 00?",
    "Kannst du einen Brief an meine Vermieterin Frau Schuster wegen Schimmel im Bad schreiben?",
]


def test_the_right_document_is_in_front_of_the_model(model: RealModel, tmp_path: Path) -> None:
    make_island(tmp_path)
    missing = []
    up = upstream(model, tool_calls="none", context=CONTEXT)
    with Groundwire({"upstreams": [up], "providers": [library(tmp_path)]}) as proxy:
        for question, name in QUESTIONS.items():
            answer = ask(proxy, question, "tool_calls: none, the island", max_tokens=40)
            assert_a_whole_stream(answer)
            found = [result["url"] for result in answer.results]
            if SITE + name not in found or ANSWERS[name] not in " ".join(model.prompt.split()):
                missing.append((question, name, found))
    print(f"\n\nthe right document was in front of the model in {10 - len(missing)} of 10 questions; not in {missing}")
    assert len(missing) <= 1


def test_nothing_private_is_searched(model: RealModel) -> None:
    with FakeSearxng() as engine:
        searxng = {"name": "engine", "type": "searxng", "base_url": engine.url}
        up = upstream(model, tool_calls="none", context=CONTEXT)
        with Groundwire({"upstreams": [up], "providers": [searxng], "tools": {"search": ["engine"]}}) as proxy:
            ask(proxy, "How does a heat pump work?", "tool_calls: none, a question", max_tokens=10)
            searched = [asked.params["q"] for asked in engine.asked]
            assert searched, "this engine is asked where something is asked for"
            for task in PRIVATE:
                answer = ask(proxy, task, "tool_calls: none, private", max_tokens=10)
                assert_a_whole_stream(answer)
                assert answer.search.startswith("off; reason=")
        assert [asked.params["q"] for asked in engine.asked] == searched
