"""What a cell prints of its results is held against the plain cell, as what it shows is."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

DISPATCH = """
import functools
@functools.singledispatch
def norm(v): return 0.0
@norm.register(jax.Array)
def of_arrays(v): return jnp.linalg.norm(v)
def scaled(x, k): return x * norm(k)
x = jnp.arange(3.0)
"""
PRINTS = {
    "print": "print(norm(x))",
    "in a text": "print(f'norm: {norm(x):.3f}')",
    "written": "sys.stdout.write(str(norm(x)))",
    "in a loop": "for i in range(2): print(i, norm(x + i))",
    "of a function around it": "print(scaled(x, jnp.ones(2)))",
    "of which two lines differ": "print(norm(x + 1)); print('sum', float(norm(x)) + 1)",
}


@pytest.fixture(autouse=True)
def imported(notebook: Notebook):
    notebook.ok("import sys, time, jax, jax.numpy as jnp")


@pytest.mark.parametrize("how", PRINTS)
def test_a_result_that_is_only_printed_is_a_result(notebook: Notebook, how):
    """What dispatches by type sees a traced value, and no correction of ours changes that."""
    notebook.ok(f"%%jit -q{DISPATCH}{PRINTS[how]};")
    report = notebook.report()
    wrong = {f.name for f in report.functions if f.verdict == "wrong"}
    assert wrong and not [x for f in report.findings for x in f.fixes if x.verified]


UNSEEN = {
    "more numbers than without jit": "print(norm(x))",
    "a length that is no result": "print(len(str(norm(x))) > 0)",
    "not printed": "norm(x);",
    "in a loop": "for i in range(2): norm(x + i)",
    "of a function around it": "print(type(scaled(x)))",
}


@pytest.mark.parametrize("how", UNSEEN)
def test_where_no_wrong_result_is_seen_nothing_proves_it_mended(notebook: Notebook, how):
    notebook.ok(
        f"""%%jit -q
def norm(v):
    try:
        return float(jnp.linalg.norm(v))
    except Exception:
        return v * 3
def scaled(x): return norm(x) * 2
x = jnp.arange(3.0)
{UNSEEN[how]}"""
    )
    report = notebook.report()
    assert "wrong" in [f.verdict for f in report.functions]
    assert not [x for f in report.findings for x in f.fixes if x.verified]


STEADY = {
    "a time": "y = g(x); print(y, time.perf_counter())",
    "an address": "y = g(x); print(y, object())",
    "a traced value, in the function": "y = h(x); print(y)",
    "as often as it is traced": "y = k(x) + k(x); print(y)",
    "digits that jit rounds otherwise": "y = g(x); print(float(jnp.sum(y) / 3))",
    "from callbacks": "y = g(x); jax.debug.print('{y}', y=y)",
}
ASKS = "\n    return x * 2 if x.sum() > 2 else x * 3\n"


@pytest.mark.parametrize("what", STEADY)
def test_what_is_printed_otherwise_each_time_is_no_result(notebook: Notebook, what):
    notebook.run(
        f"%%jit -q\nx = jnp.arange(3.0)\ndef g(x):{ASKS}def h(x):\n    print('x', x){ASKS}"
        f"def k(x):\n    print('k', 7){ASKS}{STEADY[what]}"
    )
    fixes = [x for f in notebook.report().findings if f.severity == "error" for x in f.fixes]
    assert fixes and fixes[0].verified and fixes[0].tested == "cell"
