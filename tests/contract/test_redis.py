"""The store in a real Redis: what processes share through it, and that each goes on alone while it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.cli.check import examine
from proxy.cli.findings import Finding
from proxy.config.redis_address import RedisAddress
from proxy.house import House
from proxy.store import store as stores
from proxy.store.redis_store import RedisStore
from proxy.store.store import encode, name_of, open_store
from tests.fakes.config import config
from tests.fakes.pages import make_certificate
from tests.fakes.redis_server import MISSING, PATIENCE, PROGRAM, RedisServer, free_port

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

PAUSE = 0.1
TURN = ("turn", "owner", "key")
LOST = "store: Redis %s; this process goes on with its own memory and tries again every 0.1 s"
BACK = "store: Redis is back"


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@asynccontextmanager
async def opened(url: str, **times: float) -> AsyncIterator[RedisStore]:
    store = RedisStore(RedisAddress.read(url), **{"pause": PAUSE, "timeout": PATIENCE, **times})
    try:
        yield store
    finally:
        await store.aclose()


@pytest.fixture
async def store(redis: RedisServer) -> AsyncIterator[RedisStore]:
    async with opened(redis.url) as store:
        yield store


async def settled(store: RedisStore) -> bytes:
    """Its secret, once nobody may replace it any more."""
    await store.secret()
    await store._redis.ask("DEL", "gw:1:secret:new")
    return await store.secret()


async def back(store: RedisStore) -> None:
    """Waits until a command has found Redis again."""
    async with asyncio.timeout(10):
        while not store.sure:
            await asyncio.sleep(PAUSE / 4)
            await store.get(*TURN)


# What is kept


@pytest.mark.parametrize("value", [b"", b"v", b"\x00\xff\r\n", b"words " * 1000, bytes(stores.MAX_VALUE)], ids=len)
async def test_round_trips(store: RedisStore, value: bytes) -> None:
    assert await store.get(*TURN) is None
    await store.put(*TURN, value, 60)
    assert await store.get(*TURN) == value
    assert [await store.delete(*TURN) for _ in range(2)] == [True, False]
    assert await store.get(*TURN) is None
    assert store.sure


async def test_kinds_and_owners_are_apart(store: RedisStore) -> None:
    await store.put(*TURN, b"v", 60)
    others = [("item", "owner", "key"), ("turn", "other", "key"), ("turn", "", "ownerkey"), ("turn", "", "key")]
    assert [await store.get(*other) for other in others] == [None] * 4
    assert not await store.delete("turn", "other", "key")
    assert await store.get(*TURN) == b"v"


async def test_nothing_outlives_its_time(store: RedisStore, redis: RedisServer) -> None:
    await store.put(*TURN, b"v", 0.2)
    await store.put("turn", "owner", "long", b"v", float("inf"))
    await store.put("turn", "owner", "never", b"v", 0)
    assert await store.get(*TURN) == b"v"
    await asyncio.sleep(0.25)
    assert await store.get(*TURN) is None
    assert redis.names() == [name_of("turn", "owner", "long")]
    assert int(redis.ask("TTL", name_of("turn", "owner", "long"))[1:]) <= 366 * 86_400


async def test_large_values_take_less_room_and_too_large_ones_none(
    store: RedisStore, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put(*TURN, b"words " * 10_000, 60)
    assert int(redis.ask("STRLEN", name_of(*TURN))[1:]) < 6000
    for _ in range(2):
        await store.put("turn", "owner", "huge", bytes(stores.MAX_VALUE + 1), 60)
    assert await store.get("turn", "owner", "huge") is None
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x02garbage", b"\x03later", encode(b"x" * 5000)[:-3]])
async def test_what_others_wrote_there_is_nothing(store: RedisStore, redis: RedisServer, data: bytes) -> None:
    redis.ask("SET", name_of(*TURN), data)
    assert await store.get(*TURN) is None
    assert store.sure


async def test_other_processes_see_it(store: RedisStore, redis: RedisServer) -> None:
    async with opened(redis.url.replace("redis:", "valkey:")) as other:
        await store.put(*TURN, b"v", 60)
        assert await other.get(*TURN) == b"v"
        assert await other.delete(*TURN)
        assert await store.get(*TURN) is None


async def test_the_database_of_the_url_is_used(store: RedisStore, redis: RedisServer) -> None:
    async with opened(redis.url.removesuffix("0") + "3") as other:
        await store.put(*TURN, b"v", 60)
        assert await other.get(*TURN) is None


async def test_many_at_once_wait_for_each_other(store: RedisStore, redis: RedisServer) -> None:
    names = [("turn", "owner", str(number)) for number in range(500)]
    await asyncio.gather(*(store.put(*name, name[2].encode(), 60) for name in names))
    assert await asyncio.gather(*(store.get(*name) for name in names)) == [name[2].encode() for name in names]
    assert store.sure


async def test_who_leaves_in_the_middle_spoils_nothing(store: RedisStore) -> None:
    for number in range(60):
        await store.put("turn", "owner", str(number), str(number).encode(), 60)
    leaving = [asyncio.create_task(store.get("turn", "owner", str(number))) for number in range(60)]
    for number, task in enumerate(leaving):
        for _ in range(number % 12):
            await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait(leaving)
    assert [await store.get("turn", "owner", str(number)) for number in range(60)] == [b"%d" % n for n in range(60)]
    assert store.sure


# The secret


async def test_all_who_share_a_redis_share_a_secret(store: RedisStore, redis: RedisServer) -> None:
    async with opened(redis.url) as other:
        secrets = await asyncio.gather(*(one.secret() for one in (store, other) * 5))
    assert {len(secret) for secret in secrets} == {32}
    assert len(set(secrets)) == 1


async def test_a_secret_that_redis_lost_is_brought_again(store: RedisStore, redis: RedisServer) -> None:
    secret = await store.secret()
    redis.kill()
    assert await store.get(*TURN) is None
    assert await store.secret() == secret
    redis.start()
    await back(store)
    assert await store.secret() == secret
    async with opened(redis.url) as other:
        assert await other.secret() == secret


async def test_a_process_that_began_alone_takes_the_secret_of_the_others(store: RedisStore, redis: RedisServer) -> None:
    redis.kill()
    assert len(await store.secret()) == 32
    redis.start()
    async with opened(redis.url) as other:
        secret = await other.secret()
        await back(store)
        assert await store.secret() == secret


async def test_a_process_that_starts_on_an_emptied_redis_takes_the_secret_of_those_who_run(
    store: RedisStore, redis: RedisServer
) -> None:
    secret = await store.secret()
    assert await settled(store) == secret
    redis.kill()
    redis.start()
    async with opened(redis.url) as first, opened(redis.url) as second:
        assert await first.secret() != secret, "nobody could know"
        assert await second.secret() == await first.secret()
        await store.get(*TURN)  # over a new connection: Redis may have lost everything
        assert await store.secret() == secret
        assert [await other.secret() for other in (first, second)] == [secret] * 2


async def test_a_secret_that_held_for_a_while_is_not_replaced(store: RedisStore, redis: RedisServer) -> None:
    await settled(store)
    redis.kill()
    redis.start()
    async with opened(redis.url) as other:
        held = await settled(other)
        await store.get(*TURN)
        assert await store.secret() == held


async def test_a_broken_secret_is_not_taken(store: RedisStore, redis: RedisServer) -> None:
    redis.ask("SET", "gw:1:secret", "short")
    assert len(await store.secret()) == 32


# Without Redis


async def test_killed_in_the_middle_and_started_again(
    store: RedisStore, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put("turn", "owner", "before", b"before", 60)
    redis.kill()
    assert await store.get("turn", "owner", "before") == b"before", "what it put there itself"
    assert await store.get("turn", "other", "before") is None
    assert not store.sure
    await store.put(*TURN, b"meanwhile", 60)
    await store.put("turn", "owner", "gone", b"gone", 60)
    assert await store.get(*TURN) == b"meanwhile"
    assert await store.delete("turn", "owner", "gone")
    assert not await store.delete("turn", "owner", "gone")
    await asyncio.sleep(2 * PAUSE)  # one more try, and it fails too
    assert await store.get(*TURN) == b"meanwhile"
    assert not store.sure
    redis.start()
    await back(store)
    assert await store.get(*TURN) == b"meanwhile"
    assert await store.get("turn", "owner", "gone") is None
    async with opened(redis.url) as other:
        assert await other.get(*TURN) is None
        await store.put(*TURN, b"shared", 60)
        assert await other.get(*TURN) == b"shared"
        await other.delete(*TURN)
    assert await store.get(*TURN) is None, "what was put again is not in two places"
    assert caplog.messages == [LOST % "cannot be reached", BACK]


async def test_own_turns_are_there_while_redis_is_away_and_only_then(store: RedisStore, redis: RedisServer) -> None:
    names = [("turn", "owner", key) for key in ("kept", "deleted", "elsewhere", "short")]
    for name in names:
        await store.put(*name, name[2].encode(), 0.05 if name[2] == "short" else 60)
    await store.put("response", "owner", "r", b"r", 60)
    await store.delete(*names[1])
    async with opened(redis.url) as other:
        await other.delete(*names[2])
    assert await store.get(*names[2]) is None, "Redis says so"
    assert not await store.has(*names[2])
    await store.renew("owner", [("turn", "kept")], 120)
    await asyncio.sleep(0.06)
    redis.kill()
    found = await store.get_many("turn", "owner", [key for *_, key in names])
    assert found == {"kept": b"kept", "elsewhere": b"elsewhere"}
    assert await store.has(*names[0])
    assert await store.get("response", "owner", "r") is None
    redis.start()
    await back(store)
    assert await store.get(*names[0]) is None, "what Redis lost is lost"


async def test_a_redis_that_restarts_while_nobody_asks_is_not_missed(
    store: RedisStore, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put(*TURN, b"v", 60)
    redis.kill()
    redis.start()
    await asyncio.sleep(0.01)
    await store.put(*TURN, b"new", 60)
    assert await store.get(*TURN) == b"new"
    assert caplog.messages == []


async def test_a_redis_that_is_down_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    server = RedisServer()
    async with opened(server.url) as store:
        await store.put(*TURN, b"v", 60)
        assert await store.get(*TURN) == b"v"
        assert caplog.messages == [LOST % "cannot be reached"]
        with server:
            await back(store)
            assert await store.get(*TURN) == b"v"


async def test_a_redis_that_is_silent_holds_up_one_command_at_a_time(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(redis.url, timeout=0.4, pause=0.3) as store:
        await store.put(*TURN, b"v", 60)
        redis.freeze()
        assert await asyncio.gather(*(store.get(*TURN) for _ in range(100))) == [b"v"] * 100
        assert not store.sure
        await asyncio.sleep(0.35)
        probe = asyncio.create_task(store.get(*TURN))
        await asyncio.sleep(0.01)
        assert [await store.get(*TURN) for _ in range(100)] == [b"v"] * 100
        assert not probe.done()
        await probe
        redis.thaw()
        await back(store)
        assert await store.get(*TURN) == b"v"
    assert caplog.messages == [
        "store: Redis does not answer in time; this process goes on with its own memory and tries again every 0.3 s",
        BACK,
    ]


async def test_a_probe_that_is_broken_off_is_followed_by_another(redis: RedisServer) -> None:
    async with opened(redis.url, timeout=0.2) as store:
        redis.freeze()
        await store.get(*TURN)
        await asyncio.sleep(PAUSE)
        probe = asyncio.create_task(store.get(*TURN))
        await asyncio.sleep(0.01)
        probe.cancel()
        await asyncio.wait([probe])
        redis.thaw()
        await back(store)
        assert store.sure


async def test_a_wrong_password_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(password="right") as redis:
        async with opened(redis.url.replace("right", "canary")) as store, opened(redis.url) as other:
            await store.put(*TURN, b"v", 60)
            assert await store.get(*TURN) == b"v"
            assert not store.sure
            assert await other.get(*TURN) is None
            assert other.sure
            assert await store.complaint() == "refuses the user or the password"
    assert caplog.messages == [LOST % "refuses the user or the password"]
    assert "canary" not in caplog.text


async def test_rediss_is_spoken_only_with_a_server_that_can_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_certificate(tmp_path, ["localhost"])
    chain, key = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    port = free_port()
    tls = {"tls-port": str(port), "tls-cert-file": chain, "tls-key-file": key, "tls-auth-clients": "no"}
    with RedisServer(*(word for name, value in tls.items() for word in (f"--{name}", value))) as redis:
        async with opened(f"rediss://localhost:{port}") as store:
            refused = "has a certificate that is not valid: no authority that is trusted here has signed it"
            assert await store.complaint() == refused
        trusting = open_store(f"rediss://localhost:{port}", ca_file=chain)
        assert isinstance(trusting, RedisStore)
        assert await trusting.complaint() == ""
        await trusting.aclose()
        monkeypatch.setenv("SSL_CERT_FILE", chain)
        async with opened(f"rediss://localhost:{port}") as store, opened(redis.url) as other:
            await store.put(*TURN, b"v", 60)
            assert await other.get(*TURN) == b"v"
    assert caplog.messages == []


async def test_a_redis_that_is_full_still_gives_what_it_has(caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer() as redis:
        async with opened(redis.url) as store, opened(redis.url) as other:
            await store.put("turn", "owner", "old", b"old", 60)
            redis.ask("CONFIG", "SET", "maxmemory", "1")
            for _ in range(2):
                await store.put(*TURN, b"v", 60)
            assert await store.get(*TURN) == b"v"
            assert await other.get(*TURN) is None
            assert await store.get("turn", "owner", "old") == b"old"
            assert store.sure
            assert await store.claim("claim", "", "k", "mine", 60) == "mine"
            assert await store.complaint() == "is full"
    assert caplog.messages == ["store: Redis is full; this process's own memory stands in"]


async def test_a_closed_store_is_quiet(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(redis.url)
    await store.put(*TURN, b"v", 60)
    asking = asyncio.create_task(store.get(*TURN))
    await asyncio.sleep(0)
    await store.aclose()
    await asking
    await store.put(*TURN, b"v", 60)
    assert await store.get(*TURN) == b"v"
    assert caplog.messages == []


# Claims


async def test_a_claim_is_one_processs_until_it_is_given_up(store: RedisStore, redis: RedisServer) -> None:
    async with opened(redis.url) as other:
        place = ("claim", "", "k")
        assert await store.claim(*place, "one", 60) == "one"
        assert await other.claim(*place, "two", 60) == "one"
        await other.release(*place, "two")
        assert await other.claim(*place, "two", 60) == "one"
        await store.release(*place, "one")
        assert await other.claim(*place, "two", 0.05) == "two"
        await asyncio.sleep(0.06)
        assert await store.claim(*place, "three", 60) == "three"
        await other.release(*place, "two")
        assert await other.claim(*place, "four", 60) == "three"


async def test_without_redis_every_process_has_its_claim(store: RedisStore, redis: RedisServer) -> None:
    redis.kill()
    assert await store.claim("claim", "", "k", "one", 60) == "one"
    assert await store.claim("claim", "", "k", "two", 60) == "two"
    await store.release("claim", "", "k", "two")
    assert not store.sure


# The doctor


async def finding(tmp_path: Path, url: str) -> Finding:
    upstreams = "upstreams: [{name: demo, type: demo}]\nproviders: []\n"
    house = House(config(tmp_path / "config.yaml", f"{upstreams}store: {url}"))
    try:
        report = await examine(house)
    finally:
        await house.aclose()
    [found] = [found for found in report.findings if found.kind == "store"]
    assert report.ok is found.ok
    return found


async def test_the_doctor_tries_the_store(tmp_path: Path) -> None:
    with RedisServer(password="canary") as redis:
        well = await finding(tmp_path, redis.url)
        assert (well.subject, well.ok, well.detail, well.fix) == ("redis", True, "keeps what it is given", "")
        refused = await finding(tmp_path, redis.url.replace("canary", "wrong"))
        assert (refused.ok, refused.detail) == (False, "it refuses the user or the password")
        assert "`store`" in refused.fix
    gone = await finding(tmp_path, redis.url)
    assert (gone.ok, gone.detail) == (False, "it cannot be reached")
    assert "`store`" in gone.fix
    assert "canary" not in f"{well}{refused}{gone}"
