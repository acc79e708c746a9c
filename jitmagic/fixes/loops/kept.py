"""Attributes that statements store into, themselves or through methods that they call."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from jitmagic.fixes.change import Spot
from jitmagic.source import scope
from jitmagic.source.edits import Text
from jitmagic.source.modules import dotted


def stored_in(spot: Spot, statements: Sequence[ast.stmt]) -> dict[str, ast.stmt]:
    """The attributes that statements and the methods that they call store into, as it is written and as the trace saw
    it, each with the last statement that does so; none where an entry is stored."""
    text, evidence = spot.text, spot.evidence
    seen = [*(w.path for w in evidence.writes), *(v.path for v in evidence.variables if v.written)]
    if not seen:  # the trace did not get there
        seen = [*spot.declared_dyn, *(leaf for p in evidence.problems for leaf in p.leaves)]
    found = dict[str, ast.stmt]()
    for statement in statements:
        stored = [n for n in text.within(statement, ast.Attribute) if isinstance(n.ctx, ast.Store)]
        found |= dict.fromkeys(filter(None, map(dotted, stored)), statement)
        for call in methods(text, statement):
            path, _, method = dotted(call.func).rpartition(".")
            own = [f"{path}.{name}" for name in _stored_by(text, method, set())]
            found |= dict.fromkeys((*own, *(p for p in seen if p.startswith(f"{path}."))), statement)
    bound = {name for s in statements for name in scope.stores(s)}
    followed = {v.path for v in evidence.variables if v.framework}  # frameworks have loops of their own
    of_others = {p: s for p, s in found.items() if p.partition(".")[0] not in bound and p not in followed}
    return {} if "[" in "".join(of_others) else of_others


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
