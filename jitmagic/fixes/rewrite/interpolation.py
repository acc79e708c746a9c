"""Interpolators of SciPy that are made while jax traces: those along straight lines as calls of `jnp.interp`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import stripped

COST = "beyond the ends it is the last value, not an error"


def candidates(place: Place) -> Iterator[Candidate]:
    """`interp1d(xs, ys)` as `lambda x: jnp.interp(x, xs, ys)`, and a call of it as `jnp.interp` itself."""
    import libcst as cst

    if place.kind != "tracer-array-conversion":
        return
    for call in place.on_line(cst.Call):
        root, _, rest = place.cell.code(call.func).partition(".")
        if ".".join(filter(None, (place.modules.get(root, ""), rest))) != "scipy.interpolate.interp1d":
            continue
        given = [stripped(place.cell.code(a.value)) for a in call.args if a.keyword is None and not a.star]
        keywords = {a.keyword.value: a.value for a in call.args if a.keyword}
        ends = _ends(place, keywords)
        if len(given) != 2 or len(given) + len(keywords) != len(call.args) or ends is None:
            continue
        parent = place.cell.parents.get(call)
        if isinstance(parent, cst.Call) and parent.func is call and len(parent.args) == 1:
            asked = stripped(place.cell.code(parent.args[0].value))
            changes = {parent: f"{place.jnp}.interp({', '.join([asked, *given, *ends])})"}
        else:
            asked = names.fresh("x", place.taken)
            changes = {call: f"lambda {asked}: {place.jnp}.interp({', '.join([asked, *given, *ends])})"}
        cost = "" if ends else COST
        yield Candidate(
            "interpolate with `jnp.interp`", place.cell.edit(changes), "unsafe" if cost else "safe", cost
        )


def _ends(place: Place, keywords: dict[str, Any]) -> list[str] | None:
    """What `interp1d` gives beyond the ends, as arguments of `jnp.interp`; None for what that cannot do."""
    import libcst as cst

    said = {name: place.cell.code(value) for name, value in keywords.items()}
    if said.pop("kind", "'linear'").strip("\"'") != "linear" or set(said) - {"bounds_error", "fill_value"}:
        return None
    fill = keywords.get("fill_value")
    if fill is None:
        nan = f"{place.jnp}.nan"
        return [f"left={nan}", f"right={nan}"] if said.get("bounds_error") == "False" else []
    pair = [place.cell.code(e.value) for e in fill.elements] if isinstance(fill, cst.Tuple) else []
    left, right = pair if len(pair) == 2 else [said["fill_value"]] * 2
    return [f"left={left}", f"right={right}"]
