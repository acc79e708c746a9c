"""Every page is complete, and its cells do what it says: the first shows the problem, the second runs."""

from __future__ import annotations

import re

import pytest

from jitmagic.rules import RULES, Rule, page

FAILS = {
    "tracer-bool": "TracerBoolConversionError",
    "tracer-int": "TracerIntegerConversionError",
    "tracer-array-conversion": "TracerArrayConversionError",
    "dynamic-shape": "NonConcreteBooleanIndexError",
    "tracer-hash": "TypeError",
    "tracer-format": "TypeError",
    "in-place-update": "TypeError",
    "invalid-jax-type": "TypeError",
    "unhashable-static": "ValueError",
    "unregistered-pytree": "TypeError",
    "bad-static-spec": "ValueError",
    "carry-mismatch": "TypeError",
    "leaked-tracer": "UnexpectedTracerError",
    "donated-reuse": "JaxRuntimeError XlaRuntimeError",  # the name until jax 0.8
    "array-in-aux-data": "ValueError",
    "user-error": "KeyError",
}
"""The exception of the failing cell; the other pages show a silent problem with their own asserts."""


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def execute(cell: str) -> None:
    exec(compile(cell, "<page>", "exec"), {"__name__": "page"})


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.kind)
def test_page_has_every_section_in_order(rule: Rule) -> None:
    problem = "A cell that fails" if rule.kind in FAILS else "A cell with the problem"
    headings = re.findall(r"^#+ .*$", re.sub(r"```.*?```", "", rule.page, flags=re.DOTALL), re.MULTILINE)
    assert headings == [
        f"# {rule.code} {rule.kind}",
        "## What it is",
        "## Why it happens",
        f"## {problem}",
        "## The corrected cell",
        "## When to ignore it",
    ]
    assert len(blocks(rule.page)) == 2
    assert page(rule.kind) == page(rule.code.lower()) == rule.page


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.kind)
def test_first_cell_shows_the_problem(rule: Rule) -> None:
    cell = blocks(rule.page)[0]
    if rule.kind not in FAILS:
        assert "assert " in cell
        execute(cell)
        return
    with pytest.raises(Exception) as caught:
        execute(cell)
    assert set(FAILS[rule.kind].split()) & {c.__name__ for c in type(caught.value).__mro__}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.kind)
def test_mended_cell_runs(rule: Rule) -> None:
    execute(blocks(rule.page)[1])


def test_unknown_page_names_near_misses() -> None:
    with pytest.raises(ValueError, match="JM101"):
        page("JM10l")
    with pytest.raises(ValueError, match="tracer-bool"):
        page("traced-bool")
