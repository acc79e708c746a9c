"""Outer variables that the body of a loop updates, as part of the loop's state.

`nonlocal best` in the body of a `scan`, and `out[i] = v` into an array of the outer function in that of a `fori_loop`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.buffers import made_by_jax
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.scans import loop_name, start_of
from jitmagic.fixes.rewrite.stored import rebinding
from jitmagic.rules.words import listed

KINDS = ("leaked-tracer", "state-write", "in-place-update", "tracer-array-conversion")
STATE = {"scan": 0, "fori_loop": 1}
"""Position of the state among the parameters of the body."""


@dataclass
class _Body:
    """A body, the one loop that runs it, and the outer variables that it updates."""

    node: Any
    loop: Any
    updated: list[str] = field(default_factory=list)
    changes: dict[Any, str | None] = field(default_factory=dict)


def candidates(place: Place) -> Iterator[Candidate]:
    """One candidate for each body of a loop that updates variables of the outermost function."""
    import libcst as cst

    if place.kind not in KINDS or place.outermost is None:
        return
    for inner in place.cell.within(place.outermost.body, cst.FunctionDef):
        outer = place.cell.function(inner)
        loops = [c for c in place.cell.own(outer, cst.Call) if _runs(c, inner.name.value)]
        body = _Body(inner, loops[0]) if len(loops) == 1 else None
        if body is not None and _updates(place, outer, body) and _threaded(place, outer, body):
            yield Candidate(f"carry {listed(body.updated)} through the loop", place.cell.edit(body.changes))


def _runs(call: Any, name: str) -> bool:
    """The call is a loop whose body is the function of this name."""
    given = {"scan": 0, "fori_loop": 2}.get(loop_name(call))
    return (
        given is not None and len(call.args) > given
        and getattr(call.args[given].value, "value", None) == name
    )  # fmt: skip


def _updates(place: Place, outer: Any, body: _Body) -> bool:
    """Find what the body binds by `nonlocal` or stores into, and rewrite the stores."""
    import libcst as cst

    code = place.cell.code
    theirs = set(names.stores("\n".join(code(s) for s in outer.body.body)))
    own = set(names.stores("\n".join(code(s) for s in body.node.body.body)))
    own |= {p.name.value for p in body.node.params.params}
    for line in place.cell.own(body.node, cst.SimpleStatementLine):
        small = line.body[0]
        if len(line.body) == 1 and isinstance(small, cst.Nonlocal):
            body.updated += [n.name.value for n in small.names]
            body.changes[line] = None
    for line in place.cell.own(body.node, cst.SimpleStatementLine):
        new = rebinding(place, line.body[0]) if len(line.body) == 1 else None
        if new is not None and new[0] in theirs - own:
            body.changes[line] = f"{new[0]} = {new[1]}\n"
            body.changes |= made_by_jax(place, outer, new[0])
            body.updated += [new[0]] if new[0] not in body.updated else []
    return bool(body.updated)


def _threaded(place: Place, outer: Any, body: _Body) -> bool:
    """The body takes and gives the variables beside its state, the loop starts with them. False where it cannot."""
    import libcst as cst

    kind, code = loop_name(body.loop), place.cell.code
    parameters, start = list(body.node.params.params), start_of(body.loop)
    returns = place.cell.own(body.node, cst.Return)
    if len(parameters) != 2 or len(returns) != 1 or returns[0].value is None or start is None:
        return False
    given = returns[0].value
    if kind == "scan":
        if not isinstance(given, cst.Tuple) or len(given.elements) != 2:
            return False
        given = given.elements[0].value
    beside = ", ".join(body.updated)
    parameter = parameters[STATE[kind]].name
    state = names.fresh("state", place.taken)
    body.changes[parameter] = state
    pair = f"{_entry(code(given))}, {beside}"
    body.changes[given] = f"({pair})" if kind == "scan" else pair
    body.changes[start] = f"({_entry(code(start))}, {beside})"
    head = next((s for s in body.node.body.body if body.changes.get(s, "") is not None), None)
    if head is None:
        return False
    rest = body.changes.get(head) or (f"return {body.changes.pop(given)}{_behind(place, returns[0], given)}\n"
                                      if head is _line(place, returns[0]) else code(head))  # fmt: skip
    body.changes[head] = f"{parameter.value}, {beside} = {state}\n{rest}"
    return _bound(place, body, kind, beside)


def _called(place: Place, body: _Body) -> str:
    """The call of the loop with its new start."""
    start, code = start_of(body.loop), place.cell.code
    new = body.changes.pop(start) or ""
    given = [code(a).replace(code(start), new) if a.value is start else code(a) for a in body.loop.args]
    return f"{code(body.loop.func)}({', '.join(a.strip().rstrip(',') for a in given)})"


def _entry(code: str) -> str:
    return names.wrapped(code) if "," in code and not code.startswith(("(", "[", "{")) else code


def _line(place: Place, node: Any) -> Any:
    return place.cell.statement(node)


def _behind(place: Place, leave: Any, given: Any) -> str:
    """What a `return` gives behind the state."""
    return "" if leave.value is given else f", {place.cell.code(leave.value.elements[1].value)}"


def _bound(place: Place, body: _Body, kind: str, beside: str) -> bool:
    """Bind the variables where the outer function gets the result of the loop."""
    import libcst as cst

    statement = place.cell.statement(body.loop)
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if small is None or len(statement.body) != 1:
        return False
    if isinstance(small, cst.Expr) and small.value is body.loop:
        new = _called(place, body)
        body.changes[statement] = (
            f"(_, {beside}), _ = {new}\n" if kind == "scan" else f"_, {beside} = {new}\n"
        )
        return True
    if not isinstance(small, cst.Assign) or small.value is not body.loop or len(small.targets) != 1:
        return False
    target: Any = small.targets[0].target
    if kind == "scan":
        if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
            return False
        target = target.elements[0].value
    body.changes[target] = f"({_entry(place.cell.code(target))}, {beside})"
    return True
