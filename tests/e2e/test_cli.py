"""The command line as a person types it: the console script in a process of its own, in a folder of its own, with
nothing of the environment but what the test says.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import SCRIPT, config_file, environment, groundwire
from tests.fakes.island import make_island
from tests.fakes.model import ModelServer, text
from tests.fakes.search import FakeSearxng
from tests.fakes.service import Reply

SEARCH_KEYS = ["query", "provider", "results", "message"]
RESULT_KEYS = ["n", "title", "url", "snippet", "date"]
PAGE_KEYS = ["url", "title", "content", "content_length", "original_length", "truncated", "status", "error"]
MINIMAL = "A minimal config.yaml that works:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Path:
    """Where the commands run: a config.yaml on embedded parts lies in it."""
    found = tmp_path_factory.mktemp("work")
    (found / "config.yaml").write_text(yaml.safe_dump(embedded(library)))
    return found


def embedded(library: Path, **sections: Any) -> dict[str, Any]:
    provider = {"name": "library", "type": "local", "base_url": SITE, "options": {"path": str(library)}}
    return {"upstreams": [{"name": "demo", "type": "demo"}], "providers": [provider], **sections}


# search and open


def test_search_as_json(folder: Path) -> None:
    found = json.loads(groundwire(folder, "search", "sky blue", "--json").stdout)
    assert list(found) == SEARCH_KEYS
    assert (found["query"], found["provider"], found["message"]) == ("sky blue", "library", "")
    (result,) = found["results"]
    assert list(result) == RESULT_KEYS
    assert (result["n"], result["title"], result["url"]) == (1, "Why the sky is blue", SITE + "sky.md")
    assert "Rayleigh" in result["snippet"]


def test_search_as_the_model_gets_it(folder: Path) -> None:
    shown = groundwire(folder, "search", "sky blue").stdout
    assert f"[1] Why the sky is blue\nURL: {SITE}sky.md\n" in shown
    assert "from library" in shown


def test_a_search_that_finds_nothing(folder: Path) -> None:
    found = json.loads(groundwire(folder, "search", "xyzzy", "--json", code=1).stdout)
    assert (found["results"], found["provider"]) == ([], "")
    assert "library: no document matches" in found["message"]
    assert "gave nothing" in groundwire(folder, "search", "xyzzy", code=1).stdout


def test_arguments_of_a_search(folder: Path) -> None:
    many = json.loads(groundwire(folder, "search", "sky sea tea", "--json", "--provider", "library").stdout)
    assert [result["n"] for result in many["results"]] == [1, 2, 3]
    one = json.loads(groundwire(folder, "search", "sky sea tea", "--json", "--limit", "1").stdout)
    assert len(one["results"]) == 1
    empty = json.loads(groundwire(folder, "search", "", "--json", code=1).stdout)
    assert empty["message"] == "query is missing or empty."
    unknown = json.loads(groundwire(folder, "search", "sky", "--json", "--provider", "nobody", code=1).stdout)
    assert "valid names: library" in unknown["message"]


def test_a_search_with_any_provider_that_is_configured(tmp_path: Path, library: Path) -> None:
    used = embedded(library)
    (provider,) = used["providers"]
    unused = {**provider, "name": "other"}
    reader = {"name": "reader", "type": "direct"}
    config_file(tmp_path, {**used, "providers": [provider, unused, reader], "tools": {"search": ["library"]}})
    found = json.loads(groundwire(tmp_path, "search", "sky", "--json", "--provider", "other").stdout)
    assert found["provider"] == "other"
    refused = json.loads(groundwire(tmp_path, "search", "sky", "--json", "--provider", "reader", code=1).stdout)
    assert "valid names: library" in refused["message"]


def test_advice_is_for_the_operator_and_no_part_of_the_result(tmp_path: Path) -> None:
    with FakeSearxng() as engine:
        engine.reply = Reply(403, b"no")
        config_file(tmp_path, {"providers": [{"name": "web", "type": "searxng", "base_url": engine.url}]})
        shown = groundwire(tmp_path, "search", "sky", code=1)
    assert "settings.yml" not in shown.stdout
    assert "settings.yml" in shown.stderr


def test_open_as_json(folder: Path) -> None:
    page = json.loads(groundwire(folder, "open", SITE + "sky.md", "--json").stdout)
    assert list(page) == PAGE_KEYS
    assert (page["url"], page["title"]) == (SITE + "sky.md", "Why the sky is blue")
    assert (page["status"], page["error"], page["truncated"]) == ("success", "", False)
    assert "Rayleigh scattering" in page["content"]
    assert page["content_length"] == page["original_length"] == len(page["content"])


def test_several_pages_of_which_one_is_not_there(folder: Path) -> None:
    asked = (SITE + "sky.md", SITE + "none.md", SITE + "sea.md")
    pages = json.loads(groundwire(folder, "open", *asked, "--json", code=1).stdout)
    assert [list(page) for page in pages] == [PAGE_KEYS] * 3
    assert [page["url"] for page in pages] == list(asked)
    assert [page["status"] for page in pages] == ["success", "error", "success"]
    assert pages[1]["error"]
    assert pages[1]["content_length"] == 0


def test_open_as_the_model_gets_it(folder: Path) -> None:
    assert "Rayleigh scattering" in groundwire(folder, "open", SITE + "sky.md").stdout
    assert "could not be opened" in groundwire(folder, "open", SITE + "none.md", code=1).stdout


def test_a_page_that_is_cut(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/long.md").write_text("# Long\n\n" + "A sentence about length. " * 100)
    config_file(tmp_path, embedded(tmp_path / "pages", tools={"max_page_length": 300}))
    page = json.loads(groundwire(tmp_path, "open", SITE + "long.md", "--json").stdout)
    assert page["truncated"] is True
    assert page["content_length"] == len(page["content"]) <= 300 < page["original_length"]


def test_a_page_from_where_it_was_cut(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/long.md").write_text("# Long\n\n" + " ".join(f"Sentence {n} is here." for n in range(200)))
    config_file(tmp_path, embedded(tmp_path / "pages", tools={"max_page_length": 300}))
    first = groundwire(tmp_path, "open", SITE + "long.md").stdout
    (start,) = re.findall(r"start=(\d+)", first)
    assert "Sentence 0 is" in first
    second = json.loads(groundwire(tmp_path, "open", SITE + "long.md", "--start", start, "--json").stdout)
    assert "Sentence 0 is" not in second["content"]
    assert second["truncated"] is True
    assert first.count(second["content"][:30]) == 0, "it goes on where the first part ended"


def test_the_passages_of_a_page_that_matter(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    filler = "The harbour is quiet and the boats lie still in the morning. " * 12
    about = "The lighthouse keeper was called Ada Brandt and she counted the gulls."
    (tmp_path / "pages/long.md").write_text("# Harbour\n\n" + "\n\n".join([filler] * 6 + [about] + [filler] * 6))
    config_file(tmp_path, embedded(tmp_path / "pages", tools={"max_page_length": 800}))
    asked = ("open", SITE + "long.md", "--json")
    assert "Ada Brandt" not in json.loads(groundwire(tmp_path, *asked).stdout)["content"]
    page = json.loads(groundwire(tmp_path, *asked, "--query", "Who was the lighthouse keeper?").stdout)
    assert "Ada Brandt" in page["content"]
    assert "Who was the lighthouse keeper?" in page["message"]


# The config


@pytest.mark.parametrize("command", [["serve"], ["ask", "Hi"], ["search", "sky"], ["open", SITE], ["check"]])
def test_a_config_that_cannot_be_used(tmp_path: Path, command: list[str]) -> None:
    config_file(tmp_path, "tools:\n  max_rouns: 3\n")
    said = groundwire(tmp_path, *command, code=2).stderr
    assert "line 2, tools.max_rouns: unknown key; did you mean max_rounds?" in said
    assert MINIMAL in said


def test_a_provider_that_cannot_be_set_up(tmp_path: Path) -> None:
    entry = {"name": "books", "type": "local", "options": {"path": str(tmp_path / "nowhere")}}
    config_file(tmp_path, {"providers": [entry]})
    done = groundwire(tmp_path, "search", "sky", code=2)
    assert "'books'" in done.stderr
    assert "path" in done.stderr


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    for arguments, env in (
        (["--config", "none.yaml"], {}),
        ([], {"GROUNDWIRE_CONFIG": "none.yaml"}),
    ):
        said = groundwire(tmp_path, "search", "sky", *arguments, code=2, env=env).stderr
        assert "there is no file" in said
        assert MINIMAL in said


def test_which_config_is_used(library: Path, tmp_path: Path) -> None:
    """--config, then GROUNDWIRE_CONFIG, then ./config.yaml: told by the name of the provider that answers."""
    for name in ("argument", "variable", "config"):
        (provider,) = embedded(library)["providers"]
        config = {**embedded(library), "providers": [{**provider, "name": name}]}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(config))

    def used(*arguments: str, **env: str) -> str:
        found = json.loads(groundwire(tmp_path, "search", "sky", "--json", *arguments, env=env).stdout)
        return str(found["provider"])

    assert used() == "config"
    assert used(GROUNDWIRE_CONFIG="variable.yaml") == "variable"
    assert used("--config", "argument.yaml", GROUNDWIRE_CONFIG="variable.yaml") == "argument"


def test_no_config_at_all(model: ModelServer, tmp_path: Path) -> None:
    model.script(text("No file was needed."))
    env = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "sk-of-the-environment"}
    assert groundwire(tmp_path, "ask", "Hi", env=env).stdout == "No file was needed.\n"
    assert model.heads[0]["authorization"] == "Bearer sk-of-the-environment"
    assert [tool["function"]["name"] for tool in model.requests[0]["tools"]] == ["web_search", "open_page"]


# Mistakes of other kinds


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        ([], "arguments are required: command"),
        (["search"], "arguments are required: query"),
        (["open"], "arguments are required: url"),
        (["serve", "--port", "http"], "argument --port"),
        (["serve", "--port", "65536"], "argument --port: must be between 0 and 65535"),
        (["serve", "--port", "-1"], "argument --port"),
        (["open", SITE, "--start", "soon"], "argument --start: must be a whole number, 0 or more"),
        (["open", SITE, "--start", "-5"], "argument --start"),
    ],
)
def test_arguments_that_are_wrong(folder: Path, arguments: list[str], says: str) -> None:
    said = groundwire(folder, *arguments, code=2).stderr
    assert said.startswith("usage: groundwire")
    assert says in said


def test_help_names_every_command(folder: Path) -> None:
    shown = groundwire(folder, "--help").stdout
    assert all(f"\n    {command} " in shown for command in ("serve", "ask", "search", "open", "check"))


def test_a_port_that_is_taken(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = groundwire(folder, "serve", "--port", port, code=2)
    assert f"Cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert "--port" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("command", "reader"),
    [("search 'sky sea tea'", "head -1"), ("search sky --json", "true"), ("ask 'Why is the sky blue?'", "head -c 5")],
)
def test_a_reader_that_has_seen_enough(folder: Path, command: str, reader: str) -> None:
    line = f"'{SCRIPT}' {command} 2>err | {reader}; echo :${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, cwd=folder, env=environment(None)
    )
    assert done.stdout.rstrip().endswith(":0")
    said = (folder / "err").read_text()
    assert "Error" not in said
    assert "Traceback" not in said


# index


def test_index_says_what_it_read_and_what_not(tmp_path: Path) -> None:
    make_island(tmp_path / "island")
    (tmp_path / "island/scan.pdf").write_bytes(b"%PDF-1.4 damaged")
    (tmp_path / "island/map.png").write_bytes(b"\x89PNG")
    provider = {"name": "island", "type": "local", "options": {"path": str(tmp_path / "island")}}
    config_file(tmp_path, {"upstreams": [{"name": "demo", "type": "demo"}], "providers": [provider]})
    made = groundwire(tmp_path, "index")
    assert made.stdout.splitlines() == [
        "island: 10 indexed, 2 skipped: 1 because the PDF is damaged or cut short; 1 of another kind (.png 1)",
        "  scan.pdf: the PDF is damaged or cut short",
    ]
    (again,) = json.loads(groundwire(tmp_path, "index", "--provider", "island", "--json").stdout)
    assert again == {
        "provider": "island",
        "documents": 10,
        "equal": 0,
        "skipped": [{"path": "scan.pdf", "reason": "the PDF is damaged or cut short"}],
        "other_kinds": {".png": 1},
        "kept": True,
    }
    checked = groundwire(tmp_path, "check").stdout
    assert "10 indexed, 2 skipped: 1 because the PDF is damaged" in checked
    assert "no such document" not in groundwire(tmp_path, "open", "local:island/mine.pdf").stdout
    assert "212 metres" in groundwire(tmp_path, "search", "how deep is the mine").stdout


def test_index_without_a_folder_to_index(tmp_path: Path) -> None:
    config_file(
        tmp_path, {"upstreams": [{"name": "demo", "type": "demo"}], "providers": [{"name": "d", "type": "direct"}]}
    )
    done = groundwire(tmp_path, "index", code=2)
    assert "type: local" in done.stderr


def test_a_search_shows_how_far_the_index_is(tmp_path: Path) -> None:
    for number in range(150):
        page = f"<title>Page {number}</title><p>{'The walrus of the page and its tusks. ' * 100} {number}</p>"
        (tmp_path / f"{number}.html").write_text(page)
    provider = {"name": "pages", "type": "local", "options": {"path": str(tmp_path), "index": "memory"}}
    config_file(tmp_path, {"upstreams": [{"name": "demo", "type": "demo"}], "providers": [provider]})
    found = groundwire(tmp_path, "search", "walrus tusks", "--json")
    assert json.loads(found.stdout)["message"] == ""
    assert re.match(r"pages: indexing, \d+ of 150 documents are ready\n", found.stderr)
