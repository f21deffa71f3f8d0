"""`groundwire init`: what it finds, what it asks, what it writes, and that the config it writes is one that works."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
import yaml

from providers.registry import SERVICES, ProviderEntry
from proxy.cli.engine_tries import try_engines
from proxy.cli.model_servers import USUAL, UsualPlace, running
from proxy.config.settings import Config, load
from tests.fakes.groundwire import SCRIPT, Groundwire, environment, gone, groundwire
from tests.fakes.model import ModelServer
from tests.fakes.search import FakeDuckDuckGo, FakeSearxng
from tests.fakes.service import HTML_ERROR, KEY, Asked, FakeServer, Reply, as_json
from tests.fakes.terminal import CTRL_C, CTRL_D, Terminal

VARIABLES = [service.variable for service in SERVICES.values() if service.variable]
OFFLINE = ["--yes", "--offline"]


class FakeModels(FakeServer):
    reply: Reply = as_json({"object": "list", "data": [{"id": "qwen3:8b"}]})
    faults: ClassVar = {}

    def check(self, asked: Asked) -> None:
        assert "authorization" not in asked.headers, "nobody's key goes to a server that was only found"

    def reply_to(self, asked: Asked) -> Reply:
        return self.reply if asked.path == "/v1/models" else Reply(404, b"404 page not found")


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def written(folder: Path, *arguments: str, env: dict[str, str] | None = None, name: str = "config.yaml") -> Config:
    """The config that was written, as `serve` reads it."""
    groundwire(folder, "init", *arguments, env=env)
    return load(folder / name, env or {})


# What is written


def test_a_config_that_serves(model: ModelServer, library: Path, tmp_path: Path) -> None:
    """From the command to an answer: the config is used as it was written."""
    said = groundwire(tmp_path, "init", "--upstream", model.url, "--folder", str(library), *OFFLINE[1:]).stderr
    assert "Wrote config.yaml" in said
    assert "groundwire check" in said
    text = (tmp_path / "config.yaml").read_text()
    assert text.count(" # ") >= 10, "it is commented"
    with Groundwire(yaml.safe_load(text)) as proxy:
        listed = httpx.get(f"{proxy.url}/models").json()
        found = httpx.post(f"{proxy.url}/search", json={"query": "sky blue"}).json()
    assert [entry["id"] for entry in listed["data"]] == ["m", "vendor/m"]
    assert [result["title"] for result in found["results"]] == ["Why the sky is blue"]


def test_the_doctor_accepts_it(servers: ExitStack, library: Path, tmp_path: Path) -> None:
    server = servers.enter_context(FakeModels())
    groundwire(
        tmp_path, "init", "--upstream", server.url, "--folder", str(library), "--offline", "--provider", "duckduckgo"
    )
    (tmp_path / "config.yaml").write_text(
        (tmp_path / "config.yaml").read_text().replace("tool_calls: auto", "tool_calls: none")
    )
    server.check = lambda asked: None  # type: ignore[method-assign]
    report = json.loads(groundwire(tmp_path, "check", "--json", code=1).stdout)  # there is no web here
    by_kind = {(finding["kind"], finding["subject"]): finding["ok"] for finding in report["findings"]}
    assert by_kind["upstream", "default"]
    assert by_kind["search", "documents"]
    assert report["notes"] == []


def test_keys_of_the_environment_are_referred_to(tmp_path: Path) -> None:
    env = {name: f"{KEY}-{name}" for name in [*VARIABLES, "OPENAI_API_KEY"]} | {"SEARXNG_URL": "http://searx.test:8888"}
    done = groundwire(tmp_path, "init", *OFFLINE, env=env)
    text = (tmp_path / "config.yaml").read_text()
    assert KEY not in text + done.stdout + done.stderr
    assert all(f'"${{{name}}}"' in text for name in env)
    config = load(tmp_path / "config.yaml", env)
    assert config.upstreams[0].base_url == "https://api.openai.com/v1"
    assert config.upstreams[0].key == env["OPENAI_API_KEY"]
    assert config.tools.search == [*(kind for kind, service in SERVICES.items() if service.variable), "duckduckgo"]
    for entry in config.providers:
        variable = SERVICES[entry.type].variable
        if entry.type == "searxng":
            assert entry.base_url == env["SEARXNG_URL"]
        elif variable:
            assert entry.api_key is not None
            assert entry.api_key.get_secret_value() == env[variable]


def test_a_key_for_clients_is_shown_once(tmp_path: Path) -> None:
    said = groundwire(tmp_path, "init", *OFFLINE, "--key").stderr
    (key,) = [word for word in said.split() if word.startswith("gw-")]
    text = (tmp_path / "config.yaml").read_text()
    assert key not in text
    config = yaml.safe_load(text) | {"upstreams": [{"name": "demo", "type": "demo"}]}
    with Groundwire(config) as proxy:
        assert httpx.get(f"{proxy.url}/models").status_code == 401
        assert httpx.get(f"{proxy.url}/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_flags_decide(tmp_path: Path, library: Path) -> None:
    config = written(
        tmp_path,
        *OFFLINE,
        *("--upstream", "http://127.0.0.1:1234", "--model", "qwen3:8b", "--provider", "duckduckgo", "--no-keys"),
        *("--folder", str(library), "--public-fallback", "--output", "mine.yaml"),
        name="mine.yaml",
    )
    (upstream,) = config.upstreams
    assert (upstream.name, upstream.base_url, upstream.models) == ("lmstudio", "http://127.0.0.1:1234/v1", ["qwen3:8b"])
    assert (config.tools.search, config.tools.read) == (["documents", "duckduckgo"], ["documents", "reader"])
    assert config.tools.public_fallback is True
    assert config.server.keys == []


def test_without_anything_it_is_the_usual(tmp_path: Path) -> None:
    config = written(tmp_path, *OFFLINE)
    assert config.upstreams[0].base_url == "http://127.0.0.1:11434/v1"
    assert config.tools.search == ["tavily", "duckduckgo"]
    assert config.tools.public_fallback is False
    assert config.server.port == 8080


def test_a_model_where_we_would_listen(tmp_path: Path) -> None:
    """llama.cpp's usual port is ours."""
    config = written(tmp_path, "--offline", "--upstream", "http://localhost:8080/v1")
    assert (config.upstreams[0].name, config.server.port) == ("llamacpp", 8081)


def test_to_stdout(tmp_path: Path) -> None:
    done = groundwire(tmp_path, "init", *OFFLINE, "--output", "-")
    assert list(yaml.safe_load(done.stdout)) == ["server", "upstreams", "providers", "tools", "citations", "log"]
    assert list(tmp_path.iterdir()) == []


# What is refused


def test_a_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("mine")
    said = groundwire(tmp_path, "init", *OFFLINE, code=2).stderr
    assert said == "config.yaml is there already: --force replaces it, --output F writes another file.\n"
    assert path.read_text() == "mine"
    groundwire(tmp_path, "init", *OFFLINE, "--force")
    assert path.read_text().startswith("# Groundwire's configuration")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "asks questions, and here is no terminal to ask them on. Add --yes"),
        (["--output", "x.yaml"], "Add --yes"),
        ([*OFFLINE, "--output", "none/x.yaml"], "none/x.yaml cannot be written: there is no folder none."),
        ([*OFFLINE, "--folder", "nowhere"], "There is no folder nowhere."),
        ([*OFFLINE, "--provider", "gogle"], "There is no search engine 'gogle'. There are: tavily, exa,"),
        ([*OFFLINE, "--provider", "exa"], "exa needs the variable EXA_API_KEY, which is not set."),
        ([*OFFLINE, "--upstream", "ollama"], "--upstream must be a URL such as http://127.0.0.1:11434/v1"),
        ([*OFFLINE, "--upstream", "http://me:secret@x/v1"], "without user, query or fragment"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = groundwire(tmp_path, "init", *arguments, code=2)
    assert says in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("mine")
    path.chmod(0o600)
    command = f"ulimit -f 0; exec {SCRIPT} init {' '.join(OFFLINE)} --force"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment(None), capture_output=True, text=True, timeout=60
    )
    assert done.stderr.splitlines()[-1] == "config.yaml cannot be written: File too large."
    assert (done.returncode, path.read_text(), list(tmp_path.iterdir())) == (2, "mine", [path])
    groundwire(tmp_path, "init", *OFFLINE, "--force")
    assert path.read_text().startswith("# Groundwire's configuration")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_nobody_may_write_to(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    said = groundwire(tmp_path, "init", *OFFLINE, "--force", code=2).stderr
    assert said.splitlines()[-1] == "config.yaml cannot be written: Is a directory."


def test_another_groundwire_is_no_server_of_models(proxy: Groundwire, tmp_path: Path) -> None:
    said = groundwire(tmp_path, "init", "--yes", "--upstream", proxy.url, code=2).stderr
    assert said == f"{proxy.url} is a Groundwire, and no server of models: name what it asks itself.\n"


# What is found


async def test_servers_are_found_where_they_usually_are(servers: ExitStack, proxy: Groundwire) -> None:
    """One that lists models, one that has none, one that wants a key; no Groundwire, with keys or without, no page, and
    nobody at all."""
    lists, empty, keyed, page = (servers.enter_context(FakeModels()) for _ in range(4))
    empty.reply, keyed.reply, page.reply = as_json({"object": "list", "data": None}), Reply(401), Reply(body=HTML_ERROR)
    with Groundwire(
        {"server": {"keys": [KEY]}, "upstreams": [{"name": "d", "type": "demo"}], "providers": []}
    ) as other:
        urls = [*(f"{server.url}/v1" for server in (lists, empty, keyed, page)), proxy.url, other.url]
        places = [UsualPlace(str(at), "", url) for at, url in enumerate([*urls, gone()["base_url"]])]
        found = await running(places)
    assert [(place.name, seen.models, seen.wants_key) for place, seen in found] == [
        ("0", ("qwen3:8b",), False),
        ("1", (), False),
        ("2", (), True),
    ]
    assert [(place.title, place.base_url.removesuffix("/v1").rpartition(":")[2]) for place in USUAL] == [
        ("Ollama", "11434"),
        ("llama.cpp", "8080"),
        ("vLLM", "8000"),
        ("LM Studio", "1234"),
    ]


async def test_engines_that_answer_are_told_from_those_that_do_not(servers: ExitStack) -> None:
    well, silent, slow = (servers.enter_context(FakeDuckDuckGo()) for _ in range(3))
    silent.reply, slow.reply = Reply(202, HTML_ERROR), Reply(wait=60)
    entries = [
        ProviderEntry(name=name, type="duckduckgo", base_url=fake.entry().base_url)
        for name, fake in (("well", well), ("silent", silent), ("slow", slow))
    ]
    reasons = await try_engines([*entries, ProviderEntry(name="wrong", type="searxng")], limit=5)
    assert reasons["well"] == ""
    assert "gave no results" in reasons["silent"]
    assert "`base_url` is missing" in reasons["wrong"]
    assert reasons["slow"] == "no answer within 5 s"


def test_an_engine_of_ones_own_is_tried(servers: ExitStack, tmp_path: Path) -> None:
    server, searx = servers.enter_context(FakeModels()), servers.enter_context(FakeSearxng())
    env = {"SEARXNG_URL": searx.url}
    flags = ["--upstream", server.url, "--provider", "searxng", "--force"]
    done = groundwire(tmp_path, "init", *flags, env=env)
    assert "search  searxng (SEARXNG_URL is set) answers\n" in done.stderr
    assert f"model   The server at {server.url}/v1: 1 model: qwen3:8b\n" in done.stderr, "the /v1 was found"
    searx.reply = Reply(403, HTML_ERROR)
    done = groundwire(tmp_path, "init", *flags, env=env)
    assert "does not answer: SearXNG refused the JSON format (status 403)\n" in done.stderr
    assert load(tmp_path / "config.yaml", env).tools.search == ["searxng"], "who named it wants it"


def test_an_address_of_the_environment_that_is_for_clients(proxy: Groundwire, tmp_path: Path) -> None:
    env = {"OPENAI_BASE_URL": proxy.url, "OPENAI_API_KEY": "gw-of-a-client"}
    groundwire(tmp_path, "init", "--yes", "--provider", "duckduckgo", env=env)
    assert proxy.url not in (tmp_path / "config.yaml").read_text()
    assert "OPENAI_BASE_URL" not in (tmp_path / "config.yaml").read_text()


# On a terminal


def asked(folder: Path, *arguments: str) -> Terminal:
    return Terminal([str(SCRIPT), "init", *arguments], folder, environment(None))


def test_where_nobody_answers_the_address_is_asked_for(servers: ExitStack, tmp_path: Path) -> None:
    server = servers.enter_context(FakeModels())
    command = [str(SCRIPT), "init", "--folder", str(tmp_path), "--provider", "duckduckgo", "--no-keys"]
    with Terminal(command, tmp_path, environment({"OPENAI_BASE_URL": gone()["base_url"]})) as terminal:
        terminal.until("nobody answers there now")
        terminal.until("The address of your model's server, if it is elsewhere (empty: that one): ")
        terminal.press(f"{server.url}\n")
        terminal.until("1 model: qwen3:8b")
        terminal.until("May what your documents do not hold be searched on the web? [y/N]: ")
        terminal.press("\n")
        assert terminal.ended() == 0
    assert server.url in (tmp_path / "config.yaml").read_text()


def test_questions(tmp_path: Path, library: Path) -> None:
    with asked(tmp_path, "--offline") as terminal:
        terminal.until("A folder of documents to search (empty: none): ")
        terminal.press(f"{library}\n")
        terminal.until("May what your documents do not hold be searched on the web? [y/N]: ")
        terminal.press("maybe\n")
        terminal.until("Please answer y or n.")
        terminal.press("y\n")
        terminal.until("Shall clients need a key? [y/N]: ")
        terminal.press("\n")
        code, shown = terminal.ended(), terminal.written
    assert (code, "Wrote config.yaml" in shown) == (0, True)
    config = load(tmp_path / "config.yaml", {})
    assert config.tools.search[0] == "documents"
    assert config.tools.public_fallback is True
    assert config.server.keys == []


def test_what_flags_say_is_not_asked(tmp_path: Path, servers: ExitStack) -> None:
    server = servers.enter_context(FakeModels())
    server.reply = as_json({"object": "list", "data": [{"id": "a"}, {"id": "b"}]})
    flags = ["--upstream", server.url, "--folder", "", "--no-keys", "--provider", "duckduckgo"]
    with asked(tmp_path, *flags) as terminal:
        terminal.until("One model alone, by its name (empty: all of them): ")
        terminal.press("c\n")
        terminal.until("There is no 'c' among them: a, b")
        terminal.press("b\n")
        code, shown = terminal.ended(), terminal.written
    assert code == 0
    assert shown.count("?") == 0
    assert load(tmp_path / "config.yaml", {}).upstreams[0].models == ["b"]


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D], ids=["Ctrl-C", "Ctrl-D"])
def test_whoever_goes_away_gets_no_file(tmp_path: Path, key: str) -> None:
    with asked(tmp_path, "--offline") as terminal:
        terminal.until("A folder of documents")
        terminal.press(key)
        code, shown = terminal.ended(), terminal.written
    assert (code, "Traceback" in shown) == (130, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["not a url", "http://user:geheim@127.0.0.1:9/v1", "http://127.0.0.1:9/v1?key=geheim"])
def test_a_variable_that_names_no_server_is_said_before_anything_is_written(tmp_path: Path, url: str) -> None:
    (tmp_path / "config.yaml").write_text("mine")
    env = {"OPENAI_BASE_URL": url}
    said = groundwire(tmp_path, "init", *OFFLINE, "--force", code=2, env=env).stderr
    assert "OPENAI_BASE_URL must be a URL such as" in said
    assert "geheim" not in said
    assert (tmp_path / "config.yaml").read_text() == "mine"


def test_an_engine_that_is_named_twice_is_written_once(tmp_path: Path) -> None:
    twice = ["--provider", "duckduckgo", "--provider", "duckduckgo"]
    assert written(tmp_path, *OFFLINE, *twice).tools.search == ["duckduckgo"]


def test_what_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    """Whatever it is: a config that worked is not replaced by one that does not."""
    (tmp_path / "config.yaml").write_text("mine")
    env = {"GROUNDWIRE_KEYS": "schlüssel"}
    groundwire(tmp_path, "init", *OFFLINE, "--force", code=2, env=env)
    assert (tmp_path / "config.yaml").read_text() == "mine"
