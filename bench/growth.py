"""What a character of an answer costs as the answer grows, a message as the conversation does, and a request as the
config does: CPU time, the smallest of several runs, in one process. A line that is not flat is a defect.

    make growth        # prints the rows, and writes docs/growth.svg

`--short` looks at few sizes and writes nothing.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from config_growth import CONFIGURED, fake, lines

from proxy.answering.citations import Citer
from proxy.answering.decoration import strip_decoration
from proxy.answering.source_texts import SourceTexts
from proxy.dialects import chat
from proxy.dialects.messages import encoder as messages_encoder
from proxy.dialects.messages import request as messages_request
from proxy.dialects.messages.handles import Handles
from proxy.dialects.messages.history import conversation as messages_conversation
from proxy.dialects.responses import encoder as responses_encoder
from proxy.dialects.responses import request as responses_request
from proxy.upstreams.chunks import ChunkReader
from proxy.upstreams.leaks import LeakReader
from proxy.values.events import Begun, Event, Finished, TextDelta
from tools.ledger import Ledger

PLOT = Path(__file__).parent.parent / "docs" / "growth.svg"
CHARACTERS = (1_000, 10_000, 100_000, 1_000_000)
MESSAGES = (10, 100, 1_000, 10_000)
RUNS = 7
REQUESTS = 50  # of one run, as the config grows
SENTENCE = "Solar panels turn light into power, and in 2024 they were cheaper than ever before [1]. "
PIECE = 5  # characters of a token
TOOLS = {"web_search": {"type": "object", "properties": {"query": {"type": "string"}}}}
ASKED = json.dumps({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}).encode()


def pieces(size: int) -> list[str]:
    text = (SENTENCE * (size // len(SENTENCE) + 1))[:size]
    return [text[at : at + PIECE] for at in range(0, size, PIECE)]


def said(size: int) -> list[Event]:
    deltas: list[Event] = [TextDelta(piece) for piece in pieces(size)]
    return [Begun("m"), *deltas, Finished("stop")]


def read_chunks(size: int) -> Callable[[], object]:
    chunks = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces(size)]
    payloads = [json.dumps({"id": "x", "model": "m", **chunk}).encode() for chunk in chunks]
    return lambda: _each(ChunkReader().feed, ([payload] for payload in payloads))


def read_leaks(size: int) -> Callable[[], object]:
    return lambda: _each(LeakReader(TOOLS).feed, pieces(size))


def cite(size: int) -> Callable[[], object]:
    ledger = Ledger()
    ledger.add("https://example.org/", "Panels")
    ledger.give(1, "Solar panels turn light into power. In 2024 they were cheap.", "page")
    return lambda: _each(Citer(ledger.get, texts=SourceTexts()).feed, pieces(size))


def encode(make: Callable[[], Any], size: int) -> Callable[[], object]:
    batches = [[event] for event in said(size)]
    return lambda: _each(make().feed, batches)


def encode_chat() -> Any:
    return chat.ChatWriter(chat.decode(ASKED))


def encode_messages() -> Any:
    return messages_encoder.Encoder(messages_request.decode(ASKED), Handles(b"k" * 32, "owner"))


def encode_responses() -> Any:
    asked = json.dumps({"model": "m", "input": "Hello"}).encode()
    return responses_encoder.Encoder(responses_request.decode(asked), "resp_1")


def whole_chat(size: int) -> Callable[[], object]:
    events = said(size)
    return lambda: chat.ChatWriter(chat.decode(ASKED)).fold(events)


def talk(count: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": f"{SENTENCE} ({n})"} for n in range(count - 1)] + [
        {"role": "user", "content": "And then?"}
    ]


def read_chat(count: int) -> Callable[[], object]:
    raw = json.dumps({"model": "m", "messages": talk(count)}).encode()
    return lambda: strip_decoration(chat.decode(raw).body["messages"])


def read_messages(count: int) -> Callable[[], object]:
    raw = json.dumps({"model": "m", "max_tokens": 10, "messages": talk(count)}).encode()

    def read() -> object:
        asked = messages_request.decode(raw)
        return messages_conversation(asked.system, asked.messages, asked.tools)

    return read


def read_responses(count: int) -> Callable[[], object]:
    raw = json.dumps({"model": "m", "input": talk(count)}).encode()
    return lambda: responses_request.decode(raw)


def _each(feed: Callable[[Any], object], given: Sequence[Any] | Iterator[Any]) -> None:
    for one in given:
        feed(one)


LINES: dict[str, tuple[Callable[[int], Callable[[], object]], tuple[int, ...]]] = {
    "chunk reader": (read_chunks, CHARACTERS),
    "leak reader": (read_leaks, CHARACTERS),
    "citer": (cite, CHARACTERS),
    "encoder, chat": (partial(encode, encode_chat), CHARACTERS),
    "encoder, responses": (partial(encode, encode_responses), CHARACTERS),
    "encoder, messages": (partial(encode, encode_messages), CHARACTERS),
    "whole answer, chat": (whole_chat, CHARACTERS),
    "history, chat": (read_chat, MESSAGES),
    "history, responses": (read_responses, MESSAGES),
    "history, messages": (read_messages, MESSAGES),
}


Rows = dict[str, list[tuple[int, float]]]


def cost(run: Callable[[], object], times: int, runs: int = RUNS) -> float:
    """Seconds of CPU time. Small work is repeated, so that the clock is not what is measured."""
    best = float("inf")
    for _ in range(runs):
        began = time.thread_time()
        for _ in range(times):
            run()
        best = min(best, (time.thread_time() - began) / times)
    return best


def texts(sizes: slice) -> Rows:
    """What a character and a message cost."""
    rows: Rows = {}
    for name, (make, of) in LINES.items():
        rows[name] = []
        for size in of[sizes]:
            runs = RUNS if size <= CHARACTERS[-2] else 2
            rows[name].append((size, cost(make(size), max(1, 20_000 // size), runs) / size))
        show(name, rows[name])
    return rows


def configs(sizes: slice) -> Rows:
    """What a request costs."""
    rows: Rows = {}
    with fake(rounds=0) as plain, fake(rounds=1) as searched:
        for name, line in lines(plain, searched).items():
            rows[name] = []
            for count in CONFIGURED[sizes]:
                served = line(count)
                rows[name].append((count, cost(served.ask, REQUESTS)))
                served.close()
            show(name, rows[name])
    return rows


def show(name: str, row: list[tuple[int, float]]) -> None:
    shown = "  ".join(f"{size:>9,}: {seconds * 1e9:9.1f} ns" for size, seconds in row)
    print(f"{name:<20}{shown}  last ÷ first {row[-1][1] / row[0][1]:.2f}", flush=True)


# The plot: three frames, a line for each row, everything relative to the smallest size.

WIDE, HIGH, LEFT, TOP = 380, 260, 50, 40
COLOURS = ("#4477aa", "#cc6677", "#228833", "#aa8800", "#66aacc", "#aa3377", "#888888")
STYLE = (
    "text{font:12px sans-serif;fill:#333}.axis{stroke:#999;fill:none}.flat{stroke:#bbb;stroke-dasharray:4 4}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#777}.flat{stroke:#555}}"
)


def plot(characters: Rows, messages: Rows, requests: Rows) -> str:
    titles = {
        "a character, as an answer grows": characters,
        "a message, as a conversation grows": messages,
        "a request, as the config grows": requests,
    }
    step = WIDE + 2 * LEFT
    frames = [_frame(title, rows, number * step) for number, (title, rows) in enumerate(titles.items())]
    height = HIGH + TOP + 50 + 18 * max(map(len, titles.values()))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {step * len(titles)} {height}" role="img">'
    title = "<title>What a character, a message and a request cost, relative to the smallest size</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *frames, "</svg>", ""])


def _of(rows: Rows, sizes: tuple[int, ...]) -> Rows:
    return {name: row for name, row in rows.items() if LINES[name][1] == sizes}


def _frame(title: str, rows: Rows, x: int) -> str:
    most = 3.0  # times the cost at the smallest size
    sizes = [size for size, _ in next(iter(rows.values()))]
    step = WIDE / (len(sizes) - 1)
    left, bottom = x + LEFT, TOP + HIGH

    def height(times: float) -> float:
        return bottom - min(times, most) / most * HIGH

    out = [f'<text x="{left}" y="{TOP - 16}" font-weight="bold">{title}</text>']
    out.append(f'<path class="axis" d="M{left} {TOP}V{bottom}H{left + WIDE}"/>')
    for times in (1, 2, 3):
        out.append(f'<path class="flat" d="M{left} {height(times):.0f}h{WIDE}"/>')
        out.append(f'<text x="{left - 26}" y="{height(times) + 4:.0f}">{times}×</text>')
    for number, size in enumerate(sizes):
        out.append(f'<text x="{left + number * step:.0f}" y="{bottom + 18}" text-anchor="middle">{size:,}</text>')
    for (name, row), colour, line in zip(rows.items(), COLOURS, range(len(rows)), strict=False):
        places = " ".join(f"{left + n * step:.0f},{height(cost / row[0][1]):.1f}" for n, (_, cost) in enumerate(row))
        out.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
        below = bottom + 42 + 18 * line
        unit = "µs" if row[0][1] > 1e-6 else "ns"
        figure = row[-1][1] * (1e6 if unit == "µs" else 1e9)
        out.append(f'<path d="M{left} {below - 4}h20" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{left + 28}" y="{below}">{name}: {figure:.1f} {unit} at {row[-1][0]:,}</text>')
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few sizes, and no plot")
    short = parser.parse_args().short
    sizes = slice(0, 2) if short else slice(None)
    rows, requests = texts(sizes), configs(sizes)
    if not short:
        PLOT.write_text(plot(_of(rows, CHARACTERS), _of(rows, MESSAGES), requests))


if __name__ == "__main__":
    main()
