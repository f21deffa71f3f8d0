"""The model's server is not there, does not answer, refuses, or sends something that is no answer."""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.fakes.groundwire import Groundwire, gone
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, Turn, text, whole
from tests.fakes.pages import make_certificate
from tests.faults.asking import QUESTION, ask, error_of, road_headers
from tests.faults.table import BOTH, fault
from tests.faults.trouble import KEY, SocketServer, ended, impatient, peak_memory, read_request, reply, reset

ANSWER = text("Blue.")
BUSY = Turn(status=503, body=b'{"error":{"message":"busy","type":"server_error","param":null,"code":null}}')


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


class Moody:
    """What a server does with each request, one after the other; afterwards it answers."""

    def __init__(self) -> None:
        self.moods: list[str] = []

    def serve(self, connection: socket.socket) -> None:
        while read_request(connection):
            mood = self.moods.pop(0) if self.moods else "answers"
            if mood == "resets":
                reset(connection)
            if mood != "answers":
                return
            connection.sendall(reply(json.dumps(whole(ANSWER)).encode()))


class Silent:
    """A server that takes requests and never answers."""

    def __init__(self) -> None:
        self.left = threading.Event()

    def serve(self, connection: socket.socket) -> None:
        read_request(connection)
        if not connection.recv(1):
            self.left.set()


class Untrusted:
    """A server with a certificate that nobody knows."""

    def __init__(self, folder: Path) -> None:
        self._context = make_certificate(folder, ["localhost"]).server
        self.first_bytes: list[bytes] = []

    def serve(self, connection: socket.socket) -> None:
        self.first_bytes.append(connection.recv(1, socket.MSG_PEEK))
        with suppress(ssl.SSLError):
            self._context.wrap_socket(connection, server_side=True)


@contextmanager
def full() -> Iterator[str]:
    """A server that takes no more connections: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting: list[socket.socket] = []
        while not waiting or select.select([], [waiting[-1]], [], 0.3)[1]:
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(listener.getsockname())
            assert len(waiting) < 100
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        for connection in waiting:
            connection.close()


@dataclass
class Stage:
    """One Groundwire and all the servers that its models live on, good and bad."""

    proxy: Groundwire
    moody: Moody
    silent: Silent
    silent_server: SocketServer
    untrusted: Untrusted


@pytest.fixture(scope="module")
def stage(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    moody, silent, untrusted = Moody(), Silent(), Untrusted(tmp_path_factory.mktemp("certificate"))
    with (
        SocketServer(moody.serve) as moods,
        SocketServer(silent.serve) as silence,
        SocketServer(untrusted.serve) as strange,
        full() as crowded,
    ):
        others = (
            gone(),
            {"name": "moody", "base_url": moods.url},
            {"name": "silent", "base_url": silence.url, "first_byte_timeout": 0.5},
            {"name": "full", "base_url": crowded, "connect_timeout": 0.5, "first_byte_timeout": 60},
            {"name": "strange", "base_url": strange.url.replace("http://127.0.0.1", "https://localhost")},
            {"name": "nowhere", "base_url": "http://models.invalid:9/v1", "connect_timeout": 60},
        )
        with impatient(config, *others) as proxy:
            yield Stage(proxy, moody, silent, silence, untrusted)


@pytest.fixture
def proxy(stage: Stage) -> Groundwire:
    return stage.proxy


@fault(1, *BOTH)
def test_nothing_listens_there(proxy: Groundwire, road: str) -> None:
    answer = ask(proxy, road, model="gone", stream=True)
    assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_unreachable")
    assert "'gone'" in error_of(answer)["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert " rounds=3 retries=2 " in ended(proxy, answer)


@fault(1, *BOTH)
def test_a_connection_that_ends_without_a_word(stage: Stage, road: str) -> None:
    """Also one that was used before and kept: the server may close it while the next question is on its way."""
    stage.moody.moods = ["answers", "closes", "resets"]
    assert said(ask(stage.proxy, road, model="moody")) == "Blue."
    answer = ask(stage.proxy, road, model="moody")
    assert said(answer) == "Blue."
    assert " retries=2 model_failures=moody:502,moody:502 " in ended(stage.proxy, answer)


@fault(2, *BOTH)
def test_no_answer_to_a_connection(stage: Stage, road: str) -> None:
    stage.silent.left.clear()
    before = stage.silent_server.accepted
    answer = ask(stage.proxy, road, model="silent", stream=True)
    assert (answer.status_code, error_of(answer)["code"]) == (504, "upstream_timeout")
    assert answer.headers["x-should-retry"] == "false"
    assert stage.silent_server.accepted == before + 1, "a model may have been at work: it is not asked again"
    assert stage.silent.left.wait(5), "the server sees that nobody waits any more"
    assert " rounds=1 " in ended(stage.proxy, answer)


@fault(3, *BOTH)
def test_connecting_hangs(proxy: Groundwire, road: str) -> None:
    answer = ask(proxy, road, model="full", stream=True)
    assert (answer.status_code, error_of(answer)["code"]) == (504, "upstream_timeout")
    assert "did not accept a connection" in error_of(answer)["message"]
    assert " rounds=1 " in ended(proxy, answer)


@fault(4, *BOTH)
@pytest.mark.parametrize("stream", [True, False])
def test_trouble_that_passes(proxy: Groundwire, model: ModelServer, road: str, stream: bool) -> None:
    for status in (500, 502, 503, 504):
        model.script(Turn(status=status, body=b"<html>oops</html>", content_type="text/html"), ANSWER)
        answer = ask(proxy, road, stream=stream)
        assert answer.status_code == 200
        assert "Blue." in answer.text
        assert len(model.requests) == 2
        assert model.requests[0] == model.requests[1]
        assert f" retries=1 model_failures=scripted:{status} " in ended(proxy, answer)


@fault(4)
@pytest.mark.parametrize("ending", ["error", "reset"])
def test_trouble_behind_a_first_chunk_that_says_nothing(proxy: Groundwire, model: ModelServer, ending: str) -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
    broken = chunk + b'data: {"error":{"message":"overloaded","code":503}}\n\n'
    trouble = Turn(body=broken, content_type="text/event-stream")
    model.script(trouble if ending == "error" else Turn(end="reset", finish=None, usage=None), ANSWER)
    answer = ask(proxy, "searched", stream=True)
    assert answer.text.endswith("data: [DONE]\n\n")
    assert answer.text.count('"role":"assistant"') == 1
    assert '"content":"Blue."' in answer.text
    assert len(model.requests) == 2


@fault(5, *BOTH)
def test_trouble_that_stays(proxy: Groundwire, model: ModelServer, road: str) -> None:
    model.script(Turn(status=503, body=BUSY.body, headers={"Retry-After-Ms": "20", "Retry-After": "1"}))
    answer = ask(proxy, road)
    assert (answer.status_code, error_of(answer)["message"]) == (503, "busy")
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("1", "20")
    assert answer.headers["x-should-retry"] == "false"
    assert len(model.requests) == 3
    assert " rounds=3 retries=2 model_failures=scripted:503,scripted:503,scripted:503 " in ended(proxy, answer)


@fault(5, *BOTH)
def test_a_client_that_asks_again_by_itself_multiplies_nothing(
    proxy: Groundwire, model: ModelServer, road: str
) -> None:
    model.script(BUSY)
    client = openai.OpenAI(base_url=proxy.url, api_key="x", default_headers=road_headers(road))
    with client, pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert len(model.requests) == 3


@fault(6, *BOTH)
@pytest.mark.parametrize("headers", [{"Retry-After": "1"}, {"retry-after-ms": "700", "Retry-After": "60"}])
def test_a_short_wait_is_waited_out(proxy: Groundwire, model: ModelServer, road: str, headers: dict[str, str]) -> None:
    model.script(Turn(status=429, body=b'{"error":{"message":"slow down"}}', headers=headers), ANSWER)
    began = time.monotonic()
    answer = ask(proxy, road)
    assert said(answer) == "Blue."
    assert time.monotonic() - began >= (0.7 if "retry-after-ms" in headers else 1.0), "never early"
    assert len(model.requests) == 2
    assert " retries=1 model_failures=scripted:429 " in ended(proxy, answer)


@pytest.fixture(scope="module")
def short_lived(config: dict[str, Any]) -> Iterator[Groundwire]:
    with impatient(config, server={"request_timeout": 4}) as running:
        yield running


@fault(6, *BOTH)
def test_a_wait_beyond_the_end_of_the_request_is_passed_on(
    short_lived: Groundwire, model: ModelServer, road: str
) -> None:
    model.script(Turn(status=429, body=b'{"error":{"message":"slow down"}}', headers={"Retry-After": "5"}))
    answer = ask(short_lived, road)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert "x-should-retry" not in answer.headers, "the client may come back"
    assert len(model.requests) == 1


@fault(6, *BOTH)
def test_nobody_asks_again_for_a_client_that_has_left(proxy: Groundwire, model: ModelServer, road: str) -> None:
    model.script(Turn(status=429, body=b"{}", headers={"Retry-After": "5"}))
    before = proxy.log.read_text().count("outcome=client_left")
    body = json.dumps({"model": "m", "messages": [QUESTION]}).encode()
    head = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(body), **road_headers(road)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    host, port = proxy.root.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(f"POST /v1/chat/completions HTTP/1.1\r\n{lines}\r\n".encode() + body)
        eventually(lambda: model.requests)
    eventually(lambda: proxy.log.read_text().count("outcome=client_left") > before)
    assert len(model.requests) == 1, "its task is gone, so nobody will"


@fault(7, *BOTH)
def test_a_long_wait_is_passed_on_at_once(proxy: Groundwire, model: ModelServer, road: str) -> None:
    date = "Fri, 31 Dec 2100 23:59:59 GMT"
    for status, wait in ((429, "3600"), (429, date), (503, "6")):
        model.script(Turn(status=status, body=b'{"error":{"message":"later"}}', headers={"Retry-After": wait}))
        answer = ask(proxy, road)
        assert (answer.status_code, answer.headers["retry-after"]) == (status, wait)
        assert "x-should-retry" not in answer.headers
        assert len(model.requests) == 1
        assert f" rounds=1 model_failures=scripted:{status} " in ended(proxy, answer)


@fault(8, *BOTH)
@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_is_at_fault(proxy: Groundwire, model: ModelServer, road: str, stream: bool) -> None:
    error = {"message": f"no such model, {KEY}", "type": "invalid_request_error", "param": "model", "code": "x"}
    for status in (400, 404, 409, 413, 422):
        model.script(Turn(status=status, body=json.dumps({"error": error}).encode(), halved=True))
        answer = ask(proxy, road, stream=stream)
        assert answer.status_code == status
        assert error_of(answer) == {**error, "message": "no such model, ***"}
        assert len(model.requests) == 1
        assert f"/chat/completions {status} " in ended(proxy, answer)


@fault(8, *BOTH)
def test_money_that_is_spent_comes_back_by_no_wait(proxy: Groundwire, model: ModelServer, road: str) -> None:
    error = {"message": "You exceeded your current quota", "type": "insufficient_quota", "param": None, "code": None}
    model.script(Turn(status=429, body=json.dumps({"error": error}).encode()))
    answer = ask(proxy, road)
    assert (answer.status_code, error_of(answer)) == (429, error)
    assert answer.headers["x-should-retry"] == "false"
    assert len(model.requests) == 1


@fault(8, *BOTH)
def test_a_server_that_wants_no_second_attempt_gets_none(proxy: Groundwire, model: ModelServer, road: str) -> None:
    model.script(Turn(status=500, body=BUSY.body, headers={"x-should-retry": "false"}))
    assert ask(proxy, road).headers["x-should-retry"] == "false"
    assert len(model.requests) == 1


@fault(9, *BOTH)
@pytest.mark.parametrize("stream", [True, False])
def test_our_key_is_refused(proxy: Groundwire, model: ModelServer, road: str, stream: bool) -> None:
    for status in (401, 403):
        model.script(Turn(status=status, body=b'{"error":{"message":"bad key %s"}}' % KEY.encode()))
        answer = ask(proxy, road, stream=stream)
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_auth")
        assert answer.headers["x-should-retry"] == "false"
        assert len(model.requests) == 1
        assert " model_failures=scripted:502 " in ended(proxy, answer)


@fault(14, *BOTH)
def test_two_megabytes_of_headers(proxy: Groundwire, model: ModelServer, road: str) -> None:
    many = {f"x-{n}": "v" * 8000 for n in range(256)}
    model.script(ANSWER)
    assert said(ask(proxy, road)) == "Blue."
    before = peak_memory(proxy)
    for headers in (many, {"x-long": "v" * 2_000_000}):
        model.script(Turn(body=b"{}", headers=headers, end="eof"))
        answer = ask(proxy, road)
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_bad_response")
        assert len(model.requests) == 1
        ended(proxy, answer)
    assert peak_memory(proxy) - before < 32_000_000


@fault(15, *BOTH)
def test_a_redirect_is_not_followed(proxy: Groundwire, model: ModelServer, road: str) -> None:
    with ModelServer() as other:
        for status in (301, 302, 307, 308):
            model.script(Turn(status=status, body=b"", headers={"Location": f"{other.url}/chat/completions"}))
            answer = ask(proxy, road)
            assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_bad_response")
            assert (len(model.requests), other.connections) == (1, 0), "and so no key went there"
            assert "location" not in answer.headers
            ended(proxy, answer)


@fault(16, *BOTH)
def test_a_certificate_that_is_not_valid(stage: Stage, road: str) -> None:
    answer = ask(stage.proxy, road, model="strange")
    assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_tls")
    assert answer.headers["x-should-retry"] == "false"
    assert " rounds=1 " in ended(stage.proxy, answer)
    assert set(stage.untrusted.first_bytes) == {b"\x16"}, "handshakes, and nothing in the clear"


@fault(17, *BOTH)
def test_a_name_that_does_not_resolve(proxy: Groundwire, road: str) -> None:
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(ask(proxy, road, model="nowhere", timeout=120)))
    asking.start()
    while asking.is_alive():
        assert httpx.get(f"{proxy.root}/healthz", timeout=5).status_code == 200, "nobody else waits"
    (answer,) = answers
    assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_unreachable")
    assert " rounds=3 retries=2 " in ended(proxy, answer)
