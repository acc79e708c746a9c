"""Peak memory of a diagnosis beside the plain run it explains, and what a thousand checks leave behind.

    python benchmarks/memory.py [--megabytes 64] [--checks 1000]

Each measurement is a process of its own. The peak is the resident set above what was resident before (Linux:
`VmHWM`, reset through `/proc/self/clear_refs`), so jax's buffers count as well as Python's objects:

* plain:    the function without jit, on an array of that many megabytes
* failing:  everything that a failing call sets off: trace, recording runs, search, findings, fixes
* good:     everything that a first good call sets off: trace, compilation, plain run, comparison

Then one cell is checked again and again: Python objects and resident memory after a tenth of the checks and after all.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

KINDS = ("plain", "failing", "good")
SOURCE = """
def f(x):
    y = jnp.sin(x)
    z = jnp.where(y > 0, y, -y)
{question}    w = z * 2 + x
    return (w * y).sum(), w
"""
QUESTION = "    if y[0] > 0:\n        y = y + 1\n    m = np.cos(x)\n"


def define(failing: bool, number: int = 1) -> Any:
    """`f` of a cell that linecache knows, as IPython gives it."""
    import linecache

    source = SOURCE.format(question=QUESTION if failing else "")
    name = f"<ipython-input-{number}-memory>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    names: dict[str, Any] = {}
    exec("import jax\nimport jax.numpy as jnp\nimport numpy as np", names)
    exec(compile(source, name, "exec"), names)
    return names["f"]


def status(field: str) -> int:
    """A field of `/proc/self/status`, in bytes."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def peak(kind: str, megabytes: int) -> float:
    """Megabytes above what was resident before, at the highest."""
    import jax
    import jax.numpy as jnp

    from jitmagic.checking import corrections, watched
    from jitmagic.checking.checker import Checker
    from jitmagic.settings import Settings

    f = define(kind == "failing")
    checker = Checker(f, settings=Settings(time=False, budget=600.0))
    call = watched.Watched(f, checker) if kind != "plain" else f
    warm = Checker(define(kind == "failing", 2), settings=Settings(time=False))
    small = jnp.ones(64)  # loads what is imported late, compiles nothing of the size measured
    try:
        jax.block_until_ready((f if kind == "plain" else watched.Watched(warm.fn, warm))(small))
        corrections.findings_of(warm)
    except jax.errors.JAXTypeError:
        corrections.findings_of(warm)
    x = jnp.ones(megabytes * 2**18).block_until_ready()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    try:
        jax.block_until_ready(call(x))
    except jax.errors.JAXTypeError:
        pass
    if kind != "plain":
        corrections.findings_of(checker)
    return (status("VmHWM") - before) / 2**20


def left_behind(checks: int) -> dict[str, float]:
    """Growth of objects and resident memory between a tenth of the checks and all of them."""
    import jax.numpy as jnp

    import jitmagic

    f, x = define(True), jnp.ones(64)
    found: dict[str, float] = {}
    for i in range(checks + 1):
        if i in (checks // 10, checks):
            gc.collect()
            found[f"objects {i}"], found[f"MB {i}"] = len(gc.get_objects()), status("VmRSS") / 2**20
        jitmagic.check(f, x)
    return found


def in_a_process(*options: str) -> Any:
    """What `--one` prints, from a process of its own."""
    done = subprocess.run([sys.executable, __file__, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--checks", type=int, default=1000)
    parser.add_argument("--one", choices=(*KINDS, "checks"))
    asked = parser.parse_args()
    if asked.one:
        print(
            json.dumps(
                left_behind(asked.checks) if asked.one == "checks" else peak(asked.one, asked.megabytes)
            )
        )
        return
    import jax

    print(
        f"jax {jax.__version__}, Python {platform.python_version()}, {jax.default_backend()}, {os.cpu_count()} cores"
    )
    size = ["--megabytes", str(asked.megabytes)]
    got = {kind: in_a_process("--one", kind, *size) for kind in KINDS}
    print(f"peak above the resident memory before, one array of {asked.megabytes} MB float32 as argument")
    for kind in KINDS:
        print(f"  {kind:8s}{got[kind]:8.0f} MB  {got[kind] / got['plain']:5.2f} x plain")
    left = in_a_process("--one", "checks", "--checks", str(asked.checks))
    (few, kept), (all_, end) = [(k, v) for k, v in left.items() if k.startswith("objects")]
    early, late = (v for k, v in left.items() if k.startswith("MB"))
    print(f"after {few.split()[1]} checks {kept:.0f} objects, {early:.1f} MB; after {all_.split()[1]}: "
          f"{end - kept:+.0f} objects, {late - early:+.1f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
