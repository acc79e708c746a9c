"""A loop whose state grows by a row in each turn: an array of its last length from the start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.carries import BODY, function_of
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.scans import FULL, argument_of, loop_name, mismatches, part_at, start_of

TITLE = "carry an array of the final length, which moves up by one row in each turn"
_GROWS = ("append", "concatenate", "hstack", "vstack")


def candidates(place: Place) -> Iterator[Candidate]:
    """`jnp.append(seen, x)` as `jnp.append(seen, x)[1:]`, on an array that is zeros in front."""
    import libcst as cst

    if place.kind != "carry-mismatch":
        return
    for loop in place.on_line(cst.Call):
        turns = _turns(place, loop)
        grown = [m for m in mismatches(place.message) if m[3]]
        if turns is None or len(grown) != 1:
            continue
        path, _, dtype, shape = grown[0]
        rows, *row = shape.rstrip(",").split(",")
        start = part_at(place, loop, start_of(loop), path)
        longer = _longer(place, loop)
        if longer is None or not isinstance(start, cst.CSTNode):
            continue
        size = ", ".join([turns, *row])
        usual = "" if FULL.get(dtype, dtype) == "float32" else f", {place.jnp}.{FULL.get(dtype, dtype)}"
        front = f"{place.jnp}.zeros({f'({size})' if row else size}{usual})"
        first = front if rows == "1" else f"{place.jnp}.concatenate([{front}, {place.cell.code(start)}])"
        changes = {start: first, longer: f"{place.cell.code(longer)}[1:]"}
        yield Candidate(TITLE, place.cell.edit(changes))


def _turns(place: Place, loop: Any) -> str | None:
    """How often the loop turns, as source; None where that is not said."""
    import libcst as cst

    code = place.cell.code
    if loop_name(loop) == "fori_loop":
        low, high = (code(argument_of(loop, i, n)) for i, n in enumerate(("lower", "upper")))
        return high if low == "0" else f"{names.wrapped(high)} - {names.wrapped(low)}"
    if loop_name(loop) != "scan":
        return None
    xs, length = argument_of(loop, 2, "xs"), argument_of(loop, 3, "length")
    if length is not None:
        return str(code(length))
    return f"{code(xs)}.shape[0]" if isinstance(xs, cst.Name) and xs.value != "None" else None


def _longer(place: Place, loop: Any) -> Any:
    """The call in the body that adds a row to a name of the state; None where there are several."""
    import libcst as cst

    function = function_of(place, loop, *BODY[loop_name(loop)])
    found = []
    for call in place.cell.within(function, cst.Call) if function is not None else ():
        name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if name in _GROWS and len(call.args) == (2 if name == "append" else 1):
            first = call.args[0].value
            if isinstance(first, (cst.List, cst.Tuple)) and len(first.elements) == 2:
                first = first.elements[0].value
            if place.cell.code(first) in place.names:
                found.append(call)
    return found[0] if len(found) == 1 else None
