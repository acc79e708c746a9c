"""A stateful function inside a trace of jax's: grad, vmap, scan, another jit, another stateful function.

The variables are then the traced values of the trace around, if that one knows them; where it does not, a new
value would be lost, and the call is refused.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import jax

from jitmagic.state import adapters, plan, region, values
from jitmagic.state.active import TraceAgain, active, tracing
from jitmagic.state.errors import StateError
from jitmagic.state.paths import Place
from jitmagic.state.state_program import Owner, StateProgram, returned
from jitmagic.tracing import compat


def call(owner: Owner, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    """A call inside grad, vmap, scan, another jit or another stateful function."""
    while True:
        with tracing:
            found = owner.of(args, kwargs)
            program = found.program
            state = tuple(_read_openly(p) for p in program.places)
            unknown = _unknown(program, state)
            compiled = _jitted_here(program)
        try:
            with active.expecting(program):
                result = compiled(*state, *found.args, **found.kwargs)
        except TraceAgain as again:
            if again.owner is not owner:
                raise
            continue
        with tracing:
            made = program.plans[len(result)]
            lost = [op.place.path for op in made.ops if op.leaf in unknown]
            if lost:
                _refuse(program, lost[0], "was called inside a function compiled by jax.jit")
            outputs = [
                _settled(program, v, i, made, state) for i, v in enumerate(result[1 : 1 + made.outputs])
            ]
            with adapters.openly():
                plan.apply(made.ops, outputs)
            return returned(result[0], made)


def _read_openly(place: Place) -> Any:
    """The value at a place, read as its framework wants to see it inside a trace of its own."""
    if place.adapter is None or not place.adapter.openly:
        return place.get()
    with jax.ensure_compile_time_eval() if place.adapter.is_rng else nullcontext():  # made when first read
        value = place.holder().value
    return adapters.read_value(value) if adapters.adapter_for(value) is not None else value


def _jitted_here(program: StateProgram) -> Any:
    """The `jax.jit` function for this call: what it freezes may be a traced value of the trace around it, also one
    that can't be seen from here, so a program made inside another one serves in that trace alone."""
    trace = compat.current_trace()
    if not compat.builds_program(trace):
        return program.jitted() if _freezes_tracers(program) else program.compiled
    if program.inner is None or program.inner[0]() is not trace:
        program.inner = weakref.ref(trace), program.jitted()
    return program.inner[1]


def _freezes_tracers(program: StateProgram) -> bool:
    """What is constant for this function is a traced value of grad or vmap around it."""
    dynamic = {region.slot_of(p) for p in program.places}
    leaves = program.owner.subject(program.given.objects()).reach().leaves(used_only=False)
    return any(
        values.contains_tracer(leaf.value) and region.slot_of(leaf.place) not in dynamic for leaf in leaves
    )


def _unknown(program: StateProgram, state: Sequence[object]) -> list[int]:
    """The variables in objects among the arguments that a jit around does not know: they can be read alone. Any other
    is a StateError. Another stateful function around learns of all, and its trace is made again."""
    missing = [i for i, v in enumerate(state) if not _has_tracer(v)]
    outer = _enclosing_jit()
    if outer is None or not missing:
        return []
    if outer is not True:
        new = [p for i in missing if not outer.knows(region.slot_of(p := program.places[i]))]
        if new:
            outer.owner.adopt(new)
            raise TraceAgain(outer.owner)
        return []
    hidden = [p.path for i in missing if not program.is_given(p := program.places[i])]
    if hidden:
        _refuse(program, hidden[0], "was called inside a function compiled by jax.jit")
    return missing


def _settled(
    program: StateProgram, value: object, index: int, made: plan.Plan, state: Sequence[object]
) -> Any:
    """A new value in a form that stays valid after the innermost transformation."""
    if not compat.is_tracer(value):
        return value
    traces = {id(trace) for trace in active.stack}
    traces |= {id(compat.trace_of(v)) for v in jax.tree.leaves(tuple(state)) if compat.is_tracer(v)}
    for candidate in (value, jax.lax.stop_gradient(value)):
        if not compat.is_tracer(candidate) or id(compat.trace_of(candidate)) in traces:
            return candidate
    path = next(
        (op.place.path for op in made.ops if op.recipe and index in op.recipe.outputs()), "a variable"
    )
    return _refuse(
        program, path, "was called inside a transformation of jax's that does not know this variable"
    )


def _refuse(program: StateProgram, path: str, where: str) -> Any:
    raise StateError(
        f"{program.owner.name} uses the dynamic variable {path}, but it {where}: a change of the variable would be "
        f"lost. compile the outer function with jitmagic.jit(..., dyn_vars={path!r}) instead, or pass the "
        f"value as an argument and return it"
    )


def _has_tracer(value: object) -> bool:
    return any(map(compat.is_tracer, jax.tree.leaves(value)))


def _enclosing_jit() -> Any:
    """The innermost function whose compilation is under way: a `StateProgram`, True for one of jax's, None."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if _is_ours(code):
            return frame.f_locals["self"]
        if compat.traces_jit(code):
            return _ours_around(frame) or True
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _ours_around(frame: Any) -> object:
    """A stateful function being traced around a plain jax.jit: it can be made to know the variables."""
    while frame is not None:
        if _is_ours(frame.f_code):
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def _is_ours(code: types.CodeType) -> bool:
    """The frame of this code is the trace of a stateful function."""
    return code is StateProgram.traced.__code__
