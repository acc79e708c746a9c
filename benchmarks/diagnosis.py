"""Cost of a diagnosis beside the plain run it explains, and how it grows with the size of the function.

    python benchmarks/diagnosis.py [--sizes 1000 10000] [--shape 64] [--forms helper lines] [--rounds 3]

For each size, functions of that many equations on an array of `--shape` floats are measured, each in its first run
(cold: jax compiles every operation anew) and each in a process of its own, in which jax and jitmagic are imported:

* plain:    the function without jit
* fails:    its trace alone, up to the question to a traced value in the middle that it fails at; jax's own error
* diagnose: all that a failing call sets off: that trace, locating, recording runs, search for static arguments
* conclude: the same with findings, and fixes that are applied and proved (each a trace and runs of its own)
* trace:    a form that traces: one bare `.trace`
* check:    that form diagnosed; traces are counted

Prints CPU seconds of the process (the machine may be shared), medians of the rounds, in which the kinds take turns;
the parts of `diagnose`; and the exponent of growth between the sizes. Conditions are printed first.

The array is small on purpose: where an operation takes longer than jax takes to bind it, every ratio is smaller.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import math
import os
import pkgutil
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

FAILING = "    if x[0] > 0:\n        x = x + 1\n"
KINDS = ("plain", "fails", "diagnose", "conclude", "trace", "check")
PARTS = {
    "jitmagic.tracing.stages": {"run_stages": "trace"},
    "jitmagic.tracing.recording": {"record": "recording run"},
    "jitmagic.source.tree": {"tolerant_tree": "parsing"},
    "jitmagic.state.roots": {"reach": "what it reads"},
    "jitmagic.silent.collect": {"observe": "what it asks"},
}


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

    import jitmagic

    for module in pkgutil.walk_packages(jitmagic.__path__, "jitmagic."):
        importlib.import_module(module.name)
    x = jnp.ones(shape).block_until_ready()
    gc.collect()
    f = define(cell(equations, kind in ("diagnose", "conclude", "plain", "fails"), form))
    found: dict[str, Any] = {}
    if kind in ("diagnose", "conclude", "check"):
        found["parts"] = timed_parts()
        from jitmagic.checking import corrections
        from jitmagic.checking.checker import Checker
        from jitmagic.settings import Settings
        from jitmagic.tracing import recording, stages

        recording.available()  # once in a process, whatever the function
        checker = Checker(f, settings=Settings(compile=False, budget=3600.0))
        with stages.counted() as counts:
            start = time.process_time()
            checker.diagnose((x,), {})
            if kind == "conclude":
                corrections.findings_of(checker)
            found["seconds"] = time.process_time() - start
        found["traces"] = counts.traces("f")
        found["problems"] = len(checker.seen.problems)
        found["notes"] = checker.seen.notes
        return found
    start = time.process_time()
    if kind == "plain":
        jax.block_until_ready(f(x))
    else:
        with contextlib.suppress(jax.errors.TracerBoolConversionError):
            jax.jit(f).trace(x)
    return {"seconds": time.process_time() - start}


def timed_parts() -> dict[str, float]:
    """CPU seconds of the parts of a diagnosis, each without those inside it; filled as they run."""
    spent = dict.fromkeys((part for parts in PARTS.values() for part in parts.values()), 0.0)
    inner: list[float] = [0.0]

    def timed(run: Any, part: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            inner.append(0.0)
            try:
                return run(*args, **kwargs)
            finally:
                taken = time.process_time() - start
                spent[part] += taken - inner.pop()
                inner[-1] += taken

        return call

    for name, parts in PARTS.items():
        module = importlib.import_module(name)
        for function, part in parts.items():
            setattr(module, function, timed(getattr(module, function), part))
    return spent


def in_a_process(kind: str, equations: int, shape: int, form: str, bytecode: str) -> dict[str, Any]:
    """The measurement in a process of its own."""
    options = ["--sizes", str(equations), "--shape", str(shape), "--forms", form]
    command = [sys.executable, __file__, "--one", kind, *options]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPYCACHEPREFIX": bytecode
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--shape", type=int, default=64)
    parser.add_argument("--forms", nargs="+", default=["helper", "lines"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=KINDS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.sizes[0], asked.shape, asked.forms[0])))
        return
    import jax

    print(f"jax {jax.__version__}, Python {platform.python_version()}, {jax.default_backend()}, "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {asked.shape} float32, cold processes, "
          f"medians of {asked.rounds} rounds")  # fmt: skip
    with tempfile.TemporaryDirectory() as bytecode:
        for kind in ("conclude", "check"):  # writes the bytecode
            in_a_process(kind, 100, asked.shape, asked.forms[0], bytecode)
        for form in asked.forms:
            print_form(form, asked.sizes, asked.shape, asked.rounds, bytecode)


def print_form(form: str, sizes: list[int], shape: int, rounds: int, bytecode: str) -> None:
    """The rows of one form of function."""
    before: dict[str, float] = {}
    for size in sizes:
        turns = [{k: in_a_process(k, size, shape, form, bytecode) for k in KINDS} for _ in range(rounds)]
        got = turns[0]
        seconds = {kind: statistics.median(turn[kind]["seconds"] for turn in turns) for kind in KINDS}
        print(f"\n{size} equations, {form}")
        for kind in KINDS:
            base = "trace" if kind in ("trace", "check") else "plain"
            ratio = statistics.median(turn[kind]["seconds"] / turn[base]["seconds"] for turn in turns)
            grown = ""
            if kind in before:
                exponent = math.log(seconds[kind] / before[kind]) / math.log(size / sizes[0])
                grown = f"  grows as n^{exponent:.2f}"
            more = f"  traces {got[kind]['traces']}" if "traces" in got[kind] else ""
            print(f"  {kind:9s}{seconds[kind]:8.3f} s  {ratio:5.2f} x {base}{grown}{more}")
            if kind in ("diagnose", "check"):
                parts = {
                    p: statistics.median(turn[kind]["parts"][p] for turn in turns) for p in got[kind]["parts"]
                }
                print(
                    "           of these " + ", ".join(f"{p} {s:.3f}" for p, s in parts.items() if s >= 0.001)
                )
        before = before or seconds


if __name__ == "__main__":
    main()
