"""Cost of a diagnosis beside the plain run it explains, and how it grows with the size of the function.

    python benchmarks/diagnosis.py [--sizes 1000 10000] [--shape 64] [--forms helper lines]

For each size, functions of that many equations on an array of `--shape` floats are measured, each in its first run
(cold: jax compiles every operation anew) and each in a process of its own:

* plain:    the function without jit
* diagnose: a failing form of it (a question to a traced value in the middle), with all that a failing call sets
            off: locating, recording runs, search for static arguments, findings; without and with fixes
* good:     a form that traces, under `jitmagic.check`: traces are counted, and timed beside one bare `.trace`

Prints CPU seconds of the process (the machine may be shared), ratios and the exponent of growth between the sizes.
Conditions are printed first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from typing import Any

FAILING = "    if x[0] > 0:\n        x = x + 1\n"
KINDS = ("plain", "diagnose", "conclude", "trace", "check")


def cell(equations: int, failing: bool, form: str) -> str:
    """Source of `f` with about that many equations: a loop over a helper of eight, or every line written out."""
    question = FAILING if failing else ""
    if form == "lines":
        lines = "".join(f"    x = jnp.sin(x) * {i % 7}.5\n    y = x + y\n" for i in range(equations // 3))
        half = len(lines) // 2 + lines[len(lines) // 2 :].index("\n") + 1
        return f"def f(x):\n    y = x\n{lines[:half]}{question}{lines[half:]}    return (x + y).sum()\n"
    helper = "def step(x, k):\n    y = jnp.sin(x) * k\n    y = jnp.where(y > 0, y, -y)\n    return x * 0.5 + y - 0.1\n"
    body = f"    for i in range({equations // 8}):\n        x = step(x, 0.5)\n"
    return f"{helper}def f(x):\n{body}{question}    return x.sum()\n"


def define(source: str) -> Any:
    """`f` of a cell that linecache knows, as IPython gives it."""
    import linecache

    name = "<ipython-input-1-diagnosis>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    names: dict[str, Any] = {}
    exec(compile("import jax\nimport jax.numpy as jnp\n", "<setup>", "exec"), names)
    exec(compile(source, name, "exec"), names)
    return names["f"]


def measure(kind: str, equations: int, shape: int, form: str) -> dict[str, Any]:
    """One cold measurement in this process."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones(shape).block_until_ready()
    f = define(cell(equations, kind in ("diagnose", "conclude", "plain"), form))
    found: dict[str, Any] = {}
    if kind in ("diagnose", "conclude", "check"):
        from jitmagic import checking, conclusions
        from jitmagic.settings import Settings
        from jitmagic.tracing import recording, stages

        recording.available()  # once in a process, whatever the function
        checker = checking.Checker(f, settings=Settings(compile=False, budget=3600.0))
        with stages.counted() as counts:
            start = time.process_time()
            checker.diagnose((x,), {})
            if kind == "conclude":
                conclusions.findings_of(checker)
            found["seconds"] = time.process_time() - start
        found["traces"] = counts.traces("f")
        found["problems"] = len(checker.seen.problems)
        found["notes"] = checker.seen.notes
        return found
    start = time.process_time()
    if kind == "plain":
        jax.block_until_ready(f(x))
    else:
        jax.jit(f).trace(x)
    return {"seconds": time.process_time() - start}


def in_a_process(kind: str, equations: int, shape: int, form: str) -> dict[str, Any]:
    """The measurement in a process of its own."""
    options = ["--sizes", str(equations), "--shape", str(shape), "--forms", form]
    command = [sys.executable, __file__, "--one", kind, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--shape", type=int, default=64)
    parser.add_argument("--forms", nargs="+", default=["helper", "lines"])
    parser.add_argument("--one", choices=KINDS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.sizes[0], asked.shape, asked.forms[0])))
        return
    import jax

    print(f"jax {jax.__version__}, Python {platform.python_version()}, {jax.default_backend()}, "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {asked.shape} float32, cold processes")  # fmt: skip
    for form in asked.forms:
        print_form(form, asked.sizes, asked.shape)


def print_form(form: str, sizes: list[int], shape: int) -> None:
    """The rows of one form of function."""
    before: dict[str, float] = {}
    for size in sizes:
        got = {kind: in_a_process(kind, size, shape, form) for kind in KINDS}
        seconds = {kind: got[kind]["seconds"] for kind in KINDS}
        print(f"\n{size} equations, {form}")
        for kind in KINDS:
            base = "trace" if kind in ("trace", "check") else "plain"
            grown = ""
            if kind in before:
                exponent = math.log(seconds[kind] / before[kind]) / math.log(size / sizes[0])
                grown = f"  grows as n^{exponent:.2f}"
            more = f"  traces {got[kind]['traces']}" if "traces" in got[kind] else ""
            print(
                f"  {kind:9s}{seconds[kind]:8.3f} s  {seconds[kind] / seconds[base]:5.2f} x {base}{grown}{more}"
            )
        before = before or seconds


if __name__ == "__main__":
    main()
