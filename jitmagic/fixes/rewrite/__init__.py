"""Rewrites of the user's cell, one module per family; each offers candidates for a place, the best first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from jitmagic.fixes.rewrite.cells import Unparsable
from jitmagic.fixes.rewrite.place import Candidate, Place

Family = Callable[[Place], Iterable[Candidate]]


class _Ported:
    """A family on the new toolkit, in its place among the old ones."""

    def __init__(self, candidates: Family) -> None:
        self.candidates = candidates


def families() -> tuple[Family, ...]:
    """Every family, in the order in which they are asked."""
    from jitmagic.fixes.bridge import candidates as candidates_of
    from jitmagic.fixes.calls.interpolators import interpolators
    from jitmagic.fixes.rewrite import (
        bounds,
        branches,
        carries,
        choices,
        chosen,
        collected,
        conditions,
        conversions,
        distinct,
        elements,
        escapes,
        filled,
        growing,
        hosted,
        loops,
        memos,
        outputs,
        printing,
        ragged,
        rebuilt,
        recursion,
        refused,
        scans,
        sizes,
        swallowed,
        threaded,
        updates,
    )

    interpolation = _Ported(candidates_of(interpolators, "tracer-array-conversion"))
    modules = (
        printing,
        rebuilt,
        refused,
        recursion,
        conditions,
        elements,
        filled,
        branches,
        chosen,
        loops,
        choices,
        memos,
        distinct,
        sizes,
        swallowed,
        ragged,
        conversions,
        interpolation,
        threaded,
        hosted,
        updates,
        growing,
        scans,
        collected,
        escapes,
        carries,
        outputs,
        bounds,
    )
    return tuple(m.candidates for m in modules)


def candidates(place: Place) -> Iterator[Candidate]:
    """Corrected cells for the place, none of them proved. A family that cannot cope offers nothing."""
    from dataclasses import replace

    for family in families():
        offered = iter(family(place))
        while True:
            try:
                candidate = next(offered)
            except StopIteration:
                break
            except (Unparsable, SyntaxError, RecursionError, LookupError, AttributeError, TypeError):
                if _DEBUG:
                    raise
                break
            yield replace(candidate, cell=place.with_imports(candidate.cell))


_DEBUG = False
