"""What a function reads, asks for or keeps by itself, as what it is given: through helpers, aliases, factories."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.fixes.conftest import corrections


class Cell(NamedTuple):
    kind: str
    cell: str
    calls: tuple[str, ...]
    wanted: tuple[str, ...]
    """Parts of the corrected cell and calls."""
    setup: str = ""


CELLS = {
    "through a helper that is mapped": Cell(
        "stale-constant",
        "def g(x):\n    return x * getattr(jnp, act)(x)\n\ndef h(x, n=2):\n    return jax.vmap(g)(x) + n\n\n"
        "def f(x):\n    return h(x) + g(x)  # twice\n",
        ("f(jnp.ones(2))", "act = 'cos'", "f(\n    jnp.ones(2),\n)"),
        ("def g(x, act):", "def h(x, n=2, *, act):\n    return jax.vmap(functools.partial(g, act=act))(x) + n",
         "return h(x, act=act) + g(x, act)  # twice", "f(\n    jnp.ones(2), act\n)"),
        "act = 'sin'\n",
    ),
    "by another function of the cell": Cell(
        "stale-constant",
        "def f(x):\n    return getattr(jnp, cfg['op'])(x)\n\ndef run(xs):\n    return [f(x) for x in xs]\n",
        ("f(1.0)", "cfg['op'] = 'cos'", "run([1.0, 2.0])"),
        ("def f(x, op):\n    return getattr(jnp, op)(x)", "return [f(x, cfg['op']) for x in xs]", "f(1.0, cfg['op'])"),
        "cfg = {'op': 'sin'}\n",
    ),
    "a question of a helper": Cell(
        "frozen-side-effect",
        "import time\ndef now():\n    return time.time()\n\ndef f(x, *, k=2):\n    y = x * now()\n    return y * k\n",
        ("f(1.0, k=3)", "f(2.0)"),
        ("def f(x, *, k=2, value):\n    y = x * value", "f(1.0, k=3, value=now())", "f(2.0, value=now())"),
    ),
    "two lambdas at the calls": Cell(
        "recompile-new-function", "def f(x, g):\n    return g(x)\n",
        ("f(1.0, lambda v: v * 2)", "f(2.0, lambda v: v * 2)", "f(1.0, lambda v: v + 1)"),
        ("g = lambda v: v * 2\n", "= lambda v: v + 1", "f(1.0, g)", "f(2.0, g)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_it_is_passed(name: str) -> None:
    case = CELLS[name]
    static = ("g",) if case.kind == "recompile-new-function" else ()
    found = corrections(case.cell, case.calls, "f", case.setup, static)
    fix = next(x for kind, x in found if kind == case.kind and x.verified)
    text = "\n".join([fix.cell or "", *(fix.calls or ())])
    assert [w for w in case.wanted if w not in text] == [] and fix.tested == "cell"


def test_a_flag_is_dynamic_and_chosen_with() -> None:
    cell = "def f(x):\n    if FLIP:\n        x = -x\n    return x\n"
    fix = corrections(cell, ("f(1.0)", "FLIP = True", "f(1.0)"), "f", "FLIP = False\n")[0][1]
    assert (fix.dyn, fix.applicability) == (("FLIP",), "safe") and "jnp.where(FLIP, -x, x)" in (
        fix.cell or ""
    )


def test_a_key_that_the_function_only_reads_is_not_declared_dynamic() -> None:
    cell = "def f(x):\n    return x + jax.random.normal(key)\n"
    fixes = corrections(cell, ("f(1.0)", "f(1.0)"), "f", "key = jax.random.key(0)\n")
    assert all(fix.dyn is None for kind, fix in fixes if kind == "hidden-rng")
