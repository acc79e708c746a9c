"""A call whose result is thrown away: bound to what the call started from, or returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.scans import loop_name, start_of


def candidates(place: Place, lines: Sequence[Any]) -> Iterator[Candidate]:
    """`x = jax.lax.fori_loop(0, n, body, x)` for the call alone; `return f(x)` at the end of a function."""
    import libcst as cst

    for line in lines[:1] if place.kind == "unused-result" else ():
        small = line.body[0]
        if not isinstance(small, cst.Expr) or not isinstance(small.value, cst.Call):
            continue
        code = place.cell.code(small.value)
        target, function = _target(place, small.value), place.innermost
        if target:
            several = f"({target})" if "," in target else target
            new = f"{several}, _" if loop_name(small.value) == "scan" else target
            yield Candidate(f"bind the result to `{target}`", place.cell.edit({small: f"{new} = {code}"}), "unsafe",
                            changes_result=True)  # fmt: skip
        if (
            function is not None
            and line is function.body.body[-1]
            and not place.cell.own(function, cst.Return)
        ):
            yield Candidate("return the result", place.cell.edit({small: f"return {code}"}), "unsafe",
                            changes_result=True)  # fmt: skip


def _target(place: Place, call: Any) -> str:
    """What the call starts from, where a name (or several) can take its result."""
    import libcst as cst

    name = getattr(getattr(call.func, "attr", call.func), "value", "")
    positional = [a.value for a in call.args if a.keyword is None]
    if loop_name(call):
        start = start_of(call)
    elif name in ("cond", "switch"):
        operands = positional[3 if name == "cond" else 2 :]
        start = operands[0] if len(operands) == 1 else None
    else:
        start = positional[0] if positional else None
    parts = [e.value for e in start.elements] if isinstance(start, cst.Tuple) else [start]
    if not all(isinstance(p, cst.Name) for p in parts):
        return ""
    return ", ".join(str(getattr(p, "value", "")) for p in parts)
