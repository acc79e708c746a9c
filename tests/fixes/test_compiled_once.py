"""Functions that are jitted again and again, as functions at the top of the cell."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jitmagic.fixes.change import Spot
from jitmagic.fixes.inputs.compiled_once import compiled_once
from jitmagic.source.edits import Text
from jitmagic.source.modules import Modules


def candidates(source: str, line: int) -> list[str]:
    text = Text(source)
    spot = Spot(text, "", line, modules=Modules.of({"jax": jax, "jnp": jnp}, text.tree))
    return [c.edits.result() for c in compiled_once(spot) if c.edits is not None]


CELLS = {
    "its gradient is called": (
        "def fit(w, x):\n    loss = jax.jit(lambda w: jnp.sum(w * x))\n    return jax.grad(loss)(w)\n", 2,
        "compiled = jax.jit(lambda w, x: jnp.sum(w * x))\n\n\ndef fit(w, x):\n    return jax.grad(compiled)(w, x)\n",
    ),
    "a lambda with a name, mapped": (
        "def fit(w, xs):\n    g = lambda x: x @ w\n    h = jax.jit(jax.vmap(g))\n    return h(xs)\n", 3,
        "compiled = jax.jit(jax.vmap(lambda x, w: x @ w, in_axes=(0, None)))\n\n\n"
        "def fit(w, xs):\n    return compiled(xs, w)\n",
    ),
    "decorated, in a method": (
        "class A:\n    def act(self, x):\n        @jax.jit\n        def go(x):\n            y = self.w * x\n"
        "            return y\n        return go(x)\n", 3,
        "@jax.jit\ndef go(x, w):\n    y = w * x\n    return y\n\n\nclass A:\n    def act(self, x):\n"
        "        return go(x, self.w)\n",
    ),
    "a lambda that calls what the object holds": (
        "class A:\n    def act(self, x, k):\n        return jax.jit(lambda v: self.net(self.w, v) * k)(x)\n", 3,
        "compiled = jax.jit(lambda v, k, net, w: net(w, v) * k, static_argnames=('net',))\n\n\nclass A:\n"
        "    def act(self, x, k):\n        return compiled(x, k, self.net, self.w)\n",
    ),
    "a method in a loop": (
        "class A:\n    def fit(self, w, rows):\n        for row in rows:\n            g = jax.jit(jax.grad(self.loss))\n"
        "            w = w - g(w, row)\n        return w\n", 4,
        "class A:\n    def fit(self, w, rows):\n        g = jax.jit(jax.grad(self.loss))\n        for row in rows:\n"
        "            w = w - g(w, row)\n        return w\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_hoisted(name: str) -> None:
    source, line, wanted = CELLS[name]
    assert wanted in list(candidates(source, line))


@pytest.mark.parametrize(
    "source",
    [
        "def fit(xs, w):\n    h = jax.jit(lambda x: x @ w)\n    return list(map(h, xs))\n",
        "def fit(xs, w):\n    h = jax.jit(jax.vmap(lambda x: x @ w, in_axes=1))\n    return h(xs)\n",
        "class A:\n    def act(self, x):\n        @jax.jit\n        def go(x):\n            return self.net(x)\n"
        "        return go(x)\n",
        "class A:\n    def act(self, x):\n        return jax.jit(lambda v: forward(self, v))(x)\n",
        "for k in ks:\n    y = jax.jit(fs[k])(x)\n",
    ],
)
def test_left_alone(source: str) -> None:
    line = 3 if "class" in source else 2
    assert list(candidates(source, line)) == []
