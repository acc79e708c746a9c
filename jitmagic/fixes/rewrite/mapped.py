"""`jax.vmap(f)(params, xs)` where not every argument has a row for each turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.around import UNEQUAL_ROWS
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.scans import argument_of


def candidates(place: Place) -> Iterator[Candidate]:
    """`in_axes` that leaves one of the arguments whole."""
    import libcst as cst

    if place.kind != "user-error" or UNEQUAL_ROWS not in place.message:
        return
    for call in place.on_line(cst.Call):
        made, count = call.func, len(call.args)
        if not isinstance(made, cst.Call) or not _is_vmap(place, made) or count < 2:
            continue
        if argument_of(made, 1, "in_axes") is not None or any(a.keyword or a.star for a in call.args):
            continue
        for i, argument in enumerate(call.args):
            axes = ", ".join("None" if j == i else "0" for j in range(count))
            code = f"{place.cell.code(made)[:-1].rstrip().rstrip(',')}, in_axes=({axes}))"
            title = f"give `{place.cell.code(argument.value).strip()}` to each turn as a whole"
            yield Candidate(title, place.cell.edit({made: code}), "unsafe")


def _is_vmap(place: Place, made: Any) -> bool:
    return place.cell.code(made.func).rpartition(".")[2] == "vmap"
