"""The in-editor layer: squiggles, hovers, fixes, heat and notes in a real JupyterLab."""

from __future__ import annotations

import pytest

from tests.browser import cells


def test_a_saved_notebook_is_marked_without_a_kernel(lab, saved, shot):
    lab.open(saved(), kernel=False)
    assert lab.js("() => window.jupyterapp.shell.currentWidget.sessionContext.session") is None
    assert lab.squiggles(cells.FAILING_AT) == ["range(n)"]
    good = lab.cell(cells.GOOD_AT)
    assert good.locator(".cm-lintRange-error, .cm-lintRange-warning").count() == 0
    note = good.locator(".cm-line", has_text="jnp.tanh(x @ w)").locator(".jm-note")
    assert note.text_content().startswith("w f32[10,3] frozen here · ")
    heat = good.locator(".jm-heat")
    assert heat.count() == 2
    assert all("% of the flop of predict" in bar.get_attribute("title") for bar in heat.all())
    shot(lab.page, "lab-marks-light")
    lab.theme("JupyterLab Dark")
    shot(lab.page, "lab-marks-dark")
    lab.theme("JupyterLab Light")


def test_the_cell_that_defines_is_marked_when_another_calls(lab, saved):
    lab.open(saved(), kernel=False)
    assert lab.squiggles(cells.DEFINES_AT) == ["bool(y.sum() > 3)"]
    assert lab.cell(cells.CALLS_AT).locator(".cm-lintRange").count() == 0


def test_hover_tells_message_culprit_and_fix(lab, saved, shot):
    lab.open(saved(), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    tip = lab.hover(lab.cell(cells.FAILING_AT).locator(".cm-lintRange-error"))
    words = tip.inner_text()
    assert "error[JM102] tracer-int" in words
    assert "look at: n" in words
    assert "fix: make n static" in words and "proved: " in words
    assert tip.get_by_role("button", name="Apply (read first): make n static").count() == 1
    shot(lab.page, "lab-hover-light")
    box = lab.cell(cells.FAILING_AT).bounding_box()
    shot(lab.page, "docs-hover", clip={"x": box["x"], "y": box["y"], "width": 780, "height": 340})
    lab.page.mouse.move(5, 5)
    tip.wait_for(state="detached")
    lab.theme("JupyterLab Dark")
    tip = lab.hover(lab.cell(cells.FAILING_AT).locator(".cm-lintRange-error"))
    shot(lab.page, "lab-hover-dark")
    lab.theme("JupyterLab Light")


def test_gutter_icon_tells_the_same(lab, saved):
    lab.open(saved(), kernel=False)
    icon = lab.cell(cells.FAILING_AT).locator(".cm-lint-marker-error")
    icon.wait_for()
    assert "JM102" in lab.hover(icon).inner_text()


def test_the_fix_edits_the_cell_and_the_new_run_is_clean(lab, fresh, shot):
    lab.open(fresh(cells.SETUP, cells.FAILING))
    lab.run(0)
    lab.run(1)
    assert lab.squiggles(1) == ["range(n)"]
    tip = lab.hover(lab.cell(1).locator(".cm-lintRange-error"))
    tip.get_by_role("button", name="make n static").click()
    assert lab.source(1) == cells.FAILING.replace("%%jit\n", "%%jit --static n\n")
    lab.no_marks(1)
    lab.run(1)
    assert lab.output(1).locator("text=Traceback").count() == 0
    lab.cell(1).locator(".jm-heat, .jm-note, .jp-OutputArea-output >> nth=0").first.wait_for()
    assert lab.cell(1).locator(".cm-lintRange-error").count() == 0
    assert "power ok" in " ".join(lab.output(1).first.inner_text().split())
    shot(lab.page, "lab-fixed")
    lab.js("() => window.jupyterapp.shell.currentWidget.content.widgets[1].editor.undo()")
    assert lab.source(1) == cells.FAILING


def test_the_fix_by_command_for_those_without_a_mouse(lab, saved):
    lab.open(saved(), kernel=False)
    lab.squiggles(cells.FAILING_AT)
    lab.select(cells.FAILING_AT)
    lab.command("jitmagic:apply-fix")
    assert lab.source(cells.FAILING_AT).startswith("%%jit --static n\n")


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
        lab.setting("enabled", True)


@pytest.mark.parametrize(
    ("setting", "selector"), [("heat", ".jm-heat"), ("constants", ".jm-note >> text=frozen")]
)
def test_settings_are_followed(lab, saved, setting, selector):
    lab.open(saved(), kernel=False)
    mark = lab.cell(cells.GOOD_AT).locator(selector).first
    mark.wait_for()
    try:
        lab.setting(setting, False)
        lab.page.reload()
        lab.open(saved(), kernel=False)
        lab.squiggles(cells.FAILING_AT)
        assert lab.cell(cells.GOOD_AT).locator(selector).count() == 0
    finally:
        lab.setting(setting, True)
