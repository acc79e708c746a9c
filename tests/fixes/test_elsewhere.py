"""Source that is not at hand: the example of the rule's page, in the user's names."""

from __future__ import annotations

from typing import Any

from jitmagic.fixes.elsewhere import _renamed

TEXT = "def g(v, by):\\n    if v > by:\\n        return v\\n    return -v"


def test_text_that_ran_by_exec_gets_the_example_of_the_page(notebook: Any) -> None:
    notebook.ok(f'exec("{TEXT}")')
    notebook.ok("%jitcheck -q g(1.0, 0.5)")
    (finding,) = notebook.report().findings
    (shown,) = (f for f in finding.fixes if f.diff)
    assert shown.applicability == "display" and not shown.verified and shown.cell is None
    assert "as in the example of JM101" in shown.title and "`g`" in shown.title
    assert "-    return v if v > 0" in shown.diff and "+    return jnp.where(v > 0, v, " in shown.diff


def test_a_name_that_stands_for_something_else_in_the_example_stays() -> None:
    cell = "def leaky(x, slope):\n    return jnp.where(x > 0, x, slope * x)\n"
    assert _renamed(cell, {"leaky": "f", "x": "jnp"}) == cell.replace("leaky", "f")
    assert _renamed(cell, {"leaky": "f", "x": "for"}) == cell.replace("leaky", "f")
    assert _renamed("def f(x):\n    return a.x + x\n", {"x": "v"}) == "def f(v):\n    return a.x + v\n"
