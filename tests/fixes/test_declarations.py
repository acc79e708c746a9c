"""Declarations of static and donated arguments that do not fit, in the cell's own `jax.jit`: mended and run."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

F = "def f(x, power):\n    for _ in range(power):\n        x = x * x\n    return x\n"
CALL = "print(g(jnp.ones(2), 3))\n"
CASES = {
    "misspelt in a decorator": (
        "@functools.partial(jax.jit, static_argnames=('mdoe',))\n"
        "def f(x, mode='sum'):\n    return x.sum() if mode == 'sum' else x.mean()\n"
        "print(f(jnp.ones(3), mode='mean'))\n",
        "@functools.partial(jax.jit, static_argnames=('mode',))",
    ),
    "number out of range": (
        "@functools.partial(jax.jit, static_argnums=(2,))\n"
        "def f(x, n):\n    return jnp.tile(x, n)\ny = f(jnp.ones(3), 2)\n",
        "@functools.partial(jax.jit, static_argnums=(1,))",
    ),
    "misspelt in a call": (F + "g = jax.jit(f, static_argnames='pow')\n" + CALL,
                           "g = jax.jit(f, static_argnames='power')"),
    "number of a call out of range": (F + "g = jax.jit(f, static_argnums=2)\n" + CALL,
                                      "g = jax.jit(f, static_argnums=1)"),
    "number of a call off by one": (
        "def f(x, n):\n    return jnp.tile(x, n)\ng = jax.jit(f, static_argnums=0)\n" + CALL,
        'g = jax.jit(f, static_argnames="n")',
    ),
    "a lambda": ("g = jax.jit(lambda x, n: jnp.tile(x, n), static_argnums=[2])\n" + CALL,
                 "g = jax.jit(lambda x, n: jnp.tile(x, n), static_argnums=[1])"),
    "a bound method": (
        "class Pool:\n    def run(self, x, n):\n        return jnp.tile(x, n)\n"
        "g = jax.jit(Pool().run, static_argnums=2)\n" + CALL,
        "g = jax.jit(Pool().run, static_argnums=1)",
    ),
    "a gradient": (
        "g = jax.jit(jax.grad(lambda x, n: (x ** n).sum()), static_argnums=(2,))\n" + CALL,
        "static_argnums=(1,)",
    ),
    "nothing is static": (
        "@functools.partial(jax.jit, static_argnames='axis')\ndef f(x):\n    return x.sum()\nf(jnp.ones(3))\n",
        "@jax.jit\ndef f(x):",
    ),
    "donated": ("def f(x, g):\n    return x - g\ng = jax.jit(f, donate_argnames=['y'])\n" + CALL, "g = jax.jit(f)\n"),
    "donated, misspelt": (
        "def f(params, g):\n    return params - g\ng = jax.jit(f, donate_argnames=['param'])\n" + CALL,
        "donate_argnames=['params']",
    ),
    "a method": (
        "@jax.tree_util.register_dataclass\n@dataclasses.dataclass\nclass M:\n    k: float\n"
        "    @functools.partial(jax.jit, static_argnums=3)\n    def run(self, x, n):\n"
        "        for _ in range(n):\n            x = x * self.k\n        return x\nprint(M(2.0).run(jnp.ones(2), 3))\n",
        "@functools.partial(jax.jit, static_argnums=2)",
    ),
}  # fmt: skip


MAGICS = [("%%jitcheck -q", name) for name in CASES] + [("%%jit -q --no-time", "number out of range")]


@pytest.mark.parametrize(("magic", "name"), MAGICS)
def test_the_declaration_is_mended_and_the_whole_cell_runs(notebook: Notebook, magic: str, name: str) -> None:
    cell, wanted = CASES[name]
    notebook.ok("import dataclasses, functools")
    notebook.run(f"{magic}\n{cell}")
    found = [f for f in notebook.report().findings if f.kind in ("bad-static-spec", "unhashable-static")]
    fix = next(x for f in found for x in f.fixes if x.verified)
    assert fix.cell is not None and wanted in fix.cell
    assert fix.tested == "cell"
    notebook.ok(f"{magic}\n{fix.cell}")
    assert notebook.kinds("error", "warning") == []


def test_a_declaration_that_cannot_be_mended_has_no_fix(notebook: Notebook) -> None:
    notebook.run(
        "%%jitcheck -q\nimport functools\n@functools.partial(jax.jit, static_argnums=2)\n"
        "def f(x, n):\n    raise ValueError('no')\nf(1, 2)\n"
    )
    (found,) = (f for f in notebook.report().findings if f.kind == "bad-static-spec")
    assert found.fixes == ()


def test_calls_of_later_cells_prove_a_declaration(notebook: Notebook) -> None:
    cell = "def loss(w, x):\n    return (w * x).sum()\nstep = jax.jit(jax.value_and_grad(loss, argnums=1), donate_argnums=2)\n"
    notebook.run(f"%%jitcheck -q\n{cell}")
    notebook.run("step(2.0, jnp.ones(3))")
    (found,) = (f for f in notebook.report().findings if f.kind == "bad-static-spec")
    assert found.culprits == ("x",) and "donate_argnames=['x']" in found.help
    assert [f.cell for f in found.fixes if f.verified] == [cell.replace("=2", "=1")]
