"""What only a method, a context variable or a module's own `__getattr__` leads to: a run of ours leaves no trace in it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jitmagic.notebook import session

MAGICS = ("%%jit -q", "%%jitcheck -q")
LISTENERS = {
    "a list": ("subs = [seen.append]", "for call in subs:\n        call(1)"),
    "a dict": ("subs = {'step': seen.append}", "subs['step'](1)"),
    "a tuple of methods": ("subs = (seen.extend,)", "subs[0]([1])"),
    "an attribute": ("import types\nsubs = types.SimpleNamespace(call=seen.append)", "subs.call(1)"),
}


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("name", LISTENERS)
def test_listeners_are_called_as_often_as_without_the_magic(notebook: Any, name: str, magic: str) -> None:
    made, call = LISTENERS[name]
    notebook.ok(f"seen = []\n{made}")
    notebook.ok(f"{magic}\ndef f(x):\n    {call}\n    return x * 2\nf(jnp.ones(1))")
    assert notebook.ns["seen"] == [1]


@pytest.mark.parametrize("magic", MAGICS)
def test_what_a_context_variable_holds(notebook: Any, magic: str) -> None:
    notebook.ok("import contextvars\nheld = contextvars.ContextVar('held')\n_ = held.set([])")
    notebook.ok(f"{magic}\ndef f(x):\n    held.get().append(1)\n    return x * 2\nf(jnp.ones(1))")
    assert notebook.ok("held.get()") == [1]


@pytest.mark.parametrize("magic", MAGICS)
def test_a_module_that_makes_its_attributes_is_asked_by_the_user_alone(
    notebook: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, magic: str
) -> None:
    (tmp_path / "lazy_module.py").write_text(
        "n = 0\ndef __getattr__(k):\n    if k != 'thing':\n        raise AttributeError(k)\n    global n\n    n += 1\n    return n\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    notebook.ok("import lazy_module")
    value = notebook.ok(f"{magic}\ndef f(x):\n    return x * lazy_module.thing\nfloat(f(jnp.ones(1))[0])")
    assert (value, notebook.ns["lazy_module"].n) == (1.0, 1)
    del sys.modules["lazy_module"]


HOLDERS = {
    "an exception": ("held = ValueError([])", "held.args[0]"),
    "what a generator returns": ("held = StopIteration([])", "held.value"),
    "a slice": ("held = slice([], 1)", "held.start"),
    "a static method": ("held = staticmethod([].append)", "held.__func__.__self__"),
    "an object of ctypes": ("import ctypes\nheld = ctypes.py_object([])", "held.value"),
    "a weak dict": (
        "import weakref\nclass Log(list): pass\nlog = Log()\nheld = weakref.WeakValueDictionary(k=log)",
        "held['k']",
    ),
    "a weak set": (
        "import weakref\nclass Log(list):\n    __hash__ = object.__hash__\nlog = Log()\nheld = weakref.WeakSet([log])",
        "next(iter(held))",
    ),
}


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("name", HOLDERS)
def test_what_hardly_anything_leads_to(notebook: Any, name: str, magic: str) -> None:
    made, way = HOLDERS[name]
    notebook.ok(made)
    notebook.ok(f"{magic}\ndef f(x):\n    {way}.append(1)\n    return x * 2\nf(jnp.ones(1))")
    assert notebook.ok(f"list({way})") == [1]


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("kind", ["trace", "profile"])
def test_the_users_own_trace_function_sees_the_users_own_run(notebook: Any, magic: str, kind: str) -> None:
    notebook.ok(
        "import sys\nseen = []\ndef look(frame, event, arg):\n"
        "    if frame.f_code.co_name == 'f' and event == 'call':\n        seen.append(event)\n"
    )
    notebook.ok(
        f"{magic}\ndef f(x):\n    return x * 2\nsys.set{kind}(look)\ntry:\n    y = f(jnp.ones(1))\nfinally:\n    sys.set{kind}(None)"
    )
    assert notebook.ns["seen"] == ["call"]


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize(
    "make",
    [
        "Guard()",
        "kept = Other()\n    kept.me = kept",
        "kept = Below()\n    kept.me = kept",
        "kept = Guard()",
        "kept = Guard()\n    kept.me = kept",
        "held.append(Guard())",
        "box.g = Guard()",
    ],
)
def test_an_objects_end_is_counted_once(notebook: Any, magic: str, make: str) -> None:
    notebook.ok(
        "import types\nheld, box, alive = [], types.SimpleNamespace(g=None), 0\nclass Guard:\n    def __init__(self):\n        global alive\n        alive += 1\n"
        "    def __del__(self):\n        global alive\n        alive -= 1\nOther = Guard\nclass Below(Guard): pass"
    )
    notebook.ok(
        f"{magic}\ndef f(x):\n    {make}\n    return x * 2\nf(jnp.ones(1))\n"
        "import gc\nheld.clear(); box.g = None; _ = gc.collect()"
    )
    notebook.ok("_ = gc.collect()")
    assert notebook.ns["alive"] == 0


@pytest.mark.parametrize("magic", MAGICS)
def test_what_is_deleted_is_gone(notebook: Any, magic: str) -> None:
    notebook.ok(
        "import gc, weakref\nclass Model:\n    def __init__(self):\n        self.w = jnp.ones(3)\nmodel = Model()\ngone = []\n"
        "_ = weakref.finalize(model, gone.append, 1)"
    )
    notebook.ok(f"{magic}\ndef f(x):\n    return x * model.w\nf(jnp.ones(3))")
    notebook.ok("del model\n_ = gc.collect()")
    assert notebook.ns["gone"] == [1]


@pytest.mark.parametrize("magic", MAGICS)
def test_a_warning_that_is_shown_once_is_shown_once(notebook: Any, magic: str) -> None:
    notebook.ok(
        "import itertools, warnings\nshown, number, table = [], itertools.count(), np.zeros(3)\n"
        "def warn():\n    warnings.warn('slow path')\nshow = warnings.showwarning\n"
        "warnings.showwarning = lambda message, *more: shown.append(str(message))\n"
        "warnings.simplefilter('default')"
    )
    notebook.ok(  # IPython itself forgets at each cell
        f"{magic}\ndef f(x):\n    next(number)\n    return x * jnp.asarray(table)\n"
        "warn()\nf(jnp.ones(3))\nwarn()\nf(jnp.ones(4)[:3])\nwarn()\nwarnings.showwarning = show"
    )
    assert notebook.ns["shown"] == ["slow path"]


@pytest.mark.parametrize(
    "write, read",
    [
        ("tries.append(1)", "len(tries)"),
        ("os.environ['TRIES'] = str(int(os.environ.get('TRIES', 0)) + 1)", "int(os.environ['TRIES'])"),
        ("model.n = model.n + 1", "model.n"),
        ("global n; n += 1", "n"),
    ],
)
def test_what_a_call_wrote_before_its_own_error_stays(
    notebook: Any, write: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIES", "0")
    notebook.ok(
        "import os, types\ntries, n, model = [], 0, types.SimpleNamespace(n=0)\nclass NotYet(Exception): pass"
    )
    notebook.ok(
        f"%%jit -q\ndef f(x):\n    {write}\n    if {read} < 3:\n        raise NotYet\n    return x * 2\n"
        "for attempt in range(1, 9):\n    try:\n        f(1.0)\n        break\n    except NotYet:\n        pass"
    )
    assert (notebook.ns["attempt"], notebook.ok(read)) == (3, 3)


def test_what_a_call_that_cannot_be_traced_wrote_stays_but_for_traced_values(notebook: Any) -> None:
    notebook.ok("log, last = [], [0.0]")
    notebook.error(
        "%%jit -q\ndef f(x):\n    log.append(1)\n    last[0] = x\n    return x if x > 0 else -x\nf(jnp.float32(1))"
    )
    assert (notebook.ns["log"], notebook.ns["last"]) == ([1], [0.0])


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_call_makes_is_gone_when_it_ends(notebook: Any, magic: str, fails: bool) -> None:
    notebook.ok("import weakref\nseen = []\nclass Made: pass")
    end = "return x if x > 0 else -x" if fails else "return -x"
    notebook.run(
        f"{magic}\ndef f(x):\n    made = Made()\n    weakref.finalize(made, seen.append, 1)\n    {end}\nf(1.0)\nthen = list(seen)"
    )
    if not (fails and magic == "%%jit -q"):  # IPython keeps the frames of an error
        assert notebook.ns["then"] == notebook.ns["seen"] == [1]


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize(
    ("read", "write"),
    [
        ("csv.field_size_limit()", "csv.field_size_limit(csv.field_size_limit() + 1)"),
        ("threading.stack_size()", "threading.stack_size(threading.stack_size() + 2**26)"),
        ("len(csv.list_dialects())", "csv.register_dialect(f'd{len(csv.list_dialects())}')"),
    ],
)
def test_settings_of_modules_written_in_c_are_set_once(
    notebook: Any, read: str, write: str, magic: str
) -> None:
    notebook.ok(
        f"import csv, threading\nread = lambda: {read}\nlimit, size = csv.field_size_limit(), threading.stack_size()\nseen = [read()]"
    )
    notebook.ok(f"{magic}\ndef f(x):\n    seen.append(read())\n    {write}\n    return x * 2\nf(1.0)")
    first, then = notebook.ns["seen"]
    notebook.ok("csv.field_size_limit(limit); threading.stack_size(size)")
    assert first == then


def test_the_memory_that_a_run_of_ours_has_is_no_change(notebook: Any) -> None:
    notebook.error(
        "%%jit -q\nimport functools\n@functools.lru_cache\ndef g(a):\n    return jnp.exp(-a)\ndef f(x, a):\n    return g(a) * x\n"
        "f(jnp.arange(3.0), 0.5)"
    )
    assert notebook.kinds("error", "warning") == ["tracer-hash"]


def test_a_compiled_function_that_a_library_calls_is_called_once(notebook: Any) -> None:
    notebook.ok(
        "%%jit -q\nimport math\nold, calls = math.floor, []\ndef floor(x):\n    calls.append(x)\n    return old(x)\nmath.floor = floor"
    )
    try:
        notebook.ok("%%jit -q\ndef f(x):\n    return x * math.floor(2.5)\nf(jnp.ones(2))")
    finally:
        notebook.ok("math.floor = old")
    assert len(notebook.ns["calls"]) == 1


@pytest.mark.parametrize("magic", ["%%jitcheck -q\n", "%%jit -q\n"])
@pytest.mark.parametrize("where", ["here", "later"])
@pytest.mark.parametrize(
    "given, call",
    [
        ("Model()", "f(given, 1.0)"),
        ("{'a': [Model()]}", "f(given, 1.0)"),
        ("(Model(), jnp.ones(3))", "f(x=1.0, m=given)"),
        ("jnp.ones(3)", "f({'w': given}, 1.0)"),
    ],
)
def test_what_a_call_was_given_is_free_once_it_is_deleted(
    notebook: Any, magic: str, where: str, given: str, call: str
) -> None:
    notebook.ok(
        "import gc, weakref\n@jax.tree_util.register_pytree_node_class\nclass Model:\n    w = 1.0\n"
        "    def tree_flatten(self): return (self.w,), None\n"
        "    @classmethod\n    def tree_unflatten(cls, aux, parts): return cls()\n"
        f"given = {given}\ngone = [weakref.ref(v) for v in jax.tree.leaves(given, is_leaf=lambda v: type(v) is Model)]"
    )
    cell = f"{magic}def f(m, x):\n    return jax.tree.leaves(m)[0] * x\n_ = {call}\n"
    notebook.ok(cell + ("del given" if where == "here" else ""))
    if where == "later":
        notebook.ok("del given")
    notebook.ok("_ = gc.collect()")
    assert notebook.ok("[r() for r in gone if r() is not None]") == []
    assert "itself failed" not in notebook.ok("%jitcheck -o").to_text()


def test_calls_whose_arguments_live_on_are_kept_when_something_else_is_deleted(notebook: Any) -> None:
    notebook.ok("class Model: pass\nmodel, n, other = Model(), [3], 1.0")
    notebook.ok("%%jitcheck -q\ndef f(x, n, m):\n    return x * n[0]\n_ = f(2.0, n, m=model)\ndel other")
    [checker] = session._sessions[-1].checkers
    [call] = checker.seen.samples
    assert call.args == (2.0, [3], notebook.ns["model"])
    del call
    notebook.ok("del model")
    assert checker.seen.samples == []
