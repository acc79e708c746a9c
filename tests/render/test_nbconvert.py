"""A notebook with reports after nbconvert: each form keeps verdicts, findings, places and fixes."""

from __future__ import annotations

import html as html_module
import re
from typing import Any

import mistune
import nbformat
import pytest
from nbconvert import HTMLExporter, MarkdownExporter, PythonExporter

from jitmagic import render
from jitmagic.render.escape import one_line
from tests.render import samples

LIVE = """\
%%jit --static n --no-time
def power(x, n):
    for _ in range(n):
        x = x * x
    return x

kept = power(jnp.ones(2) * 2, 2)"""


def converted() -> Any:
    """One cell with one report for each sample."""
    cells = []
    for make in (*samples.TYPICAL.values(), samples.hostile):
        report = make()
        bundle = report._repr_mimebundle_()
        output = nbformat.v4.new_output("display_data", data=bundle)
        source = report.cell.source.encode("utf-8", "replace").decode()
        cells.append(nbformat.v4.new_code_cell(source, outputs=[output], execution_count=1))
    made = nbformat.v4.new_notebook(cells=cells)
    return nbformat.reads(nbformat.writes(made).encode("utf-8", "replace").decode(), 4)


def words_of(page: str) -> str:
    """The text of a page, without white space."""
    return re.sub(r"\s", "", html_module.unescape(re.sub(r"<[^>]*>", "", page)))


def keeps_the_meaning(words: str) -> None:
    for make in samples.TYPICAL.values():
        report = make()
        for line in render.text(report, width=400).split("\n\n")[0].split("\n"):
            assert words_of(html_module.escape(line.replace("`", ""))) in words  # the verdicts
        for finding in report.findings:
            assert f"[{finding.code}]{finding.kind}" in words
            message = finding.message.replace("`", "")
            assert re.sub(r"\s", "", message) in words
            for fix in finding.fixes:
                assert re.sub(r"[\s`]", "", fix.title) in words
                if fix.verified:
                    assert "tested:" + re.sub(r"[\s`]", "", fix.evidence.replace(": ", ", ", 1)) in words
        for state in (s for f in report.functions for s in f.state):
            assert re.sub(r"\s", "", state.path) in words
    assert "+%%jit--dynw" in words and "-returnfloat(x.sum())" in words  # what to change
    assert "alert(1)" in words


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_html(theme):
    page, _ = HTMLExporter(theme=theme).from_notebook_node(converted())
    keeps_the_meaning(words_of(page))
    assert "<script>alert(1)" not in page and "<img src=x" not in page


def test_markdown():
    text, _ = MarkdownExporter().from_notebook_node(converted())
    page = mistune.html(text)
    assert isinstance(page, str)
    keeps_the_meaning(words_of(page))
    assert "<script>alert(1)" not in page and "<img src=x" not in page


def test_no_blank_line_would_end_the_html_in_markdown():
    for make in (*samples.TYPICAL.values(), samples.hostile, samples.huge):
        assert all(line.strip() for line in render.html(make()).split("\n"))


def test_a_script_does_what_the_cell_does(notebook: Any) -> None:
    text, _ = PythonExporter().from_notebook_node(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(LIVE)])
    )
    assert "run_cell_magic('jit', '--static n --no-time'" in text
    notebook.ok(text)
    assert notebook.ns["kept"].tolist() == [16.0, 16.0]
    assert notebook.report().functions[0].verdict == "ok"


def test_plain_text_alone_says_all():
    for make in samples.TYPICAL.values():
        report = make()
        plain = report._repr_mimebundle_()["text/plain"]
        words = " ".join(plain.split())
        for finding in report.findings:
            assert finding.code in words and one_line(finding.message) in words
            assert not finding.span or f"line {finding.span.line}" in words
            for fix in finding.fixes:
                assert fix.title in words and fix.evidence in words
        for state in (s for f in report.functions for s in f.state):
            assert state.path in words and state.role in words
