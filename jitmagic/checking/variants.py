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
        self._by_kind: dict[Hashable, Frozen] = {}
        self._part = False

    def add(self, kind: Hashable, frozen: Frozen) -> None:
        """A call of this kind was traced, with these values."""
        self._part = self._part or (self.newest is not None and bool(self.newest.changed()))
        self._by_kind[kind] = self.newest = frozen

    def of(self, kind: Callable[[], Hashable]) -> Frozen | None:
        """What a call goes on with that jax does not trace anew; `kind` tells which one it is, where that matters."""
        return self._by_kind.get(kind(), self.newest) if self._part else self.newest
