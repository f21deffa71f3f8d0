"""Requests on one connection whose heads are the same, or nearly: what is kept of the one before must not show. Each is
said by the real protocol, behind the real edge.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from proxy.callers.keys import ClientKeys
from proxy.config.keys import ClientKey
from proxy.values.errors import RequestError
from proxy.watching.observer import Listener, Observer
from tests.fakes.wire import heard

ALICE, BOB = "gw-key-of-alice", "gw-key-of-bob"
KEYS = [{"key": ALICE, "name": "alice"}, {"key": BOB, "name": "bob"}]
JSON = "application/json"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{}-01"


class Seen(Listener):
    def __init__(self) -> None:
        self.callers: list[str] = []
        self.traces: list[dict[str, str]] = []
        self.ids: list[str] = []

    def ended(self, request: Observer) -> None:
        self.callers.append(request.caller)
        self.traces.append(dict(request.trace_headers))
        self.ids.append(request.id)


def post(
    body: str = "{}", *more: str, key: str = ALICE, kind: str = "application/json", host: str = "localhost"
) -> bytes:
    lines = ["POST /v1/chat HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {key}", f"Content-Type: {kind}"]
    return "\r\n".join([*lines, *more, f"Content-Length: {len(body)}", "", body]).encode()


def test_requests_with_the_same_head_are_each_answered_for_themselves() -> None:
    seen = Seen()
    found = heard([post("{}"), post('{"a": 1}'), post("[]")], listeners=[seen], keys=KEYS)
    assert found.statuses == [200, 200, 200]
    assert [b'{\\"a\\": 1}' in body for _, body in found.answers] == [False, True, False]
    assert seen.callers == ["alice"] * 3
    assert len(set(seen.ids)) == 3


@pytest.mark.parametrize("order", list(itertools.product([ALICE, BOB, "gw-no-key"], repeat=3)))
def test_whoever_sent_the_one_before_its_own_key_counts(order: Sequence[str]) -> None:
    """As behind a balancer, where callers share connections."""
    seen = Seen()
    found = heard([post(key=key) for key in order], listeners=[seen], keys=KEYS)
    names = {ALICE: "alice", BOB: "bob"}
    assert found.statuses == [200 if key in names else 401 for key in order]
    assert seen.callers == [names.get(key, "") for key in order]


def test_what_was_right_before_says_nothing_of_what_is_wrong_now() -> None:
    right = post()
    wrong = [post(kind="text/plain"), post(host="elsewhere.example"), post("{}", "X-Api-Key: gw-another-key")]
    pieces = [piece for each in wrong for piece in (right, each)]
    found = heard([*pieces, right], keys=KEYS)
    assert found.statuses == [200, 415, 200, 403, 200, 400, 200]


def test_what_was_refused_is_asked_anew() -> None:
    found = heard([post(key="gw-no-key"), post(key="gw-no-key")], keys=KEYS)
    assert found.statuses == [401, 401]


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TraceParent"])
def test_each_request_has_the_trace_that_it_names(name: str) -> None:
    seen = Seen()
    said = [[f"{name}: {PARENT.format(n)}", "tracestate: a=1", "tracestate: b=2"] for n in (1, 2)]
    heard([post("{}", *said[0]), post("{}", *said[1]), post("{}", "tracestate: c=3"), post()], listeners=[seen])
    both = [{"traceparent": PARENT.format(n), "tracestate": "a=1,b=2"} for n in (1, 2)]
    assert seen.traces == [*both, {}, {}]


# As long as nothing has changed


def keys(*given: dict[str, object]) -> list[ClientKey]:
    return [ClientKey.model_validate(key) for key in given]


class Secrets:
    """What owners are named with; another one, once those who share a store have agreed."""

    def __init__(self) -> None:
        self.now = b"s"

    async def __call__(self) -> bytes:
        return self.now


HEADERS = {b"authorization": [b"Bearer " + ALICE.encode()]}


async def test_after_a_change_of_keys_nobody_is_known() -> None:
    client_keys = ClientKeys(keys(*KEYS), Secrets())
    identity = await client_keys.identify(HEADERS)
    assert await client_keys.knows(identity)
    client_keys.change(keys(KEYS[1]), {})
    assert not await client_keys.knows(identity)
    with pytest.raises(RequestError):
        await client_keys.identify(HEADERS)
    client_keys.change(keys(*KEYS), {})
    assert not await client_keys.knows(identity)  # its policy may be another one


async def test_a_key_that_has_ended_is_not_known() -> None:
    end = datetime.now(UTC) + timedelta(seconds=0.3)
    client_keys = ClientKeys(keys({**KEYS[0], "expires": end.isoformat()}), Secrets())
    identity = await client_keys.identify(HEADERS)
    assert await client_keys.knows(identity)
    await asyncio.sleep(0.35)
    assert not await client_keys.knows(identity)


@pytest.mark.parametrize("named", [False, True])
async def test_an_owner_has_the_name_that_the_store_agrees_on(named: bool) -> None:
    """A key's own name stays; then it is the former one that the store's secret makes."""
    secrets = Secrets()
    given = KEYS[0] if named else {"key": KEYS[0]["key"]}
    client_keys = ClientKeys(keys(given), secrets)
    identity = await client_keys.identify(HEADERS)
    secrets.now = b"another"
    assert not await client_keys.knows(identity)
    renamed = await client_keys.identify(HEADERS)
    assert (renamed.caller.owner == identity.caller.owner) == named
    assert (renamed.caller.former == identity.caller.former) == (not named)
    assert await client_keys.knows(renamed)
