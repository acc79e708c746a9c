"""Which part of a loop's state changes its type, and the line of the body that changes it."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import types
from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jitmagic.evidence import Where
from jitmagic.source import scope
from jitmagic.source.modules import dotted
from jitmagic.source.signature import body_of
from jitmagic.source.tree import Source, source_of, span_of, walk
from jitmagic.tracing import messages
from jitmagic.tracing.expressions import callee_of, look_up
from jitmagic.tracing.sites import Site, where_at

_BODY = {"scan": 0, "while_loop": 1, "fori_loop": 2}
"""Position of the body among the arguments."""
_BODY_NAMES = frozenset(("f", "body_fun"))
_STATE = {"scan": 0, "while_loop": 0, "fori_loop": 1}
"""Position of the state among the body's parameters."""
_PART = re.compile(
    r"(?:input carry|carry input|loop carry)(?: component| part)? (?:at path )?"
    r"(\w+)((?:\[[^\]]+\]|\.\w+)*) (?:has|is|with)"
)

_DEPTH = 4
"""Functions that a body hands its state on through."""

Function = ast.FunctionDef | ast.Lambda


def changed_in_body(
    site: Site, namespace: Mapping[str, object], text: str
) -> tuple[tuple[str, ...], Where | None]:
    """Names of the state that a mismatch message speaks of, as the body has them, and where the body changes it.

    `text` is jax's message, `site` the call of the loop. Empty where the body has no source.
    """
    name = callee_of(site.node).rsplit(".", 1)[-1]
    if isinstance(site.node, ast.Call) and name in ("cond", "switch"):
        return _returned_by_branches(site, namespace, site.node, text), None
    if name not in _BODY or not isinstance(site.node, ast.Call):
        return (), None
    asked, match = "must return a boolean scalar" in text, _PART.search(text)
    given = _given(site.node, 0 if asked else _BODY[name], ("cond_fun",) if asked else _BODY_NAMES)
    outer = _body(site.where.file, site.source, namespace, given, _STATE[name])
    if outer is None or (match is None and not asked and "must be a pair" not in text):
        return (), None
    body = _innermost(outer)
    path = match[2] if match is not None else ""
    if match is None:  # what the function returns as a whole is at fault
        returned = next((n for n in _statements(body.node) if isinstance(n, ast.Return)), body.node.body)
        return (outer.state,), _where(body, returned) if isinstance(returned, ast.AST) else None
    if name == "fori_loop" and match[1] == messages.COUNTED:  # behind the count and the bound of `fori_loop`
        path = path.partition("]")[2]
    part = _unpacked(body, path)
    states = dict.fromkeys((body.state, outer.state))
    names = dict.fromkeys(n for n in (part, *(s + path for s in states if path), *states) if n)
    changing = _last_change(body, part or body.state)
    return tuple(names), _where(body, changing) if changing is not None else None


def _returned_by_branches(
    site: Site, namespace: Mapping[str, object], call: ast.Call, text: str
) -> tuple[str, ...]:
    """Names in what branches with a `def` of their own return, in the part that the message speaks of."""
    listed = call.args[1] if len(call.args) > 1 else None
    given = listed.elts if isinstance(listed, ast.List | ast.Tuple) else call.args[1:3]
    part = re.search(r"at path \[(\d+)\]", text)
    names: list[str] = []
    for branch in given:
        found = (
            _body(site.where.file, site.source, namespace, branch, 0)
            if isinstance(branch, ast.Name)
            else None
        )
        for node in _statements(found.node) if found is not None else ():
            value = node.value if isinstance(node, ast.Return) else None
            if part is not None and isinstance(value, ast.Tuple) and len(value.elts) > int(part[1]):
                value = value.elts[int(part[1])]
            names += _values_in(value) if value is not None else []
    return tuple(dict.fromkeys(names))


def _values_in(node: ast.AST) -> list[str]:
    """Names that an expression reads, without those of what it calls."""
    called = {n for c in walk(node) if isinstance(c, ast.Call) for n in walk(c.func) if isinstance(n, ast.Name)
              and (n is c.func or isinstance(c.func, ast.Attribute))}  # fmt: skip
    return [n.id for n in walk(node) if isinstance(n, ast.Name) and n not in called]


@dataclass(frozen=True)
class _Body:
    """A function that a loop calls with its state."""

    file: str
    source: Source
    node: Function
    state: str
    """The parameter that gets it."""
    namespace: Mapping[str, object]


def _given(call: ast.Call, position: int, keywords: Collection[str]) -> ast.expr | None:
    named = next((k.value for k in call.keywords if k.arg in keywords), None)
    return named if named is not None or len(call.args) <= position else call.args[position]


def _body(
    file: str, source: Source, namespace: Mapping[str, object], given: ast.expr | None, position: int
) -> _Body | None:
    """The function behind a lambda, a name, a method or a partial, whose argument at this place is the state."""
    left_out, skipped = set[str](), 0
    if isinstance(given, ast.Call) and callee_of(given).endswith("partial") and given.args:
        left_out, skipped = {k.arg or "" for k in given.keywords}, len(given.args) - 1
        given = given.args[0]
    if isinstance(given, ast.Lambda):
        node: Function = given
    else:
        value, receiver = _named(given, namespace)
        skipped += receiver
        for _ in range(_DEPTH):
            if isinstance(value, types.MethodType):
                value, skipped = value.__func__, skipped + 1
            elif isinstance(value, functools.partial):
                left_out, skipped = left_out | value.keywords.keys(), skipped + len(value.args)
                value = value.func
            elif (inner := look_up("f.__wrapped__", {"f": value})) is not None:
                value = inner
            elif isinstance(called := look_up("c.__call__", {"c": type(value)}), types.FunctionType):
                value, skipped = called, skipped + 1
        if not isinstance(value, types.FunctionType):
            return None
        file, source = value.__code__.co_filename, source_of(value.__code__.co_filename)
        found = source.function(value.__code__)
        if not isinstance(found, Function):
            return None
        node, namespace = found, ChainMap(_closed_over(value), value.__globals__)
    taken = [a.arg for a in (*node.args.posonlyargs, *node.args.args)][skipped:]
    taken = [name for name in taken if name not in left_out]
    return _Body(file, source, node, taken[position], namespace) if len(taken) > position else None


def _closed_over(fn: types.FunctionType) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it is bound later
            found[name] = cell.cell_contents
    return found


def _named(node: ast.expr | None, namespace: Mapping[str, object]) -> tuple[Any, bool]:
    """What a name or an attribute stands for, and whether it is a method that gets its receiver besides."""
    path = dotted(node) if node is not None else ""
    owner = node.value if isinstance(node, ast.Attribute) else None
    if isinstance(owner, ast.Call) and isinstance(node, ast.Attribute):  # `Net().step`
        path = f"{dotted(owner.func)}.{node.attr}"
    value = look_up(path, namespace)
    if isinstance(value, staticmethod):
        return value.__func__, False
    of = look_up(path.rpartition(".")[0], namespace)
    bound = isinstance(owner, ast.Call) or not isinstance(of, type | types.ModuleType)
    return value, owner is not None and bound and isinstance(value, types.FunctionType)


def _innermost(body: _Body) -> _Body:
    """What a body does that only hands its state on: `lambda s: step(s, rate)`."""
    for _ in range(_DEPTH):
        (*others, last) = body_of(body.node) if isinstance(body.node, ast.FunctionDef) else _block(body.node)
        call = last.value if isinstance(last, ast.Return | ast.Expr) else None
        if others or not isinstance(call, ast.Call):
            break
        at = [i for i, a in enumerate(call.args) if isinstance(a, ast.Name) and a.id == body.state]
        inner = _body(body.file, body.source, body.namespace, call.func, at[0]) if at else None
        if inner is None:
            break
        body = inner
    return body


def _block(node: Function) -> list[ast.stmt]:
    return node.body if isinstance(node.body, list) else [ast.Expr(node.body)]


def _unpacked(body: _Body, path: str) -> str:
    """The name that holds the part at `path`: `acc` for `[1]` after `i, acc = state`."""
    index = re.match(r"\[(\d+)\]", path)
    if index is None:
        return ""
    for node in _statements(body.node):
        if not (
            isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == body.state
        ):
            continue
        targets = node.targets[0]
        if isinstance(targets, ast.Tuple | ast.List) and len(targets.elts) > int(index[1]):
            target = targets.elts[int(index[1])]
            return target.id if isinstance(target, ast.Name) else ""
    return ""


def _statements(body: Function) -> Iterator[ast.AST]:
    return (n for part in _block(body) for n in walk(part))


def _last_change(body: _Body, name: str) -> ast.AST | None:
    """The last statement that binds `name` to something new, else what the body returns."""
    if isinstance(body.node, ast.Lambda):
        return body.node.body
    changes = [
        n for n in _statements(body.node)
        if isinstance(n, ast.Assign | ast.AugAssign | ast.AnnAssign)
        and name in scope.stores(n) and not (isinstance(n, ast.Assign) and getattr(n.value, "id", "") == body.state)
    ]  # fmt: skip
    returns = [n for n in _statements(body.node) if isinstance(n, ast.Return)]
    return (changes or returns or [None])[-1]


def _where(body: _Body, node: ast.AST) -> Where | None:
    span, name = span_of(node), getattr(body.node, "name", "<lambda>")
    return where_at(body.file, span, body.source, name) if span is not None else None
