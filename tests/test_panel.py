"""The panel, driven as its widgets would drive it."""

from __future__ import annotations

import pytest

from jitmagic.panel import Panel, parse_type
from jitmagic.session import current

CELL = "def f(x, n):\n    for _ in range(n):\n        x = x + w\n    return x\n"


@pytest.fixture
def panel(notebook):
    notebook.ok("w = jnp.ones(3); x = jnp.ones(3)")
    notebook.ok("%%jit -q --no-time --static n f(x, 2)\n" + CELL)
    return Panel(current().last.checkers["f"])


def test_switching_an_argument_traces_again(panel):
    assert "traces" in panel.verdict.value
    panel.roles["n"].value = "dynamic"
    assert "fails to trace: 1 problem" in panel.verdict.value
    assert panel.report.findings[0].kind == "tracer-int"
    panel.roles["n"].value = "static"
    assert "fails" not in panel.verdict.value


def test_arrays_can_not_be_static(panel):
    assert list(panel.roles["x"].options) == ["dynamic"]


def test_shapes_can_be_edited_and_mistakes_are_said(panel):
    panel.types["x"].value = "f32[4,3]"
    assert "fails" not in panel.verdict.value
    panel.types["x"].value = "f32[4]"
    assert "fails" in panel.verdict.value
    panel.types["x"].value = "three"
    assert "write it like f32[10,3]" in panel.verdict.value


def test_state_becomes_dynamic_and_code_says_so(panel):
    panel.state["w"].value = "dynamic"
    assert panel.as_code() == (
        "%%jit -f f --static n --dyn \"w\"\njitmagic.jit(f, static_argnames=('n',), dyn_vars='w')"
    )
    assert {s.path: s.role for s in panel.report.functions[0].state}["w"] == "dynamic"


def test_apply_reaches_the_function(notebook, panel):
    panel.state["w"].value = "dynamic"
    panel.apply()
    notebook.ok("a = f(x, 2); w = w * 2; b = f(x, 2)")
    assert notebook.ok("(a[0] + b[0]).item()") == 3.0 + 5.0


def test_compile_and_time(panel):
    panel.checker.settings = panel.checker.settings.__class__(loops=2, repeats=2)
    panel.time()
    assert panel.report.functions[0].timing.jit.repeats == 2
    assert not any(b.disabled for b in panel.buttons)


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
