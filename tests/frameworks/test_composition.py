"""A stateful compiled function inside the transformations of jax, BrainPy and brainstate does what the plain one does."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitmagic
from jitmagic.state.compiled import StateError
from jitmagic.state.values import contains_tracer

bp = pytest.importorskip("brainpy")
bst = pytest.importorskip("brainstate")
bm = bp.math
xs = jnp.arange(4.0)

CASES = {
    "bm.for_loop": lambda g, w: bm.for_loop(g, xs),
    "for_loop of a lambda": lambda g, w: bm.for_loop(lambda x: g(x) * 2, xs),
    "for_loop twice": lambda g, w: (bm.for_loop(g, xs), g(1.0), bm.for_loop(g, xs)),
    "for_loop in for_loop": lambda g, w: bm.for_loop(lambda y: bm.for_loop(g, xs), xs[:2]),
    "for_loop without jit": lambda g, w: bm.for_loop(g, xs, jit=False),
    "bm.scan": lambda g, w: bm.scan(lambda c, x: (c + g(x), x), 0.0, xs),
    "bm.cond": lambda g, w: bm.cond(jnp.array(True), lambda: g(1.0), lambda: 0.0, ()),
    "bm.ifelse": lambda g, w: bm.ifelse([jnp.array(False)], [lambda: g(1.0), lambda: g(2.0)]),
    "bm.grad": lambda g, w: bm.grad(lambda: g(2.0), grad_vars=w)(),
    "bm.vector_grad": lambda g, w: bm.vector_grad(g, argnums=0)(3.0),
    "for_loop in grad": lambda g, w: bm.grad(lambda: bm.for_loop(g, xs).sum(), grad_vars=w)(),
    "bm.jit": lambda g, w: [bm.jit(lambda x: g(x))(2.0) for _ in range(2)],
    "for_loop in bm.jit": lambda g, w: bm.jit(lambda v: bm.for_loop(g, v))(xs),
    "bst.for_loop": lambda g, w: bst.transform.for_loop(g, xs),
    "bst.scan": lambda g, w: bst.transform.scan(lambda c, x: (c + g(x), x), 0.0, xs),
    "bst.while_loop": lambda g, w: bst.transform.while_loop(lambda i: i < 3, lambda i: (g(1.0), i + 1)[1], 0.0),
    "bst.cond": lambda g, w: bst.transform.cond(jnp.array(True), lambda: g(1.0), lambda: 0.0),
    "bst.checkpoint": lambda g, w: bst.transform.checkpoint(lambda x: g(x))(2.0),
    "for_loop in a stateful function": lambda g, w: _twice(jitmagic.jit(lambda v: bm.for_loop(g, v))),
    "another stateful function": lambda g, w: _twice(jitmagic.jit(lambda v: g(v.sum()) + g(v[0]))),
}  # fmt: skip


def _twice(fn):
    return fn(xs), fn(xs)


def run(name, compiled, warm, declared=False):
    """Result, state and the next result."""
    v, w = bm.Variable(jnp.zeros(())), bm.Variable(jnp.ones(()))

    def body(x):
        v.value = v.value + x * w.value
        return v.value

    g = jitmagic.jit(body, dyn_vars=[v, w] if declared else None) if compiled else body
    if warm:
        g(1.0)
        v.value = jnp.zeros(())
    out = CASES[name](g, w)
    assert not contains_tracer([v._value, w._value])
    return jax.tree.map(lambda a: np.asarray(a).tolist(), (out, v.value, w.value, g(1.0)))


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_the_plain_function(name, warm):
    assert run(name, True, warm, declared=warm) == run(name, False, warm)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    "around",
    [
        lambda g: jax.jit(lambda x: g(x))(2.0),
        lambda g: jax.vmap(g)(xs),
        lambda g: jax.lax.scan(lambda c, x: (c, g(x)), 0.0, xs),
        lambda g: jitmagic.jit(lambda x: jax.jit(lambda y: g(y))(x))(2.0),
    ],
    ids=["jit", "vmap", "scan", "jit in a stateful function"],
)
def test_a_write_that_would_be_lost(around, warm):
    v = bm.Variable(jnp.zeros(()))

    def body(x):
        v.value = v.value + x
        return v.value

    g = jitmagic.jit(body)
    if warm:
        g(1.0)
    before = v.value
    with pytest.raises(StateError, match=r"variable v\b"):
        around(g)
    assert v.value is before and float(g(1.0)) == float(before) + 1


def test_a_value_frozen_inside_a_loop_stays_there():
    v = bm.Variable(jnp.zeros(()))
    bp.share.save(t=100.0)

    def body(x):
        v.value = v.value + x + bp.share["t"]
        return v.value

    g = jitmagic.jit(body)

    def step(i, x):
        bp.share.save(t=i * 1.0)
        return g(x)

    for count in (3, 3, 4):
        v.value = jnp.zeros(())
        out = bm.for_loop(step, (bm.arange(count), bm.ones(count)))
        np.testing.assert_allclose(out, np.cumsum(1 + np.arange(count)))
    bp.share.save(t=100.0)
    v.value = jnp.zeros(())
    assert float(g(1.0)) == 101.0


class EINet(bp.DynSysGroup):
    """Excitatory neurons that drive inhibitory ones through a delayed exponential synapse."""

    def __init__(self):
        super().__init__()
        bm.random.seed(1)
        pars = dict(V_rest=-60.0, V_th=-50.0, V_reset=-60.0, tau=20.0, tau_ref=5.0)
        self.E = bp.dyn.LifRef(16, **pars, V_initializer=bp.init.Normal(-55.0, 2.0))
        self.I = bp.dyn.LifRef(4, **pars, V_initializer=bp.init.Normal(-55.0, 2.0))
        self.E2I = bp.dyn.FullProjAlignPostMg(
            pre=self.E, delay=0.2, comm=bp.dnn.AllToAll(16, 4, 0.6), syn=bp.dyn.Expon.desc(size=4, tau=5.0),
            out=bp.dyn.COBA.desc(E=0.0), post=self.I,
        )  # fmt: skip

    def update(self, inp):
        self.E2I()
        self.E(inp)
        self.I(inp)
        return self.E.spike.value


def _system(kind):
    bm.random.seed(1)
    return EINet() if kind == "network" else bp.dyn.HH(5)


def _monitors(kind, system):
    return {"E": system.E.V, "I": system.I.V} if kind == "network" else {"V": system.V}


@pytest.mark.parametrize(
    ("kind", "how", "jit"),
    [
        ("HH", "update", True),
        ("HH", "update", False),
        ("HH", "class body", True),
        ("network", "class body", True),
        ("network", "inside", True),
    ],
)
def test_dsrunner(kind, how, jit):
    def simulate(compiled):
        system = held = _system(kind)
        if compiled and how == "update":
            system.update = jitmagic.jit(type(system).update.__get__(system))
        elif compiled and how == "class body":

            class Compiled(type(system)):
                @jitmagic.jit
                def update(self, x):
                    return super().update(x)

            system.__class__ = Compiled
        elif compiled:
            update = jitmagic.jit(system.update)

            class Around(bp.DynamicalSystem):
                def __init__(self):
                    super().__init__()
                    self.held = held

                def update(self, x):
                    return update(x)

            system = Around()
        runner = bp.DSRunner(
            system, monitors=_monitors(kind, held), jit=jit, progress_bar=False, numpy_mon_after_run=False
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for _ in range(2):
                runner.run(inputs=bm.ones(8) * 20.0)
        assert not contains_tracer([x._value for x in held.vars().values()])
        return {k: np.asarray(runner.mon[k]) for k in _monitors(kind, held)}

    wanted, got = simulate(False), simulate(True)
    for k in wanted:
        np.testing.assert_allclose(got[k], wanted[k], rtol=1e-5)


@pytest.mark.parametrize("magic", ["%%jit", "%%jitcheck"])
@pytest.mark.parametrize("module", ["brainstate", "brainpy.math"])
def test_trials_leave_the_random_state_of_a_framework_that_the_cell_imports(notebook, module, magic):
    seeded = f"import {module} as lib\nlib.random.seed(0); n = [0]\ndef r(): return lib.random.rand(2)\n"
    cell = f"{seeded}def f(v): n[0] += 1; return v\nf(1.0); f(2.0); a = r(); b = r()"
    notebook.ok(cell)
    plainly = notebook.ok("lib.random.rand(2)")
    notebook.ok("del lib")
    notebook.ok(f"{magic}\n{cell}")
    assert "state-write" in notebook.kinds()
    assert notebook.ok("lib.random.rand(2)").tolist() == plainly.tolist()
