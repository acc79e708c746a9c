"""NumPy's arrays that are passed and changed in place: a compiled function works on a copy, and that is told."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

HEAD = "%%jit\nimport jax, numpy as np, jax.numpy as jnp\n"
WRONG = {
    "returned": "def f(buf, x):\n    buf += x\n    return buf",
    "read after": "def f(buf, x):\n    buf += .5 * (x - buf)\n    return jnp.where(buf > .6, 1., 0.)",
    "in a helper": "def g(b, x): b += x; return b\ndef f(buf, x): return g(buf, x) * 2",
    "two": "def f(buf, x):\n    buf *= 2; buf += x\n    return buf.sum()",
}


@pytest.mark.parametrize("how", WRONG)
def test_what_the_cell_leaves_differs(notebook: Notebook, how):
    notebook.ok(f"{HEAD}{WRONG[how]}\nbuf = np.zeros(2)\nfor i in range(3): f(buf, np.ones(2))")
    told = [f for f in notebook.report().findings if f.kind in ("state-write", "in-place-update")]
    assert any("buf" in f.culprits or "b" in f.culprits for f in told)
    assert any(f.severity == "error" for f in told)
    assert not any(fix.dyn for f in told for fix in f.fixes)


UNSEEN = {
    "sorted already": ("def f(x):\n    x.sort()\n    return jnp.asarray(x)[0]", "np.array([1., 2., 3.])"),
    "rows that are centred": (
        "def f(x):\n    for row in x: row -= row.mean()\n    return jnp.asarray(x) * 1.",
        "np.array([[1., -1.], [2., -2.]])",
    ),
    "rows, counted": (
        "def f(x):\n    for i, row in enumerate(x): row -= i\n    return jnp.asarray(x) * 1.",
        "np.zeros((1, 2))",
    ),
    "the argument itself": ("def f(x):\n    x -= x.mean()\n    return x * 2", "np.array([1., -1.])"),
    "in blocks": (
        "def f(x):\n    try:\n        for i in range(2):\n            if i > 0:\n                x *= 2\n                x -= 1\n"
        "    finally:\n        pass\n    return jnp.asarray(x).mean()",
        "np.ones(3)",
    ),
    "with a context": (
        "def f(x):\n    with jax.named_scope('a') as s:\n        x *= 2\n        x /= 2\n    return jnp.asarray(x).sum()",
        "np.ones(3)",
    ),
    "while something holds": (
        "def f(x):\n    n = 0\n    while n < 2:\n        n += 1\n        x *= 1\n    return x.sum()", "np.ones(3)"
    ),
    "a view": ("def f(x):\n    col = x[:, 0]\n    col *= 2\n    return jnp.asarray(x).sum()", "np.zeros((2, 2))"),
}  # fmt: skip


@pytest.mark.parametrize("how", UNSEEN)
def test_what_the_first_call_does_not_show(notebook: Notebook, how):
    function, given = UNSEEN[how]
    notebook.ok(f"{HEAD}{function}\ny = f({given})")
    assert [f.kind for f in notebook.report().findings] == ["in-place-update"]


FINE = {
    "an array of jax": ("def f(x):\n    x += 1\n    return x", "jnp.zeros(3)"),
    "a copy": ("def f(x):\n    x = x.copy()\n    x += 1\n    return x", "np.zeros(3)"),
    "a new array": ("def f(x):\n    y = x * 2\n    y += 1\n    return y", "np.zeros(3)"),
    "of an inner function": (
        "def f(x):\n    def body(x, _):\n        x += 1\n        return x, None\n"
        "    return jax.lax.scan(body, x * 1., None, length=3)[0]",
        "np.zeros(3)",
    ),
    "bound by a context": (
        "import contextlib\ndef f(x):\n    with contextlib.nullcontext(x * 2) as x:\n        x += 1\n    return x",
        "np.zeros(3)",
    ),
    "bound with others": ("def f(x):\n    x, y = x * 2, 1\n    x += y\n    return x", "np.zeros(3)"),
    "bound anew in the loop": (
        "def f(x):\n    for row in x:\n        row = row * 2\n        row += 1\n    return row",
        "np.zeros((2, 3))",
    ),
}


@pytest.mark.parametrize("how", FINE)
def test_what_is_fine(notebook: Notebook, how):
    function, given = FINE[how]
    notebook.ok(f"{HEAD}{function}\ny = f({given})")
    assert not [f for f in notebook.report().findings if f.severity in ("error", "warning")]


ORDERS = {
    "a dict": ("{'w': x, 'b': x + 1}", "'w', 'b'"),
    "in a tuple": ("(x, {'w': x, 'b': x})", "'w', 'b'"),
    "in a dict": ("{'a': {'w': x, 'b': x}}", "'w', 'b'"),
}


@pytest.mark.parametrize("what", ORDERS)
def test_keys_that_come_back_sorted(notebook: Notebook, what):
    result, order = ORDERS[what]
    notebook.ok(f"{HEAD}def f(x): return {result}\ny = f(jnp.ones(2))")
    (finding,) = notebook.report().findings
    assert (finding.kind, finding.severity) == ("jit-differs-from-eager", "note")
    assert order in finding.message


@pytest.mark.parametrize("result", ["{'b': x, 'w': x}", "[x, {'b': x}]", "collections.OrderedDict(w=x, b=x)"])
def test_keys_that_keep_their_order(notebook: Notebook, result):
    notebook.ok(f"{HEAD}import collections\ndef f(x): return {result}\ny = f(jnp.ones(2))")
    assert not notebook.report().findings
