"""What a library around jax keeps for all its callers is as it was after each run of ours: a stack of handlers, counts."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import Notebook

LIBRARY = """
import collections, weakref
STACK, COUNTS, SEEN, TRACES = [], collections.Counter(), {}, weakref.WeakKeyDictionary()
class Handler:
    def __init__(self): self.draws, self.trace = 0, {}
def handled(x):
    if STACK:
        handler = STACK[-1]
        handler.draws += 1
        handler.trace[f"site {handler.draws}"] = x
    return x
def counted(fn):
    def run(x):
        COUNTS[fn.__name__] += 1
        SEEN.setdefault(fn.__name__, []).append(x)
        TRACES.setdefault(fn, []).append(x)
        return fn(x)
    return run
"""
CELLS = {
    "handlers": (
        "h = haiku.Handler(); haiku.STACK.append(h)\n"
        "def f(x):\n    x = haiku.handled(x)\n    return x * float(x.sum())\n"
        "y = f(jnp.ones(2)); y = f(y)",
        "h.draws, {k: v.tolist() for k, v in h.trace.items()}, len(haiku.STACK)",
    ),
    "one inside of another": (
        "h = haiku.Handler()\n"
        "def f(x):\n    haiku.STACK.append(h)\n    x = haiku.handled(x)\n    haiku.STACK.pop()\n"
        "    return x if x.sum() > 0 else -x\ny = f(jnp.ones(2))",
        "h.draws, list(h.trace), len(haiku.STACK)",
    ),
    "counts": (
        "@haiku.counted\ndef f(x):\n    return x * float(x.sum())\ny = f(jnp.ones(2))",
        "dict(haiku.COUNTS), [v.tolist() for v in haiku.SEEN['f']]",
    ),
    "counts of what jax traces": (
        "import jax\ng = jax.jit(haiku.counted(lambda x: x + 1))\n"
        "def f(x):\n    return g(x) * float(x.sum())\ny = f(jnp.ones(2))",
        "dict(haiku.COUNTS), len(haiku.SEEN['<lambda>']), [len(v) for v in haiku.TRACES.values()]",
    ),
}


@pytest.mark.parametrize("what", CELLS)
def test_what_a_library_keeps_for_all(notebook: Notebook, what, tmp_path, monkeypatch):
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "haiku.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(packages))
    cell, shown = CELLS[what]
    begin = "import importlib, haiku, jax.numpy as jnp\nimportlib.reload(haiku)"
    try:
        seen = []
        for head in ("", "%%jitcheck\n"):
            notebook.ok(begin)
            notebook.ok(head + cell)
            seen.append(eval(shown, notebook.ns))
        assert seen[0] == seen[1]
    finally:
        sys.modules.pop("haiku", None)


DECORATORS = """
import contextlib
import functools
CALLS = []
class Meta(type):
    def __call__(cls, *args):
        CALLS.append(1)
        return super().__call__(*args)
class Odd:
    def __add__(self, other):
        CALLS.append(1)
        return other + 1
    def __getitem__(self, key):
        CALLS.append(1)
        return 1.0
    def __len__(self):
        CALLS.append(1)
        return 1
    @property
    def rate(self):
        CALLS.append(1)
        return 1.0
    def __getattr__(self, name):
        if name != "decay":
            raise AttributeError(name)
        CALLS.append(1)
        return 1.0
class Hook:
    def __init_subclass__(cls): CALLS.append(1)
@contextlib.contextmanager
def config():
    CALLS.append(1)
    yield
def key(v):
    CALLS.append(1)
    return v
class Core: n = 0
def traced(fn):
    @functools.wraps(fn)
    def inner(*args):
        CALLS.append(1)
        Core.n += 1
        return fn(*args)
    return inner
class Tracker:
    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self.fn = fn
    def __call__(self, *args):
        CALLS.append(1)
        return self.fn(*args)
"""
BODY = "(x):\n    return x * 2 if x.sum() > 0 else x\n"
DECORATED = {
    "a function": f"@lib.traced\ndef f{BODY}y = f(x)",
    "an object": f"@lib.Tracker\ndef f{BODY}y = f(x)",
    "within a compiled one": "@jax.jit\n@lib.traced\ndef f(x):\n    return x * 2\ny = f(x)",
    "around a compiled one": "@lib.traced\n@jax.jit\ndef f(x):\n    return x * 2\ny = f(x)",
}
HANDED_ON = {
    "to jax": "jax.vmap(h)(x)",
    "to Python": "sum(map(h, [x]))",
    "to a loop": "jax.lax.scan(lambda c, v: (h(c), v), x, x)[0]",
    "to a tree": "jax.tree_util.tree_map(h, {'a': x})['a']",
}


@pytest.fixture
def lib(notebook: Notebook, tmp_path, monkeypatch):
    """A library of which nothing is known, with decorators that count calls."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "lib_of_decorators.py").write_text(DECORATORS)
    monkeypatch.syspath_prepend(str(packages))
    notebook.ok("import lib_of_decorators as lib\nx = jnp.ones(2)")
    yield
    sys.modules.pop("lib_of_decorators", None)


@pytest.mark.parametrize("magic", ["%%jitcheck -q\n", "%%jitcheck\n"])
@pytest.mark.parametrize("what", DECORATED)
def test_a_decorator_of_which_nothing_is_known_runs_in_the_users_calls_alone(
    notebook: Notebook, lib, what, magic
):
    notebook.ok(magic + DECORATED[what])
    assert notebook.ok("len(lib.CALLS)") == 1
    (told,) = notebook.report().functions
    assert any("it calls `lib_of_decorators." in note for note in told.notes)


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="needs Python 3.12: what is called is told with its argument"
)
@pytest.mark.parametrize("what", HANDED_ON)
def test_what_is_handed_on_and_of_which_nothing_is_known_runs_in_the_users_calls_alone(
    notebook: Notebook, lib, what
):
    notebook.ok("import jax\n@lib.traced\ndef h(x):\n    return x * 2")
    cell = f"def f(x):\n    y = {HANDED_ON[what]}\n    return y if x.sum() > 0 else x\n"
    notebook.ok(cell + "y = f(x)")
    calls = notebook.ok("len(lib.CALLS)")
    notebook.ok(f"lib.CALLS.clear()\n%jitcheck -q\n{cell}y = f(x)")
    assert notebook.ok("len(lib.CALLS)") == calls


IMPLICIT = {
    "an operator": "x = odd + x",
    "an item": "x = x * odd[0]",
    "a length": "x = x * len(odd)",
    "a property": "x = x * odd.rate",
    "any attribute": "x = x * odd.decay",
    "a context": "with lib.config(): x = x * 2",
    "a stack of contexts": "with contextlib.ExitStack() as s: s.enter_context(lib.config())",
    "a derived class": "class K(lib.Hook): pass",
    "a key to sort by": "sorted([1], key=lib.key)",
    "a class of a metaclass": "Made()",
}


@pytest.mark.parametrize("magic", ["%%jitcheck", "%%jit --no-time"])
@pytest.mark.parametrize("what", IMPLICIT)
def test_what_python_calls_for_the_user_runs_in_the_users_calls_alone(notebook: Notebook, lib, what, magic):
    notebook.ok("import contextlib\nodd = lib.Odd()\nclass Made(metaclass=lib.Meta): pass")
    cell = f"def f(x):\n    {IMPLICIT[what]}\n    return x if x.ndim else -x\n"
    if magic == "%%jitcheck":
        cell = cell.replace("x.ndim", "x.sum() > 0")
    notebook.ok(cell + "y = f(x)")
    calls = notebook.ok("len(lib.CALLS)")
    notebook.ok("lib.CALLS.clear()")
    notebook.ok(f"{magic}\n{cell}y = f(x)")
    notebook.report()
    assert notebook.ok("len(lib.CALLS)") == calls > 0


def test_what_jax_asks_for_itself_stands_in_nobodys_way(notebook: Notebook):
    """As it is asked whether a traceback is for IPython."""
    notebook.ok("%%jitcheck -q\ndef f(x): return float(x.sum())\ny = f(jnp.ones(2))")
    assert notebook.kinds() == ["tracer-array-conversion"]
