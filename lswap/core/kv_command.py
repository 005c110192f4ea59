"""What lswap understands of a llama-server's command line: whether it is one, and what its caches depend on.

Decides from the words and the environment alone; `lswap.net.kv_files` looks at the files that are named. Options are
read as llama.cpp reads them: the value is the next word, `_` in a long name is as good as `-`, the last one wins.
Source: what lswap adds, section 2; llama.cpp, `common/arg.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

__all__ = ["SAVE_PATH", "ServerCommand", "is_llama_server", "read_command"]

#: The option that lets slots be saved.
SAVE_PATH = "--slot-save-path"
_MODEL = ("-m", "--model")
#: Other files that a cache depends on; the scaled ones have a factor behind the name, as a word or after a colon.
_PLAIN = ("-mm", "--mmproj", "--lora", "--control-vector")
_SCALED = ("--lora-scaled", "--control-vector-scaled")
_API_KEY, _API_KEY_FILE = "--api-key", "--api-key-file"
#: Options with a value that a cache does not depend on, or that nobody may read in a record.
_LEFT_OUT = ("--port", "--host", "-hft", "--hf-token", _API_KEY, _API_KEY_FILE)
_VARIABLE = "LLAMA_ARG_"
_VARIABLES_LEFT_OUT = re.compile(r"LLAMA_ARG_(PORT|HOST|.*(KEY|TOKEN).*)")
_FACTOR = re.compile(r":[-+.0-9eE]+\Z")
_SHARD = re.compile(r"(.*-)00001(-of-(\d{5})\.gguf)\Z")
_MOST_SHARDS = 999


class ServerCommand(msgspec.Struct, frozen=True):
    """One command line of a llama-server."""

    #: What a cache depends on: without port, host, keys, and a folder for slots that lswap would add.
    words: tuple[str, ...]
    #: Variables of the environment that stand for options.
    variables: dict[str, str]
    #: The model (all of its shards), projectors and adapters, in order; as they are written.
    files: tuple[str, ...]
    #: Whether the command names a model file; without one the server alone knows what it loads.
    names_model: bool
    #: The command's own folder for slots.
    save_path: str | None
    #: What control calls have to send, or the file that has it.
    api_key: str = ""
    api_key_file: str | None = None

    def __repr__(self) -> str:
        return f"ServerCommand({self.files!r})"  # the key stays out of logs and tracebacks


def is_llama_server(words: Sequence[str], engine: str | None) -> bool:
    """Whether a command starts a llama-server: by the name of its program, or because the configuration says so."""
    if engine is not None:
        return engine == "llama-server"
    program = re.split(r"[/\\]", words[0])[-1] if words else ""
    return program.removesuffix(".exe") == "llama-server"


def read_command(words: Sequence[str], environment: Mapping[str, str]) -> ServerCommand:
    """Understand a command, and the environment that its process will have."""
    kept: list[str] = []
    models: list[str] = []
    others: list[str] = []
    found: dict[str, str] = {}
    for name, value in _options(words):
        if value is None:
            kept.append(name)
            continue
        if name in _MODEL:
            models = [value]
        elif name in _PLAIN:
            others += value.split(",")
        elif name in _SCALED:
            others += [_FACTOR.sub("", item) for item in value.split(",")]
        found[name] = value
        if name not in _LEFT_OUT:
            kept += (name, value)
    if not models and environment.get("LLAMA_ARG_MODEL"):
        models = [environment["LLAMA_ARG_MODEL"]]
    if "--mmproj" not in found and "-mm" not in found and environment.get("LLAMA_ARG_MMPROJ"):
        others.append(environment["LLAMA_ARG_MMPROJ"])
    keys = found.get(_API_KEY) or environment.get("LLAMA_API_KEY", "")
    return ServerCommand(
        words=tuple(kept),
        variables={
            name: value
            for name, value in sorted(environment.items())
            if name.startswith(_VARIABLE) and _VARIABLES_LEFT_OUT.fullmatch(name) is None
        },
        files=tuple(dict.fromkeys([shard for model in models for shard in _shards(model)] + others)),
        names_model=bool(models),
        save_path=found.get(SAVE_PATH),
        api_key=keys.split(",")[0],
        api_key_file=found.get(_API_KEY_FILE),
    )


#: Options whose value matters here; of all others name and value are two words like any.
_WITH_VALUE = frozenset((*_MODEL, *_PLAIN, *_SCALED, *_LEFT_OUT, SAVE_PATH))


def _options(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each option that matters with its value, and each other word with None."""
    rest = iter(words)
    for word in rest:
        name = "--" + word[2:].replace("_", "-") if word.startswith("--") else word
        value = next(rest, None) if name in _WITH_VALUE else None
        yield (name, value) if value is not None else (word, None)


def _shards(model: str) -> list[str]:
    """All files of a model that was cut into several; of any other itself."""
    found = _SHARD.match(model)
    if found is None:
        return [model]
    count = min(int(found[3]), _MOST_SHARDS)
    return [f"{found[1]}{number:05}{found[2]}" for number in range(1, count + 1)] or [model]
