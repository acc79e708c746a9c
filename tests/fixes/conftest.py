"""Cells run as a notebook runs them, and the rewrites that they are offered."""

from __future__ import annotations

import functools
import itertools
import linecache
from collections.abc import Sequence
from typing import Any

import jax
import pytest

from jitmagic import rules
from jitmagic.checking import corrections as concluded
from jitmagic.checking import subject
from jitmagic.checking.checker import Checker
from jitmagic.checking.conclusions import evidence_of
from jitmagic.checking.watched import Watched
from jitmagic.fixes import rewrite, rewrites
from jitmagic.fixes.prove import Prover
from jitmagic.options import JitOptions
from jitmagic.report import Fix
from jitmagic.settings import CellSource, Settings

SETUP = "import functools\nimport math\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _failures_of_ours_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "RAISE", True)
    monkeypatch.setattr(rewrite, "_DEBUG", True)


def watched(
    cell: str, calls: Sequence[str], name: str = "f", setup: str = "", static: Sequence[str] = ()
) -> tuple[Checker, dict[str, Any]]:
    """The checker of a cell's function after these calls, failing ones included, and the namespace."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(SETUP + setup, namespace)
    file, text = f"<ipython-input-{next(_numbers)}-fixes>", "\n" + cell
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), namespace)
    source = CellSource("%%jit\n" + cell, cell)
    head, _, method = name.partition(".")
    fn = vars(namespace[head])[method] if method else namespace[head]
    checker = Checker(
        fn, name, namespace=namespace, settings=Settings(time=False), cell=source,
        options=JitOptions(static_argnames=tuple(static)),
    )  # fmt: skip
    if method:
        setattr(namespace[head], method, Watched(fn, checker))
    else:
        namespace[head] = Watched(fn, checker)
    ran: list[str] = []
    checker.call_source, checker.history = (lambda: (ran[-1], None)), (lambda: list(calls))
    for call in calls:
        ran.append(call)
        try:
            exec(call, namespace)
        except Exception:  # the diagnosis is what is wanted
            pass
    return checker, namespace


def fixes_of(cell: str, calls: Sequence[str], name: str = "f", setup: str = "") -> list[Fix]:
    """The rewrites that hold, for each finding of the cell."""
    checker, _ = watched(cell, calls, name, setup)
    evidence = evidence_of(checker)
    found = [f for f in rules.run(evidence, rules.Settings()) if f.severity != "note"]
    return [fix for finding in found for fix in rewrites.propose(finding, evidence, Prover(checker))]


def corrections(
    cell: str, calls: Sequence[str], name: str = "f", setup: str = "", static: Sequence[str] = ()
) -> list[tuple[str, Fix]]:
    """Kind of the finding and the fix, for each fix of each error and warning, as a report has them. Plain data, so
    that the tests of one cell share them."""
    wide = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    return list(_corrections(cell, tuple(calls), name, setup, tuple(static), wide))


@functools.cache
def _corrections(
    cell: str, calls: tuple[str, ...], name: str, setup: str, static: tuple[str, ...], wide: bool
) -> tuple[tuple[str, Fix], ...]:
    checker, _ = watched(cell, calls, name, setup, static)
    found = [f for f in concluded.findings_of(checker) if f.severity != "note"]
    nothing = (Fix(title="none", applicability="display"),)
    return tuple((f.kind, fix) for f in found for fix in f.fixes or nothing)


def findings_of(cell: str, calls: Sequence[str], name: str = "f", setup: str = "") -> list[str]:
    """Kinds of the errors and warnings that the cell has."""
    checker, _ = watched(cell, calls, name, setup)
    return [f.kind for f in rules.run(evidence_of(checker), rules.Settings()) if f.severity != "note"]
