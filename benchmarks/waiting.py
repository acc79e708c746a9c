"""How long a user waits: the plain cell, the first word of a report, the first fix, the end.

    python benchmarks/waiting.py [--cells good,loop] [--rounds 3] [--json FILE]

Each of 20 cells runs in a kernel of its own, after a cell that has imported jax and compiled something: once without
the magic and then with it, `--rounds` times each, from cleared caches. Times are those at which messages of the kernel
come in. `first word` is the first report, with the verdict and the findings; `first fix` the first tested fix; `end` is
when the prompt is back. Medians, in seconds, and the ratios of the first word and of the end to the plain cell.

Exit status 1 where fewer than nine of ten cells keep the bounds: the first word 0.3 s and a fifth after the plain cell
and what tracing and compiling took, and what follows it, besides the cell itself, 3 s in a cell that works, 10 s where
something is to be fixed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from queue import Empty
from typing import Any

from jupyter_client.manager import start_new_kernel

MIME = "application/vnd.jitmagic.v1+json"
SETUP = """\
%load_ext jitmagic
import jax, jax.numpy as jnp, numpy as np
jax.jit(lambda v: v + 1)(jnp.ones(3)).block_until_ready()"""

CHAIN = "def f(x):\n" + "".join(f"    x = jnp.sin(x) + {i}.0\n" for i in range(500)) + "    return x\n"
NETWORK = """\
def init(key, sizes):
    keys = jax.random.split(key, len(sizes))
    return [(jax.random.normal(k, (a, b)) * 0.1, jnp.zeros(b)) for k, a, b in zip(keys, sizes[:-1], sizes[1:])]

params = init(jax.random.key(0), [8, 64, 64, 1])
x, y = jnp.ones((128, 8)), jnp.ones((128, 1))
"""
STEP = """\
def loss(params, x, y):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return jnp.mean((x @ w + b - y) ** 2)

def step(params, x, y):
    grads = jax.grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
"""

BRANCH = "def f(x):\n    if x.sum() > 3:\n        return x\n    return -x\nf(jnp.ones(8))"
CELLS: dict[str, tuple[str, str, str]] = {
    # name: (cell before it, magic line, cell)
    "one line": ("", "%%jit", "def f(x):\n    return jnp.tanh(x) * 2\nf(jnp.ones(1000))"),
    "one line, untimed": ("", "%%jit --no-time", "def f(x):\n    return jnp.tanh(x) * 2\nf(jnp.ones(1000))"),
    "checked": ("", "%%jitcheck", "def f(x):\n    return jnp.tanh(x) * 2\nf(jnp.ones(1000))"),
    "product": ("w = jnp.ones((600, 600))", "%%jit", "def f(x):\n    return jnp.tanh(x @ w)\nf(jnp.ones((600, 600)))"),
    "1,000 equations": ("", "%%jit", f"{CHAIN}f(jnp.ones(64))"),
    "1,000 equations, checked": ("", "%%jitcheck", f"{CHAIN}f(jnp.ones(64))"),
    "several functions": (NETWORK, "%%jit", f"{STEP}params = step(params, x, y)\nloss(params, x, y)"),
    "training loop": (NETWORK, "%%jit -f step", f"{STEP}for _ in range(400):\n    params = step(params, x, y)"),
    "training loop, checked": (NETWORK, "%%jitcheck", f"{STEP}for _ in range(20):\n    params = step(params, x, y)"),
    "object with state": (
        "", "%%jit -f Counter.step --dyn self.n,self.total",
        "class Counter:\n    def __init__(self):\n        self.n, self.total = jnp.zeros(()), jnp.zeros(3)\n"
        "    def step(self, x):\n        self.n = self.n + 1\n        self.total = self.total + x\n"
        "        return self.total\nc = Counter()\nfor i in range(20):\n    c.step(jnp.ones(3) * i)",
    ),
    "lost write": (
        "", "%%jit -f Counter.step",
        "class Counter:\n    def __init__(self):\n        self.total = jnp.zeros(3)\n"
        "    def step(self, x):\n        self.total = self.total + x\n        return self.total\n"
        "c = Counter()\nfor i in range(5):\n    c.step(jnp.ones(3) * i)",
    ),
    "branch": ("", "%%jit", BRANCH),
    "branch, checked": ("", "%%jitcheck", BRANCH),
    "count": ("", "%%jit", "def f(x, n):\n    for _ in range(n):\n        x = x * 2\n    return x\nf(jnp.ones(8), 3)"),
    "store": ("", "%%jit", "def f(x):\n    x[0] = 1.0\n    return x\nf(jnp.ones(8))"),
    "size": ("", "%%jit", "def f(x, n):\n    return x + jnp.arange(n)\nf(jnp.ones(8), 8)"),
    "mask": ("", "%%jit", "def f(x):\n    return x[x > 0].sum()\nf(jnp.arange(8.0))"),
    "two problems": (
        "", "%%jit",
        "def f(x, n):\n    if x.sum() > 3:\n        x = -x\n    out = jnp.zeros(n)\n    out[0] = x[0]\n    return out\n"
        "f(jnp.ones(8), 8)",
    ),
    "many shapes": ("", "%%jit", "def f(x):\n    return jnp.cumsum(x)[-1]\nfor n in range(2, 14):\n    f(jnp.ones(n))"),
    "the user's own jit": ("", "%jitcheck on", f"@jax.jit\n{BRANCH}"),
}  # fmt: skip


@dataclass
class Waits:
    """Seconds from the start of a cell; None where nothing came."""

    word: float | None
    fix: float | None
    end: float
    compiling: float = 0.0
    """What the stages took, as the last report says."""
    works: bool = True
    """There is nothing to fix."""


class Kernel:
    """One kernel, and what its messages say when."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(startup_timeout=120, stderr=subprocess.DEVNULL)

    def run(self, code: str) -> Waits:
        """Run a cell to its end."""
        start = time.perf_counter()
        asked = self.client.execute(code)
        word = fix = last = None
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=120)
            except Empty:
                raise SystemExit(f"nothing came for two minutes:\n{code}") from None
            now = time.perf_counter() - start
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind in ("display_data", "update_display_data", "execute_result"):
                report = content["data"].get(MIME)
                last = report or last
                if report is not None and word is None:
                    word = now
                if report is not None and fix is None and _has_fix(report):
                    fix = now
            if kind == "status" and content["execution_state"] == "idle":
                return Waits(word, fix, now, _compiling(last), not _has_to_fix(last))

    def close(self) -> None:
        """End the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def _has_fix(report: dict[str, Any]) -> bool:
    return any(fix["verified"] for finding in report["findings"] for fix in finding["fixes"])


def _has_to_fix(report: dict[str, Any] | None) -> bool:
    return report is not None and any(f["severity"] != "note" for f in report["findings"])


def _compiling(report: dict[str, Any] | None) -> float:
    functions = report["functions"] if report is not None else []
    return sum(
        seconds or 0.0 for f in functions for name, seconds in f["stages"].items() if name.endswith("_s")
    )


def _holds(row: dict[str, Any]) -> bool:
    """The bounds, by the medians."""
    word = row["word"] or 0.0
    most = 3.0 if row["works"] else 10.0
    own = row["plain"]  # the cell goes on behind its first word
    return word <= 1.2 * (own + row["compiling"]) + 0.3 and row["end"] - word <= most + own


def measure(name: str, rounds: int) -> dict[str, Any]:
    """One cell without and with its magic, in turn."""
    before, magic, cell = CELLS[name]
    kernel = Kernel()
    try:
        kernel.run(SETUP)
        plain, waits = [], []
        for _ in range(rounds):
            for line, into in (("", plain), (magic, waits)):
                kernel.run(f"%jitcheck off\njax.clear_caches()\n{before}")
                into.append(kernel.run(f"{line}\n{cell}".lstrip("\n")))
        kernel.run("%jitcheck off")
    finally:
        kernel.close()

    def median(of: list[float | None]) -> float | None:
        found = [v for v in of if v is not None]
        return statistics.median(found) if found else None

    return {
        "cell": name, "plain": median([w.end for w in plain]), "word": median([w.word for w in waits]),
        "fix": median([w.fix for w in waits]), "end": median([w.end for w in waits]),
        "compiling": median([w.compiling for w in waits]), "works": all(w.works for w in waits),
        "rounds": [asdict(w) for w in waits],
    }  # fmt: skip


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", help="names, or beginnings of names, by comma")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    args = parser.parse_args()
    chosen = [n for n in CELLS if not args.cells or any(n.startswith(c) for c in args.cells.split(","))]
    versions = f"jax {metadata.version('jax')}, Python {platform.python_version()}"
    print(f"{versions}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {args.rounds} rounds\n")
    print("| cell | plain | first word | first fix | end | end - plain | word / plain | end / plain |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for name in chosen:
        row = measure(name, args.rounds)
        rows.append(row)
        shown = [
            f"{v:.2f}" if v is not None else "" for v in (row["plain"], row["word"], row["fix"], row["end"])
        ]
        shown.append(f"{row['end'] - row['plain']:.2f}")
        shown += [f"{row[k] / row['plain']:.1f}" if row[k] else "" for k in ("word", "end")]
        print(f"| {name} | {' | '.join(shown)} |", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    late = [row["cell"] for row in rows if not _holds(row)]
    print(f"\n{len(rows) - len(late)} of {len(rows)} cells keep the bounds", *late, sep=", " if late else "")
    return int(len(late) > len(rows) / 10)


if __name__ == "__main__":
    sys.exit(main())
