"""The in-editor layer: squiggles, hovers, fixes, heat and notes in a real JupyterLab."""

from __future__ import annotations

import copy

import nbformat

from tests.browser import cells
from tests.browser.conftest import METADATA


def test_a_saved_notebook_is_marked_without_a_kernel(lab, saved, shot):
    lab.open(saved(), kernel=False)
    assert lab.js("() => window.jupyterapp.shell.currentWidget.sessionContext.session") is None
    assert lab.squiggles(cells.FAILING_AT) == ["range(n)"]
    good = lab.cell(cells.GOOD_AT)
    assert good.locator(".cm-lintRange-error, .cm-lintRange-warning").count() == 0
    note = good.locator(".cm-line", has_text="jnp.tanh(x @ w)").locator(".jm-note")
    assert note.text_content().startswith("w f32[10,3] constant · ")
    heat = good.locator(".jm-heat")
    assert heat.count() == 2
    assert all("% of the flop of predict" in bar.get_attribute("title") for bar in heat.all())
    shot(lab.page, "lab-marks-light")
    lab.theme("JupyterLab Dark")
    shot(lab.page, "lab-marks-dark")


def test_a_number_that_stays_what_it_is_has_no_words_at_the_line_end(lab, server, executed):
    made = nbformat.from_dict({**copy.deepcopy(executed), "metadata": METADATA})
    bundle = made.cells[cells.GOOD_AT].outputs[0].data
    (state,) = bundle["application/vnd.jitmagic.v1+json"]["functions"][0]["state"]
    number = {**state, "type": "scalar", "shape": None, "dtype": "float"}
    eps, old = (
        {**number, "path": "eps", "value": "1e-08"},
        {**number, "path": "old", "value": "3", "stale": True},
    )
    function = bundle["application/vnd.jitmagic.v1+json"]["functions"][0]
    function["state"] = [eps, state, old]
    function["line_times"] = [
        {"line": 5, "seconds": 3.0}, {"line": 6, "seconds": 1.0}, {"line": 6, "seconds": 9.0, "cell": "other"}
    ]  # fmt: skip
    (finding,) = made.cells[cells.FAILING_AT].outputs[0].data["application/vnd.jitmagic.v1+json"]["findings"]
    finding["culprits"] = ["rows", "columns", "depth"]
    nbformat.write(made, server.root / "numbers.ipynb")
    lab.open("numbers.ipynb", kernel=False)
    good = lab.cell(cells.GOOD_AT)
    note = good.locator(".cm-line", has_text="jnp.tanh(x @ w)").locator(".jm-note")
    assert note.text_content() == "w f32[10,3], old = 3 constant, changed since · 75 % of the time"
    # where the window is narrow the note ends with it
    editor = good.locator(".cm-editor")
    editor.evaluate("e => { e.style.width = '340px'; }")
    lab.page.wait_for_function(
        "([note, editor]) => note.getBoundingClientRect().right <= editor.getBoundingClientRect().right",
        arg=[note.element_handle(), editor.element_handle()],
    )
    assert note.bounding_box()["width"] > 30
    tip = lab.hover(lab.cell(cells.FAILING_AT).locator(".cm-lintRange-error"))
    assert "look at: rows and 2 more" in tip.inner_text()
    lab.no_hover()
    function["verdict"] = "wrong"
    nbformat.write(made, server.root / "wrong.ipynb")
    lab.open("wrong.ipynb", kernel=False)
    assert note.text_content() == "w f32[10,3], old = 3 constant, changed since"
    assert good.locator(".jm-heat").count() == 0


def test_the_cell_that_defines_is_marked_when_another_calls(lab, saved):
    lab.open(saved(), kernel=False)
    assert lab.squiggles(cells.DEFINES_AT) == ["bool(y.sum() > 3)"]
    assert lab.cell(cells.CALLS_AT).locator(".cm-lintRange").count() == 0


def test_a_fix_reaches_the_cell_that_the_report_is_of_and_no_other(lab, saved):
    lab.open(saved(trusted=True), kernel=False)
    lab.squiggles(cells.DEFINES_AT)
    before = [lab.source(i) for i in range(len(cells.ALL))]
    lab.output(cells.CALLS_AT).first.get_by_role("button", name="Apply").first.click()
    lab.no_marks(cells.DEFINES_AT)
    changed = [i for i, text in enumerate(before) if lab.source(i) != text]
    assert changed == [cells.DEFINES_AT]


def test_hover_tells_message_culprit_and_fix(lab, saved, shot):
    lab.open(saved(trusted=True), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    clip = lab.clip(cells.FAILING_AT, outputs=0, extra=425)
    tip = lab.hover(lab.cell(cells.FAILING_AT).locator(".cm-lintRange-error"))
    words = tip.inner_text()
    assert "error[JM102] tracer-int" in words and "`n` has no value" not in words
    assert "make n static" in words and "loop with jax.lax.fori_loop" in words and "tested: " in words
    assert "-%%jit\n+%%jit --static n" in words
    assert tip.get_by_role("button", name="Apply fix").count() == 2
    assert tip.get_by_role("button", name="(read it first)").count() == 0
    # where there is less room than it needs, all of it can be scrolled to
    scrolls = "e => [getComputedStyle(e).overflowY, getComputedStyle(e.querySelector('pre')).whiteSpace]"
    assert lab.page.locator(".cm-tooltip-hover").evaluate(scrolls) == ["auto", "pre-wrap"]
    shot(lab.page, "lab-hover-light")
    shot(lab.page, "docs-hover", clip=clip)
    lab.no_hover()
    lab.theme("JupyterLab Dark")
    lab.hover(lab.cell(cells.FAILING_AT).locator(".cm-lintRange-error"))
    shot(lab.page, "lab-hover-dark")


def test_gutter_icon_tells_the_same(lab, saved):
    lab.open(saved(), kernel=False)
    icon = lab.cell(cells.FAILING_AT).locator(".cm-lint-marker-error")
    icon.wait_for()
    tip = lab.hover(icon)
    assert "JM102" in tip.inner_text() and inside_the_window(lab, tip)
    assert icon.get_attribute("aria-label").startswith("error: ")
    lab.no_hover()
    # also where its stretch of the line is scrolled out of sight
    lab.cell(cells.FAILING_AT).locator(".cm-editor").evaluate("e => { e.style.width = '90px'; }")
    assert inside_the_window(lab, lab.hover(icon))
    lab.no_hover()


def inside_the_window(lab, element):
    """Whether all of an element can be seen without scrolling the page."""
    box, page = element.bounding_box(), lab.page.viewport_size
    return (
        box["x"] >= 0
        and box["y"] >= 0
        and box["x"] + box["width"] <= page["width"]
        and box["y"] + box["height"] <= page["height"]
    )


def test_f8_goes_to_the_finding_and_shows_its_message(lab, saved):
    lab.open(saved(trusted=True), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    lab.cell(cells.FAILING_AT).locator(".cm-line").first.click()
    lab.page.keyboard.press("F8")
    tip = lab.page.locator(".cm-tooltip-lint")
    tip.wait_for()
    assert "error[JM102] tracer-int" in tip.inner_text() and inside_the_window(lab, tip)
    lab.page.keyboard.press("ArrowRight")
    tip.wait_for(state="detached")


def test_the_list_of_findings_by_keyboard_alone(lab, saved, shot):
    lab.open(saved(trusted=True), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    before = lab.source(cells.FAILING_AT)
    lab.cell(cells.FAILING_AT).locator(".cm-line").first.click()
    lab.page.keyboard.press("ControlOrMeta+Shift+m")
    found = lab.cell(cells.FAILING_AT).locator(".jm-list")
    found.wait_for()
    assert "error[JM102] tracer-int" in found.inner_text() and inside_the_window(lab, found)
    shot(lab.page, "lab-list")
    lab.page.keyboard.press("Escape")
    found.wait_for(state="detached")
    assert lab.source(cells.FAILING_AT) == before
    # it opens below the cell, and comes into sight
    lab.page.set_viewport_size({"width": 1000, "height": 400})
    lab.cell(cells.FAILING_AT).locator(".cm-line").first.click()
    lab.page.keyboard.press("ControlOrMeta+Shift+m")
    found.wait_for()
    lab.page.wait_for_function(
        "e => e.getBoundingClientRect().bottom <= innerHeight", arg=found.element_handle()
    )
    focused = "() => document.activeElement.textContent"
    for _ in range(6):
        if lab.js(focused).startswith("Apply"):
            break
        lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("Enter")
    found.wait_for(state="detached")
    after = lab.source(cells.FAILING_AT)
    assert after != before and ("--static n" in after or "fori_loop" in after)


def test_apply_has_a_shortcut(lab, saved):
    lab.open(saved(trusted=True), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    before = lab.source(cells.FAILING_AT)
    lab.cell(cells.FAILING_AT).locator(".cm-line").first.click()
    lab.page.keyboard.press("ControlOrMeta+Alt+Enter")
    lab.no_marks(cells.FAILING_AT)
    assert lab.source(cells.FAILING_AT) != before


def test_a_report_that_is_not_trusted_offers_nothing(lab, saved):
    lab.open(saved(), kernel=False)
    tip = lab.hover(lab.cell(cells.FAILING_AT).locator(".cm-lintRange-error"))
    assert tip.get_by_role("button").count() == 0
    assert "saved report, not checked here" in tip.inner_text()
    assert "Saved report, not checked here" in lab.output(cells.FAILING_AT).first.inner_text()
    assert lab.page.locator(".jm-action").count() == 0
    before = lab.source(cells.FAILING_AT)
    lab.select(cells.FAILING_AT)
    lab.command("jitmagic:apply-fix")
    assert lab.source(cells.FAILING_AT) == before


def test_a_forged_report_puts_nothing_into_any_cell_and_stops_nothing(lab, server, executed):
    forged = nbformat.from_dict({**copy.deepcopy(executed), "metadata": METADATA})
    bundle = forged.cells[cells.FAILING_AT].outputs[0].data
    report = bundle["application/vnd.jitmagic.v1+json"]
    target = forged.cells[cells.DEFINES_AT]
    report["cell"] = {"source": target.source, "id": target.id}
    (finding,) = [f for f in report["findings"] if f["fixes"]]
    finding["fixes"] = [{**fix, "cell": "import os; os.remove('x')"} for fix in finding["fixes"]]
    finding["span"] |= {
        "line": 4,
        "column": 4,
        "end_line": 4,
        "end_column": 10,
        "source": "return y / 2 if big else y",
    }
    report["findings"] = [{**finding, "message": f"{'`' * 99} \r\u202e{i}"} for i in range(20_000)]
    places = f'data-jm-cell="{target.id}" data-jm-before="{target.source}" data-jm-after="1"'
    bundle["text/html"] = (
        f'<button class="jm-write" {places}>Apply</button><div class="jm-fix" data-fix="0.0"></div>'
    )
    nbformat.write(forged, server.root / "forged.ipynb")
    lab.open("forged.ipynb", kernel=False)
    assert lab.squiggles(cells.DEFINES_AT, count=2)[1] == "return"
    tip = lab.hover(lab.cell(cells.DEFINES_AT).locator(".cm-lintRange-error", has_text="return"))
    assert "\\x0d\\u202e0" in tip.inner_text()
    lab.no_hover()
    assert lab.page.locator(".jm-action, .cm-diagnosticAction").count() == 0
    for button in lab.output(cells.FAILING_AT).get_by_role("button").all():
        button.click()
    assert lab.source(cells.DEFINES_AT) == target.source


def test_buttons_in_the_report_write_the_fix_and_the_report_says_that_it_is_old(lab, saved, shot):
    lab.open(saved(trusted=True), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    before = lab.source(cells.FAILING_AT)
    report = lab.output(cells.FAILING_AT).first
    shot(report, "report-buttons")
    lab.select(cells.GOOD_AT)
    report.get_by_role("button", name="Apply", exact=True).first.click()
    report.get_by_role("note").wait_for()
    assert "edited after this report" in report.inner_text()
    assert lab.source(cells.FAILING_AT) != before
    assert report.get_by_role("button", name="Apply").count() == 0
    active = "() => window.jupyterapp.shell.currentWidget.content.activeCellIndex"
    assert lab.js(active) == cells.FAILING_AT
    undo = f"() => window.jupyterapp.shell.currentWidget.content.widgets[{cells.FAILING_AT}].editor.undo()"
    lab.js(undo)
    assert lab.source(cells.FAILING_AT) == before
    report.get_by_role("note").wait_for(state="detached")
    report.get_by_role("button", name="Apply", exact=True).first.wait_for()


def shown(element):
    """Whether somebody who looks can see it."""
    return all(element.evaluate("e => [e.offsetWidth > 1, e.offsetHeight > 1]"))


def test_below_a_marked_cell_its_lines_are_there_to_be_read_out_and_copied_alone(lab, saved, shot):
    lab.open(saved(), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    report = lab.output(cells.FAILING_AT).first
    lines = report.locator(".jm-source")
    assert lines.count() == 2 and not any(map(shown, lines.all()))
    copied = report.evaluate(
        "e => { getSelection().selectAllChildren(e); return getSelection().toString(); }"
    )
    assert "3 |     y = jnp.ones_like(x)\n" in copied and "8 | power(jnp.arange(3.0), 4)" in copied
    assert "for _ in range(n)" in report.aria_snapshot()
    assert report.locator("[tabindex='0'].jm-source").count() == 0  # the keyboard goes to nothing unseen
    shot(lab.page, "lab-marked-light")
    lab.theme("JupyterLab Dark")
    shot(lab.page, "lab-marked-dark")
    # where the cell's text is another one, the report keeps its form, and the lines can be had
    text = lab.source(cells.FAILING_AT)
    lab.set_source(cells.FAILING_AT, text + "\n# edited")
    lab.no_marks(cells.FAILING_AT)
    assert not any(map(shown, lines.all()))
    report.get_by_role("button", name="Show its code").click()
    assert all(map(shown, lines.all()))
    lab.set_source(cells.FAILING_AT, text)
    lab.squiggles(cells.FAILING_AT)
    assert not any(map(shown, lines.all()))
    lab.command("jitmagic:toggle-marks")
    lab.no_marks(cells.FAILING_AT)
    assert all(map(shown, lines.all()))
    lab.command("jitmagic:toggle-marks")
    lab.squiggles(cells.FAILING_AT)
    assert not any(map(shown, lines.all()))


def test_a_report_without_its_cell_shows_the_lines(lab, server, executed):
    made = nbformat.from_dict({**copy.deepcopy(executed), "metadata": METADATA})
    made.cells[cells.FAILING_AT].source += "\n# edited"
    nbformat.write(made, server.root / "edited.ipynb")
    lab.open("edited.ipynb", kernel=False)
    report = lab.output(cells.FAILING_AT).first
    report.get_by_role("note").wait_for()
    assert all(map(shown, report.locator(".jm-source").all()))
    assert report.get_by_role("button").count() == report.get_by_role("link").count() == 0


def test_the_place_of_a_finding_leads_to_its_line(lab, saved):
    lab.open(saved(), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    for press in (lambda link: link.click(), lambda link: link.press("Enter")):
        lab.select(cells.GOOD_AT)
        press(lab.output(cells.FAILING_AT).first.get_by_role("link", name="line 4"))
        widget = "window.jupyterapp.shell.currentWidget.content"
        lab.page.wait_for_function(f"() => {widget}.activeCellIndex === {cells.FAILING_AT}")
        lab.page.wait_for_function(
            f"() => {{ const e = {widget}.widgets[{cells.FAILING_AT}].editor; return e.hasFocus() && e.getCursorPosition().line === 3; }}"
        )
        lab.page.keyboard.press("Escape")


def test_the_fix_by_command_for_those_without_a_mouse(lab, saved):
    lab.open(saved(trusted=True), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    lab.select(cells.FAILING_AT)
    lab.command("jitmagic:apply-fix")
    assert any(words in lab.source(cells.FAILING_AT) for words in ("--static n", "jax.lax.fori_loop(0, n"))


def test_marks_go_with_the_first_edit_and_come_back_with_undo(lab, saved):
    lab.open(saved(), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    text = lab.source(cells.FAILING_AT)
    lab.set_source(cells.FAILING_AT, text + "\n# edited")
    lab.no_marks(cells.FAILING_AT)
    assert lab.squiggles(cells.DEFINES_AT)  # the others stay
    lab.set_source(cells.FAILING_AT, text)
    assert lab.squiggles(cells.FAILING_AT) == ["range(n)"]


def test_marks_go_with_the_outputs(lab, saved):
    lab.open(saved(), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    lab.select(cells.FAILING_AT)
    lab.command("notebook:clear-cell-output")
    lab.no_marks(cells.FAILING_AT)


def test_toggle_in_menu_and_palette(lab, saved):
    lab.open(saved(), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    name = "Show jitmagic Marks in Cells"
    try:
        lab.page.locator(".lm-MenuBar-item", has_text="View").click()
        lab.page.locator(".lm-Menu-item", has_text=name).click()
        for index in (cells.GOOD_AT, cells.FAILING_AT, cells.DEFINES_AT):
            lab.no_marks(index)
        assert lab.js("() => window.jupyterapp.commands.isToggled('jitmagic:toggle-marks')") is False
        lab.command("apputils:activate-command-palette")
        lab.page.locator(".lm-CommandPalette-item", has_text=name).first.click()
        assert lab.squiggles(cells.FAILING_AT) == ["range(n)"]
    finally:
        lab.settings()
        lab.reload()


def test_settings_are_followed(lab, saved):
    lab.open(saved(), kernel=False)
    good = lab.cell(cells.GOOD_AT)
    heat, frozen = good.locator(".jm-heat"), good.locator(".jm-note >> text=constant")
    heat.first.wait_for()
    frozen.first.wait_for()
    try:
        lab.settings(heat=False, constants=False)
        lab.reload()
        lab.open(saved(), kernel=False)
        assert lab.squiggles(cells.FAILING_AT) == ["range(n)"]
        assert heat.count() == 0 and frozen.count() == 0
    finally:
        lab.settings()
        lab.reload()


def test_a_copy_of_a_cell_is_marked_too(lab, saved):
    lab.open(saved(), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    lab.select(cells.FAILING_AT)
    lab.command("notebook:copy-cell")
    lab.command("notebook:paste-cell-below")
    assert lab.squiggles(cells.FAILING_AT + 1) == ["range(n)"]
    assert lab.squiggles(cells.FAILING_AT) == ["range(n)"]
    lab.select(cells.FAILING_AT)
    lab.command("notebook:delete-cell")
    assert lab.squiggles(cells.FAILING_AT) == ["range(n)"]  # the copy, moved up


def test_cells_that_are_merged_have_no_marks_until_that_is_undone(lab, saved):
    lab.open(saved(), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    lab.select(cells.FAILING_AT)
    lab.command("notebook:merge-cell-below")
    lab.no_marks(cells.FAILING_AT)
    lab.command("notebook:undo-cell-action")
    assert lab.squiggles(cells.FAILING_AT) == ["range(n)"]
    assert lab.squiggles(cells.DEFINES_AT) == ["bool(y.sum() > 3)"]
    lab.select(cells.FAILING_AT)
    lab.command("notebook:move-cell-down")
    assert lab.squiggles(cells.FAILING_AT + 1) == ["range(n)"]


def test_both_views_of_a_notebook_are_marked(lab, saved):
    lab.open(saved(), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    lab.command("docmanager:clone")
    both = lab.page.locator(".jp-NotebookPanel .cm-lintRange-error", has_text="range(n)")
    both.nth(1).wait_for()
    assert both.count() == 2
