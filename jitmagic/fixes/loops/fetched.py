"""Values that a loop asks the device for in each iteration: kept there, and fetched behind the loop."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from jitmagic.evidence import root
from jitmagic.fixes.change import Change, Spot
from jitmagic.source import scope
from jitmagic.source.edits import indented
from jitmagic.source.loops import LoopBody, LoopNode
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import tuple_of
from jitmagic.source.tree import walk

COST = "the arrays stay on the device until then"
_CONVERSIONS = "float int bool complex numpy.asarray numpy.array numpy.float32 numpy.float64".split()
_SHOWING = "print display write info debug log log_metrics set_postfix add_scalar".split()
_READS = "item tolist copy mean sum min max any all astype reshape block_until_ready format".split()
"""Methods that leave what they are of as it is."""


def fetched_behind(spot: Spot) -> Iterator[Change]:
    """`losses.append(loss)` in the loop and `losses = [float(v) for v in losses]` behind it; any other statement in a
    loop of its own, for the arrays that were kept."""
    listed = spot.here(ast.ListComp)
    if listed is not None and spot.text.statement(listed) is spot.text.statement(spot.node):
        yield from _of_comprehension(spot, listed)
    loop = next((n for n in spot.text.ancestors(spot.node) if isinstance(n, LoopNode)), None)
    statement = spot.text.statement(spot.node)
    if loop is None or statement not in loop.body or loop.orelse or LoopBody(spot.text, loop).waits:
        return
    yield from _of_list(spot, loop, statement)
    yield from _in_a_loop_of_its_own(spot, loop, statement)


def _conversion(spot: Spot, value: ast.expr) -> tuple[ast.expr, Callable[[str], str]] | None:
    """What is converted, and how another is: `float(x)`, `np.asarray(x)`, `x.item()`."""
    match value:
        case ast.Call(ast.Attribute(inner, "item" | "tolist" as method), [], []):
            return inner, lambda name: f"{name}.{method}()"
        case ast.Call(function, [inner], []) if (spot.full(function) or spot.code(function)) in _CONVERSIONS:
            return inner, lambda name: f"{spot.code(function)}({name})"
    return None


def _of_comprehension(spot: Spot, listed: ast.ListComp) -> Iterator[Change]:
    if (found := _conversion(spot, listed.elt)) is not None:
        inner, converted = found
        value = spot.fresh("value", "fetched")
        kept = spot.edits().replace(listed.elt, spot.code(inner)).code(listed)
        edits = spot.edits().replace(listed, f"[{converted(value)} for {value} in {kept}]")
        yield Change("fetch the values when all are computed", edits, cost=COST)


def _of_list(spot: Spot, loop: LoopNode, statement: ast.stmt) -> Iterator[Change]:
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name() | ast.Attribute() as filled, "append"), [value], [])):
            name, around, found = spot.code(filled), spot.text.function(loop), _conversion(spot, value)
        case _:
            return
    outer = loop
    for node in spot.text.ancestors(loop):
        if isinstance(node, ast.For | ast.While) and spot.text.function(node) is around and not node.orelse:
            outer = node
    uses = [n for n in walk(outer) if isinstance(n, type(filled)) and spot.code(n) == name]
    if found is None or len(uses) > 1:
        return
    inner, converted = found
    bound = spot.text.own(around or spot.text.tree, ast.Assign, ast.AnnAssign)
    own = isinstance(filled, ast.Name) and any(name in scope.stores(s) for s in bound)
    each = spot.fresh("value", "fetched")
    edits = spot.edits().replace(value, spot.code(inner))
    edits.after(outer, f"{name}{'' if own else '[:]'} = [{converted(each)} for {each} in {name}]")
    yield Change(f"keep the arrays in `{name}`, and fetch them behind the loop", edits, cost=COST)


def _in_a_loop_of_its_own(spot: Spot, loop: LoopNode, first: ast.stmt) -> Iterator[Change]:
    """The statement, and those that need what it binds, for each tuple of what they read of the iteration."""
    moved, rest = _split(loop, first)
    bound, others = set(scope.stores(scope.body_of(moved))), scope.body_of(rest)
    asked = scope.loads(loop.iter if isinstance(loop, ast.For) else loop.test)
    of_others = {*scope.stores(others), *(scope.stores(loop.target) if isinstance(loop, ast.For) else ())}
    if (bound | _changed(moved)) & (scope.loads(others) | asked | of_others):
        return  # the loop goes on with it
    jumps = [n for n in walk(*moved) if isinstance(n, ast.Break | ast.Continue | ast.Return)]
    if jumps or len(moved) > 1 and LoopBody(spot.text, loop).jumps:
        return
    later = scope.body_of([s for s in rest if first.lineno < s.lineno < moved[-1].lineno])
    needed = sorted((scope.loads(scope.body_of(moved)) & of_others) - bound)
    if not needed or {*scope.stores(later)} & {*needed}:
        return
    kept, edits = spot.fresh("kept", "on_device"), spot.edits()
    each = needed[0] if len(needed) == 1 else tuple_of(needed)
    block = spot.text.block(moved)
    edits.before(loop, f"{kept} = []")
    edits.after(loop, f"for {each.strip('()')} in {kept}:\n{indented(block)}")
    for statement in moved[:-1]:
        edits.remove(statement)
    edits.statements(moved[-1], f"{kept}.append({each})")
    shows = any(isinstance(n, ast.Call) and last_name(n.func) in _SHOWING for n in walk(*moved))
    cost = f"{COST}, and what is shown comes at the end" if shows else COST
    title = "keep the arrays, and do this for all of them behind the loop"
    yield Change(title, edits, cost=cost, sure=not shows)


def _split(loop: LoopNode, first: ast.stmt) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The statement with those below it that read what these bind, and the others."""
    moved, rest = list[ast.stmt](), list[ast.stmt]()
    bound = set(scope.stores(first))
    for statement in loop.body:
        if statement is first or moved and scope.loads(statement) & bound:
            moved.append(statement)
            bound |= set(scope.stores(statement))
        else:
            rest.append(statement)
    return moved, rest


def _changed(statements: Sequence[ast.stmt]) -> set[str]:
    """Names of what the statements fill or store into: `losses.append(v)`, `history[i] = v`, `total += v`."""
    found = set[str]()
    for node in walk(*statements):
        match node:
            case ast.Call(ast.Attribute(changed, method)) if method not in _READS:
                found.add(root(ast.unparse(changed)))
            case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                found.add(root(ast.unparse(node)))
            case ast.AugAssign(changed):
                found.add(root(ast.unparse(changed)))
    return found
