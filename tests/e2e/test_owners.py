"""What belongs to a caller: to the name of its key where that has one, so that the key behind the name can be replaced;
else to the key itself. What a build stored that knew no named owners is found again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_background import RUNNING, cancel, followed, get, headers_of
from tests.e2e.test_messages import ask as ask_messages
from tests.e2e.test_messages import asked, echo
from tests.e2e.test_mixed_turns import ASKED, WEATHER, ask, last_read, ran
from tests.e2e.test_mixed_turns import LINK as LINKED
from tests.e2e.test_mixed_turns import SEARCH as SEARCH_CALL
from tests.e2e.test_responses import QUESTION, SEARCH, USER, post, respond
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text
from tests.fakes.owners_dump import ALICE, BOB, KEYS, NAMELESS, held, restore
from tests.fakes.redis_server import MISSING, PROGRAM, RedisServer
from tests.faults.test_reload import Reloaded
from tests.unit.messages_scripts import SERVER_TOOL
from tests.unit.responses_scripts import text_of

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

HELD = held()
CAROL = "gw-another-key-of-alice"


def id_of(name: str) -> str:
    return str(HELD[name]["id"])


def delete(proxy: Groundwire, response_id: str, key: str) -> int:
    return httpx.delete(f"{proxy.url}/responses/{response_id}", headers=headers_of(key), timeout=20).status_code


class TestStoredByTheBuildBefore:
    """A Redis as commit 9b3db7c left it."""

    @pytest.fixture
    def redis(self) -> Iterator[RedisServer]:
        with RedisServer() as server:
            restore(server)
            yield server

    @pytest.fixture
    def proxy(self, config: dict[str, Any], redis: RedisServer) -> Iterator[Groundwire]:
        with Groundwire({**config, "store": redis.url, "server": {"keys": KEYS, "lame_duck": 0}}) as running:
            yield running

    def test_every_response_is_read_by_its_owner_alone(self, proxy: Groundwire) -> None:
        owners = {"first": ALICE, "second": ALICE, "branch": ALICE, "background": ALICE, "of_bob": BOB}
        for name, owner in {**owners, "nameless": NAMELESS}.items():
            for key in (ALICE, BOB, NAMELESS):
                answer = get(proxy, id_of(name), key)
                assert answer.status_code == (200 if key == owner else 404), name
                assert key != owner or answer.json() == HELD[name]
        url = f"{proxy.url}/responses/{id_of('second')}/input_items"
        (item,) = httpx.get(url, headers=headers_of(ALICE)).json()["data"]
        assert item["content"] == [{"type": "input_text", "text": "Sure?"}]

    def test_a_conversation_goes_on(self, proxy: Groundwire, model: ModelServer) -> None:
        model.script(text("Still [1]."), text("And now."))
        third = respond(proxy, "Still?", key=ALICE, previous_response_id=id_of("second"))
        assert third["store"] is True
        assert text_of(third).startswith("Still [[1]](")
        heard = last_read(model)
        assert heard[0] == USER
        assert heard[-3:] == ["user Sure?", "assistant Yes [1].", "user Still?"]
        respond(proxy, "And now?", key=ALICE, previous_response_id=third["id"])
        assert last_read(model)[-1] == "user And now?"
        for name in ("first", "second", "branch"):
            assert get(proxy, id_of(name), ALICE).json() == HELD[name], "what it builds on can still be read"

    def test_both_branches_of_a_conversation_go_on(self, proxy: Groundwire, model: ModelServer) -> None:
        model.script(text("One."), text("Two."))
        respond(proxy, "Go on.", key=ALICE, previous_response_id=id_of("second"))
        respond(proxy, "Go on.", key=ALICE, previous_response_id=id_of("branch"))
        assert last_read(model)[-3:] == ["user Always?", "assistant No.", "user Go on."]

    def test_nobody_else_goes_on_with_it(self, proxy: Groundwire, model: ModelServer) -> None:
        model.script(text("No."))
        for key in (BOB, NAMELESS):
            assert post(proxy, key=key, previous_response_id=id_of("second")).status_code == 404
        reference = {"type": "item_reference", "id": HELD["first"]["output"][-1]["id"]}
        assert post(proxy, [reference, {"role": "user", "content": "?"}], key=BOB).status_code == 404

    def test_an_item_is_referred_to(self, proxy: Groundwire, model: ModelServer) -> None:
        model.script(text("Yes."))
        reference = {"type": "item_reference", "id": HELD["first"]["output"][-1]["id"]}
        respond(proxy, [reference, {"role": "user", "content": "Sure?"}], key=ALICE)
        assert last_read(model)[-2:] == ["assistant Blue [1].", "user Sure?"]

    def test_a_deleted_conversation_leaves_nothing(self, proxy: Groundwire, redis: RedisServer) -> None:
        kinds = ("response", "exchange", "item", "children", "journal")

        def kept() -> int:
            return sum(name.split(":")[2] in kinds for name in redis.names())

        before = kept()
        gone = 0
        for name in ("second", "first", "branch", "background"):
            assert delete(proxy, id_of(name), BOB) == 404
            assert delete(proxy, id_of(name), ALICE) == 200
            assert get(proxy, id_of(name), ALICE).status_code == 404
            gone += 2 + len(HELD[name]["output"])  # the object, what was said in it, and its items
        assert kept() == before - gone - 2, "and the set of branches, and the events"

    def test_hidden_turns_come_back(self, proxy: Groundwire, model: ModelServer) -> None:
        model.script(text("Done [1]."))
        mixed = HELD["mixed"]
        results = [{"role": "tool", "tool_call_id": mixed["tool_calls"][0]["id"], "content": "Rain"}]
        done = ask(proxy, [ASKED, mixed, *results], key=ALICE)
        assert done.message["content"] == f"Done {LINKED}."
        assert last_read(model)[1:] == ["assistant Wait. a=web_search b=weather", "tool a sky.md", "tool b Rain"]
        ask(proxy, [ASKED, mixed, *results], key=BOB)
        assert last_read(model)[1:] == ["assistant Wait. b=weather", "tool b Rain"], "not to another caller"

    def test_a_background_response_is_followed(self, proxy: Groundwire) -> None:
        events = followed(proxy, id_of("background"), key=ALICE)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"] == HELD["background"]

    def test_what_an_older_worker_still_makes_is_cancelled(self, proxy: Groundwire, model: ModelServer) -> None:
        assert get(proxy, id_of("running"), ALICE).json()["status"] in RUNNING
        early = post(proxy, key=ALICE, previous_response_id=id_of("running"))
        assert (early.status_code, early.json()["error"]["code"]) == (400, "response_not_finished")
        assert cancel(proxy, id_of("running"), BOB).status_code == 404
        assert cancel(proxy, id_of("running"), ALICE).json()["status"] == "cancelled"
        assert get(proxy, id_of("running"), ALICE).json()["status"] == "cancelled"
        assert followed(proxy, id_of("running"), key=ALICE)[-1]["response"]["status"] == "cancelled"

    def test_sources_that_a_client_of_the_messages_api_holds(self, proxy: Groundwire, model: ModelServer) -> None:
        model.script(text("Yes [1]."))
        history = [asked(), echo(HELD["message"]), asked("Sure?")]
        ask_messages(proxy, history, key=ALICE, tools=[SERVER_TOOL])
        assert any("scatters blue light" in str(message["content"]) for message in model.requests[-1]["messages"])
        ask_messages(proxy, history, key=BOB, tools=[SERVER_TOOL])
        assert not any("scatters blue light" in str(message["content"]) for message in model.requests[-1]["messages"])

    def test_the_model_that_was_used_last(self, proxy: Groundwire, model: ModelServer) -> None:
        model.script(text("Yes."))
        ask_messages(proxy, key=ALICE, model="claude-haiku-4-5-20251001")
        assert model.requests[-1]["model"] == "vendor/m"


# A key is replaced


def replaced(key: str, **more: Any) -> dict[str, Any]:
    return {"name": "alice", "key": key, **more}


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "memory":
        yield "memory"
        return
    with RedisServer() as server:
        yield server.url


def test_a_key_is_replaced_and_its_owner_keeps_everything(
    config: dict[str, Any], model: ModelServer, store: str
) -> None:
    limited = {"budget": {"day": {"tokens": 1_000_000}}}
    keys = {"server": {"keys": [replaced(ALICE, **limited), {"name": "bob", "key": BOB, "admin": True}]}}
    with Reloaded({**config, "store": store, **keys}) as proxy:
        model.script(SEARCH, text("Blue [1]."))
        first = respond(proxy, key=ALICE)
        model.script(Turn(text=["Wait."], calls=[SEARCH_CALL, WEATHER]))
        mixed = ask(proxy, [ASKED], key=ALICE)
        both = [replaced(ALICE, expires="2099-12-31", **limited), replaced(CAROL, **limited)]
        others = keys["server"]["keys"][1:]
        assert "Changed: key alice changed." in proxy.reload(
            {**config, "store": store, "server": {"keys": both + others}}
        )
        for key in (ALICE, CAROL):
            assert get(proxy, first["id"], key).json() == first
        assert get(proxy, first["id"], BOB).status_code == 404
        proxy.reload({**config, "store": store, "server": {"keys": both[1:] + others}})
        assert get(proxy, first["id"], ALICE).status_code == 401
        assert get(proxy, first["id"], CAROL).json() == first
        model.script(text("Done [1]."), text("Yes."))
        assert ask(proxy, [ASKED, mixed.message, *ran(mixed)], key=CAROL).message["content"] == f"Done {LINKED}."
        assert respond(proxy, key=CAROL, previous_response_id=first["id"])["store"] is True
        usage = httpx.get(f"{proxy.root}/v1/groundwire/usage", headers=headers_of(BOB)).json()
        assert sum(row["requests"] for row in usage["data"] if row["key"] == "alice") >= 4, "one count for both keys"


def test_a_key_that_is_given_a_name_keeps_what_it_stored(
    config: dict[str, Any], model: ModelServer, store: str
) -> None:
    with Reloaded({**config, "store": store, "server": {"keys": [ALICE, BOB]}}) as proxy:
        model.script(text("Blue."), text("Yes."), text("No."))
        first = respond(proxy, key=ALICE)
        second = respond(proxy, key=ALICE, previous_response_id=first["id"])
        named = {"server": {"keys": [replaced(ALICE), BOB]}}
        proxy.reload({**config, "store": store, **named})
        assert get(proxy, first["id"], ALICE).json() == first
        third = respond(proxy, "?", key=ALICE, previous_response_id=second["id"])
        assert last_read(model) == [USER, "assistant Blue.", USER, "assistant Yes.", "user ?"]
        proxy.reload({**config, "store": store, "server": {"keys": [replaced(CAROL), BOB]}})
        assert get(proxy, third["id"], CAROL).json() == third, "with what it builds on it has gone over to the name"
        assert get(proxy, second["id"], CAROL).json() == second
        assert respond(proxy, key=CAROL, previous_response_id=third["id"])["store"] is True


def test_a_name_is_not_a_key(config: dict[str, Any], model: ModelServer, store: str) -> None:
    """Neither by its name nor by its key does one caller come to what is another's, whatever they are called."""
    names = ["name:alice", "a" * 64, "key2", "alice"]
    keys: list[Any] = [{"name": name, "key": f"gw-key-number-{number}"} for number, name in enumerate(names)]
    keys += ["name:alice-and-more", "name:alice:::::::::", "alice-alice-alice"]
    keys[2] = keys[2]["key"]  # a key without a name, which is called by its place
    with Groundwire({**config, "store": store, "server": {"keys": keys}}) as proxy:
        model.script(text("Blue."))
        presented = [key if isinstance(key, str) else key["key"] for key in keys]
        stored = {key: respond(proxy, key=key)["id"] for key in presented}
        for owner, id_ in stored.items():
            for key in presented:
                assert get(proxy, id_, key).status_code == (200 if key == owner else 404)


def test_a_container_that_starts_again_loses_nothing(
    config: dict[str, Any], model: ModelServer, tmp_path: Path
) -> None:
    file = tmp_path / "client-key"
    env = {"GROUNDWIRE_KEY_FILE": str(file)}
    model.script(text("Blue."), text("Yes."))
    with RedisServer() as server:
        with Groundwire({**config, "store": server.url}, env) as proxy:
            key = file.read_text().strip()
            first = respond(proxy, key=key)
        with Groundwire({**config, "store": server.url}, env) as proxy:
            assert get(proxy, first["id"], key).json() == first
            respond(proxy, QUESTION, key=key, previous_response_id=first["id"])
            assert last_read(model) == [USER, "assistant Blue.", USER]
