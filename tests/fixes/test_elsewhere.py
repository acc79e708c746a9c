"""Source that is not at hand: nothing is written for it."""

from __future__ import annotations

from typing import Any

TEXT = "def g(v, by):\\n    if v > by:\\n        return v\\n    return -v"


def test_text_that_ran_by_exec_is_not_rewritten(notebook: Any) -> None:
    notebook.ok(f'exec("{TEXT}")')
    notebook.ok("%jitcheck -q g(1.0, 0.5)")
    (finding,) = notebook.report().findings
    assert finding.kind == "tracer-bool"
    assert all(f.cell is None and f.diff is None for f in finding.fixes)
