"""What the image is made of: the lock file with its hashes, the bill of materials, the wheel, and the rules of the
Dockerfile and of compose.yaml. No image is built here: there is no docker on a machine that only runs the tests.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proxy import __version__

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ["requirements.lock", "requirements-build.lock"]
EXTRAS = PROJECT["project"]["optional-dependencies"].keys() - {"dev"}
ENTRY = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of each package of a lock file, of which nothing else may be in it."""
    text = re.sub(r"^#.*\n", "", (ROOT / name).read_text(), flags=re.M)
    assert not ENTRY.sub("", text).strip(), "there is more in it than versions and hashes"
    return {
        canonicalize_name(found[1]): (found[2], re.findall(r"[0-9a-f]{64}", found[3])) for found in ENTRY.finditer(text)
    }


def pins() -> dict[str, str]:
    lines = (line.strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


# The lock files


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_names_versions_and_hashes_and_no_registry(name: str) -> None:
    packages = locked(name)
    assert "://" not in (ROOT / name).read_text()
    for package, (version, hashes) in packages.items():
        assert pins()[package] == version, f"{package}: run `make lock`"
        assert hashes == sorted(set(hashes)), package
        assert hashes, package


def test_what_the_image_installs_is_locked_and_nothing_of_the_workshop_is() -> None:
    packages = locked("requirements.lock")
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *(text for extra in EXTRAS for text in project["optional-dependencies"][extra])]
    assert {canonicalize_name(Requirement(text).name) for text in wanted} <= packages.keys()
    assert not {"pytest", "mypy", "ruff", "hypothesis", "setuptools", "pip", "trafilatura"} & packages.keys()
    assert locked("requirements-build.lock").keys() == {
        Requirement(t).name for t in PROJECT["build-system"]["requires"]
    }


def test_the_releases_of_litellm_that_carried_malware_can_never_come_back() -> None:
    for text in PROJECT["project"]["optional-dependencies"]["litellm"]:
        assert {"1.82.7", "1.82.8"}.isdisjoint(Requirement(text).specifier.filter(["1.82.6", "1.82.7", "1.82.8"]))
        assert "!=1.82.7" in text
        assert "!=1.82.8" in text
    assert locked("requirements.lock")["litellm"][0] not in ("1.82.7", "1.82.8")


# The bill of materials


def bill() -> bytes:
    command = [sys.executable, "-I", str(ROOT / ".ci" / "sbom.py")]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def test_the_bill_of_materials_is_the_lock_file_again() -> None:
    first = bill()
    assert first == bill(), "equal files, equal bytes"
    said = json.loads(first)
    assert (said["bomFormat"], said["specVersion"], said["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", said["serialNumber"])
    assert said["metadata"]["component"]["name"] == "groundwire"
    assert said["metadata"]["component"]["version"] == __version__
    found = {
        canonicalize_name(part["name"]): (part["version"], [entry["content"] for entry in part["hashes"]])
        for part in said["components"]
    }
    assert found == locked("requirements.lock")
    for part in said["components"]:
        assert part["purl"] == part["bom-ref"] == f"pkg:pypi/{canonicalize_name(part['name'])}@{part['version']}"
        assert {entry["alg"] for entry in part["hashes"]} == {"SHA-256"}
    (ours,) = said["dependencies"]
    assert ours["dependsOn"] == [part["bom-ref"] for part in said["components"]]
    assert b"timestamp" not in first


# The wheel


def of_git(*folders: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).exists()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as the image builds it: from the files that the Dockerfile copies, without an index."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in of_git("proxy", "tools", "providers", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "--wheel-dir", str(out), str(source)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_the_files_of_git_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = f"groundwire-{__version__}.dist-info/"
        code = {name for name in names if not name.startswith(about)}
        assert code == set(of_git("proxy", "tools", "providers"))
        for name in code:
            assert hashlib.sha256(archive.read(name)).digest() == hashlib.sha256((ROOT / name).read_bytes()).digest()
        extra = {name.removeprefix(about) for name in names if name.startswith(about)}
    assert extra == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
    assert not [name for name in names if name.endswith(".pth")], "which would run at every start of Python"


def test_every_file_of_the_packages_is_python_or_of_the_page() -> None:
    """Nothing else would be in the wheel; what must be there needs a word in pyproject.toml first."""
    others = [name for name in of_git("proxy", "tools", "providers") if not name.endswith(".py")]
    assert others
    assert [name for name in others if not re.fullmatch(r"proxy/serving/page/\w+\.(?:html|css|js|svg)", name)] == []


# The Dockerfile


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, from its FROM on; what stands before the first is not among them."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in filter(str.strip, text.splitlines()):
        name, _, rest = line.strip().partition(" ")
        if name.upper() == "FROM":
            found.append([])
        if found:
            found[-1].append((name.upper(), rest.strip()))
    return found


def instructions(name: str) -> list[str]:
    return [text for stage in stages() for found, text in stage if found == name]


def shipped(name: str) -> str:
    """The instruction that counts in the image as people run it: the last one of the last stage."""
    return [text for found, text in stages()[-1] if found == name][-1]


def command() -> list[str]:
    """What the image runs. Both are lists, so that no shell stands between a signal and the process."""
    return [*json.loads(shipped("ENTRYPOINT")), *json.loads(shipped("CMD"))]


def option(name: str) -> str:
    return command()[command().index(name) + 1]


def health_check() -> list[str]:
    found: list[str] = json.loads(shipped("HEALTHCHECK").partition("CMD")[2])
    return found


def installs() -> list[str]:
    return [text for text in re.split("&&|;", " ".join(instructions("RUN"))) if re.search(r"\bpip\b.* install ", text)]


def test_the_image_is_built_in_stages_on_one_base_that_is_small_pinned_and_can_be_pinned_by_digest() -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.M)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", base)
    assert [text.split()[0] for text in instructions("FROM")] == ["${BASE}", "${BASE}"]
    built = re.findall(r" AS (\w+)", " ".join(instructions("FROM")), re.I)
    assert built, "what builds is left behind"
    assert "--build-arg BASE=" in (ROOT / "Dockerfile").read_text()
    copied = [text for name, text in stages()[-1] if name in ("COPY", "ADD")]
    assert copied
    assert [text for text in copied if not re.search(rf"--from=(?:{'|'.join(built)})\b", text)] == [], "no sources"


def test_the_image_is_of_a_python_that_we_have_hashes_for() -> None:
    (minor,) = re.findall(r"^ARG BASE=python:(\d+\.\d+)\.", (ROOT / "Dockerfile").read_text(), re.M)
    assert f'"{minor}"' in (ROOT / ".ci" / "lock.py").read_text()


def test_the_image_holds_only_what_the_ignore_file_lets_in() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    let_in = {rule[1:].rstrip("/") for rule in rules if rule.startswith("!")}
    sources = [text.split()[:-1] for text in instructions("COPY") + instructions("ADD") if "--from" not in text]
    copied = {part.rstrip("/") for parts in sources for part in parts if not part.startswith("--")}
    assert rules[0] == "*"
    assert copied == let_in
    assert {"proxy", "tools", "providers", *LOCKS} <= copied


def test_the_image_installs_what_is_locked_hash_by_hash_and_our_own_wheel() -> None:
    by_hash = [text for text in installs() if "--require-hashes" in text]
    assert sorted(re.findall(r"requirements[\w-]*\.lock", " ".join(by_hash))) == sorted(LOCKS)
    assert all(re.search(r"--only-binary[ =]:all:", text) for text in by_hash)
    (own,) = [text for text in installs() if text not in by_hash]
    assert "--no-index" in own
    assert "--no-deps" in own
    assert re.search(r"/dist/\S*\.whl", own)
    (made,) = [text for text in re.split("&&|;", " ".join(instructions("RUN"))) if " wheel " in text]
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(made.split())


def test_the_image_takes_every_key_that_the_environment_may_bring() -> None:
    """The extras are in the lock file, so their libraries are there."""
    assert {"litellm", "mcp", "tavily-python"} <= locked("requirements.lock").keys()
    assert {"litellm", "mcp", "otel", "tavily"} == EXTRAS


def test_the_image_has_no_tools_to_build_or_install_with() -> None:
    assert not re.search(r"apt|apk|gcc|build-essential|curl|wget", " ".join(instructions("RUN")))
    assert [" ".join(text.split()) for name, text in stages()[-1] if name == "RUN"] == [
        "pip uninstall --yes --root-user-action ignore pip "
        "&& install --directory --mode 700 --owner 10001 --group 10001 /var/lib/groundwire"
    ]
    assert "--without-pip" in " ".join(instructions("RUN"))


def test_the_image_runs_as_nobody_in_particular() -> None:
    user, _, group = shipped("USER").partition(":")
    assert int(user) > 0, "a number, so that an orchestrator sees that it is not root"
    assert int(group or user) > 0
    last = [name for name, _ in stages()[-1]]
    assert "RUN" not in last[last.index("USER") :]


def test_the_image_starts_the_console_script_alone_and_binds_all_addresses() -> None:
    python, *flags, script, serve = command()[:6]
    assert (python, script, serve) == ("python", "/opt/groundwire/bin/groundwire", "serve")
    assert flags == ["-I", "-u", "-B"], "no variable adds to the path; the log is not held back; nothing is written"
    assert option("--host") in ("0.0.0.0", "::")


def test_the_image_asks_after_its_own_health_with_what_is_in_it() -> None:
    assert health_check()[:2] == ["python", "-I"], "a slim image has neither curl nor wget"
    assert f":{option('--port')}/healthz" in " ".join(health_check()), "where it listens, whatever a config says"


def test_the_image_carries_no_secret_and_keeps_its_own_key_in_its_volume() -> None:
    settings = dict(word.partition("=")[::2] for text in instructions("ENV") for word in text.split())
    folder = Path(settings["GROUNDWIRE_KEY_FILE"]).parent
    assert shipped("VOLUME") == str(folder)
    assert f"--owner {shipped('USER').partition(':')[0]} " in " ".join(instructions("RUN"))
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    (volume,) = compose["services"]["groundwire"]["volumes"]
    name, _, mounted = volume.partition(":")
    assert (mounted, name in compose["volumes"]) == (str(folder), True)
    names = settings.keys() | set(re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.M))
    assert {name for name in names if re.search("KEY|TOKEN|SECRET|PASSWORD", name)} == {"GROUNDWIRE_KEY_FILE"}


# What the image runs, as far as it can be tried without one


def install(fresh: Path, wheel: Path) -> None:
    """A fresh environment, made as the Dockerfile makes its own."""
    venv.create(fresh, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(fresh / "bin" / "python"), "install", "--quiet", "--no-compile"]
    locked_ones = [
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--retries",
        "1",
        "-r",
        str(ROOT / "requirements.lock"),
    ]
    done = subprocess.run([*pip, *locked_ones], capture_output=True, text=True, timeout=580, env=CLEAN)
    if done.returncode and re.search(r"connection|resolve|timed out|unreachable|ProxyError", done.stderr, re.I):
        pytest.skip("no package index can be reached from here")
    assert done.returncode == 0, done.stderr
    own = subprocess.run(
        [*pip, "--no-index", "--no-deps", str(wheel)], capture_output=True, text=True, timeout=100, env=CLEAN
    )
    assert own.returncode == 0, own.stderr


@pytest.mark.timeout(700)
def test_an_environment_made_like_the_images_holds_what_is_locked_and_serves(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    install(environment, wheel)
    holds_what_is_locked(environment)
    serves_whatever_is_added(environment, tmp_path)


def holds_what_is_locked(installed: Path) -> None:
    (packages,) = installed.glob("lib/python*/site-packages")
    found = {}
    for about in packages.glob("*.dist-info"):
        name, _, version = about.name.removesuffix(".dist-info").rpartition("-")
        found[canonicalize_name(name)] = version
    assert found.pop("groundwire") == __version__
    wanted = {name: version for name, (version, _) in locked("requirements.lock").items()}
    assert found == wanted
    assert list(packages.rglob("*.pth")) == [], "what runs at every start of Python would be in one of these"


def serves_whatever_is_added(installed: Path, folder: Path) -> None:
    """The image's command. `-I`: neither PYTHONPATH nor the folder it stands in adds to what is imported."""
    for name in ("proxy.py", "sitecustomize.py", "uvicorn.py"):
        (folder / name).write_text("raise SystemExit('imported from the outside')\n")
    python, *flags, script, _ = command()[:6]
    start = [str(installed / "bin" / python), *flags, str(installed / "bin" / Path(script).name)]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(folder), "OPENAI_API_KEY": "x"}
    running = subprocess.Popen([*start, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True, env=env, cwd=folder)
    try:
        assert running.stdout is not None
        said = running.stdout.readline()
        assert "listening on" in said
        with urllib.request.urlopen(f"{said.split()[-1]}/healthz", timeout=30) as answer:
            assert json.load(answer) == {"status": "ok"}
    finally:
        running.terminate()
        assert running.wait(60) == 0
        running.stdout.close()


WRITES = """
import os, sys
def note(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, (str, bytes)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            sys.stderr.write("WROTE " + os.path.abspath(os.fsdecode(path)) + chr(10))
    elif event in ("os.mkdir", "os.rename", "os.remove", "shutil.move"):
        sys.stderr.write("WROTE " + os.path.abspath(os.fsdecode(arguments[0])) + chr(10))
sys.addaudithook(note)
from proxy.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_nothing_is_written_but_under_the_temporary_folder(tmp_path: Path) -> None:
    """So that the root of its file system may be read-only. The audit sees what Python itself opens."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "sky.md").write_text("# Sky\n\nThe sky is blue because of scattering.\n")
    config = tmp_path / "config.yaml"
    local = {"name": "docs", "type": "local", "options": {"path": str(tmp_path / "docs")}}
    config.write_text(yaml.safe_dump({"upstreams": [{"name": "demo", "type": "demo"}], "providers": [local]}))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-u", "-B", "-c", WRITES, "ask", "Why is the sky blue?", "--config", str(config)]
    env = {"PATH": os.environ["PATH"], "HOME": str(scratch), "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "[1]" in done.stdout
    wrote = {line.removeprefix("WROTE ") for line in done.stderr.splitlines() if line.startswith("WROTE ")}
    assert {path for path in wrote if not path.startswith((str(scratch), "/dev/", "/proc/"))} == set()


# compose.yaml


def test_compose_locks_the_container_down() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    ours = services["groundwire"]
    assert ours["read_only"] is True
    assert ours["ports"]
    assert all(published.startswith("127.0.0.1:") for published in ours["ports"])
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "/tmp" in service["tmpfs"], name
        assert service["mem_limit"], name
        assert service["pids_limit"] <= 512, name
        assert not re.search(r"latest$|^[^:]+$", service.get("image", "x:1")), name
        assert "privileged" not in service, name
        assert service.get("network_mode") != "host", name
