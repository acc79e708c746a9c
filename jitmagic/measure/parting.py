"""The first line at which the compiled program and the same operations one by one part, and that at which whole
numbers leave their range: Python's grow, those of a program wrap around.

A value in the middle of a compiled program can't be looked at without compiling another program: what is
fused, and so what goes wrong, depends on what is returned. So prefixes of the program are compiled, each
returning what its last operation gives, and the shortest one that goes wrong is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Literal

from jitmagic import work
from jitmagic.measure.compare import compare
from jitmagic.measure.program import constants_of, inner_line
from jitmagic.measure.reference import CannotEvaluate, Evaluator, PlacedEvaluator, largest_reduction
from jitmagic.tracing.compat import jaxpr_of, run_equation

MOST_BYTES = 1 << 28
"""Of the values kept; nothing is looked for beyond it."""


def first_parting(
    closed_jaxpr: object, flat_args: Sequence[object], file: str, budget_s: float = 2.5
) -> int | None:
    """Line of `file` of the first operation whose compiled value is not that of the operations one by one.

    None where the whole program agrees, no line is known, or it takes longer than `budget_s` seconds."""
    if getattr(closed_jaxpr, "effects", None):
        return None
    deadline = work.clock() + budget_s
    body = jaxpr_of(closed_jaxpr)
    try:
        wanted = _values(closed_jaxpr, flat_args, deadline)
    except CannotEvaluate:
        return None
    places = [i for i in range(len(body.eqns)) if i in wanted]
    terms = largest_reduction(closed_jaxpr)

    def wrong(at: int) -> bool:
        index = places[at]
        found = _compiled(closed_jaxpr, index, flat_args)
        return bool(compare(wanted[index], found, terms=terms))

    if not places or not wrong(len(places) - 1):
        return None
    low, high = 0, len(places) - 1
    while low < high:
        if work.clock() > deadline:
            return None
        middle = (low + high) // 2
        low, high = (low, middle) if wrong(middle) else (middle + 1, high)
    return inner_line(body.eqns[places[low]], file)


def _values(closed: object, args: Sequence[object], deadline: float) -> dict[int, list[Any]]:
    """What each operation gives that gives rounded numbers, by its position."""
    body = jaxpr_of(closed)
    values: dict[Any, Any] = dict(zip(body.constvars, constants_of(closed), strict=True))
    values.update(zip(body.invars, args, strict=True))
    evaluator, size = Evaluator(deadline), 0
    found: dict[int, list[Any]] = {}
    for index, eqn in enumerate(body.eqns):
        given = [v.val if isinstance(v, Literal) else values[v] for v in eqn.invars]
        results = evaluator.equation(eqn, given)
        values.update(zip(eqn.outvars, results, strict=True))
        size += sum(int(getattr(r, "nbytes", 0)) for r in results)
        if size > MOST_BYTES:
            raise CannotEvaluate("the values in between take too much memory")
        if any(jnp.issubdtype(getattr(r, "dtype", bool), jnp.inexact) for r in results):
            found[index] = results
    return found


def _compiled(closed: object, index: int, args: Sequence[object]) -> list[Any]:
    """What the operation at `index` gives in a compiled program that ends with it."""
    body = jaxpr_of(closed)
    constants = constants_of(closed)

    def prefix(*given: object) -> list[Any]:
        values: dict[Any, Any] = dict(zip(body.constvars, constants, strict=True))
        values.update(zip(body.invars, given, strict=True))
        for eqn in body.eqns[: index + 1]:
            inputs = [v.val if isinstance(v, Literal) else values[v] for v in eqn.invars]
            values.update(zip(eqn.outvars, run_equation(eqn, inputs), strict=True))
        return [values[v] for v in body.eqns[index].outvars]

    return list(jax.jit(prefix)(*args))


# -- whole numbers


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
    with np.errstate(all="ignore"):
        if eqn.primitive.name == "integer_pow":
            exact = given[0] ** eqn.params["y"]
        elif eqn.primitive.name in EXACT:
            axes = eqn.params.get("axes")
            exact = EXACT[eqn.primitive.name](*given, **({} if axes is None else {"axis": axes}))
        else:
            return False
        return bool((np.abs(exact) > np.iinfo(dtype).max + 1.0).any())
