"""What a compiled call is worth: its result beside the plain one, its time, its cost."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from jitmagic import report, units
from jitmagic.checking import plain_runs
from jitmagic.checking.compared import Eager
from jitmagic.checking.subject import Subject
from jitmagic.measure import (
    cost,
    folding,
    hlo,
    lies,
    machine,
    peak,
    profile,
    program,
    timing,
)
from jitmagic.settings import patience
from jitmagic.source.tree import uncollected
from jitmagic.state.definition import source_file
from jitmagic.tracing import compat
from jitmagic.trial import quiet
from jitmagic.trial.budget import OutOfTime, within
from jitmagic.trial.whose_run import plainly

MOST_COPIED = 2**30
"""Bytes of arguments that are copied to time a call that gives some of them away."""


def run_without_jit(subject: Subject, args: Any, kwargs: Any, only_once: str = "") -> Eager:
    """One run of the plain function that leaves nothing behind; `only_once` says why there can't be one."""
    if only_once:
        subject.seen.note(f"the run without jit was left out: {only_once}")
        return Eager(None, None, quiet.Refused(only_once))
    start = time.perf_counter()

    def look(before: object, out: object) -> None:
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


class Inputs:
    """The arguments of the calls that are timed; where a call gives some away, copies of them for each."""

    def __init__(self, subject: Subject, args: Any, kwargs: Any) -> None:
        skipped = len(args) - len(subject.rest(args))
        self.receiver, self.rest, self.kwargs = args[:skipped], args[skipped:], kwargs
        self.given_away = subject.options.donates
        self.kept = _copied((self.rest, kwargs)) if self.given_away else None

    def renew(self) -> None:
        """New copies, in front of each call and outside of the clock."""
        if self.kept is not None:
            self.rest, self.kwargs = _copied(self.kept)


def inputs_of(subject: Subject, args: object, kwargs: object) -> Inputs | None:
    """What to time with, taken before the user's own call gives anything away; None where that cannot be had."""
    if subject.options.donates:
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


def _copied(tree: object) -> Any:
    return jax.block_until_ready(jax.tree.map(lambda v: v.copy() if isinstance(v, jax.Array) else v, tree))


def time_runs(subject: Subject, target: Any, inputs: Inputs, eager: Eager, staged: Any) -> None:
    """Time the plain and the compiled run in turn, and the lines of the compiled one; every variable is put back."""
    if subject.seen.is_wrong:
        return
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

    stages, budget, traced = subject.seen.stages, _seconds(subject), subject.shim.traced
    total = sum(s or 0.0 for s in (stages.trace_s, stages.lower_s, stages.compile_s))
    with quiet.undone(reach) as before, quiet.held_back(apart=False):
        timed = timing.time_pair(
            None if eager.error is not None else plain,
            compiled if inputs.given_away else functools.partial(target, *rest, **kwargs),
            restore=restore,
            restore_each=inputs.given_away,
            loops=subject.settings.loops,
            repeats=subject.settings.repeats,
            budget_s=budget,
            device=jax.default_backend(),
            compile_s=total,
            eager_once_s=eager.seconds,
        )
    if subject.shim.traced != traced:
        subject.forget_traces(traced)
        subject.seen.timing = report.Timing(
            left_out="not timed: what it reads had another form when the cell ended"
        )
        return
    timed = replace(timed, constant_folded=subject.seen.folded, digits=subject.settings.digits)
    subject.seen.timing = timed
    if inputs.given_away:
        note = "donated arguments were copied before each call, outside of the clock"
        subject.seen.timing = replace(timed, left_out="; ".join(filter(None, (note, timed.left_out))))
    elif timed.constant_folded:
        subject.guarded(_time_unfolded, subject, args, kwargs)
    else:
        subject.guarded(_doubt, subject, target, rest, kwargs, reach)
        subject.guarded(_time_lines, subject, functools.partial(target, *rest, **kwargs), staged, reach)


MOST_PROFILED_S = 1.0
"""A call that takes longer is made once more only where `--profile` asks for it."""


def _time_lines(subject: Subject, call: Callable[[], object], staged: Any, reach: object) -> None:
    """The time of each line in the compiled call, where the profiler tells it."""
    seen, asked = subject.seen, subject.settings.profile
    if seen.timing.jit is None or staged.compiled is None:
        return
    call_s = seen.timing.jit.median_s
    try:
        if call_s > MOST_PROFILED_S and not asked:
            raise profile.NotProfiled(f"a call takes {units.seconds(call_s)}; `--profile` measures its lines")
        with quiet.undone(reach), quiet.held_back(apart=False):
            program = hlo.read(hlo.text_of(staged.compiled))
            seen.line_times = profile.line_times(call, program, source_file(subject.fn), call_s, asked)
            if subject.settings.trace_directory is not None:
                profile.keep_trace(call, subject.settings.trace_directory)
    except profile.NotProfiled as exc:
        seen.cost = replace(seen.cost, by_line=str(exc))


def _seconds(subject: Subject) -> float:
    """How long the batches may take, on an idle machine."""
    return min(subject.budget, subject.settings.timing_budget * patience())


def _doubt(subject: Subject, target: Any, args: Any, kwargs: Any, reach: object) -> None:
    """What the compiled call's time is made of besides the function: dispatch, and copies to the device."""
    jit = subject.seen.timing.jit
    if jit is None:
        return
    with quiet.undone(reach) as before, quiet.held_back(apart=False):
        leaves = subject.seen.calls[0].leaves if subject.seen.calls else ()
        found = lies.host_copies(target, args, kwargs, leaves, before.renew, _seconds(subject) / 3)
        for remark in (found, lies.dispatch(jit)):
            if remark is not None:
                subject.seen.remark(remark)


def _time_unfolded(subject: Subject, args: Any, kwargs: Any) -> None:
    """The compiled call once more, with the constants that were folded as inputs."""
    with quiet.undone(subject.reach(args, kwargs)), quiet.held_back(apart=False):
        names = lies.foldable(subject.seen.variables.values())
        call = subject.with_inputs(names) if names else None
        sample = lies.unfolded(call, args, kwargs, _seconds(subject) / 2) if call is not None else None
    subject.seen.timing = replace(
        subject.seen.timing, unfolded=sample, unfolded_by=names if sample is not None else ()
    )


def price(subject: Subject, staged: Any) -> None:
    """What the traced program costs, in all and line by line."""
    file = source_file(subject.fn)
    jaxpr, seen = staged.traced.jaxpr, subject.seen
    with uncollected():
        lines = cost.line_costs(jaxpr, file)
    reads = {v.path: [w.line for w in v.reads] for v in seen.variables.values() if v.role == "constant"}
    seen.lines = cost.explained(lines, jaxpr, staged.compiled, file, reads)
    seen.cost = cost.total_cost(jaxpr, staged.compiled)
    seen.folded = staged.compiled is not None and folding.folded(jaxpr, staged.compiled)
    if seen.folded:
        seen.remark(lies.folded(jaxpr, lies.foldable(seen.variables.values())))
    for remark in lies.dead(jaxpr, file):
        seen.remark(remark)


def find_peak(subject: Subject, staged: Any, args: Any) -> None:
    """What is alive when the program holds most, and what the machine allows at best."""
    file = source_file(subject.fn)
    jaxpr, seen = staged.traced.jaxpr, subject.seen
    names = _constant_names(compat.constants_of(jaxpr), list(seen.variables.values()))
    seen.cost = replace(seen.cost, peak=peak.peak(jaxpr, file, names, subject.dynamic_paths(args)))
    if staged.compiled is None or not (subject.settings.time or machine.is_known()):
        return
    loops = any(op.times > 1 or op.unbounded for op in program.walk(jaxpr))
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
    source, _ = subject.call_source()
    for remark in lies.own_clocks(source, subject.name, subject.seen.stages):
        subject.seen.remark(remark)
