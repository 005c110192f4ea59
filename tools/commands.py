"""All commands in one table, for `tools.man` and `tools.completions`: the flags are those that the commands read.

What cannot be told from the code stands here: the sections of a man page beside its options.
"""

from __future__ import annotations

from typing import NamedTuple

from lswap import cli, cli_kv, cli_plan
from lswap.options import FLAGS, Flag
from lswap.vllm import options as vllm
from lswap.wol import options as wol

__all__ = ["COMMANDS", "Command", "Subcommand", "choices"]


class Subcommand(NamedTuple):
    """A word that has flags of its own."""

    name: str
    #: What follows the name, in the synopsis.
    words: str
    does: str
    flags: tuple[Flag, ...]
    more: str = ""
    #: Words that may stand right behind the name.
    actions: tuple[str, ...] = ()
    #: Whether a command line of somebody else follows, after `--`.
    runs: bool = False


class Command(NamedTuple):
    """A program. Texts are as in Markdown: code, lists, paragraphs."""

    name: str
    does: str
    #: What follows the name; nothing where it needs a subcommand.
    words: str
    about: str
    flags: tuple[Flag, ...]
    subcommands: tuple[Subcommand, ...]
    exits: tuple[tuple[str, str], ...]
    signals: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    #: What it does, and the words.
    examples: tuple[tuple[str, str], ...]
    also: tuple[str, ...]


def choices(flag: Flag) -> tuple[str, ...]:
    """The words that a flag may have as its value, where they are few."""
    return wol.LEVELS if flag.value == "LEVEL" else ()


_NO_FLAGS = ("2", "Words that are no flags.")
_MANAGER = (
    (
        "NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID",
        "Set by systemd: whom to tell, and how often to show a sign of life.",
    ),
    ("LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES", "Set by systemd: sockets for `-listen`."),
)
_LISTEN = (
    "`-listen` takes `host:port`, or `:port` for all addresses; `unix:/run/lswap.sock`; or a socket that systemd has "
    "opened, as `systemd:index=0` or `systemd:name=lswap.socket`."
)

LSWAP = Command(
    "lswap",
    "run more local AI models than fit into memory",
    "[flags]",
    "lswap is a proxy before servers of AI models, such as `llama-server`. It starts the server of the model that a "
    "request names, stops others where there is no room, passes the request on, and streams the answer back. It runs "
    "the `config.yaml` of llama-swap.\n\n"
    "`lswap` stays in the foreground and logs to standard output. `twistd llamaswap`, with the same flags, is the same "
    "as a daemon: it leaves a pid file and a log file, and can become another user (`twistd --help`).\n\n" + _LISTEN,
    FLAGS,
    (
        Subcommand(
            "check",
            "[flags]",
            "tell all that is wrong with a configuration",
            cli.CHECK_FLAGS,
            "Nothing is started. Each line is `file:line:column: path: what is wrong: what would be right`. "
            "The exit code is 1 if there is any problem; warnings do not count.",
        ),
        Subcommand(
            "plan", "MODEL [flags]", "ask a running lswap what it would do for a request", cli_plan.FLAGS, cli_plan.HELP
        ),
        Subcommand(
            "kv",
            "list|clear [MODEL] [flags]",
            "see and delete the KV caches that are kept",
            cli_kv.FLAGS,
            cli_kv.HELP,
            ("list", "clear"),
        ),
    ),
    (
        ("0", "It was told to stop, and all that it had started has ended; or a subcommand has done its work."),
        ("1", "The configuration, a combination of flags or the address cannot be used, or a subcommand has failed."),
        _NO_FLAGS,
    ),
    (
        (
            "SIGTERM, SIGINT",
            "No new connections; requests under way may finish, for 30 seconds at most; then the models are ended. "
            "A second signal does not wait, and kills the models.",
        ),
        ("SIGHUP", "The configuration is read anew. Models that did not change keep running."),
        ("SIGUSR1", "Under `twistd` with a log file: begins a new one."),
    ),
    (
        ("LSWAP_API_KEY", "Key for `lswap plan`, without `-key`."),
        ("STATE_DIRECTORY, XDG_STATE_HOME", "Where KV caches are kept by default: in `kv` there."),
        ("HTTP_PROXY, HTTPS_PROXY, NO_PROXY", "How peers on other machines are reached."),
        *_MANAGER,
        ("any other", "Models inherit it; `${env.NAME}` in the configuration is replaced by it."),
    ),
    (
        ("/etc/lswap/config.yaml", "The configuration of the system's service, in Debian's package."),
        ("~/.local/state/lswap/kv", "KV caches that are kept, where nothing else is said."),
    ),
    (
        ("Serve on port 8080 of this machine alone:", "lswap -config config.yaml -listen 127.0.0.1:8080"),
        ("See whether a configuration can be used:", "lswap check -config config.yaml"),
        ("Ask what a request for a model would unload:", "lswap plan big -url http://127.0.0.1:8080"),
        (
            "Run it as a daemon of another user:",
            "twistd --pidfile=/run/lswap.pid --logfile=/var/log/lswap.log --uid=lswap llamaswap -config config.yaml",
        ),
    ),
    ("lswap.yaml(5)", "lswap-wol(1)", "lswap-vllm(1)", "twistd(1)", "systemd.service(5)"),
)
WOL = Command(
    "lswap-wol",
    "wake a host when somebody wants something of it",
    "[flags]",
    "A small proxy that is always on, before a host that sleeps. A request wakes the host by a magic packet or a "
    "command, waits until its server is ready, and is passed on then.\n\n" + _LISTEN,
    wol.FLAGS,
    (),
    (
        ("0", "It was told to stop."),
        ("1", "A value of a flag, or the address, cannot be used."),
        _NO_FLAGS,
    ),
    (
        (
            "SIGTERM, SIGINT",
            "No new connections; answers under way may finish, for 30 seconds at most; who waits for the host is told. "
            "A second signal does not wait.",
        ),
        ("SIGHUP", "Changes nothing."),
    ),
    ((wol.KEY_VARIABLE, "The key, without `-api-key`: a command line can be read by everybody."), *_MANAGER),
    (),
    (
        (
            "Before a host at 192.168.1.13:",
            "lswap-wol -mac ba:dc:0f:fe:e0:00 -upstream http://192.168.1.13:8080",
        ),
    ),
    ("lswap(1)",),
)
VLLM = Command(
    "lswap-vllm",
    "keep a vLLM server, and put it to sleep instead of ending it",
    "",
    "A wrapper for the command of a model. `serve` wakes a vLLM server or starts it, passes requests on, and puts the "
    "server to sleep when it is told to stop: the process stays, its memory goes. Read on below for the subcommands.",
    (),
    tuple(
        Subcommand(
            command.name,
            command.words,
            command.does,
            command.flags,
            f"Example: `{command.example}`",
            runs="DAEMON" in command.words,
        )
        for command in vllm.COMMANDS
    ),
    (
        ("0", "It has done its work, or was told to stop; `status`: the server answers."),
        ("1", "It has failed, or a value or the address cannot be used."),
        _NO_FLAGS,
    ),
    (
        (
            "SIGTERM, SIGHUP",
            "`serve` lets answers under way finish, for 10 seconds at most, and puts the server to sleep.",
        ),
        ("SIGINT", "The same, but the server stays awake."),
    ),
    (
        ("VLLM_SERVER_DEV_MODE", "Is set to 1 for the server, unless it has a value: sleep needs it."),
        ("XDG_STATE_HOME", "Where its files are, without `-state-dir`: in `lswap-vllm` there."),
        *_MANAGER,
    ),
    (("~/.local/state/lswap-vllm", "Locks, what is known of the server, and its log."),),
    (
        (
            "In the configuration of lswap:",
            f"cmd: {vllm.COMMANDS[0].example}\ncmdStop: {vllm.COMMANDS[1].example}",
        ),
    ),
    ("lswap(1)", "lswap.yaml(5)"),
)
COMMANDS = (LSWAP, WOL, VLLM)
