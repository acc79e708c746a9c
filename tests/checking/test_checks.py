"""What the report says about real cells: constants, dynamic variables, failures, counts."""

from __future__ import annotations

import gc
import weakref

import pytest

from jitmagic.checking import subject
from jitmagic.tracing.stages import counted


def only(report, name=None):
    [function] = [f for f in report.functions if name in (None, f.name)]
    return function


@pytest.mark.parametrize("head", ["%%jit -q --no-time\n", "%%jitcheck -q\n@jax.jit\n"])
def test_an_older_variant_goes_on_with_the_old_value_and_says_so(notebook, head):
    notebook.ok("s = 2.0")
    notebook.ok(f"{head}def f(x):\n    return x.sum() * s\nf(jnp.ones(3))")
    notebook.ok("s = 5.0\ny = float(f(jnp.ones(4)))")
    assert notebook.ns["y"] == 20.0 and notebook.kinds("error", "warning") == []
    assert float(notebook.ok("f(jnp.ones(3))")) == 6.0
    told = ("error", "warning")  # the cell is run again to prove it, where there is time
    (found,) = [f for f in notebook.report().findings if f.severity in told]
    assert (found.kind, found.culprits[0]) == (
        "stale-constant",
        "s",
    ) and "was 2.0 and is 5.0" in found.message


def test_a_variant_whose_value_is_back_is_not_told(notebook):
    notebook.ok("s = 2.0")
    notebook.ok("%%jit -q --no-time\ndef f(x):\n    return x.sum() * s\nf(jnp.ones(3))")
    notebook.ok("s = 5.0\nf(jnp.ones(4))")
    notebook.ok("s = 2.0\nf(jnp.ones(3))")
    assert notebook.kinds("error", "warning") == []
    notebook.ok("f(jnp.ones(4))")
    assert notebook.kinds("error", "warning") == ["stale-constant"]


NORM = """@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Norm:
    mean: float
    @jax.jit
    def update(self, x):
        self.mean = self.mean + x.mean()
        return x - self.mean
norm = Norm(jnp.zeros(()))
norm.update(jnp.ones(3))
"""


@pytest.mark.parametrize("magic", ["%%jit -q --no-time\n", "%%jitcheck -q\n"])
def test_what_a_method_stores_in_an_object_that_jax_copies_is_told(notebook, magic):
    notebook.ok("import dataclasses")
    notebook.ok(magic + NORM)
    (found,) = [f for f in notebook.report().findings if f.severity != "note"]
    assert (found.kind, found.culprits[0], found.span.line) == ("state-write", "self.mean", 8)
    assert "beside the result" in found.help


LOST = [
    (
        "def f(p, g):\n    p['w'] = p['w'] - g\n    return p['w'].sum()\nf({'w': jnp.ones(3)}, 0.1)",
        ["state-write"],
    ),
    ("def f(p, g):\n    p['w'] = p['w'] - g\n    return p\np = f({'w': jnp.ones(3)}, 0.1)", []),
    ("def f(p, g):\n    p['w'] = p['w'] - g\n    return p, g\np, _ = f({'w': jnp.ones(3)}, 0.1)", []),
    ("def f(p, g):\n    p['w'] = p['w'] - g\np = f({'w': jnp.ones(3)}, 0.1)", ["in-place-update"]),
]


@pytest.mark.parametrize(("cell", "kinds"), LOST)
def test_what_is_stored_in_an_argument_and_not_returned_is_told(notebook, cell, kinds):
    notebook.ok(f"%%jit -q --no-time\n{cell}")
    assert notebook.kinds("error", "warning") == kinds


def test_a_stale_number_that_a_helper_of_another_cell_reads_is_shown_in_the_cell(notebook):
    notebook.ok(
        "sigma = 1.0\ndef gauss(t):\n    return jnp.exp(-t / sigma)\ndef weights(t):\n    return gauss(t)"
    )
    notebook.ok("%%jit -q --no-time blur(2.0)\ndef blur(x):\n    w = weights(x)\n    return w * x")
    notebook.ok("sigma = 2.0\nblur(2.0)")
    [finding] = [f for f in notebook.report().findings if f.kind == "stale-constant"]
    assert (finding.span.source, finding.span.cell, finding.span.line) == ("w = weights(x)", None, 3)


@pytest.mark.parametrize(
    ("helper", "line", "kind"),
    [
        ("class T:\n    def now(self): return time.time()\nt = T()", "y = t.now()", "frozen-side-effect"),
        (
            "class N:\n    rng = np.random.default_rng(0)\n    def __call__(self): return self.rng.normal()\nt = N()",
            "y = t()",
            "hidden-rng",
        ),
    ],
)
def test_what_an_object_of_another_cell_asks_is_shown_where_the_cell_calls_it(notebook, helper, line, kind):
    notebook.ok(f"import time\n{helper}")
    notebook.ok(f"%%jit -q --no-time later(2.0)\ndef later(x):\n    {line}\n    return x * y")
    [finding] = [f for f in notebook.report().findings if f.kind == kind]
    assert (finding.span.source, finding.span.cell) == (line, None)
    assert any(f.verified and f.calls for f in finding.fixes)


def test_state_that_a_library_writes_is_shown_where_the_cell_uses_its_object(notebook):
    pytest.importorskip("flax")
    notebook.ok("from flax import nnx\ndrop = nnx.Dropout(0.5, rngs=nnx.Rngs(0))")
    notebook.ok("%%jit -q --no-time noisy(jnp.ones(3))\ndef noisy(x):\n    y = drop(x)\n    return y + 1")
    [finding] = [f for f in notebook.report().findings if f.kind == "state-write"]
    assert finding.span.source == "y = drop(x)"


class TestTheGoodCell:
    def test_one_trace_one_compilation_with_timing_and_cost(self, notebook):
        notebook.ok("x = jnp.ones(8)")
        with counted() as counts:
            notebook.ok("%%jit -q -n 3 -r 2 good(x)\ndef good(x):\n    return jnp.sin(x) * 2")
            report = notebook.report()
        assert (counts.traces("good"), counts.compiles("good")) == (1, 1)
        function = only(report)
        assert (function.verdict, function.calls, function.traces, function.compiles) == ("ok", 1, 1, 1)
        assert function.timing.jit.loops == 3 and function.timing.eager.repeats == 2
        assert function.timing.speedup > 0
        assert all(
            s >= 0 for s in (function.stages.trace_s, function.stages.lower_s, function.stages.compile_s)
        )
        assert not report.findings

    def test_later_calls_compile_nothing(self, notebook):
        notebook.ok("%%jit -q --no-time good(x)\nx = jnp.ones(8)\ndef good(x):\n    return x + 1")
        with counted() as counts:
            notebook.ok("for _ in range(5): good(x)")
        assert not [e for e in counts.events if "good" in e[1]]
        assert only(notebook.report()).calls == 6

    def test_every_constant_is_named_by_its_path(self, notebook):
        notebook.ok(
            """
import functools
w = jnp.ones((4, 4)); table = np.arange(4, dtype='f4'); params = {'layer1': [jnp.ones(4) * 2]}; scale = 2.0
class L:
    def __init__(self): self.w = jnp.ones((4, 4)) * 7; self.alpha = 0.5
    def __call__(self, x): return self.alpha * (x @ self.w)
l = L()
def helper(x): return x @ w * scale
def closing():
    c = jnp.arange(4.0) + 3
    return lambda x: x + c
clos = closing()
part = functools.partial(lambda p, x: x + p, jnp.ones(4) * 5)
@jax.jit
def inner(x): return x + jnp.sum(w) + params['layer1'][0]
"""
        )
        notebook.ok(
            "%%jit -q --no-time top(jnp.ones(4))\n"
            "def top(x, k=jnp.ones(4) * 9):\n"
            "    y = helper(x) + l(x) + params['layer1'][0] + table\n"
            "    return clos(y) + part(y) + inner(y) + k\n"
        )
        state = {s.path: s for s in only(notebook.report(), "top").state}
        for path in ("w", "l.w", "params['layer1'][0]", "table", "c"):
            assert state[path].role == "constant", (path, sorted(state))
        assert (state["w"].shape, state["w"].dtype, state["w"].bytes) == ((4, 4), "float32", 64)
        assert state["l.w"].origin == "attribute" and state["w"].origin == "helper"
        assert state["table"].lines == (3,)
        assert any(path.startswith("part") for path in state)
        assert any(s.origin == "default" for s in state.values())
        assert {s.path for s in state.values() if s.type == "scalar"} >= {"scale", "l.alpha"}

    def test_state_is_put_back_after_timing(self, notebook):
        notebook.ok(
            "%%jit -q -n 2 -r 2 count(1.0)\nn = 0\nlog = []\nrng = np.random.default_rng(1)\n"
            "def count(x):\n    global n\n    n += 1\n    log.append(n)\n    return x * 2"
        )
        # as under jax.jit: the function's own code ran once, while it was traced
        assert notebook.ns["n"] == 1 and notebook.ns["log"] == [1]

    def test_what_the_extra_runs_print_is_held_back(self, notebook):
        notebook.ok("%%jit -q -n 2 -r 2\ndef loud(x):\n    print('hello')\n    return x * 2\nloud(1.0)")
        assert notebook.text.count("hello") == 1

    def test_the_result_is_the_plain_result(self, notebook):
        value = notebook.ok(
            "%%jit -q --no-time\ndef f(x):\n    return {'a': x, 'b': (x + 1, None)}\nf(jnp.ones(2))"
        )
        assert value["b"][0].tolist() == [2.0, 2.0] and value["b"][1] is None

    def test_a_result_that_is_an_argument_written_in_place(self, notebook):
        notebook.ok("a = np.zeros(3, np.float32)\ndef fill(v):\n    v[:] = 7\n    return v")
        from jitmagic.state.roots import reach
        from jitmagic.trial import quiet

        fill, a = notebook.ns["fill"], notebook.ns["a"]
        result = quiet.rehearse(fill, (a,), {}, reach(fill, args=(a,), kwargs={}))
        assert result.tolist() == [7.0] * 3 and a.tolist() == [0.0] * 3


class TestDynamicVariables:
    @pytest.fixture
    def linear(self, notebook):
        notebook.ok("w = jnp.ones((2, 3)); b = jnp.zeros(3); x = jnp.ones(2)")
        return notebook

    def call(self, notebook):
        return notebook.ok("linear(x).tolist()")

    CELL = "def linear(x):\n    return x @ w + b\n"

    def test_nothing_declared_is_frozen_and_said(self, linear):
        linear.ok("%%jit -q --no-time\n" + self.CELL)
        assert self.call(linear) == [2.0] * 3
        linear.ok("b = jnp.ones(3)")
        assert self.call(linear) == [2.0] * 3
        [finding] = [f for f in linear.report().findings if f.severity == "error"]
        assert (finding.kind, finding.culprits[0], finding.span.line) == ("stale-constant", "b", 3)
        assert finding.fixes[0].dyn == ("b",) and finding.fixes[0].verified

    def test_declared_follows_without_a_new_trace(self, linear):
        linear.ok("%%jit -q --no-time --dyn b\n" + self.CELL)
        assert self.call(linear) == [2.0] * 3
        with counted() as counts:
            linear.ok("b = jnp.ones(3)")
            assert self.call(linear) == [3.0] * 3
        assert counts.traces("linear") == 0
        roles = {s.path: (s.role, s.declared) for s in only(linear.report()).state}
        assert roles == {"b": ("dynamic", True), "w": ("constant", False)}
        assert not [f for f in linear.report().findings if f.severity != "note"]

    def test_auto_takes_every_array(self, linear):
        linear.ok("%%jit -q --no-time --dyn auto\n" + self.CELL)
        self.call(linear)
        linear.ok("w = w * 2; b = b + 1")
        assert self.call(linear) == [5.0] * 3

    @pytest.mark.parametrize(
        ("setup", "body", "path", "after"),
        [
            ("n = 0", "    global n\n    n = n + 1\n    return x * n", "n", "int(n)"),
            ("d = {'n': 0}", "    d['n'] += 1\n    return x * d['n']", "d['n']", "int(d['n'])"),
            ("d = {'n': 0}", "    d['n'] += 1\n    return x * d['n']", "d", "int(d['n'])"),
            ("v = [0, 5]", "    v[0] = v[0] + 1\n    return x * v[0]", "v", "int(v[0])"),
            (
                "class C: pass\nc = C(); c.sub = C(); c.sub.n = 0",
                "    c.sub.n += 1\n    return x * c.sub.n", "c", "int(c.sub.n)",
            ),
            (
                "def make():\n    n = 0\n    def f(x):\n        nonlocal n\n        n = n + 1\n        return x * n\n"
                "    return f, (lambda: n)\n", None, "n", "int(get())",
            ),
        ],
    )  # fmt: skip
    def test_writes_are_there_after_the_call(self, notebook, setup, body, path, after):
        notebook.ok(setup)
        cell = f"def f(x):\n{body}\n" if body else "f, get = make()\n"
        notebook.ok(f'%%jit -q --no-time -f f --dyn "{path}"\n{cell}')
        with counted() as counts:
            values = notebook.ok("[float(f(2.0)) for _ in range(3)]")
        assert values == [2.0, 4.0, 6.0]
        assert notebook.ok(after) == 3
        assert counts.traces("f") == 1
        assert not [k for k in notebook.kinds("error", "warning")]

    def test_an_object_that_the_cell_makes(self, notebook):
        notebook.ok(
            "%%jit -q --no-time -f f --dyn l.w\nclass L: pass\ndef f(x):\n    return x * l.w\n\nl = L(); l.w = 3.0\na = f(2.0)\n"
            "l.w = 4.0\nb = f(2.0)"
        )
        assert (float(notebook.ns["a"]), float(notebook.ns["b"])) == (6.0, 8.0)

    def test_a_variable_that_decides_a_branch_is_blamed(self, notebook):
        notebook.ok("n = 3")
        notebook.error("%%jit -q --dyn n\ndef f(x):\n    return x if n > 2 else -x\nf(1.0)")
        [finding] = [f for f in notebook.report().findings if f.severity == "error"]
        assert finding.kind == "tracer-bool" and finding.culprits[0] == "n" and finding.span.line == 3
        assert notebook.ns["n"] == 3


class TestFailingCells:
    CASES = [
        ("if x > 0:\n        return x\n    return -x", "tracer-bool", "x > 0", "x"),
        ("return [x for _ in range(x)]", "tracer-int", "range(x)", "x"),
        ("return float(x)", "tracer-array-conversion", "float(x)", "x"),
        ("return np.cos(x)", "tracer-array-conversion", "np.cos(x)", "x"),
        ("return jnp.zeros(x)", "dynamic-shape", "jnp.zeros(x)", "x"),
        ("return {x: 1}", "tracer-hash", None, "x"),
        ("return f'{x:.2f}'", "tracer-format", None, "x"),
    ]

    @pytest.mark.parametrize(("body", "kind", "text", "culprit"), CASES)
    def test_line_span_and_culprit(self, notebook, body, kind, text, culprit):
        notebook.error(f"%%jit -q\ndef f(x):\n    é = 'ünïcödé'; y = 1\n    {body}\n\nf(2)")
        findings = [f for f in notebook.report().findings if f.severity == "error"]
        finding = findings[0]
        assert (finding.kind, finding.span.line, finding.culprits[0]) == (kind, 4, culprit)
        line = f"    {body}".splitlines()[0]
        assert finding.span.source == line.strip()
        if text is not None:
            assert line[finding.span.column : finding.span.end_column] == text

    def test_through_nested_jit_scan_and_vmap(self, notebook):
        notebook.ok("@jax.jit\ndef inner(y):\n    return y if y > 0 else -y\n")
        notebook.error("%%jit -q\ndef f(x):\n    return inner(x + 1)\nf(1.0)")
        [finding] = [f for f in notebook.report().findings if f.severity == "error"]
        assert "x" in finding.culprits and finding.span.source == "return y if y > 0 else -y"

    def test_smallest_static_set_is_proved(self, notebook):
        notebook.error(
            "%%jit -q\ndef f(x, n, flag, k):\n    for _ in range(n):\n        x = x + k\n    return x if flag else -x\n"
            "f(jnp.ones(2), 3, True, 2)"
        )
        fixes = [x for f in notebook.report().findings for x in f.fixes if x.static_argnames]
        assert fixes and set(fixes[0].static_argnames) == {"n", "flag"}
        assert fixes[0].verified and fixes[0].tested == "cell"

    def test_an_array_is_never_made_static(self, notebook):
        notebook.error("%%jit -q\ndef f(x):\n    return x if x > 0 else -x\nf(jnp.float32(2.0))")
        assert not [x for f in notebook.report().findings for x in f.fixes if x.static_argnames]

    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_traces_of_a_diagnosis(self, notebook, k):
        names = [f"n{i}" for i in range(k)]
        checks = "".join(f"    if {n} > 1:\n        x = x + 1\n" for n in names)
        cell = f"def f(x, {', '.join(names)}):\n{checks}    return x\n"
        notebook.ok("x = jnp.ones(2)")
        with counted() as counts:
            notebook.error(f"%%jit -q\n{cell}\nf(x, {', '.join('2' * k)})")
            report = notebook.report()
        [static] = {x.static_argnames for f in report.findings for x in f.fixes if x.static_argnames}
        assert set(static) == set(names)
        assert counts.traces("f") <= 3 * k + 4

    def test_the_error_is_raised_and_shown_in_a_few_lines(self, notebook):
        error = notebook.error("%%jit -q\ndef f(x):\n    if x > 0:\n        return x\n\nf(1.0)")
        assert type(error).__name__ == "TracerBoolConversionError"
        assert notebook.text.count("TracerBoolConversionError") == 1
        assert "site-packages" not in notebook.text and len(notebook.text.splitlines()) < 14
        notebook.run("%tb")
        assert "site-packages" in notebook.text or "jax" in notebook.text

    def test_the_users_own_error(self, notebook):
        error = notebook.error("%%jit -q\ndef f(x):\n    return undefined_name + x\nf(1.0)")
        assert isinstance(error, NameError)
        assert notebook.kinds("error") == ["user-error"]

    def test_no_fix_keeps_the_users_own_error(self, notebook):
        body = "def f(q, k):\n    return q @ k / jnp.sqrt(q.shape[-1])\nf(jnp.ones((2, 3)), jnp.ones((2, 3)))"
        notebook.error(f"%%jit -q\n{body}")
        [finding] = notebook.report().findings
        assert finding.kind == "user-error" and not any(x.verified for x in finding.fixes)

    def test_a_leak_is_found_and_taken_back(self, notebook):
        notebook.ok("%%jit -q --no-time\nkept = []\ndef f(x):\n    kept.append(x * 2)\n    return x\nf(1.0)")
        assert notebook.ns["kept"] == []
        [finding] = [f for f in notebook.report().findings if f.severity != "note"]
        assert (finding.kind, finding.span.source) == ("leaked-tracer", "kept.append(x * 2)")
        notebook.ok("f(2.0)")

    def test_a_traced_key_does_not_stay_in_a_dict(self, notebook):
        notebook.ok("memo = {1: 2}")
        notebook.error("%%jit -q\ndef f(dt):\n    memo[dt] = dt * 2\n    return memo[dt]\nf(0.5)")
        assert set(notebook.kinds("error")) == {"tracer-hash"}
        assert notebook.ok("memo") == {1: 2}

    def test_our_own_failure_is_one_line(self, notebook, monkeypatch):
        from jitmagic.checking import failures

        def broken(*args, **kwargs):
            raise RuntimeError("broken inside")

        monkeypatch.setattr(subject, "RAISE", False)
        monkeypatch.setattr(failures, "diagnose_failure", broken)
        error = notebook.error("%%jit -q\ndef f(x):\n    return x if x > 0 else -x\nf(1.0)")
        assert type(error).__name__ == "TracerBoolConversionError"
        [note] = only(notebook.report()).notes
        assert "the diagnosis itself failed" in note and "broken inside" in note


class TestNothingIsLost:
    def test_an_interrupt_of_the_run_without_jit_leaves_what_the_call_has_left(self, notebook):
        notebook.ok("state = {'n': 0}; w = jnp.ones(2)")
        notebook.ok(
            "%%jit -q --dyn w\ndef f(x):\n    global w\n    state['n'] += 1\n    w = w + x\n"
            "    if not isinstance(x, jax.core.Tracer):\n        raise KeyboardInterrupt\n    return x\nf(1.0)"
        )
        assert notebook.ns["state"] == {"n": 1} and notebook.ok("w.tolist()") == [2.0, 2.0]
        (function,) = notebook.report().functions
        assert "the run without jit was left out: it was interrupted" in function.notes

    def test_interrupt(self, notebook):
        notebook.ok("state = {'n': 0}; w = jnp.ones(2)")
        error = notebook.error(
            "%%jit -q --dyn w\ndef f(x):\n    global w\n    state['n'] += 1\n    state['x'] = x\n    w = w + x\n"
            "    if isinstance(x, jax.core.Tracer):\n        raise KeyboardInterrupt\n    return x\nf(1.0)"
        )
        assert isinstance(error, KeyboardInterrupt)
        assert notebook.ns["state"] == {"n": 0}
        assert notebook.ok("w.tolist()") == [1.0, 1.0]

    @pytest.mark.parametrize("stage", ["tracing", "lowering", "compiling"])
    def test_interrupt_between_the_stages(self, notebook, stage, monkeypatch):
        import contextlib

        from jitmagic.notebook import progress

        @contextlib.contextmanager
        def interrupted(what, *_):
            yield
            if what.endswith(stage):
                raise KeyboardInterrupt

        monkeypatch.setattr(progress, "shown", interrupted)
        notebook.ok("w = jnp.ones(2); kept = []")
        before = set(notebook.ns)
        error = notebook.error(
            "%%jit -q --no-time --dyn w\ndef f(x):\n    global w\n    w = w + x\n    kept.append(x)\n    return x\nf(1.0)"
        )
        assert isinstance(error, KeyboardInterrupt)
        assert notebook.ok("w.tolist()") == [1.0, 1.0] and notebook.ns["kept"] == []
        assert {n for n in set(notebook.ns) - before if not n.startswith("_")} == {"f"}
        monkeypatch.undo()
        notebook.ok("f(1.0)")
        assert notebook.ok("w.tolist()") == [2.0, 2.0]

    def test_interrupt_while_timing(self, notebook):
        notebook.ok("w = jnp.ones(2); calls = []")
        notebook.ok(
            "%%jit -q --dyn w\ndef f(x):\n    global w\n    w = w + x\n    if not isinstance(x, jax.core.Tracer):\n"
            "        calls.append(1)\n        if len(calls) > 1:\n            raise KeyboardInterrupt\n    return x\nf(1.0)"
        )
        assert notebook.report().functions[0].timing.left_out == "not timed: it was interrupted"
        # the user's own call had been made; the timing runs left nothing
        assert notebook.ok("w.tolist()") == [2.0, 2.0] and notebook.ns["calls"] == []

    def test_large_arrays_are_neither_copied_nor_printed(self, notebook):
        notebook.ok("big = np.zeros((64, 1 << 20), np.float32)")
        notebook.ok("%%jit -q --trace-only\ndef f(x):\n    return x + big[0, 0] + big.shape[0]\nf(1.0)")
        [state] = [s for s in only(notebook.report()).state if s.path == "big"]
        assert state.bytes == 1 << 28 and state.value is None

    def test_huge_namespaces_cost_nothing(self, notebook):
        notebook.ns.update({f"name{i}": i for i in range(10_000)})
        notebook.ok("%%jit -q --no-time\ndef f(x):\n    return x + name7\nf(1.0)")
        assert [s.path for s in only(notebook.report()).state] == ["name7"]

    def test_a_report_keeps_no_array_alive(self, notebook):
        notebook.ok("w = jnp.ones(64)\n%jit -q --no-time -o\ndef f(x):\n    return x + w\nf(jnp.ones(64))")
        report = notebook.report()
        alive = weakref.ref(notebook.ns["w"])
        notebook.ok("%jit -q\ndef g(x): return x")
        for name in ("w", "f"):
            notebook.ns.pop(name)
        notebook.shell.displayhook.flush()
        import jax

        jax.clear_caches()
        gc.collect()
        assert alive() is None
        assert report.functions[0].state[0].path == "w"

    def test_hostile_names_and_strings_are_escaped(self, notebook):
        notebook.ok("evil = {'</pre><script>alert(1)</script>': jnp.ones(2)}")
        notebook.ok(
            "%%jit --no-time\ndef f(x):\n    return x + evil['</pre><script>alert(1)</script>']\nf(jnp.ones(2))"
        )
        [output] = notebook.outputs
        assert "<script>" not in output.data["text/html"]

    def test_a_function_without_source(self, notebook):
        notebook.ok("exec(compile('def h(x):\\n    return x if x > 0 else -x', '<gone>', 'exec'))")
        notebook.error("%jit -q -f h\nh(1.0)")
        assert notebook.kinds("error") == ["tracer-bool"]


class TestOptions:
    def test_static_and_recompilation(self, notebook):
        notebook.ok(
            "%%jit -q --no-time --static n\ndef f(x, n):\n    return x * n\n[f(1.0, n) for n in (1, 2, 3, 3)]"
        )
        function = only(notebook.report())
        assert (function.calls, function.traces, function.compiles) == (4, 3, 3)

    def test_trace_only_runs_nothing(self, notebook):
        out = notebook.ok("%%jit -q --trace-only\ndef f(x):\n    return x @ x\nf(jnp.ones((2, 2)))")
        assert type(out).__name__ == "ShapeDtypeStruct" and out.shape == (2, 2)
        function = only(notebook.report())
        assert (function.traces, function.compiles, function.timing.jit) == (1, 0, None)

    def test_donation(self, notebook):
        notebook.ok("%%jit -q --no-time --donate x\ndef f(x):\n    return x + 1\na = jnp.ones(4)\nf(a)")
        assert notebook.ns["a"].is_deleted()

    def test_lower_trace_eval_shape_and_clear_cache(self, notebook):
        notebook.ok("%%jit -q --no-time\ndef f(x):\n    return x + 1\nf(1.0)")
        f = notebook.ns["f"]
        assert f.eval_shape(1.0).shape == ()
        assert "add" in str(f.trace(1.0).jaxpr) and "stablehlo" in f.lower(1.0).as_text()
        f.clear_cache()
        notebook.ok("f(1.0)")

    def test_options_of_the_cells_own_jit_are_kept(self, notebook):
        notebook.ok(
            "%%jit -q --no-time\nfrom functools import partial\n@partial(jax.jit, static_argnames='n')\n"
            "def f(x, n):\n    return [x] * n\nout = f(1.0, n=2)"
        )
        assert len(notebook.ns["out"]) == 2

    def test_device(self, notebook):
        notebook.ok("%%jit -q --no-time --device cpu:0\ndef f(x):\n    return x + 1\nf(1.0)")
        assert only(notebook.report()).verdict == "ok"


def test_transformations_of_a_compiled_function(notebook):
    notebook.ok("%%jit -q --no-time\ndef f(x):\n    return x ** 2\n")
    assert notebook.ok("jax.vmap(f)(jnp.arange(3.0)).tolist()") == [0.0, 1.0, 4.0]
    assert notebook.ok("float(jax.grad(f)(3.0))") == 6.0
    assert notebook.ok("float(jax.jit(lambda y: f(y) + 1)(3.0))") == 10.0


def test_a_helper_of_the_same_cell_is_inlined(notebook):
    notebook.ok(
        "%%jit -q --no-time\ndef g(x, n):\n    return [x] * n\ndef f(x):\n    return sum(g(x, 3))\nv = f(2.0)"
    )
    assert float(notebook.ns["v"]) == 6.0


def test_check_in_plain_python():
    import jitmagic

    def f(x, n):
        return x if n > 1 else -x

    report = jitmagic.check(f, 1.0, 2)
    assert report.findings[0].kind == "tracer-bool"
    fixed = jitmagic.check.options(static_argnames="n")(f, 1.0, 2)
    assert fixed.verdict == "ok"


def test_custom_derivatives_keep_their_methods(notebook):
    notebook.ok(
        "%%jit -q --no-time\n@jax.custom_jvp\ndef f(x):\n    return jnp.sin(x)\n\n"
        "@f.defjvp\ndef f_jvp(primals, tangents):\n    return f(*primals), 3.0 * tangents[0]\n"
    )
    assert notebook.ok("float(jax.grad(f)(1.0))") == 3.0
    assert not notebook.kinds("error")


def test_a_ref_is_followed_by_jax_itself(notebook):
    if not hasattr(notebook.ns["jax"], "new_ref"):
        pytest.fail("jax.new_ref is gone: how are references made now?")
    notebook.ok("r = jax.new_ref(jnp.zeros(2))")
    notebook.ok(
        "%%jit -q --no-time\ndef f(x):\n    r[...] += x\n    return r[...] * 2\nf(1.0); f(1.0); f(1.0)"
    )
    assert notebook.ok("r[...].tolist()") == [3.0, 3.0]
    assert not notebook.kinds("error", "warning")


def test_a_compiled_function_as_an_argument_is_a_function(notebook):
    notebook.error(
        "%%jit -q --no-time\ndef g(x):\n    return x * 2\ndef f(h, x):\n    return h(x)\nf(g, 2.0)"
    )
    [finding] = [f for f in notebook.report().findings if f.severity == "error"]
    assert finding.kind == "invalid-jax-type" and "Watched" not in finding.message
    assert finding.fixes[0].static_argnames == ("h",)


def test_a_wrong_compiler_is_told_from_a_wrong_function_with_the_option_that_mends_it(notebook):
    """Where this jaxlib compiles the sum rightly there is nothing to tell, and nothing may be told."""
    notebook.ok("%%jit --no-time\ndef entropy(p):\n    return jnp.sum(jnp.log(p) + jnp.log(2 * p))\n"
                 "got = entropy(jnp.full(4096, 3.))\n")  # fmt: skip
    wrong = abs(float(notebook.ns["got"]) - 11839) > 1
    found = [f for f in notebook.report().findings if f.kind == "jit-differs-from-eager"]
    assert len(found) == wrong
    for finding in found:
        assert "compiler is at fault" in finding.message and "compiler_options={'xla_cpu" in finding.help
        assert not finding.fixes  # wider numbers would only happen to go past the fault
        options = {"xla_cpu_experimental_ynn_fusion_type": ""}
        notebook.ns["again"] = None
        notebook.ok(f"again = jax.jit(entropy._checker.fn, compiler_options={options})(jnp.full(4096, 3.))")
        assert abs(float(notebook.ns["again"]) - 11839) < 1


BEHIND = """
class Walk:
    def __init__(self, x):
        self.x, self.speed = x, jnp.ones(2)
    def move(self):
        walk.speed = 0.5 * self.speed + self.x
    def tree_flatten(self):
        return (self.speed,), (self.x,)
    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*aux)

jax.tree_util.register_pytree_node_class(Walk)

def go(walk, turns, rate):
    def turn(w, _):
        w.move()
        return w, w.speed.sum()
    return jax.lax.scan(turn, walk, jnp.arange(turns))[1]

walk = Walk(jnp.arange(2.0))
"""


def test_what_lies_behind_an_argument_that_has_to_be_static_is_found_in_the_same_pass(notebook):
    notebook.ok("%config JitMagics.budget = 2.0")
    notebook.run(f"%%jitcheck\n{BEHIND}\ngo(walk, 3, 0.1)")
    kinds = notebook.kinds("error", "warning")
    assert {"dynamic-shape", "leaked-tracer", "lossy-pytree", "array-in-aux-data"} <= set(kinds)
    stored = next(f for f in notebook.report().findings if f.kind == "leaked-tracer")
    assert stored.span.source == "walk.speed = 0.5 * self.speed + self.x" and "walk" in stored.culprits


def test_a_result_that_is_not_finite_is_found_by_a_check_with_the_line_and_slogdet(notebook):
    cell = "def volume(a):\n    d = jnp.linalg.det(a)\n    return jnp.log(d)\n"
    notebook.ok(f"%%jitcheck\n{cell}volume(50.0 * jnp.eye(40))")
    found = next(f for f in notebook.report().findings if f.kind == "nan")
    assert found.span.source == "d = jnp.linalg.det(a)" and "slogdet" in found.help
    notebook.ok(f"%%jit --no-time\n{cell}")
    notebook.ok("volume(50.0 * jnp.eye(40))")
    found = next(f for f in notebook.report().findings if f.kind == "nan")
    assert found.fixes[0].verified and "jnp.linalg.slogdet(a)[1]" in found.fixes[0].cell
    notebook.ok("def plain(a):\n    return jnp.log(jnp.linalg.det(a))")
    notebook.ok("report = %jitcheck -o plain(50.0 * jnp.eye(40))")
    assert [f.kind for f in notebook.ns["report"].findings] == ["nan"]
    notebook.ok("report = %jitcheck -o plain(jnp.eye(40))")
    assert not notebook.ns["report"].findings


def test_an_argument_that_is_written_into_is_told_with_a_copy_that_mends_it(notebook):
    cell = "def settle(state, rate):\n    for _ in range(2):\n        state['v'] = jax.jit(jnp.tanh)(rate * state['v'])\n    return state['v'].sum()\n"
    notebook.ok(f"%%jitcheck\n{cell}own = {{'v': jnp.ones(3)}}\nsettle(own, 0.5)")
    found = next(f for f in notebook.report().findings if f.kind == "state-write")
    assert found.culprits == ("state['v']", "state") and "belongs to the caller" in found.message
    fix = found.fixes[0]
    assert fix.verified and "state = state.copy()" in fix.cell
    notebook.ok(f"%%jitcheck\n{fix.cell.partition('own =')[0]}own = {{'v': jnp.ones(3)}}\nsettle(own, 0.5)")
    assert "state-write" not in notebook.kinds()


@pytest.mark.parametrize("magic", ["%%jit -q --no-time -f blurred", "%%jitcheck -q"])
def test_a_memo_by_shape_is_a_note_and_a_count_is_not(notebook, magic):
    cell = (
        "kernels, counts = {}, [0]\ndef kernel(n):\n    if n not in kernels:\n"
        "        kernels[n] = np.bartlett(n + 2)[1:-1].astype('f4')\n    return kernels[n]\n"
        "def blurred(x):\n    return jnp.convolve(x, kernel(len(x)))"
    )
    compiled = "\nblurred = jax.jit(blurred)" if "check" in magic else ""
    notebook.ok(f"{magic}\n{cell}{compiled}\nblurred(jnp.ones(4)); blurred(jnp.ones(4))")
    assert notebook.kinds("warning", "error") == [] and "state-write" in notebook.kinds("note")
    counting = cell.replace("    return kernels", "    counts[0] += 1\n    return kernels")
    notebook.ok(f"{magic}\n{counting}{compiled}\nblurred(jnp.ones(4))")
    assert "state-write" in notebook.kinds("warning")


def test_equal_static_objects_are_one(notebook):
    cell = (
        "import dataclasses, functools\n@dataclasses.dataclass(frozen=True)\nclass Size:\n    n: int\n"
        "@functools.partial(jax.jit, static_argnums=1)\ndef padded(x, size):\n    return jnp.pad(x, size.n)\n"
    )
    notebook.ok(f"%%jitcheck -q\n{cell}for _ in range(4): padded(jnp.ones(2), Size(3))")
    assert notebook.kinds("warning", "error") == []
    notebook.ok(f"%%jitcheck -q\n{cell}for n in range(4): padded(jnp.ones(2), Size(n))")
    [found] = [f for f in notebook.report().findings if f.severity == "warning"]
    assert found.kind == "recompile-static" and "Size(n=0)" in found.message


def test_what_stands_beside_compiled_functions_is_not_for_jit(notebook):
    notebook.ok(
        "%%jitcheck -q\ndef noise(n):\n    return np.random.default_rng().normal(size=n)\n"
        "def scaled(x):\n    if x.sum() > 0:\n        return x\n    return -x\n"
        "@jax.jit\ndef step(x):\n    return jnp.tanh(x)\nstep(noise(3))"
    )
    assert notebook.kinds("warning", "error") == []
    notebook.ok(
        "%%jitcheck -q\ndef scaled(x):\n    if x.sum() > 0:\n        return x\n    return -x\n"
        "step = jax.jit(lambda x: scaled(jnp.tanh(x)))\nscaled(jnp.ones(3))"
    )
    assert notebook.kinds("error") == ["tracer-bool"]


def test_what_only_prepares_or_drives_a_cell_that_compiles_is_not_for_jit(notebook):
    cell = (
        "def weights(n):\n    return np.log(np.arange(1, n + 1))\n"
        "class Model:\n    def __init__(self):\n        self.w = jnp.asarray(weights(3))\n"
        "    def apply(self, x):\n        return jax.jit(lambda y: y @ self.w)(x)\n"
        "def run(n):\n    model = Model()\n    return [model.apply(jnp.ones(3)) for _ in range(n)]\n"
    )
    notebook.ok(f"%%jitcheck -q\n{cell}run(3)")
    assert notebook.kinds("warning", "error") == ["recompile-new-function"]
    assert not any("out of what is compiled" in x.title for f in notebook.report().findings for x in f.fixes)


def test_the_cell_itself_tells_what_it_compiles_again(notebook):
    """Though no function of the cell is watched, and without a question."""
    notebook.ok(
        "%%jit\nclass Trainer:\n    lr = 0.1\n    def fit(self, w, n):\n        for _ in range(n):\n"
        "            @jax.jit\n            def update(w):\n                return w - self.lr * jnp.sin(w)\n"
        "            w = update(w)\n        return w\nw = Trainer().fit(jnp.ones(4), 5)"
    )
    (shown,) = notebook.outputs
    told = shown.data["text/plain"]
    assert told.startswith(
        "! Trainer.fit  line 6 makes a new compiled function each time; tested fix: jit once"
    )
    assert "5 compilations so far of `@jax.jit def update(w):" in told and "+@jax.jit\n" in told
    notebook.ok(
        "%%jitcheck\nfor i in range(4):\n    @jax.jit\n    def g(x):\n        return x * 2\n    g(1.0)\n0"
    )
    shown = next(o.data["text/plain"] for o in notebook.outputs if "! g  " in o.data["text/plain"])
    assert "4 compilations so far" in shown and "about `g`" not in shown  # of four functions the newest alone
    made = notebook.ok("%jitcheck --session -o").session.compilations
    assert [c.reason for c in made if (c.function, c.origin) == ("g", "user")][-3:] == ["new-function"] * 3


def test_what_the_user_compiles_is_compared_by_a_check_too(notebook):
    """Where this jaxlib compiles the sum rightly there is nothing to tell, and nothing may be told."""
    notebook.ok(
        "p = jnp.full(4096, 3.)\ncost = jax.jit(lambda p: jnp.sum(jnp.log(p) + jnp.log(2 * p)))\ngot = cost(p)"
    )
    wrong = abs(float(notebook.ns["got"]) - 11839) > 1
    notebook.ok("report = %jitcheck -o cost(p)")
    found = [f for f in notebook.ns["report"].findings if f.kind == "jit-differs-from-eager"]
    assert len(found) == wrong and all("compiler is at fault" in f.message for f in found)


def test_a_rehearsal_that_takes_too_long_is_stopped_and_said(notebook, monkeypatch):
    notebook.ok("%config JitMagics.budget = 0.3")
    notebook.ok("def slow(x):\n    for _ in range(200_000):\n        abs(int(3.0)); (lambda: 0)()\n    return x\n"
                "def endless(x):\n    while not isinstance(x, jax.core.Tracer):\n        (lambda: 0)()\n    return x")  # fmt: skip
    notebook.ok("report = %jitcheck -o endless(1.0)")
    assert any("stopped after 0.3 s" in n for f in notebook.ns["report"].functions for n in f.notes)
    notebook.ok("%config JitMagics.budget = 10.0")


ELEVEN = """
TABLE = {0: 1.0, 3: 2.0}
def f(x, n, mask, d):
    y = jnp.sin(x)
    if x.sum() > 0:
        y = y + 1
    for i in range(n):
        y = y * 0.5
    z = np.cos(x)
    total = float(y.sum())
    head = x[:n]
    kept = x[mask]
    w = TABLE[n]
    text = f"{y[0]:.2f}"
    y[0] = 0.0
    grid = jnp.zeros(n)
    first = x[0].item()
    while y[1] > 4:
        y = y - 1
    assert d > 0
    best = [1, 2, 3][d]
    m = max(x[0], x[1])
    return y.sum() + z.sum() + total + head.sum() + kept.sum() + w + grid.sum() + first + best + m
"""


def test_one_pass_lists_every_problem_of_a_long_function(notebook):
    from jitmagic import rules
    from jitmagic.checking.checker import Checker
    from jitmagic.checking.conclusions import evidence_of
    from jitmagic.settings import Settings

    notebook.ok(ELEVEN)
    checker = Checker(notebook.ns["f"], settings=Settings(compile=False, budget=240.0))
    arguments = "(jnp.arange(3.0), 3, jnp.array([True, False, True]), jnp.int32(1))"
    checker.diagnose(notebook.ok(arguments), {})
    findings = [f for f in rules.run(evidence_of(checker)) if f.severity == "error"]
    found = {(f.kind, f.span.source) for f in findings}
    assert found == {
        ("tracer-bool", "if x.sum() > 0:"), ("tracer-int", "for i in range(n):"),
        ("tracer-array-conversion", "z = np.cos(x)"), ("tracer-array-conversion", "total = float(y.sum())"),
        ("dynamic-shape", "head = x[:n]"), ("dynamic-shape", "kept = x[mask]"), ("tracer-hash", "w = TABLE[n]"),
        ("tracer-format", 'text = f"{y[0]:.2f}"'), ("in-place-update", "y[0] = 0.0"),
        ("dynamic-shape", "grid = jnp.zeros(n)"), ("tracer-array-conversion", "first = x[0].item()"),
        ("tracer-bool", "while y[1] > 4:"), ("tracer-bool", "assert d > 0"),
        ("tracer-int", "best = [1, 2, 3][d]"), ("tracer-bool", "m = max(x[0], x[1])"),
    }  # fmt: skip
    assert len(findings) == len(found)


def test_what_is_stored_behind_the_place_that_fails_is_told_too(notebook):
    notebook.ok("seen, total, made = [], 0.0, {}")
    notebook.error(
        "%%jit -q --no-time\ndef f(x):\n    global total\n    if x.sum() > 0:\n        x = x + 1\n"
        "    total = total + x.sum()\n    seen.append(x)\n    made['n'] = len(seen)\n    return x\nf(jnp.ones(3))"
    )
    found = {(f.kind, f.span.source): f for f in notebook.report().findings if f.severity != "note"}
    assert set(found) == {
        ("tracer-bool", "if x.sum() > 0:"), ("leaked-tracer", "total = total + x.sum()"),
        ("leaked-tracer", "seen.append(x)"), ("state-write", "made['n'] = len(seen)"),
    }  # fmt: skip
    appended = found["leaked-tracer", "seen.append(x)"]
    assert "added to `seen`" in appended.message and "--dyn" not in appended.help
    assert notebook.ok("seen, total, made") == ([], 0.0, {})


def test_where_the_recording_run_cannot_serve_one_problem_is_shown_and_the_report_says_so(
    notebook, monkeypatch
):
    from jitmagic.tracing import recording

    monkeypatch.setattr(recording, "available", lambda: False)
    notebook.error(
        "%%jit -q --no-time\ndef f(x):\n    if x > 0:\n        return np.cos(x)\n    return x\nf(1.0)"
    )
    report = notebook.report()
    assert [f.kind for f in report.findings if f.severity == "error"] == ["tracer-bool"]
    assert any("one at a time" in n for n in report.functions[0].notes)


def test_a_failure_that_is_known_is_not_looked_into_again(notebook, monkeypatch):
    from jitmagic.tracing import recording

    runs = []
    record = recording.record
    monkeypatch.setattr(recording, "record", lambda *a, **k: runs.append(1) or record(*a, **k))
    notebook.ok("%%jit -q --no-time\ndef f(x):\n    return x if x > 0 else -x")
    for _ in range(3):
        notebook.error("f(1.0)")
    assert len(runs) == 1
    notebook.error("f(jnp.float32(1))")
    assert len(runs) == 2


def test_a_class_that_refuses_descriptions_in_place_of_arrays_is_called_as_without_us(notebook):
    notebook.ok(
        "@jax.tree_util.register_pytree_node_class\nclass V:\n"
        "    def __init__(self, x):\n        self.x = jnp.asarray(x)\n"
        "    def tree_flatten(self):\n        return (self.x,), None\n"
        "    @classmethod\n    def tree_unflatten(cls, aux, children):\n        return cls(*children)"
    )
    notebook.ok("%%jit -q --no-time\ndef f(v):\n    return v.x * 2\nassert f(V(jnp.ones(2)))[0] == 2")
    assert notebook.kinds("error", "warning") == []


def test_the_call_after_an_interrupted_compilation_shows_its_report(notebook, monkeypatch):
    from jitmagic.tracing import stages

    whole = stages._interruptibly

    def interrupted(name, program, compile):
        monkeypatch.setattr(stages, "_interruptibly", whole)
        raise KeyboardInterrupt(f"interrupted after 8 s of compiling {name}")

    monkeypatch.setattr(stages, "_interruptibly", interrupted)
    notebook.error("%%jit --no-time\ndef patient(x):\n    return x * 3\ny = patient(jnp.ones(7))")
    notebook.ok("y = patient(jnp.ones(7))")
    shown = [o.data.get("text/plain", "") for o in notebook.outputs]
    assert any("patient  compiled in" in text for text in shown)
    (function,) = notebook.report().functions
    assert (function.calls, function.traces, function.compiles) == (1, 1, 1)


class TestWhatTheCellCompilesByItself:
    CELL = """%%jitcheck
class Model:
    @functools.partial(jax.jit, static_argnums=0)
    def step(self, x):
        traces.append(1)
        return x + 1
bump = jax.jit(lambda s: s + 1, donate_argnums=0)
def inner(s):
    bump(s)
    return bump(s)
def outer(s):
    return inner(s)
def run(m, x):
    return m.step(m.step(x))
"""

    def test_stays_compiled_in_functions_that_call_it(self, notebook):
        notebook.ok("import functools\ntraces = []")
        notebook.ok(self.CELL)
        notebook.ok("run(Model(), jnp.ones(2))")
        assert len(notebook.ns["traces"]) == 1
        assert {f.function for f in notebook.report().findings} == {"Model.step"}  # it fills a list

    def test_is_looked_at_where_they_call_it(self, notebook):
        notebook.ok("import functools\ntraces = []")
        notebook.ok(self.CELL)
        assert "deleted" in str(notebook.error("outer(jnp.ones(2))"))
        [finding] = [f for f in notebook.report().findings if f.severity == "error"]
        assert (finding.kind, finding.culprits) == ("donated-reuse", ("s",))

    def test_what_makes_it_is_not_looked_at_as_if_it_were_compiled(self, notebook):
        notebook.ok(
            "%%jitcheck\ndef make(field, dt):\n    return lambda y: y + dt * field(y)\n"
            "step = jax.jit(make(jnp.sin, 0.1))"
        )
        notebook.ok("step(jnp.ones(2))")
        assert not [f for f in notebook.report().findings if f.severity != "note"]

    def test_an_array_that_an_object_kept_was_given_to_the_only_function_that_takes_memory(self, notebook):
        notebook.ok(
            "%%jitcheck -q\ngrow = jax.jit(lambda w: w + 1, donate_argnums=0)\n"
            "class Log:\n    def __init__(self, w):\n        self.w = self.last = w\n"
            "    def go(self):\n        for _ in range(3):\n            self.last, self.w = self.w, grow(self.w)\n"
            "        return self.w - self.last"
        )
        notebook.error("Log(jnp.zeros(2)).go()")
        [finding] = [f for f in notebook.report().findings if f.severity == "error"]
        assert (finding.kind, finding.culprits[0]) == ("donated-reuse", "w")


CALLBACKS = {
    "a function of its own": (
        "def bad(v):\n        raise ValueError('mine')\n    return jax.pure_callback(bad, SHAPE, x)",
        "ValueError: mine", 4,
    ),
    "a lambda": ("jax.debug.callback(lambda v: {}['k'], x)\n    return x * 2", "KeyError: 'k'", 3),
    "a helper in another cell": (
        "return jax.experimental.io_callback(lambda v: helper(v), SHAPE, x)", "ZeroDivisionError", 2,
    ),
    "what it gives does not fit": (
        "return jax.pure_callback(lambda v: v[None], SHAPE, x)", "Incorrect output shape", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLBACKS)
def test_what_a_callback_raises_is_told_at_its_line(notebook, name):
    body, told, line = CALLBACKS[name]
    notebook.ok("import jax.experimental\nSHAPE = jax.ShapeDtypeStruct((), 'float32')")
    notebook.ok("def helper(v):\n    return 1 / 0 + v")
    notebook.error(
        f"%%jit -q --no-time\ndef f(x):\n    {body}\njax.block_until_ready(f(1.0)); jax.effects_barrier()"
    )
    (finding,) = [f for f in notebook.report().findings if f.severity == "error"]
    assert told in finding.message and "Traceback" not in finding.message
    assert (finding.span and finding.span.line) == line


@pytest.mark.parametrize("magic", ["%%jit -q --no-time\n", "%%jitcheck -q\n", ""])
@pytest.mark.parametrize("name", CALLBACKS)
def test_what_a_callback_raises_outside_of_our_functions_is_told_at_its_line(notebook, name, magic):
    """A device that works on while Python goes on raises where the value is asked for, not in the call."""
    body, told, line = CALLBACKS[name]
    notebook.ok("import jax.experimental\nSHAPE = jax.ShapeDtypeStruct((), 'float32')")
    notebook.ok("def helper(v):\n    return 1 / 0 + v")
    notebook.ok(f"import numpy\ndef f(x):\n    {body}\nfs = [jax.jit(f)]")
    notebook.error(
        f"{magic}def g(x):\n    return x\ng(1.0)\njax.block_until_ready(fs[0](1.0)); jax.effects_barrier()"
    )
    (finding,) = [f for f in notebook.report().findings if f.severity == "error"]
    assert told in finding.message and "Traceback" not in finding.message
    assert line is None or finding.span.line == line


def test_an_interrupt_in_a_callback_is_no_error_to_look_into(notebook):
    notebook.ok("SHAPE = jax.ShapeDtypeStruct((), 'float32')")
    notebook.error(
        "%%jit -q --no-time\ndef stop(v):\n    raise KeyboardInterrupt\n"
        "def f(x):\n    return jax.pure_callback(stop, SHAPE, x)\nf(1.0)"
    )
    report = notebook.report()
    assert not report.findings and "interrupted" in str(report)


ONCE = {
    "a file": (
        "fh = open(__import__('os').devnull, 'w')",
        "fh.write('a')",
        "it changes `fh`, which can't be put back",
    ),
    "a mock": ("from unittest.mock import Mock\nm = Mock()", "m(1)", "it calls `unittest.mock."),
    "a database": (
        "import sqlite3\ndb = sqlite3.connect(':memory:')\ndb.execute('create table t(a)')",
        "db.execute('insert into t values (1)')",
        "it changes `db`, which can't be put back",
    ),
}


@pytest.mark.parametrize("name", ONCE)
def test_what_the_compiled_function_does_only_while_jax_traces_is_told(notebook, name):
    begin, does, why = ONCE[name]
    notebook.ok(begin)
    notebook.ok(f"%%jit\ndef f(x):\n    {does}\n    return x * 2\nf(1.0)")
    (note,) = [n for n in notebook.report().functions[0].notes if n.startswith("the run without jit")]
    assert why in note and note.endswith("; compiled, it does that only while jax traces")


@pytest.mark.parametrize("call", ["display('a')", "IPython.display.display(1)", "show('a', 'b')"])
def test_what_is_displayed_is_told_as_what_is_printed(notebook, call):
    notebook.ok("import IPython\nfrom IPython.display import display\nshow = display")
    notebook.ok(f"%%jit\ndef f(x):\n    {call}\n    return x * 2\nf(1.0)")
    (finding,) = notebook.report().findings
    assert (finding.kind, finding.severity, finding.span.source.strip()) == ("trace-time-print", "note", call)
