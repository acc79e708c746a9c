"""Attributes that statements store into, themselves or through methods that they call."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeVar

from jitmagic.fixes.change import Spot
from jitmagic.rules.base import root
from jitmagic.source import scope
from jitmagic.source.edits import Text
from jitmagic.source.modules import dotted

Node = TypeVar("Node", bound=ast.AST)


def stored_in(spot: Spot, statements: Sequence[Node]) -> dict[str, Node]:
    """The attributes that statements and what they call store into, as it is written and as the trace saw it, each
    with the last statement that does so; items too, of what a function keeps. None where something is added."""
    text, evidence = spot.text, spot.evidence
    seen = [*(w.path for w in evidence.writes), *(v.path for v in evidence.variables if v.written)]
    if not seen:  # the trace did not get there
        seen = [*spot.declared_dyn, *(leaf for p in evidence.problems for leaf in p.leaves)]
    kept = [p for p in seen if not p.isidentifier()]
    found = dict[str, Node]()
    for statement in statements:
        stored = [n for n in text.within(statement, ast.Attribute) if isinstance(n.ctx, ast.Store)]
        found |= dict.fromkeys(filter(None, map(dotted, stored)), statement)
        for call in text.within(statement, ast.Call):
            called = dotted(call.func)
            if not called or spot.full(call.func):
                continue
            path, _, method = called.rpartition(".")
            own = [f"{path}.{name}" for name in _stored_by(text, method, set())] if path else []
            of_all = not path and text.definition(called) is not None  # it names what it keeps
            below = (f"{path}." if path else f"{called}.", f"{called}.")
            own += [p for p in kept if of_all or p.startswith(below)]
            found |= dict.fromkeys(own, statement)
    bound = {name for s in statements for name in scope.stores(s)}
    followed = {v.path for v in evidence.variables if v.framework}  # frameworks have loops of their own
    of_others = {p: s for p, s in found.items() if root(p) not in bound and p not in followed}
    return {} if {w.path for w in evidence.writes if w.action == "added"} & {*of_others} else of_others


def methods(text: Text, node: ast.AST) -> list[ast.Call]:
    """Calls of what objects with names hold."""
    return [n for n in text.within(node, ast.Call) if isinstance(n.func, ast.Attribute) and dotted(n.func)]


def _stored_by(text: Text, method: str, known: set[str]) -> list[str]:
    """The attributes that a method of this name stores into in its own object, itself or by others of its methods."""
    functions = [f for f in text.functions if f.name == method and isinstance(text.parents[f], ast.ClassDef)]
    own = scope.parameters_of(functions[0])[:1] if len(functions) == 1 and method not in known else ()
    known.add(method)
    found = list[str]()
    for node in text.within(functions[0], ast.Attribute) if own else ():
        if isinstance(node.value, ast.Name) and (node.value.id,) == tuple(own):
            if isinstance(node.ctx, ast.Store):
                found.append(node.attr)
            elif isinstance(above := text.parents[node], ast.Call) and above.func is node:
                found += _stored_by(text, node.attr, known)
    return found
