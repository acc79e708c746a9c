"""What the notebook makes and does not use."""

from __future__ import annotations

import ast
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jitmagic.checking import unused

STEP = """
@jax.jit
def advance(cell, current):
    spikes = cell["v"] + current > 1
    cell = {"v": jnp.where(spikes, 0.0, cell["v"] + current)}
    return spikes, cell
cell = {"v": jnp.zeros(3)}
"""


def told(notebook: Any, *cells: str) -> list[Any]:
    for cell in cells:
        notebook.ok(cell)
    return [f for f in notebook.report().findings if f.kind == "unused-result"]


def test_an_executable_that_nobody_calls(notebook: Any) -> None:
    made = "lowered = jax.jit(double, static_argnums=1).lower(jnp.ones(2), 2)\nfast = lowered.compile()"
    (found,) = told(notebook, "def double(x, n):\n    return n * x", made, "double(jnp.ones(2), 2)")
    assert found.severity == "note" and found.culprits == ("fast", "double")
    assert found.span.source == "fast = lowered.compile()" and found.span.line == 2
    assert not told(notebook, "fast(jnp.ones(2))")


@pytest.mark.parametrize(
    "call", ["%timeit -n 1 -r 1 advance(cell, 0.3)", "%timeit -n1 -r1 jax.block_until_ready(advance(cell, current=0.3))",
             "advance(cell, 0.3)", "%%timeit -n 1 -r 1\nadvance(cell, 0.3)"],
)  # fmt: skip
def test_a_new_state_that_nobody_binds(notebook: Any, call: str) -> None:
    (found,) = told(notebook, STEP, call)
    assert found.culprits == ("cell", "cell", "advance")[1:] and "stays as it was" in found.message
    assert ("repetition" in found.message) == ("timeit" in call)
    assert found.span.source in call and found.span.line == len(call.splitlines())


UPDATE = "@jax.jit\ndef put(x, i):\n    return x.at[i].set(1.0)\nx = jnp.zeros(3)\n"


@pytest.mark.parametrize(
    "statement",
    [
        "for i in range(3):\n    advance(cell, 0.3)", "spikes = advance(cell, 0.3)[0]", "_ = [advance(cell, 0.3)[0]]",
        "spikes, _ = advance(cell, 0.3)", "[advance(cell, 0.1 * i) for i in range(3)]", "1, advance(cell, 0.3)",
        "if True:\n    advance(cell, 0.3)[0]", "jax.block_until_ready((advance(cell, 0.3), 2))",
        "print(advance(cell, 0.3)[0])", "advance(cell, 0.3)[1]['v']",
    ],
)  # fmt: skip
def test_a_new_state_that_is_lost_on_the_way(notebook: Any, statement: str) -> None:
    (found,) = told(notebook, STEP, statement)
    assert found.culprits == ("cell", "advance") and "stays as it was" in found.message


def test_a_changed_copy_that_nobody_binds(notebook: Any) -> None:
    (found,) = told(notebook, UPDATE, "for i in range(3):\n    put(x, i)")
    assert found.culprits == ("x", "put") and found.span.line == 2


@pytest.mark.parametrize(
    "statement",
    ["cell = advance(cell, 0.3)[1]", "for i in range(3):\n    spikes, cell = advance(cell, 0.3)",
     "cells = [advance(cell, 0.3)[1] for i in range(2)]", "def g(cell):\n    advance(cell, 0.3)", "y = put(x, 1)[0]",
     "_, a, b = put(x, 1)", "print(advance(cell, 0.3))"],
)  # fmt: skip
def test_a_state_that_is_kept(notebook: Any, statement: str) -> None:
    assert not told(notebook, STEP, UPDATE, statement)


def test_a_state_that_is_bound_or_an_argument_that_is_only_passed_on(notebook: Any) -> None:
    passed = "@jax.jit\ndef scaled(x, w):\n    return x * w, w\n"
    assert not told(
        notebook, STEP, "out, cell = advance(cell, 0.3)", passed, "scaled(1.0, 2.0)", "x = 1 % 2\n%pwd"
    )


def test_magics_and_strings_keep_the_places_of_what_stands_around_them() -> None:
    text = unused.parse('a = """\n%timeit no\n"""\n%timeit -n 3 f(a)\n%matplotlib\ng(a)\n%time h(a)')
    assert text is not None
    lines = [(n.lineno, n.value.func.id) for n in text.tree.body[1:] if isinstance(n.value, ast.Call)]  # type: ignore[attr-defined]
    assert lines == [(4, "f"), (6, "g"), (7, "h")] and text.timed == {4, 7}
    assert unused.parse("%%bash\nls") is None and unused.parse("def") is None


def test_stages_that_are_used_are_no_findings() -> None:
    lowered = jax.jit(jnp.sin).lower(1.0)
    cells = ["lowered = jax.jit(jnp.sin).lower(1.0)", "print(lowered.as_text())"]
    assert unused.findings(cells, cells, {"lowered": lowered}) == ()
    (found,) = unused.findings(cells[:1], cells[:1], {"lowered": lowered})
    assert found.culprits == ("lowered", "jnp.sin")
