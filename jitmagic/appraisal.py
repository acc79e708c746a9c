"""What a compiled call is worth: its result beside the plain one, its time, its cost."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from jitmagic import quiet, report
from jitmagic.facts import source_file
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
    """The compiled result beside the plain one; where they part, the program itself is the judge: compiled without
    the fusion known to go wrong, else operation by operation."""
    import jax

    from jitmagic.measure import compare, reference

    if eager.error is not None:
        return
    jaxpr, terms = staged.traced.jaxpr, reference.largest_reduction(staged.traced.jaxpr)
    found = compare.compare(eager.value, out, terms=terms)
    if found and _mended(eager, out, jaxpr, inputs, terms):
        remedy = "=".join(next(iter(reference.REMEDY.items())))
        found = tuple(replace(d, compiler=True, remedy=remedy) for d in found)
    elif found:
        program = reference.Program(jaxpr, inputs, subject.settings.budget / 4)
        leading = reference.Leading(program, len(jax.tree.leaves(out)))
        found = compare.compare(eager.value, out, reference=leading, terms=terms)
    subject.seen.differences = list(found)


def _mended(eager: Eager, out: Any, jaxpr: Any, inputs: list[Any], terms: int) -> bool:
    """The same program, compiled without the fusion known to go wrong, gives the plain result."""
    import jax

    from jitmagic.measure import compare, reference

    leaves, tree = jax.tree.flatten(out)
    if any(v.platform != "cpu" for leaf in leaves for v in getattr(leaf, "devices", set)()):
        return False
    try:
        again = jax.tree.unflatten(tree, reference.mended(jaxpr, inputs)[: len(leaves)])
    except Exception:  # this compiler has no such option, or the program cannot be run twice
        return False
    return not compare.compare(eager.value, again, terms=terms)


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

    file = source_file(subject.fn)
    subject.seen.cost = cost.total_cost(staged.traced.jaxpr, staged.compiled)
    subject.seen.lines = cost.line_costs(staged.traced.jaxpr, file)
    subject.seen.folded = staged.compiled is not None and folding.folded(staged.traced.jaxpr, staged.compiled)
