"""The image's bill of materials, as CycloneDX JSON on stdout: what requirements.lock lists, with versions, addresses in
the world of packages (purl) and hashes. Handed nothing but files of this folder, so that equal files give equal bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M)
_VERSION = re.compile(r'^__version__ = "(.+?)"', re.M)
_HASH = re.compile(r"sha256:([0-9a-f]{64})")


def components(lock: str) -> list[dict[str, Any]]:
    found = []
    for name, version, hashes in _ENTRY.findall(lock):
        purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
        found.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
                # One for each wheel that may be installed, by platform.
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in _HASH.findall(hashes)],
            }
        )
    return found


def bill() -> dict[str, Any]:
    lock = (ROOT / "requirements.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (version,) = _VERSION.findall((ROOT / "proxy" / "__init__.py").read_text())
    parts = components(lock)
    ours = f"pkg:pypi/{project['name']}@{version}"
    about = {"type": "application", "bom-ref": ours, "name": project["name"], "version": version}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ours + lock)}",
        "version": 1,
        "metadata": {"component": {**about, "licenses": [{"license": {"id": project["license"]}}]}},
        "components": parts,
        "dependencies": [{"ref": ours, "dependsOn": [part["bom-ref"] for part in parts]}],
    }


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=2)
    sys.stdout.write("\n")
