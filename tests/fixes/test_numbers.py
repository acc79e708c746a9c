"""NaN, types of Python's and of 64 bits, in notebooks that write things in other ways."""

from __future__ import annotations

import pytest

from tests.fixes.conftest import corrections

CELLS = {
    "names in between, which go": (
        "def f(w):\n    e = J.exp(w)  # weights\n    total = e.sum()\n    return J.log(total)\n",
        "f(jnp.array([-999.0, -1000.0]))", "def f(w):\n    return jax.scipy.special.logsumexp(w)\n",
    ),
    "a softmax of rows": (
        "def f(x):\n    e = J.exp(x)\n    return e / e.sum(axis=-1, keepdims=True)\n", "f(jnp.ones((2, 2)) * 900)",
        "def f(x):\n    return jax.nn.softmax(x, axis=-1)\n",
    ),
    "a mean of exponentials": (
        "def f(x):\n    return J.log(J.mean(J.exp(x), 0))\n", "f(jnp.ones((2, 2)) * 900)",
        "    return jax.scipy.special.logsumexp(x, 0) - jnp.log(jnp.size(x, 0))\n",
    ),
    "a branch over several lines": (
        "def f(x):\n    def g(t):\n        return where(\n            t <= 1.0, t,  # small\n            J.sqrt(t - 1.0),\n"
        "        )\n    return jax.grad(g)(x)\n", "f(1.0)",
        "            J.sqrt(where(t <= 1.0, 1.0, t - 1.0)),\n        )\n",
    ),
    "entropy": (
        "def f(p):\n    return -(p * J.log(p)).sum()\n", "f(jnp.array([0.0, 1.0]))", "-jax.scipy.special.xlogy(p, p).sum()"
    ),
    "a distance": (
        "class D:\n    pass\ndef f(a, b):\n    d = lambda a: J.linalg.norm(a - b)\n    return jax.grad(d)(a)\n",
        "f(jnp.ones(2), jnp.ones(2))", "where(jnp.sum((a - b)**2) > 0, jnp.sqrt(",
    ),
    "a type from elsewhere": (
        "def f(x, k):\n    return (\n        x * k\n        if type(k) is float\n        else x\n    )\n",
        "f(jnp.ones(2), 2.0)", "(jnp.ndim(k) == 0 and jnp.issubdtype(jnp.result_type(k), jnp.floating))",
    ),
    "types that are denied": (
        "def f(x, k):\n    if type(k) not in (int, float):\n        return x\n    return x * k\n",
        "f(jnp.ones(2), 2.0)", "    if not jnp.ndim(k) == 0:\n",
    ),
    "a type by its own name": (
        "from jax.numpy import float64\ndef f(x):\n    return x.astype(float64) + J.zeros(3, 'float64')\n",
        "f(jnp.ones(3))", "x.astype(jnp.float32) + J.zeros(3, 'float32')",
    ),
    "a read outside of an array": (
        "def f(x, i):\n    return (x[i + 1] - x[i]).sum()\n", "f(jnp.arange(3.0), jnp.arange(3))",
        '(x.at[i + 1].get(mode="fill", fill_value=0) - x[i])',
    ),
    "a write outside of an array": (
        "def f(x, i):\n    return x.at[i].set(  # counts\n        1.0)\n", "f(jnp.arange(3.0), jnp.arange(4))",
        '1.0, mode="drop")',
    ),
    "what is counted outside of an array": (
        "def f(v):\n    return J.zeros((2, 3)).at[0, (v * 3).astype(int)].add(  # counts\n        1.0)\n", "f(jnp.array([0.5, 1.0]))",
        ".at[0, jnp.minimum((v * 3).astype(int), 2)].add(  # counts",
    ),
    "an index before the beginning": (
        "def f(x, i):\n    return x.T[i - 3]\n", "f(jnp.ones((2, 2)), jnp.array([0, 1]))",
        "x.T[jnp.maximum(i - 3, -x.T.shape[0])]",
    ),
    "a large number in a comparison": (
        "def f(n):\n    late = n > 3_000_000_000  # ns\n    return late\n", "f(jnp.arange(3))",
        "    late = n > 3_000_000_000.0  # ns\n",
    ),
}  # fmt: skip
SETUP = "import jax.numpy as J\nfrom jax.numpy import where\n"


@pytest.mark.parametrize("name", CELLS)
def test_the_correction_is_in_the_cell(name: str) -> None:
    cell, call, wanted = CELLS[name]
    found = corrections(cell, (call,), setup=SETUP)
    assert any(fix.verified and wanted in (fix.cell or "") for _, fix in found), found


STARTS = {
    "a field by name": (
        "class S(NamedTuple):\n    n: int\n    m: float\ndef f(s):\n    return S(s.n + 1, m=s.m * jnp.float32(2))\n",
        ("s = S(m=0.5, n=0)", "s = f(s)", "s = f(s)"), "s = S(m=jnp.float32(0.5), n=jnp.int32(0))",
    ),
    "what is read from elsewhere": (
        "def f(t, x):\n    return t + x\n", ("t = float('1')", "t = f(t, jnp.float32(1))", "t = f(t, jnp.float32(2))"),
        "t = f(jnp.float32(t), jnp.float32(2))",
    ),
    "an entry of a dict that is written in the call": (
        "def f(s, x):\n    return {'n': s['n'] + x}\n",
        ("s = f({'n': -1.0}, jnp.float32(1))", "s = f(s, jnp.float32(2))"), "s = f({'n': jnp.float32(-1.0)}, jnp.float32(1))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STARTS)
def test_numbers_start_as_arrays(name: str) -> None:
    cell, calls, wanted = STARTS[name]
    found = corrections(cell, calls, setup="from typing import NamedTuple\n")
    assert any(fix.verified and wanted in (fix.calls or ()) for _, fix in found), found
