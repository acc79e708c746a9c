"""What it costs to look at each call of an extra run: processor time, medians of runs with and without, in turn.

The user's own calls are not listened to. `python benchmarks/permission.py`
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jitmagic.trial.permission import Watch

ROUNDS = 21
X = jnp.ones((64, 64))


def loop() -> object:
    """Calls of Python's own in a loop."""
    total, found = 0.0, list[float]()
    for i in range(20_000):
        found.append(float(i))
        total += abs(found[-1])
    return total


def operations() -> object:
    """Operations of jax, one by one."""
    x = X
    for _ in range(50):
        x = jnp.tanh(x @ X) + jnp.where(x > 0, x, 1.0)
    return jax.block_until_ready(x)


def trace() -> object:
    """A trace by `jax.jit`."""
    return jax.jit(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c) @ x, None), x, None, length=9)[0]).trace(X)


def seconds(run: Callable[[], object], watched: bool) -> float:
    """Of one run."""
    watch = Watch(lambda name: print("not known:", name))
    begin = time.process_time()
    if watched:
        watch.start()
    try:
        run()
    finally:
        if watched:
            watch.stop()
    return time.process_time() - begin


def main() -> None:
    """Print one line for each kind of run."""
    print(f"Python {platform.python_version()}, jax {jax.__version__}, {ROUNDS} runs each")
    for run in (loop, operations, trace):
        run()
        pairs = [(seconds(run, False), seconds(run, True)) for _ in range(ROUNDS)]
        plain, looked = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        print(
            f"{run.__name__:12} {plain * 1e3:8.2f} ms {looked * 1e3:8.2f} ms, {100 * (ratio - 1):+.0f} %  {run.__doc__}"
        )


if __name__ == "__main__":
    main()
