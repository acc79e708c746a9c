"""From findings to corrections that were tested: families say what to change, the search has it run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from jitmagic.evidence import Evidence
from jitmagic.fixes import elsewhere, families, policy
from jitmagic.fixes.inputs import dynamic_variables
from jitmagic.fixes.search import Proved, Search, fix_of
from jitmagic.report import Finding, Fix
from jitmagic.trial.budget import OutOfTime

CHOICES = 3
"""Constants for which it is tried to make them dynamic, the largest first."""


def propose(
    findings: Sequence[Finding],
    evidence: Evidence,
    search: Search | None,
    late: Callable[[], bool],
    on_fix: Callable[[tuple[Finding, ...]], object] = lambda findings: None,
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """The findings with the fixes that stood the test, the best first, and those for which time ran out, or an
    interrupt came; notes get none but where they are advice. `on_fix` is given the findings as they are at each fix."""
    found, cut = list(findings), []

    def put(finding: Finding, fixes: Iterable[Fix]) -> None:
        found[at] = replace(finding, fixes=tuple(fixes))

    def held(finding: Finding, proved: list[Proved]) -> None:
        put(finding, _graded(proved, finding, evidence, search))
        on_fix(tuple(found))

    if search is not None:
        search.on_held = held
    for at, finding in enumerate(findings):
        if not finding.wants_fixes or not families.of(finding.kind):
            continue
        try:
            if not late() and (fixes := _fixes(finding, evidence, search)):
                put(finding, fixes)
        except KeyboardInterrupt:  # what is known stays
            return tuple(found), tuple(f for f in findings[at:] if f.wants_fixes)
        if late():
            cut.append(finding)
    return tuple(found), tuple(cut)


def choices(finding: Finding, evidence: Evidence, search: Search) -> tuple[Fix, ...]:
    """What a note on constants leaves to choose: each as a dynamic variable, where that stood the test."""
    held = search.choices(dynamic_variables.dynamic_by_itself, finding)
    original = search.verifier.reruns.original
    return tuple(fix_of(p, original, evidence.function.name) for p in itertools.islice(held, CHOICES))


def _fixes(finding: Finding, evidence: Evidence, search: Search | None) -> list[Fix]:
    found: list[Fix] = []
    try:
        if search is not None:
            found = _graded(search.corrections(finding), finding, evidence, search)
        found += elsewhere.shown(finding, evidence, search)
    except OutOfTime:
        pass  # what was left out is noted
    return _unique(found)


def _graded(
    proved: Sequence[Proved], finding: Finding, evidence: Evidence, search: Search | None
) -> list[Fix]:
    if search is None:
        return []
    original = search.verifier.reruns.original
    graded = policy.graded(proved, finding, evidence)
    return [replace(fix_of(p, original, evidence.function.name), applicability=grade) for p, grade in graded]


def _unique(fixes: Iterable[Fix]) -> list[Fix]:
    seen: dict[tuple[object, ...], Fix] = {}
    for fix in fixes:
        seen.setdefault(
            (fix.static_argnames, fix.static_argnums, fix.dyn, fix.cell, fix.calls, fix.magic), fix
        )
    return list(seen.values())
