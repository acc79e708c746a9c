"""The first operation of a traced program that makes NaN or infinity from finite numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn

from jitmagic import work
from jitmagic.evidence import NotFinite
from jitmagic.measure import peak
from jitmagic.measure.program import walk
from jitmagic.measure.reference import CannotEvaluate, PlacedEvaluator
from jitmagic.silent import flagged
from jitmagic.silent.in_program import Stack, user_frames
from jitmagic.state.values import on_host
from jitmagic.tracing import trees
from jitmagic.tracing.compat import is_unreduced

MANY = 8
"""Operations from which on one program that marks them all is cheaper than to dispatch each."""
TOO_MANY = 200
"""Operations in the text of the program (loops once) up to which that program compiles in a second or two."""


def is_finite(tree: object) -> bool:
    """No NaN and no infinity in the floating leaves of a tree."""
    return all(_finite(leaf) for leaf in trees.leaves(tree))


def has_nan(tree: object) -> bool:
    """A NaN in one of the floating leaves of a tree."""
    return any(map(_has_nan, trees.leaves(tree)))


def first_not_finite(closed: object, flat_args: Sequence[object], budget_s: float = 2.0) -> NotFinite | None:
    """Run the program operation by operation; None where every operation gives finite numbers from finite ones.

    Infinities and NaN that the program is given, or holds as constants, are meant and are not blamed. Raises
    CannotEvaluate where it has side effects, takes longer than `budget_s` seconds or more than half of the memory.
    """
    if too_large := peak.too_large(closed):
        raise CannotEvaluate(too_large)
    if any(getattr(v, "is_deleted", bool)() for v in flat_args):
        raise CannotEvaluate("its arguments were given away (donated)")
    if not is_finite(list(flat_args)):
        return None
    operations = walk(closed)
    if sum(op.times for op in operations) > MANY and len(operations) <= TOO_MANY:
        with contextlib.suppress(Exception):  # what it cannot follow is dispatched one by one
            return flagged.first_not_finite(closed, flat_args)
    watch = _NotFiniteWatch(work.clock() + budget_s)
    results = watch.run(closed, list(flat_args))
    wrong = [r for r in results if not _finite(r)]
    if not wrong:
        return None
    blamed = watch.nan if any(_has_nan(r) for r in wrong) and watch.nan else watch.infinity
    return blamed


class _NotFiniteWatch(PlacedEvaluator):
    """Evaluates as the reference does, and remembers where the first NaN and the first infinity came up."""

    def __init__(self, deadline: float) -> None:
        super().__init__(deadline)
        self.nan: NotFinite | None = None
        self.infinity: NotFinite | None = None
        self.born: dict[int, tuple[object, NotFinite | None]] = {}

    def place(self, eqn: object) -> Stack:
        return user_frames(eqn)

    def primitive(self, eqn: JaxprEqn, args: list[object]) -> list[Any]:
        results = super().primitive(eqn, args)
        if self.nan is None:
            for result in results:
                if not _finite(result):
                    self._look_at(eqn, args, result)
        return results

    def _look_at(self, eqn: JaxprEqn, args: list[object], result: object) -> None:
        bad = [a for a in args if not _finite(a)]
        known = next((self.born[id(a)][1] for a in bad if id(a) in self.born), None)
        nan = _has_nan(result)
        given = any(map(_has_nan, bad)) if nan else bool(bad)
        # 0 * inf: what made the infinity is the cause, not the product.
        found = known or (None if given else flagged.fact(self, infinite=not nan))
        self.born[id(result)] = (result, found)
        if nan:
            self.nan = found
        elif self.infinity is None:
            self.infinity = found


def _finite(value: object) -> bool:
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return not isinstance(value, float) or value - value == 0.0
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended) or not jnp.issubdtype(dtype, jnp.inexact):
        return True
    if is_unreduced(value) or getattr(value, "is_deleted", bool)():
        return True
    return bool(_numbers(value).isfinite(_near(value)).all())


def _has_nan(value: object) -> bool:
    return bool(_numbers(value).isnan(_near(value)).any())


def _numbers(value: object) -> Any:
    """NumPy where the array lies in the memory of the host: nothing is copied, and nothing has to be compiled."""
    return np if _on_host(value) else jnp


def _near(value: object) -> object:
    return on_host(value) if _on_host(value) else value


def _on_host(value: object) -> bool:
    return not isinstance(value, jax.Array) or (
        value.is_fully_addressable and all(d.platform == "cpu" for d in value.devices())
    )


__all__ = ["CannotEvaluate", "first_not_finite", "has_nan", "is_finite"]
