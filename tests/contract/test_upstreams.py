"""Every upstream, same scripts, same events: the fast lane to Chat Completions, and LiteLLM's lane to that and to three
vendors who speak otherwise. What a vendor is sent is judged by its fake, which notes a complaint for each broken rule.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from proxy.config.upstreams import UpstreamConfig
from proxy.upstreams.client import UpstreamClient
from proxy.upstreams.fallback import Candidate, FallbackPlan
from proxy.upstreams.litellm_transport import LitellmTransport
from proxy.upstreams.openai_transport import OpenAITransport
from proxy.upstreams.transport import Transport
from proxy.upstreams.upstream_limit import UpstreamLimit
from proxy.values.events import Begun, Event, Failed, Finished, TextDelta, UsageSeen
from proxy.watching.observer import Observer
from tests.fakes import anthropic_model, gemini_model
from tests.fakes.anthropic_model import AnthropicServer
from tests.fakes.gemini_model import GeminiServer
from tests.fakes.model import ModelServer, Turn, call, chunks, text
from tests.fakes.ollama_model import OllamaServer
from tests.fakes.vendor_model import ModelLane, hear

KEY = "a-key-that-nobody-may-see"
QUESTION = {"role": "user", "content": "Why is the sky blue?"}
PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = {"type": "function", "function": {"name": "web_search", "description": "d", "parameters": PARAMETERS}}
ODD = ["naïve ", "日本語 ", "👩‍👩‍👧 ", "\u2028", '𝔘 \\n "x"']


def body(model: str, *history: dict[str, Any], **more: Any) -> dict[str, Any]:
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    return {"model": model, "messages": [QUESTION, *history], "tools": [SEARCH], **streamed, **more}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, ModelServer]]:
    with ModelServer() as openai, AnthropicServer() as anthropic, GeminiServer() as gemini, OllamaServer() as ollama:
        yield {"openai": openai, "anthropic": anthropic, "gemini": gemini, "ollama": ollama}


LANES = {
    "fast": ("openai", "m"),
    "litellm-openai": ("openai", "openai/m"),
    "anthropic": ("anthropic", "anthropic/claude-sonnet-4-5"),
    "gemini": ("gemini", "gemini/gemini-2.5-flash"),
    "ollama": ("ollama", "ollama_chat/qwen3"),
}
VIA_LITELLM = [name for name in LANES if name != "fast"]
VENDORS = ["anthropic", "gemini", "ollama"]


@pytest.fixture
async def lane(request: pytest.FixtureRequest, servers: dict[str, ModelServer]) -> AsyncIterator[ModelLane]:
    server, model = LANES[request.param]
    made: list[Transport] = []

    def upstream(**options: Any) -> Transport:
        key, base = options.pop("key", KEY), options.pop("base", servers[server].url)
        if request.param == "fast":
            made.append(OpenAITransport("up", base, key, **options))
        else:
            made.append(LitellmTransport("up", key, api_base=base, **options))
        return made[-1]

    lane = ModelLane(request.param, model, servers[server], upstream)
    yield lane
    for used in made:
        await used.aclose()
    assert lane.vendor is None or lane.vendor.complaints == []


def on(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lane", names, indirect=True)


every_lane = on(*LANES)
with_litellm = on(*VIA_LITELLM)


# What a model says


@every_lane
@pytest.mark.parametrize("streamed", [True, False])
async def test_text_comes_in_its_pieces_and_whole(lane: ModelLane, streamed: bool) -> None:
    lane.server.script(text("The sky ", "is ", "blue."))
    asked = body(lane.model, stream=streamed)
    if not streamed:
        del asked["stream_options"]
    heard = await hear(lane.upstream(), asked)
    assert (heard.text, heard.finish, heard.failed) == ("The sky is blue.", "stop", None)
    assert heard.kinds[0] is Begun
    assert heard.kinds[-2:] == [UsageSeen, Finished]
    assert heard.kinds.count(TextDelta) == (3 if streamed else 1)
    counts = {key: heard.usage[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
    assert counts == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@every_lane
async def test_every_character_survives(lane: ModelLane) -> None:
    lane.server.script(text(*ODD))
    assert (await hear(lane.upstream(), body(lane.model))).text == "".join(ODD)


@every_lane
async def test_a_hundred_equal_pieces_are_no_fault(lane: ModelLane) -> None:
    lane.server.script(text(*["la la "] * 150))
    heard = await hear(lane.upstream(), body(lane.model))
    assert (heard.text, heard.finish) == ("la la " * 150, "stop")


@every_lane
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_call(lane: ModelLane, streamed: bool) -> None:
    lane.server.script(call("web_search", {"query": "blue sky 👩‍👩‍👧"}))
    heard = await hear(lane.upstream(), body(lane.model, stream=streamed, stream_options=None))
    assert heard.called == [("web_search", {"query": "blue sky 👩‍👩‍👧"})]
    assert (heard.text, heard.finish) == ("", "tool_calls")
    assert heard.calls[0]["id"]


@every_lane
async def test_text_then_two_calls_at_once(lane: ModelLane) -> None:
    calls = [("call_1", "web_search", {"query": "one"}), ("call_2", "web_search", {"query": "two"})]
    lane.server.script(Turn(text=["Let me ", "look."], calls=calls))
    heard = await hear(lane.upstream(), body(lane.model))
    assert heard.text == "Let me look."
    assert heard.called == [("web_search", {"query": "one"}), ("web_search", {"query": "two"})]
    assert heard.finish == "tool_calls"
    assert len({known["id"] for known in heard.calls.values()}) == 2


@every_lane
@pytest.mark.parametrize("streamed", [True, False])
async def test_thinking_goes_back_with_the_results(lane: ModelLane, streamed: bool) -> None:
    calls = [("call_1", "web_search", {"query": "one"}), ("call_2", "web_search", {"query": "two"})]
    lane.server.script(Turn(reasoning=["It may ", "be air."], text=["Hm."], calls=calls), text("Air ", "scatters."))
    upstream = lane.upstream()
    more: dict[str, Any] = {} if lane.name == "fast" else {"reasoning_effort": "low"}
    if lane.name == "litellm-openai":
        more = {}
    asked = body(lane.model, stream=streamed, stream_options=None, max_tokens=4000, **more)
    first = await hear(upstream, asked)
    assert first.fields["reasoning_content"] == "It may be air."
    ids = [known["id"] for known in first.calls.values()]
    results = [{"role": "tool", "tool_call_id": ids[at], "content": f"result {at}"} for at in range(2)]
    second = await hear(upstream, {**asked, "messages": [QUESTION, first.as_message(), *results]})
    assert (second.text, second.finish, second.failed) == ("Air scatters.", "stop", None)
    check_second(lane, lane.server.requests[1])


def check_second(lane: ModelLane, sent: dict[str, Any]) -> None:
    """The history as this vendor wants it; that calls and results meet is a rule of the fakes."""
    if lane.name == "anthropic":
        turn = sent["messages"][1]["content"]
        signed = {"type": "thinking", "thinking": "It may be air.", "signature": anthropic_model.SIGNATURE}
        assert turn[0] == signed
        assert [block["type"] for block in turn] == ["thinking", "text", "tool_use", "tool_use"]
        assert [block["content"] for block in sent["messages"][2]["content"]] == ["result 0", "result 1"]
        assert sent["thinking"]["type"] == "enabled"
    elif lane.name == "gemini":
        turn = sent["contents"][1]
        assert gemini_model.signatures_in(turn) == [gemini_model.SIGNATURE]
        assert sum("result" in json.dumps(part) for part in sent["contents"][2]["parts"]) == 2
    elif lane.name == "ollama":
        turn = sent["messages"][1]
        assert [made["function"]["arguments"] for made in turn["tool_calls"]] == [{"query": "one"}, {"query": "two"}]
        assert [message["content"] for message in sent["messages"][2:]] == ["result 0", "result 1"]
    else:
        turn = sent["messages"][1]
        assert turn["reasoning_content"] == "It may be air."
        assert [made["id"] for made in turn["tool_calls"]] == [m["tool_call_id"] for m in sent["messages"][2:]]


@every_lane
async def test_an_answer_cut_by_its_limit_says_so(lane: ModelLane) -> None:
    lane.server.script(text("The sky is", finish="length"))
    heard = await hear(lane.upstream(), body(lane.model))
    assert (heard.text, heard.finish) == ("The sky is", "length")


@every_lane
async def test_no_usage_where_none_is_asked_for(lane: ModelLane) -> None:
    lane.server.script(text("Blue.", usage=None))
    asked = body(lane.model)
    del asked["stream_options"]
    heard = await hear(lane.upstream(), asked)
    assert (heard.text, heard.finish, heard.usage) == ("Blue.", "stop", {})


# What goes wrong


@every_lane
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("status", [400, 429, 500])
async def test_a_refusal_keeps_its_status_and_its_words(lane: ModelLane, status: int, streamed: bool) -> None:
    waits = {"retry-after": "7"} if status == 429 else {}
    lane.server.script(lane.refusal(status, f'No {{luck}} with {KEY}: it\'s "over".', headers=waits))
    heard = await hear(lane.upstream(), body(lane.model, stream=streamed, stream_options=None))
    assert heard.failed is not None
    assert heard.kinds == [Failed]
    assert (heard.failed.status, heard.failed.error["message"]) == (status, 'No {luck} with ***: it\'s "over".')
    assert {key: heard.failed.headers.get(key) for key in waits} == waits
    assert len(lane.server.requests) == 1  # nobody asked twice


@on(*[name for name in LANES if name != "ollama"])
@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_refused(lane: ModelLane, status: int) -> None:
    lane.server.script(lane.refusal(status, "invalid x-api-key"))
    ours = await hear(lane.upstream(), body(lane.model))
    assert ours.failed is not None
    assert (ours.failed.status, ours.failed.error["code"]) == (502, "upstream_auth")
    assert ours.failed.headers == {"x-should-retry": "false"}
    theirs = await hear(lane.upstream(key=""), body(lane.model), {"authorization": "Bearer of-the-client"})
    assert theirs.failed is not None
    assert (theirs.failed.status, theirs.failed.error["message"]) == (status, "invalid x-api-key")
    assert any("of-the-client" in value for value in lane.server.heads[-1].values())


@every_lane
async def test_an_error_in_the_middle(lane: ModelLane) -> None:
    lane.server.script(lane.broken(text("The sky ", "was blue"), "Overloaded."))
    heard = await hear(lane.upstream(), body(lane.model))
    assert heard.text == "The sky was blue"
    assert heard.failed is not None
    assert heard.kinds[-1] is Failed
    assert heard.failed.status >= 500
    assert heard.failed.error["message"].endswith("Overloaded.")
    assert Finished not in heard.kinds


@on("fast")
@pytest.mark.parametrize("end", ["\n\n", "\n", ""])
@pytest.mark.parametrize(("code", "status"), [(503, 503), (401, 502)])
async def test_an_error_in_a_stream_does_not_show_our_key(lane: ModelLane, end: str, code: int, status: int) -> None:
    said = {"error": {"message": f"The key {KEY} will not do.", "code": code}}
    begun = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(text("The sky"))[:-2])
    written = f"{begun}data: {json.dumps(said)}{end}".encode()
    lane.server.script(Turn(body=written, content_type="text/event-stream"))
    heard = await hear(lane.upstream(), body(lane.model))
    assert heard.text == "The sky"
    assert heard.failed is not None
    assert heard.failed.status == status
    assert KEY not in str(heard.failed)


@every_lane
@pytest.mark.parametrize("end", ["eof", "reset"])
async def test_an_answer_that_breaks_off_is_not_whole(lane: ModelLane, end: Any) -> None:
    if (lane.name, end) == ("gemini", "eof"):
        pytest.skip("LiteLLM reads `stop` into every chunk of Gemini's: a stream that ends in order looks finished")
    lane.server.script(text("The sky ", "was blue", finish=None, usage=None, end=end))
    heard = await hear(lane.upstream(), body(lane.model))
    assert heard.text == "The sky was blue"
    assert heard.failed is not None
    assert (heard.failed.status, heard.failed.error["code"]) == (502, "upstream_truncated")


@every_lane
async def test_a_stream_that_stalls(lane: ModelLane) -> None:
    lane.server.script(text("The sky ", "was blue", finish=None, usage=None, end="hang"))
    heard = await hear(lane.upstream(idle_timeout=0.3), body(lane.model))
    assert heard.text == "The sky was blue"
    assert heard.failed is not None
    assert (heard.failed.status, heard.failed.error["code"]) == (504, "upstream_timeout")


@every_lane
@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_that_is_too_large(lane: ModelLane, streamed: bool) -> None:
    lane.server.script(text(*["word " * 10_000] * 60))
    asked = body(lane.model, stream=streamed, stream_options=None)
    heard = await hear(lane.upstream(max_answer=2_000_000), asked)
    assert heard.failed is not None
    assert (heard.failed.status, heard.failed.error["code"]) == (502, "upstream_bad_response")
    assert heard.failed.headers == {"x-should-retry": "false"}
    assert len(heard.text) < 2_000_000
    assert (await hear(lane.upstream(), asked)).finish == "stop"


@every_lane
@pytest.mark.parametrize("streamed", [True, False])
async def test_what_cannot_be_written_again_is_left_out(lane: ModelLane, streamed: bool) -> None:
    lane.server.script(text("Blue.", usage={"prompt_tokens": 10**30, "completion_tokens": 5, "total_tokens": 10**30}))
    heard = await hear(lane.upstream(), body(lane.model, stream=streamed))
    assert (heard.text, heard.finish) == ("Blue.", "stop")
    assert all(value <= 10**15 for value in heard.usage.values() if isinstance(value, int | float))


@every_lane
@pytest.mark.parametrize("listens", [True, False])
async def test_a_server_that_says_nothing_or_is_not_there(lane: ModelLane, listens: bool) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        upstream = lane.upstream(base=f"http://127.0.0.1:{silent.getsockname()[1]}", first_byte_timeout=0.5)
        heard = await hear(upstream, body(lane.model))
    assert heard.failed is not None
    expected = (504, "upstream_timeout") if listens else (502, "upstream_unreachable")
    assert (heard.failed.status, heard.failed.error["code"]) == expected
    assert ("x-should-retry" in heard.failed.headers) is listens


@every_lane
@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_whoever_leaves_takes_the_connection_along(lane: ModelLane, how: str) -> None:
    lane.server.script(text(*["word "] * 200, delay=0.02))
    stream = lane.upstream().stream(body(lane.model), {})
    await anext(stream)
    if how == "closed":
        await stream.aclose()
    else:
        waiting = asyncio.ensure_future(hear_on(stream))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert await asyncio.to_thread(lane.server.left.wait, 1)
    assert lane.server.sent_pieces < 100


async def hear_on(stream: Any) -> None:
    async with aclosing(stream):
        async for _ in stream:
            pass


# What LiteLLM is not told, and what it does not tell


@every_lane
async def test_fields_that_the_vendor_does_not_know(lane: ModelLane) -> None:
    lane.server.script(text("Blue."))
    own = {"metadata": {"trace": "t1"}, "store": False, "user": "u1", "min_p": 0.1, "chat_template_kwargs": {"a": 1}}
    assert (await hear(lane.upstream(), body(lane.model, **own))).text == "Blue."
    sent = lane.server.requests[0]
    if lane.vendor:
        assert "t1" not in json.dumps(sent)
    else:
        assert {key: sent[key] for key in own} == own


@with_litellm
async def test_no_client_can_steer_litellm(lane: ModelLane) -> None:
    lane.server.script(text("From the server."))
    evil: dict[str, Any] = {
        "api_base": "http://127.0.0.1:1",
        "base_url": "http://127.0.0.1:1",
        "custom_llm_provider": "bedrock",
    }
    evil |= {"mock_response": "made up", "api_key": "theirs", "callbacks": ["langfuse"], "fallbacks": ["openai/x"]}
    evil |= {"extra_headers": {"x-evil": "1"}, "headers": {"x-evil": "1"}, "num_retries": "3", "drop_params": "yes"}
    heard = await hear(lane.upstream(headers={"x-house": "1"}), body(lane.model, **evil))
    assert heard.text == "From the server."
    head = lane.server.heads[0]
    assert head["x-house"] == "1"
    assert "x-evil" not in head
    assert any(KEY in value for value in (*head.values(), lane.server.paths[0]))


@on("anthropic")
@pytest.mark.parametrize(
    ("model", "more", "status", "word"),
    [
        ("anthropic/claude-sonnet-4-5", {"logit_bias": {"1": 1}}, 400, "does not support parameters: ['logit_bias']"),
        ("nobody-knows-me", {}, 404, "whose model 'nobody-knows-me' is"),
        ("huggingface/http://127.0.0.1:1/", {}, 400, "must not be an address"),
    ],
)
async def test_what_cannot_be_asked(lane: ModelLane, model: str, more: dict[str, Any], status: int, word: str) -> None:
    lane.server.script(text("Never asked."))
    heard = await hear(lane.upstream(), body(model, **more))
    assert heard.failed is not None
    assert heard.failed.status == status
    assert word in heard.failed.error["message"]
    assert "litellm" not in heard.failed.error["message"].lower()
    assert lane.server.requests == []


@on("anthropic", "ollama")
async def test_litellm_is_silent(lane: ModelLane, capfd: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    lane.server.script(lane.broken(text("The sky ", "was blue"), "Overloaded."), lane.refusal(400, "No."), text("Yes."))
    upstream = lane.upstream()
    for _ in range(3):
        await hear(upstream, body(lane.model))
    await asyncio.sleep(0.2)  # what it does behind our back would come now, and the fake would complain of it
    assert len(lane.server.requests) == 3
    assert capfd.readouterr() == ("", "")
    assert {record.name for record in caplog.records} <= {"groundwire", "asyncio"}


async def test_models_are_those_written_out() -> None:
    upstream = LitellmTransport("up", models=["anthropic/claude-sonnet-4-5", "gemini/*", "ollama_chat/?"])
    assert [model["id"] for model in await upstream.models()] == ["anthropic/claude-sonnet-4-5"]


@on("anthropic")
async def test_options_are_defaults_for_what_clients_may_set(lane: ModelLane) -> None:
    lane.server.script(text("Blue."))
    upstream = lane.upstream(options={"max_tokens": 77, "top_p": 0.5})
    await hear(upstream, body(lane.model))
    await hear(upstream, body(lane.model, max_tokens=5))
    assert [(sent["max_tokens"], sent["top_p"]) for sent in lane.server.requests] == [(77, 0.5), (5, 0.5)]


IMPORT = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
from proxy.upstreams import litellm_library, litellm_transport
assert "litellm" not in sys.modules
def refuse(*_): raise AssertionError("the network was used")
socket.socket.connect = socket.getaddrinfo = refuse
assert litellm_library.load() is litellm_library.load() is sys.modules["litellm"]
assert "FROM_DOTENV" not in os.environ
"""


def test_litellm_is_imported_late_silently_and_without_a_network(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FROM_DOTENV=1\n")
    command = [sys.executable, "-I", "-c", IMPORT, str(Path(__file__).parents[2])]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


# What is not the server's doing


@pytest.mark.parametrize(
    "error", [TimeoutError("a socket's"), ConnectionResetError("the client's"), OSError(28, "full")]
)
async def test_what_goes_wrong_behind_an_answer_is_not_blamed_on_its_server(error: Exception) -> None:
    """Whoever takes the pieces of an answer may fail with the classes that connections raise too."""

    def take(piece: Any) -> bool:
        raise error

    with ModelServer() as model:
        model.script(text("Hello ", "you.", delay=0.3))
        transport = OpenAITransport("up", model.url)
        asked = json.dumps(body("m")).encode()
        with await transport.forward("POST", "/chat/completions", {}, asked, streamed=True) as reply:
            with pytest.raises(type(error)) as raised:
                await reply.body.feed(take)
            assert raised.value is error
        events = transport.stream(body("m"), {})
        await anext(events)
        with pytest.raises(type(error)) as raised:
            await events.feed(take)
        assert raised.value is error
        await events.aclose()
        await transport.aclose()


# A limit of the upstream


@pytest.mark.parametrize("most", [None, 1])
async def test_pieces_are_handed_on_in_the_same_way_with_a_limit_and_without(most: int | None) -> None:
    """In the moment in which they come, and not by waking a task for each; and the place is free afterwards."""
    taken: list[str] = []

    def take(batch: list[Event]) -> bool:
        taken.extend(event.text for event in batch if isinstance(event, TextDelta))
        return True

    with ModelServer() as model:
        model.script(text("Hello ", "you ", "there.", delay=0.1))
        limit = UpstreamLimit("up", most, 0.1) if most else None
        client = UpstreamClient(UpstreamConfig(name="up", base_url=model.url), OpenAITransport("up", model.url), limit)
        for _ in range(2):  # the second would find the only place taken
            plan = FallbackPlan([Candidate(client, "m", {})], Observer())
            batches = plan.stream(body("m"))
            while not any(isinstance(event, Begun) for event in await anext(batches)):
                pass
            await batches.feed(take)
            await batches.aclose()
            assert "".join(taken).endswith("there.")
            taken.clear()
        await client.aclose()
