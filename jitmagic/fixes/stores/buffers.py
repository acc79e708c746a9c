"""Buffers that a function makes with NumPy or as lists, made by jax."""

from __future__ import annotations

import ast

from jitmagic.fixes.change import Spot
from jitmagic.source.edits import Edits, FunctionNode
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import Pattern

_MAKERS = frozenset(
    "zeros ones empty full zeros_like ones_like empty_like full_like array asarray arange linspace eye copy "
    "identity tile repeat concatenate stack".split()
)
_COPY = Pattern("$x.copy()")


def made_by_jax(spot: Spot, function: FunctionNode, name: str) -> Edits:
    """`name = np.zeros(...)` as `jnp.zeros(...)`, `x.copy()` as `jnp.array(x)`, a list as an array of it; `self.x` in
    any method of its class."""
    edits = spot.edits()
    for assign in spot.text.within(_scope(spot, function, name), ast.Assign):
        if any(spot.code(t) == name for t in assign.targets):
            _made(spot, edits, assign.value)
    return edits


def _made(spot: Spot, edits: Edits, value: ast.expr) -> None:
    called = spot.modules.called(value)
    if isinstance(value, ast.Call) and called.startswith("numpy.") and last_name(value.func) in _MAKERS:
        edits.replace(value.func, spot.write(f"jnp.{called.removeprefix('numpy.')}"))
    elif (copied := _COPY.match(value, spot.modules)) is not None and not called:
        edits.replace(value, spot.write("jnp.array($x)", **copied.holes))
    elif isinstance(value, ast.BinOp | ast.List | ast.ListComp) and not _by_jax(spot, value):
        listed = isinstance(value, ast.List | ast.ListComp) or isinstance(value.left, ast.List)
        if listed or any(spot.modules.called(n).startswith("numpy.") for n in ast.walk(value)):
            edits.replace(value, spot.write("jnp.array($value)", value=value))


def _by_jax(spot: Spot, value: ast.expr) -> bool:
    return any(spot.modules.called(n).startswith("jax.") for n in ast.walk(value))


def _scope(spot: Spot, function: FunctionNode, name: str) -> ast.AST:
    """The class of a method that stores into an attribute of its receiver; else the outermost function."""
    receiver, _, attribute = name.partition(".")
    first = [*function.args.posonlyargs, *function.args.args][:1]
    kind = spot.text.parents[function]
    if attribute and first and first[0].arg == receiver and isinstance(kind, ast.ClassDef):
        return kind
    return spot.text.outermost(function) or function
