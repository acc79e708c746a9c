"""Measuring waits for the end of the cell: the user's own clock holds the user's call alone."""

from __future__ import annotations

from jitmagic.checking import results
from jitmagic.measure import timing


def test_nothing_is_timed_inside_of_a_call_of_the_cell(notebook, monkeypatch):
    order = []
    monkeypatch.setattr(results.timing, "time_pair", lambda *a, **k: order.append("timed") or timing.Timing())
    notebook.ns["order"] = order
    notebook.ok(
        "%%jit -q\ndef f(x):\n    return x * 2\ny = f(1.0)\norder.append('after the call')\nz = f(2.0)\n"
        "order.append('the end of the cell')"
    )
    assert order == ["after the call", "the end of the cell", "timed"]


def test_a_function_that_is_first_called_in_a_later_cell_is_timed_there(notebook):
    notebook.ok("%%jit -q -n 2 -r 2\ndef f(x):\n    return x * 2")
    assert notebook.report().functions == () or notebook.report().functions[0].timing.jit is None
    notebook.ok("f(1.0)")
    assert notebook.report().functions[0].timing.jit.repeats == 2


def test_a_cell_that_ends_in_an_error_is_not_timed(notebook):
    notebook.run("%%jit -q\ndef f(x):\n    return x * 2\nf(1.0)\n1 / 0")
    assert notebook.report().functions[0].timing.left_out == "not timed: the cell ended in an error"


def test_an_interrupt_ends_the_timing_and_keeps_the_rest(notebook, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(results.timing, "time_pair", interrupted)
    notebook.ok("%%jit\ndef f(x):\n    return x * 2\nf(1.0)")
    (function,) = notebook.report().functions
    assert function.verdict == "ok" and function.timing.left_out == "not timed: it was interrupted"


def test_state_of_another_form_at_the_end_is_not_timed_and_not_counted(notebook):
    notebook.ok(
        "%%jit -q -n 2 -r 2 --dyn w\nw = jnp.ones(3)\ndef f(x):\n    return x * w\nf(1.0)\nw = jnp.ones(4)"
    )
    (function,) = notebook.report().functions
    assert "another form" in function.timing.left_out
    assert (function.traces, function.compiles, function.calls) == (1, 1, 1)
    notebook.ok("f(1.0)")
    (function,) = notebook.report().functions
    assert function.calls == 2


def test_arguments_that_change_after_the_call_stay_what_the_cell_made_of_them(notebook):
    notebook.ok(
        "%%jit -q -n 2 -r 2\ndef f(x):\n    return x.sum()\na = np.ones(3)\nf(a)\na[:] = 5.0\na = a.tolist()"
    )
    notebook.ok("assert a == [5.0, 5.0, 5.0]")
    assert notebook.report().functions[0].timing.jit is not None


def test_seconds_follow_what_was_asked_for(notebook):
    notebook.ok("%%jit -q\ndef f(x):\n    return x * 2")
    assert notebook.ns["f"]._checker.settings.timing_budget == 1.0
    notebook.ok("%%jit -q -r 9\ndef f(x):\n    return x * 2")
    assert notebook.ns["f"]._checker.settings.timing_budget == 10.0
