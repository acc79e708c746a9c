"""With a kernel: fixes written into cells, marks of what another cell shows, the panel, habits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import cells, driver

SOURCES = (
    cells.SETUP,
    cells.FAILING,
    cells.DEFINES,
    cells.CALLS,
    cells.PANEL,
    cells.JITTED,
    "",
    cells.FAILING,
)
FAILING, DEFINES, CALLS, PANEL, JITTED, FREE, AGAIN = range(1, 8)


@pytest.fixture(scope="module")
def notebook(_lab: driver.Lab, server: driver.Server, write_notebook: Any) -> Iterator[driver.Lab]:
    """One notebook with a running kernel for all tests of this file."""
    _lab.open(write_notebook("live.ipynb", SOURCES))
    _lab.run(0)
    yield _lab
    _lab.shut()


@pytest.fixture
def live(notebook: driver.Lab, lab: driver.Lab) -> driver.Lab:
    return lab


def text_of(target: Any) -> str:
    return " ".join(target.inner_text().split())


def apply(live: driver.Lab, index: int, title: str) -> None:
    """Press the button of the fix of this title in the hover over a cell's finding."""
    live.output(index).get_by_role(
        "button", name="Apply and run"
    ).first.wait_for()  # the fixes come after the finding
    tip = live.hover(live.cell(index).locator(".cm-lintRange-error"))
    found = re.search(rf"fix(?: (\d))?: {re.escape(title)}", tip.inner_text())
    assert found, tip.inner_text()
    tip.get_by_role("button", name=f"Apply fix {found[1]}" if found[1] else "Apply").click()


def test_the_fix_edits_the_cell_and_the_new_run_is_clean(live, shot):
    live.run(FAILING)
    assert live.squiggles(FAILING) == ["range(n)"]
    apply(live, FAILING, "loop with jax.lax.fori_loop")
    mended = live.source(FAILING)
    assert "jax.lax.fori_loop(0, n" in mended and mended.startswith("%%jit\n")
    live.no_marks(FAILING)
    live.run(FAILING)
    live.output(FAILING).filter(has_text="✓ power").first.wait_for()
    assert live.output(FAILING).locator("text=Traceback").count() == 0
    assert live.cell(FAILING).locator(".cm-lintRange-error").count() == 0
    shot(live.page, "lab-fixed")
    live.js(f"() => window.jupyterapp.shell.currentWidget.content.widgets[{FAILING}].editor.undo()")
    assert live.source(FAILING) == cells.FAILING


def test_apply_and_run_in_the_report(live, shot):
    source = cells.FAILING.replace("power", "cube")  # a text to which no fix of another test leads back
    live.set_source(FREE, source)
    live.run(FREE)
    report = live.output(FREE).first
    report.get_by_role("button", name="Apply and run").first.wait_for()
    shot(live.page, "lab-report-buttons")
    live.select(FAILING)
    report.get_by_role("button", name="Apply and run").first.click()
    live.output(FREE).filter(has_text="✓ cube").first.wait_for()
    assert live.source(FREE) != source
    assert live.js("() => window.jupyterapp.shell.currentWidget.content.activeCellIndex") == FREE


def test_a_report_that_comes_in_steps_never_shows_the_marked_cell_again(live):
    source = cells.FAILING.replace("power", "steps")
    live.set_source(FREE, source)
    live.js(
        """([panel, index]) => { window.seen = []; const look = () => {
             const cell = document.querySelectorAll(`${panel} .jp-Notebook-cell`)[index];
             window.seen.push(...[...cell.querySelectorAll('.jm-source')].map(e => e.offsetHeight));
             window.looking = requestAnimationFrame(look); }; look(); }""",
        [driver.PANEL, FREE],
    )
    live.run(FREE)
    live.output(FREE).get_by_role("button", name="Apply and run").first.wait_for()
    heights = live.js("() => { cancelAnimationFrame(window.looking); return window.seen; }")
    assert heights and max(heights) <= 1


def test_a_constant_is_made_dynamic_by_a_button(live, shot):
    live.set_source(
        FREE, "%%jit --no-time\nw, b = jnp.ones(3), 2.0\ndef line(x):\n    return x * w + b\nline(1.0)"
    )
    live.run(FREE)
    report = live.output(FREE).filter(has_text="✓ line").first
    report.locator("summary", has_text="no action needed").click()
    choice = report.get_by_role("button", name="Apply", exact=True).first
    choice.wait_for()
    shot(live.page, "lab-constants")
    choice.click()
    assert live.source(FREE).startswith("%%jit --dyn w --no-time\n")


def test_a_fix_of_the_magic_line(live):
    live.set_source(FAILING, cells.FAILING)
    live.run(FAILING)
    apply(live, FAILING, "make n static")
    assert live.source(FAILING) == cells.FAILING.replace("%%jit\n", "%%jit --static n\n")
    live.run(FAILING)
    live.output(FAILING).filter(has_text="✓ power").first.wait_for()


def test_a_fix_that_may_change_calls_says_so_on_its_button(live):
    live.set_source(
        FREE, "%%jit --no-time\nlog = []\ndef kept(x):\n    log.append(float(x))\n    return x\n\nkept(1.0)"
    )
    live.run(FREE)
    live.output(FREE).get_by_role("button", name="(read it first)").first.wait_for()
    tip = live.hover(live.cell(FREE).locator(".cm-lintRange-error"))
    assert tip.get_by_role("button", name="(read it first)").count() >= 1


def test_a_fix_that_takes_other_functions(live):
    body = "def init(n):\n    return jnp.ones((n, n))\ndef mlp(p, x):\n    return jnp.tanh(x @ p)\n\np = init(3)\np = init(4)\nmlp(p, jnp.ones((2, 4)))"
    live.set_source(FREE, f"%%jit --no-time\n{body}")
    live.run(FREE)
    apply(live, FREE, "leave init out of what is compiled")
    assert live.source(FREE) == f"%%jit -f mlp --no-time\n{body}"
    live.run(FREE)
    live.output(FREE).filter(has_text="✓ mlp").first.wait_for()


def test_the_whole_change_is_shown_with_what_hides(live):
    lines = "".join(f"    x[{i}] = {i}  # \u202e{i}\n" for i in range(20))
    body = f"def long(x):\n{lines}    return x\n\nlong(jnp.zeros(30))"
    live.set_source(FREE, f"%%jit --no-time\n{body}")
    live.run(FREE)
    live.output(FREE).get_by_role("button", name="Apply and run").first.wait_for()
    tip = live.hover(live.cell(FREE).locator(".cm-lintRange-error").first)
    assert all(f"+    x = x.at[{i}].set({i})  # \\u202e{i}" in tip.inner_text() for i in range(20))
    box, page = tip.bounding_box(), live.page.viewport_size
    assert box["y"] >= 0 and box["y"] + box["height"] <= page["height"]


def test_the_cell_that_defines_is_marked_when_another_cell_calls(live):
    live.run(DEFINES)
    assert live.cell(DEFINES).locator(".cm-lintRange").count() == 0
    live.run(CALLS)
    assert live.squiggles(DEFINES) == ["bool(y.sum() > 3)"]
    assert live.cell(CALLS).locator(".cm-lintRange").count() == 0


def test_a_function_that_the_user_compiled_is_marked_where_it_stands(live):
    live.run(JITTED)
    live.set_source(FREE, "sign(1.0)")
    live.run(FREE)
    assert live.squiggles(JITTED) == ["x > 0"]
    live.set_source(FREE, "%jitcheck off")
    live.run(FREE)


def test_a_note_is_underlined_where_it_stands(live):
    live.set_source(FREE, '%%jit --no-time\ndef told(x):\n    print("traced")\n    return x\n\ntold(1.0)')
    live.run(FREE)
    assert live.squiggles(FREE, "info") == ['print("traced")']
    mark = live.cell(FREE).locator(".cm-lintRange-info")
    assert mark.evaluate("e => [getComputedStyle(e).marginLeft, getComputedStyle(e).fontStyle]") == [
        "0px",
        "normal",
    ]


def test_a_page_is_rendered_and_tab_knows_the_options(live):
    live.set_source(FREE, "%jitcheck --explain JM101")
    live.run(FREE)
    live.output(FREE).locator("h1", has_text="JM101 tracer-bool").wait_for()
    offered = live.js(
        """async code => (await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel
           .requestComplete({code, cursor_pos: code.indexOf('|')})).content.matches""",
        "%%jit --stat|\ndef f(x): ...",
    )
    assert {"--static", "--static-argnums"} <= set(offered)


def test_saved_and_opened_again_the_marks_are_there(live):
    live.run(AGAIN)
    assert live.squiggles(AGAIN) == ["range(n)"]
    live.save()
    text = live.js("() => window.jupyterapp.shell.currentWidget.context.model.toString()")
    assert "application/vnd.jitmagic.v1+json" in text


def test_the_panel_reaches_the_kernel_and_the_verdict_changes(live, shot):
    live.run(PANEL)
    panel = live.cell(PANEL).locator(".jp-OutputArea-output", has=live.page.locator(".widget-toggle-buttons"))
    status = panel.locator("[role=status]")
    status.filter(has_text="✓ traces").wait_for()
    assert "1 compilation for the 1 kind of call seen" in text_of(status)
    shot(panel, "panel-ok")
    row = panel.locator(".widget-hbox", has=live.page.locator("code", has_text="n")).filter(
        has=live.page.get_by_role("button", name="static")
    )
    row.first.get_by_role("button", name="dynamic").click()
    status.filter(has_text="✗ can't be compiled: line").wait_for()  # and why
    static = row.first.get_by_role("button", name="static")
    assert static.get_attribute("aria-pressed") == "false"
    assert row.first.locator("[role=group]").get_attribute("aria-label") == "n"
    assert row.first.get_by_role("button", name="dynamic").get_attribute("aria-pressed") == "true"
    shape = panel.locator("input[type=text]").first
    row.first.get_by_role("button", name="static").click()
    status.filter(has_text="✓ traces").wait_for()
    shape.fill("f32[two]")
    shape.press("Enter")
    status.filter(has_text="write it like f32[10,3]").wait_for()
    shape.fill("f32[4,6]")
    shape.press("Enter")
    status.filter(has_text="✓ traces").wait_for()
    row.first.get_by_role("button", name="dynamic").click()
    status.filter(has_text="✗ can't be compiled: line").wait_for()
    panel.get_by_role("button", name="check").click()
    status.filter(has_text="checked on the last call").wait_for()
    write = panel.locator("button.jm-write").first
    write.wait_for()
    shot(panel, "docs-panel")
    write.click()
    panel.get_by_role("button", name="written: run the cell again").wait_for()
    assert live.source(PANEL) != cells.PANEL and "smooth" in live.source(PANEL)
    panel.get_by_role("button", name="code").click()
    shown = panel.locator("pre", has_text="%%jit -f smooth").first
    shown.wait_for()
    assert "jax.jit(smooth" in shown.inner_text()
    assert copied(live, panel) == shown.inner_text()
    live.js("() => Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})")
    row.first.get_by_role("button", name="static").click()
    status.filter(has_text="✓ traces").wait_for()
    panel.get_by_role("button", name="code").click()
    shown.filter(has_text="--static n").wait_for()
    assert copied(live, panel) == shown.inner_text()
    panel.get_by_role("button", name="compile and time").click()
    status.filter(has_text="as fast as without jit").wait_for()


def copied(live: driver.Lab, panel: Any) -> str:
    """What the panel's button for that puts into the clipboard."""
    live.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel.locator("button.jm-copy").click()
    panel.get_by_role("button", name="copied").wait_for()
    live.js("() => { delete navigator.clipboard; }")
    return live.js("() => navigator.clipboard.readText()")


def test_a_cell_that_runs_keeps_the_panel_waiting(live, shot):
    from playwright.sync_api import expect

    panel = live.cell(PANEL).locator(".jp-OutputArea-output", has=live.page.locator(".widget-toggle-buttons"))
    live.set_source(FREE, "import threading; threading.Event().wait(60)")
    live.select(FREE)
    live.js("() => void window.jupyterapp.commands.execute('notebook:run-cell')")
    live.scroll_to(PANEL)
    panel.locator("[role=status]", has_text="the kernel is busy with a cell").wait_for()
    assert panel.get_by_role("button", name="compile and time").is_disabled()
    shot(panel, "panel-busy")
    live.js("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt()")
    panel.locator("[role=status]", has_text="busy").wait_for(state="detached")
    expect(panel.get_by_role("button", name="compile and time")).to_be_enabled()


def test_a_call_of_a_plain_cells_function_is_marked_and_mended_where_it_stands(live, shot):
    plain = "def bend(x):\n    return x if x > 0 else 0.1 * x\n"
    live.set_source(AGAIN, plain)
    live.run(AGAIN)
    live.set_source(FREE, "%jitcheck bend(2.0)")
    live.run(FREE)
    live.output(FREE).get_by_role("button", name="Apply").first.wait_for()
    assert live.squiggles(AGAIN) == ["x > 0"]
    shot(live.page, "lab-call-of-another-cell")
    live.output(FREE).get_by_role("button", name="Apply").first.click()
    live.page.wait_for_function(
        "([i, plain]) => window.jupyterapp.shell.currentWidget.content.widgets[i].model.sharedModel.getSource() !== plain",
        arg=[AGAIN, plain],
    )
    assert live.source(FREE) == "%jitcheck bend(2.0)"
    assert live.source(AGAIN) == "def bend(x):\n    return jnp.where(x > 0, x, 0.1 * x)\n"


def test_fix_puts_the_corrected_cell_below(live):
    live.set_source(AGAIN, cells.FAILING.replace("%%jit", "%%jit --fix"))
    before = live.page.locator(f"{driver.PANEL} .jp-Notebook-cell").count()
    live.run(AGAIN)
    live.page.wait_for_function(
        "n => window.jupyterapp.shell.currentWidget.content.widgets.length === n", arg=before + 1
    )
    below = live.source(AGAIN + 1)
    assert below.startswith("%%jit\n") and "fori_loop" in below
    live.run(AGAIN + 1)
    live.output(AGAIN + 1).filter(has_text="✓ power").first.wait_for()


def test_of_two_notebooks_on_one_kernel_each_has_its_own(live, write_notebook):
    name = write_notebook("second.ipynb", (cells.FAILING.replace("%%jit", "%%jit --fix"), cells.CALLS, "1"))
    live.run(DEFINES)
    live.open_too(name)
    try:
        live.run(0)
        live.page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget.content.widgets.length === 4"
        )
        assert live.squiggles(0) == ["range(n)"] and "fori_loop" in live.source(1)
        live.run(2)  # the function that the other notebook defines
        live.output(2).filter(has_text="clip can't be compiled").first.wait_for()
    finally:
        live.js("() => window.jupyterapp.shell.currentWidget.dispose()")


def test_without_its_kernel_the_marks_stay_and_a_new_one_knows_nothing(live):
    live.set_source(FAILING, cells.FAILING)
    live.run(FAILING)
    live.js("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    live.idle()
    assert live.squiggles(FAILING) == ["range(n)"]
    live.run(FAILING)
    live.output(FAILING).filter(has_text="`%%jit` not found").first.wait_for()
    live.no_marks(FAILING)
    live.run(0)
    live.run(FAILING)
    assert live.squiggles(FAILING) == ["range(n)"]
