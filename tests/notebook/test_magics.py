"""The magics in a real IPython: what runs, what is replaced, what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

GOOD = "def f(x):\n    return 2 * x + 1\n"


def everything_registered(shell):
    """All that an extension can leave behind."""
    magics = shell.magics_manager
    return (
        sorted(magics.magics["line"]),
        sorted(magics.magics["cell"]),
        sorted(magics.registry),
        [type(c).__name__ for c in shell.configurables],
        {k: len(v) for k, v in shell.events.callbacks.items()},
        len(shell.Completer.custom_matchers),
        len(shell.ast_transformers),
        len(shell.input_transformer_manager.cleanup_transforms),
        sorted(shell.config),
    )


def test_unload_leaves_nothing_behind(bare):
    bare.run("%unload_ext jitmagic")  # IPython loads its own magics at their first use
    before = everything_registered(bare.shell)
    bare.ok("%load_ext jitmagic")
    assert bare.text == ""
    assert everything_registered(bare.shell) != before
    bare.ok("%unload_ext jitmagic")
    assert everything_registered(bare.shell) == before
    assert isinstance(bare.error("%%jit\n" + GOOD), Exception)


def test_reload_and_load_twice_register_once(bare):
    bare.ok("%load_ext jitmagic")
    once = everything_registered(bare.shell)
    bare.run("%load_ext jitmagic")
    bare.ok("%reload_ext jitmagic")
    assert everything_registered(bare.shell) == once


def test_compiled_functions_outlive_the_extension(notebook):
    notebook.ok("%%jit -q --no-time\n" + GOOD + "f(jnp.ones(2))")
    notebook.ok("%unload_ext jitmagic")
    assert notebook.ok("float(f(jnp.float32(2.0)))") == 5.0


def test_loading_imports_neither_jax_nor_widgets():
    code = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "s = InteractiveShell.instance()\ns.run_cell('%load_ext jitmagic').raise_error()\n"
        "print([m for m in ('jax', 'jaxlib', 'ipywidgets') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


class TestTheCellRunsAsItIs:
    def test_last_expression_is_shown(self, notebook):
        assert notebook.ok("%%jit -q --no-time\n" + GOOD + "3 + 4") == 7

    def test_line_numbers_count_the_magic_line(self, notebook):
        error = notebook.error("%%jit -q\n" + GOOD + "\n1 / 0")
        assert error.__traceback__ is not None
        frame = error.__traceback__
        while frame.tb_next is not None:
            frame = frame.tb_next
        assert frame.tb_lineno == 5

    def test_syntax_error_has_the_right_line(self, notebook):
        error = notebook.error("%%jit -q\ndef f(x):\n    return (x\n")
        assert isinstance(error, SyntaxError)
        assert error.lineno == 3
        assert "f" not in notebook.ns

    def test_await(self, notebook):
        notebook.ok("import asyncio")
        assert notebook.ok("%%jit -q --no-time\n" + GOOD + "await asyncio.sleep(0, 'slept')") == "slept"

    def test_input_transforms(self, notebook):
        notebook.ok("%%jit -q --no-time\n" + GOOD + "there = %pwd\n")
        assert isinstance(notebook.ns["there"], str)

    def test_an_error_stops_the_cell_and_shows_once(self, notebook):
        notebook.error("%%jit -q\n" + GOOD + "raise ValueError('only once')\nlater = 1")
        assert notebook.text.count("ValueError: only once") == 1
        assert "later" not in notebook.ns

    def test_functions_are_replaced_as_soon_as_they_are_defined(self, notebook):
        notebook.ok("%%jit -q --no-time\n" + GOOD + "first = type(f).__name__\ny = f(jnp.ones(2))")
        assert notebook.ns["first"] == "Watched"
        assert notebook.ns["y"].tolist() == [3.0, 3.0]

    def test_a_line_magic_takes_what_follows(self, notebook):
        notebook.ok("def g(x):\n    return x\n%jit -q --no-time\n" + GOOD + "f(jnp.ones(2))")
        assert type(notebook.ns["f"]).__name__ == "Watched"
        assert type(notebook.ns["g"]).__name__ == "function"

    def test_called_as_a_function(self, notebook):
        notebook.shell.run_cell_magic("jit", "-q --no-time", GOOD)
        assert type(notebook.ns["f"]).__name__ == "Watched"

    def test_functions_inside_blocks(self, notebook):
        notebook.ok("%%jit -q --no-time\nif True:\n    def f(x):\n        return x + 1\ny = f(1)")
        assert int(notebook.ns["y"]) == 2
        assert type(notebook.ns["f"]).__name__ == "Watched"

    def test_off_compiles_nothing(self, notebook):
        notebook.ok("%%jit --off\n" + GOOD)
        assert type(notebook.ns["f"]).__name__ == "function"


class TestWhichFunctions:
    def test_every_top_level_function_by_default(self, notebook):
        notebook.ok("%%jit -q\n" + GOOD + "g = lambda x: x\nclass A:\n    def m(self): pass\n")
        assert [type(notebook.ns[n]).__name__ for n in "fg"] == ["Watched", "Watched"]
        assert type(notebook.ns["A"].m).__name__ == "function"

    def test_only_the_named_one(self, notebook):
        notebook.ok("%%jit -q -f f\n" + GOOD + "def g(x):\n    return x\n")
        assert type(notebook.ns["g"]).__name__ == "function"

    def test_a_method(self, notebook):
        notebook.ok(
            "%%jit -q --no-time -f A.step --dyn self.n\nclass A:\n    def __init__(self):\n        self.n = 0\n"
            "    def step(self, x):\n        self.n = self.n + x\n        return self.n\na, b = A(), A()\n"
            "a.step(2); a.step(3); b.step(1)"
        )
        assert (int(notebook.ns["a"].n), int(notebook.ns["b"].n)) == (5, 1)
        assert notebook.report().functions[0].name == "A.step"

    def test_a_function_that_a_call_returns(self, notebook):
        notebook.ok(
            "%%jit -q --no-time -f g\ndef make():\n    def inner(x):\n        return x * 2\n    return inner\n"
            "g = make()\ng(3.0)"
        )
        assert notebook.report().functions[0].calls == 1

    def test_generators_are_left_alone(self, notebook):
        notebook.ok("%%jit -q\n" + GOOD + "def g():\n    yield 1\n")
        assert type(notebook.ns["g"]).__name__ == "function"

    def test_a_function_of_an_earlier_cell(self, notebook):
        notebook.ok(GOOD)
        notebook.ok("%jit -q --no-time -f f\nf(jnp.ones(2))")
        assert notebook.report().functions[0].traces == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%%jit --bogus", "--bogus"),
        ("%%jit --bogus -n 0", "unrecognized arguments: --bogus; -n 0: has to be 1 or more"),
        ("%%jit -f g", "no such function|has such a function"),
        ("%%jit --dyn nowhere", "nowhere"),
        ("%%jit --dyn f(x)", "f(x)"),
        ("%%jit --static-argnums one", "--static-argnums one"),
        ("%%jit -n 0", "-n 0"),
        ("%%jit -n many", "many"),
        ("%%jit --save report.pdf", "report.pdf"),
        ("%%jit -v 2x", "2x"),
        ("%%jit --device moon:1", "moon:1"),
        ("%%jit f(1", "f(1"),
        ("%%jit --explain JM1", "JM1"),
        (
            "%%jit --dynamic w --statik n",
            "--dynamic (did you mean --dyn?), --statik (did you mean --static?)",
        ),
        ("%%jit --dynamic w -n many", "unrecognized arguments: --dynamic (did you mean --dyn?)"),
        (
            "%%jit --dynamic rann -n 0 --static zz",
            "--dynamic (did you mean --dyn?); -n 0: has to be 1 or more; --dyn rann: neither this cell nor the notebook "
            "binds 'rann' (did you mean 'ran'?); no function of this cell has such an argument: --static zz",
        ),
        ("%%jitcheck --static zz -r 0 g(", "-r 0: has to be 1 or more; no function of this cell has such an"),
        (
            "%%jit -n 0 --static-argnums a --save no",
            "--save no: the suffix has to be .html, .json or .txt; -n 0: has to be 1 or more; --static-argnums a:",
        ),
        ("%%jit --vmap x=0 --grad q", "has such an argument: --vmap x=0 (did you mean 'x'?), --grad q"),
        ("%jitcheck --vmap objj --grad q print(1)", "has no such argument: --vmap objj, --grad q"),
        ("%%jit --explain tracer-bol", "no rule is called 'tracer-bol' (did you mean tracer-bool?)"),
        (
            "%%jit --dyn rann,zzz --static zz",
            "--dyn rann: neither this cell nor the notebook binds 'rann' (did you mean 'ran'?); --dyn zzz: neither this "
            "cell nor the notebook binds 'zzz'; no function of this cell has such an argument: --static zz",
        ),
    ],
)
def test_bad_input_is_one_line_and_runs_nothing(notebook, line, words):
    from IPython.core.error import UsageError

    error = notebook.error(f"{line}\nran = True\n{GOOD}")
    assert isinstance(error, UsageError)
    assert "ran" not in notebook.ns
    assert any(w in str(error) for w in words.split("|"))
    assert len(notebook.text.strip().splitlines()) == 1, notebook.text


ENCODER = "class Encoder:\n    def __init__(self):\n        self.w = 2\n    def encode(self, x): return self.w * x\n"


@pytest.mark.parametrize(
    ("object_", "instead"),
    [
        ("Encoder()", "name the method of its class: -f Encoder.encode"),
        (
            "type('Other', (Encoder,), {})()",
            "give its method a name, encode = encoder.encode, and take that: -f encode",
        ),
    ],
)
def test_a_method_of_an_object_is_named_by_its_class(notebook, object_, instead):
    notebook.ok(f"{ENCODER}encoder = {object_}")
    error = notebook.error("%%jit -f encoder.encode\nran = True\nencoder.encode(2.0)")
    assert str(error) == f"-f encoder.encode: encoder is an object; {instead}" and "ran" not in notebook.ns
    notebook.ok(f"%%jit --no-time -f encoder.encode\nencoder = {object_}\ny = encoder.encode(2.0)")
    assert notebook.ns["y"] == 4.0 and f"-f encoder.encode: encoder is an object; {instead}" in notebook.text
    notebook.ok(
        "class Held: encode = staticmethod(lambda x: x)\nheld = Held()\nheld.encode = lambda x: 2 * x"
    )
    notebook.ok("%%jit -q --no-time -f held.encode\ny = held.encode(2.0)")
    assert notebook.report().functions[0].calls == 1


@pytest.mark.parametrize("magic", ["%%jit", "%%jitcheck"])
@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("x = 1\n", ""),
        (ENCODER, "-f Encoder.encode"),
        ("import os\n# nothing else\n", ""),
        ("# a comment\n", ""),
    ],
)
def test_a_cell_without_a_function_runs_as_it_is(notebook, magic, body, hint):
    notebook.ok(f"{magic}\n{body}")
    (line,) = notebook.text.strip().splitlines()
    assert "the cell defines no function, and runs as it is" in line and line.endswith(hint)
    notebook.ok(f"{magic}\nran = True\n{body}after = 3")
    assert notebook.ns["ran"] and notebook.ns["after"] == 3
    notebook.ok(f"{magic} -q\n{body}")
    assert notebook.text == ""
    assert isinstance(notebook.error(f"{magic}\n{body}raise KeyError"), KeyError)


def test_calls_on_the_magic_line(notebook):
    notebook.ok("%%jit -q --no-time f(jnp.ones(2)); f(jnp.ones(3))\n" + GOOD)
    report = notebook.report()
    assert (report.functions[0].calls, report.functions[0].traces) == (2, 2)


def test_a_failing_call_on_the_magic_line_fails_the_cell(notebook):
    error = notebook.error("%%jit -q f(nowhere)\n" + GOOD)
    assert isinstance(error, NameError)
    assert notebook.text.count("NameError") >= 1


def test_the_report_is_returned_stored_and_saved(notebook, tmp_path):
    target = tmp_path / "out.html"
    report = notebook.ok(f"%%jit -o -v kept --no-time --save {target} f(jnp.ones(2))\n{GOOD}")
    assert report.functions[0].name == "f"
    assert notebook.ns["kept"] == report
    assert "f" in target.read_text()


def test_quiet_shows_nothing(notebook):
    notebook.ok("%%jit -q f(jnp.ones(2))\n" + GOOD)
    assert notebook.text == "" and not notebook.outputs


def test_the_display_carries_text_html_and_data(notebook):
    notebook.ok("%%jit --no-time f(jnp.ones(2))\n" + GOOD)
    [output] = notebook.outputs
    assert {"text/plain", "text/html", "application/vnd.jitmagic.v1+json"} <= set(output.data)
    assert output.data["application/vnd.jitmagic.v1+json"]["functions"][0]["name"] == "f"


def test_defaults_come_from_config(notebook):
    notebook.ok("%config JitMagics.no_time = True\n%config JitMagics.quiet = True")
    notebook.ok("%%jit f(jnp.ones(2))\n" + GOOD)
    assert notebook.text == ""
    assert notebook.report().functions[0].timing.jit is None


def test_help_lists_every_option(notebook):
    text = notebook.shell.magics_manager.magics["cell"]["jit"].__doc__
    for option in (
        "-f",
        "--dyn",
        "--static",
        "--donate",
        "--device",
        "--no-time",
        "--trace-only",
        "--save",
        "--fix",
    ):
        assert option in text


def test_explain_shows_the_page(notebook):
    notebook.ok("%jitcheck --explain JM101")
    [output] = notebook.outputs
    assert "tracer-bool" in output.data["text/markdown"]


class TestJitcheck:
    def test_a_call_of_any_function(self, notebook):
        notebook.ok("def g(x, n):\n    return x * 2 if n > 1 else x\n")
        report = notebook.ok("%jitcheck -o g(jnp.ones(2), 3)")
        assert [f.kind for f in report.findings] == ["tracer-bool"]
        assert type(notebook.ns["g"]).__name__ == "function"

    def test_nothing_is_compiled(self, notebook):
        from jitmagic.tracing.stages import counted

        notebook.ok("def g(x):\n    return x * 2\nx = jnp.ones(2)")
        with counted() as counts:
            notebook.ok("%jitcheck -o g(x)")
        assert counts.compiles("g") == 0

    def test_not_a_call(self, notebook):
        assert "no call" in str(notebook.error("%jitcheck 1 + 1"))
        assert "no call" in str(notebook.error("%jitcheck f("))

    def test_the_cell_form_returns_the_plain_result(self, notebook):
        notebook.ok("%%jitcheck -q\ndef g(x):\n    return x if x > 0 else -x\n\nvalue = g(-2.0)")
        assert notebook.ns["value"] == 2.0
        assert notebook.kinds("error") == ["tracer-bool"]

    def test_post_mortem(self, notebook):
        notebook.error("@jax.jit\ndef g(x):\n    if x > 0:\n        return x\n\ng(1.0)")
        report = notebook.ok("%jitcheck -o")
        assert [(f.kind, f.span.source) for f in report.findings] == [("tracer-bool", "if x > 0:")]

    def test_on_and_off(self, notebook):
        notebook.ok("%jitcheck on")
        notebook.error("@jax.jit\ndef g(x):\n    if x > 0:\n        return x\n\ng(1.0)")
        assert any("JM101" in o.data["text/plain"] for o in notebook.outputs)
        notebook.ok("%jitcheck off")
        notebook.error("g(2.0)")
        assert not notebook.outputs


FACTORY = """
def make(rate):
    def step(x):
        return x * rate
    return step
"""


_BRANCH = "    if x > 0:\n        return x\n    return -x\n"


@pytest.mark.parametrize(
    ("cell", "call"),
    [
        (f"def f(x):\n{_BRANCH}", "f(2.0)"),
        (f"import functools\n\n@jax.jit\ndef f(x):\n{_BRANCH}", "f(jnp.float32(2.0))"),
        (
            f"%pwd\nreg = {{}}\ndef add(f):\n    reg[f.__name__] = f\n    return f\n@add\ndef f(x):\n{_BRANCH}",
            "f(2.0)",
        ),
        (
            "class M:\n    def go(self, x):\n    " + _BRANCH.replace("\n    ", "\n        ") + "m = M()",
            "m.go(2.0)",
        ),
        (f"%%time\ndef f(x):\n{_BRANCH}", "f(2.0)"),
        ("f = lambda x: x if x > 0 else -x", "f(2.0)"),
        (f"%%jitcheck -q\ndef f(x):\n{_BRANCH}", "f(2.0)"),
    ],
)
def test_a_call_of_any_function_of_the_notebook_has_its_fixes(notebook, monkeypatch, cell, call):
    """Of a cell without a magic too; they are tested on the call, and what the cell has made stays what it is."""
    put = []
    monkeypatch.setattr(notebook.shell, "set_next_input", lambda text, replace=False: put.append(text))
    notebook.ok(cell)
    made = dict(notebook.ns)
    notebook.ok("x = 3")
    notebook.ok(f"%jitcheck --fix {call}")
    known = {k: v for k, v in notebook.ns.items() if k in made and not k.startswith("_")}
    assert all(v is made[k] for k, v in known.items() if k not in ("In", "Out", "exit", "quit"))
    assert "reg" not in made or made["reg"] == {"f": made["f"]}
    if "%%time" in cell:  # IPython compiles it without a name for its text
        assert "can't be compiled" in notebook.outputs[0].data["text/plain"] and not put
        return
    assert "of cell [" in notebook.outputs[0].data["text/plain"]
    (finding,) = [f for f in notebook.report().findings if f.kind == "tracer-bool"]
    assert finding.fixes[0].verified and finding.fixes[0].tested == "calls"
    (text,) = put
    assert "jnp.where(" in text and text.startswith(
        cell.splitlines()[0].replace("lambda x: x if", "lambda x: jnp")[:10]
    )


@pytest.mark.parametrize(
    "lines",
    [
        "%jitcheck --donate x act(x, 3)",
        "%jitcheck --donate-argnums 0 act(x, 3)",
        "report = jitmagic.check.options(donate_argnames='x')(act, x, 3)",
        "%%jitcheck -f act --donate x\nact(x, 3)",
        "%%jitcheck --donate x\ndef act(x, n):\n    if n > 2:\n        x = x * 2\n    return x\nact(x, 3)",
        "%%jitcheck --donate x\ndef act(x, n):\n    print(x)\n    return x * n\nact(x, 3)",
        "%%jitcheck\nimport functools\n@functools.partial(jax.jit, donate_argnums=0)\ndef act(x, n):\n    if n > 2:\n"
        "        x = x * 2\n    return x\nact(x, 3)",
        "%%jit\ndef act(x, n):\n    for _ in range(3):\n        x = jax.jit(lambda x: x * n, donate_argnums=0)(x + 0)\n"
        "        if n > 2:\n            x = x + 1\n    return x\nact(x, 3)",
        "%%jitcheck\ng = jax.jit(lambda x: x * 2 if x.sum() > 0 else x, donate_argnums=0)\ng(x)",
    ],
)
def test_no_test_of_a_correction_uses_up_an_array_of_the_users(notebook, lines):
    notebook.ok(
        "import jitmagic\nx = jnp.ones(3)\ndef act(x, n):\n    if n > 2:\n        x = x * 2\n    return x"
    )
    notebook.run(lines)
    assert not notebook.ns["x"].is_deleted() and notebook.ok("float(x.sum())") == 3.0


@pytest.mark.parametrize(
    ("given", "read"),
    [("d", "d['w']"), ("o.w", "o.w"), ("l", "l[0]"), ("y", "x"), ("jax.tree.map(lambda v: v, d)", "d['w']")],
)
@pytest.mark.parametrize("own", [False, True])
def test_nor_one_in_a_container_an_object_or_under_another_name(notebook, given, read, own):
    notebook.ok(
        "class O: pass\nx = y = jnp.ones(3)\nd, l, o = {'w': jnp.ones(3)}, [jnp.ones(3)], O()\no.w = jnp.ones(3)"
    )
    body = "def step(p):\n    if jax.tree.leaves(p)[0].sum() > 0:\n        p = jax.tree.map(lambda v: v * 2, p)\n    return p"
    head = "%%jitcheck\n@functools.partial(jax.jit, donate_argnums=0)\n" if own else "%%jitcheck --donate p\n"
    notebook.ok("import functools")
    notebook.run(f"{head}{body}\nout = step({given})")
    assert notebook.ok(f"float(({read}).sum())") == 3.0 and notebook.ok("float(x.sum() + y.sum())") == 6.0
    assert notebook.ok("x is y")


class TestTakenAgain:
    """A function that an earlier cell has taken is taken as the newest magic line asks."""

    SOURCE = "x = w = jnp.ones(3)\ndef act(x, n=1):\n    if n > 2:\n        x = x * 2\n    return x * w"

    def test_a_tested_fix_holds_where_it_is_applied(self, notebook):
        notebook.ok(self.SOURCE)
        notebook.error("%%jit -f act --no-time\nact(x, 3)")
        (fix, *_) = next(f for f in notebook.report().findings if f.kind == "tracer-bool").fixes
        assert fix.verified
        assert notebook.ok("%%jit --static n -f act --no-time\nact(x, 3)").shape == (3,)
        assert [f.verdict for f in notebook.report().functions] == ["ok"]

    def test_other_variables_are_dynamic(self, notebook):
        notebook.ok(self.SOURCE)
        notebook.ok("%%jit -f act --no-time --static n\nact(x)")
        assert float(notebook.ok("%%jit -f act --no-time --static n --dyn w\nw = w * 5\nact(x).sum()")) == 15
        assert float(notebook.ok("w = w * 5\nact(x).sum()")) == 75 and not notebook.kinds("warning", "error")

    def test_it_can_be_checked_alone_left_out_and_run_twice(self, notebook):
        notebook.ok(self.SOURCE)
        plain = notebook.ns["act"]
        for _ in range(2):
            notebook.ok("%%jit -f act --no-time --static n\nact(x)")
            assert [f.name for f in notebook.report().functions] == ["act"] and notebook.ns[
                "act"
            ] is not plain
        notebook.ok("%%jitcheck -f act\nact(x)")
        assert notebook.ns["act"] is plain
        notebook.ok("%%jit -f act --no-time --static n\nact(x)")
        notebook.ok("%%jit -f act --off\nact(x)")
        assert notebook.ns["act"] is plain

    def test_a_method_too(self, notebook):
        notebook.ok(
            "class M:\n    def __init__(self): self.w = 2.0\n    def step(self, x): return self.w * x\nm = M()"
        )
        notebook.error("%%jit -f M.step --no-time\nm.step(1.0)")
        assert notebook.ok("%%jit -f M.step --no-time --dyn self.w\nfloat(m.step(1.0))") == 2.0
        assert notebook.ok("m.w = 3.0\nfloat(m.step(1.0))") == 3.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("f(x)", "f(x) can't be called: missing a required argument: 'n'"),
        ("f(x, 1, z=3)", "f(x, 1, z=3) can't be called: got an unexpected keyword argument 'z'"),
        ("--static tua f(x, 1)", "f has no such argument: --static tua"),
        ("--donate xx f(x, 1)", "f has no such argument: --donate xx (did you mean 'x'?)"),
        ("--dyn zz f(x, 1)", "--dyn zz: neither the function nor the notebook has 'zz'"),
        ("--backend tpux f(x, 1)", "--backend tpux: no device 'tpux'"),
        ("waits(x)", "waits is async"),
    ],
)
def test_what_a_line_that_checks_a_call_names_is_looked_at(notebook, call, words):
    notebook.ok("x = w = jnp.ones(3)\ndef f(x, n):\n    return x * n * w\nasync def waits(x):\n    return x")
    assert words in str(notebook.error(f"%jitcheck {call}"))
    assert "itself" not in notebook.text
    notebook.ok("%jitcheck --dyn w f(x, 1)\n%jitcheck --static n f(x, 1)")


@pytest.mark.parametrize("call", ["f(x)", "j(x)", "m.step(x)", "m(x)", "p()"])
def test_a_call_that_does_not_fit_is_told_whatever_is_called(notebook, call):
    notebook.ok(
        "import functools\nx = w = jnp.ones(3)\nclass M:\n    w = 2.0\n    def step(self, x, y): return self.w * x * y\n"
        "    def __call__(self, x, y): return x * y\nm, j = M(), jax.jit(lambda x, y: x * y)\np = functools.partial(m.step, x)"
    )
    notebook.ok("%%jit -q --no-time\ndef f(x, y): return x * y\nf(x, x)")
    assert "missing a required argument: 'y'" in str(notebook.error(f"%jitcheck {call}"))
    notebook.ok("%jitcheck -q --dyn self.w m.step(x, x)\n%jitcheck -q --dyn m.w m.step(x, x)")


def test_what_has_another_signature_than_it_takes_is_checked(notebook):
    """`functools.wraps` gives a wrapper the signature of what it wraps."""
    notebook.ok(
        "import functools\ndef with_two(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(x, 2)\n    return g\n"
        "@with_two\ndef f(x, n):\n    return x * n"
    )
    assert [f.verdict for f in notebook.ok("%jitcheck -o f(1.0)").functions] == ["ok"]


def test_a_check_in_python_refuses_what_the_function_does_not_take(notebook):
    notebook.ok("import jitmagic\ndef f(x, n):\n    return x * n")
    assert "missing a required argument: 'n'" in str(notebook.error("jitmagic.check(f, 1.0)"))


@pytest.mark.parametrize("magic", ["%%jit --no-time", "%%jitcheck"])
def test_a_call_on_the_magic_line_takes_a_function_of_an_earlier_cell(notebook, magic):
    """Where the cell itself defines none."""
    notebook.ok(
        "x = jnp.ones(3)\ndef act(x, n):\n    if n > 2:\n        x = x * 2\n    return x\ndef ok(x): return x * 2"
    )
    notebook.run(f"{magic} act(x, 3)\nz = 1")
    (finding,) = [f for f in notebook.report().findings if f.kind == "tracer-bool"]
    assert finding.function == "act" and "static" in finding.message + finding.help
    notebook.ok(f"{magic} y = ok(x)\nz = 2")
    assert [f.name for f in notebook.report().functions] == ["ok"] and float(notebook.ns["y"].sum()) == 6
    notebook.ok(f"{magic} ok(x); other(x)\ndef other(x): return x")
    assert [f.name for f in notebook.report().functions if f.calls] == ["other"] or magic == "%%jit --no-time"


@pytest.mark.parametrize("writes", ["", "        self.n += 1\n        self.w = x\n"])
def test_classes_of_tests_are_gone_after_a_check_of_a_call(notebook, writes):
    notebook.ok("class Base: pass")
    notebook.ok(
        f"class M(Base):\n    n = 0\n    def step(self, x):\n{writes}        if x.sum() > 1: return x * 2\n        return x\n"
        "m = M()"
    )
    notebook.ok("%jitcheck -q m.step(jnp.arange(3.0))")
    assert notebook.ok("Base.__subclasses__() == [M]") and not notebook.ok("hasattr(m, 'w')")


def test_the_newest_text_of_a_function_is_what_a_call_is_corrected_in(notebook):
    for factor in (1, 2):
        notebook.ok(f"def f(x):\n    if x > 0:\n        return x * {factor}\n    return -x")
    notebook.ok("%jitcheck f(2.0)")
    (finding,) = [f for f in notebook.report().findings if f.kind == "tracer-bool"]
    assert "jnp.where(x > 0, x * 2, -x)" in finding.fixes[0].cell


def test_a_call_of_a_function_of_a_file_is_told_without_a_fix(notebook, tmp_path, monkeypatch):
    """Though a cell holds the same text: it has written the file."""
    monkeypatch.syspath_prepend(str(tmp_path))
    notebook.ok(f"%%writefile {tmp_path}/written_here.py\ndef f(x):\n{_BRANCH}")
    notebook.ok(f"def f(x):\n{_BRANCH}")
    notebook.ok("from written_here import f\n%jitcheck f(2.0)")
    (finding,) = [f for f in notebook.report().findings if f.kind == "tracer-bool"]
    assert not any(fix.cell for fix in finding.fixes)


def test_a_function_that_gives_functions_stays_and_what_the_cell_binds_of_it_is_compiled(notebook):
    notebook.ok(f"%%jit -q --no-time\n{FACTORY}\nhalf = make(0.5)\ny = half(jnp.ones(2))")
    assert type(notebook.ns["make"]).__name__ == "function"
    assert [f.name for f in notebook.report().functions if f.calls] == ["half"]


def test_a_cell_that_only_makes_functions_says_what_to_name(notebook):
    notebook.ok(f"%%jit --no-time\n{FACTORY}")
    assert notebook.text.splitlines() == [
        "nothing is compiled: make gives functions; bind one of them, and name it: %%jit -f NAME"
    ]
    notebook.ok(f"%%jitcheck\n{FACTORY}\ndef g(x):\n    return x\ng(jnp.ones(2))")
    assert "nothing is" not in notebook.text


@pytest.mark.parametrize(
    ("source", "is_one"),
    [
        ("def make():\n    return lambda x: x", True),
        ("def make():\n    def a(x): return x\n    def b(x): return x\n    return a, b", True),
        ("def make(x):\n    def a(y): return y\n    if x:\n        return a\n    return x", False),
        ("def make(x):\n    def a(y): return y\n    return a(x)", False),
        ("def make(x):\n    def a(y): return y\n    a(x)", False),
        (
            "def make(x):\n    return x\ndef g(x):\n    def make(): return lambda y: y\n    return make()(x)",
            False,
        ),
    ],
)
def test_what_gives_nothing_but_functions(source, is_one):
    import ast

    from jitmagic.source import cell

    assert cell.factories(ast.parse(source)) == ({"make"} if is_one else set())


def test_a_cell_that_only_defines_says_what_comes(notebook):
    notebook.ok("%%jit\ndef f(x):\n    return x\n\ndef g(x):\n    return f(x)")
    assert notebook.text == "f, g: compiled at the first call, and the report comes with it\n"
    notebook.ok("%%jitcheck\ndef f(x):\n    return x")
    assert "f: checked at the first call" in notebook.text
    notebook.ok("%%jit -q\ndef f(x):\n    return x")
    assert notebook.text == ""
    notebook.ok("%%jit --no-time\ndef f(x):\n    return x\n_ = f(1.0)")
    assert "at the first call" not in notebook.text


OWN_JIT = {
    "a decorated loop": (
        "@jax.jit\ndef own(x, n):\n    for i in range(n):\n        x = x * 2\n    return x",
        "own(jnp.ones(2), 3)", "own", '@functools.partial(jax.jit, static_argnames="n")',
    ),
    "a helper": (
        "def helper(x):\n    if x > 1:\n        return x\n    return -x\nown = jax.jit(lambda x: helper(x) * 2)",
        "own(2.0)", "helper", "return jnp.where(x > 1, x, -x)",
    ),
    "static already": (
        "own = jax.jit(lambda x, n, flag: x + 1 if flag else x * n, static_argnames='n')",
        "own(1.0, 2, True)", "<lambda>", "jnp.where(flag, x + 1, x * n)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN_JIT)
def test_the_report_after_an_error_of_ones_own_jit_has_its_fix(notebook, name):
    definition, call, failed, written = OWN_JIT[name]
    notebook.ok(definition)
    notebook.error(call)
    [finding] = notebook.report().findings
    assert finding.function == failed and any(written in (fix.cell or "") for fix in finding.fixes)
    assert all(
        fix.verified and fix.tested == "calls" and fix.applicability != "safe" for fix in finding.fixes[:1]
    )
    notebook.ok(finding.fixes[0].cell)
    notebook.ok(call)


def test_an_error_inside_of_another_transformation_is_told_without_its_fix(notebook):
    notebook.ok("@jax.jit\ndef own(x):\n    return x if x > 1 else -x")
    notebook.error("jax.grad(own)(2.0)")
    [finding] = notebook.report().findings
    assert finding.kind == "tracer-bool"


@pytest.mark.parametrize(("magic", "told"), [("%%jit --no-time", True), ("%%jit --no-time -q", False)])
def test_a_long_compilation_is_told_before_it_begins(notebook, monkeypatch, magic, told):
    from jitmagic.notebook import display
    from jitmagic.tracing import stages

    said = []
    compiles = stages._interruptibly
    monkeypatch.setattr(display, "LONG", 100)
    monkeypatch.setattr(
        stages, "_interruptibly", lambda *args: (said.append(sys.stdout.getvalue()), compiles(*args))[1]
    )
    notebook.ok(
        f"{magic}\ndef f(x):\n    for i in range(60):\n        x = jnp.sin(x) + i\n    return x\nf(1.0)"
    )
    line = "! f  is being compiled: line 3 is written out iteration by iteration\n"
    assert said[0] == (line if told else "")


@pytest.mark.parametrize("stage", ["compiled", "traced"])
def test_a_first_call_that_is_interrupted_says_so(notebook, monkeypatch, stage):
    from jitmagic.notebook import display
    from jitmagic.tracing import stages

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(display, "LONG", 100)
    if stage == "compiled":
        monkeypatch.setattr(stages, "_interruptibly", interrupted)
    body = "" if stage == "compiled" else "    raise KeyboardInterrupt\n"
    notebook.error(
        f"%%jit\ndef f(x):\n    for i in range(60):\n        x = jnp.sin(x) + i\n{body}    return x\nf(1.0)"
    )
    report = notebook.report()
    assert f"f  was interrupted while it was {stage}" in str(report)
    assert "trace-time-print" not in [f.kind for f in report.findings]
