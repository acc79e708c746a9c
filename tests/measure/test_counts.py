"""What a report costs in compilations, counted by jax itself; and each lie about time in one cell of its own."""

from __future__ import annotations

from jitmagic import units
from jitmagic.tracing.stages import COMPILE, TRACE, counted

CELL = "%%jit -q -n 3 -r 3 {}(x)\ndef {}(x):\n    return jnp.sin(x) * 2 + jnp.sum(x)"


def test_timing_and_cost_compile_nothing_else(notebook):
    """The first cell measures the machine and compiles the operations of the run without jit; the next one only
    its function."""
    notebook.ok("x = jnp.ones(8)")
    notebook.ok(CELL.replace("{}", "first"))
    with counted() as counts:
        notebook.ok(CELL.replace("{}", "second"))
        report = notebook.report()
        str(report), report.to_html(), report.to_json()
    assert [(stage, name) for stage, name, _ in counts.events] == [
        (TRACE, "second"),
        (COMPILE, "jit(second)"),
    ]
    function = report.functions[0]
    assert (
        function.timing.jit is not None and function.cost.bound is not None and function.cost.peak is not None
    )
    assert function.lines[0].hlo


def test_a_storm_of_weak_types_is_counted_and_named(notebook):
    notebook.ok(
        "%%jit -q --no-time\ndef f(t, x):\n    return t + x\nt = 0.0\nfor i in range(4):\n    t = f(t, jnp.float32(1))"
    )
    report = notebook.report()
    assert (report.functions[0].traces, report.functions[0].compiles) == (2, 2)
    assert "recompile-weak-type" in notebook.kinds("warning")
    made = notebook.ok("%jitcheck --session -o").session.compilations
    mine = [(c.reason, c.argument) for c in made if c.function == "f" and c.origin == "user"]
    assert mine[-2:] == [("first", ""), ("weak-type", "t")] or mine[-2:] == [
        ("redefined", ""),
        ("weak-type", "t"),
    ]


def test_an_unrolled_loop_is_seen_in_the_equations_and_the_stages(notebook):
    notebook.ok(
        "%%jit -q --no-time\ndef f(x):\n    for i in range(60):\n        x = jnp.sin(x) + 0.1 * i\n    return x\nf(jnp.ones(3))"
    )
    report = notebook.report()
    assert "unrolled-loop" in notebook.kinds("warning")
    (line,) = report.functions[0].lines
    assert line.line == 4 and line.equations >= 120 and line.jaxpr.endswith("…")


def test_all_compilations_are_timed_and_not_the_first_alone(notebook):
    notebook.ok(
        "%%jit -q -n 1 -r 1\ndef f(x):\n    return jnp.sin(x) * 2\nfor n in range(1, 6):\n    f(np.ones(n, np.float32))"
    )
    with counted() as counts:
        notebook.ok("for n in range(6, 9):\n    f(np.ones(n, np.float32))")
    (function,) = notebook.report().functions
    assert (function.traces, function.compiles) == (8, 8)
    later = sum(seconds for stage, name, seconds in counts.events if stage == COMPILE and name == "jit(f)")
    assert function.all_stages.compile_s > later + function.stages.compile_s
    assert (
        f"8 compilations, {units.seconds(function.all_stages.total_s)} in all" in notebook.report().to_text()
    )
