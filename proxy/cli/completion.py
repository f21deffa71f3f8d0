"""`groundwire completion bash|zsh|fish`: a script that lets the shell complete commands and flags. Handed the name of
the shell; prints the script, made from the parser, so that it knows what can be typed and nothing else.

Shells run this as they start: nothing is imported here that `--help` does not import too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from .parser import commands_of, parser

_FILES, _FOLDERS = ("F", "FILE"), ("PATH",)  # what stands for a value that is one


def run(given: argparse.Namespace) -> int:
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[given.shell]
    print("\n".join(write(parser())))
    return 0


def _flags(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in command._actions if action.option_strings]


def _positional(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in command._actions if not action.option_strings]


def _takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0


def _named(action: argparse.Action) -> str:
    """What stands for its value in the help."""
    return str(action.metavar or action.dest)


def _words(command: argparse.ArgumentParser) -> list[str]:
    """What can be typed besides values that only a person knows."""
    chosen = [str(choice) for action in _positional(command) for choice in action.choices or ()]
    return chosen + [flag for action in _flags(command) for flag in action.option_strings]


# bash


def _bash(whole: argparse.ArgumentParser) -> Iterator[str]:
    """For bash 3.2 and newer. Where it offers no word bash completes file names, with its own care for blanks."""
    commands = commands_of(whole)
    yield "# Completion of groundwire for bash. Put this line into ~/.bashrc:"
    yield '#   eval "$(groundwire completion bash)"'
    yield "_groundwire() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" command="" words="" at'
    yield "    COMPREPLY=()"
    yield "    for ((at = 1; at < COMP_CWORD; at++)); do"
    yield '        case "${COMP_WORDS[at]}" in'
    yield f'            {"|".join(commands)}) command="${{COMP_WORDS[at]}}"; break ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$command ${COMP_WORDS[COMP_CWORD-1]}" in'
    yield '        *" =") return ;;'
    for name, command in commands.items():
        valued = [flag for action in _flags(command) if _takes_value(action) for flag in action.option_strings]
        yield f"        {'|'.join(_double(f'{name} {flag}') for flag in valued)}) return ;;"
    yield "    esac"
    yield '    case "$command" in'
    yield f'        "") words="{" ".join([*commands, *_words_before(whole)])}" ;;'
    for name, command in commands.items():
        yield f'        {name}) words="{" ".join(_words(command))}" ;;'
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o bashdefault -o default -F _groundwire groundwire"


def _double(text: str) -> str:
    return f'"{text}"'


def _words_before(whole: argparse.ArgumentParser) -> list[str]:
    return [flag for action in _flags(whole) for flag in action.option_strings]


# zsh


def _zsh(whole: argparse.ArgumentParser) -> Iterator[str]:
    commands = commands_of(whole)
    yield "#compdef groundwire"
    yield "# Completion of groundwire for zsh. Put this line into ~/.zshrc, after compinit:"
    yield '#   eval "$(groundwire completion zsh)"'
    yield "_groundwire() {"
    yield "    local -a commands=("
    yield from (f"        {_single(f'{name}:{_colons(command.description)}')}" for name, command in commands.items())
    yield "    )"
    yield "    if (( CURRENT == 2 )); then"
    yield "        _describe -t commands command commands"
    yield f"        _arguments {' '.join(_single(spec) for spec in _zsh_specs(whole))}"
    yield "        return"
    yield "    fi"
    yield "    local command=$words[2]"
    yield "    shift words"
    yield "    (( CURRENT-- ))"
    yield "    case $command in"
    for name, command in commands.items():
        yield f"        {name})"
        yield f"            _arguments {' '.join(_single(spec) for spec in _zsh_specs(command))} ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ "$funcstack[1]" == _groundwire ]]; then _groundwire "$@"; else compdef _groundwire groundwire; fi'


def _zsh_specs(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in _flags(command):
        value = f":{_colons(_named(action))}:{_zsh_values(action)}" if _takes_value(action) else ""
        for flag in action.option_strings:
            yield f"{flag}[{_brackets(action.help)}]{value}"
    for action in _positional(command):
        if not isinstance(action, argparse._SubParsersAction):
            many = "*" if action.nargs in ("+", "*") else ""
            yield f"{many}:{_colons(_named(action))}:{_zsh_values(action)}"


def _zsh_values(action: argparse.Action) -> str:
    if action.choices:
        return f"({' '.join(map(str, action.choices))})"
    kinds = {**dict.fromkeys(_FILES, "_files"), **dict.fromkeys(_FOLDERS, "_files -/")}
    return kinds.get(_named(action), " ")


def _colons(text: str | None) -> str:
    return (text or "").replace(":", "\\:")


def _brackets(text: str | None) -> str:
    return _colons(text).replace("[", "\\[").replace("]", "\\]")


# fish


def _fish(whole: argparse.ArgumentParser) -> Iterator[str]:
    yield "# Completion of groundwire for fish. Put this line into ~/.config/fish/config.fish:"
    yield "#   groundwire completion fish | source"
    yield "complete -c groundwire -f"
    for action in _flags(whole):
        yield f"complete -c groundwire -n __fish_use_subcommand{_fish_flag(action)}"
    for name, command in commands_of(whole).items():
        yield f"complete -c groundwire -n __fish_use_subcommand -a {name} -d {_single(command.description or '')}"
        here = f"complete -c groundwire -n '__fish_seen_subcommand_from {name}'"
        yield from (f"{here}{_fish_flag(action)}" for action in _flags(command))
        for action in _positional(command):
            if action.choices:
                yield f"{here} -xa {_single(' '.join(map(str, action.choices)))}"
            elif _named(action) in _FILES:
                yield f"{here} -F"


def _fish_flag(action: argparse.Action) -> str:
    names = "".join(f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in action.option_strings)
    return f"{names}{_fish_value(action)} -d {_single(action.help or '')}"


def _fish_value(action: argparse.Action) -> str:
    if not _takes_value(action):
        return ""
    if action.choices:
        return f" -xa {_single(' '.join(map(str, action.choices)))}"
    if _named(action) in _FOLDERS:
        return " -xa '(__fish_complete_directories)'"
    return " -rF" if _named(action) in _FILES else " -x"


def _single(text: str) -> str:
    """In single quotes, which hold everything but themselves."""
    return "'" + text.replace("'", "'\\''") + "'"
