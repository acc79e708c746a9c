"""A call whose result is thrown away: bound to what the call started from, or returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jitmagic.fixes.rewrite.carries import alike
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
        names, function = _names(place, small.value), place.innermost
        if names:
            target = ", ".join(names)
            several = f"({target})" if len(names) > 1 else target
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


def _names(place: Place, call: Any) -> list[str]:
    """Names of what a loop starts with, or of arguments that are of the result's structure, shapes and dtypes."""
    import libcst as cst

    if loop_name(call):
        start = start_of(call)
        parts = [e.value for e in start.elements] if isinstance(start, cst.Tuple) else [start]
        found = [p.value for p in parts if isinstance(p, cst.Name)]
        return found if len(found) == len(parts) else []
    on = call.func.value if isinstance(call.func, cst.Attribute) else None
    if isinstance(on, cst.Name) and on.value in place.traced:
        return [on.value]  # `x.astype(...)`, `s._replace(...)`
    given = [a.value.value for a in call.args if a.keyword is None and isinstance(a.value, cst.Name)]
    given = [n for n in given if n in place.traced]
    runs = [given[i:j] for j in range(1, len(given) + 1) for i in range(j)]
    shown = ", ".join(f"lambda: ({', '.join(r)})" for r in runs)
    trees = place.outputs(place.cell.edit({call: f"__outputs([lambda: {place.cell.code(call)}, {shown}])"}))
    fits = (r for r, tree in zip(runs, trees[1:], strict=False) if alike(tree, trees[0]))
    return next(fits, [])
