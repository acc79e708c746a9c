"""What is shown of a failing call beside its report: each thing once, the error itself always."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import jitmagic
from jitmagic.notebook.session import current

POWER = """\
%%jit{flags}
def power(x, n):
    for _ in range(n):
        x = x * x
    return x

power(jnp.arange(3.0), 4)"""


def traceback_of(notebook) -> str:
    """What IPython shows of the exception."""
    return notebook.text[notebook.text.index("Traceback (") :].strip()


def test_beside_a_report_the_error_has_its_own_words(notebook):
    error = notebook.error(POWER.format(flags=""))
    assert len(notebook.outputs) == 1  # the report
    shown = traceback_of(notebook)
    name, own = type(error).__name__, str(error).split("\n")[0]
    assert shown.endswith(f"{name}: {own}\nThe report tells why, and what to do: error[JM102]")
    told = notebook.outputs[0].data["text/plain"]
    assert "needs to know how many iterations the loop has" in told and "needs to know" not in shown
    assert "static" not in shown


def test_without_a_report_it_tells_what_the_report_would(notebook):
    notebook.error(POWER.format(flags=" -q"))
    assert notebook.outputs == []
    shown = traceback_of(notebook)
    assert "`range(n)` needs to know how many iterations the loop has" in shown
    assert "\nhelp: " in shown  # corrections are looked for when the cell has ended
    notebook.error("power(jnp.arange(3.0), 4)")
    assert "needs to know" in traceback_of(notebook)


def test_an_error_of_the_functions_own_is_shown_as_it_is(notebook):
    notebook.error("""\
%%jit
def f(x):
    error = ValueError("two\\nlines")
    error.add_note("and a note")
    raise error

f(1.0)""")
    assert traceback_of(notebook).endswith("ValueError: two\nlines\nand a note")
    assert notebook.outputs[0].data["text/plain"].count("two") == 3  # headline, finding and source


def test_frames_name_their_cell_and_long_chains_are_cut(notebook):
    notebook.ok("%%jit\ndef g(x):\n    return x.reshape(7)")
    notebook.error("def turn(n):\n    return g(jnp.ones(3)) if n == 0 else turn(n - 1)\n\nturn(40)")
    shown = traceback_of(notebook)
    assert re.search(r"Cell In\[\d+\], line 4, in <module>\n    turn\(40\)", shown)
    assert re.search(r"Cell In\[\d+\], line 3, in g\n    return x\.reshape\(7\)", shown)
    assert "\n  … 27 more\n" in shown and shown.count(", in turn") == 14


def test_a_module_of_the_users_is_named(notebook, tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text("def act(x):\n    return x if x > 0 else -x\n")
    monkeypatch.syspath_prepend(tmp_path)
    notebook.error("import own_model\n%jit\ndef f(x):\n    return own_model.act(x)\n\nf(1.0)")
    assert "  own_model.py, line 2, in act\n    return x if x > 0 else -x" in traceback_of(notebook)


def test_the_whole_traceback_is_one_command_away(notebook):
    notebook.error(POWER.format(flags=""))
    notebook.run("%tb")
    assert "site-packages" in notebook.text and "Traceback (your own frames" not in notebook.text


def test_it_is_not_made_unasked(notebook, monkeypatch):
    made = []
    whole = notebook.shell.InteractiveTB.structured_traceback
    monkeypatch.setattr(
        notebook.shell.InteractiveTB,
        "structured_traceback",
        lambda *a, **k: made.append(a[0]) or whole(*a, **k),
    )  # a second or more for an error of jax's, before the prompt comes back
    notebook.error(POWER.format(flags=""))
    assert made == []
    notebook.run("%tb")
    assert len(made) == 1


def test_the_finding_of_the_expression_that_raised_is_named(notebook):
    notebook.error("%%jit\ndef f(x):\n    return int(x[0]) + float(x.sum())\n\nf(jnp.ones(2))")
    first = traceback_of(notebook)
    notebook.error("%%jit\ndef f(x):\n    return float(x.sum()) + int(x[0])\n\nf(jnp.ones(2))")
    assert first.endswith("error[JM102]") and traceback_of(notebook).endswith("error[JM103]")
    told = notebook.outputs[0].data["text/plain"]
    assert told.index("error[JM103]") < told.index("error[JM102]")  # as they stand in the line


def test_a_failing_call_of_the_cells_own_jit_is_shown_in_a_few_lines_too(notebook):
    notebook.run("%%jitcheck\ng = jax.jit(lambda x: x if x > 0 else -x)\ng(1.0)")
    assert "Traceback (your own frames" in notebook.text and "hearing.py" not in notebook.text
    assert "error[JM101]" in notebook.text


def test_what_jax_refuses_before_it_traces_is_told_behind_its_own_words(notebook):
    notebook.run(
        "%%jit --no-time\ndef f(x, w):\n    return x @ w\ng = jax.jit(f, static_argnums=1)\ng(jnp.ones(2), jnp.ones(2))"
    )
    assert "Non-hashable static arguments" in notebook.text and "hearing.py" not in notebook.text
    (shown,) = notebook.outputs
    told = shown.data["text/plain"]
    assert "error[JM109]" in told and "`w` (`ArrayImpl`) is declared static" in told
    assert "+g = jax.jit(f)" in told


def test_each_problem_is_told_in_the_function_that_it_lies_in(notebook):
    notebook.ok(
        "%%jitcheck -q\nclass Kernel:\n    def __call__(self, x):\n        if x > 1:\n            return x\n        return -x\n"
        "def helper(x):\n    if x > 0:\n        return x\n    return -x\nk = Kernel()\n"
        "def f(x):\n    y = helper(x)\n    if x > 0:\n        y = y + 1\n    return y + k(x)\nf(2.0)"
    )
    text = notebook.report().to_text()
    for place in (
        "in `Kernel.__call__`, line 4",
        "in `helper`, line 8, called from line 13 of `f`",
        "in `f`, line 14",
    ):
        assert place in text


FRESH = """
import sys, traceback
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in ("%load_ext jitmagic\\nimport jax, jax.numpy as jnp", "%%jit -q\\n" + sys.argv[1] + "\\nf(1.0, 2.0)"):
    shell.run_cell(cell).raise_error()
for call in ("jax.vmap(f)(jnp.ones(3))", "jax.grad(f)(1.0)", "jax.lax.map(f, jnp.ones(3))", "list(map(f, [1.0]))", "f(1.0)"):
    error = shell.run_cell(call).error_in_exec
    print("LAST", type(error).__name__, traceback.extract_tb(error.__traceback__)[-1].filename)
"""


@pytest.mark.parametrize("define", ["def f(x, y):\n    return x * y", "f = lambda x, y: x * y"])
def test_the_last_frame_is_none_of_ours_where_arguments_do_not_fit(define):
    """Python raises in the caller, and IPython shows the last frame whatever it is. In a process of its own: what
    other tests have loaded can put a wrapper around the compiled function, which is then called from here."""
    ran = subprocess.run([sys.executable, "-c", FRESH, define], capture_output=True, text=True, timeout=120)
    told = [line.split(" ", 2) for line in ran.stdout.splitlines() if line.startswith("LAST")]
    assert [kind for _, kind, _ in told] == ["TypeError"] * 5, ran.stderr
    assert not [last for *_, last in told if last.startswith(os.path.dirname(jitmagic.__file__) + os.sep)]


MISFIT = {
    "an own jit": ("%%jitcheck", "@jax.jit\ndef f(x):\n    return x * 2", "f(1.0, z=3)"),
    "a method, compiled by the user": (
        "%%jitcheck", "class M:\n    def step(self, x):\n        return x\nf = jax.jit(M().step)", "f(1.0, 2, 3)",
    ),
    "a partial of one": (
        "%%jitcheck", "@functools.partial(jax.jit, static_argnames='n')\ndef f(x, n):\n    return x", "f(1.0, m=2)",
    ),
    "a good call first": ("%%jitcheck", "@jax.jit\ndef f(x):\n    return x * 2\nf(1.0)", "f()"),
    "compiled by us": ("%%jit", "def f(x):\n    return x * 2", "f(1.0, y=2)"),
    "compiled by us, too many": ("%%jit", "def f(x):\n    return x * 2\nf(2.0)", "f(1.0, 2)"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFIT)
def test_arguments_that_do_not_fit_are_no_failure_of_ours(notebook, name):
    magic, define, call = MISFIT[name]
    notebook.ok("import functools")
    notebook.ok(f"{magic}\n{define}\ntry:\n    {call}\nexcept TypeError as exc:\n    caught = exc")
    assert "argument" in str(notebook.ns["caught"]) and "itself failed" not in notebook.text
    assert notebook.ns["caught"].__context__ is None


def test_an_interrupt_of_a_report_that_was_asked_for_shows_no_frame_of_ours(notebook, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    notebook.ok("def f(x):\n    return x * 2")
    monkeypatch.setattr("jitmagic.notebook.reports.of_call", interrupted)
    assert isinstance(notebook.error("%jitcheck f(1.0)"), KeyboardInterrupt)
    assert "jitmagic/" not in notebook.text and "KeyboardInterrupt" in notebook.text


def test_an_interrupt_at_the_end_of_a_cell_is_one_line(notebook, monkeypatch):
    def interrupted(busy):
        if not busy:
            monkeypatch.undo()
            raise KeyboardInterrupt

    notebook.ok("%%jitcheck -q\ndef f(x):\n    return x * 2\nf(1.0)")
    monkeypatch.setattr(current(), "_settle_panels", interrupted)
    notebook.ok("1 + 1")
    assert "was interrupted" in notebook.text and "Traceback" not in notebook.text
    current().after_cell(None)  # as IPython says where the cell was interrupted before it began
    assert current().running.run is None


def test_a_call_that_a_transformation_makes_shows_no_frame_of_ours_last(notebook):
    cell = "@functools.partial(jax.jit, static_argnames='x')\ndef f(x):\n    return x * 2\njax.vmap(f)(jnp.ones((2, 3)))"
    notebook.ok("import functools")
    assert isinstance(notebook.error(f"%%jit\n{cell}"), ValueError)
    assert "jitmagic/" not in notebook.text
    (finding,) = notebook.report().findings
    assert "a value is declared static" in finding.message
