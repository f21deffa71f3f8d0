"""The list of authorities on machines that have none, and when it is read again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from providers.web.certificates import trusted
from tests.fakes.egress import Authority

COUNT = "from providers.web.certificates import trusted; print(trusted().cert_store_stats()['x509_ca'])"


@pytest.mark.parametrize(
    ("variable", "some"), [("", True), ("/nowhere", False)], ids=["no list", "one that is missing"]
)
def test_a_machine_without_a_list(variable: str, some: bool) -> None:
    """OpenSSL finds nothing under an empty name. Where the operator names a file there is no other list."""
    env = {**os.environ, "SSL_CERT_FILE": variable, "SSL_CERT_DIR": variable}
    done = subprocess.run([sys.executable, "-c", COUNT], env=env, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > 0) == some


def test_a_file_is_read_again_once_it_has_changed(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    first = trusted(str(authority.file))
    assert trusted(str(authority.file)) is first
    with authority.file.open("a") as file:
        file.write("\n# another line\n")
    assert trusted(str(authority.file)) is not first
