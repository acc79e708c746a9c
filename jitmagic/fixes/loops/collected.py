"""Lists that the body of a `scan` or of a counted `while_loop` fills outside of itself: the scan stacks the values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.loops.filled import addition
from jitmagic.fixes.loops.heads import minus
from jitmagic.fixes.loops.iterations import group
from jitmagic.fixes.loops.lax_calls import Given, LaxLoop, definition, returned
from jitmagic.fixes.loops.stacked import as_stacked
from jitmagic.rules.words import listed
from jitmagic.source import scope
from jitmagic.source.edits import Edits, FunctionNode, Text
from jitmagic.source.pattern import atom


class _Appended(NamedTuple):
    """A statement of a body that adds to a list of the function around it."""

    line: ast.stmt
    name: str
    value: ast.expr


def collected_lists(spot: Spot) -> Iterator[Change]:
    """What the body of a loop appends outside, as the second thing that it returns."""
    for inner in spot.text.within(spot.outermost, ast.FunctionDef) if spot.outermost is not None else ():
        outer = spot.text.function(inner)
        if outer is None:
            continue
        theirs = {*scope.stores(scope.body_of(outer.body))} - {*scope.stores(scope.body_of(inner.body))}
        added = ((line, addition(spot, line)) for line in inner.body)
        found = [
            _Appended(line, a[0], a[1]) for line, a in added if a is not None and a[0] in theirs and not a[2]
        ]
        returns = returned(spot, inner)
        calls = (LaxLoop.of(spot, c) for c in spot.text.own(outer, ast.Call))
        loops = [x for x in calls if x is not None and x.body is inner]
        if found and len(loops) == 1 and len(returns) == 1:
            change = _collected(spot, outer, inner, loops[0], returns[0], found)
            if change is not None:
                yield change


def _collected(
    spot: Spot,
    outer: FunctionNode,
    inner: FunctionNode,
    loop: LaxLoop,
    leave: ast.expr,
    found: list[_Appended],
) -> Change | None:
    """The loop with a body that returns what it appended."""
    edits, names = spot.edits(), [x.name for x in found]
    static: tuple[str, ...] = ()
    values = [_value(spot, inner, x, edits) for x in found]
    results, carry = [], spot.code(leave)
    if loop.name == "scan":
        if not isinstance(leave, ast.Tuple) or len(leave.elts) != 2:
            return None
        carry, ys = map(spot.code, leave.elts)
        results = [ys] if ys != "None" else []
        code = spot.code(loop.call)
        title = f"return what is collected in {listed(names)} from the scan body"
    else:
        length = _length(loop) if loop.name == "while_loop" and len(inner.args.args) == 1 else ""
        if not length:
            return None
        edits.replace(inner.args.args[0], f"{loop.state}, _")
        code = spot.write("lax.scan($body, $start, None, $$length)", body=loop.parts["body"], start=loop.start,
                          length=f"length={length}")  # fmt: skip
        title = f"a scan of `{length}` steps in place of the `while_loop`, which stacks {listed(names)}"
        given = set(scope.parameters_of(outer)) if outer.name == spot.function else set()
        static = tuple(sorted(scope.loads(length) & given - spot.static))
        _without_test(spot, outer, loop, edits)
    edits.replace(leave, f"{atom(carry) if ',' in carry else carry}, {group([*results, *values])}")
    inside = set(spot.text.within(inner, ast.Name))
    uses = [n for n in spot.text.own(outer, ast.Name) if isinstance(n.ctx, ast.Load) and n not in inside]
    again = "".join(as_stacked(spot, edits, [n for n in uses if n.id == x.name], x.value) for x in found)
    _bound(spot, loop, edits, code, names, again, kept=bool(results))
    for line in spot.text.own(outer, ast.Assign):
        begun = line.value.elts if isinstance(line.value, ast.Tuple) else [line.value]
        if {*scope.stores(line)} <= {*names} and {*map(spot.code, begun)} <= {"[]", "list()"}:
            edits.remove(line)
    return Change(title, edits, static=static, sure=not static)


def _value(spot: Spot, inner: FunctionNode, x: _Appended, edits: Edits) -> str:
    """The name of what a body appends; it gets one where it has none, or where that is bound again below."""
    after = scope.body_of(inner.body[inner.body.index(x.line) + 1 :])
    if isinstance(x.value, ast.Name) and x.value.id not in scope.stores(after):
        edits.remove(x.line)
        return x.value.id
    name = spot.fresh(x.name.removesuffix("s") if x.name.endswith("s") else "value")
    edits.statements(x.line, f"{name} = {spot.code(x.value)}")
    return name


def _bound(
    spot: Spot, loop: LaxLoop, edits: Edits, code: str, names: Sequence[str], again: str, *, kept: bool
) -> None:
    """Bind what the loop gives, and the lists beside it; `kept`: the body gave something beside its state before."""
    statement, parent = spot.text.statement(loop.call), spot.text.parents[loop.call]
    carry, ys, rest = "_", "_", ""
    part, scan = loop.call, loop.name == "scan"
    if scan and isinstance(parent, ast.Subscript) and spot.code(parent.slice) in ("0", "1"):
        part = parent  # type: ignore[assignment]
    target = (
        statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    )
    if target is not None and isinstance(statement, ast.Assign) and statement.value is part:
        carry = spot.code(target)
        if part is loop.call and scan:
            if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
                raise LookupError("the results of the scan have one name")
            carry, ys = map(spot.code, target.elts)
    elif not (isinstance(statement, ast.Expr) and statement.value is loop.call):
        carry = spot.fresh("result")
        rest = edits.replace(part, carry).code(statement) + "\n"
    if part is not loop.call and spot.code(parent.slice) == "1":  # type: ignore[attr-defined]
        carry, ys = "_", carry
    bound = f"{atom(carry) if ',' in carry else carry}, {group([*([ys] if kept else []), *names])}"
    edits.statements(statement, f"{bound} = {code}\n{again}{rest}")


# --- how often a while loop runs


def _length(loop: LaxLoop) -> str:
    """How often a `while_loop` runs that counts by one up to an end; nothing where it does something else."""
    spot, body, test = loop.spot, loop.body, definition(loop.spot, loop.parts["test"])
    asked, given = returned(spot, test), returned(spot, body)
    if test is None or body is None or len(asked) != 1 or len(given) != 1:
        return ""
    counting = re.fullmatch(r"(state(?:\[(\d+)\])?) < (.*)", _of_state(test, asked[0]))
    if counting is None or "state" in scope.loads(counting[3]):
        return ""
    start, new = loop.start, given[0]
    if counting[2]:
        if not isinstance(start, ast.Tuple) or not isinstance(new, ast.Tuple):
            return ""
        start, new = start.elts[int(counting[2])], new.elts[int(counting[2])]
    added = f"{spot.code(new)} += 1" in map(spot.code, spot.text.own(body, ast.AugAssign))
    after = _of_state(body, new) + " + 1" * added
    begin = spot.code(start)
    return minus(counting[3], begin) if begin.isdigit() and after == f"{counting[1]} + 1" else ""


def _of_state(function: Given, node: ast.expr) -> str:
    """An expression in terms of `state`, whatever a function calls that and its parts."""
    (given,) = (a.arg for a in function.args.args)
    names, first = {given: "state"}, function.body[0] if isinstance(function.body, list) else None
    if isinstance(first, ast.Assign) and ast.unparse(first.value) == given:
        target = first.targets[0]
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        names |= {ast.unparse(e): f"state[{k}]" for k, e in enumerate(parts)}
    text = Text(ast.unparse(node))
    edits = Edits(text)
    for name in text.within(text.tree, ast.Name):
        edits.replace(name, names.get(name.id, name.id))
    return edits.result()


def _without_test(spot: Spot, outer: FunctionNode, loop: LaxLoop, edits: Edits) -> None:
    """The condition's definition goes, where only this loop used it."""
    test = loop.parts["test"]
    used = [n for n in spot.text.within(outer, ast.Name) if isinstance(test, ast.Name) and n.id == test.id]
    for function in spot.text.own(outer, ast.FunctionDef):
        if used == [test] and isinstance(test, ast.Name) and function.name == test.id:
            edits.remove(function)
