"""The report in a real notebook: trusted and not, light and dark, saved and opened again."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.browser import cells, driver
from tests.browser.look import too_pale

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "untrusted"])
def test_saved_report_is_whole(lab, saved, shot, trusted, theme):
    lab.open(saved(trusted), kernel=False)
    cell = "i => window.jupyterapp.shell.currentWidget.content.widgets[i].model.trusted"
    assert lab.js(cell, cells.FAILING_AT) is trusted
    lab.theme(THEMES[theme])
    report = lab.output(cells.FAILING_AT).first
    report.wait_for()
    words = " ".join(report.inner_text().split())
    assert "error[JM102] tracer-int" in words and "power can't be compiled" in words
    assert "tested: the cell re-run, same results and state" in words
    marked = report.locator("pre b", has_text="range(n)").first
    style = "e => { const s = getComputedStyle(e); return [s.backgroundColor, s.textDecorationLine]; }"
    background, line = marked.evaluate(style)
    assert background.startswith("rgba(217, 48, 37") and "underline" in line
    verdict = report.locator("b", has_text="can't be compiled").first
    assert verdict.evaluate("e => getComputedStyle(e).color").startswith("oklab(")  # mixed, not dropped
    for index in (cells.FAILING_AT, cells.GOOD_AT):
        assert too_pale(lab.output(index).first) == []
    good = lab.output(cells.GOOD_AT).first
    closed = good.locator("details:not([open])")
    assert closed.count() >= 3
    closed.first.locator("> summary").click()
    assert good.locator("details[open]").count() == 1
    good.locator("details[open] > summary").click()
    if trusted:
        shot(lab.page, f"docs-failing-{theme}", clip=lab.clip(cells.FAILING_AT))
    shot(report, f"report-failing-{'trusted' if trusted else 'untrusted'}-{theme}")
    if trusted:
        good.locator("details > summary", has_text="line by line").click()
        shot(lab.page, f"docs-good-{theme}", clip=lab.clip(cells.GOOD_AT))
    while (inside := good.locator("details:not([open]) > summary >> visible=true")).count():
        inside.first.click()
    shot(good, f"report-good-{'trusted' if trusted else 'untrusted'}-{theme}")


def test_report_is_small(executed):
    for cell in executed.cells:
        for bundle in (o["data"] for o in cell.outputs if "data" in o):
            assert len(bundle["text/html"].encode()) < 60_000
            assert len(json.dumps(bundle)) < 120_000


def test_notebook_7_shows_report_and_marks(browser, saved, tmp_path):
    known = subprocess.run([driver.PYTHON, "-c", "import notebook"], capture_output=True, check=False)
    if known.returncode:
        pytest.skip("notebook is not installed")
    with driver.server(tmp_path, "notebook") as at:
        name = saved(at=at)
        page = driver.Lab(browser.new_page(viewport={"width": 1200, "height": 900}), at)
        page.open_notebook7(name)
        assert page.squiggles(cells.FAILING_AT) == ["range(n)"]
        assert "JM102" in page.output(cells.FAILING_AT).first.inner_text()
        page.close()
