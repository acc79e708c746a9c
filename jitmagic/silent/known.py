"""Names of a function that hold no traced value: static arguments, shapes, and what Python makes of them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from jitmagic.silent.code import Code
from jitmagic.source.tree import walk

_PLAIN = frozenset(
    "abs bool dict divmod enumerate float format getattr int len list max min next range repr reversed round set "
    "sorted str sum tuple type zip".split()
)
_SHAPES = ("shape", "ndim", "size", "dtype", "__name__")

Bindings = dict[str, list[ast.expr | None]]
"""For each local name what it is bound to; None for what cannot be told."""


def known_names(code: Code, static: Iterable[str]) -> frozenset[str]:
    """Local names that are no traced value wherever they are bound."""
    bindings = _bindings(code)
    found = set(static) & {n for n in code.parameters if n not in bindings}
    while True:
        more = {
            name for name, values in bindings.items()
            if name not in found and (name not in code.parameters or name in static)
            and all(v is not None and _is_known(code, v, found | {name}) for v in values)
        }  # fmt: skip
        if not more:
            return frozenset(found)
        found |= more


def passed_known(
    code: Code, callers: Sequence[Code], static: Callable[[Code], Iterable[str]]
) -> frozenset[str]:
    """Parameters of a helper for which every call in these functions passes what is no traced value."""
    found: list[set[str]] = []
    for caller in callers:
        for _, call in caller.calls:
            if caller.value(call.func) is not code.fn:
                continue
            if any(isinstance(a, ast.Starred) for a in call.args) or any(
                k.arg is None for k in call.keywords
            ):
                return frozenset()
            given = dict(zip(code.parameters, call.args, strict=False)) | {
                str(k.arg): k.value for k in call.keywords
            }
            known = set(known_names(caller, static(caller)))
            traced = {p for p, value in given.items() if not _is_known(caller, value, known)}
            found.append(set(code.parameters) - traced)
    return frozenset(set.intersection(*found)) if found else frozenset()


def read_values(node: ast.AST) -> list[str]:
    """Names that an expression reads for more than a shape, a dtype or a length."""
    if isinstance(node, ast.Attribute) and node.attr in _SHAPES:
        return []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("len", "type"):
        return []
    if isinstance(node, ast.Name):
        return [node.id]
    parts = [node.func.value] if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else []
    if isinstance(node, ast.Call):
        parts += [*node.args, *(k.value for k in node.keywords)]
    return [n for child in (parts or ast.iter_child_nodes(node)) for n in read_values(child)]


def _is_known(code: Code, node: ast.expr, known: set[str]) -> bool:
    """Made by Python itself, from names that are known or from outside."""
    return all(n in known or n not in code.local for n in read_values(node)) and all(
        _is_plain(code, n) for n in walk(node) if isinstance(n, ast.Call)
    )


def _is_plain(code: Code, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Constant):
        return True  # a method of a text
    name = code.full_name(call.func)
    return name.removeprefix("builtins.") in _PLAIN or name.startswith("math.")


def _bindings(code: Code) -> Bindings:
    found: Bindings = defaultdict(list)
    told: set[int] = set()
    for node in walk(code.node):
        for target, value in _bound_here(node):
            for name in (n for n in walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)):
                found[name.id].append(value)
                told.add(id(name))
    for node in walk(code.node):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in told:
            found[node.id].append(None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and node is not code.node:
            for argument in (a for a in walk(node.args) if isinstance(a, ast.arg)):
                found[argument.arg].append(None)
    return found


def _bound_here(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets that a statement or a loop binds, each with what it is bound to."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.For | ast.comprehension):
        counted = isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") == "enumerate"
        if counted and isinstance(node.target, ast.Tuple) and isinstance(node.target.elts[0], ast.Name):
            yield node.target.elts[0], ast.Constant(0)
            yield from ((rest, node.iter) for rest in node.target.elts[1:])
        else:
            yield node.target, node.iter
