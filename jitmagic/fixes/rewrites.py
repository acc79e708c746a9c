"""Fixes that rewrite the cell: each rewrite is tried, what fails next is rewritten too, the whole is proved.

The search goes depth first: from a cell that fails at some place, through the candidates for that place, to
cells that fail at another place or not at all.
"""

from __future__ import annotations

import difflib
import itertools
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.around import is_refused
from jitmagic.fixes.prove import Prover
from jitmagic.report import Finding, Fix

ROUNDS = 8
ATTEMPTS = 40
AGAIN = 12
"""Attempts where the search from another place has met problems that it could not mend: they are still there."""
KEEP = 1
FURTHER = 4
"""How many more are tried for a correction that changes nothing else, once there is one that does."""

KINDS = frozenset((
    "tracer-bool", "tracer-int", "tracer-array-conversion", "dynamic-shape", "tracer-hash", "tracer-format",
    "in-place-update", "leaked-tracer", "carry-mismatch", "trace-time-print", "state-write", "frozen-side-effect",
    "jit-differs-from-eager", "unused-result", "user-error",
))  # fmt: skip
STOPS = frozenset((
    "tracer-bool", "tracer-int", "tracer-array-conversion", "dynamic-shape", "tracer-hash", "tracer-format",
    "in-place-update", "carry-mismatch",
))  # fmt: skip
"""What ends a trace: a corrected cell that traces holds none of them."""
SILENT = ("trace-time-print", "frozen-side-effect", "jit-differs-from-eager")


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterable[Fix]:
    """Corrected cells that trace and give the plain results, the most readable first."""
    if finding.kind not in KINDS or finding.span is None or not evidence.function.cell or not prover.samples:
        return
    if finding.span.cell is not None:  # in another cell, which cannot be replaced from here
        return
    if finding.severity != "error" and any(
        w.origin == "argument" and w.path in finding.culprits for w in evidence.writes
    ):
        return  # nothing of it happens while jax traces
    if finding.kind in STOPS and prover.corrected:
        yield prover.corrected[0]
        return
    place = place_of(finding, evidence, prover)
    if place is None:
        return
    if finding.kind == "user-error" and not is_refused(place.message) and _fails_plainly(prover):
        return
    search = Search(evidence, prover, limit=AGAIN if prover.unmended else ATTEMPTS)
    if finding.kind == "carry-mismatch":  # what differs is in the full text of the error
        again = search._next_place(evidence.function.cell, trial_of(prover).cell(evidence.function.cell), ())
        place = again or place
    prover.__dict__["_trail"] = search.trail
    found: list[Fix] = []
    for path, outcome in search.run(place):
        found.append(fix_of(evidence, path, outcome))
        if found[-1].applicability == "safe":
            break
        search.limit = min(search.limit, search.attempts + FURTHER) if len(found) == 1 else search.limit
    best = found[-1:] if found and found[-1].applicability == "safe" else found[:KEEP]
    if (
        finding.kind in STOPS
        or finding.severity == "error"
        and finding.kind in ("leaked-tracer", "state-write")
    ):
        prover.corrected += [fix for fix in best if fix.verified]
        prover.unmended |= not best
    yield from best


def propose_from(candidate: Any, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The fix that begins with this candidate: alone where it is enough, else with what it leaves to rewrite."""
    search = Search(evidence, prover)
    prover.__dict__["_trail"] = search.trail
    for path, outcome in itertools.islice(search.follow(candidate, None, []), KEEP):
        yield fix_of(evidence, path, outcome)


def fix_of(evidence: Evidence, path: list[Any], outcome: Any = None) -> Fix:
    """The corrections of a path as one fix; without an `outcome` nothing is proved."""
    cell = path[-1].cell
    dyn = tuple(dict.fromkeys(n for c in path for n in c.dyn))
    titles = [f"{c.title} ({c.cost})" if c.cost else c.title for c in path]
    if outcome is not None and outcome.cost and not any(outcome.cost in t for t in titles):
        titles[-1] += f" ({outcome.cost})"
    exact = outcome is not None and outcome.exact
    return Fix(
        title="; ".join(dict.fromkeys(titles)),
        applicability="safe" if exact and all(c.applicability == "safe" for c in path) else "unsafe",
        verified=outcome is not None and outcome.proved,
        evidence=outcome.words if outcome is not None else "",
        static_argnames=_static(evidence, path),
        dyn=(*(evidence.options.dyn or ()), *dyn) if dyn else None,
        cell=cell if cell != evidence.function.cell else None,
        calls=next((c.calls for c in reversed(path) if c.calls), None),
        diff=diff(evidence.function.cell, cell),
    )


def _fails_plainly(prover: Prover) -> bool:
    """The error is the function's own: it comes without jit too."""
    try:
        trial_of(prover).wanted()
    except Exception:
        return True
    return False


def _static(evidence: Evidence, path: list[Any]) -> tuple[str, ...] | None:
    names = tuple(dict.fromkeys(n for c in path for n in c.static))
    return (*evidence.options.static_argnames, *names) if names else None


def diff(old: str, new: str) -> str:
    """What a corrected cell changes, as a unified diff."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "cell", "corrected", lineterm="")
    return "\n".join(lines)


def place_of(finding: Finding, evidence: Evidence, prover: Prover) -> Any:
    """The stretch of the cell that a finding is about, or None where its line is not there."""
    from jitmagic.fixes.rewrite.place import Place

    span = finding.span
    assert span is not None
    text = evidence.function.cell
    lines = text.splitlines()
    for offset in (1, 0):  # with a `%%` line above the body, and without
        line = span.line - offset
        if 1 <= line <= len(lines) and lines[line - 1].strip() == span.source:
            break
    else:
        return None
    problem = next((p for p in evidence.problems if p.where and p.where.line == span.line), None)
    same = problem is not None
    return Place(
        text=text, kind=finding.kind, line=line, column=span.column, end_line=span.end_line - offset,
        end_column=span.end_column, names=(*finding.culprits, *(problem.locals if problem else ())),
        message=f"{problem.exception}: {problem.message}" if problem is not None and same else finding.detail,
        **setting(evidence, prover),
    )  # fmt: skip


def setting(evidence: Evidence, prover: Prover) -> dict[str, Any]:
    """What the families of rewrites need to know about the function besides its source."""
    trial = trial_of(prover)
    static = prover.checker.options.static_parameters(prover.checker.fn)
    return {
        "function": evidence.function.name, "modules": _modules(prover), "static": static, "probe": trial.probe,
        "outputs": trial.outputs,
        "calls": tuple(s.source for s in prover.samples if s.source),
        "numpy_arguments": frozenset(
            leaf.path for c in evidence.calls for leaf in c.leaves if leaf.kind == "numpy" and leaf.shape
        ),
        "defaults": frozenset(evidence.function.parameters) - {x.argument for c in evidence.calls for x in c.leaves},
        "scalars": _scalars(evidence), "from_outside": prover.checker.from_outside,
    }  # fmt: skip


def _scalars(evidence: Evidence) -> tuple[str, ...]:
    leaves = [leaf for c in evidence.calls for leaf in c.leaves]
    others = {leaf.argument for leaf in leaves if leaf.kind != "scalar" or leaf.path != leaf.argument}
    return tuple(dict.fromkeys(leaf.argument for leaf in leaves if leaf.argument not in others))


def trial_of(prover: Prover) -> Any:
    """The trial of this prover's function; one for all families, so that plain results are computed once."""
    from jitmagic.fixes.trial import Trial

    found = prover.__dict__.get("trial")
    if found is None:
        found = prover.__dict__["trial"] = Trial(prover)
    return found


_SCIPY = tuple(f"scipy.{m}" for m in "special linalg stats signal fft integrate interpolate ndimage".split())


def _modules(prover: Prover) -> dict[str, str]:
    """What the names of the notebook stand for, where that is a module or a function of a known one."""
    import sys
    import types

    known = (
        "math",
        "cmath",
        "numpy",
        "numpy.linalg",
        "numpy.fft",
        *_SCIPY,
        "jax.lax",
        "jax.numpy",
        "functools",
    )
    functions = {
        id(v): f"{m}.{k}"
        for m in known if m in sys.modules
        for k, v in vars(sys.modules[m]).items()
        if callable(v) and k[0] != "_" and (m.startswith("scipy") or not isinstance(v, type))
    }  # fmt: skip
    out: dict[str, str] = {}
    for name, value in list(prover.checker.namespace.items()):
        if name.startswith("_"):
            continue
        if isinstance(value, types.ModuleType):
            out[name] = value.__name__
        elif id(value) in functions:
            out[name] = functions[id(value)]
    return out


@dataclass
class Search:
    """Depth first through the rewrites, within a number of attempts and the prover's time."""

    evidence: Evidence
    prover: Prover
    attempts: int = 0
    limit: int = ATTEMPTS
    tried: set[str] = field(default_factory=set)
    trail: list[str] = field(default_factory=list)
    """What was tried and why it did not hold, for tests and for the curious."""

    def run(self, place: Any) -> Iterator[tuple[list[Any], Any]]:
        yield from self._from(place, [])

    def _from(self, place: Any, path: list[Any]) -> Iterator[tuple[list[Any], Any]]:
        from jitmagic.fixes import rewrite

        for candidate in rewrite.candidates(place):
            if self._spent():
                return
            yield from self.follow(candidate, place, path)

    def follow(self, candidate: Any, place: Any, path: list[Any]) -> Iterator[tuple[list[Any], Any]]:
        """The candidate after those of `path`, where it holds; else what its cell leaves to do."""
        key = candidate.cell + repr((candidate.static, candidate.dyn))
        if key in self.tried or self._spent() or (candidate.ends and _fails_plainly(self.prover)):
            return
        self.tried.add(key)
        self.attempts += 1
        steps, began = [*path, candidate], time.perf_counter()
        static = tuple(n for c in steps for n in c.static)
        outcome = trial_of(self.prover).cell(
            candidate.cell, static=static,
            changes_result=any(c.changes_result for c in steps), effects=any(c.effects for c in steps),
            covers=any(c.covers for c in steps), raises=any(c.raises for c in steps),
            dyn=tuple(n for c in steps for n in c.dyn),
        )  # fmt: skip
        self.trail.append(f"{candidate.title}: {outcome.words} ({time.perf_counter() - began:.2f} s)")
        if outcome.holds and not (place and _still_silent(place, outcome)):
            yield steps, outcome
        elif outcome.error is not None and len(path) < ROUNDS:
            further = self._next_place(candidate.cell, outcome, static)
            if further is not None and not (place and _same(further, place)):
                self.prover.stuck.append((steps, further))
                yield from self._from(further, steps)

    def _spent(self) -> bool:
        return self.attempts >= self.limit or self.prover.out_of_time()

    def _next_place(self, cell: str, outcome: Any, static: tuple[str, ...]) -> Any:
        from jitmagic.fixes.rewrite.place import Place
        from jitmagic.rules.classify import kind_of
        from jitmagic.tracing import locate

        problem = locate.locate(outcome.error, prefer=outcome.file)
        where = problem.where
        if where is None or where.file != outcome.file:
            return None
        known = setting(self.evidence, self.prover)
        known["static"] = known["static"] | set(static)
        return Place(
            text=cell, kind=kind_of(self.evidence, problem), line=where.line, column=where.column,
            end_line=where.end_line, end_column=where.end_column,
            names=tuple(dict.fromkeys((*problem.locals, *problem.leaves))),
            message=f"{type(outcome.error).__name__}: {outcome.error}", **known,
        )  # fmt: skip


def _same(a: Any, b: Any) -> bool:
    return (a.text, a.line, a.column) == (b.text, b.line, b.column)


def _still_silent(place: Any, outcome: Any) -> bool:
    return place.kind == "trace-time-print" and bool(re.search(r"Traced<|Tracer[(<]", outcome.printed))


def extended(finding: Finding, fixes: Iterable[Fix]) -> Finding:
    """The finding with further fixes in front."""
    return replace(finding, fixes=(*fixes, *finding.fixes))
