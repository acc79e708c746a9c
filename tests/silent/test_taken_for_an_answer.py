"""An error of jax's tracing that a `try` of the user's takes for an answer: the compiled function goes another way."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

SETUP = """
import operator
import jax, jax.numpy as jnp, numpy as np
x = jnp.arange(3.0)
def whole(fn, *args):
    try:
        return fn(*args)
    except TypeError:
        return 7
"""
TAKEN = {
    "a number": ("def f(x):\n    try: n = float(x.sum())\n    except Exception: n = 5.0\n    return x * n", 4),
    "a branch": ("def f(x):\n    try:\n        return x if x.sum() > 0 else -x\n    except:\n        return x * 3", 5),
    "an array": ("def f(x):\n    try:\n        y = np.asarray(x)\n    except (ValueError, TypeError): y = x\n    return y * 2", 5),
    "an index": ("def f(x, n):\n    try:\n        return x * [1, 2, 3][n]\n    except jax.errors.TracerIntegerConversionError:\n        return x", 5),
    "a mask": ("def f(x):\n    try:\n        return x[x > 1].sum()\n    except IndexError:\n        return x.sum()", 5),
    "of a helper": ("def f(x): return x * whole(int, x.sum())", 7),
    "suppressed": ("import contextlib\ndef f(x):\n    n = 7.0\n    with contextlib.suppress(TypeError):\n        n = float(x.sum())\n    return x * n", 5),
    "the inner one": (
        "def ask(v):\n    try: return -v if v > 2 else v\n    except Exception: return v\n"
        "def f(x):\n    try:\n        return x * ask(x.sum())\n    except Exception:\n        return x", 4,
    ),
    "in a method": ("class M:\n    def __call__(self, x):\n        try: return x * bool(x[0])\n        except TypeError: return x\nm = M()\ndef f(x): return m(x)", 5),
    "a lambda within": ("def f(x):\n    try: return (lambda v: x * int(v))(x[1])\n    except TypeError: return x", 4),
}  # fmt: skip
NOT_TAKEN = {
    "another error": "def f(x):\n    try: k = {'a': 1}['b']\n    except (KeyError, TypeError): k = 2\n    return x * k",
    "what is known": "def f(x):\n    try: n = operator.index(x.shape[0])\n    except TypeError: n = 5\n    return x * n",
    "by jax itself": "def f(x):\n    try: y = jnp.pad(x, 1) + jnp.zeros(5).at[jnp.argmax(x)].set(2)\n    except TypeError: y = x\n    return y",
    "raised again": "def f(x):\n    try: return x * float(x.sum())\n    except Exception: raise\n",
    "not reached": "def f(x):\n    if x.ndim == 1: return x\n    try: return float(x)\n    except Exception: return x",
}  # fmt: skip


def call(cell: str) -> str:
    return "f(x, 1)" if "f(x, n)" in cell else "f(x)"


@pytest.mark.parametrize("what", TAKEN)
def test_it_is_told_where_nothing_is_compared(notebook: Notebook, what: str) -> None:
    cell, line = TAKEN[what]
    notebook.ok(SETUP)
    notebook.ok(f"%%jitcheck -q\n{cell}\n{call(cell)}")
    report = notebook.report()
    [told] = [x for x in report.findings if x.kind == "jit-differs-from-eager"]
    assert (told.severity, told.span.line) == ("warning", line)
    assert "takes the error of jax for an answer" in told.message
    assert "takes an error of jax for an answer" in str(report)


@pytest.mark.parametrize("what", NOT_TAKEN)
def test_nothing_is_told_of_other_errors(notebook: Notebook, what: str) -> None:
    notebook.ok(SETUP)
    notebook.run(f"%%jitcheck -q\n{NOT_TAKEN[what]}\nf(x)")
    assert "jit-differs-from-eager" not in notebook.kinds()


def test_equal_results_are_no_problem(notebook: Notebook) -> None:
    notebook.ok(SETUP)
    notebook.ok(
        "%%jit -q\ndef f(x):\n    try: return x * float(x[1])\n    except TypeError: return x * x[1]\nf(x)"
    )
    assert "jit-differs-from-eager" not in notebook.kinds()


def test_it_is_told_where_a_comparison_was_left_out(notebook: Notebook) -> None:
    notebook.ok(SETUP)
    cell = "import os\ndef f(x):\n    os.write(2, b'')\n    try: return x * float(x[1])\n    except TypeError: return x * x[1]\n"
    notebook.ok(f"%%jit -q --no-time\n{cell}f(x)")
    assert "jit-differs-from-eager" in notebook.kinds("warning")


def test_the_errors_of_jax_are_as_they_were(notebook: Notebook) -> None:
    from jax import errors

    before = [dict(vars(e)) for e in (errors.JAXTypeError, errors.JAXIndexError)]
    notebook.ok(SETUP)
    notebook.ok(f"%%jitcheck -q\n{TAKEN['a number'][0]}\nf(x)")
    assert [dict(vars(e)) for e in (errors.JAXTypeError, errors.JAXIndexError)] == before
