"""Keys in a traced program: used twice, fixed, captured."""

from __future__ import annotations

import pytest

from tests.silent.cells import facts, lines

TWICE = [
    ("def f(key):\n    a, b = jax.random.split(key)\n    x = jax.random.normal(b)\n    ks = jax.random.split(key, 3)\n    return x + jax.vmap(jax.random.normal)(ks)\n", "ks = jax.random.split(key, 3)"),
    ("def f(key):\n    x = jax.random.normal(jax.random.split(key)[0])\n    ks = jax.random.split(key, 4)\n    return jax.lax.map(jax.random.normal, ks) + x\n", "ks = jax.random.split(key, 4)"),
    ("def f(key):\n    ks = jax.random.split(key, 4)\n    g = jax.vmap(jax.random.normal)\n    key = g(ks[:2])\n    return key, g(ks[1:3])\n", "return key, g(ks[1:3])"),
    ("def f(key):\n    a = jax.random.normal(key)\n    b = jax.random.uniform(key)\n    return a + b\n", "b = jax.random.uniform(key)"),
    ("def f(key):\n    return [jax.random.normal(key) for _ in range(3)]\n", "return [jax.random.normal(key) for _ in range(3)]"),
    ("def g(key):\n    return jax.random.normal(key)\ndef f(key):\n    a = g(key)\n    return a + g(key)\n", "return a + g(key)"),
    ("def f(key):\n    k = key\n    return jax.random.normal(k) + jax.random.normal(key)\n", "return jax.random.normal(k) + jax.random.normal(key)"),
    ("def f(key):\n    k1, k2 = jax.random.split(key)\n    return jax.random.normal(k1), jax.random.normal(k1)\n", "return jax.random.normal(k1), jax.random.normal(k1)"),
    ("def f(key):\n    a, b = jax.random.split(key)\n    return jax.random.normal(key) + jax.random.normal(a)\n", "return jax.random.normal(key) + jax.random.normal(a)"),
    ("def view(key, x):\n    return jnp.tanh(x * 1.1) + jax.random.normal(key, (3,))\ndef f(key, x=0.5):\n    a = view(key, x)\n    b = view(key, x)\n    return (a - b) / 2.0\n", "b = view(key, x)"),
    ("def view(key, x):\n    return x * jax.random.normal(key, (3,))\ndef f(key, x=0.5):\n    a = view(key, x)\n    b = view(key, 2.0 * x)\n    return jnp.mean((a - b) ** 2)\n", "b = view(key, 2.0 * x)"),
    ("def f(key, h=0.1):\n    a = jax.random.normal(key)\n    b = jax.random.uniform(key)\n    return (a * 2.0 - b) / h\n", "b = jax.random.uniform(key)"),
    ("def f(key):\n    def step(c, _):\n        return c + jax.random.normal(key), None\n    return jax.lax.scan(step, 0.0, None, length=3)\n", "return c + jax.random.normal(key), None"),
    ("def f(key):\n    a = jax.random.binomial(key, 9.0, 0.2)\n    return a + jax.random.binomial(key, 9.0, 0.3)\n", "return a + jax.random.binomial(key, 9.0, 0.3)"),
    ("def f(key):\n    def step(c, _):\n        k, s = jax.random.split(c[0])\n        return (k, c[1] + jax.random.normal(s)), None\n    (_, x), _ = jax.lax.scan(step, (key, 0.0), None, length=3)\n    return x + jax.random.normal(key)\n", "return x + jax.random.normal(key)"),
    ("def f(key):\n    def step(c):\n        k, s = jax.random.split(c[0])\n        return k, c[1] + jax.random.uniform(s)\n    x = jax.random.uniform(key)\n    return jax.lax.while_loop(lambda c: c[1] < 2.0, step, (key, x))[1]\n", "return jax.lax.while_loop(lambda c: c[1] < 2.0, step, (key, x))[1]"),
]  # fmt: skip

ONCE = [
    "def price(key, s):\n    return jnp.maximum(s * jnp.exp(jax.random.normal(key, (8,))) - 1.0, 0.0).mean()\ndef f(key, s=1.0, h=0.1):\n    return price(key, s), (price(key, s + h) - price(key, s - h)) / (2 * h)\n",
    "def loss(key, w):\n    a, b = jax.random.split(key)\n    return jnp.sum((w * jax.random.normal(a, (3,)) - jax.random.uniform(b)) ** 2)\ndef f(key, w=1.0):\n    for _ in range(2):\n        key, k = jax.random.split(key)\n        w = w - 0.1 * (loss(k, w + 0.01) - loss(k, w - 0.01)) / 0.02\n    return w\n",
    "def walk(key, v):\n    def step(x, k):\n        return x + v * jax.random.normal(k), None\n    return jax.lax.scan(step, 0.0, jax.random.split(key, 3))[0]\ndef f(key, v=1.0):\n    return (walk(key, v + 0.1) - walk(key, v)) / 0.1\n",
    "def f(key):\n    ks = jax.random.split(key, 4)\n    g = jax.vmap(jax.random.normal)\n    return g(ks[:2]), g(ks[2:])\n",
    "def f(key):\n    a = jax.random.normal(jax.random.split(key)[0])\n    return a + jax.random.normal(jax.random.split(key, 3)[2])\n",
    "def f(key):\n    def g(k):\n        a, b = jax.random.split(k)\n        return jax.random.normal(a) + jax.random.normal(b)\n    return jax.vmap(g)(jax.random.split(key, 3))\n",
    "def f(key):\n    def g(k):\n        a, b = jax.random.split(k)\n        return jax.random.normal(a) + jax.random.normal(b)\n    return jax.lax.map(g, jax.random.split(key, 3))\n",
    "def f(key):\n    a, b = jax.random.split(key)\n    return jax.random.normal(a) + jax.random.normal(b)\n",
    "def f(key):\n    for _ in range(3):\n        key, k = jax.random.split(key)\n        x = jax.random.normal(k)\n    return x\n",
    "def f(key):\n    return [jax.random.normal(jax.random.fold_in(key, i)) for i in range(3)]\n",
    "def f(key):\n    return jax.vmap(jax.random.normal)(jax.random.split(key, 3))\n",
    "def f(key):\n    return jax.lax.cond(True, lambda: jax.random.normal(key), lambda: jax.random.uniform(key))\n",
    "def f(key):\n    def step(k, _):\n        k, s = jax.random.split(k)\n        return k, jax.random.normal(s)\n    return jax.lax.scan(step, key, None, length=3)[1]\n",
    "def f(key):\n    a, b, c = jax.random.split(key, 3)\n    return jax.random.binomial(a, 9.0, 0.2), jax.random.poisson(b, 3.0), jax.random.multinomial(c, 9, jnp.ones(3) / 3)\n",
    "def f(key):\n    def step(c, _):\n        k, s = jax.random.split(c[0])\n        return (k, c[1] + jax.random.normal(s)), None\n    (key, x), _ = jax.lax.scan(step, (key, 0.0), None, length=3)\n    return x + jax.random.normal(key)\n",
    "def f(key):\n    a, b, c = jax.random.split(key, 3)\n    return jax.random.permutation(a, 5), jax.random.gamma(b, 2.0), jax.random.choice(c, 5)\n",
]  # fmt: skip


@pytest.mark.parametrize("maker", ["jax.random.key(0)", "jax.random.PRNGKey(0)"])
@pytest.mark.parametrize(("cell", "line"), TWICE)
def test_a_key_that_two_draws_use(cell: str, line: str, maker: str) -> None:
    found = facts(cell, f"f({maker})").keys
    assert lines(found)[-1] == line
    assert {"key", "k", "k1"} & set(found[-1].names)


@pytest.mark.parametrize("cell", ONCE)
def test_keys_that_are_split_are_not_used_twice(cell: str) -> None:
    assert facts(cell, "f(jax.random.key(0))").keys == ()


def test_a_key_from_a_fixed_seed() -> None:
    cell = "def f(x):\n    rng = jax.random.key(3)\n    return x + jax.random.normal(rng)\n"
    (found,) = facts(cell, "f(1.0)").random
    assert (found.origin, found.where.source) == ("fixed", "rng = jax.random.key(3)")
    assert found.names[0] == "rng"


def test_a_seed_that_is_an_argument_is_not_fixed() -> None:
    cell = "def f(seed):\n    return jax.random.normal(jax.random.key(seed))\n"
    assert facts(cell, "f(1)").random == ()


def test_a_fixed_key_that_a_loop_carries_beside_an_argument() -> None:
    cell = (
        "def f(x):\n    key = jax.random.key(0)\n    def step(s, _):\n        x, key = s\n"
        "        key, k = jax.random.split(key)\n        return (x + jax.random.normal(k), key), None\n"
        "    return jax.lax.scan(step, (x, key), None, length=3)[0][0]\n"
    )
    (found,) = facts(cell, "f(1.0)").random
    assert found.where.source == "key = jax.random.key(0)"


def test_a_key_from_outside_is_named() -> None:
    cell = "def f(x):\n    return x + jax.random.normal(noise_key)\n"
    (found,) = facts(cell, "f(1.0)", setup="noise_key = jax.random.key(0)\n").random
    assert (found.origin, found.names[0]) == ("captured", "noise_key")


def test_replacements_that_are_thrown_away() -> None:
    cell = (
        "import dataclasses\nfrom typing import NamedTuple\nclass S(NamedTuple):\n    w: float\n\n"
        "def f(s, x):\n    s._replace(w=x)\n    x.astype(int)\n    text = str(x.dtype)\n    names = []\n"
        "    names.append(x.sum())\n    return s.w * x\n"
    )
    found = facts(cell, "f(S(2.0), jnp.ones(2))").dropped
    assert [(d.where.text, d.names[0]) for d in found] == [("s._replace(w=x)", "s"), ("x.astype(int)", "x")]


def test_calls_whose_results_are_thrown_away() -> None:
    cell = (
        "def new(p):\n    return p + 1\n\ndef told(p):\n    jax.debug.print('{}', p)\n    return p\n\n"
        "def f(x):\n    y = []\n    new(x)\n    told(x)\n    y.append(jnp.sin(x))\n    jnp.cos(x)\n"
        "    jax.lax.cond(x > 0, told, lambda v: v, x)\n    jax.lax.fori_loop(0, 3, lambda i, s: s + new(s), x)\n"
        "    return x\n"
    )
    found = facts(cell, "f(1.0)").dropped
    assert [d.where.text for d in found] == [
        "new(x)",
        "jnp.cos(x)",
        "jax.lax.fori_loop(0, 3, lambda i, s: s + new(s), x)",
    ]
    assert [d.by_jax for d in found] == [False, True, True]
