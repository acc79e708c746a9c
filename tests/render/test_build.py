"""What is said, in which order, and what is left out with a word about it."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from jitmagic import render
from jitmagic.render import Report
from jitmagic.report import (
    LAST_RUN,
    PLAIN_RUN,
    CellText,
    Comparison,
    Finding,
    Fix,
    FunctionReport,
    Sample,
    Span,
    Stages,
    State,
    Timing,
)
from tests.render import samples

CALL = Sample(1e-3, 1e-3, 1e-5, 10, 7)


def first_line(function, *findings):
    return render.text(Report((function,), findings), width=200).split("\n")[0]


def finding(severity="error", **fields):
    return replace(Finding("JM101", "tracer-bool", severity, "f", "a traced value"), **fields)


def timed(**fields):
    return FunctionReport("f", "ok", 1, stages=Stages(1, 1, 1), timing=Timing(CALL, CALL, **fields))


@pytest.mark.parametrize(
    ("function", "findings", "line"),
    [
        (FunctionReport("f", "fails"), (finding(), finding()), "✗ f  can't be compiled: branches on a traced value, and 1 more problem"),
        (FunctionReport("f", "fails"), (finding(), finding("warning")),
         "✗ f  can't be compiled: branches on a traced value, and 1 warning"),
        (FunctionReport("f", "fails"), (), "✗ f  can't be compiled"),
        (FunctionReport("f", "fails"), (finding(span=Span(3, 0, 3, 1, "x", "/m/helpers.py")),),
         "✗ f  can't be compiled: line 3 of `helpers.py` branches on a traced value"),
        (FunctionReport("f", "fails"), (finding(span=Span(3, 0, 3, 1, "x", function="g")), finding()),
         "✗ f  can't be compiled: `g` (line 3) branches on a traced value, and 1 more problem"),
        (FunctionReport("f", "fails"), (finding(fixes=(Fix("pass `n` (slower); more", verified=True),)),),
         "✗ f  can't be compiled: branches on a traced value; tested fix: pass `n`, and 1 more change"),
        (FunctionReport("f", "fails"), (finding(), finding(fixes=(Fix("pass `n`", verified=True),))),
         "✗ f  can't be compiled: branches on a traced value, and 1 more problem; 1 with a tested fix"),
        (FunctionReport("f", "fails"), (finding(kind="user-error"),), "✗ f  raises an error of its own"),
        (FunctionReport("f", "fails"), (finding(kind="user-error", detail="TypeError: shapes differ",
                                                 message="`x @ w` raises TypeError: shapes differ; `x` is `f32[3]`"),),
         "✗ f  raises TypeError: `x` is `f32[3]`"),
        (FunctionReport("f", "fails"), (finding(kind="user-error", detail="KeyError: 'w'", message="`p['w']` raises KeyError: 'w'"),),
         "✗ f  raises KeyError: 'w'"),
        (FunctionReport("f", "fails"), (finding(kind="nan", fixes=(Fix("mask it", verified=True),)),),
         "✗ f  gives NaN or infinity; tested fix: mask it"),
        (FunctionReport("f", "fails"), (finding(kind="invalid-jax-type", culprits=("kind",)),),
         "✗ f  can't be compiled: takes `kind`, which is no array of numbers"),
        (FunctionReport("f", "ok"), (finding("warning", span=Span(3, 9, 3, 10, "x"), kind="nan"),
                                     finding("warning", span=Span(3, 2, 3, 4, "x"), kind="out-of-bounds")),
         "! f  line 3 takes an index out of bounds, and 1 more warning (line 3); traces, not timed"),
        (FunctionReport("f", "fails"), (finding(kind="user-error", span=Span(3, 0, 3, 1, "x")), finding("warning")),
         "✗ f  raises an error of its own in line 3: 1 warning"),
        (FunctionReport("f", "wrong"), (finding(kind="state-write", message="a; `n` is 1 after this cell, and 3 without jit",
                                                fixes=(Fix("return it", verified=True),)),),
         "✗ f  compiles, but its results are wrong: `n` is 1 after this cell, and 3 without jit; tested fix: return it"),
        (FunctionReport("f", "wrong"), (finding(kind="stale-constant", culprits=("w",), span=Span(3, 0, 3, 1, "w"),
                                                message="f gives 2.0, and 3.0 without jit"),),
         "✗ f  compiles, but its results are wrong: line 3 goes on with an old `w`"),
        (FunctionReport("f", "ok", 1), (finding("warning", function="made elsewhere"),), "✓ f               traces, not timed"),
        (FunctionReport("f", "ok"), (finding(),), "✗ f  has a problem: branches on a traced value"),
        (FunctionReport("f"), (), "· f  not called yet"),
        (FunctionReport("f", traces=1), (finding("warning"),), "! f  is being compiled: branches on a traced value"),
        (FunctionReport("f", calls=2), (finding("warning"),), "! f  was not traced: branches on a traced value"),
        (FunctionReport("f", "ok"), (), "✓ f  traces, not timed"),
        (FunctionReport("f", "ok", stages=Stages(1, 1, 1)), (), "✓ f  compiled in 3 s, not timed"),
        (FunctionReport("f", "ok", stages=Stages(1, 1, 1), notes=(f"{PLAIN_RUN}was left out: it waits",)), (),
         "✓ f  compiled in 3 s, not timed; not compared with a run without jit"),
        (replace(timed(), notes=(f"{PLAIN_RUN}was left out: it waits",)), (),
         "✓ f  1 ms a call (compiled in 3 s); not compared with a run without jit"),
        (FunctionReport("f", "ok"), (finding("note"),), "✓ f  traces, not timed"),
        (timed(speedup=8.3, break_even_calls=12, device="cpu"), (),
         "✓ f  1 ms a call, 8.3× faster than without jit (compiled in 3 s)"),
        (timed(speedup=8.3, before_fix=True), (),
         "✓ f  1 ms a call, 8.3× faster than before the fix, without jit (compiled in 3 s)"),
        (timed(speedup=0.5), (), "✓ f  1 ms a call, 2× slower than without jit (compiled in 3 s)"),
        (timed(speedup=1.01), (), "✓ f  1 ms a call, as fast as without jit (compiled in 3 s)"),
        (timed(speedup=1.2, clear=False), (),
         "✓ f  1 ms a call, no clear difference from the 1 ms without jit (compiled in 3 s)"),
        (timed(speedup=9.0, constant_folded=True), (),
         "✓ f  computed while compiling, so the time of a call says nothing"),
        (timed(), (finding("warning"),), "! f  branches on a traced value; 1 ms a call (compiled in 3 s)"),
        *(
            (replace(timed(), against=Comparison(verdict, earlier, 1e-3, 0.5, 0.1)), (),
             f"✓ f  1 ms a call (compiled in 3 s){told}")
            for verdict, earlier, told in (
                ("faster", "the run in a.json", "; 2× faster than the run in a.json"),
                ("same", "the run in a.json", "; no difference from the run in a.json"),
                ("incomparable", "the run in a.json", "; not compared with the run in a.json"),
                ("faster", LAST_RUN, f"; 2× faster than {LAST_RUN}"),
                ("same", LAST_RUN, ""),
                ("incomparable", LAST_RUN, ""),
            )
        ),
    ],
)  # fmt: skip
def test_verdict_in_one_line(function, findings, line):
    assert first_line(function, *findings) == line


def test_findings_of_other_functions_are_counted_apart():
    report = Report(
        (FunctionReport("f", "ok"), FunctionReport("g", "fails")),
        (finding(function="g"), finding(function="h")),
    )
    lines = render.text(report).split("\n")
    assert lines[:3] == [
        "✗ h  can't be compiled: branches on a traced value",
        "✓ f  traces, not timed",
        "✗ g  can't be compiled: branches on a traced value",
    ]


def test_an_empty_report_says_so():
    assert "no function was checked" in render.text(Report())
    assert "no function was checked" in render.html(Report())


def test_errors_come_first_then_in_the_order_of_the_source():
    def at(line, severity, message):
        return finding(severity, span=Span(line, 0, line, 1, "x"), message=message)

    found = (
        at(1, "note", "third"),
        at(9, "error", "second"),
        at(4, "error", "first"),
        at(2, "warning", "between"),
    )
    cell = CellText("x\n" * 9)
    for lines in (CellText(), cell):  # in HTML errors stand under their lines
        report = Report((FunctionReport("f", "fails"),), found, cell=lines)
        for text in (render.text(report), render.html(report)):
            places = [text.index(word) for word in ("first", "second", "between", "third")]
            assert places == sorted(places)
    alone = render.html(replace(report, findings=found[3:]))  # warnings do, where there is no error
    assert alone.index("between") < alone.index("9 | </span>") < alone.index("jitmagic.explain")


def test_a_fix_is_shown_whole_before_it_can_be_applied():
    cell = CellText("%%jit\ndef f(x): return float(x)\n", magic="%%jit")
    fix = Fix("t", "safe", True, "", cell=f"def f(x): return {' + '.join(f'x{i}' for i in range(200))}\n")
    report = Report((), (finding(fixes=(fix,)),), cell=cell)
    for text in (render.text(report), render.html(report)):
        assert all(f"x{i}" in re.sub(r"\n\s+", "", text) for i in range(200))
    long = replace(fix, cell="".join(f"x = {i}\n" for i in range(99)))
    assert 'class="jm-fix"' in render.html(report)
    assert 'class="jm-fix"' not in render.html(replace(report, findings=(finding(fixes=(long,)),)))


def test_the_rest_of_a_report_begins_with_what_was_tested_since():
    fix = Fix("choose with `jnp.where`", "safe", True, "", cell="x")
    report = Report((FunctionReport("f", "fails"),), (finding(fixes=(fix,)),))
    assert render.on_screen(report, "rest").startswith(
        "f: tested fix: choose with `jnp.where`\n\nerror[JM101]"
    )


def test_proof_is_said_and_its_absence_too():
    fixes = (
        Fix("one", "safe", True, "traced; equal to eager on 1 call"),
        Fix("two"),
        Fix("three", "unsafe", False, "the result differs on call 2"),
        Fix("four", "safe", True),
    )
    text = render.text(Report((), (finding(fixes=fixes),)))
    assert "safe; tested: traced; equal to eager on 1 call" in text
    assert "to write by hand; not tried" in text
    assert (
        "may change results or calls, read it first; the test failed: the result differs on call 2"
        in " ".join(text.split())
    )
    assert "safe; tested by a new run" in text


@pytest.mark.parametrize(
    ("fix", "magic", "typed"),
    [
        (Fix("t", static_argnames=("n", "m"), static_argnums=(1, 2)), "%%jit", "`--static n,m`"),
        (Fix("t", static_argnums=(1,)), "%%jit", "`--static-argnums 1`"),
        (Fix("t", static_argnames=("n",)), "", "`static_argnames=('n',)`"),
        (Fix("t", static_argnames=()), "%%jit", "no `--static`"),
        (Fix("t", dyn=("w", "l.b")), "%%jit", "`--dyn w,l.b`"),
        (Fix("t", dyn=("w",)), "", "`dyn_vars=('w',)`"),
    ],
)
def test_options_as_they_are_typed(fix, magic, typed):
    report = Report((), (finding(fixes=(fix,)),), cell=CellText(magic=magic))
    assert f"option: {typed}\n" in render.text(report)


def test_a_diff_is_made_from_the_cell_without_its_magic_line():
    cell = CellText("%%jit\ndef f(x):\n    return float(x)\n", magic="%%jit")
    fix = Fix("t", cell="def f(x):\n    return x\n")
    text = render.text(Report((), (finding(fixes=(fix,)),), cell=cell))
    assert "-    return float(x)\n" in text and "+    return x\n" in text
    assert "-%%jit" not in text and "---" not in text and "@@" not in text


def test_a_given_diff_is_shown_without_headers():
    diff = "--- cell\n+++ cell\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -9 +9 @@\n-d\n+e\n"
    text = render.text(Report((), (finding(fixes=(Fix("t", diff=diff),)),)))
    shown = text[text.index("not tried") :].split("\n")[1:8]
    assert [line.strip() for line in shown] == ["a", "-b", "+c", "…", "-d", "+e", ""]


def test_places_of_one_cause_are_one_block_also_where_nothing_that_was_tried_helps():
    def at(line, **fields):
        return finding(
            span=Span(line, 0, line, 1, "x"), culprits=("time.time",), help="measure outside", **fields
        )

    first, second = (Fix(f"as {n}", evidence="a first step: nan is left", cell=n) for n in "ab")
    text = render.text(Report((), (at(1, fixes=(first,)), at(2, fixes=(second,)))))
    assert text.count("error[JM101]") == 1 and "lines 1 and 2" in text and "b" not in text.split()
    assert "to write by hand; a first step: nan is left" in text
    helps = replace(second, verified=True)
    text = render.text(Report((), (at(1, fixes=(first,)), at(2, fixes=(helps,)))))
    assert text.count("error[JM101]") == 2


def test_the_same_change_is_shown_once():
    fix = Fix("mend", "safe", True, "traced", cell="def f(x):\n    return x\n")
    found = (finding(fixes=(fix,)), finding(code="JM103", fixes=(fix,)))
    text = render.text(Report((), found, cell=CellText("def f(x):\n    return float(x)\n")))
    assert text.count("+    return x") == 1 and "the same change as the fix of JM101" in text


@pytest.mark.parametrize(
    ("cell", "name", "words"),
    [
        ("<ipython-input-12-abc>", "", "line 3 of cell [12]"),
        ("/tmp/ipykernel_77/123456.py", "", "line 3 of another cell"),
        ("/tmp/ipykernel_77/123456.py", "Cell In[2]", "line 3 of cell [2]"),
        ("/home/somebody/helpers.py", "", "line 3 of `helpers.py`"),
        ("C:\\code\\helpers.py", "", "line 3 of `helpers.py`"),
    ],
)
def test_a_place_in_another_cell_is_named_and_shown_alone(cell, name, words):
    span = Span(3, 4, 3, 9, "y = other", cell, cell_name=name)
    report = Report((), (finding(span=span),), cell=CellText("a\nb\nc\nd"))
    text = render.text(report)
    assert words in text and "3 | y = other" in text and "2 | b" not in text


def test_state_marks_types_and_sizes():
    text = render.text(samples.stale())
    assert "w                  constant  f32[10,3]      120 B  line 3     global     stale" in text
    assert text.index("stale\n") < text.index("bf16[3]")


def test_where_to_read_on():
    assert "`%jitcheck --explain JM101` tells more" in " ".join(render.text(samples.failing()).split())
    assert "`--fix` puts the corrected cell below" in " ".join(render.text(samples.failing()).split())
    assert 'jitmagic.explain("JM101")' in render.text(Report((), (finding(),)))
    assert "explain" not in render.text(samples.good())


def test_hundreds_of_findings_stay_small_and_are_counted():
    report = samples.huge()
    text, html = render.text(report), render.html(report)
    assert len(text) < 130_000 and len(html) < 300_000
    assert text.count("error[JM101] tracer-bool: a traced") == 20
    assert "280 more findings not shown here" in text and "80 × error[JM101]" in text
    assert "80 more functions" in text and "988 remarks more" in text and "492 more" in text
    assert "lines not shown" in html


def test_state_beyond_the_table_is_counted():
    state = tuple(State(f"w{i}", "constant", bytes=10) for i in range(40))
    text = render.text(Report((FunctionReport("f", "ok", state=state),)))
    assert "state: 40 variables, 400 B" in text and "… 10 variables more, 100 B" in text


def test_everything_the_html_says_the_text_says_too():
    for make in samples.TYPICAL.values():
        report = make()
        words = " ".join(render.text(report).split())
        for f in report.findings:
            assert f.code in words and " ".join(f.message.split()) in words
            for fix in f.fixes:
                assert fix.title in words and fix.evidence in words
        for function in report.functions:
            assert all(note in words for note in function.notes)


def test_shared_state_says_who_reads_and_who_writes():
    text = render.text(samples.shared())
    section = text[text.index("shared state:") :].split("\n\n")[0]
    assert section.startswith("shared state: 1 variable of 2 functions\n")
    assert [line.split() for line in section.split("\n")[1:]] == [
        ["variable", "train", "predict"],
        ["model.w", "reads", "and", "writes", "reads"],
    ]


def test_state_of_one_function_or_frozen_in_all_is_not_called_shared():
    frozen = State("w", "constant", shape=(2,), dtype="float32", lines=(1,))
    both = Report((FunctionReport("f", "ok", state=(frozen,)), FunctionReport("g", "ok", state=(frozen,))))
    assert "shared state" not in render.text(both)
    assert "shared state" not in render.text(samples.stale())


def test_the_picture_of_shared_state_is_drawn_and_said():
    source = render.html(samples.shared())
    [data] = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', source)
    drawing = ElementTree.fromstring(base64.b64decode(data))
    labels = [e.text for e in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert labels == ["train", "predict", "model.w", "reads", "writes"]
    arrows = [e.get("class") for e in drawing.iter("{http://www.w3.org/2000/svg}polygon")]
    assert arrows == ["rh", "wh", "rh"]
    assert 'alt="shared state: train reads and writes model.w; predict reads model.w"' in source


def test_hostile_names_stay_inside_the_picture():
    bad = "</text><script>alert(1)</script>"
    shared = State(bad, "dynamic", lines=(1,), written=True)
    functions = tuple(FunctionReport(bad + str(i), "ok", state=(shared,)) for i in range(30))
    source = render.html(Report(functions))
    [data] = re.findall(r'base64,([^"]*)"', source)
    tags = {e.tag.rpartition("}")[2] for e in ElementTree.fromstring(base64.b64decode(data)).iter()}
    assert tags == {"svg", "style", "rect", "path", "polygon", "text"}
