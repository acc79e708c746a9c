"""The cell of a class runs again with another method: a function that is compiled goes on with the old one."""

from __future__ import annotations

from typing import Any

import pytest

CLASSES = {
    "of an object": ("class A:\n    def __init__(self): self.w = 2.0\n    def m(self, x): return x * self.w{more}\na = A()", "a.m(x)", "a.m"),
    "by another method": ("class A:\n    def m(self, x): return self.n(x)\n    def n(self, x): return x{more}\na = A()", "a.m(x)", "a.n"),
    "an object that is called": ("class A:\n    def __call__(self, x): return x{more}\nall = {{'a': A()}}", "all['a'](x)", "all['a'].__call__"),
    "of a class": ("class A:\n    @staticmethod\n    def m(x): return x{more}", "A.m(x)", "A.m"),
    "with the class": ("class A:\n    @classmethod\n    def m(cls, x): return x{more}", "A.m(x)", "A.m"),
    "of the class above": ("class B:\n    def m(self, x): return x{more}\nclass A(B):\n    def m(self, x): return super().m(x)\na = A()", "a.m(x)", "a.m"),
    "a property": ("class A:\n    @property\n    def m(self): return 2.0{more}\na = A()", "a.m * x", "a.m"),
    "of an attribute": ("class B:\n    def m(self, x): return x{more}\nclass A:\n    def __init__(self): self.b = B()\na = A()", "a.b.m(x)", "a.b.m"),
    "put into the class": ("try: A.m = lambda self, x: x{more}\nexcept NameError:\n    class A:\n        def m(self, x): return x{more}\n    a = A()", "a.m(x)", "a.m"),
}  # fmt: skip


def stale(notebook: Any) -> list[str]:
    return [f.culprits[0] for f in notebook.report().findings if f.kind == "stale-constant"]


@pytest.mark.parametrize("what", CLASSES)
@pytest.mark.parametrize("magic", ["%%jit -q --no-time\n", "", "users"])
def test_an_old_method_is_told(notebook: Any, what: str, magic: str) -> None:
    cell, call, path = CLASSES[what]
    if magic == "users":
        magic = "%%jitcheck -q\n@jax.jit\n"
    elif not magic:
        magic = "import jitmagic\n@jitmagic.jit\n"
    notebook.ok("import jax, jax.numpy as jnp")
    notebook.ok(cell.format(more=" * 1"))
    notebook.ok(f"{magic}def f(x): return {call}\ny = f(jnp.ones(2))")
    notebook.ok(cell.format(more=" * 1") + "\ny = f(jnp.ones(2))")
    assert stale(notebook) == []  # nothing has changed in it
    notebook.ok(cell.format(more=" * 2") + "\ny = f(jnp.ones(2))")
    assert stale(notebook) == [path]
    (found,) = (f for f in notebook.report().findings if f.kind == "stale-constant")
    assert "was redefined" in found.message
