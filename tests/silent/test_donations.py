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


LOOP = "w, v = jnp.ones((600, 600)), jnp.zeros((600, 600))\nfor i in range(3):\n    "
COULD_BE_DONATED = {
    "a compiled function": (
        "@jax.jit\ndef f(w):\n    return w * 2\n", LOOP + "w = f(w)", "`w` (1.4 MB) could be donated: `w = f(w)`",
        "@functools.partial(jax.jit, donate_argnums=0)",
    ),
    "the magic's own": ("def f(w):\n    return w * 2\n", LOOP + "w = f(w)", "2.9 MB at most, and 1.4 MB with", "--donate w"),
    "two of three, by name": (
        "@jax.jit\ndef f(w, v, x):\n    return w + x, v - x, x.sum()\n", LOOP + "w, v, loss = f(w, x=jnp.float32(1), v=v)",
        "`w` and `v` (2.9 MB)", "donate_argnums=(0, 1)",
    ),
    "in a function, beside a reading": (
        "@jax.jit\ndef f(p):\n    return {'w': p['w'] + 1}\n",
        "def train(p):\n    for i in range(3):\n        p = f(p)\n        print(p['w'].sum())\n    return p\n"
        "p = train({'w': jnp.ones((600, 600))})", "`p = f(p)`", "donate_argnums=0",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cell", "call", "told", "wanted"), COULD_BE_DONATED.values(), ids=COULD_BE_DONATED)
def test_what_a_loop_binds_anew_could_be_donated(notebook, cell, call, told, wanted):
    notebook.ok(f"%%jit -q --no-time -f f\n{cell}{call}")
    (finding,) = [f for f in notebook.report().findings if f.kind == "missing-donation"]
    assert told in finding.message and finding.severity == "note"
    assert any(x.verified and wanted in f"{x.magic}{x.cell}" for x in finding.fixes), finding.fixes


NOTHING_TO_DONATE = {
    "small arrays": "w = jnp.ones(10)\nfor i in range(3):\n    w = f(w)",
    "no loop": "w = jnp.ones((600, 600))\nw = f(w)\nw = f(w)",
    "another name": LOOP + "v = f(w)",
    "the loop keeps them in a list": "kept = []\n" + LOOP + "kept.append(w); w = f(w)",
    "the loop keeps one": "best = None\n" + LOOP + "best = w if i == 1 else best; w = f(w)",
    "the notebook has the first": "first = jnp.ones((600, 600))\nw = first\nfor i in range(3):\n    w = f(w)",
    "a dict of the notebook has it": "d = {'w': jnp.ones((600, 600))}\nw = d['w']\nfor i in range(3):\n    w = f(w)",
    "of another type": LOOP + "w = g(w).astype(jnp.float32)\n    w = g(w)",
    "the compiler needs as much": LOOP + "w, s = h(w)",
}  # fmt: skip


@pytest.mark.parametrize("calls", NOTHING_TO_DONATE.values(), ids=NOTHING_TO_DONATE)
def test_what_is_small_kept_or_of_no_use_is_not_told(notebook, calls):
    functions = (
        "@jax.jit\ndef f(w):\n    return w * 2\n@jax.jit\ndef g(w):\n    return w.astype(jnp.int16)\n"
        "@jax.jit\ndef h(w):\n    return jnp.outer(w[0], w[1]), (w ** 2).sum()\n"
    )
    notebook.ok(f"%%jit -q --no-time\n{functions}{calls}")
    assert "missing-donation" not in notebook.kinds()
