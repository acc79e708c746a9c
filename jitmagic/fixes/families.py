"""The registry: which families of corrections are asked for which kind of finding, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jitmagic.fixes import rewrite
from jitmagic.fixes.change import Change, Claim, Family, Spot, Tag
from jitmagic.fixes.rewrite.place import Place

RAISE = False
"""Tests set it: a family that fails then raises."""


def of(kind: str) -> tuple[Family, ...]:
    """The families for a kind, the first to be asked first."""
    return (_older,)


def _older(spot: Spot) -> Iterator[Change]:
    """Families of the older kind."""
    place = Place(
        text=spot.text.source, kind=spot.kind, line=spot.line, column=max(spot.column, 0), end_line=spot.end_line,
        end_column=spot.end_column, names=spot.names, function=spot.function, message=spot.message,
        modules=spot.modules.names, static=spot.static, calls=spot.attempt.later, probe=spot.probe,
        outputs=spot.outputs, numpy_arguments=spot.numpy_arguments, defaults=spot.defaults,
        from_outside=spot.from_outside, scalars=spot.scalars,
    )  # fmt: skip
    for c in rewrite.candidates(place):
        results = "new" if c.changes_result else "covers" if c.covers else "same"
        later = c.calls if c.calls and len(c.calls) == len(spot.attempt.later) else None
        yield Change(
            c.title, None, later, None, c.static, c.dyn, claim=Claim(results, effects=c.effects, raises=c.raises),  # type: ignore[arg-type]
            cost=c.cost, sure=c.applicability == "safe" or bool(c.cost), text=c.cell,
            tags=frozenset([Tag.ENDS] if c.ends else []),
        )  # fmt: skip


__all__ = ["RAISE", "Family", "of", "replace"]
