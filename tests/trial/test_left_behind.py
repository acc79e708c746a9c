"""What a run of ours could leave behind where nobody looks: modules, derived classes, tracebacks, listeners."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import pytest

from jitmagic.tracing.stages import never_ends
from tests.conftest import Notebook

CHECK = "%%jitcheck -q\n"
IMPORTED = {
    "sets what others have": ("import other_of_users as o\no.n = getattr(o, 'n', 0) + 1\n", "other_of_users.n"),
    "sets an item": ("import other_of_users as o\no.table['n'] = o.table.get('n', 0) + 1\n", "other_of_users.table['n']"),
    "calls for what it does": ("import other_of_users as o\no.seen.append(1)\n", "len(other_of_users.seen)"),
}  # fmt: skip


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Where modules of the user's lie."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "other_of_users.py").write_text("table, seen = {}, []\n")
    yield tmp_path
    for name in ("other_of_users", "new_of_users"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("what", IMPORTED)
def test_a_module_that_changes_others_is_run_by_the_users_own_call_alone(notebook: Notebook, modules, what):
    source, look = IMPORTED[what]
    (modules / "new_of_users.py").write_text(source)
    notebook.ok(f"{CHECK}def f(x):\n    import new_of_users\n    return x + 1\ny = f(1.0)")
    assert notebook.ok(f"import other_of_users\n{look}") == 1
    assert any(
        "it imports `new_of_users` for the first time" in n for n in notebook.report().functions[0].notes
    )


def test_a_module_that_only_binds_names_is_traced_through(notebook: Notebook, modules):
    (modules / "new_of_users.py").write_text(
        '"""Text."""\nimport math\nfrom dataclasses import dataclass\nK: int = 3\nTABLE = {}\n'
        "@dataclass\nclass P:\n    a: float = 1.0\ndef h(x): return x * K\nif K > 2:\n    L = math.pi\n"
    )
    notebook.ok(
        f"{CHECK}def f(x):\n    from new_of_users import h\n    return h(x) if x > 0 else x\ny = f(1.0)"
    )
    assert "tracer-bool" in notebook.kinds()
    assert float(notebook.ns["y"]) == 3.0


DERIVED = {
    "a class": "class New(Base): pass",
    "by `type`": "type('New', (Base,), {})",
    "a dataclass": "import dataclasses\n    New = dataclasses.make_dataclass('New', [('a', int)], bases=(Base,))",
}


@pytest.mark.parametrize("what", DERIVED)
def test_classes_that_a_run_of_ours_derives_are_gone(notebook: Notebook, what):
    cell = f"class Base: pass\ndef f(x):\n    {DERIVED[what]}\n    return x + len(Base.__subclasses__())\ny = f(1.0)"
    notebook.ok(CHECK + cell)
    assert float(notebook.ns["y"]) == 2.0


RAISED = {
    "always": ("def f(x): raise E", "f(x)"),
    "where a number is asked for": ("def f(x, bad):\n    if bad: raise E\n    return x", "f(x, True)"),
    "through a helper": ("def g(): raise E\ndef f(x):\n    g()\n    return x", "f(x)"),
    "of another": (
        "def f(x):\n    try: 1 / 0\n    except ZeroDivisionError as e: raise E from e\n    return x",
        "f(x)",
    ),
}


@pytest.mark.parametrize("how", RAISED)
def test_an_exception_of_the_users_has_the_frames_of_their_own_call_alone(notebook: Notebook, how):
    definition, call = RAISED[how]
    look = "names, t = [], E.__traceback__\nwhile t: names.append(t.tb_frame.f_code.co_name); t = t.tb_next\nnames"

    def frames(magic):
        notebook.ok("E, x = ValueError('mine'), 1.0")
        notebook.ok(f"{magic}{definition}\ntry: {call}\nexcept ValueError: pass")
        return notebook.ok(look)

    assert frames(CHECK) == frames("")


def test_what_a_failing_trace_made_does_not_live_on(notebook: Notebook):
    notebook.ok(
        "import gc, weakref\ngc.disable()\nmade = weakref.WeakSet()\nclass W: pass\n"
        "def get():\n    w = W()\n    made.add(w)\n    return w"
    )
    try:
        notebook.ok(
            f"{CHECK}def f(x):\n    w = get()\n    return x if x > 0 else -x\nf(1.0)\nleft = len(made)"
        )
        assert notebook.ns["left"] == 0
    finally:
        notebook.ok("gc.enable()")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12: its events")
@pytest.mark.parametrize("magic", [CHECK, "%%jit -q\n"], ids=["check", "jit"])
def test_what_the_users_tool_is_told_of_one_function_are_their_own_calls(notebook: Notebook, magic):
    notebook.ok("import sys\nm, ev = sys.monitoring, []\nm.use_tool_id(1, 'mine')\nx = jnp.ones(2)")
    notebook.ok(
        f"{magic}def f(x): return x + 1\n"
        "m.register_callback(1, m.events.PY_START, lambda code, at: ev.append(code.co_name))\n"
        "m.set_local_events(1, getattr(f, '__wrapped__', f).__code__, m.events.PY_START)\ny = f(x)"
    )
    try:
        assert notebook.ns["ev"] == ["f"]
    finally:
        notebook.ok("m.register_callback(1, m.events.PY_START, None)\nm.free_tool_id(1)")


ITERATORS = {
    "of a list": "iter([1.0, 2.0, 3.0])", "a count": "itertools.count()", "in a list": "[iter([1.0, 2.0, 3.0])]",
    "a cache": "functools.lru_cache(lambda n: n + 1)",
}  # fmt: skip


@pytest.mark.parametrize("what", ITERATORS)
def test_an_object_that_the_cell_makes_is_rewound_for_a_later_cell(notebook: Notebook, what):
    use = {"in a list": "next(o.it[0])", "a cache": "o.it(1.0)"}.get(what, "next(o.it)")
    notebook.ok(
        f"%%jitcheck\nimport functools, itertools\nclass Data:\n    def __init__(self): self.it = {ITERATORS[what]}\n"
        f"data = Data()\ndef f(x, o): return x + {use}\ny = f(jnp.ones(2), data)"
    )
    notebook.ok("y = f(y, data)")
    notebook.report()
    assert "itself failed" not in notebook.text
    assert notebook.ok(use.replace("o.", "data.")) == {"a count": 2, "a cache": 2.0}.get(what, 3.0)


def test_a_view_that_is_let_go_of_in_the_cell_is_no_error_of_ours(notebook: Notebook):
    notebook.ok(
        f"{CHECK}b = bytearray(8)\nview = memoryview(b)\ndef f(x):\n    view[0] = 1\n    return x\ny = f(1.0)\nview.release()"
    )
    assert "itself failed" not in notebook.text


OF_CLASSES = {
    "nested": ("class H:\n    class S: n = 0", "H.S.n += 1", "H.S.n"),
    "an attribute": ("class S: n = 0\nclass H: k = S", "H.k.n += 1", "S.n"),
    "in a table of a class": ("class S: n = 0\nclass H: table = {'s': S}", "H.table['s'].n += 1", "S.n"),
    "in a list": ("class S: n = 0\nall_of = [(S, 1)]", "all_of[0][0].n += 1", "S.n"),
    "of a metaclass": (
        "class M(type):\n    made = []\n    def __init__(cls, *a): M.made.append(cls)\nclass S(metaclass=M): n = 0",
        "M.made[0].n += 1",
        "S.n",
    ),
    "derived": ("class H: pass\nclass S(H): n = 0", "H.__subclasses__()[0].n += 1", "S.n"),
    "by its name": ("class S: n = 0", "globals()['S'].n += 1", "S.n"),
    "what it holds": ("class H:\n    class S: log = []", "H.S.log.append(1)", "len(H.S.log)"),
}


@pytest.mark.parametrize("magic", ["%%jitcheck -q", "%%jitcheck", "%%jit -q"])
@pytest.mark.parametrize("where", OF_CLASSES)
def test_a_class_is_changed_by_the_users_own_calls_alone(notebook: Notebook, where, magic):
    made, write, seen = OF_CLASSES[where]
    notebook.ok(f"{magic}\n{made}\ndef f(x):\n    {write}\n    return x + 1\ny = f(1.0)")
    assert notebook.ok(seen) == 1


def test_an_attribute_of_a_nested_class_is_dynamic(notebook: Notebook):
    notebook.ok(
        "%%jit --dyn H.S.n\nclass H:\n    class S: n = 0\ndef f(x):\n    H.S.n += 1\n    return x + H.S.n"
    )
    assert [float(notebook.ok("f(1.0)")) for _ in range(3)] == [2, 3, 4]
    assert notebook.kinds("error", "warning") == [] and int(notebook.ok("H.S.n")) == 3


@pytest.mark.parametrize("name", ["update", "add", "append", "extend", "remove", "sort", "go"])
def test_a_function_of_a_module_that_is_named_like_a_method(notebook: Notebook, modules, name):
    (modules / "new_of_users.py").write_text(
        f"seen = []\ndef {name}(x):\n    seen.append(x)\n    return x * 2\n"
    )
    notebook.ok(
        f"%%jit -q\nimport new_of_users\ndef f(x):\n    return new_of_users.{name}(x)\ny = f(jnp.ones(2))"
    )
    assert not any(isinstance(v, jax.core.Tracer) for v in notebook.ok("new_of_users.seen"))
    assert notebook.kinds("error", "warning")


def test_a_weak_set_goes_on_to_hear_of_ends(notebook: Notebook):
    notebook.ok(
        "%%jitcheck\nimport weakref\nclass Node: pass\nws, keep = weakref.WeakSet(), []\n"
        "def f(x):\n    n = Node()\n    keep.append(n)\n    ws.add(n)\n    return x * 2\nf(1.0); f(1.0)"
    )
    assert notebook.ok("keep.pop()\nlen(ws)") == 1
    assert notebook.ok("keep.clear()\nlen(ws), list(ws)") == (0, [])


@pytest.mark.parametrize("default", ["", ", default=None", ", default=3.0"])
def test_no_traced_value_stays_in_a_context_variable(notebook: Notebook, default):
    notebook.ok(f"import contextvars\nv = contextvars.ContextVar('v'{default})")
    notebook.ok("%%jit -q\ndef f(x):\n    v.set(x * 3)\n    return x + 1\ny = f(jnp.ones(2))")
    assert notebook.ok("v.get(None)") == (3.0 if "3" in default else None)
    assert "leaked-tracer" in notebook.kinds("error", "warning")


def test_a_trial_never_compiles_a_loop_without_end(notebook: Notebook):
    """XLA crashes on some; what it compiles could not be stopped."""
    notebook.ok(
        "import threading, time\nclass W:\n    def __init__(self): self.running, self.n = True, 0\n    def loop(self):\n"
        "        while self.running: self.n += 1; time.sleep(0.005)"
    )
    notebook.ok(
        "%%jitcheck\nw = W()\ndef run(): w.loop()\nt = threading.Thread(target=run, daemon=True)\nt.start()\n"
        "time.sleep(0.1)\nw.running = False\nt.join(5)\nended = not t.is_alive()"
    )
    assert notebook.ns["ended"] and notebook.ns["w"].running is False


LOOPS = {
    "constant": (lambda c: True, True),
    "of a value from outside": (lambda c: OUTSIDE > 0, True),
    "what it carries": (lambda c: c < 3, False),
    "what it carries, and more": (lambda c: (c + OUTSIDE) * 2 < 9, False),
}
OUTSIDE = jnp.int32(2)


@pytest.mark.parametrize("asks", LOOPS)
def test_loops_that_never_end_are_known(asks):
    condition, endless = LOOPS[asks]
    traced = jax.jit(lambda x: jax.lax.while_loop(condition, lambda c: c + 1, x)).trace(0)
    assert never_ends(traced.jaxpr) is endless


RAISED_AGAIN = {
    "a global": ("STOP = ValueError('end')", "STOP"),
    "an attribute": ("class S: pass\nS.stop = ValueError('end')", "S.stop"),
    "an item, of a class of the user's": ("class Stop(Exception): pass\nstops = [Stop('end')]", "stops[0]"),
}


@pytest.mark.parametrize("magic", ["%%jitcheck -q", "%%jit -q"])
@pytest.mark.parametrize("which", RAISED_AGAIN)
def test_an_exception_that_is_raised_again_gains_no_frames_of_ours(notebook: Notebook, which, magic):
    made, stop = RAISED_AGAIN[which]
    notebook.ok(
        f"{magic}\n{made}\ndef f(x):\n    try: raise {stop}\n    except Exception: pass\n    return x * 2\ny = f(jnp.ones(2))"
    )
    seen, traceback = 0, notebook.ok(stop).__traceback__
    while traceback is not None:
        seen, traceback = seen + 1, traceback.tb_next
    assert seen == 1


@pytest.mark.parametrize(
    "failing", ["float((W * x).sum())", "W.sum() if (W * x).sum() > 0 else x", "int(x) + W.sum()"]
)
def test_the_constants_of_a_trace_that_fails_do_not_live_on(notebook: Notebook, failing):
    notebook.ok("import gc, weakref\nW = jnp.ones((50, 50))")
    notebook.ok(f"%%jitcheck -q\ndef f(x): return {failing}\ny = f(1.0)")
    assert notebook.ok("r = weakref.ref(W)\ndel W\nf = None\ngc.collect()\nr() is None")
