"""Writes requirements.lock and requirements-build.lock: what the image installs, and what builds its wheel. Handed
pyproject.toml and constraints.txt; asks the package registry, through pip, for the hashes of every wheel that fits a
platform of ours. Run by `make lock`, after constraints.txt was renewed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
LIBRARIES = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
EXTRAS = ("litellm", "mcp", "otel", "tavily")  # what the image takes along

Hashes = dict[str, set[str]]

_HEAD = """\
# {what}: exact versions, and the hashes of their wheels for Linux ({machines}) and Python {first} to
# {last}. Made by `make lock` from pyproject.toml and constraints.txt. To install what is listed here and nothing else:
# pip install --require-hashes --only-binary :all: -r {name}
"""


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"]]
    for extra in EXTRAS:
        wanted += project["project"]["optional-dependencies"][extra]
    write("requirements.lock", "What the image installs", wanted)
    write("requirements-build.lock", "What builds the image's wheel", project["build-system"]["requires"])


def write(name: str, what: str, wanted: list[str]) -> None:
    found: Hashes = {}
    for python in PYTHONS:
        for machine in MACHINES:
            for pinned, digest in resolved(wanted, python, machine):
                found.setdefault(pinned, set()).add(digest)
    head = _HEAD.format(what=what, machines=", ".join(MACHINES), first=PYTHONS[0], last=PYTHONS[-1], name=name)
    entries = [
        " \\\n    ".join([pinned, *(f"--hash=sha256:{digest}" for digest in sorted(digests))])
        for pinned, digests in sorted(found.items(), key=lambda entry: entry[0].lower().split("=="))
    ]
    (ROOT / name).write_text(head + "\n".join(entries) + "\n")


def resolved(wanted: list[str], python: str, machine: str) -> list[tuple[str, str]]:
    """What pip would install there: `name==version` and the hash of the wheel, from the registry and nowhere else."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "wanted.txt").write_text("\n".join(wanted))
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--only-binary", ":all:", "--python-version", python, "--implementation", "cp"]
        command += [part for library in LIBRARIES for part in ("--platform", f"{library}_{machine}")]
        command += ["--target", folder, "--report", str(report), "--constraint", str(ROOT / "constraints.txt")]
        command += ["--requirement", str(Path(folder) / "wanted.txt")]
        ours = {name: value for name, value in os.environ.items() if name not in ("PIP_FIND_LINKS", "PIP_CONSTRAINT")}
        subprocess.run(command, check=True, env={**ours, "PIP_CONFIG_FILE": os.devnull})
        installed = json.loads(report.read_text())["install"]
    return [
        (
            f"{entry['metadata']['name']}=={entry['metadata']['version']}",
            entry["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for entry in installed
    ]


if __name__ == "__main__":
    main()
