"""What a cell makes of its functions by a call: `g = jax.grad(f)`, `step = make_step(0.1)`, `apply = model.apply`.

Such a name stands for the old function until the assignment runs again, so a corrected cell runs it too, in its
own copy of the notebook's names.
"""

from __future__ import annotations

import ast
import contextlib
import types
from collections.abc import Iterator
from typing import Any

from jitmagic.fixes import adopt
from jitmagic.trial import quiet

LIBRARIES = frozenset("jax functools equinox flax haiku optax brainpy brainstate numpyro diffrax".split())
"""Packages whose functions make functions of functions, and do nothing else."""


def again(tree: ast.Module, file: str, names: dict[str, Any], changed: adopt.Classes) -> None:
    """Run the assignments that make functions of what the cell defined anew.

    `names` is the copy of the notebook's names in which the definitions ran; `changed` are its classes, old by new.
    """
    anew = {s.name for s in tree.body if isinstance(s, (ast.FunctionDef, ast.ClassDef))}
    anew |= {
        t
        for s in tree.body
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Lambda)
        for t in _bound(s)
    }
    own = dict(anew=anew, functions={s.name for s in tree.body if isinstance(s, ast.FunctionDef)})
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or not any(
            callable(names.get(t)) for t in _bound(statement)
        ):
            continue
        if _method_of(statement.value, names, changed) or _made_of(statement.value, names, **own):
            with _undone(statement.value, names):
                exec(compile(ast.Module([statement], []), file, "exec"), names)
            anew |= set(_bound(statement))


def _bound(statement: ast.Assign) -> Iterator[str]:
    for target in statement.targets:
        yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def _method_of(node: ast.expr, names: dict[str, Any], changed: adopt.Classes) -> bool:
    """`model.apply` of an object whose class is another one now."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    return type(names.get(node.value.id)) in set(changed.values())


def _made_of(node: ast.expr, names: dict[str, Any], anew: set[str], functions: set[str]) -> bool:
    """A call of a function of the cell, or of a library's on one of them; a second name for one."""
    if isinstance(node, ast.Name):
        return node.id in anew
    if not isinstance(node, ast.Call):
        return False
    inner = [n for a in (*node.args, *(k.value for k in node.keywords)) for n in ast.walk(a)]
    makers = functions if _of_library(node.func, names) else set()  # `jax.jit(make_step(0.1))`
    if any(
        isinstance(n, ast.Call)
        and not (_of_library(n.func, names) or isinstance(n.func, ast.Name) and n.func.id in makers)
        for n in inner
    ):
        return False
    if isinstance(node.func, ast.Name) and node.func.id in functions:
        return True
    if isinstance(
        node.func, ast.Call
    ):  # `jax.value_and_grad(loss, has_aux=True)(...)`, `partial(jax.jit, ...)(f)`
        known = _made_of(node.func, names, anew, functions) or _of_library(node.func.func, names)
    else:
        known = _of_library(node.func, names)
    return known and any(isinstance(n, ast.Name) and n.id in anew for n in ast.walk(node))


def _of_library(node: ast.expr, names: dict[str, Any]) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    value = names.get(node.id) if isinstance(node, ast.Name) else None
    home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return str(home).partition(".")[0] in LIBRARIES


@contextlib.contextmanager
def _undone(node: ast.expr, names: dict[str, Any]) -> Iterator[None]:
    """What a function of the cell changes while it makes another is put back."""
    from jitmagic.state import roots

    called = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet.held_back())
        for function in (names.get(n) for n in sorted(called)):
            if isinstance(function, types.FunctionType):
                stack.enter_context(quiet.undone(roots.reach(function)))
        yield
