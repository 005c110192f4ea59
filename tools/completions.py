"""Makes the completions of shells: `python -m tools.completions OUTDIR` writes OUTDIR/completions/{bash,zsh,fish}/...

One file for each command and shell, out of the table in `tools.commands`. They need nothing but their shell. Flags are
completed with one dash or two, as they were begun; files and directories where a flag wants them; and values where
there are few.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterable, Sequence
from string import Template

from lswap.options import Flag
from tools.commands import COMMANDS, Command, Subcommand, choices

__all__ = ["bash", "files", "fish", "main", "zsh"]

_HELP = Flag("help", "", "print this text and exit", short="h")

# -- bash ----------------------------------------------------------------------------

_BASH = Template("""\
# bash completion for $name. Made by python -m tools.completions.

_$function() {
    local cur=$${COMP_WORDS[COMP_CWORD]} flag=$${COMP_WORDS[COMP_CWORD-1]} with_equals=
    local flags bools files dirs choices words first=1 daemon= word context=
    COMPREPLY=()
    # Bash makes three words of -flag=value.
    if [[ $$cur == = ]]; then
        with_equals=1 cur=
    elif [[ $$flag == = ]]; then
        with_equals=1 flag=$${COMP_WORDS[COMP_CWORD-2]}
    fi
    (( COMP_CWORD == 1 )) || context=$${COMP_WORDS[1]}
    case $$context in
$contexts
    esac
    if [[ $$daemon ]]; then
        for word in "$${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
            if [[ $$word == -- ]]; then
                compopt -o default 2>/dev/null
                return
            fi
        done
    fi
    if [[ $$flag == -* ]]; then
        flag=$${flag#-}
        flag=$${flag#-}
        case " $$files " in *" $$flag "*)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$$cur")
            return ;;
        esac
        case " $$dirs " in *" $$flag "*)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$$cur")
            return ;;
        esac
        case " $$choices" in *" $$flag="*)
            words=$${choices#*"$$flag="}
            words=$${words%%;*}
            mapfile -t COMPREPLY < <(compgen -W "$${words//,/ }" -- "$$cur")
            return ;;
        esac
        case " $$bools " in *" $$flag "*)
            if [[ $$with_equals ]]; then
                mapfile -t COMPREPLY < <(compgen -W 'true false' -- "$$cur")
                return
            fi ;;
        *)
            # One with a value of which nothing is known.
            case " $$flags " in *" $$flag "*) return ;; esac ;;
        esac
    fi
    if [[ $$cur == --* ]]; then
        mapfile -t COMPREPLY < <(compgen -P -- -W "$$flags" -- "$${cur#--}")
    elif [[ $$cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -P - -W "$$flags" -- "$${cur#-}")
    elif (( COMP_CWORD == first )) && [[ $$words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$$words" -- "$$cur")
    elif [[ ! $$cur ]]; then
        mapfile -t COMPREPLY < <(compgen -P - -W "$$flags")
    fi
}

complete -F _$function $name
""")


def _names(flags: Iterable[Flag]) -> str:
    return " ".join(name for flag in flags for name in (flag.name, flag.short) if name)


def _bash_context(pattern: str, flags: Sequence[Flag], words: Sequence[str], first: int, daemon: bool) -> list[str]:
    """What can stand where the first words are so."""
    picked = [
        ("flags", _names([*flags, _HELP])),
        ("bools", _names([*(flag for flag in flags if not flag.value), _HELP])),
        ("files", _names(flag for flag in flags if flag.value == "FILE")),
        ("dirs", _names(flag for flag in flags if flag.value == "DIR")),
        ("choices", " ".join(f"{flag.name}={','.join(choices(flag))};" for flag in flags if choices(flag))),
        ("words", " ".join(words)),
    ]
    lines = [f"            {name}='{value}'" for name, value in picked if value]
    lines += [f"            first={first}"] if first != 1 else []
    lines += ["            daemon=1"] if daemon else []
    return [f"        {pattern})", *lines, "            ;;"]


def bash(command: Command) -> str:
    """For bash 4 or newer."""
    lines: list[str] = []
    for sub in command.subcommands:
        lines += _bash_context(sub.name, sub.flags, sub.actions, 2, sub.runs)
    lines += _bash_context("*", command.flags, [sub.name for sub in command.subcommands], 1, False)
    function = command.name.replace("-", "_")
    return _BASH.substitute(name=command.name, function=function, contexts="\n".join(lines))


# -- zsh -----------------------------------------------------------------------------


def _quoted(text: str) -> str:
    """A text that may stand in single quotes of zsh and of fish, which escape in different ways."""
    return text.replace("'", "").replace("\\", "")


def _zsh_flag(flag: Flag) -> str:
    names = [dashes + name for name in (flag.name, flag.short) if name for dashes in ("-", "--")]
    told = _quoted(flag.help).replace("[", "(").replace("]", ")").replace(":", "\\:")
    if not flag.value:
        return f"'({' '.join(names)})'{{{','.join(names)}}}'[{told}]'"
    value = flag.value.replace("[", "").replace("]", "").replace(":", "\\:")
    words = choices(flag)
    action = {"FILE": "_files", "DIR": "_files -/"}.get(flag.value, f"({' '.join(words)})" if words else " ")
    return f"'({' '.join(names)})'{{{','.join(name + '=' for name in names)}}}'[{told}]:{value}:{action}'"


def _zsh_arguments(flags: Sequence[Flag], rest: Sequence[str], indent: str) -> list[str]:
    specs = [*(_zsh_flag(flag) for flag in (*flags, _HELP)), *rest]
    return [f"{indent}_arguments \\", *(f"{indent}    {spec} \\" for spec in specs[:-1]), f"{indent}    {specs[-1]}"]


def zsh(command: Command) -> str:
    """For zsh's own completion system."""
    function = f"_{command.name}"
    lines = [f"#compdef {command.name}", "# Made by python -m tools.completions.", "", f"{function}() {{"]
    if command.subcommands:
        lines += ["    if (( CURRENT > 2 )); then", "        case $words[2] in"]
        for sub in command.subcommands:
            rest = [f"'1:what:({' '.join(sub.actions)})'"] if sub.actions else []
            rest += ["'*:::command:_normal'"] if sub.runs else []
            lines += [f"            {sub.name})", "                shift words", "                (( CURRENT-- ))"]
            lines += [*_zsh_arguments(sub.flags, rest, " " * 16), "                return", "                ;;"]
        lines += ["        esac", "    fi"]
    told = " ".join(f'{sub.name}\\:"{_quoted(sub.does)}"'.replace("`", "") for sub in command.subcommands)
    lines += _zsh_arguments(command.flags, [f"'1:command:(({told}))'"] if told else [], " " * 4)
    return "\n".join([*lines, "}", "", f'{function} "$@"']) + "\n"


# -- fish ----------------------------------------------------------------------------


def _fish_flag(command: str, condition: str, flag: Flag) -> str:
    words = [f"complete -c {command}{condition} -o {flag.name} -l {flag.name}"]
    if flag.short:
        words.append(f"-s {flag.short}")
    if flag.value == "FILE":
        words.append("-r -F")
    elif flag.value == "DIR":
        words.append("-x -a '(__fish_complete_directories)'")
    elif flag.value:
        words.append(f"-x -a '{' '.join(choices(flag))}'" if choices(flag) else "-x")
    return " ".join([*words, f"-d '{_quoted(flag.help)}'"])


def fish(command: Command) -> str:
    """For fish 3 or newer."""
    names = " ".join(sub.name for sub in command.subcommands)
    lines = [f"# fish completion for {command.name}. Made by python -m tools.completions.", ""]
    lines += [f"complete -c {command.name} -f"]
    none = f" -n 'not __fish_seen_subcommand_from {names}'" if names else ""
    for sub in command.subcommands:
        first = " -n __fish_is_first_token"
        lines.append(f"complete -c {command.name}{first} -a {sub.name} -d '{_quoted(sub.does)}'")
    lines += [_fish_flag(command.name, none, flag) for flag in (*command.flags, _HELP)]
    for sub in command.subcommands:
        seen = f" -n '__fish_seen_subcommand_from {sub.name}'"
        lines += [_fish_flag(command.name, seen, flag) for flag in (*sub.flags, _HELP)]
        if sub.actions:
            lines.append(_fish_actions(command, sub))
        if sub.runs:
            lines.append(f"complete -c {command.name}{seen} -F")
    return "\n".join(lines) + "\n"


def _fish_actions(command: Command, sub: Subcommand) -> str:
    actions = " ".join(sub.actions)
    condition = f"__fish_seen_subcommand_from {sub.name}; and not __fish_seen_subcommand_from {actions}"
    return f"complete -c {command.name} -n '{condition}' -a '{actions}'"


# -- files ---------------------------------------------------------------------------


def files() -> dict[str, str]:
    """Path below `completions` to its text."""
    made = {}
    for command in COMMANDS:
        made[f"bash/{command.name}"] = bash(command)
        made[f"zsh/_{command.name}"] = zsh(command)
        made[f"fish/{command.name}.fish"] = fish(command)
    return made


def main(words: Sequence[str]) -> int:
    """Write them all; the exit code."""
    if len(words) != 1:
        sys.stderr.write("usage: python -m tools.completions OUTDIR\n")
        return 2
    for name, text in files().items():
        path = pathlib.Path(words[0]) / "completions" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
