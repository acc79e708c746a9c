"""Proofs: a fix counts as verified only where it was applied, re-run and gave the plain function's results."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jitmagic.checking.watched import plainly
from jitmagic.options import JitOptions
from jitmagic.trial import quiet

if TYPE_CHECKING:
    from jitmagic.checking.seen import Sample
    from jitmagic.checking.subject import Subject
    from jitmagic.fixes.inline import Parts
    from jitmagic.report import Fix

clock = time.monotonic


@dataclass(frozen=True)
class Proof:
    """Whether a fix holds on the calls seen, and in a few words why (or why not)."""

    holds: bool
    words: str


class Prover:
    """Applies fixes to one function and tries them on the calls that were kept."""

    def __init__(self, checker: Subject, deadline: float | None = None) -> None:
        """`deadline` by `clock`; without it the checker's budget begins now."""
        self.checker = checker
        self.samples: list[Sample] = checker.seen.samples
        self._deadline = clock() + checker.budget if deadline is None else deadline
        self.cut = False
        """Something was not tried for lack of time."""
        self._eager: list[Any] | None = None
        self.corrected: list[Fix] = []
        """Corrected cells that were proved: each mends all that stops the trace."""
        self.stuck: list[tuple[list[Any], Any]] = []
        """Corrections after which the trace stops at another place: what they are, and that place."""
        self.unmended = False
        """The search from something that stops the trace found no correction."""
        self.parts: Parts | None = None
        """Where the calls stand in the function's own cell: its parts."""

    @property
    def moved(self) -> set[str]:
        """Numbers and texts of the notebook that changed between the calls kept: every run has them as they are now."""
        around = [s.around for s in self.samples]
        return {name for a in around for b in around for name in a.keys() & b.keys() if a[name] != b[name]}

    def out_of_time(self) -> bool:
        """The budget for finding and proving fixes is spent. What it is asked for is left out then."""
        over = clock() > self._deadline
        self.cut |= over
        return over

    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._deadline - clock())

    def in_time(self) -> contextlib.AbstractContextManager[None]:
        """A run of the user's code that ends with `OutOfTime` where the budget does."""
        from jitmagic.checking.plain_runs import within

        return within(self.left())

    def run_plain(self, sample: Sample) -> Any:
        """Result of the user's plain function on a kept call; everything is put back."""
        checker = self.checker

        def plain(*args: Any, **kwargs: Any) -> Any:
            with self.in_time():
                return checker.fn(*args, **kwargs)

        return quiet.rehearse(plain, sample.args, sample.kwargs, checker.reach(sample.args, sample.kwargs))

    def plain_results(self) -> list[Any]:
        """`run_plain` of every kept call. Raises what the function raises."""
        if self._eager is None:
            self._eager = [self.run_plain(s) for s in self.samples]
        return self._eager

    def options(self, options: JitOptions) -> Proof:
        """The function under `jax.jit` with these options gives the plain results on every kept call."""

        return self._compare(options.trial(_fresh(self.checker.fn)), options)

    def _compare(self, jitted: Any, options: JitOptions) -> Proof:
        from jitmagic.fixes.rounding import explains
        from jitmagic.measure.compare import compare

        if not self.checker.settings.rehearse:
            return Proof(False, "not tried: nothing runs on real values with --trace-only")
        if not self.samples:
            return Proof(False, "not tried: no call was kept")
        try:
            wanted = self.plain_results()
        except Exception as exc:
            return Proof(
                False, f"the function without jit raises {type(exc).__name__}, so there is nothing to compare"
            )
        static, how = options.static_parameters(self.checker.fn), "equal to the run without jit"
        for sample, eager in zip(self.samples, wanted, strict=True):
            reach = self.checker.reach(sample.args, sample.kwargs)
            try:
                with quiet.undone(reach) as before, quiet.held_back(), plainly(), self.in_time():
                    got = jitted(*sample.args, **sample.kwargs)
                    differences = compare(eager, got)
                    call = sample.args, sample.kwargs
                    if differences and explains(self.checker, jitted, call, (eager, got), static):
                        differences, how = (), "equal to the run without jit up to rounding"
                    if any(write.tracer for write in before.changes()):
                        return Proof(False, "it leaves a traced value behind")
            except Exception as exc:
                return Proof(False, f"it still fails: {type(exc).__name__}")
            if differences:
                return Proof(False, f"the result differs from the plain run ({differences[0].reason})")
        return Proof(True, f"traced; {how} on {count(len(wanted), 'call')}")

    # -- dynamic variables

    def dynamic(self, paths: Sequence[str]) -> Proof:
        """With these dynamic variables the function gives the plain results, follows changed values without
        a new trace, and leaves the variables as the plain function does."""
        if not self.samples:
            return Proof(False, "not tried: no call was kept")
        sample = self.samples[-1]
        try:
            reach = self.checker.reach(sample.args, sample.kwargs)
            with quiet.undone(reach), quiet.held_back(), plainly(), self.in_time():
                return self._follows(paths, sample)
        except Exception as exc:
            return Proof(False, f"it fails: {type(exc).__name__}: {' '.join(str(exc).split())[:120]}")

    def _follows(self, paths: Sequence[str], sample: Sample) -> Proof:
        from jitmagic.measure.compare import compare
        from jitmagic.state.compiled import compile_function

        checker = self.checker
        made = compile_function(_fresh(checker.fn), ",".join(paths), checker.options, checker.namespace)
        args = sample.args
        if hasattr(made, "of"):
            made, args = made.of(sample.args[0]), sample.args[1:]
        stateful = made.__jitmagic__
        start = stateful.read()
        for change, values in (("", start), ("changed ", tuple(_changed(v) for v in start))):
            _put(stateful, values)
            wanted = checker.fn(*sample.args, **sample.kwargs), stateful.read()
            _put(stateful, values)
            got = made(*args, **sample.kwargs), stateful.read()
            if differences := compare(wanted, got):
                where = differences[0].reason
                return Proof(False, f"with {change}values the result differs from the plain run ({where})")
        if stateful.compiled._cache_size() > 1 and all(_stable(v) for v in start):
            return Proof(False, "a changed value makes it trace again")
        return Proof(
            True, f"traced; equal to the run without jit with {' and '.join(paths)} as now and changed"
        )


def _put(stateful: Any, values: Sequence[Any]) -> None:
    for place, value in zip(stateful.places, values, strict=True):
        place.put(value)


def _stable(value: Any) -> bool:
    return not isinstance(value, (bool, int, float, complex))


def _changed(value: Any) -> Any:
    """Another value of the same type; random keys and booleans stay."""
    import numpy as np

    if isinstance(value, (bool, np.bool_)):
        return value
    try:
        new = value * 2 + 1
        return new.astype(value.dtype) if hasattr(value, "dtype") and new.dtype != value.dtype else new
    except TypeError:
        return value


def _fresh(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A new function object, because jax caches traces by the function's identity."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with plainly():
            return fn(*args, **kwargs)

    return call


def count(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def without_static(options: JitOptions) -> JitOptions:
    """The same options with nothing static."""
    return options.static_by_name(())


def undonated(options: JitOptions) -> JitOptions:
    """The same options with nothing donated."""
    return replace(options, donate_argnames=(), donate_argnums=())
