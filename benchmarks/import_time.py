"""What loading the extension adds to the start of IPython.

Every measurement is a fresh process, and the two variants take turns, so that a slow moment of the machine
hits both. Seconds are wall time inside the process; making the shell is not counted, in neither variant.

    python benchmarks/import_time.py [--rounds 15]

Exit status 1 where loading the extension imported something that only the first use may bring in.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HEAVY = ("jax", "jaxlib", "ipywidgets", "numpy")

ALONE = """
import json, time
start = time.perf_counter()
import IPython
print(json.dumps({"ipython": time.perf_counter() - start}))
"""

WITH_JITMAGIC = f"""
import json, sys, time
start = time.perf_counter()
import IPython
imported = time.perf_counter()
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell(config=Config(HistoryManager={{"enabled": False}}))
shelled = time.perf_counter()
import jitmagic
doored = time.perf_counter()
problem = shell.extension_manager.load_extension("jitmagic")
loaded = time.perf_counter()
assert problem is None, problem
print(json.dumps({{
    "ipython": imported - start, "import": doored - shelled, "load": loaded - doored,
    "heavy": [name for name in {HEAVY!r} if name in sys.modules],
}}))
"""


def measure(script: str, home: str) -> dict:
    """Run `script` in a fresh interpreter with an IPython profile of its own; return what it prints."""
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "IPYTHONDIR": home},
        capture_output=True,
        text=True,
    )
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def row(name: str, seconds: list[float]) -> str:
    """One line of the table: median and quartiles in milliseconds."""
    low, median, high = (1e3 * q for q in statistics.quantiles(seconds, n=4))
    return f"{name:<44}{median:>9.1f}  {low:.1f} to {high:.1f}"


def main() -> int:
    """Measure, print the table, and say whether anything heavy came along."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = max(2, parser.parse_args().rounds)
    alone, together = [], []
    with tempfile.TemporaryDirectory() as home:
        measure(ALONE, home), measure(WITH_JITMAGIC, home)  # writes the bytecode, warms the disk cache
        for _ in range(rounds):
            alone.append(measure(ALONE, home)["ipython"])
            together.append(measure(WITH_JITMAGIC, home))
    total = [t["ipython"] + t["import"] + t["load"] for t in together]
    heavy = sorted({name for t in together for name in t["heavy"]})

    print(f"{f'{rounds} fresh processes each, in turn':<44}{'median ms':>9}  quartiles")
    print(row("import IPython", alone))
    print(row("import IPython; import jitmagic; load_ext", total))
    print(row("  of which import jitmagic", [t["import"] for t in together]))
    print(row("  of which load_ext", [t["load"] for t in together]))
    print(f"ratio of the medians: {statistics.median(total) / statistics.median(alone):.2f}")
    print(f"imported by loading: {', '.join(heavy) or 'none of ' + ', '.join(HEAVY)}")
    return int(bool(heavy))


if __name__ == "__main__":
    sys.exit(main())
