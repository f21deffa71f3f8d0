"""Loads that a test should not wait for: overload, one caller that floods, slow readers, idle connections, equal
searches, clients that come and go, a stopped process, a killed one. Each prints what it saw, and how the server was
afterwards.

Run by `make load` (ONLY=flood,idle for some of them). Writes the rows of docs/faults.md that they show to
bench/loads.json. Linux only, like the rest of the bench.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from loaded import KEY, OTHER_KEY, PATH, PLAIN, STREAM, Bench, NewConnections, Server, load, redis_server
from measure import HERE

RESULTS = HERE / "loads.json"


def ms(row: dict[str, Any], name: str) -> float:
    return row[name] / 1000  # type: ignore[no-any-return]


def overload(bench: Bench) -> dict[str, str]:
    """Row 76: ten times the clients that it can serve in time, for a minute; then some that come back at once."""
    with bench.server() as server:
        bench.configure()
        load(server, 16, 3)
        first = load(server, 16, bench.seconds(10))
        before = server.state
        with NewConnections(server) as new:
            many = load(server, 1600, bench.seconds(60), warm=bench.seconds(8))
            wild = load(server, 1600, bench.seconds(20), warm=bench.seconds(8), heed=False)
        time.sleep(12)  # until those who were told to come back would have been served
        after = server.state
        last = load(server, 16, bench.seconds(10))
    alone = (first["rps"] + last["rps"]) / 2
    seen = (
        f"16 clients {first['rps']:.0f}/s, p99 {ms(first, 'lat_p99'):.0f} ms, afterwards {last['rps']:.0f}/s; "
        f"1,600 clients {_shared(many, alone)}; 1,600 that come back at once {_shared(wild, alone)}; "
        f"a new connection waited at most {new.worst:.2f} s; before {before}, after {after}"
    )
    return {"76": seen}


def _shared(row: dict[str, Any], alone: float) -> str:
    return (
        f"{row['rps']:.0f}/s ({100 * row['rps'] / alone:.0f} %), p99 of the served {ms(row, 'lat_p99'):.0f} ms, "
        f"{row['shed']} shed (p50 {ms(row, 'shed_p50'):.0f} ms), {row['bad']} failed"
    )


def flood(bench: Bench) -> dict[str, str]:
    """Row 77: one key keeps 500 requests open; another asks now and then."""
    with bench.server() as server:
        bench.configure()
        load(server, 16, 3)
        alone = load(server, 1, bench.seconds(10), key=OTHER_KEY)
        rows: list[dict[str, Any]] = []
        flooding = threading.Thread(target=lambda: rows.append(load(server, 500, bench.seconds(20) + 4)))
        flooding.start()
        time.sleep(2)
        beside = load(server, 1, bench.seconds(20), key=OTHER_KEY)
        flooding.join()
    seen = (
        f"another key's requests, alone p50 {ms(alone, 'lat_p50'):.1f} p99 {ms(alone, 'lat_p99'):.1f} ms; beside 500 "
        f"busy requests of one key p50 {ms(beside, 'lat_p50'):.1f} p99 {ms(beside, 'lat_p99'):.1f} ms, "
        f"{beside['shed']} shed, {beside['bad']} failed; "
        f"the flood itself {rows[0]['rps']:.0f}/s, {rows[0]['shed']} shed"
    )
    return {"77": seen}


def many_streams(bench: Bench) -> dict[str, str]:
    """2,000 streams at once with a word every second, then 200 with one every 100 ms: all whole, none late."""
    for streams, every, words, arriving in ((2000, 1.0, 40, 20.0), (200, 0.1, 150, 2.0)):
        with bench.server() as server:
            load(server, 16, 1)  # what is loaded when it is first needed is there, and the pools are filled
            bench.configure(chunks=words, delay_us=int(every * 1e6))
            ask = partial(
                load, connections=streams, seconds=arriving, body=STREAM, warm=0, expected=words, arriving=arriving
            )
            direct = ask(bench.direct)
            idle, before, cpu = server.rss, server.state, server.cpu
            rows, most, at_once = list[dict[str, Any]](), 0.0, 0.0
            asking = threading.Thread(target=lambda: rows.append(ask(server)))  # noqa: B023  awaited in this round
            asking.start()
            while asking.is_alive():
                time.sleep(0.5)
                most, at_once = max(most, server.rss), max(at_once, server.metric("groundwire_streams"))
            cpu = server.cpu - cpu
            time.sleep(2)
            after = server.state
        (row,) = rows
        print(
            f"{streams} streams, a word every {every:g} s: {at_once:.0f} at once, {row['ok']} whole, {row['bad']} not"
            f", {row['shed']} told to come later; longest gap of a stream p50 {ms(row, 'gap_p50'):.0f} "
            f"p99 {ms(row, 'gap_p99'):.0f} longest of all {ms(row, 'gap_max'):.0f} ms "
            f"(direct {ms(direct, 'gap_max'):.0f}); first word p50 {ms(row, 'ttft_p50'):.0f} "
            f"p99 {ms(row, 'ttft_p99'):.0f} ms (direct {ms(direct, 'ttft_p50'):.0f}, "
            f"{ms(direct, 'ttft_p99'):.0f}); {(most - idle) * 1024 / streams:.0f} kB for each stream; "
            f"{cpu:.1f} s of CPU; before {before}, after {after}"
        )
    return {}


def slow_readers(bench: Bench) -> dict[str, str]:
    """Row 65: 200 clients that read a kilobyte a second of answers without end. What the model's server has sent by
    then is what they have read and what the buffers on the way hold, which do not grow: ours, our kernel's, and at the
    most 4 MB in the server's own kernel, which nobody but that server can bound."""
    with bench.server() as server:
        bench.configure(chunks=1_000_000)
        before, idle = server.state, server.rss
        with NewConnections(server) as new:
            lines = [_ask_slowly(server) for _ in range(200)]
            time.sleep(5)  # until the buffers on the way are full
            most = full = server.rss
            sent, taken, turns = bench.stats()["chunks"], 0, int(bench.seconds(40))
            for turn in range(turns):
                began = time.monotonic()
                taken += sum(_read(line) for line in lines)
                if turn % 5 == 4 or turn == turns - 1:
                    most = max(most, server.rss)
                time.sleep(max(0.0, began + 1 - time.monotonic()))
            unread, unsent = bench.queues()
            meanwhile = bench.stats()["chunks"] - sent
        for line in lines:
            line.close()
        time.sleep(3)
        bench.configure()
        after = server.state
    seen = (
        f"200 readers of 1 kB/s: {full - idle:.0f} MiB more when all buffers were full, {most - idle:.0f} at most "
        f"afterwards; of each answer {unread / len(lines) / 1024:.0f} kB lay unread in our kernel's buffers and "
        f"{unsent / len(lines) / 1024:.0f} unsent in those of the model's server; in {turns} s they read "
        f"{taken >> 10} kB and the model wrote {meanwhile * _CHUNK >> 10}; /healthz on a new connection took at most "
        f"{new.worst:.2f} s; before {before}, after {after}"
    )
    return {"65": seen}


_CHUNK = 190  # bytes of one of the fake's events, about


def _read(line: socket.socket) -> int:
    with suppress(BlockingIOError):
        return len(line.recv(1024))
    return 0


def _ask_slowly(server: Server) -> socket.socket:
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(("127.0.0.1", server.port))
    body = STREAM.read_bytes()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer {KEY}\r\n"
    )
    line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    line.setblocking(False)
    return line


def idle(bench: Bench) -> dict[str, str]:
    """2,000 connections that say nothing and 2,000 that stop in the middle of a head."""
    with bench.server() as server:
        bench.configure()
        before = server.state
        with NewConnections(server) as new:
            silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2000)]
            halves = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2000)]
            for line in halves:
                with suppress(OSError):
                    line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: local")
            row = load(server, 8, 4)
            during = server.state
            time.sleep(12)
        for line in silent + halves:
            line.close()
        time.sleep(1)
        after = server.state
    seen = f"{row['ok']} answered and {row['bad']} failed meanwhile; a new connection waited at most {new.worst:.2f} s"
    print(f"{seen}; before {before}, during {during}, after {after}")
    return {}


def equal_searches(bench: Bench) -> dict[str, str]:
    """500 equal searches at once make one call of the provider. Who is shed asks again when it may."""

    async def ask(server: Server) -> list[int]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}, connector=connector) as session:

            async def one() -> list[int]:
                async with session.post(server.root + "/v1/search", json={"query": "blue sky"}) as answer:
                    await answer.read()
                    if answer.status != 503:
                        return [answer.status]
                await asyncio.sleep(int(answer.headers["retry-after-ms"]) / 1000)
                return [503, *await one()]

            asked = await asyncio.gather(*(one() for _ in range(500)))
            return [status for each in asked for status in each]

    with bench.server() as server:
        bench.configure(search_us=300_000)
        before = bench.stats()["searches"]
        statuses = asyncio.run(ask(server))
        calls = bench.stats()["searches"] - before
    answered = {status: statuses.count(status) for status in sorted(set(statuses))}
    print(f"500 equal searches: {calls} calls of the provider; answers by status {answered}")
    return {}


def come_and_go(bench: Bench) -> dict[str, str]:
    """1,000 clients that connect, ask for a stream and leave in its middle."""
    with bench.server() as server:
        bench.configure(chunks=10_000, delay_us=1000)
        before = server.state
        for _ in range(20):
            lines = [_ask_slowly(server) for _ in range(50)]
            time.sleep(0.05)
            for line in lines:
                line.close()
        time.sleep(4)
        after, live = server.state, bench.stats()["live"]
    print(f"1,000 came and left: before {before}, after {after}; the model still answers {live}")
    return {}


def stopped(bench: Bench) -> dict[str, str]:
    """Row 78: the process stands still for half a second, and then for so long that a ping is due meanwhile."""
    with bench.server() as server:
        bench.configure(chunks=100, delay_us=20_000)
        rows: list[dict[str, Any]] = []
        asking = threading.Thread(target=lambda: rows.append(load(server, 4, 6, body=STREAM)))
        asking.start()
        time.sleep(2)
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(server.process.pid, signal.SIGCONT)
        time.sleep(1.5)
        lag = server.metric("groundwire_loop_lag_seconds_sum")
        asking.join()
        pings = _pings_behind_a_stop(bench, server)
    whole, broken = rows[0]["ok"], rows[0]["bad"]
    seen = (
        f"stopped for 0.5 s: `groundwire_loop_lag_seconds` has {lag:.2f} s of it; {whole} streams whole, {broken} not; "
        f"{pings} pings in a silent stream that was stopped for 3 s when the first was due"
    )
    return {"78": seen}


def _pings_behind_a_stop(bench: Bench, server: Server) -> int:
    bench.configure(chunks=2, delay_us=40_000_000)
    line = _ask_slowly(server)
    time.sleep(14)
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(3)
    os.kill(server.process.pid, signal.SIGCONT)
    time.sleep(15)
    said = line.recv(100_000)
    line.close()
    return said.count(b": ping")


def killed(bench: Bench) -> dict[str, str]:
    """Row 75: two processes share a Redis, and one of them is killed."""
    with redis_server() as store, bench.server(store=store) as server:
        bench.configure()
        other = Server(bench._script, bench._folder, **{**server._config, "server": {**server._config["server"]}})
        other._config["server"]["port"] = other.port
        other.start()
        rows: list[dict[str, Any]] = []
        asking = threading.Thread(target=lambda: rows.append(load(server, 8, 8)))
        asking.start()
        time.sleep(3)
        other.process.kill()
        other.process.wait()
        asking.join()
    row = rows[0]
    return {"75": f"one of two killed with -9 under load: the other answered {row['ok']}, {row['bad']} failed"}


def workers(bench: Bench) -> dict[str, str]:
    """One worker and two, in turn, on all cores together with the load and the model: how many requests they carry."""
    found: dict[tuple[str, int], list[float]] = {}
    with redis_server() as store:
        for _ in range(3):
            for number in (1, 2):
                with bench.server(store=store, server={"workers": number}, everywhere=True) as server:
                    bench.configure()
                    load(server, 32, 2, everywhere=True)
                    for name, body, connections in (("JSON", PLAIN, 32), ("streams of 200 words", STREAM, 16)):
                        cpu, asked = server.cpu, bench.stats()["finals"]
                        row = load(server, connections, bench.seconds(8), body=body, everywhere=True)
                        cpu, asked = server.cpu - cpu, bench.stats()["finals"] - asked
                        found.setdefault((name, number), []).append(row["rps"])
                        print(
                            f"{number} workers, {name}: {row['rps']:.0f}/s, "
                            f"{1000 * cpu / asked:.3f} s of CPU per 1,000, {row['bad']} failed, {row['shed']} shed",
                            flush=True,
                        )
    for name in dict.fromkeys(name for name, _ in found):
        one, two = (statistics.median(found[name, number]) for number in (1, 2))
        print(f"{name}: one worker {one:.0f}/s, two {two:.0f}/s: {two / one:.2f} times as many")
    return {}


LOADS: dict[str, Callable[[Bench], dict[str, str]]] = {
    "overload": overload,
    "flood": flood,
    "many_streams": many_streams,
    "slow_readers": slow_readers,
    "idle": idle,
    "equal_searches": equal_searches,
    "come_and_go": come_and_go,
    "stopped": stopped,
    "killed": killed,
    "workers": workers,
}


def record(rows: dict[str, str], held: bool = True) -> None:
    """Adds to what was seen before. A load that did not hold says so in the table."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    kept |= {row: {"date": date, "seen": seen, "part": "" if held else "the last run"} for row, seen in rows.items()}
    RESULTS.write_text(json.dumps(dict(sorted(kept.items())), indent=2, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groundwire", required=True, metavar="SCRIPT")
    parser.add_argument("--only", default=",".join(LOADS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="seconds instead of a minute, and nothing is recorded")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    if unknown := set(wanted) - set(LOADS):
        parser.error(f"no such load: {', '.join(sorted(unknown))}")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="groundwire-load-") as folder:
        bench = Bench(arguments.groundwire, Path(folder), arguments.short)
        for name in wanted:
            print(f"\n{name}: {LOADS[name].__doc__}", flush=True)
            seen = LOADS[name](bench)
            for row, text in seen.items():
                print(f"{row}: {text}", flush=True)
            if not arguments.short:
                record(seen)


if __name__ == "__main__":
    main()
