"""From findings to fixes that were tried: each proposal is applied, re-run and compared with the plain run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jitmagic.checking.plain_runs import OutOfTime
from jitmagic.evidence import Evidence
from jitmagic.fixes import (
    declared,
    dynamic,
    elsewhere,
    inline,
    objects,
    partly,
    policy,
    rewrites,
    silent,
    static,
    whole,
)
from jitmagic.fixes.prove import Prover
from jitmagic.fixes.rewrite import bounds
from jitmagic.fixes.search import Search, fix_of
from jitmagic.report import Finding, Fix
from jitmagic.rules.words import listed
from jitmagic.source.tree import tolerant_tree, walk
from jitmagic.trial.verify import Verifier

if TYPE_CHECKING:
    from jitmagic.checking.subject import Subject

Proposer = Callable[[Finding, Evidence, Prover], Iterable[Fix]]
PROPOSERS: tuple[Proposer, ...] = (
    objects.propose, static.propose, dynamic.propose, rewrites.propose, silent.propose,
    elsewhere.propose,
)  # fmt: skip

CALLED_BACK = "jax.debug.callback"
"""State that leaves the compiled function on the side, which is worse than what the function returns."""

WITHIN = frozenset(("unrolled-loop",))
"""Kinds whose fixes change the function alone, never the calls."""


def propose(
    findings: Sequence[Finding],
    evidence: Evidence,
    checker: Subject,
    deadline: float | None = None,
    verifier: Verifier | None = None,
) -> tuple[Finding, ...]:
    """The findings with the fixes that stood the test, the best first; notes get none.

    What the budget (or an earlier `deadline`, by `prove.clock`) leaves no time for is noted.
    """
    prover = Prover(checker, deadline)
    search = searching(evidence, prover, verifier)
    found: list[Finding] = []
    cut: list[Finding] = []
    for finding in findings:
        prover.cut = False
        found.append(
            finding if finding.severity == "note" else _with_fixes(finding, evidence, prover, search)
        )
        cut += [finding] if prover.cut else []
    try:
        found = list(partly.extended(found, evidence, prover))
    except OutOfTime:
        pass  # the note below says so
    except Exception as exc:
        checker.failed_inside("the search for a first step", exc)
    try:
        found = [whole.tested(f, evidence, verifier) for f in found]
    except OutOfTime:
        found = [whole.on_calls(f, "the time was up") for f in found]
    if cut:
        places = ", ".join(dict.fromkeys(map(_place, cut)))
        budget = f"{checker.budget:g} s"
        checker.seen.note(f"not all fixes were tried within {budget}: some are missing for {places}")
    return tuple(found)


def _as_now(fix: Fix, moved: set[str]) -> Fix:
    """Proved on the calls kept, but with values that changed between them as they are now: not proved on these calls,
    unless the fix makes them inputs."""
    tree = tolerant_tree(fix.cell) if fix.cell else None
    parameters = {n.arg for n in walk(tree) if isinstance(n, ast.arg)} if tree is not None else set()
    left = sorted(moved - parameters - set(fix.dyn or ()))
    if not fix.verified or not left:
        return fix
    words = f"{fix.evidence}, with {listed(left)} as now: changed between the calls, which a compiled function misses"
    return replace(fix, verified=False, evidence=words)


def _place(finding: Finding) -> str:
    return f"{finding.kind} in line {finding.span.line}" if finding.span is not None else finding.kind


def searching(evidence: Evidence, prover: Prover, verifier: Verifier | None) -> Search | None:
    """The search on the whole cell, where that can be run again."""
    if verifier is None or verifier.reruns.obstacle() or prover.checker.settings.trace_only:
        return None
    checker = prover.checker
    return Search(evidence, verifier, checker.namespace, checker.from_outside, prover.out_of_time)


def _with_fixes(finding: Finding, evidence: Evidence, prover: Prover, search: Search | None) -> Finding:
    found: list[Fix] = []
    try:
        for proposer in PROPOSERS:
            if prover.out_of_time():
                break
            if proposer is rewrites.propose and search is not None and finding.kind in rewrites.KINDS:
                original = search.verifier.reruns.original
                proved = policy.graded(search.corrections(finding), finding, evidence)
                found += [replace(fix_of(p, original, evidence.options), applicability=g) for p, g in proved]
            else:
                found += proposer(finding, evidence, prover)
    except OutOfTime:
        prover.cut = True
    found = _as_written(found, evidence, prover)
    if finding.kind not in WITHIN and not any(f.verified and CALLED_BACK not in f.title for f in found):
        try:
            found = _with_calls_inside(finding, evidence, prover) + found
        except OutOfTime:
            prover.cut = True
    found = _advisable(_without_guesses(found), finding, evidence)
    if finding.severity == "error" and (moved := prover.moved):
        found = [_as_now(f, moved) for f in found]
    return replace(finding, fixes=tuple(_unique(found))) if found else finding


def _as_written(found: Iterable[Fix], evidence: Evidence, prover: Prover) -> list[Fix]:
    """Options of the magic would not reach a function that the cell compiles: they go into its own `jit`."""
    if prover.checker.settings.compile or not uses_jit_itself(prover):
        return list(found)
    return [
        f for f in (declared.in_cell(x, evidence, prover.checker.namespace) for x in found) if f is not None
    ]


def _with_calls_inside(finding: Finding, evidence: Evidence, prover: Prover) -> list[Fix]:
    """Fixes that change the calls too, where these stand in the function's own cell: all in one corrected cell."""
    apart = None if prover.out_of_time() else inline.view(evidence, prover)
    if apart is None or prover.checker.settings.trace_only and prover.checker.settings.compile:
        return []
    inner, trying = apart
    assert trying.parts is not None
    found = [f for propose in (objects.propose, silent.propose) for f in propose(finding, inner, trying)]
    found = _as_written(found, inner, trying)
    return [f for f in (inline.folded(x, trying.parts) for x in found) if f is not None]


def uses_jit_itself(prover: Prover) -> bool:
    """The cell compiles the function: options of the magic would not reach it."""
    from jitmagic.source.cell import uses_jit

    try:
        return uses_jit(ast.parse(prover.checker.cell.body))
    except SyntaxError:
        return False


def _without_guesses(fixes: Sequence[Fix]) -> list[Fix]:
    """No size written down as it was in the calls seen where a static argument says it, and no rewrite of what
    static arguments alone do."""
    static = any(f.verified and f.static_argnames and bounds.AS_SEEN not in f.title for f in fixes)
    static |= any(f.verified and not f.cell and f.static_argnums for f in fixes)
    enough = [set(f.static_argnames) for f in fixes if f.verified and not f.cell and f.static_argnames]
    return [
        f for f in fixes
        if not (static and bounds.AS_SEEN in f.title) and not (f.cell and set(f.static_argnames or ()) in enough)
    ]  # fmt: skip


def _advisable(fixes: Sequence[Fix], finding: Finding, evidence: Evidence) -> list[Fix]:
    """Rewrites first where the culprit is an array. Static data is shown, not advised, where a rewrite does without."""
    if finding.kind == "unhashable-static":  # as an ordinary argument, where that is enough
        fixes = sorted(fixes, key=lambda f: ("safe", "unsafe", "display").index(f.applicability))
    rewritten = [f for f in fixes if f.cell and f.verified and not f.static_argnames and not f.static_argnums]
    if not rewritten:
        return [replace(f, applicability="display") if _compared(f, finding, evidence) else f for f in fixes]
    exact = any(f.applicability == "safe" for f in rewritten)
    kept = [
        f
        if f.cell or not _static_data(f, finding, evidence, exact=exact)
        else replace(f, applicability="display")
        for f in fixes
    ]
    kept.sort(key=lambda f: f.applicability == "display")
    if finding.kind == "tracer-bool" and not any(_flags(f, evidence) for f in kept):
        kept.sort(key=lambda f: ("safe", "unsafe", "display").index(f.applicability))
    leaves = {leaf.path: leaf for call in evidence.calls for leaf in call.leaves}
    culprits = [leaves[c] for c in finding.culprits if c in leaves]
    if any(leaf.shape or leaf.kind in ("array", "numpy") for leaf in culprits):
        kept.sort(key=lambda f: not f.cell)
    return kept


def _compared(fix: Fix, finding: Finding, evidence: Evidence) -> bool:
    """The fix makes a float static of which a branch is taken: it is data, whatever else can be done."""
    names = set(fix.static_argnames or ()) - set(evidence.options.static_argnames)
    leaves = [x for call in evidence.calls for x in call.leaves if x.argument in names]
    return finding.kind == "tracer-bool" and any(x.python_type == "float" for x in leaves)


def _flags(fix: Fix, evidence: Evidence) -> bool:
    """The fix makes a flag or a text static, which is what static arguments are for."""
    names = set(fix.static_argnames or ()) - set(evidence.options.static_argnames)
    leaves = [x for call in evidence.calls for x in call.leaves if x.argument in names]
    return bool(leaves) and all(x.python_type in ("bool", "str") for x in leaves)


def _static_data(fix: Fix, finding: Finding, evidence: Evidence, *, exact: bool) -> bool:
    """The fix makes a number static that is data: a float, or one that is compared by size; where there is an `exact`
    rewrite, the end of a `while` and a whole number that changed between the calls."""
    order = evidence.function.parameters
    numbered = {order[n] for n in fix.static_argnums or () if -len(order) <= n < len(order)}
    names = set(fix.static_argnames or ()) | numbered
    names -= set(evidence.options.static_argnames)
    if any(
        leaf.python_type == "float" and leaf.argument in names
        for call in evidence.calls
        for leaf in call.leaves
    ):
        return True
    if exact and _varied(names, evidence):
        return True
    if _sized_by(names, evidence):
        return False
    problem = next(
        (p for p in evidence.problems if p.where and finding.span and p.where.line == finding.span.line), None
    )
    if problem is None or finding.kind != "tracer-bool" or problem.construct == "assert":
        return False
    if problem.construct == "while":
        return exact
    return any(sign in problem.where.text for sign in "<>")  # type: ignore[union-attr]


def _varied(names: set[str], evidence: Evidence) -> bool:
    """One of the arguments is a whole number that was another one in another call."""
    seen: dict[str, set[object]] = {}
    for leaf in (leaf for call in evidence.calls for leaf in call.leaves):
        if leaf.path in names and leaf.python_type == "int":
            seen.setdefault(leaf.path, set()).add(leaf.value)
    return any(len(values) > 1 for values in seen.values())


def _sized_by(names: set[str], evidence: Evidence) -> bool:
    """Every one of the arguments is a size, an order or a count too: what a definite number is needed for."""
    counted = {
        x for p in evidence.problems if p.op in ("index", "int", "shape", "concrete") for x in p.leaves
    }
    return bool(names) and names <= counted


def _unique(fixes: Iterable[Fix]) -> list[Fix]:
    seen: dict[tuple[object, ...], Fix] = {}
    for fix in fixes:
        seen.setdefault((fix.static_argnames, fix.static_argnums, fix.dyn, fix.cell, fix.calls), fix)
    return list(seen.values())
