"""What a request costs as the config names more keys, upstreams and providers: the whole application in this process,
asked by ASGI, with `bench/fake` behind it as model and search service. Handed a number of each, hands on the
application, whose `ask` is one answered request; `growth.py` measures and draws it.
"""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from measure import HERE, get
from run import await_health, free_port, stop

from proxy.config.settings import Config
from proxy.serving.app import build

CONFIGURED = (1, 10, 100, 1000)
KEY = "sk-of-the-last-one"
BODY = (HERE / "bodies" / "plain.json").read_bytes()

Line = Callable[[int], "Served"]


@contextmanager
def fake(rounds: int) -> Iterator[str]:
    """A model that calls for so many searches before it answers, and the service that it is searched with."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([HERE / "fake", str(port)], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        await_health(f"{address}/health", process)
        get(f"{address}/config?chunks=20&delay_us=0&rounds={rounds}&search_us=0&batch=1")
        yield address
    finally:
        stop(process)


def settings(address: str, keys: int = 1, upstreams: int = 1, providers: int = 1) -> Config:
    """The one that is used stands last among the keys and upstreams; of the providers the first is asked."""
    secrets = [f"sk-{number}" for number in range(keys - 1)] + [KEY]
    models = [[f"model-{number}"] for number in range(upstreams - 1)] + [["fake-model"]]
    return Config.model_validate(
        {
            "server": {"keys": [{"name": f"k{number}", "key": key} for number, key in enumerate(secrets)]},
            "log": {"level": "error"},
            "upstreams": [
                {"name": f"u{number}", "type": "openai", "base_url": f"{address}/v1", "models": names}
                for number, names in enumerate(models)
            ],
            "providers": [{"name": f"p{n}", "type": "searxng", "base_url": address} for n in range(providers)],
            "tools": {"search": [f"p{n}" for n in range(providers)]},
        }
    )


class Served:
    """The application, started, until it is closed; a call of `ask` is one request and its answer."""

    def __init__(self, config: Config) -> None:
        self._loop = asyncio.new_event_loop()
        self._edge = build(config)
        self._orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._done: asyncio.Queue[Any] = asyncio.Queue()
        self._life = self._loop.create_task(self._edge({"type": "lifespan"}, self._orders.get, self._done.put))
        self._order("startup")
        self.ask()

    def _order(self, what: str) -> None:
        self._orders.put_nowait({"type": f"lifespan.{what}"})
        self._loop.run_until_complete(self._done.get())

    def close(self) -> None:
        self._order("shutdown")
        self._loop.run_until_complete(self._life)
        self._loop.close()

    def ask(self) -> None:
        self._loop.run_until_complete(self._ask())

    async def _ask(self) -> None:
        said = iter([{"type": "http.request", "body": BODY}])
        heard: list[Any] = []

        async def receive() -> Any:
            return next(said, None) or await asyncio.Event().wait()

        async def send(message: Any) -> None:
            heard.append(message)

        await self._edge(_scope(), receive, send)
        answer = json.loads(heard[1]["body"])
        if heard[0]["status"] != 200 or not answer["choices"][0]["message"]["content"]:
            raise RuntimeError(f"not an answer: {answer}")


def _scope() -> dict[str, Any]:
    headers = {"host": "127.0.0.1", "authorization": f"Bearer {KEY}", "content-type": "application/json"}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    path = "/v1/chat/completions"
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [*raw, (b"content-length", str(len(BODY)).encode())],
        "root_path": "",
    }


def lines(plain: str, searched: str) -> dict[str, Line]:
    """`plain` and `searched` are addresses of two fakes."""
    return {
        "client keys": lambda count: Served(settings(plain, keys=count)),
        "upstreams": lambda count: Served(settings(plain, upstreams=count)),
        "providers": lambda count: Served(settings(plain, providers=count)),
        "providers, searched": lambda count: Served(settings(searched, providers=count)),
    }
