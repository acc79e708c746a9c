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
