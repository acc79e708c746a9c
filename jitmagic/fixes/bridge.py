"""While families move: those on the new toolkit, served to the search that knows the old ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from jitmagic.fixes.change import Change, Family, Spot, Tag
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.source.edits import CannotEdit, Text
from jitmagic.source.modules import Modules


@lru_cache(maxsize=32)
def _text(source: str) -> Text:
    return Text(source)


def spot_of(place: Place) -> Spot:
    """The same place for a family of the new kind."""
    text = _text(place.text)
    names = {**Modules.of({}, text.tree).names, **place.modules}
    column = place.column if place.end_column else -1
    return Spot(
        text, place.kind, place.line, column, place.end_line or place.line, place.end_column, place.names,
        place.function, place.message, Modules(names), place.static, place.defaults, place.scalars,
        place.numpy_arguments, place.calls, place.from_outside, place.probe, place.outputs,
    )  # fmt: skip


def candidates(family: Family, *kinds: str) -> Callable[[Place], Iterator[Candidate]]:
    """A family of the new kind as one of the old, for findings of these kinds."""

    def offered(place: Place) -> Iterator[Candidate]:
        if kinds and place.kind not in kinds:
            return
        try:
            spot = spot_of(place)
            for change in family(spot):
                yield candidate(spot, change)
        except CannotEdit:
            return

    return offered


def candidate(spot: Spot, change: Change) -> Candidate:
    """A change as the text that it makes."""
    cell = change.edits.result() if change.edits is not None else spot.text.source
    claim = change.claim
    sure = change.sure and not claim.words and claim.results not in ("new", "other random")
    return Candidate(
        change.title, cell, "safe" if sure else "unsafe", change.cost, change.calls, change.static, change.dyn,
        claim.effects, claim.raises, Tag.ENDS in change.tags, claim.results == "covers", claim.results == "new",
    )  # fmt: skip
