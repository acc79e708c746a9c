"""Findings with the corrections that were tested; nothing here is loaded where there is nothing to correct."""

from __future__ import annotations

import ast
import contextlib
import gc
from collections.abc import Callable, Sequence
from dataclasses import replace

from jitmagic import fixes, report
from jitmagic.checking.conclusions import assemble, evidence_of, told_of
from jitmagic.checking.rerun import verifier_of_function
from jitmagic.checking.subject import Subject
from jitmagic.evidence import Evidence
from jitmagic.fixes.search import Search
from jitmagic.interrupts import deferred, ending
from jitmagic.kinds import CAPTURED
from jitmagic.render import Report
from jitmagic.settings import CellSource
from jitmagic.source.cell import uses_jit
from jitmagic.source.edits import masked
from jitmagic.source.tree import looks_for_garbage, nodes_of, parsed
from jitmagic.trial import budget
from jitmagic.trial.verify import Verifier

LOOKING = "looking for corrections"
CHOOSING_S = 0.3
"""Seconds of work for what a note leaves to choose."""


def findings_of(
    subject: Subject,
    deadline: float | None = None,
    verifier: Verifier | None = None,
    on_fix: Callable[[tuple[report.Finding, ...]], object] = lambda findings: None,
) -> tuple[report.Finding, ...]:
    """The findings with their fixes; computed again only where something new was seen. `on_fix` is given what is
    known at each fix.

    `deadline` ends the search for fixes, where that is before the subject's own budget does."""
    # Notes say what the search for fixes left out: they are no reason to search again.
    cell = verifier.reruns.original if verifier is not None else None
    key = (replace(evidence_of(subject), notes=()), len(subject.seen.samples), cell)
    if subject.concluded is None or subject.concluded[0] != key:
        found = told_of(subject)
        try:
            shown = subject.progress(LOOKING) if subject.progress is not None else contextlib.nullcontext()
            with shown as say:
                end = deadline or budget.clock() + subject.settings.budget
                found = proposed(
                    found, evidence_of(subject), subject, deadline, verifier,
                    lambda: subject.verifier_on_calls(end) or verifier_of_function(subject, end), say, on_fix,
                )  # fmt: skip
        except Exception as exc:
            subject.failed_inside("the search for fixes", exc)
        subject.concluded = key, found
    return subject.concluded[1]


def _is_python(cell: str) -> bool:
    """A transformer of the user's own may have made Python of what is none."""
    try:
        parsed(masked(cell))
    except SyntaxError:
        return False
    return True


def proposed(
    findings: Sequence[report.Finding],
    evidence: Evidence,
    subject: Subject,
    deadline: float | None = None,
    verifier: Verifier | None = None,
    on_calls: Callable[[], Verifier] | None = None,
    say: Callable[[str], object] | None = None,
    on_fix: Callable[[tuple[report.Finding, ...]], object] = lambda findings: None,
) -> tuple[report.Finding, ...]:
    """The findings with the fixes that stood the test.

    `verifier` runs the whole cell; `on_calls` the calls that were kept, where the cell cannot be run again. What the
    budget (or an earlier `deadline`, by `budget.clock`) leaves no time for is noted.
    """
    used = [verifier] if verifier is not None else []

    def remembered() -> Verifier:
        used.append(on_calls())  # type: ignore[misc]
        return used[-1]

    later = remembered if on_calls is not None else None
    found, tried = _proposed(findings, evidence, subject, deadline, verifier, later, say, on_fix)
    if tried and looks_for_garbage():
        with deferred():  # Python loses an interrupt that comes in the middle of it
            if not any([v.let_go() for v in used]) and _defines_classes(subject.cell.body):
                gc.collect()  # until then classes of trials are among those that theirs calls its `__subclasses__()`
    return found


def _defines_classes(cell: str) -> bool:
    return any(isinstance(n, ast.ClassDef) for n in nodes_of(parsed(masked(cell))))


def _proposed(
    findings: Sequence[report.Finding], evidence: Evidence, subject: Subject, deadline: float | None,
    verifier: Verifier | None, on_calls: Callable[[], Verifier] | None, say: Callable[[str], object] | None,
    on_fix: Callable[[tuple[report.Finding, ...]], object],
) -> tuple[tuple[report.Finding, ...], bool]:  # fmt: skip
    """The same, and whether something was tried; what that has made is garbage now."""
    if not _is_python(subject.cell.body):
        subject.seen.note("fixes were not looked for: as it is typed the cell is no Python")
        return tuple(findings), False
    end = budget.clock() + subject.settings.budget if deadline is None else deadline

    def late() -> bool:
        return budget.clock() > end

    tests, otherwise = verifier, on_calls
    if verifier is None or verifier.reruns.obstacle():
        tests, otherwise = on_calls() if on_calls is not None else None, None
    search = _search(evidence, subject, tests, late)
    if search is not None:
        search.progress, search.otherwise = say or search.progress, otherwise
    found, cut = fixes.propose(findings, evidence, search, late, on_fix)
    wanted = search is not None and any(f.wants_fixes for f in findings)
    if wanted and verifier is not None and (obstacle := verifier.reruns.obstacle()):
        subject.seen.note(f"fixes were not tested on the whole cell: {obstacle}")
    if cut:
        why = f"within {subject.settings.budget:g} s" if late() else "because of an interrupt"
        places = dict.fromkeys(f"{f.kind} in line {f.span.line}" if f.span else f.kind for f in cut)
        more = "; `--search` looks longer" if late() and subject.cell.magic else ""
        subject.seen.note(f"not all fixes were tried {why}: some are missing for {', '.join(places)}{more}")
    return found, search is not None


def _search(
    evidence: Evidence, subject: Subject, tests: Verifier | None, late: Callable[[], bool]
) -> Search | None:
    """The search for corrections that these tests are to prove; None where nothing may be run."""
    if tests is None or subject.settings.trace_only or not subject.settings.rehearse:
        return None
    by_itself = subject.jitted_by_user or not subject.settings.compile
    own_jit = by_itself and uses_jit(parsed(masked(subject.cell.body)))
    return Search(evidence, tests, subject.namespace, subject.from_outside, late, own_jit)


def report_of(
    subjects: Sequence[Subject],
    cell: CellSource | None = None,
    notes: Sequence[str] = (),
    on_fix: Callable[[Report], object] | None = None,
    advice_s: float | None = None,
) -> Report:
    """One report about several functions, with corrections; `on_fix` is given the report as it is at each fix.

    `advice_s` is the time for them where nothing is wrong and nobody has asked."""
    ending.heard = False
    known = {id(s): told_of(s) for s in subjects}
    wrong = any(f.severity != "note" for found in known.values() for f in found)
    most = max((s.settings.budget for s in subjects), default=0.0)
    deadline = budget.clock() + (most if wrong or advice_s is None else min(most, advice_s))
    verifier = next((v for s in subjects if (v := s.verifier(deadline)) is not None), None)

    def findings(subject: Subject) -> tuple[report.Finding, ...]:
        def told(found: tuple[report.Finding, ...]) -> None:
            known[id(subject)] = found
            if on_fix is not None:
                on_fix(assemble(subjects, cell, notes, findings=lambda s: known[id(s)]))

        known[id(subject)] = findings_of(subject, deadline, verifier, told)
        return known[id(subject)]

    return assemble(subjects, cell, notes, findings=findings)


def with_choices(known: Report, subjects: Sequence[Subject]) -> Report:
    """The report with a tested fix for each constant that could be a dynamic variable too, as far as time allows."""
    end = budget.clock() + CHOOSING_S
    by_name = {s.name: s for s in subjects if s.settings.compile and s.cell.magic}

    def chosen(finding: report.Finding) -> report.Finding:
        subject = by_name.get(finding.function)
        if finding.kind not in CAPTURED or finding.severity != "note" or subject is None:
            return finding
        evidence = evidence_of(subject)
        search = _search(evidence, subject, subject.verifier(end), lambda: budget.clock() > end)
        return finding if search is None else replace(finding, fixes=fixes.choices(finding, evidence, search))

    return replace(known, findings=tuple(map(chosen, known.findings)))
