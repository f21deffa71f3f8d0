"""The file of the audit: whose it is, what happens when it is full, and that many may write to it."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.watching.audit_file import AuditFile

ROOT = Path(__file__).parents[2]
LARGE = 1 << 20


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(file: AuditFile, text: str) -> int:
    return file.write(memoryview(text.encode()))


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        AuditFile(str(tmp_path / "new"), max_size=LARGE, keep=1)
        (tmp_path / "old").write_text("what was there\n")
        (tmp_path / "old").chmod(0o644)
        old = AuditFile(str(tmp_path / "old"), max_size=LARGE, keep=1)
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == 0o600
    assert mode(tmp_path / "old") == 0o600
    write(old, "more\n")
    assert (tmp_path / "old").read_text() == "what was there\nmore\n"


def test_it_is_private_also_under_a_strict_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        AuditFile(str(tmp_path / "new"), max_size=LARGE, keep=1)
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == 0o600


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("", "pipe", "link"):
        with pytest.raises(OSError, match="it is no file"):
            AuditFile(str(tmp_path / name), max_size=LARGE, keep=1)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(FileNotFoundError):
        AuditFile(str(tmp_path / "no" / "folder"), max_size=LARGE, keep=1)


def test_a_full_file_is_put_aside(tmp_path: Path) -> None:
    file = AuditFile(str(tmp_path / "audit"), max_size=20, keep=2)
    for number in range(8):
        write(file, f"line {number}\n")  # two of them fit
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {
        "audit": "line 6\nline 7\n",
        "audit.1": "line 4\nline 5\n",
        "audit.2": "line 2\nline 3\n",
    }
    assert {mode(path) for path in tmp_path.iterdir()} == {0o600}
    write(file, "a line that is longer than a file may be\n")
    assert (tmp_path / "audit").read_text() == "a line that is longer than a file may be\n"


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_somebody_else_puts_aside_is_begun_anew(tmp_path: Path, gone: bool) -> None:
    file = AuditFile(str(tmp_path / "audit"), max_size=LARGE, keep=2)
    write(file, "one\n")
    if gone:
        (tmp_path / "audit").unlink()
    else:
        (tmp_path / "audit").rename(tmp_path / "audit-20271231")
        (tmp_path / "audit").touch(0o644)
    write(file, "two\n")
    assert (tmp_path / "audit").read_text() == "two\n"
    assert mode(tmp_path / "audit") == 0o600


def test_many_processes_share_it_without_a_torn_or_lost_line(tmp_path: Path) -> None:
    """Each puts it aside when it is full; nothing is lost, because all that was put aside is kept."""
    code = """
import sys
from proxy.watching.audit_file import AuditFile
file = AuditFile(sys.argv[1], max_size=20_000, keep=1000)
for number in range(300):
    line = '{"who": "%s", "n": %d, "more": "%s"}\\n' % (sys.argv[2], number, "x" * (number % 700))
    assert file.write(memoryview(line.encode())) == len(line)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "audit")]
    running = [subprocess.Popen([*command, str(who)], cwd=ROOT) for who in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    files = list(tmp_path.iterdir())
    assert len(files) > 5
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert sorted((line["who"], line["n"]) for line in lines) == [(str(w), n) for w in range(3) for n in range(300)]


def test_trouble_is_said_once_and_its_end_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = AuditFile(str(folder / "audit"), max_size=LARGE, keep=1)
    folder.rename(tmp_path / "moved")
    with caplog.at_level(logging.WARNING, "groundwire"):
        for _ in range(3):
            with pytest.raises(FileNotFoundError):
                write(file, "lost\n")
        folder.mkdir()
        write(file, "kept\n")
        write(file, "kept too\n")
    failed, again = (record.getMessage() for record in caplog.records)
    assert "cannot be written to" in failed
    assert "No such file" in failed
    assert "again" in again
    assert (folder / "audit").read_text() == "kept\nkept too\n"


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    code = """
import logging, resource, signal, sys
from proxy.watching.audit_file import AuditFile
from proxy.watching.log_writer import LineWriter
logging.basicConfig()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
out = LineWriter(AuditFile(sys.argv[1], max_size=1 << 20, keep=1), '{{"missing": {}}}'.format, name="audit")
limit(10)
import time
for line in ("x" * 40, "y" * 40):
    before = out.dropped
    out.write(line)
    while out.dropped == before: time.sleep(0.005)
limit(resource.RLIM_INFINITY)
out.write("well again")
out.close()
print(out.dropped)
"""
    target = tmp_path / "audit"
    command = [sys.executable, "-c", code, str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "2\n"
    assert done.stderr.count("cannot be written") == 1, done.stderr
    assert done.stderr.count("again") == 1
    assert target.read_text() == "x" * 10 + '\n{"missing": 2}\nwell again\n'
