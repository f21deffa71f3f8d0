"""How a request ended is one word in the log, the audit, the recent requests and the traces, and one of four kinds in
the metrics, the usage and the status of a span. Each end is provoked from outside, and the surfaces are compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.fakes.collector import Collector
from tests.fakes.groundwire import Groundwire, gone
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, Turn, text
from tests.fakes.raw_client import chat_request, connect
from tests.fakes.samples import Samples

CLIENT = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
ADMIN = {"authorization": "Bearer key-admin"}
LONG = Turn(text=["word ", *["x" * 100_000] * 300])
HELD = text("word ", "word ", end="hang", finish=None, usage=None)
OFF = "x-groundwire-search: off"


class Asked(NamedTuple):
    """A client with a key and a model of its own, so that all that is said of it can be found by these."""

    proxy: Groundwire
    model: ModelServer
    name: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer key-{self.name}"}

    def post(self, *turns: Turn, path: str = "chat/completions", **fields: Any) -> httpx.Response:
        self.model.part(self.name, *turns)
        body = {"model": self.name, "messages": [{"role": "user", "content": "Why?"}], **fields}
        return CLIENT.post(f"{self.proxy.url}/{path}", json=body, headers={**self.headers, **_off(self)})

    def hold(self, turn: Turn, *, buffer: int = 0) -> Any:
        """A stream of which the first bytes were read."""
        self.model.part(self.name, turn)
        connection = connect(self.proxy, receive_buffer=buffer)
        lines = [f"authorization: Bearer key-{self.name}", *([OFF] if _off(self) else [])]
        connection.sendall(chat_request(*lines, stream=True, model=self.name))
        assert b"200 OK" in connection.recv(100)
        return connection


def _off(asked: Asked) -> dict[str, str]:
    """Every second way is the one on which bytes are forwarded."""
    return {"x-groundwire-search": "off"} if asked.name.endswith("-forwarded") else {}


def ok(asked: Asked) -> None:
    assert asked.post(text("Yes.")).status_code == 200


def ok_in_a_stream(asked: Asked) -> None:
    assert "[DONE]" in asked.post(text("Yes."), stream=True).text


def left(asked: Asked) -> None:
    asked.hold(HELD).close()


def left_early(asked: Asked) -> None:
    asked.model.part(asked.name, text("never", delay=30))
    with connect(asked.proxy) as connection:
        lines = [f"authorization: Bearer key-{asked.name}", *([OFF] if _off(asked) else [])]
        connection.sendall(chat_request(*lines, model=asked.name))
        eventually(lambda: asked.model.asked[asked.name])


def stalled(asked: Asked) -> None:
    with asked.hold(LONG, buffer=32_768):
        eventually(lambda: f"model={asked.name} " in asked.proxy.log.read_text())


def cancelled(asked: Asked) -> None:
    asked.model.part(asked.name, HELD)
    body = {"model": asked.name, "input": "Why?", "background": True}
    response = CLIENT.post(f"{asked.proxy.url}/responses", json=body, headers=asked.headers).json()
    eventually(lambda: asked.model.asked[asked.name])
    assert CLIENT.post(f"{asked.proxy.url}/responses/{response['id']}/cancel", headers=asked.headers).is_success


def bad_body(asked: Asked) -> None:
    assert asked.post(messages="none").status_code == 400


def no_such_model(asked: Asked) -> None:
    body = {"model": "elsewhere/m", "messages": [{"role": "user", "content": "Why?"}]}
    answer = CLIENT.post(f"{asked.proxy.url}/chat/completions", json=body, headers=asked.headers)
    assert answer.status_code == 404


def no_json(asked: Asked) -> None:
    headers = {**asked.headers, "content-type": "application/json"}
    assert CLIENT.post(f"{asked.proxy.url}/chat/completions", content=b"{", headers=headers).status_code == 400


def answering(status: int, error: object) -> Callable[[Asked], None]:
    def ask(asked: Asked) -> None:
        refused = Turn(status=status, body=json.dumps({"error": error}).encode())
        assert asked.post(refused).status_code == status

    return ask


def without_a_word(asked: Asked) -> None:
    assert asked.post(Turn(status=418, body=b"teapot")).status_code == 418


def cut_off(asked: Asked) -> None:
    assert "upstream_truncated" in asked.post(text("Half", end="reset", finish=None), stream=True).text


def too_late(asked: Asked) -> None:
    assert asked.post(text("never", delay=30)).status_code == 504


def unreachable(asked: Asked) -> None:
    body = {"model": "gone/m", "messages": [{"role": "user", "content": "Why?"}]}
    answer = CLIENT.post(f"{asked.proxy.url}/chat/completions", json=body, headers={**asked.headers, **_off(asked)})
    assert answer.status_code == 502


Case = tuple[Callable[[Asked], None], str, str]
ENDS: dict[str, Case] = {
    "ok": (ok, "ok", "ok"),
    "ok-forwarded": (ok, "ok", "ok"),
    "stream": (ok_in_a_stream, "ok", "ok"),
    "stream-forwarded": (ok_in_a_stream, "ok", "ok"),
    "left": (left, "client_left", "client_left"),
    "left-forwarded": (left, "client_left", "client_left"),
    "early": (left_early, "client_left", "client_left"),
    "early-forwarded": (left_early, "client_left", "client_left"),
    "stalled": (stalled, "client_stalled", "client_left"),
    "stalled-forwarded": (stalled, "client_stalled", "client_left"),
    "cancelled": (cancelled, "client_cancelled", "client_left"),
    "body": (bad_body, "invalid_type", "refused"),
    "json": (no_json, "invalid_json", "refused"),
    "model": (no_such_model, "model_not_found", "refused"),
    "refused": (
        answering(400, {"message": "no", "code": "context_length_exceeded"}),
        "context_length_exceeded",
        "refused",
    ),
    "refused-forwarded": (answering(422, {"message": "no", "type": "t", "code": "odd"}), "odd", "refused"),
    "prose-forwarded": (answering(422, {"message": "no", "type": "t", "code": "it went wrong"}), "error", "refused"),
    "fine-forwarded": (answering(422, {"message": "no", "type": "t", "code": "ok"}), "error", "refused"),
    "numbered": (answering(422, {"message": "no", "code": 422}), "422", "refused"),
    "wordless-forwarded": (without_a_word, "http_418", "refused"),
    "failed": (answering(500, {"message": "no", "code": "broke"}), "broke", "failed"),
    "failed-forwarded": (answering(500, {"message": "no", "type": "t", "code": "broke"}), "broke", "failed"),
    "cut": (cut_off, "upstream_truncated", "failed"),
    "cut-forwarded": (cut_off, "upstream_truncated", "failed"),
    "late": (too_late, "request_timeout", "failed"),
    "late-forwarded": (too_late, "request_timeout", "failed"),
    "unreachable": (unreachable, "upstream_unreachable", "failed"),
    "unreachable-forwarded": (unreachable, "upstream_unreachable", "failed"),
}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def ended(
    config: dict[str, Any], model: ModelServer, collector: Collector, audit: Path
) -> Iterator[dict[str, Groundwire]]:
    """The servers on which all of them have happened, by the name of the end: one with a short time for answers."""
    keys = [{"key": f"key-{name}", "name": name} for name in ENDS]
    server = {"keys": [*keys, {"key": "key-admin", "name": "admin", "admin": True}], "write_timeout": 0.5}
    upstreams = [{**config["upstreams"][0], "models": list(ENDS), "retries": 0}]
    upstreams.append({**gone(), "models": ["gone/*"], "retries": 0})
    watching = {"audit": str(audit), "traces": {"endpoint": collector.url}}
    patient = {**config, "upstreams": upstreams, "server": server, **watching}
    hasty = {**patient, "server": {**server, "request_timeout": 1.0}, "audit": f"{audit}.hasty"}
    with Groundwire(patient) as proxy, Groundwire(hasty) as other:
        servers = {name: other if name.startswith("late") else proxy for name in ENDS}
        with ThreadPoolExecutor(len(ENDS)) as clients:
            list(clients.map(lambda name: ENDS[name][0](Asked(servers[name], model, name)), ENDS))
        yield servers


def logged(proxy: Groundwire, name: str) -> dict[str, str]:
    """The fields of the one line about this caller's request."""

    def find() -> list[str]:
        lines = proxy.log.read_text().splitlines()
        return [line for line in lines if f" key={name} " in line and "/cancel " not in line]

    (line,) = eventually(find)
    return dict(word.partition("=")[::2] for word in line.split() if "=" in word)


@pytest.mark.parametrize("name", ENDS)
def test_all_say_the_same_of_an_end(ended: dict[str, Groundwire], collector: Collector, audit: Path, name: str) -> None:
    _, outcome, ending = ENDS[name]
    proxy, file = ended[name], Path(f"{audit}.hasty") if name.startswith("late") else audit
    line = logged(proxy, name)
    assert line["outcome"] == outcome
    request_id = line["request"]
    recent = CLIENT.get(f"{proxy.url}/groundwire/requests/{request_id}", headers=ADMIN).json()
    assert recent["outcome"] == outcome
    (audited,) = eventually(lambda: [text for text in file.read_text().splitlines() if request_id in text])
    assert json.loads(audited)["outcome"] == outcome
    span = collector.trace_of(request_id)[""]
    assert span.attributes["groundwire.outcome"] == outcome
    assert span.failed == (ending == "failed")
    assert span.attributes.get("error.type") == (outcome if span.failed else None)
    rows = CLIENT.get(f"{proxy.url}/groundwire/usage", params={"key": name}, headers=ADMIN).json()["data"]
    assert sum(row["failed"] for row in rows) == (ending in ("refused", "failed"))


def test_and_the_metrics_count_them_so(ended: dict[str, Groundwire]) -> None:
    for name, proxy in ended.items():
        logged(proxy, name)
    counted: Counter[str] = Counter()
    for root in {proxy.root for proxy in ended.values()}:
        samples = Samples(CLIENT.get(f"{root}/metrics", headers=ADMIN).content)
        for (metric, labels), value in samples.values.items():
            if metric == "groundwire_requests_total" and dict(labels)["dialect"] != "http":
                counted[dict(labels)["outcome"]] += int(value)
    expected = Counter(ending for _, _, ending in ENDS.values())
    expected["ok"] += 1  # the request that cancelled a response
    assert counted == expected
