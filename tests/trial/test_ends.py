"""What the user drops goes at once, wherever that can be noticed."""

from __future__ import annotations

import ast
import gc
import traceback
from typing import Any

import pytest

POOL = "class Thing: pass\npool = [Thing() for i in range(4)]\n"
NOTICED = {
    "by a finalizer": (
        "import weakref\nlog = []\n" + POOL + "fins = [weakref.finalize(p, log.append, i) for i, p in enumerate(pool)]",
        "pool.pop()",
        "list(log)",
    ),
    "by a callback": (
        "import weakref\nlog = []\n" + POOL + "refs = [weakref.ref(p, lambda r: log.append(1)) for p in pool]",
        "pool.pop()",
        "list(log)",
    ),
    "by a method that is called back": (
        "import weakref\nlog = []\nclass Log:\n    def gone(self, r): log.append(2)\n    def __call__(self, r): log.append(3)\n"
        + POOL + "refs = [weakref.ref(p, Log().gone) for p in pool[:3]] + [weakref.ref(pool[3], log.append)]",
        "pool.pop()",
        "len(log)",
    ),
    "by an object that is called back": (
        "import weakref\nlog = []\nclass Log:\n    def __call__(self, r): log.append(3)\n"
        + POOL + "refs = [weakref.ref(p, Log()) for p in pool]",
        "pool.pop()",
        "list(log)",
    ),
    "by __del__": (
        "log = []\nclass Thing:\n    def __init__(self, n): self.n = n\n    def __del__(self, log=log): log.append(self.n)\npool = {i: Thing(i) for i in range(4)}",
        "del pool[max(pool)]",
        "list(log)",
    ),
    "by __del__, of a name": (
        "log = []\nclass Thing:\n    def __init__(self, n): self.n = n\n    def __del__(self, log=log): log.append(self.n)\nnow = Thing(0)",
        "globals()['now'] = Thing(now.n + 1)",
        "list(log)",
    ),
    "by a weak set": (
        "import weakref\n" + POOL + "alive = weakref.WeakSet(pool)",
        "pool.pop()",
        "len(alive)",
    ),
    "by a weak set, asked inside": (
        "import weakref\n" + POOL + "alive, log = weakref.WeakSet(pool), []",
        "pool.pop()\n    log.append(len(alive))",
        "list(log)",
    ),
    "by a weak dict of arrays": (
        "import weakref, numpy as np\npool = [np.zeros(2) for i in range(4)]\nalive = weakref.WeakValueDictionary(enumerate(pool))",
        "pool.pop()",
        "sorted(alive)",
    ),
    "by a count of references": (
        "import sys\nheld = [1, 2]",
        "x = x + len(held)",
        "sys.getrefcount(held)",
    ),
    "by a look at all objects": (
        "import gc\n" + POOL,
        "pool.pop()",
        "sum(type(o) is Thing for o in gc.get_objects())",
    ),
    "by a look at all arrays": (
        "pool = [jnp.ones((37, i + 1)) for i in range(4)]",
        "pool.pop()",
        "sorted(a.shape[1] for a in jax.live_arrays() if a.shape[:1] == (37,))",
    ),
}  # fmt: skip


def asked(notebook: Any, magic: str, name: str, above: str = "") -> list[object]:
    setup, body, ask = NOTICED[name]
    notebook.ok("import jax, jax.numpy as jnp\npool = alive = held = now = fins = refs = None")
    notebook.ok(setup)
    notebook.ok(
        f"{magic}\n{above}def f(x):\n    {body}\n    return x * 2\nfound = []\n"
        f"f(1.0); found.append({ask})\nf(1.0); found.append({ask})"
    )
    return list(notebook.ns["found"])


@pytest.mark.parametrize("name", NOTICED)
def test_what_a_call_drops_is_gone_behind_it(notebook: Any, name: str) -> None:
    plain = asked(notebook, "", name)  # first: what is remembered of a cell reaches into later ones
    assert asked(notebook, "%%jitcheck -q", name) == plain


@pytest.mark.parametrize("name", [n for n in NOTICED if "inside" not in n and "all" not in n])
def test_behind_a_compiled_one_too(notebook: Any, name: str) -> None:
    plain = asked(notebook, "", name, above="@jax.jit\n")
    assert asked(notebook, "%%jit -q", name) == plain


@pytest.mark.parametrize("name", NOTICED)
def test_behind_one_in_a_cell_below_a_magic_too(notebook: Any, name: str) -> None:
    plain = asked(notebook, "", name)
    notebook.ok("%%jitcheck -q\ndef h(x):\n    return x * 2\nh(1.0)")
    assert asked(notebook, "", name) == plain


def test_what_an_earlier_call_was_given_is_gone_where_a_later_cell_asks(notebook: Any) -> None:
    notebook.ok("import jax, jax.numpy as jnp\nbig = jnp.ones((39, 3))")
    notebook.ok("%%jitcheck -q\ndef f(a):\n    return a.sum()\nf(big)")
    notebook.ok("big = None\ncount = sum(a.shape == (39, 3) for a in jax.live_arrays())")
    assert notebook.ns["count"] == 0


def test_the_report_says_what_was_left_out(notebook: Any) -> None:
    notebook.ok(f"import weakref\n{POOL}alive = weakref.WeakSet(pool)")
    notebook.ok(
        "%%jitcheck\ndef f(x):\n    pool.pop()\n    return x[0] if x > 0 else x\ntry: f(1.0)\nexcept TypeError: pass"
    )
    assert "would live on for it" in str(notebook.report())
    notebook.ok("%%jit\ndef f(x):\n    pool.pop()\n    return x * 2\nf(1.0)")
    assert "the run without jit was left out: `pool[0]` would live on" in " ".join(
        str(notebook.report()).split()
    )


LISTED = {
    "a handler of logs": "import logging\nclass Mine(logging.Handler):\n    def emit(self, r): pass\nm = Mine()",
    "a handler that logs": "import logging\nclass Mine(logging.Handler):\n    def emit(self, r): pass\n"
    "m = Mine()\nlogging.getLogger('mine').addHandler(m)",
}


@pytest.mark.parametrize("name", LISTED)
def test_what_a_library_lists_its_objects_in_is_not_the_users(notebook: Any, name: str) -> None:
    notebook.ok(LISTED[name] + "\nm.w = 2.0")
    notebook.ok("%%jit\ndef f(x):\n    return x * m.w\nf(1.0)")
    assert notebook.report().functions[0].timing.eager is not None
    notebook.ok("import weakref\nalive = weakref.WeakSet([m])")
    notebook.ok("%%jit\ndef f(x):\n    return x * m.w\nf(1.0)")
    assert notebook.report().functions[0].timing.eager is None


def test_other_cells_lose_nothing_by_it(notebook: Any) -> None:
    """A `__del__` or a weak reference that this cell does not lead to."""
    notebook.ok(
        "import weakref\nclass Other:\n    def __del__(self): pass\nother = Other(); ref = weakref.ref(other)"
    )
    notebook.ok("%%jit\ndef f(x):\n    return x * 2\nf(1.0)")
    assert notebook.report().functions[0].timing.eager is not None


FAILING = {
    "its own": "m = Model()\nraise ValueError('no')\n",
    "in a function": "m = Model()\ndef f(m):\n    raise ValueError('no')\nf(m)\n",
    "of another": "m = Model()\ntry:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('no') from e\n",
    "that is its own cause": "m = Model()\ne = ValueError('no')\nraise e from e\n",
}


@pytest.mark.parametrize("name", FAILING)
def test_a_run_of_ours_that_fails_keeps_nothing(name: str) -> None:
    from jitmagic.trial.beginning import Beginning
    from jitmagic.trial.play import play

    cell = "class Model: pass\n" + FAILING[name]
    gc.disable()
    try:
        ran = play(Beginning({"__name__": "__main__"}, ast.parse(cell)), cell, ())
        assert ran.failed == "ValueError" and ran.problem is not None
        assert not [o for o in gc.get_objects() if type(o).__qualname__ == "Model"]
    finally:
        gc.enable()


def test_an_error_of_the_users_that_is_raised_again_keeps_its_place() -> None:
    from jitmagic.trial.beginning import Beginning
    from jitmagic.trial.play import play

    def fails() -> None:
        raise ValueError("no")

    try:
        fails()
    except ValueError as exc:
        error = exc
    before = traceback.format_tb(error.__traceback__)
    names = {"__name__": "__main__", "error": error}
    assert play(Beginning(names, ast.parse("raise error\n")), "raise error\n", ()).failed == "ValueError"
    assert traceback.format_tb(error.__traceback__) == before


@pytest.mark.parametrize("magic", ["%%jitcheck", "%%jit"])
@pytest.mark.parametrize("how", ["kept.clear()", "del kept[0]", "kept = []"])
def test_generators_of_the_users_end_as_soon_as_they_let_go_of_them(notebook, magic, how):
    """A later cell that uses them is remembered, with what it reaches, so that it can be run again."""
    notebook.ok(
        f"{magic}\ndef items(x):\n    try:\n        for i in range(3): yield i\n    finally: ended.append(x)\n"
        "ended, kept = [], []\ndef f(x): return x * 2\ny = f(1.0)\nkept.append(items(1)); a = next(kept[0])"
    )
    notebook.ok("b = [next(g) for g in kept]")
    notebook.ok(how)
    assert notebook.ns["ended"] == [1]
