"""What a compiled call is worth: its result beside the plain one, its time, its cost."""

from __future__ import annotations

import functools
import inspect
import time
from dataclasses import dataclass, replace
from typing import Any

from jitmagic import report
from jitmagic.checking import plain_runs
from jitmagic.checking.subject import Subject
from jitmagic.evidence import Difference
from jitmagic.silent import widths
from jitmagic.source.tree import uncollected
from jitmagic.state.definition import source_file
from jitmagic.trial import quiet
from jitmagic.trial.budget import OutOfTime, within
from jitmagic.trial.whose_run import plainly

MOST_COPIED = 2**30
"""Bytes of arguments that are copied to time a call that gives some of them away."""


@dataclass(frozen=True)
class Eager:
    """The run without jit: its value and seconds, or the exception it raised."""

    value: Any
    seconds: float | None
    error: Exception | None


def run_without_jit(subject: Subject, args: Any, kwargs: Any, only_once: str = "") -> Eager:
    """One run of the plain function that leaves nothing behind; `only_once` says why there can't be one."""
    if only_once:
        subject.seen.note(f"the run without jit was left out: {only_once}")
        return Eager(None, None, quiet.Refused(only_once))
    start = time.perf_counter()

    def look(before: Any, out: Any) -> None:
        nonlocal start
        looked = time.perf_counter()
        subject.guarded(plain_runs.look_at_changes, subject, before, args, kwargs, out)
        start += time.perf_counter() - looked

    try:
        with within(subject.budget):
            value = quiet.rehearse(subject.fn, args, kwargs, subject.reach(args, kwargs), look)
    except OutOfTime:
        stopped = f"it took more than {subject.budget:g} s"
        subject.seen.note(f"the run without jit was left out: {stopped}")
        return Eager(None, None, quiet.Refused(stopped))
    except Exception as exc:
        subject.seen.note(quiet.not_run(exc, "nothing was compared"))
        return Eager(None, None, exc)
    return Eager(value, time.perf_counter() - start, None)


def once_only(staged: Any) -> str:
    """Why a further run of this call would be seen outside: what it does that cannot be undone; '' where nothing is."""
    if staged.before is not None and staged.before.drained:
        return quiet.drains(staged.before)
    return plain_runs.only_compiled(staged.traced.jaxpr)


def compare_results(subject: Subject, eager: Eager, out: Any, staged: Any, inputs: list[Any]) -> None:
    """The compiled result beside the plain one; where they part, the program itself is the judge: operation by
    operation, which also shows what rounding explains, and compiled without the fusion known to go wrong."""
    import jax

    from jitmagic.measure import compare, reference
    from jitmagic.tracing import compat

    if eager.error is not None:
        subject.seen.differences = _where_plain_raises(eager.error, out)
        return
    if any(map(compat.is_unreduced, jax.tree.leaves(out))):
        subject.seen.note("nothing was compared: each device holds a part of a sum that was not made yet")
        return
    jaxpr, terms = staged.traced.jaxpr, reference.largest_reduction(staged.traced.jaxpr)
    found = first = compare.compare(eager.value, out, terms=terms)
    if found:
        program = reference.TracedProgram(jaxpr, inputs, subject.budget / 4)
        leading = reference.Leading(program, len(jax.tree.leaves(out)))
        found = compare.compare(eager.value, out, reference=leading, terms=terms)
        suspected = any(d.compiler for d in found) or not program.evaluated
        if found and suspected and _mended(eager, out, jaxpr, inputs, terms):
            remedy = "=".join(next(iter(reference.REMEDY.items())))
            found = tuple(replace(d, compiler=True, remedy=remedy) for d in found)
        if any(d.compiler for d in found):
            found = _located(subject, found, jaxpr, inputs)
        elif found:
            found = _wrapped(subject, found, jaxpr, inputs)
        cut = _cut_on_the_way_in(subject) or any(map(widths.units_lost, inputs))
        if not found and any(d.worst > FAR * d.allowed for d in first) and cut:
            found = first
    subject.seen.differences = list(found)


def _where_plain_raises(error: Exception, out: Any) -> list[Difference]:
    """Python and NumPy raise for an index out of bounds and for a division by zero, where a program goes on."""
    from jitmagic.tracing import locate

    if not isinstance(error, IndexError | ZeroDivisionError):
        return []
    said = f"{type(error).__name__}: {error}"
    return [Difference("", "raises", eager=said, jit=str(out), where=locate.locate(error).where)]


FAR = 1000.0
"""Differences of so many times what is allowed are told, where an argument lost the digits that make them."""


def _cut_on_the_way_in(subject: Subject) -> bool:
    """An argument of 64 bits of the newest call is so large that 32 bits round its units away."""
    leaves = subject.seen.calls[-1].leaves if subject.seen.calls else ()
    return any(x.loses_its_units for x in leaves if not x.static)


def _located(subject: Subject, found: Any, jaxpr: Any, inputs: list[Any]) -> Any:
    """The differences with the line at which the compiled program first goes wrong."""
    from jitmagic.measure import parting

    file = source_file(subject.fn)
    line = parting.first_parting(jaxpr, inputs, file, subject.budget / 4)
    return found if line is None else _at_line(subject, found, file, line)


def _wrapped(subject: Subject, found: Any, jaxpr: Any, inputs: list[Any]) -> Any:
    """The differences with the line at which whole numbers wrap around, where they do."""
    from jitmagic.measure import wrapping

    file = source_file(subject.fn)
    line = wrapping.first_wrapping(jaxpr, inputs, file, subject.budget / 4)
    if line is None:
        return found
    return tuple(replace(d, wraps=True) for d in _at_line(subject, found, file, line))


def _at_line(subject: Subject, found: Any, file: str, line: int) -> Any:
    import linecache

    from jitmagic.evidence import Where

    text = linecache.getline(file, line).rstrip()
    start = len(text) - len(text.lstrip())
    where = Where(file, line, start, line, len(text), text.strip(), text.strip(), subject.name)
    return tuple(replace(d, where=where) for d in found)


def _mended(eager: Eager, out: Any, jaxpr: Any, inputs: list[Any], terms: int) -> bool:
    """The same program, compiled without the fusion known to go wrong, gives the plain result."""
    import jax

    from jitmagic.measure import compare, reference

    tree: Any
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


class Inputs:
    """The arguments of the calls that are timed; where a call gives some away, copies of them for each."""

    def __init__(self, subject: Subject, args: Any, kwargs: Any) -> None:
        skipped = len(args) - len(subject.rest(args))
        self.receiver, self.rest, self.kwargs = args[:skipped], args[skipped:], kwargs
        options = subject.options
        self.given_away = bool(options.donate_argnames or options.donate_argnums)
        self.kept = _copied((self.rest, kwargs)) if self.given_away else None

    def renew(self) -> None:
        """New copies, in front of each call and outside of the clock."""
        if self.kept is not None:
            self.rest, self.kwargs = _copied(self.kept)


def inputs_of(subject: Subject, args: Any, kwargs: Any) -> Inputs | None:
    """What to time with, taken before the user's own call gives anything away; None where that cannot be had."""
    import jax

    if subject.options.donate_argnames or subject.options.donate_argnums:
        size = sum(getattr(v, "nbytes", 0) for v in jax.tree.leaves((args, kwargs)))
        if size > MOST_COPIED or not _names_parameters(subject):
            subject.seen.timing = report.Timing(left_out="not timed: a call gives its donated arguments away")
            return None
    try:
        return Inputs(subject, args, kwargs)
    except Exception as exc:
        subject.failed_inside("copying the donated arguments", exc)
        return None


def _names_parameters(subject: Subject) -> bool:
    """What is given away by name are arguments, and no variables, of which nobody holds a copy."""
    names = subject.options.donate_argnames
    return not names or set(names) <= set(inspect.signature(subject.fn).parameters)


def _copied(tree: Any) -> Any:
    import jax

    return jax.block_until_ready(jax.tree.map(lambda v: v.copy() if isinstance(v, jax.Array) else v, tree))


def time_runs(subject: Subject, target: Any, inputs: Inputs, eager: Eager) -> None:
    """Time the plain and the compiled run in turn; every variable is put back."""
    import jax

    from jitmagic.measure import timing

    inputs.renew()
    args, kwargs = (*inputs.receiver, *inputs.rest), inputs.kwargs
    rest, reach = inputs.rest, subject.reach(args, kwargs)

    def plain() -> Any:
        with plainly():
            return subject.fn(*inputs.receiver, *inputs.rest, **inputs.kwargs)

    def compiled() -> Any:
        return target(*inputs.rest, **inputs.kwargs)

    def restore() -> None:
        before.renew()
        inputs.renew()

    stages = subject.seen.stages
    total = sum(s or 0.0 for s in (stages.trace_s, stages.lower_s, stages.compile_s))
    with quiet.undone(reach) as before, quiet.held_back(apart=False):
        timed = timing.time_pair(
            None if eager.error is not None else plain,
            compiled if inputs.given_away else functools.partial(target, *rest, **kwargs),
            restore=restore,
            restore_each=inputs.given_away,
            loops=subject.settings.loops,
            repeats=subject.settings.repeats,
            budget_s=subject.budget,
            device=jax.default_backend(),
            compile_s=total,
            eager_once_s=eager.seconds,
        )
    timed = replace(timed, constant_folded=subject.seen.folded, digits=subject.settings.digits)
    subject.seen.timing = timed
    if inputs.given_away:
        note = "donated arguments were copied before each call, outside of the clock"
        subject.seen.timing = replace(timed, left_out="; ".join(filter(None, (note, timed.left_out))))
    elif timed.constant_folded:
        subject.guarded(_time_unfolded, subject, args, kwargs)
    else:
        subject.guarded(_doubt, subject, target, rest, kwargs, reach)


def _doubt(subject: Subject, target: Any, args: Any, kwargs: Any, reach: Any) -> None:
    """What the compiled call's time is made of besides the function: dispatch, and copies to the device."""
    from jitmagic.measure import lies

    jit = subject.seen.timing.jit
    if jit is None:
        return
    with quiet.undone(reach) as before, quiet.held_back(apart=False):
        found = lies.host_copies(target, args, kwargs, subject.seen, before.renew, subject.budget / 5)
        for remark in (found, lies.dispatch(jit)):
            if remark is not None:
                subject.seen.remark(remark)


def _time_unfolded(subject: Subject, args: Any, kwargs: Any) -> None:
    """The compiled call once more, with the constants that were folded as inputs."""
    from jitmagic.measure import lies

    with quiet.undone(subject.reach(args, kwargs)), quiet.held_back(apart=False):
        names = lies.foldable(subject.seen)
        sample = lies.time_with_inputs(subject, names, args, kwargs) if names else None
    subject.seen.timing = replace(
        subject.seen.timing, unfolded=sample, unfolded_by=names if sample is not None else ()
    )


def price(subject: Subject, staged: Any) -> None:
    """What the traced program costs, in all and line by line."""
    from jitmagic.measure import cost, folding, lies

    file = source_file(subject.fn)
    jaxpr, seen = staged.traced.jaxpr, subject.seen
    with uncollected():
        lines = cost.line_costs(jaxpr, file)
    reads = {v.path: [w.line for w in v.reads] for v in seen.variables.values() if v.role == "constant"}
    seen.lines = cost.explained(lines, jaxpr, staged.compiled, file, reads)
    seen.cost = cost.total_cost(jaxpr, staged.compiled)
    seen.folded = staged.compiled is not None and folding.folded(jaxpr, staged.compiled)
    if seen.folded:
        seen.remark(lies.folded(jaxpr, seen))
    for remark in lies.dead(jaxpr, file):
        seen.remark(remark)


def find_peak(subject: Subject, staged: Any, args: Any) -> None:
    """What is alive when the program holds most, and what the machine allows at best."""
    from jitmagic.measure import machine, peak, program
    from jitmagic.tracing import compat

    file = source_file(subject.fn)
    jaxpr, seen = staged.traced.jaxpr, subject.seen
    names = _constant_names(compat.constants_of(jaxpr), list(seen.variables.values()))
    seen.cost = replace(seen.cost, peak=peak.peak(jaxpr, file, names, subject.dynamic_paths(args)))
    if staged.compiled is None or not (subject.settings.time or machine.is_known()):
        return
    loops = any(op.times > 1 or op.unbounded for op in program.walk(jaxpr).operations)
    moved = machine.moved_bytes(staged.compiled, seen.cost.bytes, loops)
    if seen.cost.flops:
        seen.cost = replace(seen.cost, bound=machine.bound(seen.cost.flops, moved, machine.machine()))


def _constant_names(constants: list[Any], variables: list[Any]) -> dict[int, str]:
    """Paths of constant objects, where shape and dtype leave no doubt."""
    found: dict[int, str] = {}
    for constant in constants:
        form = tuple(getattr(constant, "shape", ())), str(getattr(constant, "dtype", ""))
        fitting = [v.path for v in variables if v.in_jaxpr and (v.shape, v.dtype) == form]
        if len(fitting) == 1:
            found[id(constant)] = fitting[0]
    return found


def read_own_clocks(subject: Subject) -> None:
    """Where the cell that made the first call times the function by itself."""
    from jitmagic.measure import lies

    source, _ = subject.call_source()
    for remark in lies.own_clocks(source, subject.name, subject.seen.stages):
        subject.seen.remark(remark)
