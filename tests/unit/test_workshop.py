"""The rules of the house that no single file can keep: directions, sizes, pins, the one way to start.

Handed the checkout as it lies on the disk; nothing is imported here but in a process of its own.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("providers", "tools", "proxy")  # from the ground up: each may import only what lies below it
STAIRS = ("store", "upstreams", "answering", "dialects", "serving", "cli")  # the same inside proxy/
HELD = ("values", "config", "callers", "watching")  # what any of these may hold, and imports none of them
SOURCES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), short(path))


def imported(path: Path) -> set[str]:
    """The dotted names of all absolute imports, wherever in the file they stand."""
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def pins(name: str) -> dict[str, str]:
    lines = (line.strip() for line in (ROOT / name).read_text().splitlines())
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


# The house


@pytest.mark.parametrize("path", SOURCES, ids=short)
def test_imports_run_downward_only(path: Path) -> None:
    floor = FLOORS.index(path.relative_to(ROOT).parts[0])
    tops = {name.split(".")[0] for name in imported(path)}
    assert not tops & {*FLOORS[floor + 1 :], "tests", "bench", "docs"}


def rooms_imported(path: Path) -> set[str]:
    """The folders and files of proxy/ that a file in it imports."""
    here = path.relative_to(ROOT).parts[:-1]
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level + 1]
            target = (*base, *(node.module or "").split("."))
            names = [target] if node.module else [(*base, alias.name) for alias in node.names]
            found |= {name[1] for name in names if name[0] == "proxy" and len(name) > 1}
    return found - {here[1] if len(here) > 1 else ""}


@pytest.mark.parametrize("path", sorted((ROOT / "proxy").glob("*/**/*.py")), ids=short)
def test_imports_inside_the_proxy_run_one_way(path: Path) -> None:
    room = path.relative_to(ROOT).parts[1]
    if room in STAIRS:
        above = {*STAIRS[STAIRS.index(room) + 1 :]}
        assert not rooms_imported(path) & above
    elif room in HELD:
        assert rooms_imported(path) <= {*HELD}


def test_the_shape_of_the_proxy_shows_in_its_folders() -> None:
    folders = {path.name for path in (ROOT / "proxy").iterdir() if (path / "__init__.py").exists()}
    assert folders == {*STAIRS, *HELD}
    assert len(list((ROOT / "proxy").glob("*.py"))) <= 3
    for folder in folders:
        said = ast.get_docstring(tree(ROOT / "proxy" / folder / "__init__.py")) or ""
        assert 2 <= len(said.splitlines()) <= 3, folder


@pytest.mark.parametrize("path", SOURCES, ids=short)
def test_a_file_says_at_its_head_what_it_is(path: Path) -> None:
    assert len(ast.get_docstring(tree(path)) or "") > 20


@pytest.mark.parametrize("path", TESTS, ids=short)
def test_tests_replace_nothing(path: Path) -> None:
    assert not [
        name for name in imported(path) if re.match(r"unittest\.mock|mock\b|pytest_mock|respx|responses\b", name)
    ]
    replaced = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute) and node.attr == "setattr"]
    assert not replaced


def sentences(path: Path) -> list[str]:
    """What stands in quotation marks and reads like one: four plain words in a row. Docstrings do not count."""
    nodes = list(ast.walk(tree(path)))
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and node not in docstrings]
    return [text for text in texts if isinstance(text, str) and re.search(r"(?:\b[A-Za-z']+ ){3}[a-z]+", text)]


MAY_HOLD_SENTENCES = {"tools/prompts.py"}


@pytest.mark.parametrize("path", [path for path in SOURCES if short(path).startswith("tools/")], ids=short)
def test_the_words_that_models_read_stand_in_one_file(path: Path) -> None:
    assert bool(sentences(path)) == (short(path) in MAY_HOLD_SENTENCES)


def test_every_package_is_shipped_and_no_other() -> None:
    on_disk = {".".join(path.parent.relative_to(ROOT).parts) for path in SOURCES if path.name == "__init__.py"}
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in SOURCES}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == on_disk == folders


def test_nothing_runs_at_the_start_of_python() -> None:
    files = [short(path) for floor in FLOORS for path in (ROOT / floor).rglob("*")]
    assert not [name for name in files if name.endswith((".pth", "sitecustomize.py", "usercustomize.py"))]


def test_the_console_script_is_the_only_start() -> None:
    assert PROJECT["project"]["scripts"] == {"groundwire": "proxy.cli.main:main"}
    for path in SOURCES:
        assert path.name != "__main__.py", short(path)
        assert "__main__" not in path.read_text(), short(path)
    for name in ("Makefile", "Dockerfile", "compose.yaml", ".ci/run"):
        assert not re.search(r"-m\s+proxy|uvicorn", (ROOT / name).read_text()), name


def test_heavy_libraries_wait_until_they_are_needed() -> None:
    path = "sys.path.insert(0, sys.argv[1])"
    code = f"import sys, json; {path}; import proxy.serving.app; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-I", "-c", code, str(ROOT)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    loaded = json.loads(run.stdout)
    assert "proxy.serving.app" in loaded
    assert not {"litellm", "trafilatura", "ddgs", "pypdfium2"} & set(loaded)


# The workshop


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-clients.txt", "constraints-model.txt"])
def test_constraints_are_exact_and_name_no_registry(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    assert "://" not in "".join(lines)


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    pinned = {canonicalize_name(name): version for name, version in pins("constraints.txt").items()}
    project = PROJECT["project"]
    for text in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        wanted = Requirement(text)
        assert pinned[canonicalize_name(wanted.name)] in wanted.specifier, text


DISTRIBUTIONS = packages_distributions()  # which packages of the registry bring a name that can be imported


def declared(*extras: str) -> set[str]:
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    return {canonicalize_name(Requirement(text).name) for text in wanted}


def test_every_package_that_is_imported_is_declared() -> None:
    ours = declared(*PROJECT["project"]["optional-dependencies"].keys() - {"dev"})
    for path in SOURCES:
        for top in {name.split(".")[0] for name in imported(path)} - sys.stdlib_module_names - {*FLOORS}:
            packages = {canonicalize_name(name) for name in DISTRIBUTIONS.get(top, [])}  # some share a name
            assert packages & ours, f"{short(path)} imports {top}"


def test_parts_of_others_that_are_not_public_have_an_upper_bound() -> None:
    bounded = {
        canonicalize_name(wanted.name)
        for wanted in map(Requirement, PROJECT["project"]["dependencies"])
        if any(bound.operator in ("<", "<=", "==", "~=") for bound in wanted.specifier)
    }
    assert {"uvicorn", "httptools", "starlette", "aiohappyeyeballs", "aiohttp", "httpcore"} <= bounded


def test_the_clients_are_those_that_need_their_own_environment() -> None:
    assert int(pins("constraints-clients.txt")["openai"].split(".")[0]) >= 3
    assert {"langchain-openai", "openai-agents"} <= set(pins("constraints-clients.txt"))
    assert int(pins("constraints.txt")["openai"].split(".")[0]) < 3  # LiteLLM holds it back, so clients live elsewhere


def test_the_node_clients_are_exact_and_name_no_registry() -> None:
    folder = ROOT / "tests/clients/node"
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["dependencies"] == wanted
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    for name, package in packages.items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name
        assert "://" not in json.dumps({key: value for key, value in package.items() if key != "funding"}), name
    assert "omit-lockfile-registry-resolved=true" in (folder / ".npmrc").read_text().splitlines()
    assert "://" not in (folder / ".npmrc").read_text() + (folder / "package.json").read_text()


@pytest.mark.parametrize(
    "target",
    [
        "install",
        "demo",
        "serve",
        "test",
        "test VENV=.venv-3.13",
        "test-all",
        "test-newest",
        "screenshots",
        "test-model",
        "check",
        "docs",
        "bench",
        "bench RIVAL=1",
        "lock",
        "sbom",
        "clean",
    ],
)
def test_the_makefile_knows_its_targets(target: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    run = subprocess.run(
        ["make", "--dry-run", *target.split()], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr


def test_ci_stops_at_the_first_failure_and_runs_what_people_run() -> None:
    script = ROOT / ".ci/run"
    lines = script.read_text().splitlines()
    assert os.access(script, os.X_OK)
    (stops,) = [at for at, line in enumerate(lines) if re.match(r"set -\w*e\w*o pipefail$", line)]
    assert [line for line in lines[stops:] if line.startswith("make ")] == [
        "make check",
        "make test",
        "make test-newest",
    ]
    for path in (script, *(ROOT / ".ci" / name for name in ("find_python", "test_all", "test_newest"))):
        subprocess.run(["bash", "-n", str(path)], check=True, timeout=60)


def make_variable(name: str) -> list[str]:
    """What the Makefile gives it, without a comment and over its lines."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    (value,) = re.findall(rf"^{name} [?:]= (.*)$", text, re.M)
    return str(value).split()


def test_all_that_name_pythons_name_those_that_are_tested() -> None:
    tested = [name.removeprefix("python") for name in make_variable("PYTHONS")]
    classifiers = [
        text.removeprefix("Programming Language :: Python :: ") for text in PROJECT["project"]["classifiers"]
    ]
    assert [text for text in classifiers if re.fullmatch(r"3\.\d+", text)] == tested
    assert PROJECT["project"]["requires-python"] == f">={tested[0]}"
    assert PROJECT["tool"]["mypy"]["python_version"] == tested[0]
    assert f"Python {', '.join(tested[:-1])} or {tested[-1]}" in (ROOT / "README.md").read_text()
    assert f"Python {', '.join(tested[:-1])} or {tested[-1]}" in (ROOT / "docs/quick_start.md").read_text()
    (image,) = re.findall(r"^ARG BASE=python:(\d+\.\d+)\.", (ROOT / "Dockerfile").read_text(), re.M)
    assert image == tested[-1]


def test_what_is_tested_on_the_newest_python_is_there() -> None:
    named = " ".join(make_variable("NEWEST"))
    paths = re.sub(r"\$\(addprefix (\S+),(.*)\)", lambda m: " ".join(m[1] + name for name in m[2].split()), named)
    assert [path for path in paths.split() if not (ROOT / path.removeprefix("--ignore=")).exists()] == []


def find_python(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYENV_ROOT": str(folder)}
    command = ["bash", str(ROOT / ".ci/find_python"), name]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def test_a_python_is_found_on_the_path_or_under_pyenv(tmp_path: Path) -> None:
    for version in ("3.99.2", "3.99.10", "3.999.1"):
        folder = tmp_path / "versions" / version / "bin"
        folder.mkdir(parents=True)
        (folder / "python3").symlink_to(sys.executable)
    assert find_python("python3.99", tmp_path).stdout == f"{tmp_path}/versions/3.99.10/bin/python3\n"
    assert find_python(sys.executable, tmp_path).stdout == f"{sys.executable}\n"
    missing = find_python("python3.9999", tmp_path)
    assert missing.returncode == 1
    assert missing.stderr.startswith("python3.9999 is missing")
