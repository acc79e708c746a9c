"""Corrections of random numbers, word for word: each use of a key has one of its own, each call passes another."""

from __future__ import annotations

import textwrap

import pytest

from tests.fixes.conftest import corrections

KEY = ("f(jax.random.key(0))",)

CASES = {
    "a key in the state that a loop begins with": (
        """
        def f(key, n):
            def step(s):
                k, sub = jax.random.split(s["key"])
                return {"key": k, "x": s["x"] + jax.random.normal(sub)}
            s = jax.lax.while_loop(lambda s: s["x"] < n, step, {"key": key, "x": 0.0})
            return s["x"] + jax.random.normal(key)
        """,
        """
        def f(key, n):
            def step(s):
                k, sub = jax.random.split(s["key"])
                return {"key": k, "x": s["x"] + jax.random.normal(sub)}
            key_s, sub2 = jax.random.split(key)
            s = jax.lax.while_loop(lambda s: s["x"] < n, step, {"key": key_s, "x": 0.0})
            return s["x"] + jax.random.normal(sub2)
        """,
        ("f(jax.random.key(0), 3.0)",),
        None,
    ),
    "two draws in a scan, another name for jax.random": (
        """
        import jax.random as jr
        from jax import lax
        def f(key, xs):
            def body(c, x):
                # noise
                c = c + jr.normal(key) * x
                return c, c + jr.uniform(key)
            return lax.scan(body, 0.0, xs)
        """,
        """
        import jax.random as jr
        from jax import lax
        def f(key, xs):
            def body(c, x_and_key):
                # noise
                x, sub = x_and_key
                key_c, sub2 = jr.split(sub)
                c = c + jr.normal(key_c) * x
                return c, c + jr.uniform(sub2)
            return lax.scan(body, 0.0, (xs, jr.split(key, len(xs))))
        """,
        ("f(jax.random.key(0), jnp.ones(3))",),
        None,
    ),
    "a comprehension beside plain draws": (
        """
        from jax.random import normal, uniform
        def f(key):
            w = normal(
                key,  # first
                (3,),
            )
            b = uniform(key)
            c = [normal(key) for _ in range(2)]
            return w + b + c[0]
        """,
        """
        from jax.random import normal, uniform
        def f(key):
            key_w, key_b, key_c = jax.random.split(key, 3)
            w = normal(
                key_w,  # first
                (3,),
            )
            b = uniform(key_b)
            c = [normal(jax.random.fold_in(key_c, i)) for i in range(2)]
            return w + b + c[0]
        """,
        KEY,
        None,
    ),
    "branches and a loop": (
        """
        def f(key, flag=True):
            a = jax.random.normal(key)
            if flag:
                b = jax.random.normal(key)
            else:
                b = jax.random.uniform(key)
            for i in range(2):
                a += jax.random.normal(key)
            return a + b
        """,
        """
        def f(key, flag=True):
            key, key_a = jax.random.split(key)
            a = jax.random.normal(key_a)
            if flag:
                key, key_b = jax.random.split(key)
                b = jax.random.normal(key_b)
            else:
                key, sub = jax.random.split(key)
                b = jax.random.uniform(sub)
            for i in range(2):
                key, sub2 = jax.random.split(key)
                a += jax.random.normal(sub2)
            return a + b
        """,
        KEY,
        None,
    ),
    "a key in a dict": (
        """
        def f(state):
            out = 0.0
            for _ in range(2):
                out = out + jax.random.normal(state['key'])
            return out
        """,
        """
        def f(state):
            out = 0.0
            key = state['key']
            for _ in range(2):
                key, sub = jax.random.split(key)
                out = out + jax.random.normal(sub)
            return out
        """,
        ("f({'key': jax.random.key(0)})",),
        None,
    ),
    "two draws in a fori_loop": (
        """
        def f(key):
            def body(i, s):
                a = jax.random.normal(key)
                return s + a * jax.random.uniform(key)
            return jax.lax.fori_loop(0, 3, body, 0.0)
        """,
        """
        def f(key):
            def body(i, s):
                key_a, sub = jax.random.split(jax.random.fold_in(key, i))
                a = jax.random.normal(key_a)
                return s + a * jax.random.uniform(sub)
            return jax.lax.fori_loop(0, 3, body, 0.0)
        """,
        KEY,
        None,
    ),
    "methods, and calls in the cell and later": (
        """
        import numpy.random as npr
        class Net:
            def __init__(self):
                self.rate = 0.5
            def drop(self, x):
                return x * (npr.uniform(0, 1, x.shape) > self.rate)
            def __call__(self, x):
                for _ in range(2):
                    x = self.drop(jnp.tanh(x))
                return x
        net = Net()
        def f(x):
            return net(x)
        for i in range(2):
            y = f(jnp.ones(3))
        """,
        """
        import numpy.random as npr
        class Net:
            def __init__(self):
                self.rate = 0.5
            def drop(self, x, key):
                return x * (jax.random.uniform(key, x.shape, minval=0, maxval=1) > self.rate)
            def __call__(self, x, key):
                for _ in range(2):
                    key, sub = jax.random.split(key)
                    x = self.drop(jnp.tanh(x), sub)
                return x
        net = Net()
        def f(x, key):
            return net(x, key)
        key = jax.random.key(1)
        for i in range(2):
            key, sub2 = jax.random.split(key)
            y = f(jnp.ones(3), sub2)
        """,
        ("f(jnp.ones(3))",),
        ("f(jnp.ones(3), jax.random.key(0))",),
    ),
    "a gradient with a name, and a seed": (
        """
        def loss(w, x):
            eps = jax.random.normal(jax.random.PRNGKey(42), x.shape)
            return ((w * x + eps) ** 2).sum()
        grads = jax.value_and_grad(loss)
        def f(w, x):
            return grads(w, x)
        """,
        """
        def loss(w, x, key):
            eps = jax.random.normal(key, x.shape)
            return ((w * x + eps) ** 2).sum()
        grads = jax.value_and_grad(loss)
        def f(w, x, key):
            return grads(w, x, key)
        """,
        ("f(1.0, jnp.ones(3))", "f(2.0, jnp.ones(3))"),
        ("f(1.0, jnp.ones(3), jax.random.PRNGKey(42))", "f(2.0, jnp.ones(3), jax.random.PRNGKey(43))"),
    ),
    "an inner function that is called twice": (
        """
        def f(x):
            def inner(y):
                return y + np.random.randn(*y.shape)
            return inner(x) - inner(2 * x)
        """,
        """
        def f(x, key):
            def inner(y, rng):
                return y + jax.random.normal(rng, y.shape)
            sub, sub2 = jax.random.split(key)
            return inner(x, sub) - inner(2 * x, sub2)
        """,
        ("f(jnp.ones(3))",),
        ("f(jnp.ones(3), jax.random.key(0))",),
    ),
    "loops in later cells": (
        """
        def f(x):
            key = jax.random.PRNGKey(7)
            a = jax.random.normal(key, x.shape)
            return x + a
        """,
        """
        def f(x, key):
            a = jax.random.normal(key, x.shape)
            return x + a
        """,
        ("for _ in range(3):\n    x = f(jnp.ones(2))", "y = [f(v) for v in (x, x)]"),
        (
            "key = jax.random.PRNGKey(8)\nfor _ in range(3):\n    key, sub = jax.random.split(key)\n"
            "    x = f(jnp.ones(2), sub)",
            "y = [f(v, jax.random.fold_in(jax.random.PRNGKey(7), i)) for i, v in enumerate((x, x))]",
        ),
    ),
    "the default of a helper's parameter": (
        """
        def noise(x, key=jax.random.key(3)):
            return x + jax.random.normal(key)
        def f(x):
            return noise(2 * x)
        """,
        """
        def noise(x, key=jax.random.key(3)):
            return x + jax.random.normal(key)
        def f(x, key):
            return noise(2 * x, key=key)
        """,
        ("f(1.0)",) * 2,
        ("f(1.0, jax.random.key(3))", "f(1.0, jax.random.key(4))"),
    ),
    "a key that an object holds": (
        """
        class M:
            def __init__(self):
                self.key = jax.random.key(1)
            def __call__(self, x):
                return x + jax.random.normal(self.key, x.shape)
        m = M()
        def f(x):
            return m(x)
        """,
        """
        class M:
            def __init__(self):
                self.key = jax.random.key(1)
            def __call__(self, x, key):
                return x + jax.random.normal(key, x.shape)
        m = M()
        def f(x, key):
            return m(x, key)
        """,
        ("f(jnp.ones(2))",) * 2,
        ("f(jnp.ones(2), jax.random.fold_in(m.key, 0))", "f(jnp.ones(2), jax.random.fold_in(m.key, 1))"),
    ),
    "a generator of an object, two methods deep": (
        """
        class Drop:
            def __init__(self):
                self.rng = np.random.default_rng(0)
            def mask(self, shape):
                return self.rng.random(shape) < 0.5
            def __call__(self, x):
                return x * self.mask(x.shape)
        drop = Drop()
        def f(x):
            return drop(x) + 1
        """,
        """
        class Drop:
            def __init__(self):
                self.rng = np.random.default_rng(0)
            def mask(self, shape, key):
                return jax.random.uniform(key, shape) < 0.5
            def __call__(self, x, key):
                return x * self.mask(x.shape, key)
        drop = Drop()
        def f(x, key):
            return drop(x, key) + 1
        """,
        ("f(jnp.ones(9))",) * 2,
        ("f(jnp.ones(9), jax.random.key(0))", "f(jnp.ones(9), jax.random.key(1))"),
    ),
    "a draw under another name, through a partial function": (
        """
        from functools import partial
        from numpy.random import standard_normal as draw
        def noisy(scale, x):
            return x + scale * draw(x.shape)
        diffuse = partial(noisy, 0.5)
        def f(x):
            return diffuse(2 * x)
        """,
        """
        from functools import partial
        from numpy.random import standard_normal as draw
        def noisy(scale, x, key):
            return x + scale * jax.random.normal(key, x.shape)
        diffuse = partial(noisy, 0.5)
        def f(x, key):
            return diffuse(2 * x, key=key)
        """,
        ("f(jnp.ones(2))",) * 2,
        ("f(jnp.ones(2), jax.random.key(0))", "f(jnp.ones(2), jax.random.key(1))"),
    ),
    "a partial function that has a later argument": (
        """
        from functools import partial
        def toss(x, p):
            return x * (np.random.random() < p)
        coin = partial(toss, p=0.5)
        def f(x):
            return coin(2 * x)
        """,
        """
        from functools import partial
        def toss(x, p, key):
            return x * (jax.random.uniform(key, ()) < p)
        coin = partial(toss, p=0.5)
        def f(x, key):
            return coin(2 * x, key=key)
        """,
        ("f(jnp.ones(2))",) * 2,
        ("f(jnp.ones(2), jax.random.key(0))", "f(jnp.ones(2), jax.random.key(1))"),
    ),
    "a later function": (
        """
        def f(x):
            return x + random.uniform(0.5, 1.5) + random.randint(1, 6)
        """,
        """
        def f(x, key):
            sub, sub2 = jax.random.split(key)
            return x + jax.random.uniform(sub, (), minval=0.5, maxval=1.5) + jax.random.randint(sub2, (), 1, 6 + 1)
        """,
        ("def g(x):\n    return f(x) + f(2 * x)", "g(1.0)"),
        (
            "def g(x, key):\n    sub, sub2 = jax.random.split(key)\n    return f(x, sub) + f(2 * x, sub2)",
            "g(1.0, jax.random.key(0))",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_random_numbers(name: str) -> None:
    before, after, calls, later = CASES[name]
    kinds = ("key-reuse", "hidden-rng")
    cell = textwrap.dedent(before).lstrip("\n")
    fix = next(f for kind, f in corrections(cell, calls, setup="import random\n") if kind in kinds)
    assert (fix.verified, fix.applicability, fix.tested) == (True, "unsafe", "cell")
    assert fix.cell == textwrap.dedent(after).lstrip("\n")
    assert fix.calls == later


def test_a_cell_that_cannot_run_again_is_tested_on_its_calls() -> None:
    cell = (
        "def f(x, s=2.0):\n    h = s * x\n    return h + np.random.normal(size=h.shape)\n"
        "__import__('os').system('true')\n"
    )
    [(kind, fix)] = corrections(cell, ("f(jnp.ones(2))",))
    assert (kind, fix.verified, fix.tested, fix.applicability) == ("hidden-rng", True, "calls", "unsafe")
    assert fix.calls == ("f(jnp.ones(2), key=jax.random.key(0))",)


@pytest.mark.parametrize(
    "cell",
    [
        "def f(x):\n    return x + np.random.poisson(3.0, x.shape)[np.random.zipf(2.0)]\n",
        "def f(x):\n    return jnp.stack([x + np.random.binomial(3, 0.5) for _ in range(3)])\n",
    ],
)
def test_a_draw_that_jax_does_not_have_is_left_in_a_loop(cell: str) -> None:
    assert not any(f.verified for _, f in corrections(cell, ("f(jnp.ones(9))",)))
