"""The report's data as it travels with a display and is saved in the notebook: whole, unless it is very large."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jitmagic.render.parts import SEVERITIES
from jitmagic.report import Finding, FunctionReport, ReportData
from jitmagic.units import counted

LINES, STATE, FINDINGS, FUNCTIONS = 400, 200, 100, 50
"""How many there are of each, in one function or in the report."""

CELLS = 300_000
"""Characters of corrected cells, all together."""


def payload(report: ReportData) -> dict[str, Any]:
    """`report.to_dict()`; where something is left out of it, `left_out` says what."""
    left: list[str] = []
    functions = tuple(_shorter(f, left) for f in report.functions[:FUNCTIONS])
    ranked = sorted(report.findings, key=lambda f: SEVERITIES.index(f.severity))
    findings = _within(ranked[:FINDINGS] if len(ranked) > FINDINGS else list(report.findings), left)
    _count(left, len(report.functions) - FUNCTIONS, "function")
    _count(left, len(report.findings) - FINDINGS, "finding")
    data = replace(report, functions=functions, findings=findings).to_dict()
    return data | ({"left_out": left} if left else {})


def _count(left: list[str], more: int, noun: str, where: str = "") -> None:
    if more > 0:
        left.append(counted(more, noun) + where)


def _shorter(function: FunctionReport, left: list[str]) -> FunctionReport:
    """The function with its dearest lines and its first variables."""
    _count(left, len(function.lines) - LINES, "cheaper line", f" of {function.name}")
    _count(left, len(function.state) - STATE, "variable", f" of {function.name}")
    dearest = sorted(function.lines, key=lambda c: (c.flops or 0.0, c.equations), reverse=True)[:LINES]
    lines = function.lines if len(function.lines) <= LINES else tuple(dearest)
    times = tuple(sorted(function.line_times, key=lambda t: -t.seconds)[:LINES])
    return replace(function, lines=lines, line_times=times, state=function.state[:STATE])


def _within(findings: list[Finding], left: list[str]) -> tuple[Finding, ...]:
    """The findings with as many corrected cells as there is room for, the first ones."""
    room, out, dropped = CELLS, [], 0
    for finding in findings:
        fixes = []
        for fix in finding.fixes:
            room -= len(fix.cell or "") + len(fix.diff or "")
            dropped += room < 0 and fix.cell is not None
            fixes.append(fix if room >= 0 else replace(fix, cell=None, diff=None, applicability="display"))
        out.append(replace(finding, fixes=tuple(fixes)))
    _count(left, dropped, "corrected cell")
    return tuple(out)
