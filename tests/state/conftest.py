"""Cells as a notebook runs them: source under a file name of its own, known to linecache."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from typing import Any

import pytest

TOP = """\
import functools, types
w = jnp.ones((4, 4)); nw = np.arange(16., dtype="f4").reshape(4, 4); nw64 = np.arange(4.) + .5
params = {"layer1": [jnp.ones(4) * 2, {"b": np.ones(4, "f4") * 3}]}
scale = 2.0; depth = 3; unread = jnp.ones(9)
class L:
    kind = 2.5
    def __init__(self):
        self.w = jnp.ones((4, 4)) * 7; self.alpha = .5; self.unused = jnp.zeros(2)
        self.sub = [types.SimpleNamespace(k=jnp.ones(4) * 11)]
    def __call__(self, x):
        return self.alpha * (x @ self.w) + self.sub[0].k * self.kind
    def other(self, x):
        return x + self.unused
l = L()
def helper(x):
    return x @ w * scale
def deflt(x, k=jnp.ones(4) * 9):
    return x * k
part = functools.partial(lambda p, x: x + p, jnp.ones(4) * 5)
def mk():
    c = jnp.arange(4.)
    return lambda x: x + c
clos = mk()
@jax.jit
def inner(x):
    return jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=2)[0] + params["layer1"][0]
def top(x):
    for _ in range(depth):
        x = helper(x)
    y = l(x) + params["layer1"][0] + params["layer1"][1]["b"] + nw[0] + nw64 + deflt(x)
    return y + part(x) + clos(x) + inner(x) + jax.vmap(lambda r: r + w[0])(w)[0]
"""

_numbers = itertools.count()


def run_cell(source: str, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Execute a cell and return its namespace."""
    name = f"<ipython-input-{next(_numbers)}-state>"
    namespace = {"__name__": "__main__"} if namespace is None else namespace
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile("import jax\nimport jax.numpy as jnp\nimport numpy as np\n", name, "exec"), namespace)
    exec(compile(source, name, "exec"), namespace)
    return namespace


@pytest.fixture
def cell() -> Callable[..., dict[str, Any]]:
    return run_cell


@pytest.fixture
def top() -> dict[str, Any]:
    """The namespace with `top`, which reads by every way there is."""
    return run_cell(TOP)
