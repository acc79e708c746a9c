"""The walk of one failing cell through the files: every file and name that it says is there and is passed."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Notebook

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
WALK = PAGE.partition("## One failing cell, file by file")[2].partition("\n## ")[0]
FILES = list(dict.fromkeys(re.findall(r"`([\w/]+\.py)`", WALK)))
CELL = re.findall(r"```python\n(.*?)```", WALK, re.S)[0]


def _defined(file: str) -> set[str]:
    """`name`, `Class` and `Class.method` of a file."""
    found = set()
    for node in ast.parse((ROOT / "jitmagic" / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
    return found


def test_every_name_of_the_walk_is_defined_in_a_file_that_it_names() -> None:
    assert len(FILES) > 20
    known = set().union(*map(_defined, FILES))
    names = {n for n in re.findall(r"`([A-Za-z_]\w+(?:\.[a-z_]\w+)?)`", WALK) if not n.endswith(".py")} - {
        "f",
        "safe",
    }
    assert names <= known, names - known


def test_names_stand_in_the_file_beside_them() -> None:
    pairs = re.findall(r"`([\w/]+\.py)`:\s+`([\w.]+)`", WALK)
    assert len(pairs) > 8
    assert [p for p in pairs if p[1] not in _defined(p[0])] == []


def test_the_cell_passes_every_file(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: set[str] = set()
    inside = str(ROOT / "jitmagic") + "/"

    def note(frame: Any, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(inside):
            passed.add(file.removeprefix(inside))

    notebook.ok("import jax, jax.numpy as jnp")
    old = sys.gettrace()  # the profile is what Python 3.11 watches our own runs with
    sys.settrace(note)
    monkeypatch.setattr(sys, "gettrace", lambda: None)  # a user's is not called in runs of ours
    try:
        notebook.run(CELL)
    finally:
        sys.settrace(old)
    fix = notebook.report().findings[0].fixes[0]
    assert fix.verified and "jnp.where(x > 0, x, slope * x)" in (fix.cell or "")
    assert set(FILES) - passed == set()
