"""A stateful function inside a trace of jax's: grad, vmap, scan, another jit, another stateful function.

The variables are then the traced values of the trace around, if that one knows them; where it does not, a new
value would be lost, and the call is refused.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.state import adapters, plan, region, values
from jitmagic.state.errors import StateError
from jitmagic.state.paths import Place

if TYPE_CHECKING:
    from jitmagic.state.stateful import Stateful

tracing = threading.RLock()
"""Held while a function is traced: a trace puts tracers into shared variables, so there is one at a time."""


class NeedsState(BaseException):
    """A stateful function inside the trace of another one reads variables that this one has to know too."""

    def __init__(self, owner: Stateful, places: Sequence[Place]) -> None:
        super().__init__("internal: variables of an inner function")
        self.owner, self.places = owner, places


class NotPrepared(BaseException):
    """jax traces on a call of the generated wrapper, which has not looked where it is called."""

    def __init__(self, owner: Stateful) -> None:
        super().__init__("internal: a trace that was not prepared")
        self.owner = owner


class _Active(threading.local):
    def __init__(self) -> None:
        self.stack: list[tuple[Stateful, Any]] = []
        """Functions whose traces are under way in this thread, with the traces, outermost first."""
        self.prepared: Stateful | None = None
        """The function whose next trace in this thread was asked for by a call or a stage."""

    @contextlib.contextmanager
    def expecting(self, owner: Stateful | None) -> Iterator[None]:
        """While this holds, `owner` may be traced, once."""
        before, self.prepared = self.prepared, owner
        try:
            yield
        finally:
            self.prepared = before


active = _Active()


def call(owner: Stateful, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call inside grad, vmap, scan, another jit or another stateful function."""
    with tracing:
        owner.current()
        state = tuple(adapters.read_openly(p) for p in owner.places)
        _require_known(owner, state)
        compiled = _jitted_here(owner)
        with active.expecting(owner):
            result = compiled(*state, *args, **kwargs)
        made = owner.plans[len(result)]
        outputs = [_settled(owner, v, i, made, state) for i, v in enumerate(result[1 : 1 + made.outputs])]
        with adapters.openly():
            plan.apply(made.ops, outputs)
        return result[0]


def _jitted_here(owner: Stateful) -> Any:
    """The `jax.jit` function for this call: what it freezes may be a traced value of the trace around it, also one
    that can't be seen from here, so a program made inside another one serves in that trace alone."""
    from jitmagic.tracing import compat

    trace = compat.current_trace()
    if not compat.builds_program(trace):
        return owner.jitted() if _freezes_tracers(owner) else owner.compiled
    if owner.nested is None or owner.nested[0]() is not trace:
        owner.nested = weakref.ref(trace), owner.jitted()
    return owner.nested[1]


def _freezes_tracers(owner: Stateful) -> bool:
    """What is constant for this function is a traced value of grad or vmap around it."""
    dynamic = {region.slot_of(p) for p in owner.places}
    leaves = owner.subject().reach().leaves(used_only=False)
    return any(
        values.contains_tracer(leaf.value) and region.slot_of(leaf.place) not in dynamic for leaf in leaves
    )


def _require_known(owner: Stateful, state: Sequence[Any]) -> None:
    """Every variable is known to the functions being compiled around; StateError or NeedsState if not."""
    from jitmagic.tracing.compat import is_tracer

    missing = [p for p, v in zip(owner.places, state, strict=True) if not _has_tracer(v, is_tracer)]
    outer = _enclosing_jit()
    if outer is None or not missing:
        return
    if outer is not True:
        missing = [p for p in missing if not outer.knows(region.slot_of(p))]
        if missing:
            raise NeedsState(outer, missing)
        return
    _refuse(owner, missing[0].path, "was called inside a function compiled by jax.jit")


def _settled(owner: Stateful, value: Any, index: int, made: plan.Plan, state: Sequence[Any]) -> Any:
    """A new value in a form that stays valid after the innermost transformation."""
    import jax

    from jitmagic.tracing import compat

    if not compat.is_tracer(value):
        return value
    traces = {id(trace) for _, trace in active.stack}
    traces |= {id(compat.trace_of(v)) for v in jax.tree.leaves(tuple(state)) if compat.is_tracer(v)}
    for candidate in (value, jax.lax.stop_gradient(value)):
        if not compat.is_tracer(candidate) or id(compat.trace_of(candidate)) in traces:
            return candidate
    path = next((op.place.path for op in made.ops if _uses(op.recipe, index)), "a variable")
    return _refuse(
        owner, path, "was called inside a transformation of jax's that does not know this variable"
    )


def _refuse(owner: Stateful, path: str, where: str) -> Any:
    raise StateError(
        f"{owner.name} uses the dynamic variable {path}, but it {where}: a change of the variable would be "
        f"lost. compile the outer function with jitmagic.jit(..., dyn_vars={path!r}) instead, or pass the "
        f"value as an argument and return it"
    )


def _uses(recipe: plan.Recipe | None, index: int) -> bool:
    if recipe is None:
        return False
    if recipe.kind == "out":
        return bool(recipe.value == index)
    return recipe.kind != "object" and any(_uses(p, index) for _, p in recipe.parts)


def _has_tracer(value: Any, is_tracer: Callable[[Any], bool]) -> bool:
    import jax

    return any(map(is_tracer, jax.tree.leaves(value)))


def _enclosing_jit() -> Any:
    """The innermost function whose compilation is under way: a `Stateful`, True for one of jax's, None."""
    from jitmagic.tracing import compat

    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if _is_ours(code):
            return frame.f_locals["self"]
        if compat.traces_jit(code):
            return _ours_around(frame) or True
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _ours_around(frame: Any) -> Any:
    """A stateful function being traced around a plain jax.jit: it can be made to know the variables."""
    while frame is not None:
        if _is_ours(frame.f_code):
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def _is_ours(code: types.CodeType) -> bool:
    """The frame of this code is the trace of a stateful function."""
    from jitmagic.state.stateful import Stateful

    return code is Stateful._traced.__code__
