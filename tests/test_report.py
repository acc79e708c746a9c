"""A report is plain data: it survives dicts and JSON, and its dict form is the contract's."""

from __future__ import annotations

import dataclasses
import json

import pytest

from jitmagic.render import MIME_TYPE, Report
from jitmagic.report import Cost, Finding, Fix, FunctionReport, Sample, Timing
from tests.render import samples

EVERY = {**samples.TYPICAL, "hostile": samples.hostile, "empty": Report}


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_dict_and_json_round_trip(make):
    report = make()
    assert Report.from_dict(report.to_dict()) == report
    assert Report.from_dict(json.loads(report.to_json())) == report


def test_dict_holds_only_json_types():
    def check(value):
        assert value is None or type(value) in (dict, list, str, int, float, bool)
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            check(inner)

    for make in EVERY.values():
        check(make().to_dict())


def test_dict_form_is_the_contracts():
    data = samples.stale().to_dict()
    assert data["schema"] == 1 and set(data["versions"]) == {"jitmagic", "jax", "python"}
    function = data["functions"][0]
    assert {
        "name",
        "verdict",
        "calls",
        "traces",
        "compiles",
        "state",
        "stages",
        "timing",
        "cost",
        "lines",
    } <= set(function)
    assert function["state"][0]["shape"] == [10, 3] and function["state"][0]["stale"] is True
    assert {"trace_s", "lower_s", "compile_s"} <= set(function["stages"])
    assert {"median_s", "mean_s", "std_s", "loops", "repeats"} <= set(function["timing"]["eager"])
    finding = data["findings"][0]
    contract = {"code", "kind", "severity", "function", "message", "span", "culprits", "fixes"}
    assert contract <= set(finding)
    assert {"line", "column", "end_line", "end_column", "source"} <= set(finding["span"])
    fix = finding["fixes"][0]
    assert fix["dyn"] == ["w"] and fix["static_argnames"] is None and fix["verified"] is True


def test_nothing_static_differs_from_no_static_fix():
    fixes = (Fix("none", static_argnames=()), Fix("unsaid"))
    report = Report(findings=(Finding("JM401", "recompile-static", "warning", "f", "m", fixes=fixes),))
    data = report.to_dict()["findings"][0]["fixes"]
    assert data[0]["static_argnames"] == [] and data[1]["static_argnames"] is None
    back = Report.from_dict(data={**report.to_dict()}).findings[0].fixes
    assert back[0].static_argnames == () and back[1].static_argnames is None


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_json_has_no_nan_and_no_infinity(number):
    report = Report(
        (FunctionReport("f", cost=Cost(flops=number), timing=Timing(Sample(1.0, 1.0, number, 1, 2))),)
    )
    data = json.loads(report.to_json(), parse_constant=lambda word: pytest.fail(word))
    assert data["functions"][0]["cost"]["flops"] is None
    assert "±" in Report.from_dict(data).to_text()


def test_from_dict_ignores_unknown_keys_and_refuses_other_schemas():
    data = samples.good().to_dict()
    data["later"] = data["functions"][0]["later"] = data["findings"][0]["span"]["later"] = 1
    assert Report.from_dict(data) == samples.good()
    with pytest.raises(ValueError, match="schema 2"):
        Report.from_dict({**data, "schema": 2})


def test_from_dict_takes_a_report_of_the_contracts_keys_alone():
    data = {
        "schema": 1,
        "versions": {"jax": "0.10.2"},
        "functions": [{"name": "f", "timing": {"eager": None, "jit": None, "speedup": None}}],
        "findings": [
            {"code": "JM101", "kind": "k", "severity": "error", "function": "f", "message": "m", "span": None}
        ],
    }
    report = Report.from_dict(data)
    assert report.verdict == "fails" and report.functions[0].timing.eager is None


@pytest.mark.parametrize(
    ("make", "verdict"),
    [(samples.good, "ok"), (samples.failing, "fails"), (samples.stale, "warnings"), (Report, "untraced")],
)
def test_verdict(make, verdict):
    assert make().verdict == verdict


def test_fixed_cell_is_the_first_that_was_proved():
    fixes = (
        Fix("a", cell="unproved"),
        Fix("b", verified=True, cell="first"),
        Fix("c", verified=True, cell="second"),
    )
    finding = Finding("JM101", "k", "error", "f", "m", fixes=fixes)
    assert Report(findings=(finding,)).fixed_cell == "first"
    assert Report(findings=(dataclasses.replace(finding, fixes=fixes[:1]),)).fixed_cell is None


def test_mime_bundle_has_all_three_forms():
    report = samples.failing()
    bundle = report._repr_mimebundle_()
    assert bundle["text/plain"] == str(report) == report.to_text()
    assert report.to_html() in bundle["text/html"]
    assert bundle[MIME_TYPE] == report.to_dict()
