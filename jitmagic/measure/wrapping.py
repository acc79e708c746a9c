"""The first line at which whole numbers leave their range: Python's grow, those of a program wrap around."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend.core import JaxprEqn

from jitmagic import work
from jitmagic.measure.program import inner_line
from jitmagic.measure.reference import CannotEvaluate, PlacedEvaluator

EXACT: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "pow": np.power,
    "shift_left": lambda a, b: a * 2.0**b,
    "reduce_sum": np.sum,
    "cumsum": lambda a: np.cumsum(np.abs(a)),
    "reduce_prod": np.prod,
    "cumprod": lambda a: np.cumprod(np.abs(a)),
}
"""The greatest numbers that an operation gives, in floats: close enough to tell a number from its remainder."""


def first_wrapping(
    closed_jaxpr: object, flat_args: Sequence[object], file: str, budget_s: float = 2.5
) -> int | None:
    """Line of `file` of the first operation whose signed whole numbers do not fit; None where all do, or where that
    takes longer than `budget_s` seconds or cannot be tried."""
    watch = _WrapWatch(file, work.clock() + budget_s)
    try:
        watch.run(closed_jaxpr, list(flat_args))
    except (CannotEvaluate, _Found):
        pass
    return watch.line


class _Found(Exception):
    """The operation that was looked for."""


class _WrapWatch(PlacedEvaluator):
    def __init__(self, file: str, deadline: float) -> None:
        super().__init__(deadline)
        self.file = file
        self.line: int | None = None

    def place(self, eqn: JaxprEqn) -> int | None:
        return inner_line(eqn, self.file)

    def primitive(self, eqn: JaxprEqn, args: list[object]) -> list[Any]:
        results = super().primitive(eqn, args)
        if _wraps(eqn, args, results[0] if results else None):
            self.line = self.places[-1]
            raise _Found
        return results


def _wraps(eqn: JaxprEqn, args: Sequence[Any], result: Any) -> bool:
    dtype = getattr(result, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind != "i":
        return False
    given = [np.asarray(a, np.float64) for a in args]
    if eqn.primitive.name == "integer_pow":
        exact = given[0] ** eqn.params["y"]
    elif eqn.primitive.name in EXACT:
        axes = eqn.params.get("axes")
        exact = EXACT[eqn.primitive.name](*given, **({} if axes is None else {"axis": axes}))
    else:
        return False
    return bool((np.abs(exact) > np.iinfo(dtype).max + 1.0).any())
