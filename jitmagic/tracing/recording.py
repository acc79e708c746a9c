"""The recording run: one run of a function on its real values that finds every place jit would stop at.

It discovers; only `jax.jit`'s own trace decides. The user's side effects happen again and may store shadow
values: the CALLER snapshots the state before and restores it after, and holds back what the run prints.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jitmagic import patches
from jitmagic.evidence import Op, Problem
from jitmagic.tracing import compat
from jitmagic.tracing.leaves import is_array, map_leaves, named_leaves
from jitmagic.tracing.locate import locate
from jitmagic.tracing.messages import is_of_shadows
from jitmagic.tracing.recorder import Leaves, OutOfBudget, Recorder
from jitmagic.tracing.shadow import ShadowTrace, answering_tracers
from jitmagic.tracing.unwinding import let_go

# The public Tracer class is patched while a run is under way, for the whole process.
_lock = threading.RLock()


@dataclass(frozen=True)
class Recording:
    """What one run saw. `complete` is False where it ended early: `note` says why."""

    problems: tuple[Problem, ...] = ()
    """In order of occurrence; an exception that ended the run is the last."""
    error: str | None = None
    complete: bool = True
    note: str = ""


def record(
    fn: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    static: Collection[str] = (),
    constants: Mapping[int, str] | None = None,
    budget_s: float = 5.0,
    reach_inside: bool = False,
) -> Recording:
    """Run `fn` once on its values and record every question that jit could not answer.

    `static`: parameters or leaf paths that stay plain values. `constants`: id of a closed-over array -> path,
    so that its path stands among the leaves. `budget_s`: seconds after which the run is given up at the next
    operation. `reach_inside` runs without jit, so that bodies of loops, branches and inner jitted functions
    are run too. Never raises for what `fn`
    raises (KeyboardInterrupt passes).
    """
    while compat.is_jitted(fn) and hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    with _lock:
        names = [name for name, _ in named_leaves(fn, args, kwargs)]
        order = {name: i for i, name in enumerate(names)}
        recorder = Recorder(order, budget_s, inside=reach_inside)
        return _record(fn, tuple(args), dict(kwargs), frozenset(static), constants or {}, recorder)


def _record(
    fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], static: frozenset[str],
    constants: Mapping[int, str], recorder: Recorder,
) -> Recording:  # fmt: skip
    trace = ShadowTrace(recorder, constants)
    error: BaseException | None = None
    note, complete, handled = "", True, sys.exc_info()[1]
    try:
        args, kwargs = _shadowed(trace, fn, args, kwargs, static)
        with contextlib.ExitStack() as stack:
            if recorder.inside:
                stack.enter_context(jax.disable_jit())
                stack.enter_context(_counting(functools.partial(_counted, trace)))
            for context in (
                answering_tracers(), compat.answering_jitted(trace.call), compat.full_tracebacks(),
                compat.set_current_trace(trace),
            ):  # fmt: skip
                stack.enter_context(context)
            fn(*args, **kwargs)
    except OutOfBudget:
        complete, note = False, f"the search for more problems was stopped after {recorder.budget_s:g} s"
    except Exception as exc:
        complete, error = False, _apart_from(handled, exc)
    finally:
        trace.invalidate()
        _forget(recorder)
    problems = recorder.problems()
    if error is not None:
        problems, note = _with_error(problems, error)
    text = f"{type(error).__name__}: {error}" if error is not None else None
    if error is not None:
        let_go(error)
    return Recording(problems, text, complete, note)


@contextlib.contextmanager
def _counting(shadowed: Callable[[object], object]) -> Iterator[None]:
    """While the block runs, `jax.lax.fori_loop`, `while_loop` and `scan` start with `shadowed(leaf)` for each leaf
    of their state, and `fori_loop` hands its body a shadowed counter: without jit a counter is a plain number, and a
    question to it would not be noticed. In this thread alone."""
    lax: Any = jax.lax
    originals = {name: getattr(lax, name) for name in ("fori_loop", "while_loop", "scan")}

    def started(state: object) -> object:
        return jax.tree.map(shadowed, state)

    def fori_loop(
        lower: object, upper: object, body_fun: Callable[..., object], init_val: object, **options: object
    ) -> object:
        def body(i: object, state: object) -> object:
            return body_fun(shadowed(i), state)

        return originals["fori_loop"](lower, upper, body, started(init_val), **options)

    def while_loop(cond_fun: object, body_fun: object, init_val: object) -> object:
        return originals["while_loop"](cond_fun, body_fun, started(init_val))

    def scan(f: object, init: object, *args: object, **options: object) -> object:
        return originals["scan"](f, started(init), *args, **options)

    patched = {f.__name__: patches.here(f, originals[f.__name__]) for f in (fori_loop, while_loop, scan)}
    with patches.replaced(lax, **patched):
        yield


def _apart_from(handled: BaseException | None, error: BaseException) -> BaseException:
    """The error without what is being handled while the run is made, which is none of its causes."""
    last = error
    while last.__context__ is not None and last.__context__ is not handled:
        last = last.__context__
    last.__context__ = None
    return error


def _counted(trace: ShadowTrace, value: object) -> object:
    """A plain number as the loop would trace it; anything else as it is."""
    if isinstance(value, (bool, int, float, complex, np.generic, np.ndarray)) and _traceable(value):
        return trace.stage_value(value)
    return value


def _forget(recorder: Recorder) -> None:
    """Empty the lru caches that were keyed by shadow values: nothing may outlive the run."""
    for cache in recorder.lru_caches:
        with contextlib.suppress(Exception):
            cache.cache_clear()


def _with_error(problems: tuple[Problem, ...], error: BaseException) -> tuple[tuple[Problem, ...], str]:
    located = replace(locate(error), recorded=True)
    note = f"the search for more problems ended at an error: {located.exception}"
    if located.where is None or is_of_shadows(error):
        return problems, note
    if any(p.where == located.where and p.op == located.op for p in problems):
        return problems, note
    return (*problems, located), note


def _shadowed(
    trace: ShadowTrace, fn: Callable[..., object], args: object, kwargs: object, static: frozenset[str]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """The arguments with every leaf that jit would trace wrapped; others stay as they are."""

    def wrap(name: str, value: object) -> object:
        root = name.split("[")[0].split(".")[0]
        if name in static or root in static or not _traceable(value):
            return value
        return trace.wrap(value if isinstance(value, jax.Array) else jnp.asarray(value), frozenset((name,)))

    return map_leaves(fn, args, kwargs, wrap)


def _traceable(value: object) -> bool:
    if is_array(value):
        return not compat.is_tracer(value)
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


@functools.cache
def available() -> bool:
    """Whether the recording run works on this jax: bool, index, grad and vmap, tried once."""
    try:
        return all(_found(fn, ops) for fn, ops in _self_tests())
    except Exception:
        return False


def _self_tests() -> list[tuple[Callable[..., object], set[str]]]:
    def asks_bool(x: Any) -> object:
        return x if x > 0 else -x

    def asks_index(x: object) -> object:
        return [0, 1, 2][jnp.int32(x)]

    def asks_in_grad(x: object) -> object:
        return jax.grad(lambda v: v * v if v > 0 else v)(x)

    def asks_in_vmap(x: Any) -> object:
        return jax.vmap(lambda v: v if v > 0 else -v)(jnp.stack([x, x]))

    return [
        (asks_bool, {"bool"}),
        (asks_index, {"index"}),
        (asks_in_grad, {"bool"}),
        (asks_in_vmap, {"bool"}),
    ]


def _found(fn: Callable[..., object], ops: set[str]) -> bool:
    # The tests are code of this package, which is no user file: count the questions as they come.
    asked: list[str] = []
    recorder = _Listening(asked)
    trace = ShadowTrace(recorder, {})
    argument = trace.wrap(jnp.float32(1.0), frozenset(("x",)))
    try:
        with answering_tracers(), compat.set_current_trace(trace):
            out = fn(argument)
    finally:
        trace.invalidate()
    return ops <= set(asked) and out is not None


class _Listening(Recorder):
    def __init__(self, asked: list[str]) -> None:
        super().__init__({}, 5.0, inside=False)
        self.asked = asked

    def add(self, op: Op, leaves: Leaves, value: object, frame: object, context: str = "") -> None:
        if "x" in leaves:
            self.asked.append(op)
