"""From findings to corrections that were tested: families say what to change, the search has it run."""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from jitmagic.evidence import Evidence, Where
from jitmagic.fixes import families, policy
from jitmagic.fixes.inputs import dynamic_variables
from jitmagic.fixes.search import Proved, Search, diff, fix_of, offered, written
from jitmagic.interrupts import ending
from jitmagic.report import Finding, Fix
from jitmagic.source.tree import source_of
from jitmagic.trial.budget import OutOfTime
from jitmagic.trial.verify import Attempt

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

    def held(at: int, finding: Finding, fixes: Iterable[Fix]) -> None:
        found[at] = replace(finding, fixes=tuple(fixes))
        on_fix(tuple(found))

    if search is not None:
        search.on_held = lambda finding, proved: held(at, finding, _graded(proved, finding, evidence, search))
    for at, finding in enumerate(findings):
        if not finding.wants_fixes or not families.of(finding.kind):
            continue
        with ending:
            if not late() and (fixes := _fixes(finding, evidence, search)):
                found[at] = replace(finding, fixes=tuple(fixes))
        if ending.heard:  # what is known stays
            return tuple(found), tuple(f for f in findings[at:] if f.wants_fixes)
        if late():
            cut.append(finding)
    with ending:
        for at, finding in enumerate(found):
            safe = any(x.applicability == "safe" for x in finding.fixes)
            if search is None or not finding.wants_fixes or safe:
                continue
            shared = _graded(search.shared(finding), finding, evidence, search)  # it came later
            if shared and (shared[0].applicability == "safe" or not finding.fixes):
                held(at, finding, _each_once([*shared, *finding.fixes]))
    return tuple(found), tuple(cut)


def choices(finding: Finding, evidence: Evidence, search: Search) -> tuple[Fix, ...]:
    """What a note on constants leaves to choose: each as a dynamic variable, where that stood the test."""
    held = search.choices(dynamic_variables.dynamic_by_itself, finding)
    original = search.verifier.reruns.original
    return tuple(fix_of(p, original, evidence.function.name) for p in itertools.islice(held, CHOICES))


def _fixes(finding: Finding, evidence: Evidence, search: Search | None) -> list[Fix]:
    found: list[Fix] = []
    if search is None:
        return found
    with contextlib.suppress(OutOfTime):  # what was left out is noted
        found += _graded(search.corrections(finding), finding, evidence, search)
        found += _shown_elsewhere(finding, evidence, search)
    return _each_once(found)


def _each_once(fixes: Iterable[Fix]) -> list[Fix]:
    """Of those that change the same, the first."""
    found: dict[tuple[object, ...], Fix] = {}
    for x in fixes:
        names = None if x.static_argnames is None else tuple(sorted(x.static_argnames))
        magic = x.magic if names is None else None  # their order says nothing
        found.setdefault((names, x.static_argnums, x.dyn, x.cell, x.calls, magic), x)
    return list(found.values())


def _graded(proved: Sequence[Proved], finding: Finding, evidence: Evidence, search: Search) -> list[Fix]:
    original = search.verifier.reruns.original
    graded = policy.graded(proved, finding, evidence)
    return [replace(fix_of(p, original, evidence.function.name), applicability=grade) for p, grade in graded]


def _shown_elsewhere(finding: Finding, evidence: Evidence, search: Search) -> Iterator[Fix]:
    """The first change for the place in its own file, as words and a diff, where the finding is not in the cell."""
    where = _where(finding, evidence)
    found = _function_at(where) if where is not None else None
    if where is None or found is None:
        return
    text, first = found
    indent = len(text) - len(text.lstrip())
    plain = "".join(x[indent:] if x.strip() else x for x in text.splitlines(keepends=True))
    spot = search.spot(
        Attempt("", plain), finding.kind, where.line - first + 1, where.column - indent, where.end_line - first + 1,
        where.end_column - indent, finding.culprits, finding.detail,
    )  # fmt: skip
    spot = replace(spot, probe=lambda cell: (), outputs=lambda cell: ())
    rewritten = (c for family in families.of(finding.kind) for c in offered(family, spot) if c.edits)
    change = next(rewritten, None)
    if change is not None and change.edits is not None:
        file = os.path.basename(where.file)
        yield Fix(
            title=f"in `{file}`: {change.title}", applicability="display",
            evidence=f"it stands in `{file}`, which is not corrected from here",
            diff=diff(plain, written(change, spot)),
        )  # fmt: skip


def _where(finding: Finding, evidence: Evidence) -> Where | None:
    """The place of the finding, where it is in a file that is not the cell's."""
    span = finding.span
    for problem in evidence.problems:
        where = problem.where
        if where is not None and span is not None and (where.line, where.source) == (span.line, span.source):
            return where if where.file != evidence.function.file and os.path.isfile(where.file) else None
    return None


def _function_at(where: Where) -> tuple[str, int] | None:
    """Source and first line of the innermost function around the place."""
    source = source_of(where.file)
    around = [n for n in source.functions(where.line) if isinstance(n, ast.FunctionDef)]
    if not around:
        return None
    return "".join(source.lines[around[-1].lineno - 1 : around[-1].end_lineno]), around[-1].lineno
