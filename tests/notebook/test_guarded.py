"""Where a step of ours fails, the user's own result or error is there, and one line says what failed."""

from __future__ import annotations

import pytest

from jitmagic.checking import failures, hearing, results, subject, watching
from jitmagic.checking.checker import Checker
from jitmagic.notebook import compilations, completion, options_at_end, reports, session, targets
from jitmagic.notebook.display import Display

F = "def f(x):\n    return x + 1\n"
CALL = f"{F}y = f(1.0)\nfloat(y)"
BROKEN = [
    ("the magic line", targets, "chosen", f"%%jit\n{CALL}"),
    ("where the cell starts", session.NotebookSession, "_take_beginning", f"%%jit --no-time\n{CALL}"),
    ("the names it binds", session.NotebookSession, "_bound_last", f"%%jit --no-time\n{CALL}"),
    ("the hooks in the cell", session.cells, "instrument", f"%%jit --no-time\n{CALL}"),
    ("the functions it takes", watching.Watching, "watch", f"%%jitcheck\n{CALL}"),
    ("the functions it uses", watching, "compiled_parts", f"%%jitcheck\n{CALL}"),
    ("what a call is given", hearing, "arguments", f"%%jitcheck\n{CALL}"),
    ("the look before a call", Checker, "diagnose", f"%%jitcheck\n{CALL}"),
    ("the look at a result", Checker, "observe_result", f"%%jitcheck\n{CALL}"),
    ("the run without jit", results, "PlainRun", f"%%jit --no-time\n{CALL}"),
    ("the look at a trace", Checker, "_look_at", f"%%jit --no-time\n{CALL}"),
    ("the end of the cell", Display, "end_of_cell", f"%%jit --no-time\n{CALL}"),
    ("what the line stores", options_at_end, "hand_out", f"%%jit --no-time\n{CALL}"),
    ("the calls of a cell", hearing.Hearing, "cell_ends", f"%%jitcheck\n{CALL}"),
    ("the functions of a cell", hearing.Hearing, "cell_begins", f"{CALL}"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("holder", "name", "cell"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN]
)
def test_a_cell_goes_on(notebook, monkeypatch, holder, name, cell):
    notebook.ok("%%jitcheck -q\ndef before(x): return x\nbefore(1.0)")
    monkeypatch.setattr(subject, "RAISE", False)
    monkeypatch.setattr(holder, name, None)
    assert notebook.ok(cell) == 2.0
    told = notebook.text + "".join(o.data.get("text/plain", "") for o in notebook.outputs)
    assert " ".join(told.split()).count("itself failed (TypeError: 'NoneType' object") == 1
    assert "Traceback" not in told


ASKED = [
    ("a call", reports, "of_notebook", "%jitcheck f(1.0)"),
    ("the report", reports, "of_notebook", "%jitcheck"),
    ("the report as a value", reports, "of_notebook", "%jitcheck -o"),
    ("the timeline", compilations.Compilations, "timeline", "%jitcheck --session"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("holder", "name", "line"), [row[1:] for row in ASKED], ids=[row[0] for row in ASKED]
)
def test_what_was_asked_for_fails_in_one_line(notebook, monkeypatch, holder, name, line):
    notebook.ok(F)
    monkeypatch.setattr(subject, "RAISE", False)
    monkeypatch.setattr(holder, name, None)
    assert notebook.ok(line) is None
    assert (
        notebook.text.strip()
        == "jitmagic: the report itself failed (TypeError: 'NoneType' object is not callable)"
    )


def test_an_error_in_the_users_arguments_is_raised(notebook):
    notebook.ok(F)
    assert isinstance(notebook.error("%jitcheck f(1 / 0)"), ZeroDivisionError)


def test_a_check_in_python_gives_its_report(notebook, monkeypatch):
    monkeypatch.setattr(subject, "RAISE", False)
    monkeypatch.setattr(failures, "diagnose_failure", None)
    report = notebook.ok("import jitmagic\ndef f(x):\n    return x if x > 0 else -x\njitmagic.check(f, 1.0)")
    assert "itself failed" in str(report)


def test_completion_is_silent(notebook, monkeypatch):
    monkeypatch.setattr(completion, "candidates", None)
    notebook.shell.complete("--", "%%jit --", 8)


@pytest.mark.parametrize("magic", ["%%jit", "%%jitcheck", "%%jitcheck -q"])
def test_an_error_that_python_tells_as_it_compiles_is_told_once(notebook, magic):
    """`ast.parse` takes such a cell: only the compiler says no."""
    error = notebook.error(f"{magic}\ndef f(x):\n    y = N\n    global N\n    return x\nf(1.0)")
    assert isinstance(error, SyntaxError) and notebook.text.count("prior to global") == 1
    assert "jitmagic" not in notebook.text
    notebook.ok(f"%%jitcheck -q\n{CALL}")
    notebook.error("def g():\n    y = N\n    global N\ng()")
    assert "itself" not in notebook.text and notebook.ok(f"{F}f(2.0)") == 3.0


@pytest.mark.parametrize("transformers", ["input_transformers_cleanup", "input_transformers_post"])
@pytest.mark.parametrize("magic", ["%%jit --no-time", "%%jitcheck"])
def test_a_cell_that_is_python_only_for_its_own_transformer_is_told_without_fixes(
    notebook, request, transformers, magic
):
    held = getattr(notebook.shell, transformers)
    held.append(lambda lines: [line.replace("PLUS", "+") for line in lines])
    request.addfinalizer(held.pop)
    notebook.run(f"{magic}\ndef f(x):\n    if x > 0:\n        return x PLUS 1\n    return x\nout = f(1.0)")
    report = notebook.report()
    assert [f.kind for f in report.findings] == ["tracer-bool"]
    assert any("the cell is no Python" in note for note in report.functions[0].notes)
    assert notebook.ok(f"{magic}\ndef f(x):\n    return x PLUS 1\nf(1.0)") == 2.0
