"""`if` statements on traced conditions: `jnp.where` for what both branches can compute, else `jax.lax.cond`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.cells import indented
from jitmagic.fixes.rewrite.checks import only_raises
from jitmagic.fixes.rewrite.liveness import bound_before, live_after, rebound
from jitmagic.fixes.rewrite.merging import BOTH, COND, WHERE, body_of, call, merged, parts
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.recursion import ended_by
from jitmagic.fixes.rewrite.returning import returning_choice
from jitmagic.fixes.rewrite.truths import maybe_traced, operands_of, stripped, truth


def candidates(place: Place) -> Iterator[Candidate]:
    """The `if` of the place with its branches merged."""
    import libcst as cst

    if place.kind not in ("tracer-bool", "tracer-hash"):
        return
    statement = next((n for n in place.path if isinstance(n, cst.If)), None)
    if statement is None or not _asked(place, statement) or ended_by(place):
        return
    top = _whole(place, statement)
    if any(_jumps(place, n) for n in (top,)):
        return  # `break` and `continue` belong to their loop
    yield from _known_first(place, statement)
    returns = place.cell.own(top, cst.Return)
    if returns:
        yield from returning_choice(place, top)
    elif not only_raises(top):
        yield from _assigning(place, top)


def _known_first(place: Place, statement: Any) -> Iterator[Candidate]:
    """`if flag and x > 0:` with a flag that is known while jax traces, as `if flag:` around `if x > 0:`."""
    import libcst as cst

    test = statement.test
    if statement.orelse is not None or place.cell.own(statement, cst.Return):
        return
    if not isinstance(test, cst.BooleanOperation) or not isinstance(test.operator, cst.And):
        return
    operands = operands_of(test, cst.And)
    count = next((i for i, o in enumerate(operands) if maybe_traced(place, o)), 0)
    if not count:
        return
    outer, inner = (
        " and ".join(place.cell.code(o) for o in part) for part in (operands[:count], operands[count:])
    )
    if isinstance(place.cell.parents.get(statement), cst.If):
        return  # an `elif`
    body = place.cell.block(body_of(statement))
    text = f"if {stripped(outer)}:\n{indented(f'if {stripped(inner)}:{chr(10)}{indented(body)}')}"
    yield Candidate("ask first what is known while jax traces", place.cell.edit({statement: text}))


def _asked(place: Place, statement: Any) -> bool:
    return any(n is statement.test for n in place.path) or place.path[0] is statement


def _whole(place: Place, statement: Any) -> Any:
    """The `if` that an `elif` belongs to."""
    import libcst as cst

    parent = place.cell.parents.get(statement)
    while isinstance(parent, cst.If) and parent.orelse is statement:
        statement, parent = parent, place.cell.parents.get(parent)
    return statement


def _jumps(place: Place, statement: Any) -> bool:
    """A `break` or `continue` in it that leaves it."""
    import libcst as cst

    for jump in place.cell.own(statement, cst.Break, cst.Continue):
        for node in place.cell.ancestors(jump):
            if isinstance(node, (cst.For, cst.While)):
                break
            if node is statement:
                return True
    return False


def _assigning(place: Place, statement: Any) -> Iterator[Candidate]:
    live, before = live_after(place, statement), bound_before(place, statement)
    flat = merged(place, statement, live, before)
    if flat:
        text = "".join(f"{s.name} = {s.value}\n" for s in flat)
        yield Candidate(WHERE, place.cell.edit({statement: text}), "safe", BOTH)
    text2 = _as_cond(place, statement, live, before)
    if text2 is not None:
        yield Candidate(COND, place.cell.edit({statement: text2}))


def _as_cond(place: Place, statement: Any, live: Collection[str], before: Collection[str]) -> str | None:
    first, second = parts(statement)
    texts = [rebound(place, first), rebound(place, second)]
    bound = list(dict.fromkeys([*names.stores(texts[0]), *names.stores(texts[1] or "pass")]))
    outputs = [n for n in bound if n in live]
    if not outputs:
        return None
    parameters = [
        n for n in bound if n in before and (n in outputs or any(n in names.exposed(t) for t in texts if t))
    ]
    if any(n not in before and n not in names.stores(t or "pass") for n in outputs for t in texts):
        return None
    result = ", ".join(outputs)
    defs, functions = "", []
    for word, text in (("when_true", texts[0]), ("when_false", texts[1])):
        if not text.strip():
            tuple_ = f"({result})" if len(outputs) > 1 else result
            functions.append(
                f"lambda {', '.join(parameters)}: {tuple_}" if parameters else f"lambda: {tuple_}"
            )
            continue
        name = names.fresh(word, place.taken)
        body = indented(f"{text.rstrip()}\nreturn {result}\n")
        defs += f"def {name}({', '.join(parameters)}):\n{body}\n"
        functions.append(name)
    test = stripped(truth(place, statement.test))
    return f"{defs}{result} = {call(f'{place.lax}.cond', test, *functions, *parameters)}\n"
