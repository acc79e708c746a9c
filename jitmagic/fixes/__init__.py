"""From findings to fixes that were tried: each proposal is applied, re-run and compared with the plain run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.fixes import dynamic, static
from jitmagic.fixes.prove import Prover
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.subject import Subject

Proposer = Callable[[Finding, Evidence, Prover], Iterable[Fix]]
PROPOSERS: tuple[Proposer, ...] = (static.propose, dynamic.propose)


def propose(findings: Sequence[Finding], evidence: Evidence, checker: Subject) -> tuple[Finding, ...]:
    """The findings with the fixes that stood the test, the best first; notes get none."""
    prover = Prover(checker)
    return tuple(f if f.severity == "note" else _with_fixes(f, evidence, prover) for f in findings)


def _with_fixes(finding: Finding, evidence: Evidence, prover: Prover) -> Finding:
    found: list[Fix] = []
    for proposer in PROPOSERS:
        if prover.out_of_time():
            prover.say_out_of_time()
            break
        found += proposer(finding, evidence, prover)
    return replace(finding, fixes=tuple(_unique(found))) if found else finding


def _unique(fixes: Iterable[Fix]) -> list[Fix]:
    seen: dict[tuple[object, ...], Fix] = {}
    for fix in fixes:
        seen.setdefault((fix.static_argnames, fix.static_argnums, fix.dyn, fix.cell, fix.calls), fix)
    return list(seen.values())
