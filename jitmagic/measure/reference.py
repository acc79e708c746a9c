"""A traced program evaluated operation by operation, as a reference for the compiled one.

Nothing is fused: each operation is dispatched by itself, inner programs are entered, loops and choices run in
Python. What the compiled program gets wrong and this one right is the compiler's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Literal, jaxpr_as_fun

from jitmagic import work
from jitmagic.measure.flops import EXACT, FREE, terms
from jitmagic.measure.program import called_program, constants_of, last_uses, scan_parts, walk
from jitmagic.tracing.compat import jaxpr_of, run_equation

REMEDY = {"xla_cpu_experimental_ynn_fusion_type": ""}
"""The option of the compiler that turns off the library fusion with which XLA:CPU of jaxlib 0.10 to 0.12 compiles
some reductions wrongly: for `jax.jit(f, compiler_options=...)`, or in XLA_FLAGS before jax is imported."""

_SILENT = frozenset("debug_callback debug_print".split())
_WRITES = ("WriteEffect", "AccumEffect", "IOEffect", "OrderedIOEffect", "_OrderedIOEffect", "IoEffect")


class CannotEvaluate(Exception):
    """The program cannot be run operation by operation: it has side effects, or it takes too long."""


def mended(closed_jaxpr: object, flat_args: Sequence[object]) -> list[object]:
    """Leaves of the result of the program compiled with REMEDY; raises where the compiler has no such option,
    CannotEvaluate where a second run would be seen outside."""
    if getattr(closed_jaxpr, "effects", None):
        raise CannotEvaluate("it does more than compute, and would do it twice")
    return list(jax.jit(jaxpr_as_fun(closed_jaxpr), compiler_options=REMEDY)(*flat_args))


class Leading:
    """The first `count` leaves of what a program gives: its own result, without the variables it writes."""

    def __init__(self, program: TracedProgram, count: int) -> None:
        self._program, self._count = program, count

    def __call__(self) -> list[Any]:
        """As the program's, cut off."""
        return self._program()[: self._count]

    def noisy(self) -> list[Any]:
        """As the program's, cut off."""
        return self._program.noisy()[: self._count]


class TracedProgram:
    """A traced program with the leaves of one call; called, it gives the leaves of the result.

    `budget_s` bounds the seconds of each evaluation; CannotEvaluate is raised beyond it, and where the program
    writes to the outside. What it prints is not printed again."""

    def __init__(
        self,
        closed_jaxpr: object,
        flat_args: Sequence[object],
        budget_s: float | None = None,
        clock: Callable[[], float] = work.clock,
    ) -> None:
        self._jaxpr = closed_jaxpr
        self._args = list(flat_args)
        self._budget_s = budget_s
        self._clock = clock
        self.evaluated = False
        """It ran to its end at least once."""

    def __call__(self) -> list[Any]:
        """The result's leaves, each operation run by itself.

        Raises CannotEvaluate where the program writes to the outside; what it prints is not printed again."""
        return self._run(noisy=False)

    def noisy(self) -> list[Any]:
        """The same with every rounded value moved to a neighbouring number of its type.

        The distance to the plain result shows how far rounding alone can carry this program (Monte Carlo
        arithmetic, Parker 1997, with a fixed hash in place of random directions)."""
        return self._run(noisy=True)

    def _run(self, noisy: bool) -> list[Any]:
        deadline = None if self._budget_s is None else self._clock() + self._budget_s
        evaluator = Evaluator(deadline, self._clock, noisy=noisy)
        results = evaluator.run(self._jaxpr, evaluator.inputs(self._args))
        self.evaluated = True
        return results


def largest_reduction(jaxpr: object) -> int:
    """The largest number of elements that the program adds up into one, loops included; at least 1."""
    return max((terms(op.eqn) * max(1, round(op.times)) for op in walk(jaxpr)), default=1)


class Evaluator:
    """Runs a program operation by operation; what it does with an equation is a method, to be overridden.

    Raises CannotEvaluate where the deadline, by this clock, is over; `noisy` moves each rounded value."""

    def __init__(
        self,
        deadline: float | None = None,
        clock: Callable[[], float] = work.clock,
        *,
        noisy: bool = False,
    ) -> None:
        self.noisy = noisy
        self.deadline = deadline
        self.clock = clock
        self.count = 0

    def inputs(self, args: Sequence[object]) -> list[Any]:
        """The arguments that a program begins with."""
        return [self.moved(jnp.asarray(a)) for a in args] if self.noisy else list(args)

    def run(self, jaxpr: object, args: Sequence[object]) -> list[Any]:
        """Results of an open or closed jaxpr."""
        body = jaxpr_of(jaxpr)
        values: dict[Any, Any] = dict(zip(body.constvars, constants_of(jaxpr), strict=True))
        values.update(zip(body.invars, args, strict=True))
        last = last_uses(body)

        def read(atom: object) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for index, eqn in enumerate(body.eqns):
            results = self.equation(eqn, [read(v) for v in eqn.invars])
            values.update(zip(eqn.outvars, results, strict=True))
            for var in last.get(index, ()):
                values.pop(var, None)
        return [read(v) for v in body.outvars]

    def equation(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        """Results of one equation; inner programs are entered."""
        name = eqn.primitive.name
        if name in _SILENT:
            return []
        if name == "scan" and eqn.params["length"]:
            return self.scan(eqn, args)
        if name == "while":
            return self.loop(eqn, args)
        if name == "cond":
            branches = eqn.params["branches"]
            return self.run(branches[min(max(int(args[0]), 0), len(branches) - 1)], args[1:])
        inner = called_program(eqn)
        if inner is not None:
            return self.run(inner[0], [args[i] for i in inner[1]])
        return self.primitive(eqn, args)

    def primitive(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        """Results of an equation that is an operation by itself."""
        if any(type(e).__name__ in _WRITES for e in eqn.effects):
            raise CannotEvaluate(f"{eqn.primitive.name} changes something outside the program")
        if self.deadline is not None and self.clock() > self.deadline:
            raise CannotEvaluate("the evaluation operation by operation took too long")
        with getattr(eqn.ctx, "manager", None) or nullcontext():
            results = run_equation(eqn, args)
        rounds = eqn.primitive.name not in FREE and eqn.primitive.name not in EXACT
        return [self.moved(r) for r in results] if self.noisy and rounds else results

    def scan(self, eqn: JaxprEqn, args: list[object]) -> list[Any]:
        """Results of a loop of known length."""
        params, (fixed, carry, rows) = eqn.params, scan_parts(eqn, args)
        carries, steps = len(carry), range(params["length"])
        stacked: list[list[Any]] = []
        for step in reversed(steps) if params["reverse"] else steps:
            results = self.run(params["jaxpr"], [*fixed, *carry, *(_row(x, step) for x in rows)])
            carry = results[:carries]
            stacked.append(results[carries:])
        if params["reverse"]:
            stacked.reverse()
        return [*carry, *(_stack(column) for column in zip(*stacked, strict=True))]

    def loop(self, eqn: JaxprEqn, args: list[object]) -> list[Any]:
        """Results of a `while`."""
        params = eqn.params
        split = params["cond_nconsts"]
        end = split + params["body_nconsts"]
        carry = args[end:]
        while True:
            (going,) = self.run(params["cond_jaxpr"], [*args[:split], *carry])
            if jnp.ndim(going):
                raise CannotEvaluate("a while loop over a batch stops element by element")
            if not bool(going):
                return carry
            carry = self.run(params["body_jaxpr"], [*args[split:end], *carry])

    def moved(self, value: Any) -> Any:
        """A neighbour of each number in a floating array; whole numbers, infinities and nan stay."""
        dtype = getattr(value, "dtype", None)
        if dtype is None or jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
            return value
        self.count += 1
        if jnp.issubdtype(dtype, jnp.complexfloating):
            return jax.lax.complex(_neighbour(value.real, self.count), _neighbour(value.imag, self.count))
        if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize > 1:
            return _neighbour(value, self.count)
        return value


class PlacedEvaluator(Evaluator):
    """Knows where each equation stands, in `places[-1]`: in its own place, or in that of the call around it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.places: list[Any] = [None]
        self.equations: list[JaxprEqn] = []
        """The one that runs now, behind the calls around it."""

    def place(self, eqn: JaxprEqn) -> Any:
        """The equation's own place, nothing where that is not known."""
        raise NotImplementedError

    def equation(self, eqn: JaxprEqn, args: list[object]) -> list[Any]:
        """As without places."""
        self.places.append(self.place(eqn) or self.places[-1])
        self.equations.append(eqn)
        try:
            return super().equation(eqn, args)
        finally:
            self.places.pop()
            self.equations.pop()


@partial(jax.jit, donate_argnums=())
def _neighbour(x: Any, salt: int) -> Any:
    unsigned = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[x.dtype.itemsize]
    bits = jax.lax.bitcast_convert_type(x, unsigned).astype(jnp.uint32)
    up = ((bits + jnp.uint32(salt)) * jnp.uint32(2654435761) >> 16) & 1
    limit = jnp.asarray(jnp.inf, x.dtype)
    near = jnp.where(up == 1, jnp.nextafter(x, limit), jnp.nextafter(x, -limit))
    # A counter kept as a float is exact, however it is compiled; noise there would be an invention.
    whole = (x == jnp.round(x)) & (jnp.abs(x) < 1 / jnp.finfo(x.dtype).eps)
    return jnp.where(whole | ~jnp.isfinite(x), x, near)


def _row(array: object, step: int) -> Any:
    return jax.lax.dynamic_index_in_dim(array, step, keepdims=False)


def _stack(column: Sequence[Any]) -> Any:
    first = column[0]
    if jax.dtypes.issubdtype(getattr(first, "dtype", None), jax.dtypes.prng_key):
        impl = jax.random.key_impl(first)
        return jax.random.wrap_key_data(_stack([jax.random.key_data(k) for k in column]), impl=impl)
    # On the host: a stack of many arrays on the device is a program that takes seconds to compile.
    return jnp.asarray(np.stack([np.asarray(c) for c in column]))
