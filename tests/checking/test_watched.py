"""Functions that the user's own code compiles, with jax or with a framework: watched, and run as they are."""

from __future__ import annotations

import gc

import pytest

from jitmagic.tracing.stages import counted

FOUND = [
    ("g = jax.jit(f)", "def f(t):\n    return t.sum()", "for n in (3, 5, 7): g(jnp.ones(n))", "recompile-shape", "t"),
    ("g = jax.jit(f, static_argnums=1)", "def f(x, n):\n    return x * n", "for n in range(4): g(1.0, n)", "recompile-static", "n"),
    ("g = functools.partial(jax.jit, static_argnames='n')(f)", "def f(x, *, n):\n    return x * n", "for n in range(4): g(1.0, n=n)", "recompile-static", "n"),
    ("g = jax.jit(f)", "def f(s, x):\n    return s * 0.5 + x", "s = 0.0\nfor _ in range(3): s = g(s, jnp.float32(1))", "recompile-weak-type", "s"),
    ("g = jax.jit(f)", "w = 2.0\ndef f(x):\n    return x * w", "g(1.0)\nw = 3.0\ng(1.0)", "stale-constant", "w"),
    ("m = M(2.0)", "class M:\n    def __init__(self, k):\n        self.k = k\n        self.g = jax.jit(self.f)\n    def f(self, x):\n        return x * self.k", "m.g(1.0)\nm.k = 3.0\nm.g(1.0)", "stale-constant", "m.k"),
    ("g = jax.jit(jax.value_and_grad(f))", "def f(x):\n    if x > 1:\n        return x\n    return x * 2", "g(1.0)", "tracer-bool", "x"),
    ("g = jax.jit(lambda x, n: sum(x * i for i in range(n)))", "f = None", "g(1.0, 3)", "tracer-int", "n"),
    ("g = nnx.jit(f)", "from flax import nnx\ndef f(m, x):\n    if m(x).sum() > 0:\n        return x\n    return m(x)", "g(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), jnp.ones(2))", "tracer-bool", "m.kernel.value"),
    ("g = eqx.filter_jit(f)", "import equinox as eqx\ndef f(m, x):\n    print(x)\n    return m(x)", "g(eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0)), jnp.ones(2))", "trace-time-print", "x"),
    ("g = eqx.filter_jit(f)", "import equinox as eqx\nclass M(eqx.Module):\n    w: jax.Array\n    n: int\ndef f(m):\n    return m.w / (m.n + 1)", "for i in range(4): g(M(jnp.ones(2), i))", "recompile-static", "m.n"),
    ("g = bm.jit(f)", "import brainpy.math as bm\nv = bm.Variable(bm.zeros(2))\ndef f(x):\n    return x + np.random.rand() + v.value", "g(1.0)", "hidden-rng", "np.random.rand"),
]  # fmt: skip


@pytest.mark.parametrize(("jitted", "definition", "calls", "kind", "culprit"), FOUND)
@pytest.mark.parametrize("earlier", [False, True], ids=["same cell", "earlier cell"])
def test_what_is_jitted_by_hand_is_watched(notebook, jitted, definition, calls, kind, culprit, earlier):
    notebook.ok(f"import functools\n{definition}\n{jitted}" if earlier else "import functools")
    body = calls if earlier else f"{definition}\n{jitted}\n{calls}"
    notebook.run(f"%%jitcheck -q\n{body}")
    found = [f for f in notebook.report().findings if f.kind == kind]
    assert len(found) == 1 and culprit in found[0].culprits, notebook.report().findings
    assert found[0].span is not None


CLEAN = [
    "import functools\n@functools.partial(jax.jit, static_argnums=0)\ndef f(n, x):\n    return sum(x**k for k in range(n))\nf(3, 1.0)",
    "import functools\n@functools.partial(jax.jit, static_argnames='n')\ndef f(n, x):\n    return sum(x**k for k in range(n))\nf(3, 1.0)",
    "@jax.jit\ndef f(x, flag=None):\n    return x if flag is None else x * flag\nf(1.0); f(2.0); f(3.0)",
    "from jax.nn import relu\nf = jax.jit(lambda a, b: relu(a @ b))\nf(jnp.ones((2, 3)), jnp.ones((3, 2)))",
    "import equinox as eqx\nm = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))\n@eqx.filter_jit\ndef f(m, x):\n    return jax.vmap(m)(x)\nf(m, jnp.ones((3, 2)))",
    "import equinox as eqx\nms = [eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(i)) for i in range(4)]\n@eqx.filter_jit\ndef f(m, x):\n    return jax.vmap(m)(x)\nfor m in ms: f(m, jnp.ones((3, 2)))",
    "from flax import nnx\nm = nnx.BatchNorm(2, rngs=nnx.Rngs(0))\n@nnx.jit\ndef f(m, x):\n    return m(x)\n[f(m, jnp.ones((3, 2))) for _ in range(3)]",
    "import brainpy.math as bm\nv = bm.Variable(bm.zeros(2))\n@bm.jit\ndef f(x):\n    v.value = v.value + x\n    return v.value\nf(1.0); f(2.0)",
    "p = [(jnp.ones((4, 4)), jnp.zeros(4))] * 10\ndef loss(p, x):\n    for w, b in p:\n        x = jnp.tanh(x @ w + b)\n    return x.mean()\n@jax.jit\ndef f(p, x):\n    return jax.grad(loss)(p, x)\nf(p, jnp.ones((3, 4)))",
    "class M:\n    def __init__(self, f):\n        self.f = jax.jit(f)\nm = M(lambda v: v * 2)\nm.f(1.0); m.f(2.0)",
    "from functools import partial\n@partial(jax.jit, static_argnums=(0, 2))\ndef f(n, /, x, m):\n    return x if n + m > 3 else -x\nf(2, 1.0, 4)",
    "f = jax.jit(lambda x, n: x if n > 3 else -x, static_argnums=1)\nf(1.0, 4); f(1.0, n=5)",
]  # fmt: skip


@pytest.mark.parametrize("cell", CLEAN)
@pytest.mark.parametrize("magic", ["%%jit -q --no-time", "%%jitcheck -q"])
def test_good_code_that_jits_by_itself_is_left_alone(notebook, cell, magic):
    notebook.ok(f"{magic}\n{cell}")
    assert notebook.kinds("error", "warning") == []


def test_the_compiled_function_goes_on_running_compiled(notebook):
    notebook.ok("%%jitcheck -q\n@jax.jit\ndef f(x):\n    return x * 2")
    with counted() as counts:
        notebook.ok("[f(jnp.ones(2) * i) for i in range(3)]")
    assert counts.compiles("f") == 1


def test_a_cell_without_a_function_may_use_one_that_is_compiled(notebook):
    notebook.ok("fast = jax.jit(lambda x: x + 1)")
    notebook.ok("%%jitcheck -q\ny = fast(1.0)")
    assert float(notebook.ns["y"]) == 2.0 and notebook.report().functions[0].calls == 1


LATER = [
    ("@jax.jit\ndef f(x):\n    if x > 0:\n        return x\nf(1.0)", "tracer-bool", "if x > 0:", "x"),
    ("g = jax.jit(lambda x: x, static_argnames='mode')", "bad-static-spec", "g = jax.jit(lambda x: x, static_argnames='mode')", None),
    ("import functools\n@functools.partial(jax.jit, static_argnames=['mod'])\ndef f(x, mode):\n    return x", "bad-static-spec", "@functools.partial(jax.jit, static_argnames=['mod'])", "mode"),
    ("step = jax.jit(lambda p: p * 2, donate_argnums=0)\nw = jnp.ones(3)\nnew = step(w)\nw.sum()", "donated-reuse", "w.sum()", "w"),
    ("@jax.jit\ndef f(x, name):\n    return x\nf(1.0, 'tanh')", "invalid-jax-type", "def f(x, name):", "name"),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "kind", "line", "culprit"), LATER)
def test_the_post_mortem_of_a_plain_cell(notebook, cell, kind, line, culprit):
    notebook.error(cell)
    notebook.run("undefined_name")  # what came after does not hide it
    found = [f for f in notebook.report().findings if f.severity == "error"]
    assert [f.kind for f in found] == [kind]
    assert found[0].span is not None and found[0].span.source == line
    assert culprit is None or culprit in found[0].culprits


def test_what_lies_in_another_cell_is_told_with_that_cell(notebook):
    notebook.ok("import math\nw = 2.0\n@jax.jit\ndef f(x):\n    return jnp.sort(x) * w")
    notebook.ok("@jax.jit\ndef g(x):\n    if x > 0:\n        return x\n    return -x")
    notebook.error("%%jitcheck\na = 1\nf(jnp.ones(3))\ng(1.0)")
    report = notebook.report()
    (error,) = [f for f in report.findings if f.severity == "error"]
    assert error.span.cell and [line.strip() for line in error.span.around][1:3] == ["def g(x):", "if x > 0:"]
    lines = next(f.lines for f in report.functions if f.name == "f")
    assert {(line.line, line.source) for line in lines} == {(5, "return jnp.sort(x) * w")}
    number = notebook.shell.execution_count  # of every cell here: none is kept in the history
    assert f"cell [{number}]" in str(report).rpartition("of one compiled call")[2] and "a = 1" not in str(
        report
    )


def test_an_array_read_after_it_was_given_away_names_the_function_and_its_argument(notebook):
    notebook.ok(
        "%%jit -q --no-time --donate p\ndef step(p, g):\n    return p - g\nw = jnp.ones(3)\nstep(w, jnp.ones(3))"
    )
    notebook.error("w.sum()")
    [found] = [f for f in notebook.report().findings if f.kind == "donated-reuse"]
    assert found.span is not None and found.span.source == "def step(p, g):"
    assert found.culprits[:2] == ("p", "w") and "`w.sum()`" in found.message


DONATES = "%%jit -q --no-time --donate p\ndef step(p, g):\n    return p - g\nw = jnp.ones(3)\n"
READS = [
    # behind the definition; the line that comes to light: as the cell's author counts
    ("step(w, 1.0)\nw.sum()", "line 6", "w.sum()"),
    ("for i in range(2):\n    step(w,\n         1.0)", "line 6", "step(w,"),
]


@pytest.mark.parametrize(("cell", "place", "source"), READS)
def test_the_headline_names_the_line_that_uses_a_donated_array_again(notebook, cell, place, source):
    notebook.error(f"{DONATES}{cell}")
    report = notebook.report()
    [found] = [f for f in report.findings if f.kind == "donated-reuse"]
    assert found.shows is not None and found.shows.source == source and found.span.line == 2
    assert f"uses a donated array again in {place}" in report.to_text().split("\n")[0]


CHECKED = "%%jitcheck -q --no-time\ndef double(x):\n    return x * 2\ndouble(1.0)"
FAILS = "@jax.jit\ndef make(x, n):\n    return x + jnp.zeros(n)\nmake(1.0, 3)"


BEFORE = {
    "nothing to do": (CHECKED, True),
    "a warning": (CHECKED.replace("return", "print(x)\n    return"), True),
    "an error": (CHECKED.replace("x * 2", "-x if x > 2 else x"), False),
}


@pytest.mark.parametrize(("before", "about_the_later"), BEFORE.values(), ids=BEFORE)
def test_after_an_error_of_another_cell_the_report_is_about_one_cell(notebook, before, about_the_later):
    notebook.ok(before)
    notebook.error(FAILS)
    report = notebook.report()
    assert report.cell.source == (FAILS if about_the_later else before)
    for finding in report.findings:
        there = finding.span.source in report.cell.source
        assert (finding.span.cell is None) == there
        assert there or not any(fix.cell or fix.applicability != "display" for fix in finding.fixes)
    if about_the_later:
        [fix] = [x for f in report.findings if f.severity == "error" for x in f.fixes]
        assert fix.verified and '+@functools.partial(jax.jit, static_argnames="n")' in report.to_text()


def test_an_exception_of_the_users_own_has_no_post_mortem(notebook):
    notebook.error("1 / 0")
    assert notebook.report().findings == ()


def test_checks_leave_nothing_behind(notebook):
    notebook.ok("def f(x):\n    if x[0] > 0:\n        x = x + 1\n    return float(x.sum()) + np.cos(x)")
    notebook.ok("import jitmagic\nx = jnp.ones(8)\nfor _ in range(3): jitmagic.check(f, x)")
    counts = []
    for _ in range(2):
        gc.collect()
        counts.append(len(gc.get_objects()))
        notebook.ok("for _ in range(25): report = jitmagic.check(f, x)")
    gc.collect()
    assert len(gc.get_objects()) - counts[1] <= counts[1] - counts[0] + 10 < 200


def test_a_report_of_a_failure_keeps_no_array_tracer_or_frame(notebook):
    notebook.ok("import jitmagic, weakref\nclass Marked: pass")
    notebook.ok(
        "def outer():\n    mark = Marked()\n    x = jnp.ones(8)\n"
        "    def f(x):\n        mark\n        return x if x[0] > 0 else np.cos(x)\n"
        "    return jitmagic.check(f, x), weakref.ref(mark), weakref.ref(x)\nreport, mark, array = outer()"
    )
    gc.collect()
    assert notebook.ns["mark"]() is None and notebook.ns["array"]() is None
    assert [f.kind for f in notebook.ns["report"].findings if f.severity == "error"]


ALIKE = [
    "f.__name__, f.__qualname__, f.__module__, f.__doc__, f.__annotations__", "str(inspect.signature(f))", "f.__wrapped__ is plain, inspect.unwrap(f) is plain",
    "inspect.isfunction(f), inspect.isroutine(f), callable(f), inspect.iscoroutinefunction(f)", "hash(f) == hash(f), f == f, f != plain, {f: 1}[f]",
    "weakref.ref(f)() is f", "[hasattr(f, n) for n in ('lower', 'trace', 'eval_shape', 'clear_cache', '__get__', '__len__', '__getitem__', '__enter__', '__iter__')]",
    "type('C', (), {'m': f})().m.__func__ is f", "jax.vmap(f)(jnp.ones(3)).tolist(), float(jax.grad(f)(2.0)), jax.jit(f)(1.0).shape",
    "jax.lax.scan(lambda c, x: (f(c), x), 1.0, jnp.ones(2))[0].tolist()", "f.eval_shape(1.0).shape, f.lower(1.0).compile()(1.0).tolist()", "inspect.getsource(f).count('def f')",
    "functools.wraps(f)(lambda x: x).__name__, functools.partial(f, y=1.0)(2.0).tolist()", "jax.tree.leaves(f) == [f]",
    "[(setattr(f, n, 'new'), getattr(f, n), getattr(plain, n)) for n in ('__doc__', '__name__', '__qualname__', '__module__')]",
    "setattr(f, '__annotations__', {}), f.__annotations__, plain.__annotations__, setattr(f, 'tag', 3), f.tag, delattr(f, 'tag'), hasattr(f, 'tag')",
    "setattr(f, 'tag', 3), functools.wraps(f)(lambda x: x).tag, vars(f)['tag'], vars(f).pop('tag'), hasattr(f, 'tag')",
    "f.__dict__.update(unit='mV'), f.unit, getattr(f, '__dict__')['unit'], setattr(f, 'unit', 'V'), vars(f)['unit']",
]  # fmt: skip


@pytest.mark.parametrize("seen", ALIKE)
def test_what_is_compiled_is_as_like_a_function_as_what_jax_makes(notebook, seen):
    notebook.ok("import functools, inspect, weakref")
    cell = "def f(x: float, y: float = 2.0):\n    'says'\n    return x * y\nplain = inspect.unwrap(f)"
    notebook.ok(f"{cell}\nf = jax.jit(f)")
    expected = notebook.ok(f"({seen},)")
    notebook.ok(f"%%jit -q --no-time -f f\n{cell}")
    assert notebook.ok(f"({seen},)") == expected


@pytest.mark.parametrize("own", ["", "@jax.jit\n"])
def test_the_size_of_its_cache_is_that_of_a_jit_of_the_users(notebook, own):
    """By which many notebooks count compilations."""
    notebook.ok(
        f"%%jit -q\n{own}def f(x):\n    return x * 2\nsizes = [f._cache_size()]\n"
        "for x in (1.0, 2.0, jnp.ones(3)):\n    f(x)\n    sizes.append(f._cache_size())"
    )
    assert notebook.ns["sizes"] == [0, 1, 1, 2] and notebook.ok("f._cache_size()") == 2


OWN = {
    "a decorator": "@jax.jit\ndef f(x):\n    return x * 2",
    "a call": "f = jax.jit(lambda x: x * 2)",
    "options": "f = jax.jit(lambda x, n=2: x * n, static_argnames='n')",
    "a method": "class M:\n    @jax.jit\n    def f(self, x):\n        return x * 2\njax.tree_util.register_pytree_node(M, lambda m: ((), None), lambda aux, c: M())\nf = M.f\nf(M(), 1.0)",
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("magic", ["", "%%jitcheck -q\n"])
def test_a_compiled_function_of_the_users_own_is_seen_as_without_us(notebook, magic, name):
    receiver = "M(), " if name == "a method" else ""
    asked = (
        "isinstance(f, type(jax.jit(len))), 'PjitFunction' in repr(f), f._cache_size(), "
        f"f.lower({receiver}jnp.ones(2)).out_info.shape, f.eval_shape({receiver}jnp.ones(4)).shape"
    )
    notebook.ok(f"{magic}{OWN[name]}\nf({receiver}1.0)\nf({receiver}jnp.ones(3))\nseen = [({asked})]")
    notebook.ok(f"f({receiver}1.0); f({receiver}jnp.ones(2)); seen.append(f._cache_size())")
    notebook.ok(
        f"f.clear_cache(); seen.append(f._cache_size()); f({receiver}1.0); seen.append(f._cache_size())"
    )
    assert notebook.ns["seen"] == [(True, True, 2, (2,), (4,)), 3, 0, 1]
