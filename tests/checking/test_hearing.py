"""Under `%%jitcheck`, and wherever nothing is compiled, a name stays what the cell has bound; its calls are heard."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from jitmagic.checking import hearing, subject
from jitmagic.notebook.session import current

CHECK = "%%jitcheck -q\n"
STAYS = [
    ("a function", "def f(x):\n    return x + 1", "type(f).__name__, f.__code__.co_name, inspect.isfunction(f)"),
    ("its help", "def f(x: int = 3):\n    'says'\n    return x", "f.__doc__, str(inspect.signature(f)), f.__defaults__, inspect.getdoc(f)"),
    ("what is set on it", "def f(x):\n    return x\nf.__doc__ = 'mine'\nf.kind = 2", "f.__doc__, f.__dict__"),
    ("what wraps it", "def f(x):\n    return x + 1\n@functools.wraps(f)\ndef g(x):\n    return f(x)", "g.__wrapped__ is f, vars(g).keys(), g(1.0)"),
    ("a partial of it", "def f(x, y):\n    return x + y\np = functools.partial(f, 1.0)", "p.func is f, p(2.0), type(p).__name__"),
    ("in a class", "def f(self, x):\n    return x + self.k\nclass C:\n    k = 2.0\n    step = f", "C.step is f, C().step(1.0), inspect.ismethod(C().step)"),
    ("in a registry", "reg = {}\ndef register(f):\n    reg[f.__name__] = f\n    return f\n@register\ndef f(x):\n    return x * 2", "reg['f'] is f, inspect.isfunction(reg['f']), reg['f'](3.0)"),
    ("matched", "def f(x):\n    return x\ndef kind(o):\n    match o:\n        case types.FunctionType():\n            return 'function'\n    return 'other'", "kind(f)"),
    ("a method", "class C:\n    def step(self, x):\n        return x\nc = C()", "inspect.isfunction(C.step), c.step(1.0), C.__dict__['step'] is C.step"),
    ("a memo", "@functools.cache\ndef f(n):\n    return n + 1\nf(1); f(1)", "f.cache_info().hits, type(f).__name__"),
    ("a vectorized function", "@np.vectorize\ndef f(a, b):\n    return a + b", "isinstance(f, np.vectorize), f([1, 2], 3).tolist()"),
    ("a partial that is a tree", "@jax.tree_util.Partial\ndef f(x):\n    return x * 2", "jax.tree.leaves(f), isinstance(f, jax.tree_util.Partial), f(2.0)"),
    ("a context manager", "class M:\n    def __init__(self, f): self.f = f\n    def __call__(self, x): return self.f(x)\n    def __enter__(self): return 5\n    def __exit__(self, *e): return None\n@M\ndef f(x):\n    return x\nwith f as five: pass", "five, type(f).__name__, f(1.0)"),
    ("a table", "class T:\n    def __init__(self, f): self.f = f\n    def __call__(self, x): return self.f(x)\n    def __len__(self): return 7\n    def __getitem__(self, k): return k\n    def __eq__(self, o): return True\n    __hash__ = None\n@T\ndef f(x):\n    return x", "len(f), f[3], f == 4, f(1.0), list(zip(f, range(2)))"),
    ("what jax compiles", "f = jax.jit(lambda x: x + 1)", "type(f).__name__, f(1.0), f.lower(1.0).as_text()[:6], isinstance(f, type(jax.jit(abs)))"),
    ("a compiled method", "class C:\n    @functools.partial(jax.jit, static_argnums=0)\n    def step(self, x):\n        return x * 2\nc = C()", "type(vars(C)['step']).__name__, c.step(1.0)"),
    ("an attribute that is compiled", "class C:\n    def __init__(self):\n        self.g = jax.jit(self.f)\n    def f(self, x):\n        return x\nc = C()", "type(vars(c)['g']).__name__, c.g(1.0)"),
    ("what nnx compiles", "from flax import nnx\n@nnx.jit\ndef f(x):\n    return x * 2", "type(f).__name__, f(1.0)"),
    ("what BrainPy compiles", "import brainpy.math as bm\n@bm.jit\ndef f(x):\n    return x * 2", "type(f).__name__, f(1.0)"),
    ("what Equinox compiles", "import equinox as eqx\n@eqx.filter_jit\ndef f(x):\n    return x * 2", "type(f).__name__, f(1.0)"),
    ("a rule of a derivative", "@jax.custom_jvp\ndef f(x):\n    return x * 3\n@f.defjvp\ndef rule(p, t):\n    return f(p[0]), t[0]", "type(f).__name__, float(f(2.0)), inspect.isfunction(rule)"),
]  # fmt: skip
IMPORTS = "import functools, inspect, types\n"


@pytest.mark.parametrize(("definition", "seen"), [row[1:] for row in STAYS], ids=[row[0] for row in STAYS])
@pytest.mark.parametrize("called", ["in its cell", "later"])
def test_what_the_cell_binds_stays_what_it_is(notebook, definition, seen, called):
    if "jax.jit" in definition and sys.version_info < (3, 12):
        pytest.skip("needs Python 3.12, which tells of the calls of what jax has compiled")
    notebook.ok(IMPORTS)
    notebook.ok(definition)
    plain = notebook.ok(f"str(({seen},))")
    cell = f"{CHECK}{definition}"
    if called == "later":
        notebook.ok(cell)
        assert notebook.ok(f"str(({seen},))") == plain
    else:
        assert notebook.ok(f"{cell}\nstr(({seen},))") == plain


OBJECTS = [row for row in STAYS if row[0] in ("a vectorized function", "a partial that is a tree", "a context manager", "a table")]  # fmt: skip


@pytest.mark.parametrize(
    ("definition", "seen"), [row[1:] for row in OBJECTS], ids=[row[0] for row in OBJECTS]
)
def test_objects_stay_what_they_are_where_functions_are_compiled(notebook, definition, seen):
    notebook.ok(definition)
    plain = notebook.ok(f"str(({seen},))")
    assert notebook.ok(f"%%jit -q\n{definition}\nstr(({seen},))") == plain
    told = notebook.report().to_dict()
    assert "is not compiled, and stays what it is" in str(told)


F = "def f(x, n=3, *rest, scale=1.0, **more):\n    kept.append((x, n, rest, scale, more))\n    return x\n"
PASSED = [
    ("f(1.0)", "(1.0,) {}"),
    ("f(1.0, 3)", "(1.0, 3) {}"),
    ("f(1.0, n=3)", "(1.0, 3) {}"),
    ("f(x=1.0)", "(1.0,) {}"),
    ("f(1.0, scale=1.0)", "(1.0,) {'scale': 1.0}"),
    ("f(1.0, scale=2.0)", "(1.0,) {'scale': 2.0}"),
    ("f(1.0, 3, 5)", "(1.0, 3, 5) {}"),
    ("f(*[1.0, 4], **{'a': 2})", "(1.0, 4) {'a': 2}"),
    ("list(map(f, [1.0]))", "(1.0,) {}"),
    ("functools.partial(f, n=4)(1.0)", "(1.0, 4) {}"),
    ("through(f)", "(1.0, 3) {}"),
]


@pytest.mark.parametrize(("call", "passed"), PASSED)
@pytest.mark.parametrize("where", ["its cell", "the magic line", "a later cell"])
def test_what_a_call_was_given_is_known(notebook, call, passed, where):
    notebook.ok("import functools\nkept = []\ndef through(g):\n    return g(1.0, 3)")
    line = f"%%jitcheck -q {call if where == 'the magic line' else ''}\n"
    notebook.ok(f"{line}{F}{call if where == 'its cell' else ''}")
    if where == "a later cell":
        notebook.ok(call)
    [checker] = current().last.checkers.values()
    [sample] = checker.seen.samples
    assert f"{sample.args} {sample.kwargs}" == passed and checker.seen.count == 1
    assert len(notebook.ns["kept"]) == 1


LATER = [
    ("another shape", "f(jnp.ones(3))", "for n in (4, 5, 6): f(jnp.ones(n))", 4),
    ("through another function", "f(jnp.ones(3))", "def run(g): return g(jnp.ones(4))\nrun(f)", 2),
    ("in a container", "fs = [f]", "[g(1.0) for g in fs]", 1),
    (
        "in a thread",
        "import threading",
        "t = threading.Thread(target=f, args=(1.0,)); t.start(); t.join()",
        1,
    ),
]


@pytest.mark.parametrize(
    ("first", "later", "calls"), [row[1:] for row in LATER], ids=[row[0] for row in LATER]
)
def test_later_calls_are_heard(notebook, first, later, calls):
    if "thread" in later and sys.version_info < (3, 12):
        pytest.skip("needs Python 3.12: 3.11 tells of the calls of one thread")
    notebook.ok(f"{CHECK}def f(x):\n    return x * 2\n{first}")
    notebook.ok(later)
    [f] = notebook.report().functions
    assert (f.name, f.calls) == ("f", calls)


def test_a_problem_that_a_later_call_shows_is_told_there(notebook):
    notebook.ok("%%jitcheck\ndef f(x, flag=True):\n    return x if flag else x * 2\nf(1.0)")
    assert notebook.kinds("error") == []
    notebook.ok("f(1.0, False)")
    assert any("JM101" in str(o.data) for o in notebook.outputs) and notebook.kinds("error") == [
        "tracer-bool"
    ]
    notebook.ok("f(1.0, False)")
    assert not notebook.outputs


def test_many_calls_are_counted_and_what_differs_is_still_seen(notebook):
    notebook.ok(f"{CHECK}def f(x):\n    return x + 1\nfor i in range(3000): f(i)\n")
    [f] = notebook.report().functions
    assert f.calls == 3000
    notebook.ok(
        f"{CHECK}def f(x):\n    return x.sum()\na, b = np.ones(2), np.ones(3)\nfor i in range(500): f(a)\nf(b)"
    )
    [checker] = current().last.checkers.values()
    assert [s.args[0].shape for s in checker.seen.samples] == [(2,), (3,)]


def test_a_function_that_the_notebook_has_bound_anew_is_forgotten(notebook):
    notebook.ok(f"{CHECK}def f(x):\n    return x\nf(1.0)")
    kept = weakref.ref(notebook.ns["f"])
    for n in range(2):  # what a cell starts from is kept until the next
        notebook.ok(f"{CHECK}def f(x):\n    return x + {n}\nf(1.0)")
    notebook.ok("f(2.0)")
    notebook.shell.displayhook.flush()
    gc.collect()
    assert kept() is None


def test_calls_inside_of_a_call_are_looked_at_with_it(notebook):
    notebook.ok("fast = jax.jit(lambda x: x)")
    notebook.ok(
        f"{CHECK}def inner(x):\n    return x + 1\n"
        "def outer(x):\n    return inner(x) + fast(x)\nfor _ in range(3): outer(1.0)\ninner(2.0)"
    )
    assert {f.name: f.calls for f in notebook.report().functions if f.calls} == {"outer": 3, "inner": 1}


JITTED = [
    ("called again", "f(1.0); f(2.0)\nfor _ in range(3): f(3.0)", (5, 1), []),
    ("with other shapes", "for n in (3, 4, 3, 4, 5): f(jnp.ones(n))", (5, 3), []),
    ("from a function of the cell", "def g(x):\n    return f(x)\nn = [g(1.0) for _ in range(4)]", (4, 1), []),
    ("very often, and then with another shape", "for _ in range(1200): f(1.0)\nfor _ in range(3): f(jnp.ones(2))", (1203, 2), []),
    ("by what is no Python, of which the first is told", "list(map(f, [1.0, 2.0]))", (1, 1), []),
    ("an array that was given away", "d = jax.jit(lambda x: x + 1, donate_argnums=0)\na = jnp.ones(3)\nb = d(a)\nd(a)", (0, 0), ["donated-reuse"]),
    ("an error that is caught", "b = jax.jit(lambda x: x if x > 0 else -x)\ntry: b(1.0)\nexcept Exception: pass", (0, 0), ["tracer-bool"]),
]  # fmt: skip


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12, which tells of every call")
@pytest.mark.parametrize(
    ("calls", "counted", "kinds"), [row[1:] for row in JITTED], ids=[row[0] for row in JITTED]
)
def test_calls_of_what_jax_runs_by_itself_are_counted(notebook, calls, counted, kinds):
    notebook.run(f"{CHECK}f = jax.jit(lambda x: x + 1)\n{calls}")
    told = {f.name: (f.calls, f.traces) for f in notebook.report().functions}
    assert told.get("f", (0, 0)) == counted and notebook.kinds("error") == kinds


def test_what_fails_in_the_trace_of_other_code_is_told_beside_what_the_cell_compiles(notebook):
    notebook.error(
        f"{CHECK}g = jax.jit(lambda x: x + 1)\ndef f(x):\n    return x if x > 0 else -x\n"
        "def h(x):\n    return x\ng(1.0)\njax.vmap(f)(jnp.ones(3))"
    )
    (found,) = [x for x in notebook.report().findings if x.severity == "error"]
    assert (found.kind, found.function) == ("tracer-bool", "f")
    assert {f.name: f.verdict for f in notebook.report().functions if f.calls}["f"] == "fails"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12, which tells of every call")
def test_a_value_that_changes_behind_a_thousand_calls_is_told(notebook):
    notebook.ok(
        f"{CHECK}gain = 2.0\nf = jax.jit(lambda x: x * gain)\nfor _ in range(1100): f(1.0)\ngain = 5.0\nf(1.0)"
    )
    assert "stale-constant" in notebook.kinds("error", "warning")


def test_a_value_that_a_later_cell_changes_is_told_of_what_jax_runs_by_itself(notebook):
    notebook.ok(f"{CHECK}gain = 2.0\nf = jax.jit(lambda x: x * gain)\nf(1.0)")
    notebook.ok("other = 1")
    assert "stale-constant" not in notebook.kinds("error", "warning")
    notebook.ok("gain = 5.0\nf(1.0)")
    assert "stale-constant" in notebook.kinds("error", "warning")


def test_an_error_of_the_users_has_no_frame_of_ours(notebook):
    """Compared with the plain cell: what the frame of a cell is called depends on the IPython."""

    def frames(source: str) -> tuple[str, list[str]]:
        error, names = notebook.error(source), []
        tb = error.__traceback__
        while tb is not None:
            names.append(tb.tb_frame.f_code.co_name)
            tb = tb.tb_next
        return repr(error), names[-2:]

    cell = "def f(x):\n    raise LookupError('mine')\nf(1.0)"
    assert frames(f"{CHECK}{cell}") == frames(cell)
    assert frames(cell)[1][-1] == "f"


def test_what_fails_in_the_trace_of_other_code_is_told(notebook):
    notebook.error(f"{CHECK}def f(x):\n    return x if x > 0 else -x\njax.vmap(f)(jnp.ones(3))")
    assert "tracer-bool" in notebook.kinds("error")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12: its events")
def test_between_cells_nothing_is_listened_to(notebook):
    notebook.ok(f"{CHECK}def f(x):\n    return x\nf(1.0)")
    assert (
        sys.monitoring.get_local_events(3, notebook.ns["f"].__code__) == 0
        if sys.monitoring.get_tool(3)
        else True
    )
    assert [sys.monitoring.get_tool(n) for n in (3, 4)] == [None, None]


def test_a_profiler_of_the_users_is_left_alone(notebook):
    seen = notebook.ok(
        f"{CHECK}import cProfile, sys\ndef f(x):\n    return x\nf(1.0)\n"
        "p = cProfile.Profile(); p.enable(); f(2.0); p.disable()\nf(3.0)\nlen(p.getstats()) > 0"
    )
    assert seen and sys.getprofile() is None


OFTEN_INSIDE = {
    "a function": ("def g(x):\n    return x + 1\ndef f(x):\n    for _ in range(200): g(1)\n    return x", "f(x)\ny = g(x)", 1),
    "itself": ("def g(n):\n    return n if n is x or n < 1 else g(n - 1)", "g(200)\ny = g(x)", 2),
    "of another that fails": ("def g(x):\n    return x + 1\ndef f(x):\n    for _ in range(200): g(1)\n    raise ValueError",
        "try: y = f(x)\nexcept ValueError: y = 1\ny = g(x)", 1),
    "in comprehensions": ("def g(x):\n    return x + 1\ndef f(x):\n    return x + sum(g(i) for i in range(200))", "y = f(x), g(x)", 1),
}  # fmt: skip


@pytest.mark.parametrize(("cell", "calls", "times"), OFTEN_INSIDE.values(), ids=OFTEN_INSIDE)
def test_of_what_is_called_often_inside_of_a_call_little_is_heard_until_that_has_ended(
    notebook, monkeypatch, cell, calls, times
):
    asked = []
    inside = hearing.inside_diagnosed
    monkeypatch.setattr(hearing, "inside_diagnosed", lambda frame: asked.append(1) or inside(frame))
    monkeypatch.setattr(hearing, "MOST_INSIDE", 10)
    notebook.ok("x = jnp.ones(3)")
    notebook.ok(f"{CHECK}{cell}\n{calls}")
    assert len(asked) < 40
    assert [f.calls for f in notebook.report().functions if f.name == "g"] == [times]


def test_a_failure_of_ours_while_listening_reaches_no_call(notebook, monkeypatch):
    def fails(heard, frame):
        raise AttributeError("no shape")

    monkeypatch.setattr(subject, "RAISE", False)
    monkeypatch.setattr(hearing.Heard, "may_show_more", fails)
    notebook.ok(CHECK + "def f(x):\n    return x + 1\ny = [f(i) for i in range(3)]")
    assert notebook.ns["y"] == [1, 2, 3]
    (told,) = notebook.report().functions
    notes = [n for n in told.notes if "listening" in n]
    assert notes == ["listening to its calls itself failed (AttributeError: no shape)"]
