"""Which findings are told together, and how."""

from dataclasses import replace

import pytest

from jitmagic import render
from jitmagic.render import Report
from jitmagic.render.causes import causes
from jitmagic.report import CellText, Finding, Fix, FunctionReport, Severity, Span

CELL = "%%jit\ndef f(x, flag):\n    if flag:\n        x = x + 1\n    y = x * 2\n    if flag:\n        y = y + 1\n    return y"
STATIC = Fix("make `flag` static", "safe", True, static_argnames=("flag",))
WHERE = Fix("choose with `jnp.where`", "safe", True, cell="x = 1")


def finding(
    line: int,
    culprit: str = "flag",
    fixes: tuple[Fix, ...] = (STATIC,),
    kind: str = "tracer-bool",
    severity: Severity = "error",
    function: str = "f",
    cell: str | None = None,
) -> Finding:
    """A branch on a traced value."""
    span = Span(line, 7, line, 11, "if flag:", cell)
    return Finding("JM101", kind, severity, function, f"`if {culprit}`", span, (culprit,), fixes)


TOGETHER = {
    "one cause": ([finding(3), finding(6), finding(8)], [[3, 6, 8]]),
    "the first has one more fix": ([finding(3, fixes=(WHERE, STATIC)), finding(6)], [[3, 6]]),
    "no fix yet": ([finding(3, fixes=()), finding(6, fixes=())], [[3, 6]]),
    "what the first line binds": (
        [
            replace(finding(3, "x"), span=Span(3, 9, 3, 24, "flag = x > 0 and y > 0")),
            finding(4),
            finding(8, "y"),
        ],
        [[3, 4], [8]],
    ),
    "another name to blame": ([finding(3), finding(6, "x"), finding(8)], [[3, 8], [6]]),
    "one tested fix, whose help says more of each line": (
        [
            finding(3),
            replace(finding(6), help="`y.at[0].add(1)`"),
            replace(finding(8, fixes=()), help="else"),
        ],
        [[3, 6], [8]],
    ),
    "a fix of its own": ([finding(3), finding(6, fixes=(WHERE,))], [[3], [6]]),
    "another kind": ([finding(3), finding(6, kind="tracer-int")], [[3], [6]]),
    "a warning": ([finding(3), finding(6, severity="warning")], [[3], [6]]),
    "another function": ([finding(3), finding(6, function="g")], [[3], [6]]),
    "another cell": ([finding(3), finding(6, cell="<ipython-input-2-a>")], [[3], [6]]),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_findings_of_one_cause(name):
    findings, lines = TOGETHER[name]
    assert [[f.span.line for f in c.findings if f.span] for c in causes(findings)] == lines


def test_one_cause_is_one_finding_with_all_its_lines():
    function = FunctionReport("f", "fails", 1)
    report = Report((function,), (finding(3), finding(6)), cell=CellText(CELL, magic="%%jit"))
    text = render.text(report)
    assert "line 3 branches on a traced value (line 6 too); tested fix: make `flag` static" in " ".join(
        text.split()
    )
    assert text.count("error[JM101]") == text.count("\n  fix: ") == 1
    assert "--> in `f`, lines 3 and 6" in text and text.count("^^^^") == 2
    page = render.html(report)
    assert page.count("error[JM101]") == 1 and "← the same as line 3" in page
