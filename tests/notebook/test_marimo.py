"""marimo, run by itself: the cells of a notebook, and what they show."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap

import pytest

CELLS = (
    ("import jax.numpy as jnp\nimport jitmagic", "jitmagic, jnp"),
    ("def power(x, n):\n    for _ in range(n):\n        x = x * x\n    return x", "power,"),
    ("jitmagic.check(power, jnp.ones(3), 4)", ""),
    ("jitmagic.check(jnp.dot, jnp.ones(3), jnp.ones(3))", ""),
    (
        "w = jnp.ones(3)\nscaled = jitmagic.jit(lambda x: x * w, dyn_vars={'w': w})\nscaled(2.0).sum()",
        "scaled,",
    ),
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What each cell shows, as marimo saves it."""
    pytest.importorskip("marimo", reason="marimo is not installed")
    directory = tmp_path_factory.mktemp("marimo")
    notebook, page = directory / "notebook.py", directory / "page.html"
    given: list[str] = []
    cells = []
    for source, names in CELLS:
        taken = ", ".join(n for n in given if n in source)
        cells.append(f"@app.cell\ndef _({taken}):\n{textwrap.indent(source, '    ')}\n    return {names}\n")
        given += [n.strip() for n in names.split(",") if n.strip()]
    # as marimo writes its files: what a cell shows is its last expression
    notebook.write_text("import marimo\napp = marimo.App()\n" + "".join(cells))
    command = [sys.executable, "-m", "marimo", "export", "html", str(notebook), "-o", str(page)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    text = page.read_text()
    session, _ = json.JSONDecoder().raw_decode(text, text.index('{"cells": [{"code_hash"'))
    return [output["data"] for cell in session["cells"] for output in cell["outputs"]]


def forms(data):
    """The forms of a report among the saved ones."""
    return data["application/vnd.marimo+mimebundle"]


def test_a_failing_function_is_diagnosed_with_its_line_and_fix(shown):
    report = forms(shown[2])["application/vnd.jitmagic.v1+json"]
    [finding] = report["findings"]
    assert (finding["kind"], finding["culprits"]) == ("tracer-int", ["n"])
    assert (finding["span"]["line"], finding["span"]["source"]) == (2, "for _ in range(n):")
    assert any(fix["verified"] for fix in finding["fixes"])


def test_the_report_stands_there_as_html(shown):
    html = forms(shown[2])["text/html"]
    assert html.startswith("<div") and "JM102" in html
    assert "needs to know how many iterations" in re.sub(r"<[^>]+>", "", html)


def test_a_function_of_a_library(shown):
    assert forms(shown[3])["application/vnd.jitmagic.v1+json"]["functions"][0]["verdict"] == "ok"


def test_a_compiled_function(shown):
    assert "Array(6., dtype=float32)" in str(shown[4])
