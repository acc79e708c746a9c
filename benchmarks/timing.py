"""Is a reported time right, and what does the report itself cost?

    python benchmarks/timing.py                  both tables
    python benchmarks/timing.py --pyperf         the first one against pyperf too (minutes)

The first table takes ten functions from microseconds to tenths of a second, compiled under `%%jit` in a real
IPython, and the timing that the magic reports; after each of its batches `timeit` measures the same call, blocking
on each result. The ratio is the median of those of neighbouring batches.

The second table runs cells under `%%jit --no-time` and compares with what the function takes by itself: one trace
and compilation, one compiled call, one call without jit. Both start from cleared caches and alternate; extra time
is allowed up to 15 % and 50 ms.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from jitmagic.measure.timing import time_pair

SETUP = "import jax, jax.numpy as jnp, numpy as np\nr = np.random.default_rng(0)\n"

FUNCTIONS: dict[str, tuple[str, str]] = {
    "add": ("return x + 1", "jnp.ones(4)"),
    "sine": ("return jnp.sin(x) * 2", "jnp.ones(20_000)"),
    "softmax": ("return jax.nn.softmax(x)", "jnp.ones((64, 256))"),
    "sort": ("return jnp.sort(x)", "jnp.asarray(r.standard_normal(3_000))"),
    "product": ("return x @ x", "jnp.ones((256, 256))"),
    "scan": (
        "return jax.lax.scan(lambda c, _: (jnp.tanh(c @ x), None), x, None, 100)[0]",
        "jnp.ones((64, 64)) / 64",
    ),
    "network": (
        "return jax.grad(lambda w: jnp.mean(jnp.tanh(jnp.tanh(x @ w) @ w) ** 2))(w0)\nw0 = jnp.ones((128, 128)) / 128",
        "jnp.ones((512, 128))",
    ),
    "fft": ("return jnp.abs(jnp.fft.fft2(x))", "jnp.ones((1024, 1024))"),
    "large product": ("return x @ x @ x", "jnp.ones((1500, 1500))"),
    "long loop": ("return jax.lax.fori_loop(0, 1000, lambda i, c: jnp.sin(c) + i, x)", "jnp.ones(100_000)"),
}
"""Body and argument."""

LAYER = """\
class Layer:
    def __init__(self, k):
        self.q, self.o = (jax.random.normal(jax.random.key(k + i), (32, 32)) / 6 for i in range(2))
    def __call__(self, x):
        h = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-5)
        a = jax.nn.softmax(h @ self.q @ h.T / 6)
        return x + jax.nn.gelu(a @ h @ self.o)
layers = [Layer(k) for k in range(16)]
"""

CELLS: dict[str, str] = {
    "one line": "def f(x):\n    return jnp.sin(x) * 2\nf(jnp.ones(100))",
    "two results": (
        "def f(x, y):\n    return {'a': x @ y, 'b': (x + y).sum()}\nf(jnp.ones((30, 30)), jnp.ones((30, 30)))"
    ),
    "constants": (
        "w = jnp.ones((50, 50))\nb = jnp.zeros(50)\n"
        "def f(x):\n    return jnp.tanh(x @ w + b)\nf(jnp.ones((8, 50)))"
    ),
    "network": (
        "def loss(p, x, y):\n    for w, b in p:\n        x = jnp.tanh(x @ w + b)\n    return jnp.mean((x - y) ** 2)\n"
        "def f(p, x, y):\n    g = jax.grad(loss)(p, x, y)\n    return jax.tree.map(lambda a, b: a - 0.1 * b, p, g)\n"
        "f([(jnp.ones((20, 20)), jnp.zeros(20))] * 10, jnp.ones((64, 20)), jnp.zeros((64, 20)))"
    ),
    "scan": (
        "def f(x):\n    def step(c, _):\n        c = jnp.tanh(c @ c)\n        return c, c.sum()\n"
        "    return jax.lax.scan(step, x, None, 50)\nf(jnp.ones((20, 20)))"
    ),
    "100 lines": (
        "def f(x):\n"
        + "".join(f"    x = jnp.sin(x) * 0.9 + {i}\n" for i in range(100))
        + "    return x\nf(jnp.ones(100))"
    ),
    "300 lines": (
        "def f(x):\n"
        + "".join(f"    x = jnp.sin(x) * 0.9 + {i}\n" for i in range(300))
        + "    return x\nf(jnp.ones(100))"
    ),
    "model": (
        f"{LAYER}def f(x):\n    def loss(x):\n"
        + "".join(f"        x = layers[{i}](x)\n" for i in range(16))
        + "        return (x ** 2).mean()\n    return jax.value_and_grad(loss)(x)\n"
        "f(jnp.asarray(r.standard_normal((16, 32))))"
    ),
    "model, loop": (
        f"{LAYER}def f(x):\n    def loss(x):\n        for layer in layers:\n            x = layer(x)\n"
        "        return (x ** 2).mean()\n    return jax.value_and_grad(loss)(x)\n"
        "f(jnp.asarray(r.standard_normal((16, 32))))"
    ),
    "several calls": (
        "def f(x, y):\n    z = jnp.tanh(x @ y)\n    return z, z.sum()\n"
        "f(jnp.ones((30, 30)), jnp.ones((30, 30))); f(jnp.ones((30, 30)), jnp.ones((30, 30))); "
        "f(jnp.ones((20, 20)), jnp.ones((20, 20)))"
    ),
}
"""A definition, and calls in the last line. The models have about 2,100 equations; the loop over layers is told of,
and a `scan` in its place is tried, which is a trace, a compilation and runs of its own."""


def shell() -> InteractiveShell:
    """A real IPython with the extension loaded."""
    config = Config()
    config.HistoryManager.enabled = False
    made = InteractiveShell.instance(config=config)
    made.run_cell("%load_ext jitmagic\n" + SETUP).raise_error()
    return made


def run(ip: InteractiveShell, source: str) -> Any:
    """One cell, its output kept back; its value."""
    with capture_output():
        result = ip.run_cell(source)
    result.raise_error()
    return result.result


# -- is the time right?


def compiled_call(ip: InteractiveShell, name: str) -> Callable[[], Any]:
    """The compiled call of a function that ran under the magic."""
    body, argument = FUNCTIONS[name]
    first, _, rest = body.partition("\n")
    ip.user_ns["arg"] = eval(argument, ip.user_ns)
    run(ip, f"%%jit -q --no-time\n{rest}\ndef f(x):\n    {first}\nf(arg)")
    return functools.partial(ip.user_ns["f"]._checker.compiled_for(()), ip.user_ns["arg"])


def agreement(ip: InteractiveShell, name: str, repeats: int) -> tuple[float, float, float, float]:
    """Reported median, that of timeit, the median of the ratios of neighbouring batches, and the ratio of the
    fastest batches, which neighbours on a shared machine disturb least.

    The timing of the magic puts state back after each of its batches, outside its clock: there timeit measures
    the same call, so that both see the same spells of the machine."""
    call = compiled_call(ip, name)
    jax.block_until_ready(call())
    timer = timeit.Timer("wait(call())", globals={"wait": jax.block_until_ready, "call": call})
    number, _ = timer.autorange()
    theirs: list[float] = []
    timed = time_pair(
        None,
        call,
        restore=lambda: theirs.append(timer.timeit(number) / number),
        repeats=repeats,
        budget_s=60.0,
    )
    ours = timed.jit.batches_s
    beside = theirs[-len(ours) :]
    ratios = [a / b for a, b in zip(ours, beside, strict=True)]
    return timed.jit.median_s, statistics.median(beside), statistics.median(ratios), min(ours) / min(beside)


def pyperf_s(name: str) -> float:
    """Median seconds by pyperf, in processes of its own."""
    body, argument = FUNCTIONS[name]
    first, _, rest = body.partition("\n")
    setup = f"{SETUP}{rest}\ndef f(x):\n    {first}\nf = jax.jit(f)\narg = {argument}\njax.block_until_ready(f(arg))"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        options = ["-p", "5", "-n", "3", "-w", "1", "-q", "--copy-env", "-o", str(out)]
        command = [
            sys.executable,
            "-m",
            "pyperf",
            "timeit",
            *options,
            "-s",
            setup,
            "jax.block_until_ready(f(arg))",
        ]
        subprocess.run(command, check=True, capture_output=True)
        import pyperf

        return float(pyperf.Benchmark.load(str(out)).median())


# -- what does the report cost?


clock: Callable[[], float] = time.perf_counter
"""`--cpu` takes the seconds of all cores in place of those that went by: for a machine that others use too."""


def alone_s(ip: InteractiveShell, source: str) -> float:
    """Seconds of the same cell without the magic: trace, compile and calls, and one call without jit."""
    definition, _, calls = source.rpartition("\n")
    ip.user_ns["given"] = [eval(f"({call.strip()[2:-1]},)", ip.user_ns) for call in calls.split(";")]
    jax.clear_caches()
    start = clock()
    run(ip, f"{definition}\ng = jax.jit(f)\ny = jax.block_until_ready([g(*arguments) for arguments in given])\n"
            "jax.block_until_ready(f(*given[0]))")  # fmt: skip
    return clock() - start


def magic_s(ip: InteractiveShell, source: str) -> float:
    """Seconds of the cell under `%%jit --no-time`, the report included."""
    definition = source.rpartition("\n")[0]
    jax.clear_caches()
    start = clock()
    run(ip, f"%%jit -f f --no-time\n{definition}\ny = [f(*arguments) for arguments in given]")
    return clock() - start


def overhead(ip: InteractiveShell, source: str, rounds: int) -> tuple[float, float]:
    """Median seconds alone, and the median of the extra seconds under the magic, in pairs."""
    alone_s(ip, source), magic_s(ip, source)
    pairs = [(alone_s(ip, source), magic_s(ip, source)) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b - a for a, b in pairs)


def main() -> None:
    """Print the tables; the exit status is 1 where one of the bounds does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=15, help="batches of the first table, pairs of the second"
    )
    parser.add_argument("--only", choices=("agreement", "overhead"), help="one of the tables")
    parser.add_argument("--pyperf", action="store_true", help="compare with pyperf too")
    parser.add_argument(
        "--cells", nargs="+", choices=CELLS, default=list(CELLS), help="rows of the second table"
    )
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--cpu", action="store_true", help="the second table in seconds of all cores")
    options = parser.parse_args()
    global clock
    clock = time.process_time if options.cpu else time.perf_counter
    ip = shell()
    print(
        f"jax {jax.__version__}, Python {sys.version.split()[0]}, {jax.default_backend()}, {options.rounds} rounds"
    )
    table: dict[str, Any] = {}
    ok = True
    if options.only != "overhead":
        print(
            f"\n{'':16}{'reported':>12}{'timeit':>12}{'ratio':>8}"
            + (f"{'pyperf':>12}" if options.pyperf else "")
        )
        for name in FUNCTIONS:
            ours, theirs, ratio, fastest = agreement(ip, name, options.rounds)
            other = pyperf_s(name) if options.pyperf else None
            ok &= 0.9 <= ratio <= 1.1
            tail = f"{other * 1e6:10.1f}us" if other is not None else ""
            print(
                f"{name:16}{ours * 1e6:10.1f}us{theirs * 1e6:10.1f}us{ratio:8.2f}{fastest:8.2f}{tail}",
                flush=True,
            )
            table[name] = {
                "reported_s": ours,
                "timeit_s": theirs,
                "ratio": ratio,
                "fastest": fastest,
                "pyperf_s": other,
            }
    if options.only != "agreement":
        print(f"\n{'':16}{'alone':>12}{'extra':>12}{'allowed':>12}")
        for name in options.cells:
            source = CELLS[name]
            alone, extra = overhead(ip, source, options.rounds)
            allowed = 0.15 * alone + 0.05
            ok &= extra <= allowed
            print(f"{name:16}{alone * 1e3:10.1f}ms{extra * 1e3:10.1f}ms{allowed * 1e3:10.1f}ms", flush=True)
            table[f"--no-time, {name}"] = {"alone_s": alone, "extra_s": extra, "allowed_s": allowed}
    if options.json:
        Path(options.json).write_text(json.dumps(table, indent=1), "utf-8")
    sys.exit(not ok)


if __name__ == "__main__":
    main()
