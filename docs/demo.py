"""`make demo`: starts the proxy on embedded parts, asks it one question as any OpenAI client would, and stops it.

Handed nothing; prints the answer as it streams, its sources, and how to go on with a real model. On a terminal the
proxy stays until Enter is pressed, so that its page can be looked at. Standard library only.
"""
# ruff: noqa: S603, T201 - it starts our own console script, and printing is what it is for

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
SCRIPT = Path(sys.executable).parent / "groundwire"
QUESTION = "How does Groundwire check citations?"
START_LIMIT = 30.0
OURS = ("GROUNDWIRE_", "WEB_SEARCH_PROVIDER")

WIDEST = 100  # columns
NEXT = """
Now with a real model and your own documents:

  .venv/bin/groundwire init         # writes a config.yaml that fits this machine
  .venv/bin/groundwire check        # tries it, and says what to mend
  .venv/bin/groundwire ask "…"      # asks here
  make serve                        # the proxy, and its page
                                    # on http://127.0.0.1:8080

A client changes one thing: OpenAI(base_url="http://127.0.0.1:8080/v1")
"""


@contextmanager
def proxy() -> Iterator[int]:
    """The proxy on a free port, with no setting of the person who runs the demo; hands on the port."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    command = [str(SCRIPT), "serve", "--config", "docs/demo.yaml", "--port", "0"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, cwd=PROJECT, env=environment | {"PYTHONUNBUFFERED": "1"}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            limit = time.monotonic() + START_LIMIT
            while not (ready := re.search(r"listening on http://127\.0\.0\.1:(\d+)", said(log))):
                if process.poll() is not None or time.monotonic() > limit:
                    sys.exit(f"The proxy did not start. It said:\n{said(log)}")
                time.sleep(0.05)
            yield int(ready[1])
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:  # somebody still reads an answer in the browser
                process.kill()


def said(log: Any) -> str:
    """The log is read through the descriptor's own offset, so that the proxy's place in it is not moved."""
    return os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace")


def ask(port: int, question: str) -> Iterator[dict[str, Any]]:
    """The chunks of a streamed chat completion."""
    body = {"model": "demo", "messages": [{"role": "user", "content": question}], "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"The proxy answered {answer.status}: {answer.read().decode(errors='replace')}")
    for line in answer:
        if line.startswith(b"data: {"):
            yield json.loads(line[len(b"data: ") :])
        elif line.startswith(b"data: [DONE]"):
            return
    sys.exit("\nThe stream ended before its [DONE].")


class Lines:
    """Prints text as it comes, and breaks its lines between words."""

    def __init__(self) -> None:
        self._width = min(shutil.get_terminal_size().columns, WIDEST)
        self._column = 0

    def add(self, text: str) -> None:
        for piece in re.findall(r"\n|[^\s]+|[ \t]+", text):
            if piece == "\n" or (self._column and self._column + len(piece) > self._width):
                print()
                self._column = 0
            if piece != "\n" and (self._column or not piece.isspace()):
                print(piece, end="", flush=True)
                self._column += len(piece)


def answer(port: int) -> dict[str, str]:
    """Prints the answer as it comes; hands on the titles of its sources, by their addresses."""
    sources: dict[str, str] = {}
    lines = Lines()
    for chunk in ask(port, QUESTION):
        if "error" in chunk:
            sys.exit(f"\nThe proxy answered: {chunk['error']}")
        for choice in chunk["choices"]:
            lines.add(choice["delta"].get("content") or "")
            for annotation in choice["delta"].get("annotations", []):
                source = annotation["url_citation"]
                sources[source["url"]] = source["title"]
    return sources


def show_page(port: int) -> None:
    """Where somebody sits at a terminal, the proxy is there for as long as they like."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("\nIn a terminal `make demo` also leaves the proxy running, to look at its page in a browser.")
        return
    print(f"\nAsk it in a browser, and see what it does: http://127.0.0.1:{port}/")
    try:
        input("Press Enter to end the demo. ")
    except (EOFError, KeyboardInterrupt):
        print()


def main() -> None:
    with proxy() as port:
        print(f"Groundwire listens on http://127.0.0.1:{port}/v1. Asking it: {QUESTION}\n")
        sources = answer(port)
        if not sources:
            sys.exit("\nThe answer came without a source.")
        print("\n\nSources:")
        for url, title in sources.items():
            print(f"  {title}  {url}")
        print(NEXT, end="")
        show_page(port)


if __name__ == "__main__":
    main()
