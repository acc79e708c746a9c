"""Names around a statement: bound before it, read after it, bound again by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.merging import body_of, code
from jitmagic.fixes.rewrite.place import Place


def outside(place: Place, statement: Any) -> str:
    """Source of the innermost function (or the cell) without the statement."""
    scope = place.cell.function(statement) or place.cell.module
    gap = place.cell.module.deep_replace  # a tree without the statement; only its names matter
    import libcst as cst

    bare = scope.deep_replace(statement, cst.SimpleStatementLine(body=[cst.Pass()]))
    del gap
    return place.cell.module.code_for_node(bare)


def live_after(place: Place, statement: Any) -> set[str]:
    """Names that may be read after the statement: by what follows it, or by the next turn of a loop around it."""
    import libcst as cst

    found: set[str] = set()
    node = statement
    while True:
        parent = place.cell.parents.get(node)
        if parent is None or isinstance(node, (cst.FunctionDef, cst.Module)):
            break
        if isinstance(parent, (cst.IndentedBlock, cst.Module)):
            index = next(i for i, s in enumerate(parent.body) if s is node)
            found |= {n for s in parent.body[index + 1 :] for n in names.loads(code(place, s))}
        if isinstance(parent, (cst.For, cst.While)) and node is parent.body:
            found |= _next_turn(place, parent)
        node = parent
    scope = place.cell.function(statement)
    if scope is not None:
        own = set(place.cell.within(statement, cst.FunctionDef, cst.Lambda))
        for inner in place.cell.own(scope, cst.FunctionDef, cst.Lambda):
            if inner is not scope and inner not in own:
                found |= names.loads(place.cell.code(inner))
        shared = place.cell.own(scope, cst.Global, cst.Nonlocal)
        found |= {item.name.value for s in shared for item in s.names}
    return found


def _next_turn(place: Place, loop: Any) -> set[str]:
    """Names that a turn of the loop reads before it binds them."""
    import libcst as cst

    text = "".join(code(place, s) for s in body_of(loop))
    if isinstance(loop, cst.While):
        return names.exposed(text) | names.loads(place.cell.code(loop.test))
    return names.exposed(text, names.stores(f"{place.cell.code(loop.target).strip()} = 0"))


def bound_before(place: Place, statement: Any) -> set[str]:
    """Names of the innermost function that may be bound before the statement."""
    import libcst as cst

    scope = place.cell.function(statement)
    if scope is None:
        return set()
    start = place.cell.positions[statement].start.line
    found = {p.name.value for p in place.cell.within(scope.params, cst.Param)}
    for node in place.cell.own(scope, cst.Name, cst.FunctionDef):
        if node is scope:
            continue
        where_ = place.cell.positions[node]
        name = node.name.value if isinstance(node, cst.FunctionDef) else node.value
        if where_.start.line < start:
            found.add(name)
    stored = set(names.stores("\n".join(place.cell.code(s) for s in body_of(scope))))
    parameters = {p.name.value for p in place.cell.within(scope.params, cst.Param)}
    return found & (stored | parameters)


def rebound(place: Place, statements: Sequence[Any]) -> str:
    """Source of statements with stores into items of a name as rebinding of the name."""
    from jitmagic.fixes.rewrite.stored import with_rebindings

    return with_rebindings(place, statements)
