"""Where a long program stops being finite: one compiled run that tells of every operation, then a replay by name.

To dispatch each operation by itself costs a compilation for each. Here the program is compiled once with a mark
beside each result (finite, infinite, NaN), loops included, and the marks are followed from operation to operation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jitmagic.evidence import NotFinite
from jitmagic.measure.program import scan_split
from jitmagic.measure.reference import CannotEvaluate, _Evaluator
from jitmagic.silent import finite

INFINITE, NAN = 1, 2
_OPAQUE = ("while", "cond")


@dataclass(frozen=True)
class Mark:
    """What is known of one value: 0 for finite numbers, INFINITE or NAN, and what made it so."""

    code: int
    cause: NotFinite | None = None


def first_not_finite(closed: Any, flat_args: Sequence[Any]) -> NotFinite | None:
    """As `finite.first_not_finite`, for programs of many operations.

    Raises CannotEvaluate where a `while` or a choice of branches made the number, whose inside is not marked.
    """
    flags = _Flags()

    def marked(*leaves: Any) -> list[Any]:
        flags.found = []
        flags.run(closed, list(leaves))
        return flags.found

    told = jax.device_get(jax.jit(marked)(*flat_args))
    replay = _Replay(iter(told))
    results = replay.run(closed, [Mark(0) for _ in flat_args])
    codes = [replay.mark(r).code for r in results]
    blamed = replay.nan if NAN in codes and replay.nan is not None else replay.infinity
    if blamed is not None and blamed.operation in _OPAQUE:
        raise CannotEvaluate(f"it stops being finite inside a `{blamed.operation}`")
    return blamed if any(codes) else None


class _Flags(_Evaluator):
    """Evaluates under a trace, and appends the codes of each operation's results to `found`."""

    def __init__(self) -> None:
        super().__init__(False, None, time.perf_counter)
        self.found: list[Any] = []

    def equation(self, eqn: Any, args: list[Any]) -> list[Any]:
        if eqn.primitive.name in _OPAQUE:
            return self.primitive(eqn, args)
        return super().equation(eqn, args)

    def primitive(self, eqn: Any, args: list[Any]) -> list[Any]:
        results = super().primitive(eqn, args)
        self.found.append([_code(r) for r in results])
        return results

    def scan(self, eqn: Any, args: list[Any]) -> list[Any]:
        consts, carries = scan_split(eqn)
        fixed, carry, rows = args[:consts], args[consts : consts + carries], args[consts + carries :]

        def body(state: Any, row: Any) -> Any:
            outer, self.found = self.found, []
            results = self.run(eqn.params["jaxpr"], [*fixed, *state, *row])
            inner, self.found = self.found, outer
            return results[:carries], (results[carries:], inner)

        last, (stacked, inner) = jax.lax.scan(
            body, list(carry), list(rows), length=eqn.params["length"], reverse=eqn.params["reverse"]
        )
        self.found.append(inner)
        return [*last, *stacked]


class _Replay(finite._Watch):
    """Follows the marks through the program, in the order in which the operations ran."""

    def __init__(self, told: Iterator[Any]) -> None:
        super().__init__(float("inf"))
        self.told = told
        self.marks: dict[int, tuple[Any, Mark]] = {}

    def mark(self, value: Any) -> Mark:
        """The mark of a value; constants of the program, which have none yet, are looked at once."""
        if isinstance(value, Mark):
            return value
        if id(value) not in self.marks:
            self.marks[id(value)] = (value, Mark(int(_code(value))))
        return self.marks[id(value)][1]

    def equation(self, eqn: Any, args: list[Any]) -> list[Any]:
        if eqn.primitive.name in _OPAQUE:
            return self.primitive(eqn, args)
        return super().equation(eqn, args)

    def primitive(self, eqn: Any, args: list[Any]) -> list[Any]:
        marks = [self.mark(a) for a in args]
        return [self._followed(eqn, marks, int(code)) for code in next(self.told)]

    def _followed(self, eqn: Any, args: list[Mark], code: int) -> Mark:
        if code == 0 or self.nan is not None:
            return Mark(code)
        bad = [m for m in args if m.code]
        known = next((m.cause for m in bad if m.cause is not None), None)
        cause = known or (None if bad and code != NAN else self._fact(eqn, infinite=code != NAN))
        if code == NAN:
            self.nan = cause
        elif self.infinity is None:
            self.infinity = cause
        return Mark(code, cause)

    def scan(self, eqn: Any, args: list[Any]) -> list[Any]:
        consts, carries = scan_split(eqn)
        fixed, carry, rows = args[:consts], args[consts : consts + carries], args[consts + carries :]
        told, outer = next(self.told), self.told
        steps = range(eqn.params["length"])
        columns: list[list[Mark]] = []
        for step in reversed(steps) if eqn.params["reverse"] else steps:
            self.told = iter(jax.tree.map(lambda v, step=step: v[step], told))
            results = self.run(eqn.params["jaxpr"], [*fixed, *carry, *map(self.mark, rows)])
            carry = results[:carries]
            columns.append([self.mark(r) for r in results[carries:]])
        self.told = outer
        return [*carry, *(_together(column) for column in zip(*columns, strict=True))]


def _together(marks: Sequence[Mark]) -> Mark:
    cause = next((m.cause for m in marks if m.cause is not None), None)
    return Mark(max(m.code for m in marks), cause)


def _code(value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        value = jnp.asarray(value)
    elif jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return jnp.int32(0)
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return jnp.int32(0)
    return jnp.where(jnp.isnan(value).any(), NAN, jnp.where(jnp.isfinite(value).all(), 0, INFINITE))
