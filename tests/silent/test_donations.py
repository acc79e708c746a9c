"""Donated arguments whose memory no result takes, named, with the reason and what mends it."""

from __future__ import annotations

import pytest

CELLS = {
    "no result of its shape": (
        "@functools.partial(jax.jit, donate_argnums=0)\ndef f(x):\n    return x.sum()\n", "f(jnp.ones(4))",
        "`x` is donated, and its memory (f32[4], 16 B) is not used: no result has its shape", "@jax.jit\ndef f",
    ),
    "another dtype": (
        "@functools.partial(jax.jit, donate_argnames='x')\ndef f(x):\n    return x > 0\n", "f(jnp.ones(4))",
        "the result of its shape is bool", "@jax.jit\ndef f",
    ),
    "two for one result": (
        "@functools.partial(jax.jit, donate_argnums=(0, 1))\ndef f(x, y):\n    return x + y\n",
        "f(jnp.ones(4), jnp.ones(4))", "`y` is donated", "donate_argnums=(0,)",
    ),
    "a part of an argument": (
        "@functools.partial(jax.jit, donate_argnums=(0,))\ndef f(p):\n    return p['a'] * p['b'].sum()\n",
        "f({'a': jnp.ones(4), 'b': jnp.ones(3)})", "`p['b']` is donated", "@jax.jit\ndef f",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cell", "call", "told", "wanted"), CELLS.values(), ids=CELLS)
def test_the_argument_is_named_and_kept(notebook, cell, call, told, wanted):
    notebook.ok("import functools")
    notebook.ok(f"%%jit -q --no-time\n{cell}{call}")
    (finding,) = [f for f in notebook.report().findings if f.kind == "unusable-donation"]
    assert told in finding.message and finding.severity == "warning"
    assert any(fix.verified and wanted in (fix.cell or "") for fix in finding.fixes), finding.fixes


@pytest.mark.parametrize(
    "cell",
    [
        "%%jit -q --no-time --donate x\ndef f(x):\n    return x * 2\nf(jnp.ones(4))",
        "%%jit -q --no-time --donate x,y\ndef f(x, y):\n    return x * y.sum(), y + 1\nf(jnp.ones(4), jnp.ones(4))",
        "%%jit -q --no-time --donate x\ndef f(x, y):\n    return y + 1\nf(jnp.ones(4), jnp.ones(3))",
    ],
)
def test_memory_that_is_taken_or_freed_is_not_told(notebook, cell):
    notebook.ok(cell)
    assert "unusable-donation" not in notebook.kinds("error", "warning", "note")


def test_the_magic_line_donates_what_can_be_used(notebook):
    notebook.ok(
        "%%jit -q --no-time --donate x,y\ndef f(x, y):\n    return x * y.sum()\nf(jnp.ones(4), jnp.ones(3))"
    )
    (finding,) = [f for f in notebook.report().findings if f.kind == "unusable-donation"]
    assert finding.culprits[0] == "y" and "--donate x" in (finding.fixes[0].magic or "")
