# ruff: noqa: B018, E701, E702, E731, E741
"""`jitmagic.jit` with the real packages: each test is what a user of that framework would write."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitmagic
from jitmagic.state.compiled import StaleConstantWarning
from jitmagic.state.errors import LostWriteWarning

bp = pytest.importorskip("brainpy")
bst = pytest.importorskip("brainstate")
eqx = pytest.importorskip("equinox")
optax = pytest.importorskip("optax")
nnx = pytest.importorskip("flax.nnx")
bm = bp.math


def test_bm_default_rng():
    bm.random.seed(1)
    f = jitmagic.jit(lambda x: x * bm.random.rand(2))
    a, b, c = f(1.0), f(1.0), f(1.0)
    assert not np.allclose(a, b) and not np.allclose(b, c)
    assert f._cache_size() == 1, f._cache_size()


def test_bm_trainvar_only_declared():
    w, b = bm.TrainVar(jnp.ones(2)), bm.Variable(jnp.ones(2))
    f = jitmagic.jit(lambda x: x * w.value + b.value, dyn_vars=[w])
    f(1.0)
    w.value = jnp.ones(2) * 3
    b.value = jnp.ones(2) * 9
    with pytest.warns(StaleConstantWarning, match="b"):
        r = f(1.0)
    assert r.tolist() == [4.0, 4.0]


def test_bm_inplace_forms():
    v = bm.Variable(jnp.zeros(2))

    def g(x):
        v.value = v + x
        v[:] = v + x
        v[0] = 5.0
        return v.sum()

    f = jitmagic.jit(g)
    f(1.0)
    f(1.0)
    assert v.value.tolist() == [5.0, 4.0], v


def test_bm_grad_sgd():
    class Net(bp.DynamicalSystem):
        def __init__(s):
            super().__init__()
            s.l = bp.dnn.Dense(3, 1)

        def update(s, x):
            return s.l(x)

    with bm.environment(bm.TrainingMode()):
        net = Net()
    opt = bp.optim.SGD(lr=0.1, train_vars=net.train_vars().unique())
    X = bm.ones((4, 3))
    Y = bm.ones((4, 1)) * 2
    loss = lambda: bm.mean((net(X) - Y) ** 2)
    gr = bm.grad(loss, grad_vars=net.train_vars().unique(), return_value=True)

    def step(_):
        g, l = gr()
        opt.update(g)
        return l

    f = jitmagic.jit(step)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostWriteWarning)  # of what the framework remembers
        ls = [float(f(0.0)) for _ in range(5)]
    assert ls[-1] < ls[0] * 0.9, ls


def test_bm_for_loop_inside():
    v = bm.Variable(jnp.zeros(()))

    def body(x):
        v.value = v.value + x
        return v.value

    f = jitmagic.jit(lambda xs: bm.for_loop(body, xs))
    xs = bm.arange(4.0)
    f(xs)
    assert float(v.value) == 6.0, v
    f(xs)
    assert float(v.value) == 12.0


def test_called_in_bm_jit():
    v = bm.Variable(jnp.zeros(()))

    def body(x):
        v.value = v.value + x
        return v.value

    g = jitmagic.jit(body)
    h = bm.jit(lambda x: g(x))
    [h(1.0) for _ in range(3)]
    assert float(v.value) == 3.0, v


def test_dsrunner_lif():
    n = bp.dyn.Lif(10) if hasattr(bp.dyn, "Lif") else bp.neurons.LIF(10)

    def step(x):
        bp.share.save(t=0.0, dt=0.1)
        return n(x)

    f = jitmagic.jit(step)
    v0 = n.V.value
    f(20.0)
    f(20.0)
    assert not np.allclose(v0, n.V.value)


def test_bst_state_pytree():
    s = bst.State({"a": jnp.zeros(2)})

    def g(x):
        s.value = {"a": s.value["a"] + x}
        return x

    f = jitmagic.jit(g)
    f(1.0)
    f(1.0)
    assert s.value["a"].tolist() == [2.0, 2.0]
    assert f._cache_size() == 1


def test_bst_random():
    f = jitmagic.jit(lambda x: x * bst.random.rand(2))
    assert not np.allclose(f(1.0), f(1.0))


def test_nnx_module_count():
    class M(nnx.Module):
        def __init__(s, rngs):
            s.l = nnx.Linear(2, 3, rngs=rngs)
            s.n = nnx.Variable(jnp.zeros(()))

        def __call__(s, x):
            s.n[...] = s.n[...] + 1
            return s.l(x)

    m = M(nnx.Rngs(0))
    f = jitmagic.jit(lambda x: m(x))
    [f(jnp.ones(2)) for _ in range(3)]
    assert float(m.n[...]) == 3
    m.n[...] = jnp.zeros(())


def test_nnx_rngs_dropout():
    d = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    f = jitmagic.jit(lambda x: d(x))
    a, b = f(jnp.ones(64)), f(jnp.ones(64))
    assert not np.allclose(a, b)


def test_nnx_optax():
    m = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    o = nnx.Optimizer(m, optax.adam(1e-1), wrt=nnx.Param)

    def step(x):
        l, g = nnx.value_and_grad(lambda m: ((m(x) - 1) ** 2).mean())(m)
        o.update(m, g)
        return l

    f = jitmagic.jit(step)
    ls = [float(f(jnp.ones((4, 2)))) for _ in range(20)]
    assert ls[-1] < ls[0] * 0.5, ls


def test_eqx_global_model():
    global model
    model = eqx.nn.Linear(2, 1, key=jax.random.key(0))

    def step(x):
        global model
        l, g = eqx.filter_value_and_grad(lambda m: ((jax.vmap(m)(x) - 1) ** 2).mean())(model)
        model = eqx.apply_updates(model, jax.tree.map(lambda t: -0.1 * t, g))
        return l

    f = jitmagic.jit(step, dyn_vars="model")
    ls = [float(f(jnp.ones((4, 2)))) for _ in range(10)]
    assert ls[-1] < ls[0], ls
    assert isinstance(model, eqx.nn.Linear)


def test_jax_ref():
    r = jax.new_ref(jnp.zeros(()))

    def g(x):
        r[...] = r[...] + x
        return x

    f = jitmagic.jit(g)
    f(1.0)
    f(1.0)
    assert float(r[...]) == 2.0


def test_jax_ref_declared():
    r = jax.new_ref(jnp.zeros(()))

    def g(x):
        r[...] = r[...] + x
        return x

    f = jitmagic.jit(g, dyn_vars=[r])
    f(1.0)
    f(1.0)
    assert float(r[...]) == 2.0


def test_other_side_effects_of_a_trace_stay_as_in_jax():
    v, log, seen = bm.Variable(jnp.zeros(())), [], {}

    def f(x):
        log.append(1)
        seen["last"] = "f"
        v.value = v.value + x
        return v.value

    g = jitmagic.jit(f)
    [g(1.0) for _ in range(3)]
    assert log == [1] and seen == {"last": "f"} and float(v.value) == 3.0


class Lazy(nnx.Module):
    built = False

    def __call__(self, x):
        if not self.built:
            self.w = nnx.Param(jnp.full((3,), 2.0))
            self.built = True
        self.w[...] = self.w[...] * x
        return self.w[...]


def test_a_module_that_builds_itself():
    model, traces = Lazy(), []

    def f(x):
        traces.append(1)
        return model(x)

    g = jitmagic.jit(f)
    g.eval_shape(2.0)
    assert not model.built and not hasattr(model, "w")
    traces.clear()
    assert [g(2.0).tolist()[0] for _ in range(3)] == [4.0, 8.0, 16.0]
    assert model.built and len(traces) <= 2 and float(model.w[...][0]) == 16.0


@pytest.mark.parametrize(("jit", "kinds"), [("jax.jit", ["state-write"]), ("nnx.jit", [])])
@pytest.mark.parametrize("magic", ["%%jit -q --no-time", "%%jitcheck -q"])
def test_an_array_that_a_module_binds_anew_in_its_own_jitted_method(notebook, magic, jit, kinds):
    notebook.ok("from flax import nnx")
    notebook.ok(
        f"{magic}\nclass Norm(nnx.Module):\n    def __init__(self):\n        self.mean = nnx.data(jnp.zeros(()))\n"
        f"    @{jit}\n    def __call__(self, x):\n        self.mean = self.mean + x.mean()\n        return x - self.mean\n"
        "norm = Norm()\nnorm(jnp.ones(3))"
    )
    assert notebook.kinds("error", "warning") == kinds
