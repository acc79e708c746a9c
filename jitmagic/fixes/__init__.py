"""From findings to corrections that were tested: families say what to change, the search has it run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from jitmagic.evidence import Evidence
from jitmagic.fixes import elsewhere, policy
from jitmagic.fixes.search import Search, fix_of
from jitmagic.report import Finding, Fix
from jitmagic.trial.budget import OutOfTime


def propose(
    findings: Sequence[Finding], evidence: Evidence, search: Search | None, late: Callable[[], bool]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """The findings with the fixes that stood the test, the best first, and those for which time ran out; notes get
    no fixes."""
    found, cut = [], []
    for finding in findings:
        fixes = [] if finding.severity == "note" or late() else _fixes(finding, evidence, search)
        found.append(replace(finding, fixes=tuple(fixes)) if fixes else finding)
        if finding.severity != "note" and late():
            cut.append(finding)
    return tuple(found), tuple(cut)


def _fixes(finding: Finding, evidence: Evidence, search: Search | None) -> list[Fix]:
    found: list[Fix] = []
    try:
        if search is not None:
            original = search.verifier.reruns.original
            graded = policy.graded(search.corrections(finding), finding, evidence)
            found = [replace(fix_of(p, original), applicability=grade) for p, grade in graded]
        found += elsewhere.shown(finding, evidence, search)
    except OutOfTime:
        pass  # what was left out is noted
    return _unique(found)


def _unique(fixes: Iterable[Fix]) -> list[Fix]:
    seen: dict[tuple[object, ...], Fix] = {}
    for fix in fixes:
        seen.setdefault(
            (fix.static_argnames, fix.static_argnums, fix.dyn, fix.cell, fix.calls, fix.magic), fix
        )
    return list(seen.values())
