"""The finding where a traced value is asked for what it only has when the program runs."""

from __future__ import annotations

from jitmagic.evidence import Evidence, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, culprits, exception_detail
from jitmagic.rules.words import advice, unknown


def finding(rule: Rule, evidence: Evidence, problem: Problem, question: str, rewrite: str) -> Finding:
    """`question` tells what needs the value, `rewrite` how to do without."""
    names = culprits(evidence, problem)
    return rule.finding(
        evidence,
        f"{question}, but {unknown(evidence, problem, names)}",
        where=problem.where,
        culprits=names,
        help=advice(evidence, names, rewrite),
        detail=exception_detail(problem),
    )
