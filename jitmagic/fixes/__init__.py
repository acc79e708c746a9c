"""From findings to corrections that were tested: families say what to change, the search has it run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.fixes import elsewhere, policy
from jitmagic.fixes.search import Search, fix_of
from jitmagic.report import Finding, Fix
from jitmagic.source.cell import uses_jit
from jitmagic.source.edits import masked
from jitmagic.source.tree import parsed
from jitmagic.trial import budget
from jitmagic.trial.budget import OutOfTime
from jitmagic.trial.verify import Verifier

if TYPE_CHECKING:
    from jitmagic.checking.subject import Subject


def propose(
    findings: Sequence[Finding],
    evidence: Evidence,
    subject: Subject,
    deadline: float | None = None,
    verifier: Verifier | None = None,
    on_calls: Verifier | None = None,
) -> tuple[Finding, ...]:
    """The findings with the fixes that stood the test, the best first; notes get none.

    `verifier` runs the whole cell; `on_calls` the calls that were kept, where the cell cannot be run again. What the
    budget (or an earlier `deadline`, by `budget.clock`) leaves no time for is noted.
    """
    deadline = budget.clock() + subject.budget if deadline is None else deadline
    search = _search(evidence, subject, deadline, verifier, on_calls)
    found, cut = [], []
    for finding in findings:
        late = budget.clock() > deadline
        fixes = [] if finding.severity == "note" or late else _fixes(finding, evidence, search)
        found.append(replace(finding, fixes=tuple(fixes)) if fixes else finding)
        if finding.severity != "note" and budget.clock() > deadline:
            cut.append(f"{finding.kind} in line {finding.span.line}" if finding.span else finding.kind)
    if cut:
        places = ", ".join(dict.fromkeys(cut))
        subject.seen.note(
            f"not all fixes were tried within {subject.budget:g} s: some are missing for {places}"
        )
    return tuple(found)


def _search(
    evidence: Evidence,
    subject: Subject,
    deadline: float,
    verifier: Verifier | None,
    on_calls: Verifier | None,
) -> Search | None:
    """The search on the whole cell, or on the calls that were kept where the cell cannot be run again."""
    tests = verifier if verifier is not None and not verifier.reruns.obstacle() else on_calls
    if tests is None or subject.settings.trace_only or not subject.settings.rehearse:
        return None
    own_jit = not subject.settings.compile and uses_jit(parsed(masked(subject.cell.body)))
    return Search(
        evidence, tests, subject.namespace, subject.from_outside, lambda: budget.clock() > deadline, own_jit
    )


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
