"""The notebook that most tests open: what each cell is for stands beside it."""

from __future__ import annotations

# The budget: fixes are tried to the end on a busy machine too.
SETUP = """\
%load_ext jitmagic
%config JitMagics.budget = 60
import jax, jax.numpy as jnp
w = jnp.ones((10, 3))"""

GOOD = """\
%%jit -n 100 -r 5 predict(x)
x = jnp.ones((64, 10))

def predict(x):
    y = jnp.tanh(x @ w)
    return jnp.sum(y * y)"""

FAILING = """\
%%jit
def power(x, n):
    y = jnp.ones_like(x)
    for _ in range(n):
        y = y * x
    return y

power(jnp.arange(3.0), 4)"""
"""Needs `--static n`."""

DEFINES = """\
%%jit
def clip(x):
    label = "𝒙 é"; y = x * 2; big = bool(y.sum() > 3)
    return y / 2 if big else y"""
"""Not called here; characters beyond 16 bits stand before the culprit."""

CALLS = "clip(jnp.ones(4))"

ALL = (SETUP, GOOD, FAILING, DEFINES, CALLS)
SETUP_AT, GOOD_AT, FAILING_AT, DEFINES_AT, CALLS_AT = range(5)

PANEL = """\
%%jit -w --no-time --static n
def smooth(x, n):
    for _ in range(n):
        x = (x + jnp.roll(x, 1)) / 2 * gain
    return x

gain = 1.0
smooth(jnp.arange(6.0), 3)"""

JITTED = """\
%jitcheck on
@jax.jit
def sign(x):
    if x > 0:
        return x
    return -x"""
"""Compiled by the user; the magic only asks for the diagnosis of later errors."""
