"""`assert` and `raise` on traced values: checks that move into the compiled program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.cells import indented
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import stripped, truth


def checked(place: Place) -> Iterator[Candidate]:
    """An `assert`, or an `if` that raises, as a check that runs with the compiled program."""
    import libcst as cst

    statement = place.cell.statement(place.path[0]) if place.path else None
    if isinstance(statement, cst.If) and only_raises(statement) and _in_header(place, statement):
        yield from _guard(place, statement)
    elif isinstance(statement, cst.If) and _in_header(place, statement) and _raises_else(statement):
        yield _checked_first(place, statement)
    elif isinstance(statement, cst.SimpleStatementLine):
        small = next((s for s in statement.body if isinstance(s, cst.Assert)), None)
        if small is not None and len(statement.body) == 1:
            yield from _assertion(place, statement, small)


def _raises_else(statement: Any) -> bool:
    """`if c: …` with nothing but a `raise` behind `else`."""
    import libcst as cst

    orelse = statement.orelse
    if not isinstance(orelse, cst.Else) or not isinstance(orelse.body, cst.IndentedBlock):
        return False
    last = orelse.body.body[-1]
    own = isinstance(statement.body, cst.IndentedBlock)
    return own and isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)


def _checked_first(place: Place, statement: Any) -> Candidate:
    """`if not c: raise …` first, and what follows `if c` for every value."""
    test = f"not {names.wrapped(stripped(place.cell.code(statement.test)))}"
    refused = indented(place.cell.block(statement.orelse.body.body))
    text = f"if {test}:\n{refused}{place.cell.block(statement.body.body)}"
    return Candidate("check first, then go on", place.cell.edit({statement: text}))


def _in_header(place: Place, statement: Any) -> bool:
    return any(n is statement.test for n in place.path)


def only_raises(statement: Any) -> bool:
    """An `if` without `else` whose body ends in `raise`."""
    import libcst as cst

    if statement.orelse is not None or not isinstance(statement.body, cst.IndentedBlock):
        return False
    last = statement.body.body[-1]
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)


def _guard(place: Place, statement: Any) -> Iterator[Candidate]:
    test = stripped(truth(place, statement.test))
    body = place.cell.block(statement.body.body)
    yield from _with_callback(place, statement, f"if failed:\n{indented(body)}", "failed", test, body)
    yield from _with_nan(place, statement, test, negate=False)


def _assertion(place: Place, statement: Any, small: Any) -> Iterator[Candidate]:
    test = stripped(truth(place, small.test))
    message = place.cell.code(small.msg) if small.msg is not None else ""
    body = f"assert holds, {message}\n" if message else "assert holds\n"
    yield from _with_callback(place, statement, body, "holds", test, message)
    yield from _with_nan(place, statement, test, negate=True)


def _with_callback(
    place: Place, statement: Any, body: str, flag: str, test: str, reads: str
) -> Iterator[Candidate]:
    flag_name = names.fresh(flag, place.taken)
    body = body if flag_name == flag else body.replace(flag, flag_name, 1)
    check = names.fresh("check", place.taken)
    values = sorted(names.loads(reads) & place.traced) if reads.strip() else []
    header = ", ".join([flag_name, *values])
    called = f"{place.jax}.debug.callback({', '.join([check, test, *values])})"
    text = f"def {check}({header}):\n{indented(body)}\n{called}\n"
    yield Candidate(
        "check the values in `jax.debug.callback`, which raises while the compiled function runs",
        place.cell.edit({statement: text}), "unsafe", "the error arrives as one of jax's runtime", raises=True,
    )  # fmt: skip


def _with_nan(place: Place, statement: Any, test: str, *, negate: bool) -> Iterator[Candidate]:
    import libcst as cst

    block, index = place.cell.siblings(statement)
    last = block.body[-1]
    if not isinstance(last, cst.SimpleStatementLine) or not isinstance(last.body[-1], cst.Return):
        return
    value = last.body[-1].value
    if (
        value is None
        or isinstance(value, cst.Tuple)
        or any(place.cell.own(s, cst.Return) for s in block.body[:-1])
    ):
        return
    name = names.fresh("valid" if negate else "invalid", place.taken)
    code = place.cell.code(value)
    order = f"{code}, {place.jnp}.nan" if negate else f"{place.jnp}.nan, {code}"
    changes = {statement: f"{name} = {test}\n", value: f"{place.jnp}.where({name}, {order})"}
    yield Candidate("return `nan` where the check fails, in place of raising", place.cell.edit(changes), "unsafe",
                    "nothing is raised")  # fmt: skip
