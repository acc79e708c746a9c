"""Trace, lower, compile: each stage timed, each trace and compilation counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from jitmagic.report import Stages
from jitmagic.tracing import compat

TRACE = "/jax/core/compile/jaxpr_trace_duration"
COMPILE = "/jax/core/compile/backend_compile_duration"


@dataclass(eq=False)
class Counts:
    """Events of jax while a block ran: (stage, name of the function, seconds)."""

    events: list[tuple[str, str, float]] = field(default_factory=list)

    def traces(self, fn: Callable[..., Any] | str) -> int:
        """How often jax traced a function of this name."""
        return self._count(TRACE, fn)

    def compiles(self, fn: Callable[..., Any] | str) -> int:
        """How often the backend compiled a function of this name."""
        return self._count(COMPILE, fn)

    def _count(self, stage: str, fn: Callable[..., Any] | str) -> int:
        name = fn if isinstance(fn, str) else getattr(fn, "__name__", "")
        names = (name, f"jit({name})", f"jit_{name}")
        return sum(s == stage and n in names for s, n, _ in self.events)


_listening: list[Counts] = []
_compiled: dict[str, int] = {}
_registered = False


def _listen(event: str, duration_secs: float, **details: str | int) -> None:
    if event in (TRACE, COMPILE):
        name = str(details.get("fun_name", ""))
        if event == COMPILE:
            _compiled[name] = _compiled.get(name, 0) + 1
        for counts in _listening:
            counts.events.append((event, name, duration_secs))


def listen() -> None:
    """Begin to count. One listener for the process: jax has no public way to take a single one out."""
    global _registered
    if not _registered:
        import jax

        jax.monitoring.register_event_duration_secs_listener(_listen)
        _registered = True


def compiled_so_far(name: str) -> int:
    """How often the backend has compiled a function of this name since the first count began."""
    return _compiled.get(f"jit({name})", 0) + _compiled.get(name, 0)


@contextmanager
def counted() -> Iterator[Counts]:
    """Exact counts of traces and compilations in the block, from `jax.monitoring`."""
    listen()
    counts = Counts()
    _listening.append(counts)
    try:
        yield counts
    finally:
        _listening.remove(counts)


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
    progress: Callable[[str], AbstractContextManager[Any]] | None = None,
) -> Staged:
    """Trace, lower and compile; jax keeps the result, so the call that follows compiles nothing.

    `progress(stage)` is a context manager around each stage. Exceptions of the stages pass through.
    """
    seconds: list[float] = []

    def stage(name: str, step: Callable[[], Any]) -> Any:
        with progress(name) if progress is not None else nullcontext():
            start = time.perf_counter()
            result = step()
            seconds.append(time.perf_counter() - start)
        return result

    traced = stage("tracing", lambda: jitted.trace(*args, **kwargs))
    if not compile:
        return Staged(traced, None, Stages(trace_s=seconds[0]))
    lowered = stage("lowering", traced.lower)
    compiled = stage("compiling", lowered.compile)
    return Staged(traced, compiled, Stages(*seconds))


def equation_count(closed: Any) -> int:
    """Equations of a traced program, those of inner programs included."""
    eqns = compat.jaxpr_of(closed).eqns
    return sum(1 + sum(equation_count(inner) for inner in compat.subjaxprs(e)) for e in eqns)


def used_inputs(closed: Any) -> list[bool]:
    """For each input of a traced program, whether an equation reads it. A result that only hands it on does not."""
    program = compat.jaxpr_of(closed)
    read = {id(v) for e in program.eqns for v in e.invars}
    return [id(v) in read for v in program.invars]
