"""Modules, optimizers and metrics as arguments of compiled functions: what is left is what the plain function leaves."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitmagic
from jitmagic.state.errors import StateError

nnx = pytest.importorskip("flax.nnx")
TICKS = SimpleNamespace(count=itertools.count())


def linear(seed=0):
    return nnx.Linear(2, 2, rngs=nnx.Rngs(seed))


def add(model, x):
    next(TICKS.count)
    model.bias[...] = model.bias[...] + x
    return model.kernel[...].sum() * model.bias[...].sum()


def add_and_double(one, other, x):
    next(TICKS.count)
    one.bias[...] = one.bias[...] + x
    other.bias[...] = other.bias[...] * 2
    return one.bias[...].sum() - other.bias[...].sum()


def add_to_all(models, scale=1.0, *, by=None):
    next(TICKS.count)
    for model in models:
        model.bias[...] = model.bias[...] + scale
    return by["model"].bias[...].sum() if by else models[0].bias[...].sum()


def hands_back(state, x):
    next(TICKS.count)
    state["model"].bias[...] = state["model"].bias[...] + x
    return {"model": state["model"], "loss": x}


def dropped(model, x):
    next(TICKS.count)
    return model(x).sum()


def two_in_turn(f):
    a, b = linear(0), linear(1)
    return [f(*pair, 1.0) for _ in range(3) for pair in ((a, b), (b, a), (a, a))], a, b


def many_in_turn(f):
    for k in range(20):
        model = linear(k)
        f(model, 1.0)
    return f(model, 1.0), model


def in_a_list(f):
    models = [linear(k) for k in range(3)]
    return (
        [f(models, float(k)) for k in range(3)],
        [f(models, by={"model": models[1]}) for _ in range(3)],
        models,
    )


def handed_back(f):
    state = {"model": linear(), "n": jnp.ones(3)}
    for k in range(4):
        assert f(state, float(k))["model"] is state["model"]
    return state["model"]


def reset_outside(f):
    metric, found = nnx.metrics.Average(), []
    for k in range(6):
        f(metric, jnp.ones(3) * k)
        found.append(metric.compute())
        metric.reset() if k == 3 else None
    return found


def count(metric, values):
    next(TICKS.count)
    metric.update(values=values)


def trained_and_tested(f):
    model = nnx.Sequential(linear(), nnx.Dropout(0.5, rngs=nnx.Rngs(1)))
    found = [f(model, jnp.ones(2)) for _ in range(3)]
    model.eval()
    found += [f(model, jnp.ones(2)) for _ in range(3)]
    model.train()
    return [*found, f(model, jnp.ones(2))], model


def bound_anew(f):
    model = linear()
    f(model, 1.0)
    model.bias = nnx.Param(jnp.full(2, 5.0, jnp.float32))
    return f(model, 1.0), model


def in_larger_sizes(f):
    return [f(nnx.Linear(2, k, rngs=nnx.Rngs(0)), 1.0) for k in (2, 3, 2, 3)]


# the function, how it is called, the number of traces
CALLS = {
    "two, once the same": (add_and_double, two_in_turn, 2),
    "a new one each time": (add, many_in_turn, 1),
    "in a list and in a dict by name": (add_to_all, in_a_list, 2),
    "in the result": (hands_back, handed_back, 1),
    "a metric that is reset": (count, reset_outside, 1),
    "training and not": (dropped, trained_and_tested, 2),
    "a variable bound anew": (add, bound_anew, 1),
    "other sizes": (add, in_larger_sizes, 2),
}


def numbers(value):
    leaves = jax.tree.leaves(value)
    keys = [jnp.issubdtype(getattr(v, "dtype", np.float32), jax.dtypes.prng_key) for v in leaves]
    return [np.asarray(jax.random.key_data(v) if key else v) for v, key in zip(leaves, keys, strict=True)]


@pytest.mark.parametrize("name", CALLS)
def test_as_the_plain_function(name):
    fn, calls, traces = CALLS[name]
    wanted = numbers(calls(fn))
    TICKS.count = itertools.count()
    got = numbers(calls(jitmagic.jit(fn)))
    assert next(TICKS.count) == traces
    assert len(got) == len(wanted) > 0
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_what_fails_leaves_the_model_as_it_was():
    def fails(model, x):
        model.bias[...] = model.bias[...] + x
        raise ValueError("no")

    model = linear()
    with pytest.raises(ValueError, match="no"):
        jitmagic.jit(fails)(model, 1.0)
    assert model.bias[...].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("around", [jax.jit, lambda f: jax.jit(jax.vmap(f))])
def test_inside_a_jit_that_does_not_know_the_model_it_is_read_but_not_written(around):
    model, x = linear(), jnp.ones((3, 2))
    read, write = jitmagic.jit(lambda m, x: m(x)), jitmagic.jit(add)
    np.testing.assert_allclose(around(lambda x: read(model, x))(x), model(x), rtol=1e-5)
    with pytest.raises(StateError, match=r"model\.bias.*would be lost"):
        around(lambda x: write(model, x.sum()))(x)
    assert model.bias[...].tolist() == [0.0, 0.0]


STEP = """
import optax
def step({taken}, x):
    loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())({net})
    {opt}.update({net}, grads)
    return loss
net = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.sgd(0.1), wrt=nnx.Param)
both = {{"net": net, "opt": optimizer}}
for _ in range(3):
    step({given}, jnp.ones((3, 2)))
"""
TAKEN = {
    "names of their own": ("model, opt", "model", "opt", "net, optimizer"),
    "the notebook's names": ("net, optimizer", "net", "optimizer", "net, optimizer"),
    "a dict": ("state", "state['net']", "state['opt']", "both"),
    "by keyword": ("*, model, opt", "model", "opt", "model=net, opt=optimizer"),
    "any number": ("*parts", "parts[0]", "parts[1]", "net, optimizer"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_as_an_argument_is_not_told_as_written_from_outside(name, notebook):
    pytest.importorskip("optax")
    taken, net, opt, given = TAKEN[name]
    source = STEP.format(taken=taken, net=net, opt=opt, given=given)
    if "*" in taken:
        source = source.replace(f"({taken}, x)", f"(x, {taken})").replace(
            f"({given}, jnp.ones((3, 2)))", f"(jnp.ones((3, 2)), {given})"
        )
    notebook.ok("from flax import nnx")
    notebook.ok(f"%%jit -q --no-time -f step{source}")
    report = notebook.report()
    assert [f.kind for f in report.findings if f.severity != "note"] == [] and report.verdict == "ok"
    assert {s.origin for s in report.functions[0].state} == {"argument"}
