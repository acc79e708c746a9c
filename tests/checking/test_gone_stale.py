"""Functions of `jitmagic.jit`, made anywhere in the notebook: `%jitcheck` tells what they go on with."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jitmagic.state import made
from jitmagic.state.declared import Inspected

MADE = {
    "a decorator": "@jitmagic.jit\ndef g(x):\n    return x * gain\n",
    "a name": "def g(x):\n    return x * gain\ng = jitmagic.jit(g)\n",
    "with a static argument": "@jitmagic.jit(static_argnames='n')\ndef g(x, n=2):\n    return n * x * gain\n",
    "beside a dynamic variable": "w = jnp.ones(2)\n@jitmagic.jit(dyn_vars='w')\ndef g(x):\n    return x * w[0] * gain\n",
    "through a helper": "def h(x):\n    return x * gain\n@jitmagic.jit\ndef g(x):\n    return h(x)\n",
}


def stale(notebook: Any) -> list[tuple[str, ...]]:
    return [f.culprits[:1] for f in notebook.report().findings if f.kind == "stale-constant"]


@pytest.mark.parametrize("name", MADE)
@pytest.mark.filterwarnings("ignore:.*has changed since")
def test_a_constant_that_has_changed_since(notebook: Any, name: str) -> None:
    notebook.ok("import jitmagic\ngain = 2.0")
    notebook.ok(MADE[name])
    notebook.ok("g(3.0)")
    assert stale(notebook) == []
    notebook.ok("gain = 5.0\nold = g(3.0)")
    assert stale(notebook) == [("gain",)]
    (found,) = (f for f in notebook.report().findings if f.kind == "stale-constant")
    assert '`dyn_vars="gain"`' in found.help
    notebook.ok("new = g(jnp.ones(2))")  # jax traces it anew, with the value of now
    assert stale(notebook) == []


@pytest.mark.parametrize("use", ["sum(hist)", "len(hist)", "max(hist)"])
def test_a_deque_that_has_grown_since(notebook: Any, use: str) -> None:
    notebook.ok("import collections\nhist = collections.deque([1.0], maxlen=2)")
    notebook.ok(f"%%jit -q --no-time\ndef f(x):\n    return x * {use}\nf(1.0)")
    notebook.ok("hist.append(5.0)\ny = f(1.0)")
    assert stale(notebook) == [("hist",)]
    assert "is deque([1.0, 5.0], maxlen=2)" in notebook.report().findings[0].message


def test_below_another_cell_the_place_is_told_with_its_own(notebook: Any) -> None:
    notebook.ok("%%jit --no-time\ndef f(x):\n    return x * gain\ngain = 2.0\nf(1.0)")
    notebook.ok("gain = 3.0")
    notebook.ok("f(1.0)")
    words = " ".join(" ".join(o.data.get("text/plain", "") for o in notebook.outputs).split())
    assert re.search(r"wrong: line 3 of cell \S+ goes on with an old `gain`", words), words
    assert "in `f`, line 3 of cell" in words


def test_functions_of_two_cells_are_told_each_with_its_own(notebook: Any) -> None:
    notebook.ok("gain = 2.0")
    for name, above in (("f", ""), ("g", "\n")):
        cell = f"%%jit --no-time\n{above}def {name}(x):\n    return x * gain\n{name}(1.0)"
        notebook.shell.run_cell(cell, store_history=True).raise_error()  # which counts
    notebook.ok("gain = 3.0")
    notebook.ok("f(1.0), g(1.0)")
    words = " ".join(" ".join(o.data.get("text/plain", "") for o in notebook.outputs).split())
    f, g = (
        re.search(rf"in `{name}`, line {line} of cell (\S+)", words) for name, line in (("f", 3), ("g", 4))
    )
    assert f and g and f[1] != g[1], words


def test_a_helper_that_was_redefined(notebook: Any) -> None:
    notebook.ok("import jitmagic\ndef h(x):\n    return x + 1")
    notebook.ok("g = jitmagic.jit(lambda x: h(x))\ng(1.0)")
    notebook.ok("def h(x):\n    return x + 2")
    (found,) = (f for f in notebook.report().findings if f.kind == "stale-constant")
    assert "`h` was redefined" in found.message
    notebook.ok("del g")
    assert stale(notebook) == []


def test_what_is_no_constant_is_not_told(notebook: Any) -> None:
    notebook.ok("import jitmagic\nw = jnp.ones(2)\n@jitmagic.jit(dyn_vars='w')\ndef g(x):\n    return x * w")
    notebook.ok("g(1.0)\nw = jnp.zeros(2)\nassert (g(1.0) == 0).all()")
    assert stale(notebook) == []


def test_what_is_noted_of_one_function_is_noted_in_one_place() -> None:
    """So that two `jit` of one function share their programs, as they do in jax."""

    def f(x: Any) -> Any:
        return x

    (fn, one), (again, other) = made.noting(Inspected(f)), made.noting(Inspected(f))
    assert fn is again and one is other and one.frozen is None
    assert fn(1.0) == 1.0 and one.frozen is not None


def test_what_is_noted_keeps_no_traced_value(notebook: Any) -> None:
    notebook.ok("import jitmagic, gc, weakref\nlast = 0.0\nN = None")
    notebook.ok(
        "@jitmagic.jit\ndef g(x):\n    global last, N\n    N = last\n    last = x * 2\n    return x\ng(1.0)"
    )
    notebook.ok("traced = weakref.ref(last)\nlast = 0.0\ngc.collect()")
    assert notebook.ok("traced()") is None
