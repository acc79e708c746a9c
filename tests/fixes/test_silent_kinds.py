"""Fixes of the silent kinds: what they propose was run and does away with the problem."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.silent.cells import checked, finding, told

CELLS = [
    ("hidden-rng", "def f(x):\n    key = jax.random.key(0)\n    return x + jax.random.normal(key)\n", ["f(1.0)"] * 2, "", {}),
    ("hidden-rng", "def f(x, s=1.0):\n    return x * s + np.random.normal(size=x.shape)\n", ["f(jnp.ones(2))"] * 2, "", {}),
    ("hidden-rng", "def f(x):\n    return x + jax.random.normal(key)\n", ["f(1.0)"] * 2, "key = jax.random.key(0)\n", {}),
    ("hidden-rng", "def f(x, key=jax.random.key(0)):\n    return x + jax.random.normal(key)\n", ["f(1.0)"] * 2, "", {}),
    ("frozen-side-effect", "def now():\n    return time.time()\ndef g():\n    return now()\ndef f(x):\n    return x * g()\n", ["f(1.0)"] * 2, "import time\n", {}),
    ("stale-constant", "def f(x):\n    return x / len(seen)\n", ["f(1.0)", "seen.append(2.0)", "f(1.0)"], "seen = [1.0]\n", {}),
    ("stale-constant", "def f(x):\n    return sum(x**p for p in powers)\n", ["f(2.0)", "powers = (1, 2, 3)", "f(2.0)"], "powers = (1, 2)\n", {}),
    ("stale-constant", "def f(x):\n    return act(x)\n", ["f(1.0)", "act = jnp.cos", "f(1.0)"], "act = jnp.sin\n", {}),
    ("hidden-rng", "import numpy as onp\ndef f(x, n=40):\n    return x + onp.random.choice(x.shape[0], size=n)\n", ["f(jnp.ones(40))"] * 2, "", {}),
    ("state-write", "def f(v):\n    return v + queue.pop(0)\n", ["f(1.0)"] * 2, "queue = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]\n", {}),
    ("trace-time-print", "import warnings\ndef f(x):\n    y = x + 1\n    warnings.warn(f'now {y}')\n    return y\n", ["f(1.0)"], "", {}),
    ("key-reuse", "def f(key):\n    return jax.lax.fori_loop(0, 3, lambda i, x: x + jax.random.normal(key), 0.0)\n", ["f(jax.random.key(0))"], "", {}),
    ("trace-time-print", "import sys\ndef f(x):\n    sys.stdout.write('x ' + str(x) + '\\n')\n    return x + 1\n", ["f(1.0)"], "", {}),
    ("recompile-weak-type", "from typing import NamedTuple\nclass S(NamedTuple):\n    n: int\ndef f(s):\n    return S(s.n + jnp.int32(1))\n", ["s = S(0)", "s = f(s)", "s = f(s)"], "", {}),
    ("key-reuse", "def f(key):\n    return {i: jax.random.normal(key, s) for i, s in enumerate([(2,), (3,)])}\n", ["f(jax.random.key(0))"], "", {}),
    ("key-reuse", "def f(key):\n    return [jax.random.normal(key, (m, n)) for m, n in zip((2, 3), (4, 5))]\n", ["f(jax.random.key(0))"], "", {}),
    ("trace-time-print", "def g(emit, *values):\n    emit('now', *values)\ndef f(x):\n    g(print, x, 2 * x)\n    return x\n", ["f(1.0)"], "", {}),
    ("trace-time-print", "def f(x):\n    m = {'x': x * 2}\n    pprint.pprint(m)\n    return m['x']\n", ["f(1.0)"], "import pprint\n", {}),
    ("trace-time-print", "class N:\n    def __init__(self, log):\n        self.log = log\n    def g(self, x):\n        self.log(f'now {x}')\n        return x * 2\nn = N(print)\ndef f(x):\n    return n.g(x) + 1\n", ["f(1.0)"], "", {}),
    ("trace-time-print", "def told(g):\n    def inner(x):\n        y = g(x)\n        tell('y', y)\n        return y\n    return inner\n@told\ndef h(x):\n    return 2 * x\ndef f(x):\n    return h(x)\n", ["f(1.0)"], "tell = print\n", {}),
    ("trace-time-print", "def f(x, w=print):\n    any(map(w, [x, 2 * x]))\n    return x * 2\n", ["f(1.0)"], "", {}),
    ("trace-time-print", "def f(x):\n    print('x', x, end=' ')\n    return x + 1\n", ["f(1.0)"], "", {}),
    ("hidden-rng", "def noise(x):\n    return jax.random.normal(jax.random.PRNGKey(3), x.shape)\ndef g(x):\n    return x + noise(x)\ndef f(x, s=2.0):\n    y = g(x)\n    return s * y + noise(y)\n", ["f(jnp.ones(2))"] * 2, "", {}),
    ("hidden-rng", "class N:\n    def __call__(self, x):\n        key = jax.random.key(0)\n        return x + jax.random.normal(key)\nclass M:\n    def __init__(self):\n        self.n = N()\n    def run(self, x):\n        return self.n(x)\nm = M()\ndef f(x):\n    y = 2 * x\n    return m.run(y)\n", ["f(1.0)"] * 2, "", {}),
    ("key-reuse", "def f(key):\n    a = jax.random.normal(key)\n    b = jax.random.normal(key)\n    return a, b\n", ["f(jax.random.key(0))"], "", {}),
    ("recompile-weak-type", "def f(t, x):\n    return t + x\n", ["t = 0.0", "t = f(t, jnp.float32(1))", "t = f(t, jnp.float32(2))"], "", {}),
    ("recompile-weak-type", "def f(s, x):\n    return {'n': s['n'] + jnp.int32(1), 'm': x + s['m']}\n", ["s = {'n': 0, 'm': -1.0}", "s = f(s, jnp.float32(1))", "s = f(s, jnp.float32(2))"], "", {}),
    ("recompile-shape", "def f(r, g=0.9):\n    t = jnp.arange(r.shape[0])\n    return jnp.sum(r * g**t)\n", [f"f(jnp.ones({n}))" for n in (3, 4, 5)], "", {}),
    ("recompile-shape", "def f(p, *, q):\n    d = p - q\n    return (d * d).sum() / d.size\n", [f"f(jnp.ones({n}), q=jnp.zeros({n}))" for n in (3, 4, 5)], "", {}),
    ("recompile-shape", "def g(w, x, y):\n    return ((x @ w - y) ** 2).mean()\ndef f(w, x, y):\n    v, d = jax.value_and_grad(g)(w, x, y)\n    return w - d, v\n", [f"f(jnp.ones(2), jnp.ones(({n}, 2)), jnp.ones({n}))" for n in (3, 4, 5)], "", {}),
    ("recompile-shape", "def f(h, s):\n    return jnp.zeros(len(h)).at[s].add(1.0) @ h\n", [f"f(jnp.ones({n}), jnp.zeros({n + 2 % n}, int))" for n in (3, 4, 5)], "", {}),
    ("recompile-new-function", "def f(x, opt):\n    return opt[0](x)\n", ["f(1.0, make())"] * 3, "def make():\n    return (lambda v: v * 2, 3)\n", {"static_argnames": "opt"}),
    ("stale-constant", "def f(x):\n    return -x if FLIP else x\n", ["f(1.0)", "FLIP = True", "f(1.0)"], "FLIP = False\n", {}),
    ("stale-constant", "def f(x):\n    return getattr(jnp, cfg['op'])(x)\n", ["f(1.0)", "cfg['op'] = 'cos'", "f(1.0)"], "cfg = {'op': 'sin'}\n", {}),
    ("trace-time-print", "def f(x):\n    bar = tqdm(range(3))\n    for i in bar:\n        x = x + i\n        bar.set_description('x')\n    return x\n", ["f(1.0)"], "class tqdm(list):\n    __module__ = 'tqdm.std'\n    def set_description(self, text): pass\n", {}),
    ("recompile-new-function", "def f(x, g):\n    return g(x)\n", ["f(1.0, lambda v: v * 2)"] * 3, "", {"static_argnames": "g"}),
    ("recompile-static", "class G:\n    def __init__(self, m):\n        self.m = m\ndef f(g, x):\n    return x - g.m\n", [f"f(G({i}.5), 1.0)" for i in range(3)], "", {"static_argnames": "g"}),
    ("recompile-static", "def f(x, h):\n    return x * h.lr\n", [f"f(1.0, h=H({i}.5))" for i in range(3)], "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass H:\n    lr: float\n", {"static_argnames": "h"}),
    ("key-reuse", "def f(key):\n    out = []\n    for i in range(3):\n        keys = jax.random.split(key)\n        out.append(jax.random.normal(keys[1]))\n    return jnp.stack(out)\n", ["f(jax.random.key(0))"], "", {}),
    ("hidden-rng", "def f(x):\n    h = jnp.tanh(x)\n    return h * (np.random.rand(*h.shape) > 0.5)\n", ["f(jnp.ones(9))"] * 2, "", {}),
    ("large-constant", "def f(x, w=W):\n    return w @ x\n", ["f(jnp.ones(600))"], "W = np.ones((600, 600))\n", {}),
    ("stale-constant", "def f(x):\n    return x * args.k\n", ["f(1.0)", "args.k = 3.0", "f(1.0)"], "import argparse\nargs = argparse.Namespace(k=2.0)\n", {}),
    ("hidden-rng", "def g(w, x):\n    noise = np.random.normal(0.0, 0.1, size=3)\n    return ((w * x + noise) ** 2).sum()\ndef f(w, x):\n    return jax.value_and_grad(g, argnums=0)(w, x)\n", ["f(1.0, jnp.ones(3))"] * 2, "", {}),
    ("key-reuse", "def f(key):\n    a = jax.random.split(key, 3)\n    b = jax.random.split(key, 3)\n    g = jax.vmap(jax.random.normal)\n    return g(a), g(b)\n", ["f(jax.random.key(0))"], "", {}),
    ("key-reuse", "def f(key):\n    a = jax.random.normal(jax.random.fold_in(key, 1))\n    return a, jax.random.normal(jax.random.fold_in(key, 1))\n", ["f(jax.random.key(0))"], "", {}),
    ("key-reuse", "def f(key):\n    a, b = jax.random.split(key)\n    ks = jax.random.split(key, 3)\n    return jax.random.normal(a) - jax.random.normal(b), jax.vmap(jax.random.normal)(ks)\n", ["f(jax.random.key(0))"], "", {}),
    ("key-reuse", "def f(key):\n    return {n: jax.random.normal(key, s) for n, s in (('a', (2,)), ('b', (2,)))}\n", ["f(jax.random.key(0))"], "", {}),
    ("hidden-rng", "def g(x):\n    return x + jax.random.normal(K)\ndef f(x):\n    return 2 * g(x)\n", ["f(1.0)"] * 2, "K = jax.random.key(0)\n", {}),
    ("hidden-rng", "def g(h):\n    return h + np.random.normal(0, 0.1, size=h.shape)\ndef f(x):\n    h = 2 * x\n    return g(h)\n", ["f(jnp.ones(2))"] * 2, "", {}),
    ("hidden-rng", "def g(x):\n    return x * random.gauss(1.0, 0.5)\ndef f(xs):\n    return jax.vmap(g)(xs)\n", ["f(jnp.ones(2))"] * 2, "import random\n", {}),
    ("hidden-rng", "def f(x):\n    y = 2 * x\n    return y + rng.normal(1.0, size=y.shape) * rng.random(len(y))\n", ["f(jnp.ones(2))"] * 2, "rng = np.random.default_rng(0)\n", {}),
    ("state-write", "def f(x):\n    seen['n'] += 1\n    return x, seen['n']\n", ["a, b = f(1.0)", "a, b = f(a)"], "from collections import Counter\nseen = Counter()\n", {}),
    ("state-write", "def f(x, s=2.0):\n    n[0] += 1\n    if s is None:\n        return x\n    return s * x\n", ["f(1.0)"] * 2, "n = np.zeros(1)\n", {}),
    ("unrolled-loop", "def f(x):\n    for t in range(50):\n        x = x + 0.01 * jnp.cos(x) * t\n    return x\n", ["f(1.0)"], "", {}),
    ("nan", "def f(x):\n    g = lambda t: jnp.where(t < 1.0, t, jnp.sqrt(t))\n    return jax.grad(g)(x)\n", ["f(0.0)"], "", {}),
    ("jit-differs-from-eager", "def f(v):\n    if type(v) is T:\n        return v * 2\n    return v\n", ["f(jnp.float32(1))"], "T = type(jnp.ones(1))\n", {}),
    ("dtype-truncation", "def f(ids):\n    return ids % 1000\n", ["f(np.array([2**32 + 5, 7]))"], "", {}),
    ("unrolled-loop", "def f(X):\n    K = jnp.zeros((9, 9))\n    for i in range(9):\n        for j in range(9):\n            if i != j:\n                K = K.at[i, j].set(X[i] * X[j])\n    return K\n", ["f(jnp.arange(9.0))"], "", {}),
    ("unrolled-loop", "def f(s, r):\n    S, R = [s], []\n    for t in range(60):\n        q = r * S[-1]\n        R.append(q)\n        S.append(S[-1] - q)\n    return jnp.stack(S), jnp.array(R), q\n", ["f(0.9, 0.1)"], "", {}),
    ("unrolled-loop", "def f(xs):\n    R = 0.0\n    out = []\n    for x in reversed(xs):\n        R = x + 0.9 * R\n        out.insert(0, R)\n    return jnp.array(out)\n", ["f(jnp.arange(60.0))"], "", {}),
    ("unrolled-loop", "def f(xs, ys):\n    d = [jnp.sqrt(abs(x - y)) + x * y for x, y in zip(xs, ys)]\n    return jnp.stack(d, axis=-1)\n", ["f(jnp.ones((30, 2)), jnp.zeros((30, 2)))"], "", {}),
    ("unrolled-loop", "def f(xs):\n    return jnp.array([[jnp.exp(-(a - b) ** 2) for b in xs] for a in xs])\n", ["f(jnp.arange(9.0))"], "", {}),
    ("unrolled-loop", "def f(xs):\n    return jnp.array([jnp.exp(-(a - b) ** 2) for b in xs for a in xs])\n", ["f(jnp.arange(9.0))"], "", {}),
    ("unrolled-loop", "def f(x):\n    kept = []\n    for t in range(3, 60):\n        x = x + 0.1 * jnp.sin(x)\n        if t > 5 and t % 7 == 0:\n            kept.append(x * t)\n    return jnp.stack(kept)\n", ["f(jnp.ones(2))"], "", {}),
    ("nan", "def f(w):\n    e = jnp.exp(w)\n    return jnp.log(e.mean())\n", ["f(jnp.array([-999.0, -1000.0]))"], "", {}),
    ("jit-differs-from-eager", "def f(x, up):\n    if isinstance(up, bool):\n        return x + 1 if up else x\n    return 0 * x\n", ["f(2.0, True)"], "", {}),
    ("jit-differs-from-eager", "def f(x, up):\n    return x * ~up\n", ["f(jnp.arange(3), True)"], "", {}),
    ("jit-differs-from-eager", "def f(x, s):\n    if np.isscalar(s):\n        return x * s\n    return x\n", ["f(jnp.ones(2), 2.0)"], "", {}),
    ("dtype-truncation", "def f(s):\n    return {'age': s['now'] - s['born'], 'w': s['w'] * 2}\n", ["f({'now': 1.7e9 + 3.5, 'born': 1.7e9, 'w': jnp.ones(2)})"], "", {}),
    ("dtype-truncation", "def f(p, at):\n    return jnp.diff(p) + (p[1] - at)\n", ["f(np.array([1e8, 1e8 + 1.25]), 1e8)"], "", {}),
    ("lossy-pytree", "class C:\n    def __init__(self, k):\n        self.k = k\n        self.seen = 0.0\njax.tree_util.register_pytree_node(C, lambda c: ((c.k,), None), lambda _, parts: C(parts[0]))\ndef f(c):\n    return c.k + c.seen\n", ["c = C(1.0)", "c.seen = 2.0", "f(c)"], "", {}),
    ("user-error", "def f(x, s):\n    s = [s] * 2 if isinstance(s, float) else list(s)\n    return x * s[0] + s[1]\n", ["f(jnp.ones(2), 0.5)"], "", {}),
    ("lossy-pytree", "class A:\n    def __init__(self, k):\n        self.k = k\n    def tree_flatten(self):\n        return (self.k,), None\n    @classmethod\n    def tree_unflatten(cls, aux, parts):\n        return cls(*parts)\n@jax.tree_util.register_pytree_node_class\nclass B(A):\n    def __init__(self, k, n=1):\n        super().__init__(k)\n        self.n = n\ndef f(b):\n    return b.k * b.n\n", ["f(B(2.0, 3))"], "", {}),
    ("unrolled-loop", "def make(n):\n    def f(x):\n        for _ in range(n):\n            x = x + jnp.sin(x) * jnp.cos(x)\n        return x\n    return f\nf = jax.jit(make(40))\n", ["f(1.0)"], "", {}),
    ("dtype-truncation", "def f(t):\n    return t - t[0]\n", ["f(np.array([1.7e9, 1.7e9 + 0.5]))"], "", {}),
    ("dtype-truncation", "def f(t):\n    return t - 1_700_000_000\n", ["f(np.array([1.7e9 + 0.5]))"], "", {}),
    ("dtype-truncation", "def f(n):\n    return n * 3_000_000_000\n", ["f(jnp.arange(3))"], "", {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "cell", "calls", "setup", "options"), CELLS)
def test_a_fix_that_was_run(
    kind: str, cell: str, calls: list[str], setup: str, options: dict[str, str]
) -> None:
    found = finding(kind, cell, *calls, setup=setup, **options)
    assert found.severity != "note"
    fixes = [f for f in found.fixes if f.verified]
    assert fixes and fixes[0].evidence
    assert fixes[0].cell != cell or fixes[0].calls


@pytest.mark.parametrize(
    ("cell", "call"),
    [
        (
            "def f(x):\n    g = lambda v: jnp.sum(v ** 0.5)\n    return jax.grad(g)(x)\n",
            "f(jnp.array([0.0, 4.0]))",
        ),
        ("def f(x):\n    g = lambda v: v.std() + jnp.std(v)\n    return jax.grad(g)(x)\n", "f(jnp.ones(3))"),
        (
            "def f(v):\n    unit = lambda v: v / jnp.sqrt(v @ v)\n    return jax.jacobian(unit)(v)\n",
            "f(jnp.zeros(2))",
        ),
        ("def f(p):\n    return jax.grad(lambda p: jnp.arctan2(p[1], p[0]))(p)\n", "f(jnp.zeros(2))"),
        ("def f(k):\n    return jnp.linalg.cholesky(k)\n", "f(jnp.ones((3, 3)))"),
        (
            "def f(s, m):\n    s = jnp.where(m, -jnp.inf, s)\n    return jnp.tanh(s - s.max(1, keepdims=True))\n",
            "f(jnp.ones((2, 3)), jnp.array([[True], [False]]))",
        ),
    ],
)
def test_values_at_the_border_are_kept_away_and_left_to_judgement(cell: str, call: str) -> None:
    (fix,) = finding("nan", cell, call).fixes
    assert (fix.applicability, fix.verified) == ("unsafe", True) and "a choice" in (fix.claim or "")


@pytest.mark.parametrize(
    "cell",
    [
        "def f(x):\n    def step(x, _):\n        x = x + np.random.normal()\n        return x, x\n    return jax.lax.scan(step, x, None, length=3)[1]\n",
        "def f(x):\n    out = []\n    for _ in range(3):\n        x = x + np.random.normal()\n        out.append(x)\n    return jnp.stack(out)\n",
    ],
)
def test_each_turn_of_a_loop_draws_other_numbers(cell: str) -> None:
    fix = next(f for f in finding("hidden-rng", cell, "f(0.0)", "f(0.0)").fixes if f.verified)
    namespace: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np}
    exec(fix.cell or "", namespace)
    steps = np.diff(namespace["f"](0.0, jax.random.key(0)))
    assert abs(steps[0] - steps[1]) > 1e-3


def test_all_numbers_that_come_back_as_arrays_start_as_arrays() -> None:
    cell = "def f(s, x):\n    m, n = s\n    return m + x, n + 1\n"
    found = finding("recompile-weak-type", cell, "s = (0.0, 0)", *["s = f(s, jnp.float32(1))"] * 2)
    (fix,) = found.fixes
    assert fix.calls and fix.calls[0] == "s = (jnp.float32(0.0), jnp.int32(0))"


def test_several_stores_are_mended_together() -> None:
    cell = "def f(x):\n    seen['a'] = jnp.sum(x)\n    seen['b'] = x * 2\n    return x + 1\n"
    found = told(checked(cell, "f(jnp.ones(2))", setup="seen = {}\n"))
    fixes = [next(x for x in f.fixes if x.verified) for f in found if f.kind == "leaked-tracer"]
    assert len(fixes) == 2 and all(f.tested == "cell" for f in fixes)


def test_an_entry_that_is_not_there_yet_cannot_be_passed() -> None:
    cell = "def f(x):\n    last['x'] = 1.0\n    return x\n"
    assert finding("state-write", cell, "f(1.0)", "f(2.0)", setup="last = {}\n").fixes == ()


def test_a_key_that_a_loop_hands_to_a_helper_again_is_told_and_split_in_the_loop() -> None:
    cell = (
        "def walk(key, x):\n    up, side = jax.random.split(key)\n"
        "    return x + jax.random.normal(up) * jax.random.uniform(side)\n"
        "def f(key, x):\n    for scale in (1.0, 2.0, 4.0):\n        x = walk(key, scale * x)\n    return x\n"
    )
    found = finding("key-reuse", cell, "f(jax.random.key(0), 1.0)")
    assert (
        found.span
        and found.span.source == "x = walk(key, scale * x)"
        and "in each iteration" in found.message
    )
    [fix] = found.fixes
    assert fix.verified and fix.cell and "key, " in fix.cell.partition("(1.0, 2.0, 4.0):")[2]


def test_a_key_from_outside_that_goes_into_other_code_is_told_where_it_is_read() -> None:
    setup = "KEY = jax.random.key(1)\ndef noisy(x, keys):\n    return x + jax.random.normal(keys['noise'])\n"
    cell = "def f(x):\n    return noisy(x, keys={'noise': KEY})\n"
    found = finding("hidden-rng", cell, "f(1.0)", "f(1.0)", setup=setup)
    assert found.span and found.span.source == "return noisy(x, keys={'noise': KEY})"
    [fix] = found.fixes
    assert fix.verified and "def f(x, KEY):" in (fix.cell or "")


@pytest.mark.parametrize("key", ["jax.random.key(0)", "KEY"])
def test_a_helper_that_draws_from_a_fixed_key_is_not_an_argument(key: str) -> None:
    cell = (
        f"def noise(x):\n    return x + jax.random.normal({key})\ndef f(x):\n    y = noise(x)\n    return y\n"
    )
    found = finding("hidden-rng", cell, "f(1.0)", "f(1.0)", setup="KEY = jax.random.key(1)\n")
    assert not any("noise" in fix.title for fix in found.fixes)


def test_an_object_that_is_compared_by_its_fields_is_told_by_its_values() -> None:
    setup = "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass H:\n    lr: float\n"
    calls = [f"f(1.0, H({i}.5))" for i in range(3)]
    found = finding(
        "recompile-static", "def f(x, h):\n    return x * h.lr\n", *calls, setup=setup, static_argnames="h"
    )
    assert "`h` had 3 values (H(lr=0.5), H(lr=1.5), H(lr=2.5), …)" in found.message
    (fix,) = found.fixes
    assert fix.static_argnames == () and fix.calls == tuple(f"f(1.0, H({i}.5).lr)" for i in range(3))


def test_a_static_object_whose_number_is_a_size_stays() -> None:
    setup = "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass H:\n    n: int\n"
    calls = [f"f(1.0, H({i}))" for i in range(2, 5)]
    cell = "def f(x, h):\n    return x * jnp.ones(h.n)\n"
    assert finding("recompile-static", cell, *calls, setup=setup, static_argnames="h").fixes == ()


def test_functions_that_may_wait_are_not_run_again() -> None:
    cell = "def f(w):\n    return w + q.get()\n"
    setup = "import queue\nq = queue.Queue()\nfor i in range(3): q.put(1.0)\n"
    [fix] = finding("frozen-side-effect", cell, "f(1.0)", setup=setup).fixes
    assert not fix.verified and fix.evidence.startswith("not tried")
    assert fix.calls == ("f(1.0, q.get())",)


@pytest.mark.parametrize(
    "loop",
    [
        "while (it := q.get()) is not None:\n        w = w + it",
        "for _ in range(2):\n        w = w + q.get()",
        "while True:\n        it = q.get()\n        if it is None: break\n        w = w + it",
    ],
)
def test_what_each_turn_of_a_loop_asks_is_no_argument(loop: str) -> None:
    setup = "import queue\nq = queue.Queue()\nfor v in (1.0, 2.0, None) * 9: q.put(v)\n"
    cell = f"def f(w):\n    {loop}\n    return w\n"
    assert finding("frozen-side-effect", cell, "f(1.0)", setup=setup).fixes == ()


@pytest.mark.parametrize(
    ("cell", "call"),
    [
        ("def f(w):\n    x = next(rows)\n    return w + x\n", "f(1.0, x=next(rows))"),
        ("def f(w):\n    x = float(input())\n    return w + x\n", "f(1.0, x=float(input()))"),
    ],
)
def test_what_cannot_be_asked_again_is_an_argument_that_was_not_tried(
    cell: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda: "1.0")  # a kernel has an `input` of its own too
    [fix] = finding("frozen-side-effect", cell, "f(1.0)", setup="rows = (float(i) for i in range(9))\n").fixes
    assert not fix.verified and fix.evidence.startswith("not tried")
    assert fix.calls == (call.replace("x=", ""),)


def test_what_the_fixes_run_leaves_nothing_behind() -> None:
    from jitmagic.checking.corrections import findings_of
    from tests.silent.cells import checked

    cell = "def f(w):\n    return w + next(batches)\n"
    checker = checked(cell, "f(1.0)", setup="batches = iter([1.0, 2.0, 3.0])\n")
    before = next(checker.namespace["batches"])
    again = checked(cell, "f(1.0)", setup="batches = iter([1.0, 2.0, 3.0])\n")
    assert any(f.fixes for f in findings_of(again))
    assert next(again.namespace["batches"]) == before


@pytest.mark.parametrize(
    ("cell", "hinted"),
    [
        ("def f(s):\n    s = [s] if isinstance(s, float) else s\n    return s[1]\n", True),
        (
            "def f(s):\n    try:\n        s = float(s)\n    except TypeError:\n        pass\n    return s[1]\n",
            False,
        ),
    ],
)
def test_an_error_behind_a_test_of_a_type_names_the_test(cell: str, hinted: bool) -> None:
    found = finding("user-error", cell, "f(1.0)")
    assert ("`isinstance(s, float)` (line 3) sees a traced value" in found.help) is hinted
    assert ("sees a traced value" in found.help) is hinted


def test_values_that_a_method_keeps_on_the_object_it_is_given_are_sent_out(notebook: Any) -> None:
    cell = (
        "class Net:\n    def __init__(self, w):\n        self.w = w\n    def forward(self, x):\n"
        "        self.pre = x * self.w\n        self.act = jnp.tanh(self.pre)\n        return self.act.sum()\n"
    )
    notebook.ok("import jax\nimport jax.numpy as jnp")
    notebook.ok(f"%%jit -q --no-time -f Net.forward --static-argnums 0\n{cell}net = Net(2.0)")
    notebook.run("net.forward(jnp.ones(2))")
    found = [f for f in notebook.report().findings if f.kind == "leaked-tracer"]
    assert len(found) == 2 and all(f.fixes and f.fixes[0].verified for f in found)
