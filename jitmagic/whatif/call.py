"""One call of a function as types, and a program made of it: what every transformed form starts from."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import numpy as np

from jitmagic import report
from jitmagic.checking.subject import Subject
from jitmagic.measure import cost
from jitmagic.tracing.leaves import leaves_below
from jitmagic.units import in_code

BATCH = 32
"""Elements of a batch that has to be invented."""

Values = dict[str, Any]


class CannotAsk(Exception):
    """The question makes no sense for this function; the text says why."""


@dataclass(frozen=True)
class TypedCall:
    """One call of the function, its array arguments by name as types, the others held fixed."""

    fn: Callable[..., object]
    bound: inspect.BoundArguments
    types: Values

    @classmethod
    def of(cls, subject: Subject, args: Sequence[object], kwargs: dict[str, object]) -> TypedCall:
        bound = inspect.signature(subject.fn).bind(*args, **kwargs)
        static = subject.options.static_parameters(subject.fn)
        types = {n: types_of(v) for n, v in bound.arguments.items() if n not in static and is_arrays(v)}
        return cls(subject.fn, bound, types)

    def run(self, values: Values) -> object:
        """The function at these arguments."""
        held = {**self.bound.arguments, **values}
        bound = inspect.BoundArguments(self.bound.signature, held)  # type: ignore[arg-type]
        return self.fn(*bound.args, **bound.kwargs)

    def named(self, names: Sequence[str]) -> None:
        """All `names` are array arguments of this call; CannotAsk otherwise."""
        for name in names:
            if name not in self.bound.signature.parameters:
                known = ", ".join(self.bound.signature.parameters) or "none"
                raise CannotAsk(f"`{name}` is no argument of this function; it has {known}")
            if name not in self.types:
                if name not in self.bound.arguments:
                    raise CannotAsk(f"this call leaves `{name}` to its default")
                value = type(self.bound.arguments[name]).__name__
                how = "static" if is_arrays(self.bound.arguments[name]) else f"a {value} and no array"
                raise CannotAsk(f"`{name}` is {how} in this call")


class StagedFunction:
    """A function of named arguments taken through the stages, as far as the settings allow."""

    def __init__(self, subject: Subject, fn: Callable[[Values], object], types: Values) -> None:
        start = time.perf_counter()
        self.traced = jax.jit(_anonymous(fn)).trace(types)
        stages = report.Stages(trace_s=time.perf_counter() - start)
        self.compiled: Any = None
        if subject.settings.rehearse:
            start = time.perf_counter()
            lowered = self.traced.lower()
            middle = time.perf_counter()
            self.compiled = lowered.compile()
            stages = replace(stages, lower_s=middle - start, compile_s=time.perf_counter() - middle)
        self.stages = stages
        self.cost = cost.total_cost(self.traced.jaxpr, self.compiled)

    def told(
        self, kind: Literal["vmap", "grad", "devices"], title: str, base: report.Cost, **more: Any
    ) -> report.WhatIf:
        """The answer that this program gives."""
        return report.WhatIf(kind, title, stages=self.stages, cost=self.cost, plain=base, **more)


def _anonymous(fn: Callable[[Values], object]) -> Callable[[Values], object]:
    # a name of its own, so that counts of the user's function stay exact
    def what_if(values: Values) -> object:
        return fn(values)

    return what_if


def batched(
    subject: Subject, call: TypedCall, multiple: int
) -> tuple[Callable[[Values], object], Values, int, str, tuple[str, ...]]:
    """The vmapped function, its types, the batch and what was chosen: the leading axis where that traces.

    An invented batch is a multiple of `multiple`."""
    names = subject.settings.what_if.vmap
    call.named(names)
    fn = jax.vmap(call.run, in_axes=({n: 0 if n in names else None for n in call.types},))
    found = _leading({n: call.types[n] for n in names})
    if found is not None and found % multiple == 0:
        rows = f"vmap over the {found:,} rows of {in_code(names)}"
        try:
            jax.eval_shape(fn, call.types)
            note = f"its leading axis is taken as the batch: the function sees one row of {in_code(names)}"
            return fn, call.types, found, rows, (note,)
        except Exception:  # it needs the whole array: then the batch is a new axis
            pass
    size = math.lcm(BATCH, multiple)
    types = {n: _with_axis(t, size) if n in names else t for n, t in call.types.items()}
    title = f"vmap over a new axis of {size} for {in_code(names)}"
    why = "the function needs the argument whole" if found is not None else "there is no leading axis to take"
    return fn, types, size, title, (f"the batch of {size} is assumed: {why}",)


def _leading(values: Values) -> int | None:
    """The length of the first axis of all arrays, where they agree."""
    sizes = {t.shape[0] if t.shape else None for t in jax.tree.leaves(values)}
    found = sizes.pop() if len(sizes) == 1 else None
    return found if found and found > 1 else None


def _with_axis(types: object, size: int) -> object:
    return jax.tree.map(lambda t: like((size, *t.shape), t), types)


def is_arrays(value: object) -> bool:
    """All leaves are arrays or numbers that jax takes as arguments."""
    leaves = jax.tree.leaves(value)
    kinds = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)
    return bool(leaves) and all(
        isinstance(x, kinds) and np.dtype(object) != getattr(x, "dtype", None) for x in leaves
    )


def types_of(value: object) -> object:
    """The arrays of a pytree as types."""

    def of(leaf: object) -> object:
        aval = jax.typeof(leaf)
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=bool(getattr(aval, "weak_type", False)))

    return jax.tree.map(of, value)


def like(shape: tuple[int, ...], like: jax.ShapeDtypeStruct, sharding: object = None) -> jax.ShapeDtypeStruct:
    """The type `like` with another shape, and a sharding."""
    return jax.ShapeDtypeStruct(shape, like.dtype, weak_type=like.weak_type, sharding=sharding)


def named_leaves(types: Values) -> list[tuple[str, jax.ShapeDtypeStruct]]:
    """(path, type) of each array: `x`, `p['w']`."""
    return [leaf for name, value in types.items() for leaf in leaves_below(name, value)]


def short(t: Any) -> str:
    """`float32[3,4]`."""
    return f"{t.dtype}[{','.join(map(str, t.shape or ()))}]"
