"""Objects that can be called, under the magics: they stay the objects they are."""

from __future__ import annotations

from typing import Any

import pytest

COUNTER = """
class Counter:
    unit = 2.0
    def __init__(self):
        self.total, self.offset = jnp.zeros(2), jnp.ones(2)
    def __call__(self, x):
        self.total = self.total + x
        return self.total + self.offset
counter = Counter()
"""


@pytest.mark.parametrize("magic", ["%%jit --no-time -f counter --dyn counter.total", "%%jitcheck -f counter"])
def test_attributes_are_the_objects_own(notebook: Any, magic: str) -> None:
    notebook.ok(COUNTER + "inner = counter")
    notebook.ok(
        f"{magic}\ncounter(1.), counter(1.)\ncounter.total = jnp.zeros(2)\ny = counter(3.)\nseen = counter.total"
    )
    assert notebook.ns["y"].tolist() == [4, 4]
    assert notebook.ns["seen"].tolist() == notebook.ns["inner"].total.tolist() == [3, 3]
    notebook.ok("counter.unit = 3.; counter.new = 1; del counter.new")
    assert vars(notebook.ns["inner"])["unit"] == 3 and not hasattr(notebook.ns["inner"], "new")


def test_an_attribute_that_was_baked_in_and_is_bound_anew(notebook: Any) -> None:
    notebook.ok(COUNTER)
    notebook.ok(
        "%%jit --no-time -f counter --dyn counter.total\ncounter(1.)\ncounter.offset = jnp.zeros(2)\ny = counter(1.)"
    )
    assert notebook.ns["y"].tolist() == [3, 3]  # with the offset of the first call
    (finding,) = notebook.report().findings
    assert (finding.kind, finding.culprits[0]) == ("stale-constant", "counter.offset")
    assert finding.fixes[0].dyn == ("counter.total", "counter.offset")


def test_an_object_that_a_compiled_function_gives_back_is_no_state_of_the_callers(notebook: Any) -> None:
    notebook.ok("import dataclasses")
    notebook.ok(
        "%%jitcheck -q\n@jax.tree_util.register_dataclass\n@dataclasses.dataclass\nclass S:\n    x: jax.Array\n\n"
        "@jax.jit\ndef step(s):\n    s.x = s.x + 1\n    return s\n"
    )
    notebook.ok("s = step(S(jnp.zeros(2)))\ns = step(s)")
    assert not notebook.kinds("warning", "error")


def test_a_function_that_is_returned_is_told_where_it_is_returned(notebook: Any) -> None:
    notebook.ok(
        "%%jit -q --no-time -f line\ndef line(x):\n    def at(t):\n        return x * t\n    return at\n"
    )
    notebook.error("line(2.0)")
    (found,) = (f for f in notebook.report().findings if f.kind == "invalid-jax-type")
    assert (found.span.source, found.culprits) == ("return at", ("at",))
