"""A list that a loop fills with what counts: a comprehension with a condition, which others make a selection of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.conversions import patched
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
    turns, element, condition = _over_elements(place, loop, call.args[0].value, test.test)
    new = f"{name} = [{element} for {turns} if {condition}]\n"
    yield Candidate("select what counts in one expression", place.cell.edit({empty: new, loop: None}))


def _over_elements(place: Place, loop: Any, *parts: Any) -> list[str]:
    """Head and parts of the loop as source; `for i in range(len(xs))` that asks for `xs[i]` alone is over `xs`."""
    import libcst as cst

    code = place.cell.code
    head, texts = f"{stripped(code(loop.target))} in {code(loop.iter)}", [stripped(code(p)) for p in parts]
    counted = re.fullmatch(r"(\w+) in range\((?:len\((\w+)\)|(\w+)\.shape\[0\])\)", head)
    if counted is None:
        return [head, *texts]
    index = counted[1]
    asked = [
        n for p in parts for n in place.cell.within(p, cst.Subscript)
        if isinstance(n.value, cst.Name) and code(n.slice[0]).strip() == index and len(n.slice) == 1
    ]  # fmt: skip
    uses = [n for p in parts for n in place.cell.within(p, cst.Name) if n.value == index]
    arrays = list(dict.fromkeys(n.value.value for n in asked))
    if not asked or len(uses) != len(asked):
        return [head, *texts]
    given = {a: names.fresh(f"{a}_i", place.taken) for a in arrays}
    inner = [patched(place, p, {n: given[n.value.value] for n in asked}) for p in parts]
    every = ", ".join(arrays) if len(arrays) == 1 else f"zip({', '.join(arrays)})"
    return [f"{', '.join(given.values())} in {every}", *map(stripped, inner)]


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
