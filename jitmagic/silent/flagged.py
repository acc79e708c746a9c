"""Where a long program stops being finite: one compiled run that tells of every operation, then a replay by name.

To dispatch each operation by itself costs a compilation for each. Here the program is compiled once with a mark
beside each result (finite, infinite, NaN), loops included, and the marks are followed from operation to operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal

from jitmagic.evidence import NotFinite
from jitmagic.measure.flops import FREE
from jitmagic.measure.program import called_program, scan_parts
from jitmagic.measure.reference import CannotEvaluate, Evaluator, PlacedEvaluator
from jitmagic.silent.in_program import Stack, user_frames
from jitmagic.silent.keys import names_at
from jitmagic.tracing.compat import jaxpr_of
from jitmagic.tracing.sites import site_of

INFINITE, NAN = 1, 2
_BACKWARD = ("transpose", "jvp", "vjp")
_OPAQUE = ("while", "cond")
MOVES = FREE.difference(
    "select_n gather pad dynamic_update_slice reduce_precision convert_element_type".split()
)
"""Operations whose results are as finite as what they are given: no mark of their own."""


@dataclass(frozen=True)
class Flag:
    """What is known of one value: 0 for finite numbers, INFINITE or NAN, and what made it so."""

    code: int
    cause: NotFinite | None = None


def first_not_finite(closed: object, flat_args: Sequence[object]) -> NotFinite | None:
    """As `finite.first_not_finite`, for programs of many operations.

    Raises CannotEvaluate where a `while` or a choice of branches made the number, whose inside is not marked.
    """
    flags = _Flags()

    def marked(*leaves: object) -> list[Any]:
        flags.found = []
        flags.run(closed, list(leaves))
        return flags.found

    told = jax.device_get(_jit(marked, flat_args)(*flat_args))
    replay = _Replay(iter(told))
    results = [replay.mark(r) for r in replay.run(closed, [Flag(0) for _ in flat_args])]
    worst = max(results, key=lambda m: (m.code, m.cause is not None), default=Flag(0))
    if worst.cause is not None and worst.cause.operation in _OPAQUE:
        raise CannotEvaluate(f"it stops being finite inside a `{worst.cause.operation}`")
    return worst.cause


def _jit(marked: Callable[..., object], flat_args: Sequence[object]) -> Any:
    """Compiled in haste where the compiler knows how to: it runs once."""
    hasty = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    try:
        return jax.jit(marked, compiler_options=hasty).lower(*flat_args).compile()
    except jax.errors.JaxRuntimeError:  # another backend has other options
        return jax.jit(marked)


def is_backward(eqn: JaxprEqn) -> bool:
    """The equation belongs to a gradient."""
    return any(word in _transformed(eqn) for word in _BACKWARD)


def _transformed(eqn: JaxprEqn) -> str:
    return str(getattr(eqn.source_info, "name_stack", ""))


def fact(found: PlacedEvaluator, *, infinite: bool) -> NotFinite:
    """The equation that runs now as the one that made the number, at the user's frames above it."""
    stack, eqn = found.places[-1], found.equations[-1]
    site = site_of(*stack[0]) if stack else None
    names = tuple(dict.fromkeys(names_at(site))) if site else ()
    around = {word for word in _BACKWARD for e in found.equations if word in _transformed(e)}
    return NotFinite(
        eqn.primitive.name, site.where if site else None, names, "transpose" in around, infinite, bool(around)
    )


class _Marking(Evaluator):
    """Which results are marked: those that leave the user's expression they were computed in, and the program's own.

    A mark costs about as much to compile as the operation; `jnp.linalg.det(a)` is 50 operations and one mark.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leaving: dict[int, object] = {}
        self.inside = False

    def run(self, jaxpr: object, args: Sequence[object]) -> list[Any]:
        self.leaving |= {id(eqn): eqn for eqn in _leaving(jaxpr_of(jaxpr))}
        return super().run(jaxpr, args)

    def equation(self, eqn: JaxprEqn, args: list[object]) -> list[Any]:
        if eqn.primitive.name in _OPAQUE:
            return self.primitive(eqn, args)
        before = self.inside
        if eqn.primitive.name == "scan":
            self.inside = False
        elif called_program(eqn) is not None:
            self.inside = before or id(eqn) not in self.leaving
        try:
            return super().equation(eqn, args)
        finally:
            self.inside = before

    def is_marked(self, eqn: JaxprEqn) -> bool:
        """The results of this equation have marks of their own."""
        return eqn.primitive.name not in MOVES and not self.inside and id(eqn) in self.leaving


def _leaving(body: Any) -> list[object]:
    """Equations of a program whose results are used by another expression of the user's, or are results of it."""
    place = {id(eqn): (user_frames(eqn)[:1] or None, is_backward(eqn)) for eqn in body.eqns}
    users: dict[object, set[object]] = {}
    for eqn in body.eqns:
        for var in eqn.invars:
            if not isinstance(var, Literal):
                users.setdefault(var, set()).add(place[id(eqn)])
    out = {v for v in body.outvars if not isinstance(v, Literal)}
    return [
        eqn
        for eqn in body.eqns
        if place[id(eqn)][0] is None
        or any(v in out or users.get(v, set()) - {place[id(eqn)]} for v in eqn.outvars)
    ]


class _Flags(_Marking):
    """Evaluates under a trace, and appends the codes of the marked results to `found`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def primitive(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        results = super().primitive(eqn, args)
        if self.is_marked(eqn):
            self.found.append([_code(r) for r in results])
        return results

    def scan(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        fixed, carry, rows = scan_parts(eqn, args)
        carries = len(carry)

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


class _Replay(PlacedEvaluator, _Marking):
    """Follows the marks through the program, in the order in which the operations ran."""

    def __init__(self, told: Iterator[Any]) -> None:
        super().__init__()
        self.told = told
        self.marks: dict[int, tuple[object, Flag]] = {}

    def mark(self, value: object) -> Flag:
        """The mark of a value; constants of the program, which have none yet, are looked at once."""
        if isinstance(value, Flag):
            return value
        if id(value) not in self.marks:
            self.marks[id(value)] = (value, Flag(int(_code(value))))
        return self.marks[id(value)][1]

    def place(self, eqn: object) -> Stack:
        return user_frames(eqn)

    def primitive(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        marks = [self.mark(a) for a in args]
        if not self.is_marked(eqn):
            return [_together(marks)] * len(eqn.outvars)
        return [self._followed(eqn, marks, int(code)) for code in next(self.told)]

    def _followed(self, eqn: JaxprEqn, args: list[Flag], code: int) -> Flag:
        if code == 0:
            return Flag(0)
        bad = [m for m in args if m.code]
        known = next((m.cause for m in bad if m.cause is not None), None)
        given = any(m.code == code for m in bad)
        cause = known or (None if given else fact(self, infinite=code != NAN))
        return Flag(code, cause)

    def scan(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        fixed, carry, rows = scan_parts(eqn, args)
        carries = len(carry)
        told, outer = next(self.told), self.told
        steps = range(eqn.params["length"])
        columns: list[list[Flag]] = []
        for step in reversed(steps) if eqn.params["reverse"] else steps:
            self.told = iter(jax.tree.map(lambda v, step=step: v[step], told))
            results = self.run(eqn.params["jaxpr"], [*fixed, *carry, *map(self.mark, rows)])
            carry = results[:carries]
            columns.append([self.mark(r) for r in results[carries:]])
        self.told = outer
        return [*carry, *(_together(column) for column in zip(*columns, strict=True))]


def _together(marks: Sequence[Flag]) -> Flag:
    """The worst of several marks, the first of those that are as bad."""
    return max(marks, key=lambda m: (m.code, m.cause is not None), default=Flag(0))


def _code(value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        value = jnp.asarray(value)
    elif jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return jnp.int32(0)
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return jnp.int32(0)
    return jnp.where(jnp.isnan(value).any(), NAN, jnp.where(jnp.isfinite(value).all(), 0, INFINITE))
