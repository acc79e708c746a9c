"""From all findings to those worth telling: no duplicates, no consequence beside its cause, in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from jitmagic.kinds import CAPTURED, OTHER_RESULTS
from jitmagic.report import Finding
from jitmagic.rules.base import covers, root

RANK = {"error": 0, "warning": 1, "note": 2}

CAUSES: dict[str, frozenset[str]] = {
    "captured-constant": frozenset(
        "stale-constant large-constant hidden-rng state-write leaked-tracer frozen-side-effect".split()
    ),
    "captured-scalar": frozenset(
        "stale-constant hidden-rng state-write leaked-tracer frozen-side-effect".split()
    ),
    "large-constant": frozenset({"stale-constant"}),
    "stale-constant": frozenset("state-write leaked-tracer hidden-rng".split()),
    "state-write": frozenset("leaked-tracer hidden-rng frozen-side-effect".split()),
    "trace-time-print": frozenset({"tracer-format"}),
    "recompile-static": frozenset({"recompile-new-function", "unhashable-static"}),
    "hidden-rng": frozenset({"leaked-tracer"}),
}
"""Kinds that say more than the first where they speak of the same state."""

CHANGE_RESULTS = frozenset(
    "stale-constant hidden-rng state-write frozen-side-effect dtype-truncation lossy-pytree leaked-tracer "
    "nan in-place-update key-reuse".split()
)
"""Kinds that explain why compiled and plain results differ."""


def select(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding for each cause, by line and then by severity; those without a place come last."""
    merged = _merged(list(findings))
    kept = [f for f in merged if not any(_consequence(f, g) for g in merged if g is not f)]
    return tuple(sorted(kept, key=_order))


def _order(finding: Finding) -> tuple[bool, bool, int, int, str]:
    span = finding.span
    line = span.line if span else 0
    return (span is None, bool(span and span.cell), line, RANK[finding.severity], finding.code)


def _merged(findings: list[Finding]) -> list[Finding]:
    """Findings of one kind at one place with the same or nested culprits become one."""
    kept: list[Finding] = []
    for finding in findings:
        for i, other in enumerate(kept):
            if _same(other, finding):
                worse = min(other, finding, key=lambda f: RANK[f.severity])
                names = tuple(dict.fromkeys([*other.culprits, *finding.culprits]))
                kept[i] = dataclasses.replace(worse, culprits=names)
                break
        else:
            kept.append(finding)
    return kept


def _same(a: Finding, b: Finding) -> bool:
    if a.kind != b.kind or (a.span is None) != (b.span is None):
        return False
    if a.span and b.span and (a.span.cell, a.span.line) != (b.span.cell, b.span.line):
        return False
    if a.kind in CAPTURED:
        return a.severity == b.severity
    place = a.span and b.span and (a.span.column, a.span.end_column) == (b.span.column, b.span.end_column)
    one, two = set(a.culprits), set(b.culprits)
    return bool(place) or one == two or (bool(one) and one < two) or (bool(two) and two < one)


def _consequence(finding: Finding, other: Finding) -> bool:
    """Whether `other` says the same and more."""
    if finding.kind == OTHER_RESULTS and finding.severity != "warning":  # that is one of its own
        return other.kind in CHANGE_RESULTS and other.severity != "note"
    if finding.kind == "nan" and other.kind == "out-of-bounds":  # it is what jax fills in
        return finding.span == other.span
    if other.kind not in CAUSES.get(finding.kind, frozenset()):
        return False
    if finding.kind == "hidden-rng" and finding.severity == "note" or other.severity == "note":
        return finding.severity == "note" and _all_named(finding, other)
    if finding.kind == "state-write" and finding.severity == "error":
        return False
    same_line = finding.span and other.span and finding.span.line == other.span.line
    return _all_named(finding, other) or (finding.kind == "trace-time-print" and bool(same_line))


def _all_named(finding: Finding, other: Finding) -> bool:
    """Whether every state path of the finding is also among the other's."""
    if not finding.culprits:
        return False
    # A key is one cause, by whatever names its parts go.
    own_names = finding.culprits[:1] if finding.kind == "hidden-rng" else finding.culprits
    # `self` beside `self.V` says whose `V` it is, and nothing of `self.t`
    told = [
        t for t in other.culprits if not any(t != deeper and root(deeper) == t for deeper in other.culprits)
    ]
    return all(
        any(covers(theirs, own) or covers(own, theirs) or root(own) == theirs for theirs in told)
        for own in own_names
        if own in told or not any(root(t) == own for t in told)
    )
