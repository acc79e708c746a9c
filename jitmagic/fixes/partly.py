"""Where no correction mends a whole function: the one that gets its trace furthest, compared without jit only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from jitmagic.evidence import Evidence
from jitmagic.fixes import rewrite
from jitmagic.fixes.prove import Prover
from jitmagic.fixes.rewrite.bounds import AS_SEEN
from jitmagic.fixes.rewrite.place import Candidate
from jitmagic.fixes.rewrites import STOPS, Search, fix_of, place_of, trial_of
from jitmagic.fixes.static import MADE_STATIC
from jitmagic.report import Finding, Fix
from jitmagic.rules.base import root
from jitmagic.rules.state_write import is_generator
from jitmagic.rules.words import agree, listed

CANDIDATES = 6
"""Corrections that are run without jit, those that get furthest first."""

_SETTINGS = (
    "int",
    "bool",
    "str",
    "function",
    "builtin_function_or_method",
    "method",
    "PjitFunction",
    "ufunc",
)


def extended(findings: Sequence[Finding], evidence: Evidence, prover: Prover) -> tuple[Finding, ...]:
    """The findings. Where several stop the trace and none has a proved fix, the first get one that mends a part. One
    that makes fractions static, which are data, is shown only where there is another."""
    stops = _in_turn(findings, evidence)
    if len(stops) < 2 or any(x.verified and not _freezes(x, evidence) for f in stops for x in f.fixes):
        return tuple(findings)
    frozen = any(x.verified for f in stops for x in f.fixes)
    found = _found(stops, evidence, prover, wholly=frozen)
    fix, mended = next(found, None) or next(_beside_leaks(findings, stops, evidence, prover), (None, ()))

    def with_it(finding: Finding) -> Finding:
        shown = (replace(x, applicability="display") if _freezes(x, evidence) else x for x in finding.fixes)
        assert fix is not None
        return replace(finding, fixes=(fix, *shown) if frozen else (*finding.fixes, fix))

    return tuple(with_it(f) if fix and f in mended else f for f in findings)


def _freezes(fix: Fix, evidence: Evidence) -> bool:
    """The fix makes an argument static that was a fraction in a call."""
    added = set(fix.static_argnames or ()) - set(evidence.options.static_argnames)
    return any(x.argument in added and x.python_type == "float" for c in evidence.calls for x in c.leaves)


def _in_turn(findings: Sequence[Finding], evidence: Evidence) -> list[Finding]:
    """What stops the trace, in the order in which the trace gets there: first what is refused at the call."""
    lines = [p.where.line for p in evidence.problems if p.where is not None]
    kinds = {*STOPS, *MADE_STATIC, "unregistered-pytree"}
    stops = [(f, f.span.line) for f in findings if f.severity == "error" and f.kind in kinds and f.span]
    return [f for f, line in sorted(stops, key=lambda x: lines.index(x[1]) if x[1] in lines else -1)]


def _found(
    stops: Sequence[Finding], evidence: Evidence, prover: Prover, *, wholly: bool
) -> Iterator[tuple[Fix, Sequence[Finding]]]:
    for start in _starts(stops, evidence):
        for path, outcome in Search(evidence, prover).follow(start, None, []):
            yield fix_of(evidence, path, outcome), stops
    if wholly:
        return
    sources = [f.span.source for f in stops if f.span]
    reached: list[tuple[int, list[Any]]] = []
    for path, place in prover.stuck:
        line = place.text.splitlines()[place.line - 1].strip()
        if line in sources[1:] and line != sources[0]:
            reached.append((sources.index(line), path))
    reached.sort(key=lambda x: (-x[0], any(AS_SEEN in c.title or AS_SEEN in c.cost for c in x[1]), len(x[1])))
    for mended, path in reached[:CANDIDATES]:
        static = tuple(n for c in path for n in c.static)
        if not prover.out_of_time() and trial_of(prover).alike(path[-1].cell, static):
            yield _in_part(fix_of(evidence, path), stops, mended), stops[:mended]


def _beside_leaks(
    findings: Sequence[Finding], stops: Sequence[Finding], evidence: Evidence, prover: Prover
) -> Iterator[tuple[Fix, Sequence[Finding]]]:
    """What leaves the function on the side handed out properly first, then the search as above."""
    static = next((c for c in _starts(stops, evidence) if not c.dyn), None)
    if static is None:
        return
    for finding in (f for f in findings if f.kind in ("leaked-tracer", "state-write") and f.span):
        place = place_of(finding, evidence, prover)
        for candidate in itertools.islice(rewrite.candidates(place) if place is not None else (), CANDIDATES):
            start = replace(candidate, static=(*candidate.static, *static.static))
            for path, outcome in Search(evidence, prover).follow(start, None, []):
                fix = fix_of(evidence, path, outcome)
                yield replace(fix, title=f"{static.title}; {fix.title}"), stops


def _starts(stops: Sequence[Finding], evidence: Evidence) -> Iterator[Candidate]:
    """What to begin the search with once more: those of the culprits static that are numbers to count with, flags,
    texts and functions, and the state dynamic that the function writes."""
    given = [leaf for call in evidence.calls for leaf in call.leaves]
    others = {x.argument for x in given if x.shape or x.python_type.rpartition(".")[2] not in _SETTINGS}
    known = {leaf.argument for leaf in given} - others - set(evidence.options.static_argnames)
    names = tuple(n for n in dict.fromkeys(root(c) for f in stops for c in f.culprits) if n in known)
    objects = {root(c) for f in stops if f.kind == "unregistered-pytree" for c in f.culprits}
    written = [w for w in evidence.writes if w.action != "added" and not is_generator(evidence, w)]
    state = tuple(w.path for w in written if w.origin != "argument" or root(w.path) in objects)
    static = f"make {listed(names)} static: each new value compiles again"
    cell = evidence.function.cell
    if state:
        title = f"make {listed(state)} dynamic" + (f"; {static}" if names else "")
        yield Candidate(title, cell, "unsafe", static=names, dyn=state)
    if names:
        yield Candidate(static, cell, "unsafe", static=names)


def _in_part(fix: Fix, stops: Sequence[Finding], mended: int) -> Fix:
    done, left = _lines(stops[:mended]), _lines(stops[mended:])
    words = f"it gives the same without jit, and the trace gets past {agree(done, 'line', 'lines')} {', '.join(done)}"
    return replace(
        fix, title=f"a first step: {fix.title}", applicability="unsafe", verified=False,
        evidence=f"{words}; {agree(left, 'line', 'lines')} {', '.join(left)} {agree(left, 'is', 'are')} left",
    )  # fmt: skip


def _lines(findings: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(str(f.span.line) for f in findings if f.span))
