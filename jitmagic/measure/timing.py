"""Timing a call with and without jit, in turn, the way `%timeit` does it.

A batch is `loops` calls, each blocked on its result; the loops grow through 1, 2, 5, 10, 20 … until a batch
lasts `BATCH_S`. Batches without and with jit alternate, so that a slow spell of the machine hits both.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax

from jitmagic import units
from jitmagic.measure import noise
from jitmagic.report import Sample, Timing
from jitmagic.source.tree import uncollected
from jitmagic.tracing import stages

BATCH_S = 0.2
"""Seconds that one batch lasts at least, where the budget allows it (as in `timeit`)."""

MAX_LOOPS = 10_000_000

SLOW_START = 1.5
"""How many times the slowest other batch the first one may take."""

Clock = Callable[[], float]


def time_pair(
    eager: Callable[[], object] | None,
    jit: Callable[[], object],
    *,
    restore: Callable[[], None] | None = None,
    restore_each: bool = False,
    loops: int | None = None,
    repeats: int = 7,
    budget_s: float = 10.0,
    device: str = "",
    compile_s: float | None = None,
    eager_once_s: float | None = None,
    clock: Clock = time.perf_counter,
    limit: Clock | None = None,
    more: str = "",
) -> Timing:
    """Time one call of `eager` (without jit) against one of `jit` (compiled), warm-up calls first.

    `restore` puts the user's state back, outside the clock: after every batch, whatever happened in it, and
    with `restore_each` after every call. `loops` calls make a batch (found by trial where None), `repeats`
    batches each; both are cut, the repeats first, to stay within `budget_s` seconds of `limit`. `eager_once_s` is the
    length of an earlier call without jit, in which nothing was compiled: where that alone is over the budget, `eager`
    is not called again.
    `more` says how to get all of them. `compile_s` seconds of tracing and compiling give the calls after which
    compiling has paid.

    An exception of `eager` or `jit` leaves that sample None and is told in `left_out`; KeyboardInterrupt
    passes through, state restored and garbage collection as it was.
    """
    limit = limit or clock
    bench = _Bench(restore, restore_each, clock, limit, limit() + budget_s, budget_s)
    fast = _Runner(jit, bench)
    slow = None if eager is None else _Runner(eager, bench, eager_once_s)
    notes: list[str] = []
    if not fast.warm_up(calls=2):
        return Timing(device=device or None, left_out=f"the compiled call raised {fast.error}")
    if slow is not None:
        _prepare_eager(slow, notes)
    runners = [r for r in (slow, fast) if r is not None and r.sample is None and r.error is None]
    # Trying out the loops takes about as long as two or three batches more.
    target_s = min(BATCH_S, bench.left() / (max(1, len(runners)) * (repeats + 3)))
    for runner in runners:
        runner.choose_loops(loops, target_s)
    _fit([r for r in runners if r.error is None], min(3, repeats), bench)
    done = _alternate([r for r in runners if r.error is None], repeats, bench)
    if runners and done < repeats:
        notes.append(f"{done} of {repeats} repeats fitted into {units.seconds(budget_s, 2)}{more}")
    if slow is not None and slow.error:
        notes.append(f"the call without jit raised {slow.error}")
    return _timing(slow, fast, device, compile_s, notes)


def summarize(batches_s: list[float], loops: int) -> Sample:
    """Statistics per call of batches of `loops` calls that lasted `batches_s` seconds."""
    calls = [b / loops for b in batches_s]
    if len(calls) > 1:
        low, _, high = statistics.quantiles(calls, n=4, method="inclusive")
    else:
        low = high = calls[0]
    return Sample(
        median_s=statistics.median(calls),
        mean_s=statistics.fmean(calls),
        std_s=statistics.pstdev(calls),
        loops=loops,
        repeats=len(calls),
        best_s=min(calls),
        quartiles_s=(low, high),
        batches_s=tuple(calls[:100]),
    )


def break_even(eager_s: float, jit_s: float, compile_s: float) -> int | None:
    """Calls after which `compile_s` seconds of compilation have paid; None where jit is not faster."""
    gain = eager_s - jit_s
    return max(1, math.ceil(compile_s / gain)) if gain > 0 else None


@dataclass
class _Bench:
    restore: Callable[[], None] | None
    restore_each: bool
    clock: Clock
    limit: Clock
    deadline: float
    budget_s: float

    def left(self) -> float:
        return self.deadline - self.limit()

    def put_back(self) -> None:
        if self.restore is not None:
            self.restore()

    def batch(self, call: Callable[[], object], loops: int) -> float:
        """Seconds that `loops` calls took."""
        try:
            with uncollected():
                return self._each(call, loops) if self.restore_each else self._together(call, loops)
        finally:
            self.put_back()

    def _together(self, call: Callable[[], object], loops: int) -> float:
        wait = jax.block_until_ready  # looked up once: a call may take as little as microseconds
        start = self.clock()
        for _ in range(loops):
            wait(call())
        return self.clock() - start

    def _each(self, call: Callable[[], object], loops: int) -> float:
        total = 0.0
        for index in range(loops):
            if index:
                self.put_back()
            start = self.clock()
            jax.block_until_ready(call())
            total += self.clock() - start
        return total


class _Runner:
    """One of the two calls: how long it takes, how many loops, and the batches so far."""

    def __init__(self, call: Callable[[], object], bench: _Bench, once_s: float | None = None) -> None:
        self.call = call
        self.bench = bench
        self.once_s = once_s
        self.loops = 1
        self.batches: list[float] = []
        self.error: str | None = None
        self.sample: Sample | None = None

    def run(self, loops: int) -> float | None:
        """Seconds of one batch; None after an exception, which is kept as text."""
        try:
            return self.bench.batch(self.call, loops)
        except Exception as exc:
            first = (str(exc).splitlines() or [""])[0]
            self.error = f"{type(exc).__name__}: {first}" if first else type(exc).__name__
            return None

    def warm_up(self, calls: int) -> bool:
        """Up to `calls` untimed calls; a call as long as the whole budget becomes the sample, but for one in which jax
        compiled, of which the budget knows nothing."""
        for left in reversed(range(calls)):
            if self.once_s is not None and self.bench.left() <= self.once_s:
                self.sample = summarize([self.once_s], 1)
                return True
            with stages.counted() as counts:
                took = self.run(1)
            if took is None:
                return False
            cold = bool(counts.events) and left > 0
            self.once_s = None if cold else took
            self.bench.deadline += took if cold else 0.0
        return True

    def choose_loops(self, loops: int | None, target_s: float) -> None:
        """The loops given, or as many as make a batch of `target_s` seconds."""
        if loops is not None:
            self.loops = max(1, loops)
            return
        known = self.once_s or 0.0
        for candidate in _autorange():
            self.loops = candidate
            if known * candidate < target_s:
                took = self.run(candidate)
                if took is None:
                    return
                known = self.once_s = took / candidate
            if known * candidate >= target_s or candidate >= MAX_LOOPS or self.bench.left() <= 0:
                return

    @property
    def batch_s(self) -> float:
        return (self.once_s or 0.0) * self.loops

    def finish(self) -> Sample | None:
        if self.sample is None and self.batches and self.error is None:
            self.sample = summarize(self.batches[self.slow_start() :], self.loops)
        return self.sample

    def slow_start(self) -> int:
        """1 where the first batch took far longer than every other: a warm-up, and no part of the mean."""
        first, *rest = self.batches
        return int(len(rest) >= 3 and first > SLOW_START * max(rest))


def _prepare_eager(slow: _Runner, notes: list[str]) -> None:
    """Warm up, unless one call is known (or turns out) to be longer than what is left: then that is all."""
    left = slow.bench.left()
    if slow.once_s is None or slow.once_s < left:
        slow.warm_up(calls=2)
    if slow.error is None and slow.once_s is not None and slow.once_s >= slow.bench.left():
        slow.sample = summarize([slow.once_s], 1)
        notes.append(
            f"one call without jit took {units.seconds(slow.once_s)}, more than was left of the "
            f"{units.seconds(slow.bench.budget_s, 2)} for timing: it was measured once"
        )


def _fit(runners: list[_Runner], rounds: int, bench: _Bench) -> None:
    """Cut the loops where not even `rounds` batches of each fit into what is left of the budget."""
    for runner in runners:
        share = bench.left() / (len(runners) * max(1, rounds))
        if runner.once_s and runner.batch_s > share:
            runner.loops = max(1, min(runner.loops, int(share / runner.once_s)))


def _alternate(runners: list[_Runner], repeats: int, bench: _Bench) -> int:
    """Batches in turn; the number of complete rounds, at least one."""
    done = 0
    longest = 0.0
    active = list(runners)
    while active and done < max(1, repeats) and (done == 0 or bench.left() >= longest):
        start = bench.limit()
        for runner in list(active):
            took = runner.run(runner.loops)
            if took is None:
                active.remove(runner)
            else:
                runner.batches.append(took)
        longest = max(longest, bench.limit() - start)
        done += 1
    return done


def _timing(
    slow: _Runner | None, fast: _Runner, device: str, compile_s: float | None, notes: list[str]
) -> Timing:
    eager = slow.finish() if slow is not None else None
    jit = fast.finish()
    if fast.error:
        notes.append(f"the compiled call raised {fast.error}")
    for name, runner in (("without jit", slow), ("compiled", fast)):
        if runner is not None and runner.batches and runner.slow_start():
            times = runner.batches[0] / statistics.median(runner.batches[1:])
            notes.append(f"the first run {name} took {times:.2g} times as long as the others and is left out")
    speedup = calls = None
    clear = True
    if eager is not None and jit is not None and jit.median_s > 0:
        speedup = eager.median_s / jit.median_s
        clear = noise.tell_apart(eager, jit)
        if clear and compile_s is not None:
            calls = break_even(eager.median_s, jit.median_s, compile_s)
    return Timing(
        eager=eager,
        jit=jit,
        speedup=speedup,
        clear=clear,
        break_even_calls=calls,
        device=device or None,
        left_out="; ".join(notes) or None,
    )


def _autorange() -> Iterator[int]:
    scale = 1
    while True:
        for step in (1, 2, 5):
            yield step * scale
        scale *= 10
