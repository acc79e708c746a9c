"""What a run of ours gets of its own (memories, iterators) it finds in every place, and the user's stays untouched."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

CACHED = "import functools, jax.numpy as jnp\n@functools.lru_cache(maxsize=2)\ndef load(k): return [k]\n"
MEMORIES = {
    "in a dict, and given to map": ("fns = {'b': load}", "fns['b'](1).append(0); e = list(map(load, (5, 6)))"),
    "in a list, twice": ("fs = [load, load]; g = load", "fs[1](2).append(1); g(2).append(1)"),
    "in a partial": ("p = functools.partial(load, 3)", "load(1).append(1); p().append(1)"),
    "in a class": ("class A: h = staticmethod(load)", "A.h(3).append(2); load(3).append(1)"),
    "of a method": (
        "class T:\n    @functools.lru_cache(maxsize=None)\n    def get(self, k): return [k]\n"
        "    one = functools.partialmethod(get, 1)\n    two = get\nt = T(); get = t.get; tab = {1: T.get}",
        "t.get(1).append(1); t.two(1).append(1); t.one().append(1); tab[1](t, 1).append(1); get(2).append(1)",
    ),
    "in a closure": (
        "def made(f=load): return lambda k: f(k)\nmake = made()",
        "make(1).append(1); load(1).append(1)",
    ),
}  # fmt: skip
FAILS = "\n    if x.sum() > 0: x = x * 2\n    return float(x.sum())"


def both(notebook: Notebook, cell: str, shown: str) -> tuple[object, object]:
    """The value of an expression after the cell, without and with the magic, and after asking for the report."""
    notebook.ok(cell)
    plain = eval(shown, notebook.ns)
    notebook.ok("%%jitcheck\n" + cell)
    notebook.report()
    return plain, eval(shown, notebook.ns)


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "traces"])
@pytest.mark.parametrize("where", MEMORIES)
def test_memories(notebook: Notebook, where, fails):
    begin, uses = MEMORIES[where]
    cell = f"{CACHED}{begin}\ndef go(x):\n    {uses}{FAILS if fails else chr(10) + '    return x * 2'}\nr = go(jnp.ones(3)), go(jnp.ones(3))"
    cached = "T.get" if where == "of a method" else "load"
    call = "T.get(t, 1)" if where == "of a method" else "load(1)"
    plain, checked = both(notebook, cell, f"(str({cached}.cache_info()), {call}, str({cached}.cache_info()))")
    assert checked == plain


ITERATORS = {
    "by name, in a dict and in a list": (
        "it = iter(range(10)); d = {'a': it}; l = [it]",
        "v = next(it) + next(d['a']) + next(l[0])",
    ),
    "in a class and an object": (
        "it = itertools.count()\nclass A:\n    n = it\n    def __init__(self): self.k = it\na = A()",
        "v = next(a.k) + next(A.n) + next(it)",
    ),
    "in a partial, a map and a zip": (
        "it = iter(range(10)); p = functools.partial(next, it); z = zip(it, it); m = map(float, it)",
        "v = p() + next(m) + sum(next(z)) + next(it)",
    ),
}


@pytest.mark.parametrize("where", ITERATORS)
def test_iterators(notebook: Notebook, where):
    begin, uses = ITERATORS[where]
    cell = (
        f"import functools, itertools, jax.numpy as jnp\n{begin}\n"
        f"def go(x):\n    {uses}\n    if x.sum() > 0: v = v + 1\n    return x * v\nr = float(go(jnp.ones(3))[0])"
    )
    plain, checked = both(notebook, cell, "(r, next(it))")
    assert checked == plain


def test_pools_are_numbered_as_without_the_magic(notebook: Notebook):
    notebook.ok("import concurrent.futures as cf, jax.numpy as jnp, threading\nnames = []")
    cell = (
        "def f(x):\n    names.append(cf.ThreadPoolExecutor(1)._thread_name_prefix)\n    return float(x.sum())\n"
        "before = cf.ThreadPoolExecutor(1)._thread_name_prefix\ny = f(jnp.ones(2))\n"
        "after = cf.ThreadPoolExecutor(1)._thread_name_prefix"
    )
    notebook.ok("%%jitcheck\n" + cell)
    notebook.report()
    numbers = [int(notebook.ns[n].rpartition("-")[2]) for n in ("before", "after")]
    numbers += [int(name.rpartition("-")[2]) for name in notebook.ns["names"]]
    first = numbers[0]
    assert numbers == [first, first + 2, first + 1]
