"""A list that a loop fills with what counts: a comprehension with a condition, which others make a selection of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import stripped


def candidates(place: Place) -> Iterator[Candidate]:
    """`kept = []` and `for x in xs:` with `if c: kept.append(e)` alone, as `kept = [e for x in xs if c]`."""
    import libcst as cst

    test = next((n for n in place.path if isinstance(n, cst.If)), None)
    if place.kind != "tracer-bool" or test is None or test.orelse is not None:
        return
    loop = place.cell.parents.get(place.cell.parents.get(test))
    call = _only_call(test)
    if not isinstance(loop, cst.For) or loop.orelse is not None or len(loop.body.body) != 1 or call is None:
        return
    block, index = place.cell.siblings(loop)
    name = place.cell.code(call.func.value)
    empty = block.body[index - 1] if index else None
    if empty is None or place.cell.code(empty).strip() not in (f"{name} = []", f"{name} = list()"):
        return
    code = place.cell.code
    element, condition = stripped(code(call.args[0].value)), stripped(code(test.test))
    new = f"{name} = [{element} for {stripped(code(loop.target))} in {code(loop.iter)} if {condition}]\n"
    yield Candidate("select what counts in one expression", place.cell.edit({empty: new, loop: None}))


def _only_call(test: Any) -> Any:
    """The call of `kept.append(e)`, where there is nothing else under the `if`."""
    import libcst as cst

    line = test.body.body[0] if len(test.body.body) == 1 else None
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    call: Any = line.body[0].value if isinstance(line.body[0], cst.Expr) else None
    if not isinstance(call, cst.Call) or len(call.args) != 1 or not isinstance(call.func, cst.Attribute):
        return None
    return call if call.func.attr.value == "append" and isinstance(call.func.value, cst.Name) else None
