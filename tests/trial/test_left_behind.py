"""What a run of ours could leave behind where nobody looks: modules, derived classes, tracebacks, listeners."""

from __future__ import annotations

import sys

import pytest

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


def test_a_view_that_is_let_go_of_in_the_cell_is_no_error_of_ours(notebook: Notebook):
    notebook.ok(
        f"{CHECK}b = bytearray(8)\nview = memoryview(b)\ndef f(x):\n    view[0] = 1\n    return x\ny = f(1.0)\nview.release()"
    )
    assert "itself failed" not in notebook.text
