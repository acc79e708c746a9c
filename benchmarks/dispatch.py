"""Time per call of compiled functions with state, as a ratio to a hand-written `jax.jit` with tuple state.

    python benchmarks/dispatch.py [--rounds 61] [--only abcde] [--peers jitmagic] [--cpu] [--json FILE]

Five workloads, all peers that are installed, interleaved rounds in one process, the median of the ratios within
a round; `--min` gives the ratio of the fastest rounds as well. The hand-written function takes part twice: what
the second one shows besides 1.00 is noise. On a machine that others use, `--cpu` counts the processor time of
the calling thread instead of the time that passes. Before it is timed, every peer has to leave the same state as
the hand-written function after five calls.

a) `x @ w + b`, 10x3, two variables read. b) one step of logistic regression, 10 weights, 1,000 points, one
variable written. c) an SGD step of a 25-layer MLP of width 16, 50 variables. d) one step of 100 ALIF neurons,
four variables written. e) 50 variables read, one counter written.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jitmagic

Arrays = list[jax.Array]
Step = Callable[[Arrays, Any], tuple[Any, dict[int, Any]]]
"""State and argument to the result and the new values by number."""


@dataclass(frozen=True)
class Workload:
    """A step on a list of arrays; `x` is its argument."""

    name: str
    step: Step
    start: Callable[[], Arrays]
    x: Callable[[], Any]


def linear(s: Arrays, x: Any) -> tuple[Any, dict[int, Any]]:
    return x @ s[0] + s[1], {}


def logistic(s: Arrays, x: Any) -> tuple[Any, dict[int, Any]]:
    points, labels = x
    g = ((1 / (1 + jnp.exp(-labels * (points @ s[0]))) - 1) * labels) @ points
    return None, {0: s[0] - 0.01 * g}


def mlp(s: Arrays, x: Any) -> tuple[Any, dict[int, Any]]:
    def loss(p: Arrays) -> Any:
        h = x
        for i in range(25):
            h = jnp.tanh(h @ p[2 * i] + p[2 * i + 1])
        return (h**2).mean()

    value, g = jax.value_and_grad(loss)(list(s))
    return value, {i: p - 0.01 * d for i, (p, d) in enumerate(zip(s, g, strict=True))}


def alif(s: Arrays, x: Any) -> tuple[Any, dict[int, Any]]:
    v, a, r, spikes = s
    v = v + 0.1 * (x - v - a)
    fired = ((v > 1.0) & (r <= 0)).astype(jnp.float32)
    new = {
        0: v * (1 - fired),
        1: a * 0.99 + 0.1 * fired,
        2: jnp.where(fired > 0, 5.0, r - 1),
        3: spikes + fired,
    }
    return fired, new


def counter(s: Arrays, x: Any) -> tuple[Any, dict[int, Any]]:
    return x + sum(p.sum() for p in s[:-1]), {len(s) - 1: s[-1] + 1}


def _random(*shapes: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(0, 0.3, shape), jnp.float32) for shape in shapes]


def _points() -> Any:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(1000, 10)).astype(np.float32)
    return jnp.asarray(points), jnp.asarray(np.sign(points.sum(1)), jnp.float32)


WORKLOADS = {
    "a": Workload("a: x @ w + b", linear, lambda: _random((10, 3), (3,)), lambda: jnp.ones(10)),
    "b": Workload("b: logistic regression", logistic, lambda: _random((10,)), _points),
    "c": Workload(
        "c: MLP, 50 variables", mlp, lambda: _random(*[(16, 16), (16,)] * 25), lambda: jnp.ones((8, 16))
    ),
    "d": Workload("d: ALIF neurons", alif, lambda: _random(*[(100,)] * 4), lambda: jnp.full(100, 1.5)),
    "e": Workload(
        "e: one counter of 51", counter, lambda: [*_random(*[(16,)] * 50), jnp.int32(0)], lambda: jnp.ones(())
    ),
}

Running = tuple[Callable[[], Any], Callable[[], Arrays]]
"""One call, and the state as it is."""


class Box:
    """A plain Python object."""


# The contestants: each keeps the state its own way.


def by_hand(w: Workload) -> Running:
    """State as a tuple that goes in and comes out: what everything is compared with."""
    reads_only = not w.step(w.start(), w.x())[1]

    @jax.jit
    def step(state: Any, x: Any) -> Any:
        out, new = w.step(list(state), x)
        return out if reads_only else (tuple(new.get(i, p) for i, p in enumerate(state)), out)

    held, x = tuple(w.start()), w.x()

    def call() -> Any:
        nonlocal held
        if reads_only:
            return step(held, x)
        held, out = step(held, x)
        return held

    return call, lambda: list(held)


def _on_objects(w: Workload, donate: bool) -> Running:
    """A method of a plain object that holds `self.v0`, or `self.layers[i].w` where there are fifty of them."""
    start, x = w.start(), w.x()
    net = _flat_net(w) if len(start) < 50 else _deep_net(w)
    places = _places(net, len(start))
    for (owner, name), value in zip(places, start, strict=True):
        setattr(owner, name, value)
    read = lambda: [getattr(o, k) for o, k in places]  # noqa: E731
    compiled = jitmagic.jit(net.step, dyn_vars="self", donate_argnames="self" if donate else None)
    if w.step is logistic:
        return (lambda: (compiled(x), net.v0)[1]), read
    return (lambda: compiled(x)), read


def _flat_net(w: Workload) -> Any:
    """The method as one would write it, each attribute by its name."""
    count, written = len(w.start()), sorted(w.step(w.start(), w.x())[1])
    listed = ", ".join(f"self.v{i}" for i in range(count))
    stores = "".join(f"        self.v{i} = new[{i}]\n" for i in written)
    source = (
        f"class Net:\n    def step(self, x):\n        out, new = step_([{listed}], x)\n"
        f"{stores}        return out\n"
    )
    space: dict[str, Any] = {"step_": w.step, "__name__": "workload"}
    exec(compile(source, "<workload>", "exec"), space)
    return space["Net"]()


def _deep_net(w: Workload) -> Any:
    """The method in loops over the layers."""

    class Net(Box):
        def step(self, x: Any) -> Any:
            places = _places(self, count)
            out, new = w.step([getattr(o, k) for o, k in places], x)
            for i, value in new.items():
                setattr(*places[i], value)
            return out

    count, net = len(w.start()), Net()
    net.layers = [Box() for _ in range(25)]
    return net


def _places(net: Any, count: int) -> list[tuple[Any, str]]:
    if count < 50:
        return [(net, f"v{i}") for i in range(count)]
    below = [(layer, k) for layer in net.layers for k in "wb"]
    return below + [(net, f"v{i}") for i in range(50, count)]


def ours(w: Workload) -> Running:
    """`jitmagic.jit` on plain objects."""
    return _on_objects(w, False)


def ours_donated(w: Workload) -> Running:
    """The same, the variables donated."""
    return _on_objects(w, True)


def ours_globals(w: Workload) -> Running:
    """`jitmagic.jit` on global names."""
    start, x = w.start(), w.x()
    names = [f"v{i}" for i in range(len(start))]
    space: dict[str, Any] = {"step_": w.step, **dict(zip(names, start, strict=True))}
    written = sorted(w.step(w.start(), w.x())[1])
    stores = "".join(f"    v{i} = new[{i}]\n" for i in written)
    listed = ", ".join(names)
    source = (
        f"def step(x):\n    global {listed}\n    out, new = step_([{listed}], x)\n{stores}    return out\n"
    )
    exec(compile(source, "<workload>", "exec"), space)
    compiled = jitmagic.jit(space["step"], dyn_vars=", ".join(names))
    return (lambda: compiled(x)), lambda: [space[n] for n in names]


def _with_variables(w: Workload, variable: Callable[[Any], Any], jit: Callable[[Any], Any]) -> Running:
    held, x = [variable(p) for p in w.start()], w.x()

    def step(x: Any) -> Any:
        out, new = w.step([v.value for v in held], x)
        for i, value in new.items():
            held[i].value = value
        return out

    compiled = jit(step)
    return (lambda: compiled(x)), lambda: [jnp.asarray(v.value) for v in held]


def brainpy(w: Workload) -> Running:
    """BrainPy `bm.jit`."""
    import brainpy.math as bm

    return _with_variables(w, bm.Variable, bm.jit)


def ours_brainpy(w: Workload) -> Running:
    """`jitmagic.jit` on BrainPy Variables."""
    import brainpy.math as bm

    return _with_variables(w, bm.Variable, jitmagic.jit)


def brainstate(w: Workload) -> Running:
    """brainstate `jit`."""
    import brainstate as bst

    return _with_variables(w, bst.State, bst.transform.jit)


def ours_brainstate(w: Workload) -> Running:
    """`jitmagic.jit` on brainstate States."""
    import brainstate as bst

    return _with_variables(w, bst.State, jitmagic.jit)


def _nnx_model(w: Workload) -> Any:
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self) -> None:
            for i, p in enumerate(w.start()):
                setattr(self, f"v{i}", nnx.Param(p))

    return Model()


def _nnx_step(w: Workload) -> Callable[[Any, Any], Any]:
    count = len(w.start())

    def step(model: Any, x: Any) -> Any:
        held = [getattr(model, f"v{i}") for i in range(count)]
        out, new = w.step([v[...] for v in held], x)
        for i, value in new.items():
            held[i][...] = value
        return out

    return step


def _nnx_state(w: Workload, model: Any) -> Callable[[], Arrays]:
    return lambda: [getattr(model, f"v{i}")[...] for i in range(len(w.start()))]


def nnx_jit(w: Workload) -> Running:
    """`nnx.jit` with the model as an argument."""
    from flax import nnx

    model, x, step = _nnx_model(w), w.x(), nnx.jit(_nnx_step(w))
    return (lambda: step(model, x)), _nnx_state(w, model)


def nnx_cached_partial(w: Workload) -> Running:
    """`nnx.cached_partial(nnx.jit(f), model)`."""
    from flax import nnx

    model, x = _nnx_model(w), w.x()
    step = nnx.cached_partial(nnx.jit(_nnx_step(w)), model)
    return (lambda: step(x)), _nnx_state(w, model)


def nnx_split_merge(w: Workload) -> Running:
    """`nnx.split` once, `nnx.merge` inside a plain `jax.jit`."""
    from flax import nnx

    body, x = _nnx_step(w), w.x()
    graph, state = nnx.split(_nnx_model(w))

    @jax.jit
    def step(state: Any, x: Any) -> Any:
        model = nnx.merge(graph, state)
        out = body(model, x)
        return nnx.state(model), out

    def call() -> Any:
        nonlocal state
        state, out = step(state, x)
        return out

    def read() -> Arrays:
        return _nnx_state(w, nnx.merge(graph, state))()

    return call, read


def ours_nnx(w: Workload) -> Running:
    """`jitmagic.jit` on an nnx module."""
    model, x, body = _nnx_model(w), w.x(), _nnx_step(w)
    compiled = jitmagic.jit(lambda x: body(model, x))
    return (lambda: compiled(x)), _nnx_state(w, model)


def equinox(w: Workload) -> Running:
    """equinox `filter_jit`, the model in and out."""
    import equinox as eqx

    class Model(eqx.Module):
        values: list[jax.Array]

    model, x = Model(w.start()), w.x()

    @eqx.filter_jit
    def step(model: Any, x: Any) -> Any:
        out, new = w.step(model.values, x)
        return Model([new.get(i, p) for i, p in enumerate(model.values)]), out

    def call() -> Any:
        nonlocal model
        model, out = step(model, x)
        return out

    return call, lambda: list(model.values)


PEERS: dict[str, tuple[Callable[[Workload], Running], str]] = {
    "by hand, again": (by_hand, ""),
    "jitmagic, objects": (ours, ""),
    "jitmagic, globals": (ours_globals, ""),
    "jitmagic, donated": (ours_donated, ""),
    "jitmagic, BrainPy": (ours_brainpy, "brainpy"),
    "BrainPy bm.jit": (brainpy, "brainpy"),
    "jitmagic, brainstate": (ours_brainstate, "brainstate"),
    "brainstate jit": (brainstate, "brainstate"),
    "jitmagic, nnx": (ours_nnx, "flax"),
    "nnx.jit": (nnx_jit, "flax"),
    "nnx.cached_partial": (nnx_cached_partial, "flax"),
    "nnx split/merge": (nnx_split_merge, "flax"),
    "equinox filter_jit": (equinox, "equinox"),
}


def prepare(w: Workload, wanted_peers: str = "") -> Iterator[tuple[str, Callable[[], Any]]]:
    """The contestants that are installed and compute the same, the hand-written one first."""
    call, read = by_hand(w)
    for _ in range(5):
        call()
    wanted = read()
    yield "by hand", call
    for name, (make, needs) in PEERS.items():
        if needs and importlib.util.find_spec(needs) is None:
            continue
        if wanted_peers not in name and name != "by hand, again":
            continue
        if name.endswith("donated") and not w.step(w.start(), w.x())[1]:
            continue
        call, read = make(w)
        for _ in range(5):
            call()
        for a, b in zip(wanted, read(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"{name} computes another state")
        yield name, call


def measure(
    w: Workload, rounds: int, budget_s: float, peers: str = ""
) -> dict[str, tuple[float, float, float]]:
    """By contestant: seconds per call and ratio to the hand-written function, medians over the rounds, and the
    ratio of the fastest rounds."""
    calls = dict(prepare(w, peers))
    loops = {name: _loops(call, budget_s) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    order = list(calls)
    for k in range(rounds):
        for name in order[k % len(order) :] + order[: k % len(order)]:
            times[name].append(_time(calls[name], loops[name]))
    gc.enable()
    base = times["by hand"]
    return {
        name: (
            statistics.median(t),
            statistics.median(a / b for a, b in zip(t, base, strict=True)),
            min(t) / min(base),
        )
        for name, t in times.items()
    }


def _loops(call: Callable[[], Any], budget_s: float) -> int:
    return max(3, min(2000, int(budget_s / _time(call, 20))))


_clock = time.perf_counter


def _time(call: Callable[[], Any], loops: int) -> float:
    start = _clock()
    for _ in range(loops):
        out = call()
    jax.block_until_ready(out)
    return (_clock() - start) / loops


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--only", default="abcde", help="which workloads")
    parser.add_argument("--budget", type=float, default=0.004, help="seconds per contestant and round")
    parser.add_argument("--peers", default="", help="only contestants with this in their name")
    parser.add_argument("--min", action="store_true", help="also the ratio of the fastest rounds")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--cpu", action="store_true", help="processor time of the calling thread")
    options = parser.parse_args()
    if options.cpu:
        global _clock
        _clock = time.thread_time
    table = {}
    for key in options.only:
        with contextlib.suppress(KeyError):
            table[key] = measure(WORKLOADS[key], options.rounds, options.budget, options.peers)
    names = list(dict.fromkeys(n for found in table.values() for n in found))
    print(
        f"jax {jax.__version__}, {jax.default_backend()}, {options.rounds} rounds; ratio to hand-written jax.jit"
    )
    print(f"{'':22}" + "".join(f"{k:>9}" for k in table))
    for name in names:
        cells = (table[k].get(name) for k in table)
        if name == "by hand":
            print(f"{name:22}" + "".join(f"{c[0] * 1e6:7.1f}us" if c else f"{'-':>9}" for c in cells))
        else:
            print(f"{name:22}" + "".join(f"{c[1]:9.2f}" if c else f"{'-':>9}" for c in cells))
            if options.min:
                cells = (table[k].get(name) for k in table)
                print(f"{'  fastest':22}" + "".join(f"{c[2]:9.2f}" if c else f"{'-':>9}" for c in cells))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(
                {k: {n: list(c) for n, c in found.items()} for k, found in table.items()}, file, indent=1
            )


if __name__ == "__main__":
    main()
