"""Arrays of which a part counts: a mask for each axis along which that is so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from jitmagic.source.edits import CannotEdit
from jitmagic.source.pattern import atom


class Unsupported(CannotEdit):
    """Something is done with a selection that a mask does not stand for."""


@dataclass(eq=False)
class Mask:
    """Which positions along an axis count; along several axes, where an array was selected by a mask of these."""

    text: str
    """A boolean array."""
    rank: int = 1
    count: str = ""
    """How many count."""
    leading: bool = False
    """Those that count come first."""
    name: str = ""
    """The variable that holds it; nothing where it is written at each use."""
    used: bool = False
    whole: Mask | None = None
    """What this is a piece of."""
    pieces: dict[str, Mask] = field(default_factory=dict)

    def written(self, behind: int = 0) -> str:
        """The mask, with axes of length one behind its own."""
        self.used = True
        text = self.name or self.text
        if self.whole is not None:
            text = f"{atom(self.whole.written())}[{self.text}]"
        return f"{atom(text)}[{', '.join([':'] * self.rank + ['None'] * behind)}]" if behind else text

    def cut(self, first: int = 0, last: int = 0, step: int = 1) -> Mask:
        """The mask of `x[first:-last:step]`, where what counts comes first: of as many fewer."""
        if not self.leading or self.rank > 1 or (last and step != 1) or step < 1 or first < 0:
            raise Unsupported
        piece = f"{first + last}:" if step == 1 else f"{first}::{step}"
        count = f"{self.count} - {first + last}" if self.count and step == 1 else ""
        return self.pieces.setdefault(piece, Mask(piece, count=count, leading=True, whole=self))


@dataclass(frozen=True)
class Length:
    """How many positions of an axis count."""

    mask: Mask

    @property
    def masks(self) -> list[Mask]:
        """The masks that it needs."""
        return [self.mask]

    def renamed(self, names: Mapping[Mask, Mask]) -> Length:
        """The same with other masks. Raises Unsupported where it has one that was made of them."""
        if self.mask not in names:
            raise Unsupported
        return Length(names[self.mask])


Axes = tuple[tuple[int, Mask], ...]
"""Axes of the whole array of which a part counts, in order."""


@dataclass(frozen=True)
class Masked:
    """An expression over whole arrays, and the axes of which a part counts."""

    rank: int
    axes: Axes
    zero: frozenset[int] = frozenset()
    """Axes along which it is 0 where it does not count."""
    holds: Literal["", "places", "own places", "arrays"] = ""
    """What is in it: the places of what counts in the whole array, or `0, 1, …` in the selection; arrays (in a dict or
    a tuple), each of which has the mask along its first axis."""

    @property
    def wide(self) -> Mask | None:
        """The mask of several axes, which are one axis of the selection; these come first."""
        return next((m for _, m in self.axes if m.rank > 1), None)

    @property
    def selected_rank(self) -> int:
        """Rank of the selection itself."""
        return self.rank - (self.wide.rank - 1 if self.wide else 0)

    def at(self, axis: int) -> Mask | None:
        """The mask of an axis of the selection."""
        if self.wide and axis == 0:
            return self.wide
        return next((m for a, m in self.axes if a == self.whole(axis)[0]), None)

    def whole(self, axis: int) -> tuple[int, ...]:
        """The axes of the whole array that are this one of the selection."""
        if self.wide is None:
            return (axis,)
        return tuple(range(self.wide.rank)) if axis == 0 else (axis + self.wide.rank - 1,)

    def spread(self, axes: Iterable[int]) -> str:
        """The masks of these axes of the whole array for `where=`, without axes of length one in front."""
        texts = [m.written(self.rank - a - m.rank) for a, m in self.axes if a in axes]
        return " & ".join(map(atom, texts)) if len(texts) > 1 else texts[0]

    @property
    def masks(self) -> list[Mask]:
        """The masks that it needs."""
        return [m for _, m in self.axes]

    def renamed(self, names: Mapping[Mask, Mask]) -> Masked:
        """The same with other masks. Raises Unsupported where it has one that was made of them."""
        if any(m not in names for m in self.masks):
            raise Unsupported
        return replace(self, axes=tuple((a, names[m]) for a, m in self.axes))

    def turned(self, order: Sequence[int]) -> Masked:
        """The value with its axes in this order."""
        if self.wide is not None:
            raise Unsupported
        to = {old % self.rank: new for new, old in enumerate(order)}
        axes = sorted(((to[a], m) for a, m in self.axes), key=lambda x: x[0])
        return Masked(self.rank, tuple(axes), frozenset(to[a] for a in self.zero))

    def without(self, axes: Sequence[int], *, kept: bool = False) -> Masked | None:
        """The value without these axes, or (`kept`) with length one along them; None where all of it counts."""
        left = [(a, m) for a, m in self.axes if a not in axes]
        if not left:
            return None
        if kept:
            return replace(self, axes=tuple(left), zero=frozenset(), holds="")
        moved = tuple((a - sum(b < a for b in axes), m) for a, m in left)
        return Masked(self.rank - len(axes), moved)


def together(rank: int, values: Iterable[Masked]) -> Masked:
    """What is made element by element of several values, of which the last axes are in common."""
    found: dict[int, Mask] = {}
    values = list(values)
    if any(v.wide and v.rank != rank for v in values):
        raise Unsupported
    for value in values:
        for axis, mask in value.axes:
            if found.setdefault(axis + rank - value.rank, mask) is not mask:
                raise Unsupported
    return Masked(rank, tuple(sorted(found.items(), key=lambda x: x[0])))
