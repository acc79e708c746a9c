"""The values that a compiled function goes on with: one set for each kind of call that jax has compiled for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jitmagic.state.frozen import Frozen


class Variants:
    """The frozen values of each trace. Kinds of calls are told apart only once two traces hold different values."""

    def __init__(self) -> None:
        self.newest: Frozen | None = None
        self.differ = False
        """Two of the traces hold different values."""
        self._by_kind: dict[Hashable, Frozen] = {}
        self._by_first: dict[Hashable, list[Frozen]] = {}

    def add(self, kind: Hashable, frozen: Frozen, first: Hashable = None) -> None:
        """A call of this kind was traced, with these values; `first`: the kind of its first argument."""
        self.differ = self.differ or (self.newest is not None and bool(self.newest.changed()))
        self._by_kind[kind] = self.newest = frozen
        self._by_first.setdefault(first, []).append(frozen)

    def of(self, kind: Callable[[], Hashable]) -> Frozen | None:
        """What a call goes on with that jax does not trace anew; `kind` tells which one it is, where that matters."""
        return self._by_kind.get(kind(), self.newest) if self.differ else self.newest

    def begun_with(self, first: Hashable) -> Frozen | None:
        """What a call goes on with of which only the kind of the first argument is known; None where that may be
        the one or the other."""
        found = self._by_first.get(first, ())
        return found[0] if len(found) == 1 else None
