"""Objects of classes with slots go when the user lets go of them, and so do the classes."""

from __future__ import annotations

import gc

import pytest

from tests.conftest import Notebook

SLOTS = {
    "none to refer to it": "__slots__ = ('v', 'n')",
    "a weak one": "__slots__ = ('v', 'n', '__weakref__')",
    "inherited": "__slots__ = ('v', 'n')\nclass Buf(Buf): __slots__ = ()",
}


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "traces"])
@pytest.mark.parametrize("which", SLOTS)
def test_objects(notebook: Notebook, which, fails):
    slots, _, more = SLOTS[which].partition("\n")
    body = "if x.sum() > 0: x = x * 2" if fails else "x = x * 2"
    notebook.ok(
        f"%%jitcheck\nimport jax.numpy as jnp, gc\nclass Buf:\n    {slots}\n"
        f"    def __init__(self, v, n): self.v = v; self.n = n\n{more}\n"
        f"def step(s, x):\n    {body}\n    return Buf(s.v + x, s.n + 1)\ns = step(Buf(jnp.zeros(2), 0), jnp.ones(2))"
    )
    notebook.ok("for i in range(40): s = step(s, jnp.ones(2))")
    notebook.ok("gc.collect(); alive = len([o for o in gc.get_objects() if type(o) is Buf])")
    assert notebook.ns["alive"] == 1


def test_classes_of_trials(notebook: Notebook):
    notebook.ok(
        "%%jitcheck\nimport jax.numpy as jnp\nclass Leaf:\n    __slots__ = ('kids', '__weakref__')\n"
        "    def __init__(self): self.kids = []\nroot = Leaf()\n"
        "def grow(p, x):\n    n = Leaf(); p.kids.append(n)\n    if x.sum() > 2: x = x + 1\n    return x\n"
        "a = grow(root, jnp.ones(3))"
    )
    notebook.report()
    gc.collect()
    assert len([o for o in gc.get_objects() if isinstance(o, type) and o.__name__ == "Leaf"]) == 1
