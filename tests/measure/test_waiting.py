"""Measuring waits for the end of the cell: the user's own clock holds the user's call alone."""

from __future__ import annotations

import pytest

from jitmagic.checking import failures, results
from jitmagic.checking.subject import Subject
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


def test_nothing_is_compared_or_counted_inside_of_a_call_of_the_cell(notebook, monkeypatch):
    order = []
    compare, price = results.compare_results, results.price
    monkeypatch.setattr(results, "compare_results", lambda *a: order.append("compared") or compare(*a))
    monkeypatch.setattr(results, "price", lambda *a: order.append("counted") or price(*a))
    notebook.ns["order"] = order
    notebook.ok(
        "%%jit -q --no-time\ndef f(x):\n    if not isinstance(x, jax.core.Tracer): order.append('without jit')\n"
        "    return x * 2\nf(1.0)\norder.append('the end of the cell')"
    )
    assert order == [
        "the end of the cell",
        "compared",
        "counted",
    ]  # what the run without jit appends is undone


@pytest.mark.parametrize(
    ("magic", "decorator"),
    [
        ("%%jit --no-time", ""),
        ("%%jit --no-time --donate x", ""),
        ("%%jitcheck", ""),
        ("%%jitcheck", "@jax.jit\n"),
    ],
)
def test_no_result_is_read_inside_of_a_call_of_the_cell(notebook, monkeypatch, magic, decorator):
    order = notebook.ns["order"] = []
    observe = Subject.observe_result
    monkeypatch.setattr(Subject, "observe_result", lambda *a: order.append("read") or observe(*a))
    notebook.ok(
        f"{magic} -q\n{decorator}def f(x):\n    return jnp.sqrt(x) - 1\nx = jnp.zeros(3) - 1\ny = f(x)\n"
        "order.append('the end of the cell')"
    )
    assert order == ["the end of the cell", "read"] and notebook.kinds("warning") == ["nan"]


@pytest.mark.parametrize(
    ("magic", "call"), [("%%jitcheck", "f(x, n)"), ("%%jit", "try: f(x, n)\nexcept Exception: pass")]
)
def test_a_failure_that_the_cell_survives_is_looked_into_at_its_end(notebook, monkeypatch, magic, call):
    """From where the call began: the cell has changed its argument since."""
    order = notebook.ns["order"] = []
    further = failures._look_further
    monkeypatch.setattr(failures, "_look_further", lambda *a: order.append("look") or further(*a))
    notebook.ok(
        f"{magic} -q\ndef f(x, n):\n    if x.sum() > 1:\n        x = -x\n    return [x] * n[0]\n"
        f"x, n = np.ones(3), [2]\n{call}\nx[:] = 0.0\nn[0] = 'two'\norder.append('the end of the cell')"
    )
    assert order == ["the end of the cell", "look"] and notebook.ns["n"] == ["two"]
    assert notebook.kinds("error") == ["tracer-bool", "tracer-int"]


FROM_WHERE_THE_CALL_BEGAN = {
    "a global bound anew": ("w = 2.0", "return x * w", "f(1.0); w = 5.0", "w == 5.0"),
    "an argument written in place": ("a = np.ones(3)", "return x.sum()", "f(a); a[:] = 7.0", "a[0] == 7.0"),
    "a large one": ("a = np.ones(400_000)", "return x[:3] * 1", "f(a); a.sort()", "a.sum() == 4e5"),
    "a list that grew": ("c = [1.0]", "return x * c[-1]", "f(1.0); c.append(4.0)", "c == [1.0, 4.0]"),
    "an object's attribute": (
        "class M: pass\nm = M(); m.w = 1.0", "return x * m.w", "f(1.0); m.w = 3.0", "m.w == 3.0",
    ),
    "an object that took its place": (
        "class M: pass\nm = M(); m.w = 1.0; old = m", "return x * m.w", "f(1.0); m = M(); m.w = 3.0; old.w = 9.0",
        "(m.w, old.w) == (3.0, 9.0)",
    ),
    "a helper defined anew": ("h = lambda x: x", "return h(x)", "f(1.0); h = lambda x: x + 1", "h(1) == 2"),
    "the result, changed": ("", "return {'a': x * 2}", "r = f(1.0); r['a'] = 0; r['b'] = 1", "r == {'a': 0, 'b': 1}"),
    "dynamic state, used on": ("w = jnp.ones(2)", "global w; w = w + x; return w * 1", "for _ in range(3): f(1.0)",
                               "w.tolist() == [4.0, 4.0]"),
    "donated arguments": ("", "return x + 1", "s = jnp.ones(3)\nfor _ in range(3): s = f(s)", "s.tolist() == [4.0] * 3"),
}  # fmt: skip
OPTIONS = {"dynamic state, used on": " --dyn w", "donated arguments": " --donate x"}


@pytest.mark.parametrize("name", FROM_WHERE_THE_CALL_BEGAN)
def test_the_run_without_jit_begins_where_the_call_began(notebook, monkeypatch, name):
    """Each of these would give another result at the end of the cell; the cell's own state stays as it left it."""
    before, body, calls, then = FROM_WHERE_THE_CALL_BEGAN[name]
    compared = []
    compare = results.compare_results
    monkeypatch.setattr(results, "compare_results", lambda *a: compared.append(a[1].error) or compare(*a))
    notebook.ok(before)
    notebook.ok(f"%%jit -q --no-time{OPTIONS.get(name, '')}\ndef f(x):\n    {body}\n{calls}")
    function = next(f for f in notebook.report().functions if f.name == "f")
    assert function.verdict == "ok" and set(compared) == {None} and not function.notes
    notebook.ok(f"assert {then}")


def test_a_large_array_that_has_changed_since_is_not_compared_with(notebook):
    notebook.ok("a = np.arange(400_000.0)")
    notebook.ok("%%jit -q --no-time\ndef f(x):\n    return x[1:4] * 1\nf(a)\na[2] = -1.0")
    (function,) = notebook.report().functions
    assert function.verdict == "ok"
    assert (
        "the run without jit was left out: the cell has changed a large array of NumPy since"
        in function.notes
    )


def test_an_argument_that_was_used_up_since_is_not_compared_with(notebook):
    notebook.ok("g = jax.jit(lambda x: x + 1, donate_argnums=0)")
    notebook.ok("%%jit -q --no-time -f f\ndef f(x):\n    return x * 2\na = jnp.ones(3)\nf(a)\na = g(a)")
    (function,) = notebook.report().functions
    assert function.verdict == "ok" and any("donated" in n for n in function.notes)


def test_functions_of_a_cell_share_the_seconds(notebook, monkeypatch):
    given = []
    monkeypatch.setattr(results, "time_runs", lambda *a: given.append(a[-1]))
    source = "def f(x):\n    return x * 2\ndef g(x):\n    return x * 3\nf(1.0); g(1.0)"
    notebook.ok(f"%%jit -q\n{source}")
    notebook.ok(f"%%jit -q -r 7\n{source}")
    assert given == [0.5, 0.5, 10.0, 10.0]


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
