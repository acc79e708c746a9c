"""Trace, lower, compile: each stage timed, each trace and compilation counted."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax

from jitmagic.report import Stages
from jitmagic.tracing import compat

TRACE = "/jax/core/compile/jaxpr_trace_duration"
LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILE = "/jax/core/compile/backend_compile_duration"
CACHE_ASKED = "/jax/compilation_cache/compile_requests_use_cache"
CACHE_HIT = "/jax/compilation_cache/cache_hits"


@dataclass(eq=False)
class Counts:
    """Events of jax while a block ran: (stage, name of the function, seconds)."""

    events: list[tuple[str, str, float]] = field(default_factory=list)

    def traces(self, fn: Callable[..., object] | str) -> int:
        """How often jax traced a function of this name."""
        return self._count(TRACE, fn)

    def compiles(self, fn: Callable[..., object] | str) -> int:
        """How often the backend compiled a function of this name."""
        return self._count(COMPILE, fn)

    def hear(self, event: str, name: str, seconds: float) -> None:
        """Note one event."""
        if event in (TRACE, COMPILE):
            self.events.append((event, name, seconds))

    def _count(self, stage: str, fn: Callable[..., object] | str) -> int:
        name = fn if isinstance(fn, str) else getattr(fn, "__name__", "")
        names = (name, f"jit({name})", f"jit_{name}")
        return sum(s == stage and n in names for s, n, _ in self.events)


told: list[Callable[[str, str, float], None]] = []
"""What is called with each event: which one, the name of the function, the seconds that it took."""
_compiled: dict[str, int] = {}
_spent: dict[str, dict[str, float]] = {}
"""Seconds by event, for each name of a function."""
_registered = False


def _ended(event: str, duration_secs: float, **details: str | int) -> None:
    if event in (TRACE, LOWER, COMPILE):
        name = str(details.get("fun_name", ""))
        if event == COMPILE:
            _compiled[name] = _compiled.get(name, 0) + 1
        spent = _spent.setdefault(name, {})
        spent[event] = spent.get(event, 0.0) + duration_secs
        for tell in tuple(told):
            tell(event, name, duration_secs)


def _happened(event: str, **details: str | int) -> None:
    if event in (CACHE_ASKED, CACHE_HIT):
        for tell in tuple(told):
            tell(event, "", 0.0)


def listen() -> None:
    """Begin to count. One listener for the process: jax has no public way to take a single one out."""
    global _registered
    if not _registered:
        jax.monitoring.register_event_duration_secs_listener(_ended)
        jax.monitoring.register_event_listener(_happened)
        _registered = True


def compiled_so_far(name: str) -> int:
    """How often the backend has compiled a function of this name since the first count began."""
    return _compiled.get(f"jit({name})", 0) + _compiled.get(name, 0)


def spent_so_far(name: str) -> Stages:
    """Seconds of all traces and compilations of functions of this name since the first count began."""
    found = [_spent.get(n, {}) for n in (f"jit({name})", name)]

    def of(event: str) -> float:
        return sum(spent.get(event, 0.0) for spent in found)

    return Stages(of(TRACE), of(LOWER), of(COMPILE))


@contextmanager
def counted() -> Iterator[Counts]:
    """Exact counts of traces and compilations in the block, from `jax.monitoring`."""
    listen()
    counts = Counts()
    told.append(counts.hear)
    try:
        yield counts
    finally:
        told.remove(counts.hear)


@dataclass
class Staged:
    """One function taken through the stages; `compiled` is None where only a trace was wanted."""

    traced: Any
    compiled: Any
    stages: Stages
    before: Any = None
    """Snapshot of the function's variables in front of the trace, where the caller took one."""


def run_stages(
    jitted: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    compile: bool = True,
    progress: Callable[[str], AbstractContextManager[object]] | None = None,
    look: Callable[[Any], object] = lambda traced: None,
) -> Staged:
    """Trace, lower and compile; jax keeps the result, so the call that follows compiles nothing.

    `progress(stage)` is a context manager around each stage, `look` is given what was traced before it is lowered.
    Exceptions of the trace pass through; where only lowering or compiling fails, `compiled` is None and the call that
    follows tells.
    """
    seconds: list[float] = []

    def stage(name: str, step: Callable[[], object]) -> Any:
        with progress(name) if progress is not None else nullcontext():
            start = time.perf_counter()
            result = step()
            seconds.append(time.perf_counter() - start)
        return result

    traced = stage("tracing", lambda: jitted.trace(*args, **kwargs))
    look(traced)
    if not compile:
        return Staged(traced, None, Stages(trace_s=seconds[0]))
    try:
        lowered = stage("lowering", traced.lower)
    except Exception:
        # `lower` puts descriptions into the user's pytree classes, which may refuse them where a call works;
        # what fails in the call too is raised there.
        return Staged(traced, None, Stages(trace_s=seconds[0]))
    name = str(getattr(traced, "fun_name", "") or "the function")
    if begun := _pending.get(id(traced.jaxpr)):
        stage("waiting for the compilation that was interrupted", begun[1].wait)
        seconds.pop()
    with served() as hits:
        compiled = stage("compiling", lambda: _interruptibly(name, traced.jaxpr, lowered.compile))
    trace_s, lower_s, compile_s = seconds
    return Staged(traced, compiled, Stages(trace_s, lower_s, compile_s, hits[0] if hits else None))


POLL_S = 0.1

_pending: dict[int, tuple[object, threading.Event]] = {}
"""Traced programs whose compilation was interrupted and goes on, by `id`; set when it is done."""


_waiting: contextvars.ContextVar[int | None] = contextvars.ContextVar("waiting", default=None)
"""The thread that waits for what this one compiles."""


def thread_served() -> int:
    """The thread that this one works for: itself, but where it compiles what another waits for."""
    return _waiting.get() or threading.get_ident()


def frame_that_compiles() -> types.FrameType:
    """The innermost frame of the code that asked for a compilation, though that is made in a thread of its own."""
    here = sys._getframe(1)
    return sys._current_frames().get(_waiting.get() or 0, here)


def _interruptibly(name: str, program: object, compile: Callable[[], object]) -> Any:
    """The compiled program, made in a thread of its own so that an interrupt ends the wait at once.

    XLA cannot be stopped: the thread goes on, and a later call waits for it and takes what it made."""
    if threading.current_thread() is not threading.main_thread():
        return compile()
    done: list[Any] = []
    finished = threading.Event()  # an interrupted `join` takes the thread for ended

    def run() -> None:
        try:
            done.append((compile(), None))
        except BaseException as exc:
            done.append((None, exc))
        finally:
            finished.set()
            _pending.pop(id(program), None)

    context = contextvars.copy_context()
    context.run(_waiting.set, threading.get_ident())
    # the settings that hold in this thread (`with jax.default_device(...)`) belong to the trace and the lowering
    worker = threading.Thread(target=context.run, args=(run,), name=f"compile {name}", daemon=True)
    start = time.perf_counter()
    try:
        worker.start()
        while not finished.wait(POLL_S):  # a signal just before an endless wait would be seen after it only
            pass
    except KeyboardInterrupt:
        if finished.is_set():
            raise
        _pending[id(program)] = program, finished
        if finished.is_set():
            _pending.pop(id(program), None)
        gone = time.perf_counter() - start
        raise KeyboardInterrupt(
            f"interrupted after {gone:.0f} s of compiling {name}. XLA can't be stopped: it goes on in the background "
            f"and keeps its cores busy until it is done; the next call of {name} with such arguments waits for it and "
            f"does not compile again"
        ) from None
    result, error = done[0]
    if error is not None:
        raise error
    return result


@contextmanager
def served() -> Iterator[list[bool]]:
    """Whether the persistent compilation cache served what is compiled in the block: `[True]`, or `[False]` where
    it was asked in vain; empty where it was not asked."""
    listen()
    answers: list[bool] = []

    def answered(event: str, name: str, seconds: float) -> None:
        if event in (CACHE_ASKED, CACHE_HIT):
            answers[:] = [event == CACHE_HIT]

    told.append(answered)
    try:
        yield answers
    finally:
        told.remove(answered)
        if not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
            answers.clear()


def equation_count(closed: object) -> int:
    """Equations of a traced program, those of inner programs included."""
    return sum(1 for _ in compat.every_equation(closed))


def never_ends(closed: object) -> bool:
    """A `while_loop` in the program asks nothing that it changes: it runs for ever, if at all. XLA may crash on it."""
    loops = (e for e in compat.every_equation(closed) if str(e.primitive) == "while")
    return any(not _asks_what_it_carries(loop) for loop in loops)


def _asks_what_it_carries(loop: Any) -> bool:
    asked = compat.jaxpr_of(loop.params["cond_jaxpr"])
    carried = {id(v) for v in asked.invars[loop.params["cond_nconsts"] :]}
    for equation in asked.eqns:
        if equation.effects or any(id(v) in carried for v in equation.invars):
            carried |= set(map(id, equation.outvars))
    return any(id(v) in carried for v in asked.outvars) or bool(asked.effects)


def used_inputs(closed: object) -> list[bool]:
    """For each input of a traced program, whether an equation reads it. A result that only hands it on does not."""
    program = compat.jaxpr_of(closed)
    read = {id(v) for e in program.eqns for v in e.invars}
    return [id(v) in read for v in program.invars]
