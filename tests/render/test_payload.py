"""The data that travels with a display: whole for typical reports, bounded for enormous ones."""

from __future__ import annotations

import json

import pytest

from jitmagic import render
from jitmagic.render import MIME_TYPE, Report
from jitmagic.report import CellText, Finding, Fix, FunctionReport, LineCost, Span
from tests.render import samples

LINES = 5000
SOURCE = "%%jit\n" + "\n".join(f"    value_{i} = jnp.sin(value_{i - 1}) + {i}" for i in range(2, LINES + 1))


def enormous() -> Report:
    """A cell of 5,000 lines that makes 10,000 equations, with findings far apart."""
    rows = SOURCE.split("\n")
    findings = tuple(
        Finding("JM101", "tracer-bool", "error", "f", "`x` has no value", Span(n, 4, n, 12, rows[n - 1].strip()),
                ("x",), (Fix("mend", "safe", True, "traced", cell=SOURCE.partition("\n")[2] + "\npass"),))
        for n in range(100, LINES, 1000)
    )  # fmt: skip
    costs = tuple(LineCost(2 + i % (LINES - 1), 1, float(i), 4.0) for i in range(10_000))
    return Report(
        (FunctionReport("f", "fails", 2, compiles=1, lines=costs),),
        findings,
        cell=CellText(SOURCE, magic="%%jit"),
    )


@pytest.mark.parametrize("name", samples.TYPICAL)
def test_a_typical_report_travels_whole(name):
    report = samples.TYPICAL[name]()
    assert report._repr_mimebundle_()[MIME_TYPE] == report.to_dict()
    assert len(json.dumps(report._repr_mimebundle_())) < 60_000


def test_five_thousand_lines_and_ten_thousand_equations_stay_small_and_say_what_is_left_out():
    report = enormous()
    bundle = report._repr_mimebundle_()
    assert len(bundle["text/html"].encode()) < 60_000 and len(bundle["text/plain"].encode()) < 20_000
    assert (
        "lines not shown" in bundle["text/html"] and "9,970 cheaper lines not shown" in bundle["text/plain"]
    )
    data = bundle[MIME_TYPE]
    assert data["left_out"] == ["9,600 cheaper lines of f", "4 corrected cells"]
    assert len(json.dumps(data)) - 2 * len(SOURCE) < 80_000  # the cell, and one corrected cell
    assert len(Report.from_dict(data).findings) == 5


def test_the_worst_findings_and_the_dearest_lines_are_kept():
    findings = tuple(Finding(f"JM{i}", "k", ("note", "error")[i == 149], "f", "m") for i in range(150))
    data = render.payload(Report((FunctionReport("f"),) * 60, findings))
    assert data["left_out"] == ["10 functions", "50 findings"]
    assert data["findings"][0]["code"] == "JM149" and len(data["findings"]) == 100
    dearest = render.payload(enormous())["functions"][0]["lines"][0]
    assert dearest["flops"] == 9_999.0
