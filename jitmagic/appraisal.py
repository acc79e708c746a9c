"""What a compiled call is worth: its result beside the plain one, its time, its cost."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from jitmagic import quiet, report
from jitmagic.subject import Subject
from jitmagic.watched import plainly


@dataclass(frozen=True)
class Eager:
    """The run without jit: its value and seconds, or the exception it raised."""

    value: Any
    seconds: float | None
    error: Exception | None


def run_without_jit(subject: Subject, args: Any, kwargs: Any) -> Eager:
    """One run of the plain function that leaves nothing behind."""
    start = time.perf_counter()
    try:
        value = quiet.rehearse(subject.fn, args, kwargs, subject.reach(args, kwargs))
    except Exception as exc:
        subject.seen.note(f"the run without jit failed ({type(exc).__name__}), so nothing was compared")
        return Eager(None, None, exc)
    return Eager(value, time.perf_counter() - start, None)


def compare_results(subject: Subject, eager: Eager, out: Any, staged: Any, inputs: list[Any]) -> None:
    """The compiled result beside the plain one; where they part, the program op by op is the judge."""
    import jax

    from jitmagic.measure import compare, reference

    if eager.error is not None:
        return
    jaxpr = staged.traced.jaxpr
    program = reference.Program(jaxpr, inputs, subject.settings.budget / 4)
    subject.seen.differences = list(
        compare.compare(
            eager.value, out,
            reference=reference.Leading(program, len(jax.tree.leaves(out))),
            terms=reference.largest_reduction(jaxpr),
        )
    )  # fmt: skip


def find_not_finite(subject: Subject, out: Any, staged: Any, inputs: list[Any]) -> None:
    """The operation that made the first NaN or infinity of a result that is not finite."""
    from jitmagic.silent import collect

    collect.observe_result(subject, staged.traced, inputs, out)


def time_runs(subject: Subject, target: Any, args: Any, kwargs: Any, eager: Eager) -> None:
    """Time the plain and the compiled run in turn; every variable is put back."""
    import jax

    from jitmagic.measure import timing
    from jitmagic.state import snapshot

    if subject.options.donate_argnames or subject.options.donate_argnums:
        subject.seen.timing = report.Timing(left_out="not timed: a call gives its donated arguments away")
        return
    rest, reach = subject.rest(args), subject.reach(args, kwargs)
    before = snapshot.take(reach)

    def plain() -> Any:
        with plainly():
            return subject.fn(*args, **kwargs)

    stages = subject.seen.stages
    total = sum(s or 0.0 for s in (stages.trace_s, stages.lower_s, stages.compile_s))
    with quiet.undone(reach), quiet.held_back():
        timed = timing.time_pair(
            None if eager.error is not None else plain,
            lambda: target(*rest, **kwargs),
            restore=before.restore,
            loops=subject.settings.loops,
            repeats=subject.settings.repeats,
            budget_s=subject.settings.budget,
            device=jax.default_backend(),
            compile_s=total,
            eager_once_s=eager.seconds,
        )
    subject.seen.timing = replace(timed, constant_folded=subject.seen.folded, digits=subject.settings.digits)


def price(subject: Subject, staged: Any) -> None:
    """What the traced program costs, in all and line by line."""
    from jitmagic.measure import cost, folding

    file = getattr(getattr(subject.fn, "__code__", None), "co_filename", "")
    subject.seen.cost = cost.total_cost(staged.traced.jaxpr, staged.compiled)
    subject.seen.lines = cost.line_costs(staged.traced.jaxpr, file)
    subject.seen.folded = staged.compiled is not None and folding.folded(staged.traced.jaxpr, staged.compiled)
