"""`--dyn NAME` means the variable that the function itself names, not one of a helper that is called the same."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

NAMED = {
    "read in a lambda": (
        "def mk():\n    w = 7.0\n    return lambda x: x * w\nw = jnp.ones(()); f = mk()\n"
        "def run(x):\n    global w\n    w = w + 1\n    return f(x) + w",
        "w",
    ),
    "written in a closure": (
        "def mk():\n    w = jnp.zeros(())\n    def cell(x):\n        nonlocal w\n        w = w + x\n        return w\n"
        "    return cell\nw = jnp.ones(()); cell = mk()\n"
        "def run(x):\n    global w\n    w = w + 1\n    return cell(x) * 0 + w",
        "w",
    ),
    "the helper comes first": (
        "def mk():\n    w = 7.0\n    return lambda x: x * w\nw = jnp.ones(()); f = mk()\n"
        "def bump():\n    global w\n    w = w + 1\ndef run(x):\n    y = f(x)\n    bump()\n    return y + w",
        "w",
    ),
    "of the closure itself": (
        "w = 5.0\ndef other(x): return x * w\ndef mk():\n    w = jnp.zeros(())\n    def run(x):\n        nonlocal w\n"
        "        w = w + 1\n        return other(x) + w\n    return run, lambda: w\nrun, get = mk()",
        "get()",
    ),
}


@pytest.mark.parametrize("how", NAMED)
def test_it_is_the_variable_that_the_function_names(notebook: Notebook, how: str):
    source, look = NAMED[how]

    def seen(magic: str) -> list[float]:
        notebook.ok(magic + source)
        return [float(v) for v in notebook.ok(f"[run(2.0), run(2.0), run(3.0), {look}]")]

    assert seen("%%jit -q --no-time --dyn w -f run\n") == seen("")
