"""Lists that the body of a `scan` fills outside of itself: the scan stacks the values."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.loops.filled import Addition, addition
from jitmagic.fixes.loops.iterations import group
from jitmagic.fixes.loops.lax_calls import LaxLoop, returned
from jitmagic.fixes.loops.stacked import as_stacked
from jitmagic.rules.words import listed
from jitmagic.source import scope
from jitmagic.source.edits import Edits, FunctionNode
from jitmagic.source.pattern import bare


def collected_lists(spot: Spot) -> Iterator[Change]:
    """What the body of a scan appends outside, as the second thing that it returns."""
    for inner in spot.text.within(spot.outermost, ast.FunctionDef) if spot.outermost is not None else ():
        outer = spot.text.function(inner)
        if outer is None:
            continue
        theirs = {*scope.stores(scope.body_of(outer.body))} - {*scope.stores(scope.body_of(inner.body))}
        added = (addition(spot, line) for line in inner.body)
        found = [a for a in added if a is not None and a.name in theirs and not a.front]
        returns = returned(spot, inner)
        calls = (LaxLoop.of(spot, c) for c in spot.text.own(outer, ast.Call))
        loops = [x for x in calls if x is not None and x.name == "scan" and x.body is inner]
        if found and len(loops) == 1 and len(returns) == 1:
            leave = returns[0]
            if isinstance(leave, ast.Tuple) and len(leave.elts) == 2:
                edits = _collected(spot, outer, inner, loops[0], leave, found)
                names = listed([x.name for x in found])
                yield Change(f"return what is collected in {names} from the scan body", edits)


def _collected(
    spot: Spot, outer: FunctionNode, inner: FunctionNode, loop: LaxLoop, leave: ast.Tuple, found: list[Addition]
) -> Edits:  # fmt: skip
    """The loop with a body that returns what it appended."""
    edits, names = spot.edits(), [x.name for x in found]
    values = [_value(spot, inner, x, edits) for x in found]
    carry, ys = map(spot.code, leave.elts)
    results = [ys] if ys != "None" else []
    edits.replace(leave, f"{bare(carry)}, {group([*results, *values])}")
    inside = set(spot.text.within(inner, ast.Name))
    uses = [n for n in spot.text.own(outer, ast.Name) if isinstance(n.ctx, ast.Load) and n not in inside]
    again = "".join(as_stacked(spot, edits, [n for n in uses if n.id == x.name], x.value) for x in found)
    _bound(spot, loop, edits, names, again, kept=bool(results))
    for line in spot.text.own(outer, ast.Assign):
        begun = line.value.elts if isinstance(line.value, ast.Tuple) else [line.value]
        if {*scope.stores(line)} <= {*names} and {*map(spot.code, begun)} <= {"[]", "list()"}:
            edits.remove(line)
    return edits


def _value(spot: Spot, inner: FunctionNode, x: Addition, edits: Edits) -> str:
    """The name of what a body appends; it gets one where it has none, or where that is bound again below."""
    after = scope.body_of(inner.body[inner.body.index(x.statement) + 1 :])
    if isinstance(x.value, ast.Name) and x.value.id not in scope.stores(after):
        edits.remove(x.statement)
        return x.value.id
    name = spot.fresh(x.name.removesuffix("s") if x.name.endswith("s") else "value")
    edits.statements(x.statement, f"{name} = {spot.code(x.value)}")
    return name


def _bound(spot: Spot, loop: LaxLoop, edits: Edits, names: Sequence[str], again: str, *, kept: bool) -> None:
    """Bind what the loop gives, and the lists beside it; `kept`: the body gave something beside its state before."""
    statement, parent = spot.text.statement(loop.call), spot.text.parents[loop.call]
    carry, ys, rest = "_", "_", ""
    part: ast.AST = loop.call
    if isinstance(parent, ast.Subscript) and spot.code(parent.slice) in ("0", "1"):
        part = parent
    match statement:
        case ast.Assign([ast.Tuple([first, second])], value) if value is loop.call:
            carry, ys = spot.code(first), spot.code(second)
        case ast.Assign([_], value) if value is loop.call:
            raise LookupError("the results of the scan have one name")
        case ast.Assign([target], value) if value is part:
            carry = spot.code(target)
        case ast.Expr(value) if value is loop.call:
            pass
        case _:
            carry = spot.fresh("result")
            rest = edits.replace(part, carry).code(statement) + "\n"
    if part is not loop.call and spot.code(parent.slice) == "1":  # type: ignore[attr-defined]
        carry, ys = "_", carry
    bound = f"{bare(carry)}, {group([*([ys] if kept else []), *names])}"
    edits.statements(statement, f"{bound} = {spot.code(loop.call)}\n{again}{rest}")
