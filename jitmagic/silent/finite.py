"""The first operation of a traced program that makes NaN or infinity from finite numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jitmagic.evidence import NotFinite
from jitmagic.measure.program import walk
from jitmagic.measure.reference import CannotEvaluate, _Evaluator
from jitmagic.silent.in_program import Stack, user_frames
from jitmagic.silent.keys import _names
from jitmagic.tracing.compat import is_unreduced
from jitmagic.tracing.sites import site_of

MANY = 8
"""Operations from which on one program that marks them all is cheaper than to dispatch each."""
TOO_MANY = 200
"""Operations in the text of the program (loops once) up to which that program compiles in a second or two."""
_BACKWARD = ("transpose", "jvp", "vjp")


def is_finite(tree: Any) -> bool:
    """No NaN and no infinity in the floating leaves of a tree."""
    return all(_finite(leaf) for leaf in jax.tree.leaves(tree))


def first_not_finite(closed: Any, flat_args: Sequence[Any], budget_s: float = 2.0) -> NotFinite | None:
    """Run the program operation by operation; None where every operation gives finite numbers from finite ones.

    Infinities and NaN that the program is given, or holds as constants, are meant and are not blamed. Raises
    CannotEvaluate where it has side effects or takes longer than `budget_s` seconds.
    """
    import time

    if not is_finite(list(flat_args)):
        return None
    operations = walk(closed)
    if sum(op.times for op in operations) > MANY and len(operations) <= TOO_MANY:
        from jitmagic.silent import flagged

        with contextlib.suppress(Exception):  # what it cannot follow is dispatched one by one
            return flagged.first_not_finite(closed, flat_args)
    watch = _NotFiniteWatch(time.perf_counter() + budget_s)
    results = watch.run(closed, list(flat_args))
    wrong = [r for r in results if not _finite(r)]
    if not wrong:
        return None
    blamed = watch.nan if any(_has_nan(r) for r in wrong) and watch.nan else watch.infinity
    return blamed


class _NotFiniteWatch(_Evaluator):
    """Evaluates as the reference does, and remembers where the first NaN and the first infinity came up."""

    def __init__(self, deadline: float) -> None:
        import time

        super().__init__(False, deadline, time.perf_counter)
        self.nan: NotFinite | None = None
        self.infinity: NotFinite | None = None
        self.born: dict[int, tuple[Any, NotFinite | None]] = {}
        self.outer: list[Stack] = []

    def equation(self, eqn: Any, args: list[Any]) -> list[Any]:
        stack = user_frames(eqn) or (self.outer[-1] if self.outer else ())
        self.outer.append(stack)
        try:
            return super().equation(eqn, args)
        finally:
            self.outer.pop()

    def primitive(self, eqn: Any, args: list[Any]) -> list[Any]:
        results = super().primitive(eqn, args)
        if self.nan is None:
            for result in results:
                if not _finite(result):
                    self._look_at(eqn, args, result)
        return results

    def _look_at(self, eqn: Any, args: list[Any], result: Any) -> None:
        bad = [a for a in args if not _finite(a)]
        known = next((self.born[id(a)][1] for a in bad if id(a) in self.born), None)
        nan = _has_nan(result)
        given = any(map(_has_nan, bad)) if nan else bool(bad)
        # 0 * inf: what made the infinity is the cause, not the product.
        found = known or (
            None if given else fact(eqn, self.outer[-1] if self.outer else (), infinite=not nan)
        )
        self.born[id(result)] = (result, found)
        if nan:
            self.nan = found
        elif self.infinity is None:
            self.infinity = found


def is_backward(eqn: Any) -> bool:
    """The equation belongs to a gradient."""
    return any(word in str(getattr(eqn.source_info, "name_stack", "")) for word in _BACKWARD)


def fact(eqn: Any, stack: Stack, *, infinite: bool) -> NotFinite:
    """The equation as the one that made the number, at the user's frames above it."""
    site = site_of(*stack[0]) if stack else None
    names = tuple(dict.fromkeys(_names(site))) if site else ()
    return NotFinite(eqn.primitive.name, site.where if site else None, names, is_backward(eqn), infinite)


def _finite(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return not isinstance(value, float) or value - value == 0.0
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended) or not jnp.issubdtype(dtype, jnp.inexact):
        return True
    if is_unreduced(value):
        return True
    return bool(_numbers(value).isfinite(_near(value)).all())


def _has_nan(value: Any) -> bool:
    return bool(_numbers(value).isnan(_near(value)).any())


def _numbers(value: Any) -> Any:
    """NumPy where the array lies in the memory of the host: nothing is copied, and nothing has to be compiled."""
    return np if _on_host(value) else jnp


def _near(value: Any) -> Any:
    return np.asarray(value) if _on_host(value) else value


def _on_host(value: Any) -> bool:
    return not isinstance(value, jax.Array) or (
        value.is_fully_addressable and all(d.platform == "cpu" for d in value.devices())
    )


__all__ = ["CannotEvaluate", "first_not_finite", "is_finite"]
