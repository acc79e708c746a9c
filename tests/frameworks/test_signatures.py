"""A compiled function in other shapes, types and contexts: each goes through jax's own compiled dispatch, with one trace."""

from __future__ import annotations

import contextlib
import itertools

import jax
import jax.numpy as jnp
import pytest

import jitmagic

SIGNATURES = {
    "another shape": (jnp.ones((4, 10)), contextlib.nullcontext),
    "another type": (jnp.ones(10, jnp.bfloat16), contextlib.nullcontext),
    "a Python number": (2.0, contextlib.nullcontext),
    "another precision": (jnp.ones(10), lambda: jax.default_matmul_precision("highest")),
    "64 bits": (jnp.ones(10), lambda: jax.enable_x64(True)),
    "strict types": (jnp.ones(10), lambda: jax.numpy_dtype_promotion("strict")),
    "cleared caches": (jnp.ones(10), lambda: contextlib.nullcontext(jax.clear_caches())),
    "a mesh": (jnp.ones(10), lambda: jax.set_mesh(jax.make_mesh((1,), ("data",)))),
}


class Box:
    pass


def on_globals(traces):
    space = {"w": jnp.ones(10), "n": jnp.int32(0), "traces": traces}
    source = "def f(x):\n    global n\n    next(traces)\n    n = n + 1\n    return x * w.astype(x.dtype if hasattr(x, 'dtype') else w.dtype)\n"
    exec(source, space)
    return jitmagic.jit(space["f"], dyn_vars="w, n"), lambda: int(space["n"])


def on_objects(traces):
    box = Box()
    box.w, box.n = jnp.ones(10), jnp.int32(0)
    return jitmagic.jit(body(box, traces), dyn_vars="box"), lambda: int(box.n)


def body(box, traces):
    def f(x):
        next(traces)
        box.n = box.n + 1
        return x * box.w.astype(getattr(x, "dtype", box.w.dtype))

    return f


def of_framework(variable, module, given):
    def make(traces):
        class Model(module):
            def __init__(self):
                super().__init__()
                self.w, self.n = variable(jnp.ones(10)), variable(jnp.int32(0))

        model = Model()

        def f(model, x):
            next(traces)
            model.n.value = model.n.value + 1
            return x * model.w.value.astype(getattr(x, "dtype", model.w.value.dtype))

        step = jitmagic.jit(f if given else lambda x: f(model, x))
        return (lambda x: step(model, x)) if given else step, lambda: int(model.n.value)

    return make


def brainpy(given):
    bm = pytest.importorskip("brainpy.math")
    return of_framework(bm.Variable, bm.BrainPyObject, given)


def brainstate(given):
    bst = pytest.importorskip("brainstate")
    return of_framework(bst.State, bst.nn.Module, given)


def nnx(given):
    nnx = pytest.importorskip("flax.nnx")
    return of_framework(nnx.Variable, nnx.Module, given)


def equinox(_):
    eqx = pytest.importorskip("equinox")

    class Model(eqx.Module):
        w: jax.Array
        n: jax.Array

    def make(traces):
        model = Model(jnp.ones(10), jnp.int32(0))

        @jitmagic.jit
        def step(model, x):
            next(traces)
            return Model(model.w, model.n + 1), x * model.w.astype(getattr(x, "dtype", model.w.dtype))

        def call(x):
            nonlocal model
            model, out = step(model, x)
            return out

        return call, lambda: int(model.n)

    return make


KINDS = {
    "globals": lambda: on_globals, "objects": lambda: on_objects,
    "BrainPy": lambda: brainpy(False), "BrainPy, argument": lambda: brainpy(True),
    "brainstate": lambda: brainstate(False), "brainstate, argument": lambda: brainstate(True),
    "flax.nnx": lambda: nnx(False), "flax.nnx, argument": lambda: nnx(True), "equinox": lambda: equinox(True),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_every_signature_is_traced_once_and_dispatched_by_jax_alone(kind, python_of_jax):
    ticks = itertools.count(1)
    call, count = KINDS[kind]()(ticks)
    calls = 0

    def traces_of(x):
        nonlocal calls
        before = next(ticks)
        for _ in range(3):
            call(x)
        assert python_of_jax(call, x) == 0
        calls += 4
        return next(ticks) - before - 1

    first = jnp.ones(10)
    assert traces_of(first) == 1
    for name, (x, context) in SIGNATURES.items():
        mesh = name == "a mesh"  # state that comes out of one has another type: one trace more, as in jax
        with context():
            assert traces_of(x) == 1 + mesh, name
        assert traces_of(first) == 0 + mesh, name
    assert count() == calls


def test_a_call_that_failed_leaves_the_others_fast(python_of_jax):
    box = Box()
    box.n = jnp.int32(0)

    def f(x):
        box.n = box.n + 1
        if x.ndim == 2:
            raise ValueError("two axes")
        return x + box.n

    g = jitmagic.jit(f, dyn_vars="box")
    g(jnp.ones(2))
    with pytest.raises(ValueError):
        g(jnp.ones((2, 2)))
    assert g(jnp.ones(3)).shape == (3,) and int(box.n) == 2
    assert [python_of_jax(g, jnp.ones(n)) for n in (2, 3)] == [0, 0]


def test_what_is_written_differs_from_signature_to_signature(python_of_jax):
    box = Box()
    for k in range(12):
        setattr(box, f"v{k}", jnp.int32(0))

    def f(x):
        name = f"v{x.ndim}"
        setattr(box, name, getattr(box, name) + 1)
        return x

    g = jitmagic.jit(f, dyn_vars="box")
    inputs = [jnp.ones((1,) * k) for k in range(12)]
    for _ in range(2):
        for x in inputs:
            g(x)
    assert [python_of_jax(g, x) for x in inputs] == [0] * 12
    assert [int(getattr(box, f"v{k}")) for k in range(12)] == [3] * 12


@pytest.mark.parametrize("around", ["jit", "vmap", "grad"])
def test_inside_another_trace_and_outside_again(around, python_of_jax):
    box = Box()
    box.w, box.n = jnp.float32(2.0), jnp.int32(0)

    def f(x):
        box.n = box.n + 1
        return box.w * x

    g = jitmagic.jit(f, dyn_vars="box")
    g(1.0)
    within = {
        "jit": lambda: jitmagic.jit(lambda x: g(x), dyn_vars="box")(3.0),
        "vmap": lambda: jax.vmap(g)(jnp.arange(4.0))[3],
        "grad": lambda: jax.grad(g)(3.0) * 3,
    }
    assert float(within[around]()) == 6.0
    before = int(box.n)
    assert float(g(3.0)) == 6.0 and int(box.n) == before + 1
    assert python_of_jax(g, 3.0) == 0
