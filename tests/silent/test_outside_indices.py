"""Indices outside of their arrays: which are told, and which are meant or without effect."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.silent.outside_indices import out_of_bounds

X = jnp.arange(5.0)
M = jnp.arange(20.0).reshape(4, 5)
I = jnp.array([1, 7])  # noqa: E741


def facts(f, *args):
    found = out_of_bounds(jax.jit(f).trace(*args).jaxpr, jax.tree.leaves(args))
    return [(x.index, x.axis, x.size, x.lands) for x in found]


OUTSIDE = {
    "one index": (lambda x, i: x[i], (X, 7), [(7, 0, 5, 4)]),
    "a negative one": (lambda x, i: x[i], (X, -6), [(-6, 0, 5, 0)]),
    "a number of the text": (lambda x: x[7], (X,), [(7, 0, 5, 4)]),
    "an array of indices": (lambda x, i: x[i], (X, I), [(7, 0, 5, 4)]),
    "the second axis": (lambda m, i: m[0, i], (M, 6), [(6, 1, 5, 4)]),
    "arrays for both axes": (lambda m, i: m[i, i], (M, jnp.array([0, 4])), [(4, 0, 4, 3)]),
    "rows of a vmap": (lambda m, k: jax.vmap(lambda r, j: r[j])(m, k), (M, jnp.array([0, 1, 2, 5])), [(5, 0, 5, 4)]),
    "counts in two vmaps": (
        lambda i: jax.vmap(jax.vmap(lambda i: jnp.zeros(3).at[i].add(1.0)))(i), (jnp.full((2, 2), 3),), [(3, 0, 3, None)],
    ),
    "a neighbour": (lambda x: x[jnp.arange(5) + 1] - x, (X,), [(5, 0, 5, 4)]),
    "a turn of a loop": (
        lambda x: jax.lax.fori_loop(0, 6, lambda n, c: c + x[n], 0.0), (X,), [(5, 0, 5, 4)],
    ),
    "a loop in a loop": (
        lambda m: jax.lax.map(lambda i: jax.lax.fori_loop(0, 6, lambda j, c: c + m[i, j], 0.0), jnp.arange(4)),
        (M,), [(5, 1, 5, 4)],
    ),
    "a slice that does not fit": (lambda x, i: jax.lax.dynamic_slice(x, (i,), (3,)), (X, 3), [(3, 0, 5, 2)]),
    "along an axis": (lambda m, i: jnp.take_along_axis(m, i, 1), (M, jnp.full((4, 1), 9)), [(9, 1, 5, None)]),
    "a dropped write": (lambda x, i: x.at[i].set(0.0), (X, I), [(7, 0, 5, None)]),
    "a dropped sum": (lambda x, i: jnp.zeros(3).at[i].add(x), (X, jnp.arange(5)), [(4, 0, 3, None)]),
    "a write that is moved": (
        lambda x, i: jax.lax.dynamic_update_slice(x, jnp.ones(2), (i,)), (X, 4), [(4, 0, 5, 3)],
    ),
    "an inner jit": (lambda x, i: jax.jit(lambda y: y[i] * 2)(x), (X, 5), [(5, 0, 5, 4)]),
    "whole numbers": (lambda x, i: x[i], (jnp.arange(5), 9), [(9, 0, 5, 4)]),
    "a mask of the other side": (lambda x, i: jnp.where(i > 4, x[i], 0.0), (X, I), [(7, 0, 5, 4)]),
    "an index that is computed": (lambda x: x[jnp.argmax(x) + 1], (X,), [(5, 0, 5, 4)]),
    "a loop of unknown length": (
        lambda x, n: jax.lax.fori_loop(0, n, lambda k, c: c + x[k], 0.0), (X, 6), [(5, 0, 5, 4)],
    ),
    "a write in a loop": (
        lambda x, n: jax.lax.fori_loop(0, n, lambda k, c: c.at[k + 1].set(0.0), x), (X, 5), [(5, 0, 5, None)],
    ),
    "a branch that is taken": (lambda x, i: jax.lax.cond(i > 4, lambda: x[i], lambda: 0.0), (X, 7), [(7, 0, 5, 4)]),
    "a gradient": (jax.grad(lambda x, i: (x[i] ** 2).sum()), (X, I), [(7, 0, 5, 4)]),
    "taken": (lambda x, i: jnp.take(x, i), (X, I), [(7, 0, 5, None)]),
    "labels from 1": (lambda m, y: -m[jnp.arange(4), y].mean(), (M, jnp.array([1, 2, 3, 5])), [(5, 1, 5, 4)]),
}  # fmt: skip
INSIDE = {
    "inside": (lambda x, i: x[i], (X, 4)),
    "negative inside": (lambda x, i: x[i], (X, -5)),
    "clip": (lambda x, i: x.at[i].get(mode="clip"), (X, I)),
    "fill": (lambda x, i: x.at[i].get(mode="fill", fill_value=0), (X, I)),
    "drop": (lambda x, i: x.at[i].set(1.0, mode="drop"), (X, I)),
    "taken with a mode": (lambda x, i: jnp.take(x, i, mode="clip"), (X, I)),
    "a mask": (lambda x, i: jnp.where(i < 5, x[i], 0.0), (X, I)),
    "a mask by product": (lambda x, i: (i < 5) * x[i], (X, I)),
    "not used": (lambda x, i: (x[i], x)[1], (X, I)),
    "a branch that is not taken": (lambda x, i: jax.lax.cond(i < 5, lambda: x[i], lambda: 0.0), (X, 7)),
    "a loop that ends in time": (lambda x, n: jax.lax.fori_loop(0, n, lambda k, c: c + x[k], 0.0), (X, 5)),
    "a loop of each row": (
        lambda m, n: jax.vmap(lambda r, k: jax.lax.fori_loop(0, k, lambda j, c: c + r[j], 0.0))(m, n),
        (M, jnp.array([1, 5, 4, 2])),
    ),
    "taken beside a mask": (lambda x, i: jnp.where(i < 5, jnp.take(x, i), 0.0), (X, I)),
    "dropped by a choice": (lambda x, m: x.at[jnp.where(m, jnp.arange(5), 5)].set(0.0), (X, X > 2)),
    "dropped by a choice before": (lambda x, i: _chosen(x, i), (X, I)),
    "a fill value": (lambda x: x.at[jnp.nonzero(x > 2, size=5, fill_value=9)[0]].set(0.0), (X,)),
    "a library's own": (lambda x: jnp.interp(jnp.array([-3.0, 9.0]), x, x), (X,)),
    "segments": (lambda x: jax.ops.segment_sum(x, jnp.array([0, 0, 1, 1, 9]), 3), (X,)),
    "an empty array of indices": (lambda x, i: x[i], (X, np.zeros(0, int))),
}


def _chosen(x, i):
    at = jnp.where(i < 5, i, 5)
    return x.at[at].set(0.0)


@pytest.mark.parametrize(("f", "args", "wanted"), OUTSIDE.values(), ids=OUTSIDE)
def test_told(f, args, wanted):
    assert facts(f, *args) == wanted


@pytest.mark.parametrize(("f", "args"), INSIDE.values(), ids=INSIDE)
def test_not_told(f, args):
    assert facts(f, *args) == []


MENDED = {
    "an array of indices": (
        "def f(x):\n    i = jnp.arange(x.size)\n    return x[i + 1] - x[i]\n", "y = f(jnp.array([1.0, 4.0, 9.0]))",
        ["jnp.arange(x.size - 1)", 'x.at[i + 1].get(mode="fill", fill_value=0)'],
    ),
    "a loop of jax's": (
        "def f(x):\n    return jax.lax.fori_loop(0, x.shape[0] + 1, lambda n, c: c + x[n], 0.0)\n", "y = f(jnp.ones(3))",
        ["fori_loop(0, x.shape[0], lambda", 'mode="fill"'],
    ),
    "a body with a name": (
        "def f(x):\n    def body(n, c):\n        return c + x[n + 1]\n    return jax.lax.fori_loop(0, 4, body, 0.0)\n",
        "f(jnp.ones(4))", ["fori_loop(0, 3, body", 'mode="fill"'],
    ),
    "a loop in Python that writes": (
        "def f(x):\n    for k in range(5):\n        x = x.at[k + 1].set(k)\n    return x\n", "f(jnp.zeros(5))",
        ["range(4)", 'mode="drop"'],
    ),
    "one index": (
        "def f(x):\n    n = x.shape[0]\n    return x[n] * 2\n", "f(jnp.arange(4.0))",
        ["x[n - 1] * 2", 'mode="fill"'],
    ),
    "rows, given from outside": (
        "def f(m, i):\n    return m[i].sum()\n", "y = f(jnp.ones((3, 2)), jnp.array([1, 3]))",
        ["m[jnp.minimum(i, m.shape[0] - 1)]", 'm.at[i].get(mode="fill"'],
    ),
    "the second axis": (
        "def f(m):\n    return m[0, jnp.arange(m.shape[1]) + 1]\n", "f(jnp.ones((2, 3)))",
        ["jnp.arange(m.shape[1] - 1)", 'mode="fill"'],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cell", "call", "wanted"), MENDED.values(), ids=MENDED)
def test_the_bound_or_a_fill_value_mends_it(notebook, cell, call, wanted):
    notebook.ok(f"%%jit -q --no-time\n{cell}{call}")
    (finding,) = [f for f in notebook.report().findings if f.kind == "out-of-bounds"]
    fixes = [x for x in finding.fixes if x.verified]
    assert [any(text in x.cell for x in fixes) for text in wanted] == [True] * len(wanted), [
        x.diff for x in fixes
    ]
    assert wanted[0] in fixes[0].cell and all(x.applicability == "unsafe" for x in fixes)
