"""Times the loading of large configurations: `python -m tools.bench_config [number of models]`.

The limit is 1.5 s for 1,000 models with macros. It also loads small files that are made to be expensive; each of them
has to stay below a second. Figures are CPU seconds, the best of three.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from lswap.core.config import Source, load

__all__ = ["main"]


def large(models: int) -> str:
    """A configuration of so many models, as people have them."""
    macros = "".join(f"  m{i}: --opt{i} value{i}\n" for i in range(40))
    bodies = "".join(
        f"""  m{i}:
    cmd: |
      # a comment
      ${{llama}} -m ${{dir}}/m{i}.gguf
      --ctx-size ${{ctx}} ${{m{i % 40}}} ${{m{(i + 1) % 40}}}
    name: Model {i}
    description: "some text {i}"
    aliases: [a{i}, b{i}, c{i}]
    ttl: {i}
    env: ["A=1", "B=2"]
    macros: {{own: 5}}
    metadata: {{x: 1, y: "${{PORT}}", z: [1, 2, 3]}}
    filters:
      stripParams: "a, b"
      setParams: {{t: 0.5, n: 3}}
      setParamsByID: {{"${{MODEL_ID}}:x": {{a: 1}}}}
"""
        for i in range(models)
    )
    return f"macros:\n  llama: llama-server --port ${{PORT}}\n  dir: /srv\n  ctx: 8192\n{macros}models:\n{bodies}"


def expensive() -> dict[str, str]:
    """Files of at most 12 KB that would grow without bounds."""
    laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 100)
    )
    bomb = "macros:\n  m0: xxxxxxxxxx\n" + "".join(f"  m{i}: '{f'${{m{i - 1}}}' * 10}'\n" for i in range(1, 60))
    keys = ", ".join(f"k{i}: {{}}" for i in range(300))
    return {
        "aliases": laughs,
        "macros": bomb + "models:\n" + "".join(f"  a{i}: {{cmd: 's ${{PORT}} ${{m{i % 60}}}'}}\n" for i in range(100)),
        "nesting": "{a: " * 2900,
        "mistakes": f"s: &s {{{keys}}}\nmodels:\n"
        + "".join(f"  a{i}: {{cmd: 's ${{PORT}}', filters: {{setParamsByID: *s}}}}\n" for i in range(90)),
        "unknown keys": "models: {a: {cmd: 's ${PORT}', " + ", ".join(f"tt{i}lx: 1" for i in range(900)) + "}}",
        "alternatives": "models: {a: {cmd: 's ${PORT}'}}\nmatrix: {sets: {s: 'a" + "&a|a" * 2400 + "'}}\n",
    }


def measure(text: str, environ: Mapping[str, str] = {}) -> float:
    """CPU seconds of one load."""
    source = [Source("config.yaml", text.encode())]
    times = []
    for _ in range(3):
        begun = time.process_time()
        load(source, environ)
        times.append(time.process_time() - begun)
    return min(times)


def main() -> None:
    """Print one line a file."""
    models = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for name, text in {f"{models} models": large(models), **expensive()}.items():
        sys.stdout.write(f"{name:15} {len(text):8,} characters {measure(text):7.3f} s\n")


if __name__ == "__main__":
    main()
