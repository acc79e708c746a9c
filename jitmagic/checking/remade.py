"""What is told of functions that the notebook makes and compiles anew again and again, heard from jax's events."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from jitmagic import units
from jitmagic.checking.conclusions import evidence_of
from jitmagic.checking.corrections import proposed
from jitmagic.checking.subject import Subject
from jitmagic.evidence import Evidence, Function
from jitmagic.render import Report
from jitmagic.report import Finding
from jitmagic.rules.recompile_new_function import RULE
from jitmagic.silent import events as events_
from jitmagic.source.tree import source_of


def findings(events: Sequence[events_.Event]) -> tuple[Finding, ...]:
    """A recompile-new-function finding for each place whose functions were compiled three or more times."""
    found: list[Finding] = []
    for maker, own in events_.repeated(events):
        source = source_of(maker.file)
        function = Function(events_.scope_name(source, maker), maker.file, "", 0)
        text = ast.unparse(maker.made)
        loop = isinstance(maker.scope, ast.For | ast.While)
        found.append(
            RULE.finding(
                Evidence(function),
                f"a new function is made and compiled here {'in each iteration' if loop else 'at each call'}: "
                f"{len(own)} compilations so far of `{text if len(text) < 60 else text[:57] + '…'}`, "
                f"{units.seconds(sum(e.seconds for e in own))} in all",
                where=events_.place_of(maker, source),
                culprits=events_.culprits(maker, source),
                help="call `jax.jit` once, outside, and pass what varies as arguments of the compiled function",
            )
        )
    return tuple(found)


def with_fix(finding: Finding, subjects: Sequence[Subject]) -> Finding:
    """The finding with a fix; `subjects` are the functions that are watched, of which one of the same cell is asked."""
    for subject in subjects:
        name = finding.function.partition(".")[0]
        if subject.name.partition(".")[0] == name or not name:
            try:
                return proposed([finding], evidence_of(subject), subject)[0]
            except Exception as exc:
                subject.failed_inside("the search for fixes", exc)
    return finding


def beside(known: Report, found: Sequence[Finding]) -> Report:
    """The report with these findings, in the place of what it knows of their lines already."""
    told = {(f.kind, f.span.line if f.span else None) for f in found}
    kept = [f for f in known.findings if (f.kind, f.span.line if f.span else None) not in told]
    return replace(known, findings=(*kept, *found)) if found else known
