"""Cells run as a notebook runs them, and what is found in them without an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jitmagic.checking.checker import Checker
from jitmagic.checking.corrections import findings_of
from jitmagic.evidence import Silent
from jitmagic.report import Finding
from jitmagic.trial import budget
from tests.fixes.conftest import watched


def checked(cell: str, *calls: str, setup: str = "", **options: Any) -> Checker:
    """The checker of the cell's `f` after these calls; one that fails is left behind."""
    return watched(cell, calls, setup=setup, **options)[0]


def facts(cell: str, *calls: str, setup: str = "", **options: Any) -> Silent:
    """The silent facts of those calls."""
    found = checked(cell, *calls, setup=setup, **options).seen.silent
    assert found is not None
    return found


def finding(kind: str, cell: str, *calls: str, setup: str = "", **options: Any) -> Finding:
    """The one finding of that kind."""
    found = [f for f in told(checked(cell, *calls, setup=setup, **options)) if f.kind == kind]
    assert len(found) == 1, found
    return found[0]


def told(checker: Checker) -> tuple[Finding, ...]:
    """Its findings, with the corrections that hold."""
    deadline = budget.clock() + checker.settings.budget
    return findings_of(checker, deadline, checker.verifier(deadline))


def lines(records: Sequence[Any]) -> list[str]:
    """Source lines of records."""
    return [r.where.source for r in records]
