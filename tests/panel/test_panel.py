"""The panel, driven as its widgets would drive it."""

from __future__ import annotations

import html
import re
import threading

import pytest

from jitmagic.notebook.session import current
from jitmagic.panel import Panel, parse_type

CELL = "def f(x, n):\n    for _ in range(n):\n        x = x + w\n    return x\n"


@pytest.fixture
def panel(notebook):
    notebook.ok("w = jnp.ones(3); x = jnp.ones(3)")
    notebook.ok("%%jit -q --no-time --static n f(x, 2)\n" + CELL)
    return Panel(current().last.checkers["f"])


def test_switching_an_argument_traces_again(panel):
    assert "traces" in panel.verdict.value
    panel.rows.roles["n"].value = "dynamic"
    assert "be compiled: line 3" in panel.verdict.value
    assert panel.report.findings[0].kind == "tracer-int"
    panel.rows.roles["n"].value = "static"
    assert "fails" not in panel.verdict.value


def test_arrays_can_not_be_static(panel):
    assert list(panel.rows.roles["x"].options) == ["dynamic"]


def test_shapes_can_be_edited_and_mistakes_are_said(panel):
    panel.rows.types["x"].value = "f32[4,3]"
    assert "fails" not in panel.verdict.value
    panel.rows.types["x"].value = "f32[4]"
    assert "raises TypeError in line 4: x is f32[4], w is f32[3]" in panel.verdict.value
    panel.rows.types["x"].value = "three"
    assert "write it like f32[10,3]" in panel.verdict.value


def test_state_becomes_dynamic_and_code_says_so(panel):
    panel.rows.state["w"].value = "dynamic"
    assert panel.as_code() == (
        "%%jit -f f --static n --dyn \"w\"\njitmagic.jit(f, static_argnames=('n',), dyn_vars='w')"
    )
    assert {s.path: s.role for s in panel.report.functions[0].state}["w"] == "dynamic"


def test_apply_reaches_the_function(notebook, panel):
    panel.rows.state["w"].value = "dynamic"
    panel.apply()
    notebook.ok("a = f(x, 2); w = w * 2; b = f(x, 2)")
    assert notebook.ok("(a[0] + b[0]).item()") == 3.0 + 5.0


def test_a_change_costs_no_compilation_and_says_how_many_it_would_need(notebook):
    from jitmagic.tracing.stages import counted

    notebook.ok("w = jnp.ones(3); x = jnp.ones(3)")
    notebook.ok("%%jit -q --no-time --static n\n" + CELL + "\nfor n in (2, 3, 4): f(x, n)")
    panel = Panel(current().last.checkers["f"])
    assert "3 compilations for the 3 kinds of call seen" in panel.verdict.value
    with counted() as counts:
        panel.rows.types["x"].value = "f32[7,3]"
        panel.rows.state["w"].value = "dynamic"
    assert counts.compiles("f") == 0
    panel.rows.roles["n"].value = "dynamic"
    assert panel.rows.compilations()[0] == 1


def test_a_proved_fix_and_the_settings_can_be_put_into_the_cell(notebook, panel):
    panel.rows.roles["n"].value = "dynamic"
    assert "jm-write" not in panel.verdict.value  # nothing is proved without running the function
    panel.check()
    assert "make n static" in panel.verdict.value or "fori_loop" in panel.verdict.value
    texts = written(panel.verdict.value)
    assert any("jax.lax.fori_loop(0, n" in after for _, after in texts)
    assert all(before == panel.checker.cell.text for before, _ in texts)
    panel.apply()
    [(_, after)] = written(panel.code.value)
    assert after == "%%jit -q --no-time f(x, 2)\n" + CELL


def written(value):
    """What the buttons of a piece of HTML would replace, and by what."""
    found = re.findall(r'data-jm-before="([^"]*)" data-jm-after="([^"]*)"', value)
    return [(html.unescape(before), html.unescape(after)) for before, after in found]


def test_a_cell_that_runs_long_disables_the_panel(notebook, panel, monkeypatch):
    said = threading.Event()
    monkeypatch.setattr("jitmagic.panel.board.BUSY_AFTER_S", 0.0)
    before = panel._say_busy
    monkeypatch.setattr(panel, "_say_busy", lambda: (before(), said.set()))
    current().panels.append(panel)
    notebook.ns.update(said=said, panel=panel)
    verdict = panel.verdict.value
    notebook.ok(
        "assert said.wait(20)\nvalue, off = panel.verdict.value, panel.rows.roles['n'].disabled\npanel.check()"
    )
    assert "the kernel is busy with a cell" in notebook.ns["value"] and notebook.ns["off"]
    assert panel.verdict.value == verdict and not panel.rows.roles["n"].disabled


def test_compile_and_time(panel):
    panel.checker.settings = panel.checker.settings.__class__(loops=2, repeats=2)
    panel.time()
    assert panel.report.functions[0].timing.jit.repeats == 2
    assert not any(b.disabled for b in panel.buttons)


def test_timing_what_fails_shows_the_diagnosis(panel):
    panel.rows.roles["n"].value = "dynamic"
    panel.verdict.value = ""
    panel.time()
    assert "be compiled: line 3" in panel.verdict.value
    assert panel.report.functions[0].timing.jit is None


def test_what_was_declared_stays_declared_where_the_trace_fails_and_new_variables_get_rows(notebook):
    notebook.ok("w = jnp.ones(3); x = jnp.ones(3); b = 2.0")
    notebook.error("%%jit -q --no-time --dyn w\n" + CELL.replace("x + w", "x + w * b") + "\nf(x, 2)")
    panel = Panel(current().last.checkers["f"])
    assert {path: row.value for path, row in panel.rows.state.items()} == {"w": "dynamic"}
    assert panel.rows.settings()[1] == "w"
    panel.rows.roles["n"].value = "static"
    assert {path: row.value for path, row in panel.rows.state.items()} == {"w": "dynamic", "b": "constant"}
    assert panel.as_code().startswith('%%jit -f f --static n --dyn "w"')
    panel.rows.state["b"].value = "dynamic"
    assert panel.rows.settings()[1] == "w,b" and "✓ traces" in panel.verdict.value


def test_a_panel_of_a_function_that_was_defined_anew_says_so(notebook, panel):
    notebook.ok("%%jit -q --no-time --static n f(x, 2)\n" + CELL)
    for action in (panel.apply, panel.check, panel.time):
        action()
        assert "f was defined again since" in panel.verdict.value
    now = Panel(current().last.checkers["f"])
    now.apply()
    assert "applied" in now.verdict.value
    notebook.ok("def f(x, n): return x")
    now.rows.roles["n"].value = "dynamic"
    assert "f was defined again since" in now.verdict.value


def test_many_arguments_and_variables_are_counted_not_listed_and_stay_as_they_are(notebook):
    notebook.ok("class M: pass\nm = M()\nfor i in range(30): setattr(m, f'w{i}', jnp.ones(2))")
    notebook.ok("""\
%%jit -q --no-time --dyn m --static-argnums 1,20
def f(x, *rest):
    for i in range(30):
        x = x + getattr(m, f"w{i}")
    m.w0 = m.w0 + 1
    return x * sum(rest)

f(jnp.ones(2), *range(40))""")
    checker = current().last.checkers["f"]
    panel = Panel(checker)
    assert len(panel.rows.roles) == len(panel.rows.types) + 15 == 16
    assert "… 25 more arguments and 14 more variables, as they are" in panel.rows.more.value
    options, dyn = panel.rows.settings()
    assert options.static_argnums == (1, 20)
    assert set(dyn.split(",")) >= {f"m.w{i}" for i in range(30)}
    assert "✓ traces" in panel.verdict.value
    panel.apply()
    notebook.ok("before = m.w0[0].item(); f(jnp.ones(2), *range(40)); assert m.w0[0] == before + 1")


def test_two_things_never_run_at_once(panel):
    panel._busy.acquire()
    try:
        panel.check()
        assert "busy" in panel.verdict.value
    finally:
        panel._busy.release()


def test_the_flag_shows_a_panel(notebook):
    notebook.ok("%%jit -q --no-time -w f(jnp.ones(2))\ndef f(x):\n    return x")
    assert any("widget" in str(o.data) for o in notebook.outputs)
    notebook.ok("%%jit -q -w\ndef f(x):\n    return x")
    assert "the panel needs a call" in notebook.text


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("f32[10,3]", ((10, 3), "float32")),
        ("bool[4]", ((4,), "bool")),
        ("i8[]", ((), "int8")),
        ("bf16[2]", ((2,), "bfloat16")),
    ],
)
def test_array_types(text, meaning):
    assert parse_type(text) == meaning


def test_where_no_button_can_write_into_the_cell_the_whole_cell_is_there_to_copy(panel):
    panel.rows.roles["n"].value = "dynamic"
    panel.check()
    texts = [
        html.unescape(t) for t in re.findall(r"user-select:all\">(.*?)</pre>", panel.verdict.value, re.S)
    ]
    assert any(t.startswith("%%jit -q --no-time") and "fori_loop" in t for t in texts)
    panel.apply()
    assert "the cell, to copy: as it is set here" in panel.code.value


def test_after_new_settings_nothing_is_told_of_calls_with_the_old_ones(notebook):
    notebook.ok("w = jnp.ones(3); x = jnp.ones(3)")
    notebook.error("%%jit --no-time\n" + CELL + "\nf(x, 2)")
    panel = Panel(current().last.checkers["f"])
    assert [f.kind for f in current().running.report.findings if f.severity == "error"] == ["tracer-int"]
    panel.rows.roles["n"].value = "static"
    panel.apply()
    notebook.ok("after = f(x, 2)")
    [function] = current().running.report.functions
    assert function.verdict == "ok" and (function.traces, function.compiles) == (1, 1)
    assert not [f for f in current().running.report.findings if f.severity != "note"]
