"""Functions whose arguments come in many lengths: the padded one, run as the notebook would run it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.fixes.change import Change
from jitmagic.fixes.sizes.buckets import padded_lengths
from jitmagic.source.edits import CannotEdit
from tests.fixes.conftest import searching
from tests.silent.cells import checked

LENGTHS = (3, 17, 10, 31)

CASES: dict[str, tuple[str, str, str]] = {
    "reductions": (
        "def f(x):\n    return jnp.mean((x - x.mean()) ** 2), x.max(), jnp.median(x)\n",
        "f(jnp.arange({n}.0))", "jnp.max(x, where=keep, initial=-jnp.inf)",
    ),
    "columns": (
        "def f(x):\n    n, d = x.shape\n    mu = x.sum(axis=0) / n\n    return (x - mu) / jnp.sqrt(d)\n",
        "f(jnp.arange({n} * 2.0).reshape({n}, 2))", "mu = jnp.sum(x, axis=0, where=keep[:, None]) / count\n",
    ),
    "attention": (
        "def f(x, w):\n    a = jax.nn.softmax(x @ w @ x.T, axis=-1)\n    return a @ x, a.T @ x\n",
        "f(jnp.arange({n} * 2.0).reshape({n}, 2) / 9, jnp.eye(2))", "return a @ jnp.where(keep[:, None], x, 0), jnp.where(keep, a.T, 0) @ jnp",
    ),
    "what came before": (
        "def f(x):\n    past = jnp.tril(jnp.ones((len(x), len(x))))\n    return past @ x, jax.lax.cummax(x)\n",
        "f(jnp.arange({n}.0))", "past = jnp.tril(jnp.ones((",
    ),
    "arrays put together, and added to": (
        "def f(x):\n    h = jnp.tanh(x)\n    with jax.named_scope('sums'):\n        h += x\n"
        "    return jnp.stack([h, x]).mean(axis=1), jnp.eye(len(x)) @ h\n",
        "f(jnp.arange({n}.0))", "h += x",
    ),
    "results of two lengths": (
        "def f(x, *, k=2.0):\n    return jnp.diff(x) * k, x[-1], x[1:] * x[:-1]\n",
        "f(jnp.arange({n}.0))", "return out[0][:n - 1], out[1], out[2][:n - 1]",
    ),
    "a loss in a helper": (
        "def loss(w, x, y):\n    return ((x @ w - y) ** 2).mean()\n\n"
        "def f(w, x, y):\n    return w - 0.1 * jax.grad(loss)(w, x, y)\n",
        "f(jnp.ones(2), jnp.arange({n} * 2.0).reshape({n}, 2), jnp.ones({n}))", "jax.grad(loss)(w, x, y, keep)",
    ),
    "derivatives stay finite": (
        "def f(w, x):\n    return jax.grad(lambda w: jnp.sum(jnp.log(w * x)))(w)\n",
        "f(2.0, jnp.arange(1.0, {n}))", 'mode="edge"',
    ),
    "a graph": (
        "def f(h, s, r):\n    m = h[s] - h[r]\n    return jax.ops.segment_sum(m, r, num_segments=len(h)).max() / len(s)\n",
        "f(jnp.arange({n}.0), jnp.zeros(2 * {n}, int), jnp.arange(2 * {n}) % 3)", "def f_padded(h, s, r, n, count)",
    ),
    "a batch of several arrays": (
        "def loss(w, b):\n    return ((b['x'] @ w - b['y']) ** 2).mean()\n\n"
        "def f(w, batch):\n    return jax.grad(loss)(w, batch)\n",
        "f(jnp.ones(2), {{'x': jnp.ones(({n}, 2)), 'y': jnp.arange({n}.0)}})",
        "jax.tree.map(lambda v: np.pad(v, ((0, size - n), *[(0, 0)] * (v.ndim - 1)), mode=\"edge\"), batch)",
    ),
    "batched attention": (
        "def f(x):\n    a = jax.nn.softmax(x @ x.swapaxes(-1, -2), axis=-1)\n    return a @ x\n",
        "f(jnp.arange({n} * 4.0).reshape(2, {n}, 2) / 9)", "f_padded(np.pad(x, ((0, 0), (0, size - n), (0, 0)), ",
    ),
    "what came out goes in again": (
        "def f(x):\n    return x / x.sum()\n", "f(jnp.diff(f(jnp.arange(1.0, {n} + 3.0))))", "x / jnp.sum(x, where=keep)",
    ),
    "rows from back to front": (
        "def f(x):\n    def step(c, v):\n        c = 0.9 * c + v\n        return c, jnp.tanh(c)\n"
        "    last, ys = jax.lax.scan(step, 0.0, x, reverse=True)\n    return last, ys.mean(), ys\n",
        "f(jnp.arange({n}.0))", "last, ys = jax.lax.scan(kept_step, 0.0, (x, keep), reverse=True)",
    ),
    "as many iterations as rows": (
        "def walk(c, n):\n    def step(c, _):\n        c = 0.5 * c + 1.0\n        return c, c\n\n    _, ys = jax.lax.scan(step, c, None, length=n)\n    return ys\n\n"
        "def f(x):\n    return jnp.sum(walk(1.0, x.shape[0]) * x)\n",
        "f(jnp.arange({n}.0))", "    return jnp.sum(walk(1.0, x.shape[0]) * x, where=keep)\n",
    ),
    "the state after as many iterations as rows": (
        "def f(x):\n    def step(c, _):\n        return 0.5 * c + 1.0, None\n\n    last, _ = jax.lax.scan(step, 0.0, None, len(x))\n    return last * x.sum()\n",
        "f(jnp.arange({n}.0))", "    last, _ = jax.lax.scan(kept_step, 0.0, (None, keep), len(x))\n",
    ),
    "rows by their numbers": (
        "def f(t, i):\n    v = jnp.take(t, i, axis=1, mode='clip')\n    return v.max(axis=1), t.take(i).mean()\n",
        "f(jnp.arange(12.0).reshape(2, 6), jnp.arange({n}) % 6)", "jnp.max(v, axis=1, where=keep, initial=-jnp.inf)",
    ),
    "a method that is given the length": (
        "class P:\n    def at(self, n):\n        return jnp.cos(jnp.arange(n)) / n\n\np = P()\n\n"
        "def f(x, i):\n    one = jnp.take_along_axis(x, i[:, None], axis=1)[:, 0]\n    return (one * p.at(len(x))).sum()\n",
        "f(jnp.arange({n} * 2.0).reshape({n}, 2), jnp.arange({n}) % 2)", "p.at(len(x), keep)",
    ),
    "an object that is called": (
        "class M:\n    def __init__(self, k):\n        self.k = k\n\n    def __call__(self, x):\n        return (self.k * x).mean()\n\nm = M(2.0)\n\n"
        "def f(x):\n    return m(x) + 1\n",
        "f(jnp.arange({n}.0))", "def __call__(self, x, keep)",
    ),
    "a static method": (
        "class M:\n    @staticmethod\n    def level(x, w):\n        return (w * x).sum() / w.sum()\n\n    def g(self, x):\n        return self.level(x, jnp.cos(x)) + M.level(x, x)\n\n"
        "def f(x):\n    return M().g(x)\n",
        "f(jnp.arange(1.0, {n}))", "def level(x, w, mask)",
    ),
    "a class method": (
        "class M:\n    k = 3.0\n\n    @classmethod\n    def level(cls, x):\n        return (cls.k * x).mean()\n\n"
        "def f(x):\n    return M.level(x)\n",
        "f(jnp.arange({n}.0))", "def level(cls, x, keep)",
    ),
    "one line": ("def f(x): return x.sum() / len(x)\n", "f(jnp.arange({n}.0))", "where=jnp.arange(x.shape[0]) < n"),
    "compiled by the cell": ("@jax.jit\ndef f(x):\n    return jnp.tanh(x)  # each\n", "f(jnp.arange({n}.0))", "f_padded(x):"),
}  # fmt: skip


def change_of(cell: str, call: str) -> Change:
    """The change for calls of the first two lengths. Raises CannotEdit where there is none."""
    calls = tuple(call.format(n=n) for n in LENGTHS[:2])
    checker = checked(cell, *calls)
    search = searching(checker)
    spot = search.spot(search.verifier.reruns.original, "", 1)
    found = list(padded_lengths(spot))
    if not found:
        raise CannotEdit("nothing is offered")
    return found[0]


@pytest.mark.parametrize("name", CASES)
def test_many_lengths_are_compiled_a_few_times(name: str) -> None:
    cell, call, part = CASES[name]
    change = change_of(cell, call)
    assert change.edits is not None and part in change.edits.result()
    spaces: list[dict[str, Any]] = [{"jax": jax, "jnp": jnp, "np": np} for _ in range(2)]
    for space, source in zip(spaces, (cell, change.edits.result()), strict=True):
        exec(source, space)
    for n in LENGTHS:
        wanted, got = (eval(call.format(n=n), space) for space in spaces)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 2e-4, 1e-5), wanted, got)
    assert change.functions == ("f_padded",) and spaces[1]["f_padded"]._cache_size() <= 2


@pytest.mark.parametrize(
    "cell",
    [
        "def f(x):\n    return jnp.fft.fft(x)[0]\n",
        "def f(x):\n    return jnp.flip(x)[0]\n",
        "class M:\n    def __call__(self, x):\n        return x.mean()\n\nm = M()\nms = [m]\n\ndef f(x):\n    return m(x)\n",
        "def f(x):\n    return jax.lax.scan(lambda s, v: (s + v, s), 0.0, x)[0]\n",
        "def f(x):\n    return x[::-1].sum() if x.shape[0] > 3 else x.reshape(-1, 1)\n",
        "def g(x):\n    return x.sum()\n\ndef f(x):\n    return g(x) + g(2.0 * jnp.ones(3))\n",
    ],
)
def test_what_is_not_understood_is_not_padded(cell: str) -> None:
    with pytest.raises(CannotEdit):
        change_of(cell, "f(jnp.arange({n}.0))")
