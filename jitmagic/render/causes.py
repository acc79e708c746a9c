"""Findings of one cause, which are told together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jitmagic.report import Finding, Fix

FixKey = tuple[object, ...]


@dataclass(frozen=True)
class Cause:
    """The first finding of a cause, and those of other lines, for which the same is to do."""

    first: Finding
    also: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them."""
        return (self.first, *self.also)

    def other_lines(self) -> str:
        """` (line 6 too)`, behind what is said of the first."""
        lines = sorted({f.span.line for f in self.also if f.span})
        return f" ({numbered(lines)} too)" if lines else ""


def causes(findings: Sequence[Finding]) -> list[Cause]:
    """The findings in their order, each with those that follow from the same."""
    made: list[Cause] = []
    for finding in findings:
        for i, cause in enumerate(made):
            if _alike(cause.first, finding):
                made[i] = Cause(cause.first, (*cause.also, finding))
                break
        else:
            made.append(Cause(finding))
    return made


def change_of(fix: Fix) -> FixKey | None:
    """What the fix changes; None where it only says something."""
    static = None if fix.static_argnames is None else tuple(sorted(fix.static_argnames))
    key = (fix.cell, fix.diff, static, fix.static_argnums, fix.dyn, fix.calls)
    return key if any(part is not None for part in key) else None


def numbered(lines: Sequence[int]) -> str:
    """`line 3`, `lines 3, 6 and 8`."""
    *most, last = map(str, lines)
    return f"lines {', '.join(most)} and {last}" if most else f"line {last}"


def _alike(a: Finding, b: Finding) -> bool:
    """The same names are to blame for both, or the second is about what the first line binds; and what helps with the
    second, if anything does, helps with the first."""
    if a.span is None or b.span is None or not a.culprits or not b.culprits:
        return False
    of = [
        (f.kind, f.severity, f.function, s.function, s.cell, s.called_from)
        for f, s in ((a, a.span), (b, b.span))
    ]
    known, tested = [change_of(fix) for fix in a.fixes], [fix for fix in b.fixes if fix.verified]
    same = a.culprits == b.culprits and bool(a.help == b.help or tested)
    bound = bool(tested and re.match(rf"{re.escape(b.culprits[0])}\s*=[^=]", a.span.source))
    return of[0] == of[1] and (same or bound) and all(change_of(fix) in known for fix in tested)
