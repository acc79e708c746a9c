"""`%jitcheck --session`: what is told of a session, in a real IPython."""

from __future__ import annotations

from jitmagic.render import Report, html, text, timeline
from jitmagic.report import Compilation, Session


def run(notebook, source):
    """A cell with a number of its own."""
    from IPython.utils.capture import capture_output

    with capture_output() as captured:
        result = notebook.shell.run_cell(source, store_history=True)
    result.raise_error()
    notebook.text = captured.stdout
    return result.result


def test_every_compilation_by_cell_with_its_reason(notebook):
    run(notebook, "jax.clear_caches()\nx = jnp.ones(5)")
    first = notebook.shell.execution_count
    run(notebook, "@jax.jit\ndef g(x, lr):\n    return jnp.sin(x) * lr\ng(x, 1.0)")
    run(notebook, "g(x, jnp.float32(1.0)); g(x[:4], 1.0)")
    run(notebook, "%%jit -q --no-time\ndef f(x):\n    return 2 * x\nf(x)")
    run(notebook, "f(x[:2])")
    report = run(notebook, "%jitcheck --session -o")
    made = report.session.compilations
    mine = [(c.cell - first, c.function, c.reason, c.argument) for c in made if c.origin == "user"]
    assert mine == [
        (0, "g", "first", ""), (1, "g", "weak-type", "lr"), (1, "g", "shape", "x"),
        (2, "f", "first", ""), (3, "f", "shape", "x"),
    ]  # fmt: skip
    assert "weak type of lr: weak float32 → strong float32" in report.to_text(width=200)


def test_runs_of_our_own_are_told_apart(notebook):
    run(notebook, "jax.clear_caches()")
    run(notebook, "%%jit -q --no-time\ndef f(x):\n    return jnp.cos(x) + 1\nf(np.ones(6, np.float32))")
    made = run(notebook, "%jitcheck --session -o").session.compilations
    here = [c for c in made if c.cell == made[-1].cell]
    assert [c.function for c in here if c.origin == "user"] == ["f"]
    assert not [c for c in here if c.origin == "operation"]
    assert [c for c in here if c.origin == "check"]  # the one run without jit


def test_a_usage_error_where_it_does_not_belong(notebook):
    assert "belongs to %jitcheck" in str(notebook.error("%jit --session"))


def storm() -> Report:
    """200 s in 12 programs, 160 s of them weak types of one argument in cell 7."""
    made = [Compilation("step", "user", 3, 4, 0.0, 1.0, 1.0, 38.0)]
    made += [
        Compilation(
            "step",
            "user",
            7,
            2,
            50.0 + i,
            1.0,
            1.0,
            14.0,
            "weak-type",
            "lr",
            "weak float32",
            "strong float32",
        )
        for i in range(10)
    ]
    made += [
        Compilation("add", "operation", 7, 2, 90.0, None, None, 0.5),
        Compilation("f", "check", 7, compile_s=9.0),
    ]
    return Report(session=Session(tuple(made), 3, 2))


def test_the_first_line_says_where_the_time_went():
    found = text(storm())
    assert found.splitlines()[0].startswith(
        "! session  3min 20s of tracing and compiling for 12 programs, 80 %"
    )
    assert "in cell 7: weak types" in " ".join(found.split())
    assert "10 × weak type of lr" in text(storm(), width=200)
    assert "checks of jitmagic took 9 s more, for 1 program" in found
    assert "heard since cell 3" in found and "2 programs over the limit" in found


def test_the_picture_has_its_text():
    page = html(storm())
    assert page.count('<img src="data:image/svg+xml;base64,') == 11 and 'alt="16 s of 3min 20s"' in page
    assert text(storm()).count("█") >= 11


def test_an_empty_session_says_so():
    assert "nothing was traced or compiled yet" in text(Report(session=Session()))


def test_the_data_survives_json():
    import json

    report = storm()
    assert Report.from_dict(json.loads(report.to_json())) == report


def test_hostile_names_are_escaped():
    bad = '</svg><script>alert(1)</script>"'
    made = (Compilation(bad, argument=bad, before=bad, after=bad, reason="shape", compile_s=1.0),) * 100
    page = html(Report(session=Session(made)))
    assert "<script" not in page and page.count("<tr") <= timeline.ROWS + 5
