"""The soak: many minutes of mixed traffic in which one answer of the model in twenty fails, and every search provider's
answer in twenty too. Memory, descriptors and open streams are sampled; a server that holds has them flat.

Run by `make soak` (MINUTES=20). Prints what it sees, and writes row 86 of bench/loads.json.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from faulty import FaultyServer
from loaded import KEY, Server
from loads import record

ASKERS = 16
FAULTS = 0.05
TIMEOUT = 60.0  # seconds: an answer that is not over by then is stuck
EVERY = 5.0
FLAT = 24.0  # MiB in an hour: what the slope of the second half may be


@dataclass
class Seen:
    outcomes: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[float, float, int]] = field(default_factory=list)  # seconds, MiB, descriptors
    wrong: list[str] = field(default_factory=list)


class Asker:
    def __init__(self, server: Server, model: FaultyServer, seen: Seen, seed: int) -> None:
        self._server, self._model, self._seen = server, model, seen
        self._random = random.Random(seed)
        self._kinds = (self._chat, self._chat, self._forwarded, self._forwarded, self._response, self._leave)

    async def ask(self, session: aiohttp.ClientSession, number: int) -> None:
        kind = self._random.choice(self._kinds)
        try:
            async with asyncio.timeout(TIMEOUT):
                good, what = await kind(session, number)
        except TimeoutError:
            self._seen.outcomes["stuck"] += 1
            return
        except aiohttp.ClientError as error:
            good, what = False, repr(error)
        spoilt = number in self._model.spoilt
        self._seen.outcomes[f"{'spoilt' if spoilt else 'sound'} {'ok' if good else 'failed'}"] += 1
        if not good and not spoilt:
            self._seen.wrong.append(what[:300])

    async def _chat(self, session: aiohttp.ClientSession, number: int) -> tuple[bool, str]:
        return await self._post(session, "/v1/chat/completions", _chat(number, self._streamed()))

    async def _forwarded(self, session: aiohttp.ClientSession, number: int) -> tuple[bool, str]:
        asked = _chat(number, self._streamed())
        return await self._post(session, "/v1/chat/completions", asked, {"X-Groundwire-Search": "off"})

    async def _response(self, session: aiohttp.ClientSession, number: int) -> tuple[bool, str]:
        asked = {"model": "m", "input": f"number {number}", "stream": self._streamed(), "store": False}
        return await self._post(session, "/v1/responses", asked)

    async def _leave(self, session: aiohttp.ClientSession, number: int) -> tuple[bool, str]:
        url = self._server.root + "/v1/chat/completions"
        async with session.post(url, json=_chat(number, True), headers=_HEADERS) as answer:
            await answer.content.readany()
            answer.close()
        return True, ""

    async def _post(
        self, session: aiohttp.ClientSession, path: str, asked: dict, headers: dict[str, str] | None = None
    ) -> tuple[bool, str]:
        sent = {**_HEADERS, **(headers or {})}
        async with session.post(self._server.root + path, json=asked, headers=sent) as answer:
            text = await answer.text()
            ended = any(mark in text for mark in ("[DONE]", "response.completed", '"finish_reason":', '"completed"'))
            return answer.status == 200 and ended and '"error":{' not in text, f"{path} {answer.status} {text[-200:]}"

    def _streamed(self) -> bool:
        return self._random.random() < 0.6


_HEADERS = {"Authorization": f"Bearer {KEY}"}


def _chat(number: int, stream: bool) -> dict:
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": f"number {number}: why blue?"}]}


async def soak(script: str, minutes: float, folder: Path) -> tuple[Seen, FaultyServer, Server]:
    model = FaultyServer(FAULTS)
    await model.start()
    server = Server(
        script,
        folder,
        upstreams=[{"name": "faulty", "base_url": f"{model.url}/v1", "idle_timeout": 3, "first_byte_timeout": 5}],
        providers=[{"name": "engine", "type": "searxng", "base_url": model.url}],
        cache={"max_entries": 500},
        server={"queue": 10},  # what is shed is shown by another load
    )
    await asyncio.to_thread(server.start)
    seen = Seen()
    end = time.monotonic() + minutes * 60
    numbers = iter(range(10**9))

    async def work(seed: int) -> None:
        asker = Asker(server, model, seen, seed)
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < end:
                await asker.ask(session, next(numbers))

    async def sample() -> None:
        began = time.monotonic()
        while time.monotonic() < end:
            await asyncio.sleep(EVERY)
            row = (time.monotonic() - began, server.rss, server.descriptors)
            seen.samples.append(row)
            if len(seen.samples) % 12 == 0:
                print(f"{row[0]:5.0f} s  {row[1]:.1f} MiB  {row[2]} descriptors  {dict(seen.outcomes)}", flush=True)

    await asyncio.gather(sample(), *(work(seed) for seed in range(ASKERS)))
    return seen, model, server


def slope(samples: list[tuple[float, float, int]]) -> float:
    """MiB in an hour, by least squares."""
    mean_x = sum(s[0] for s in samples) / len(samples)
    mean_y = sum(s[1] for s in samples) / len(samples)
    over = sum((s[0] - mean_x) * (s[1] - mean_y) for s in samples)
    return over / sum((s[0] - mean_x) ** 2 for s in samples) * 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groundwire", required=True, metavar="SCRIPT")
    parser.add_argument("--minutes", type=float, default=20.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="groundwire-soak-") as folder:
        seen, model, server = asyncio.run(soak(arguments.groundwire, arguments.minutes, Path(folder)))
        time.sleep(2)
        streams, descriptors = server.metric("groundwire_streams"), server.descriptors
        server.stop()
    second = seen.samples[len(seen.samples) // 2 :]
    sound = seen.outcomes["sound ok"] + seen.outcomes["sound failed"]
    share = 100 * seen.outcomes["sound ok"] / max(1, sound)
    figures = (
        f"{arguments.minutes:g} min, {sum(seen.outcomes.values())} requests, {sum(model.faults.values())} faults: "
        f"{share:.2f} % of the {sound} whose answers were sound succeeded, {seen.outcomes['stuck']} stuck; "
        f"RSS {seen.samples[0][1]:.0f} → {seen.samples[-1][1]:.0f} MiB, second half {slope(second):+.1f} MiB/h; "
        f"descriptors at most {max(s[2] for s in seen.samples)}, {descriptors} afterwards; {streams:.0f} streams left"
    )
    print(figures, *seen.wrong[:5], sep="\n")
    held = share >= 99.9 and not seen.outcomes["stuck"] and slope(second) < FLAT and not streams
    record({"86": figures}, held)
    sys.exit(not held)


if __name__ == "__main__":
    main()
