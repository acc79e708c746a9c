"""Time per call of compiled functions with state, as a ratio to a hand-written `jax.jit` with tuple state.

    python benchmarks/dispatch.py [--rounds 61] [--only abcde] [--peers jitmagic] [--cpu] [--json FILE]
    python benchmarks/dispatch.py --signatures     the same function again and again: other shapes, types, contexts

Five workloads, all peers that are installed, interleaved rounds in one process, the median of the ratios within
a round (equinox as an argument: to the same function under `jax.jit`); `--min` gives the ratio of the fastest
rounds as well. The hand-written function takes part twice: what the second one shows besides 1.00 is noise. On a
machine that others use, `--cpu` counts the processor time of the calling thread instead of the time that passes.
Before it is timed, every peer has to leave the same state as the hand-written function after five calls.

a) `x @ w + b`, 10x3, two variables read. b) one step of logistic regression, 10 weights, 1,000 points, one
variable written. c) an SGD step of a 25-layer MLP of width 16, 50 variables. d) one step of 100 ALIF neurons,
four variables written. e) 50 variables read, one counter written. `--signatures`: `x * w + b` and a counter, the
hand-written function in the same signature and context beside each.
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


def scaled(s: Arrays, x: Any) -> tuple[Any, dict[int, Any]]:
    return x * s[0].astype(getattr(x, "dtype", s[0].dtype)) + s[1].astype(getattr(x, "dtype", s[1].dtype)), {
        2: s[2] + 1
    }


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

Running = tuple[Callable[[Any], Any], Callable[[], Arrays]]
"""A call, and the state as it is."""


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

    held = tuple(w.start())

    def call(x: Any) -> Any:
        nonlocal held
        if reads_only:
            return step(held, x)
        held, out = step(held, x)
        return held

    return call, lambda: list(held)


def _on_objects(w: Workload, donate: bool) -> Running:
    """A method of a plain object that holds `self.v0`, or `self.layers[i].w` where there are fifty of them."""
    start = w.start()
    net = _flat_net(w) if len(start) < 50 else _deep_net(w)
    places = _places(net, len(start))
    for (owner, name), value in zip(places, start, strict=True):
        setattr(owner, name, value)
    read = lambda: [getattr(o, k) for o, k in places]  # noqa: E731
    compiled = jitmagic.jit(net.step, dyn_vars="self", donate_argnames="self" if donate else None)
    if w.step is logistic:
        return (lambda x: (compiled(x), net.v0)[1]), read
    return compiled, read


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
    start = w.start()
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
    return compiled, lambda: [space[n] for n in names]


def _with_variables(w: Workload, variable: Callable[[Any], Any], jit: Callable[[Any], Any]) -> Running:
    held = [variable(p) for p in w.start()]

    def step(x: Any) -> Any:
        out, new = w.step([v.value for v in held], x)
        for i, value in new.items():
            held[i].value = value
        return out

    compiled = jit(step)
    return compiled, lambda: [jnp.asarray(v.value) for v in held]


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

    model, step = _nnx_model(w), nnx.jit(_nnx_step(w))
    return (lambda x: step(model, x)), _nnx_state(w, model)


def nnx_cached_partial(w: Workload) -> Running:
    """`nnx.cached_partial(nnx.jit(f), model)`."""
    from flax import nnx

    model = _nnx_model(w)
    return nnx.cached_partial(nnx.jit(_nnx_step(w)), model), _nnx_state(w, model)


def nnx_split_merge(w: Workload) -> Running:
    """`nnx.split` once, `nnx.merge` inside a plain `jax.jit`."""
    from flax import nnx

    body = _nnx_step(w)
    graph, state = nnx.split(_nnx_model(w))

    @jax.jit
    def step(state: Any, x: Any) -> Any:
        model = nnx.merge(graph, state)
        out = body(model, x)
        return nnx.state(model), out

    def call(x: Any) -> Any:
        nonlocal state
        state, out = step(state, x)
        return out

    def read() -> Arrays:
        return _nnx_state(w, nnx.merge(graph, state))()

    return call, read


def ours_nnx(w: Workload) -> Running:
    """`jitmagic.jit` on an nnx module."""
    model, body = _nnx_model(w), _nnx_step(w)
    return jitmagic.jit(lambda x: body(model, x)), _nnx_state(w, model)


def _argument(compiled: Callable[[Any, Any], Any], model: Any) -> Callable[[Any], Any]:
    return lambda x: compiled(model, x)


def ours_nnx_argument(w: Workload) -> Running:
    """`jitmagic.jit` with an nnx module as an argument."""
    model = _nnx_model(w)
    return _argument(jitmagic.jit(_nnx_step(w)), model), _nnx_state(w, model)


def _held_as(variable: Callable[[Any], Any], module: type, w: Workload) -> Running:
    """`jitmagic.jit` with a module as an argument that holds the variables."""

    class Model(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held = [variable(p) for p in w.start()]

    def step(model: Any, x: Any) -> Any:
        out, new = w.step([v.value for v in model.held], x)
        for i, value in new.items():
            model.held[i].value = value
        return out

    model = Model()
    return _argument(jitmagic.jit(step), model), lambda: [jnp.asarray(v.value) for v in model.held]


def ours_brainpy_argument(w: Workload) -> Running:
    """`jitmagic.jit` with a BrainPy object as an argument."""
    import brainpy.math as bm

    return _held_as(bm.Variable, bm.BrainPyObject, w)


def ours_brainstate_argument(w: Workload) -> Running:
    """`jitmagic.jit` with a brainstate module as an argument."""
    import brainstate as bst

    return _held_as(bst.State, bst.nn.Module, w)


def _equinox(w: Workload, jit: Callable[[Any], Any]) -> Running:
    import equinox as eqx

    class Model(eqx.Module):
        values: list[jax.Array]

    model = Model(w.start())

    @jit
    def step(model: Any, x: Any) -> Any:
        out, new = w.step(model.values, x)
        return Model([new.get(i, p) for i, p in enumerate(model.values)]), out

    def call(x: Any) -> Any:
        nonlocal model
        model, out = step(model, x)
        return out

    return call, lambda: list(model.values)


def equinox(w: Workload) -> Running:
    """equinox `filter_jit`, the model in and out."""
    import equinox as eqx

    return _equinox(w, eqx.filter_jit)


def equinox_by_hand(w: Workload) -> Running:
    """`jax.jit`, an equinox model in and out."""
    return _equinox(w, jax.jit)


def ours_equinox(w: Workload) -> Running:
    """`jitmagic.jit`, an equinox model in and out."""
    return _equinox(w, jitmagic.jit)


PEERS: dict[str, tuple[Callable[[Workload], Running], str]] = {
    "by hand, again": (by_hand, ""),
    "jitmagic, objects": (ours, ""),
    "jitmagic, globals": (ours_globals, ""),
    "jitmagic, donated": (ours_donated, ""),
    "jitmagic, BrainPy": (ours_brainpy, "brainpy"),
    "BrainPy bm.jit": (brainpy, "brainpy"),
    "jitmagic, brainstate": (ours_brainstate, "brainstate"),
    "brainstate jit": (brainstate, "brainstate"),
    "jitmagic, BrainPy, argument": (ours_brainpy_argument, "brainpy"),
    "jitmagic, brainstate, arg.": (ours_brainstate_argument, "brainstate"),
    "jitmagic, nnx": (ours_nnx, "flax"),
    "jitmagic, nnx, argument": (ours_nnx_argument, "flax"),
    "nnx.jit": (nnx_jit, "flax"),
    "nnx.cached_partial": (nnx_cached_partial, "flax"),
    "nnx split/merge": (nnx_split_merge, "flax"),
    "equinox filter_jit": (equinox, "equinox"),
    "by hand, equinox": (equinox_by_hand, "equinox"),
    "jitmagic, equinox": (ours_equinox, "equinox"),
}
BASE = {"jitmagic, equinox": "by hand, equinox"}
"""What a contestant is compared with, where that is not the hand-written function with a tuple."""


def prepare(w: Workload, wanted_peers: str = "") -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """The contestants that are installed and compute the same, the hand-written one first."""
    call, read = by_hand(w)
    x = w.x()
    for _ in range(5):
        call(x)
    wanted = read()
    yield "by hand", call
    for name, (make, needs) in PEERS.items():
        if needs and importlib.util.find_spec(needs) is None:
            continue
        if wanted_peers not in name and not name.startswith("by hand"):
            continue
        if name.endswith("donated") and not w.step(w.start(), x)[1]:
            continue
        call, read = make(w)
        for _ in range(5):
            call(x)
        for a, b in zip(wanted, read(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"{name} computes another state")
        yield name, call


Figures = dict[str, tuple[float, float, float]]
"""By contestant: seconds per call and ratio to the hand-written function, medians over the rounds, and the ratio of the
fastest rounds."""


def measure(calls: dict[str, Callable[[Any], Any]], x: Any, rounds: int, budget_s: float) -> Figures:
    """All contestants in turn, round after round."""
    loops = {name: _loops(call, x, budget_s) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    order = list(calls)
    for k in range(rounds):
        for name in order[k % len(order) :] + order[: k % len(order)]:
            times[name].append(_time(calls[name], x, loops[name]))
    gc.enable()
    base = {name: times[BASE.get(name, "by hand")] for name in times}
    return {
        name: (
            statistics.median(t),
            statistics.median(a / b for a, b in zip(t, base[name], strict=True)),
            min(t) / min(base[name]),
        )
        for name, t in times.items()
    }


def signatures(rounds: int, budget_s: float, peers: str) -> dict[str, Figures]:
    """One function in one signature and context after the other, each called often."""
    w = Workload("signatures", scaled, lambda: [*_random((10,), (10,)), jnp.int32(0)], lambda: jnp.ones(10))
    calls = dict(prepare(w, peers))
    mesh = jax.make_mesh((1,), ("data",))
    first: Any = jnp.ones(10)
    turns: list[tuple[str, Any, Callable[[], Any]]] = [
        ("first", first, contextlib.nullcontext),
        ("shape", jnp.ones((4, 10)), contextlib.nullcontext),
        ("dtype", jnp.ones(10, jnp.bfloat16), contextlib.nullcontext),
        ("number", 2.0, contextlib.nullcontext),
        ("first again", first, contextlib.nullcontext),
        ("caches cleared", first, lambda: contextlib.nullcontext(jax.clear_caches())),
        ("precision", first, lambda: jax.default_matmul_precision("highest")),
        ("x64", first, lambda: jax.enable_x64(True)),  # type: ignore[attr-defined, no-untyped-call]
        ("strict types", first, lambda: jax.numpy_dtype_promotion("strict")),
        ("mesh", first, lambda: jax.set_mesh(mesh)),
    ]
    found = {}
    for name, x, context in turns:
        with context():
            for call in calls.values():
                for _ in range(5):
                    call(x)
            found[name] = measure(calls, x, rounds, budget_s)
    return found


def _loops(call: Callable[[Any], Any], x: Any, budget_s: float) -> int:
    return max(3, min(2000, int(budget_s / _time(call, x, 20))))


_clock = time.perf_counter


def _time(call: Callable[[Any], Any], x: Any, loops: int) -> float:
    start = _clock()
    for _ in range(loops):
        out = call(x)
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
    parser.add_argument(
        "--signatures", action="store_true", help="other shapes, types and contexts of one function"
    )
    options = parser.parse_args()
    if options.cpu:
        global _clock
        _clock = time.thread_time
    if options.signatures:
        table = signatures(options.rounds, options.budget, options.peers)
    else:
        wanted = {key: WORKLOADS[key] for key in options.only if key in WORKLOADS}
        table = {
            key: measure(dict(prepare(w, options.peers)), w.x(), options.rounds, options.budget)
            for key, w in wanted.items()
        }
    names = list(dict.fromkeys(n for found in table.values() for n in found))
    print(
        f"jax {jax.__version__}, {jax.default_backend()}, {options.rounds} rounds; ratio to hand-written jax.jit"
    )
    wide = 15 if options.signatures else 9
    print(f"{'':27}" + "".join(f"{k:>{wide}}" for k in table))
    for name in names:
        cells = [table[k].get(name) for k in table]
        if name == "by hand":
            texts = [f"{c[0] * 1e6:.1f}us" if c else "-" for c in cells]
        else:
            texts = [f"{c[1]:.2f}" if c else "-" for c in cells]
        print(f"{name:27}" + "".join(f"{t:>{wide}}" for t in texts))
        if options.min and name != "by hand":
            print(f"{'  fastest':27}" + "".join(f"{f'{c[2]:.2f}' if c else '-':>{wide}}" for c in cells))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(
                {k: {n: list(c) for n, c in found.items()} for k, found in table.items()}, file, indent=1
            )


if __name__ == "__main__":
    main()
