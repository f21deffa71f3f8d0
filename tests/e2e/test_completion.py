"""Shell completion in real shells: what the script offers, and what a person gets who presses Tab."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from proxy.cli.parser import commands_of, parser
from tests.fakes.groundwire import SCRIPT, environment, groundwire
from tests.fakes.terminal import Terminal

COMMANDS = commands_of(parser())
SHELLS = ["bash", "zsh", "fish"]


def needs(shell: str) -> str:
    if not (found := shutil.which(shell)):
        pytest.skip(f"{shell} is not installed")
    return found


def script(folder: Path, shell: str) -> Path:
    path = folder / f"completion.{shell}"
    path.write_text(groundwire(folder, "completion", shell).stdout)
    return path


def offered(folder: Path, shell: str, line: str) -> set[str]:
    """What the script offers at the end of a line; in bash the words that the function itself gives."""
    program, path = needs(shell), script(folder, shell)
    if shell == "bash":
        words = shlex.split(line) + ([""] if line.endswith(" ") else [])
        quoted = " ".join(map(shlex.quote, words))
        typed = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}"
        code = f"source {path}; {typed}; _groundwire; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        command = [program, "--norc", "-c", code]
    else:
        command = [program, "--no-config", "-c", f"source {path}; complete -C {shlex.quote(line)}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder, env=environment(None))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return {row.partition("\t")[0] for row in done.stdout.splitlines() if row}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_one_of_its_shell(tmp_path: Path, shell: str) -> None:
    subprocess.run([needs(shell), "-n", script(tmp_path, shell)], check=True, timeout=60)


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_commands_and_flags_are_offered(tmp_path: Path, shell: str) -> None:
    assert set(COMMANDS) <= offered(tmp_path, shell, "groundwire ")
    assert offered(tmp_path, shell, "groundwire se") == {"serve", "search"}
    assert "--version" in offered(tmp_path, shell, "groundwire --v")
    assert offered(tmp_path, shell, "groundwire open --q") == {"--query"}
    assert offered(tmp_path, shell, "groundwire serve --p") == {"--port"}
    assert offered(tmp_path, shell, "groundwire key n") == {"new"}
    assert {"bash", "zsh", "fish"} <= offered(tmp_path, shell, "groundwire completion ")


@pytest.mark.parametrize("name", COMMANDS)
def test_bash_knows_every_flag_of_every_command(tmp_path: Path, name: str) -> None:
    flags = {flag for action in COMMANDS[name]._actions for flag in action.option_strings}
    assert offered(tmp_path, "bash", f"groundwire {name} -") == flags


def test_bash_leaves_values_to_the_person(tmp_path: Path) -> None:
    """Without a word of ours it completes the names of files."""
    assert offered(tmp_path, "bash", "groundwire serve --config ") == set()
    assert offered(tmp_path, "bash", "groundwire usage --key ") == set()
    assert "--no-keys" in offered(tmp_path, "bash", "groundwire init --key "), "there it takes no value"


def test_fish_offers_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "minutes").mkdir()
    assert offered(tmp_path, "fish", "groundwire serve --config min") >= {"mine.yaml"}
    assert offered(tmp_path, "fish", "groundwire init --folder min") == {"minutes/"}
    assert offered(tmp_path, "fish", "groundwire serve --port ") == set()


START = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
}
SET_UP = {
    "bash": "bind 'set enable-bracketed-paste off'; source {script}",
    "zsh": "autoload -U compinit; compinit -u -D; source {script}",
}


@pytest.mark.parametrize("shell", START)
def test_a_person_presses_tab(tmp_path: Path, shell: str) -> None:
    """The command is written out by Tab, up to the flag, and is then run."""
    path = script(tmp_path, shell)
    env = {
        **environment(None),
        "PS1": "$ ",
        "HOME": str(tmp_path),
        "PATH": f"{SCRIPT.parent}:{environment(None)['PATH']}",
    }
    with Terminal([needs(shell), *START[shell]], tmp_path, env) as terminal:
        terminal.press(SET_UP[shell].format(script=path) + "; echo re''ady\n")
        terminal.until("ready\r\n")
        terminal.press("groundwire comple\tba\t--conf\tnone.yaml | head -1\n")
        terminal.until("# Completion of groundwire for bash")
        assert "$ groundwire completion bash --config none.yaml | head -1\n" in terminal.seen.text
