"""What a compiled call is worth: its result beside the plain one, its time, its cost."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from jitmagic import report, units, work
from jitmagic.checking import before_fix, exhausted, plain_runs
from jitmagic.checking.compared import Eager, compare_results
from jitmagic.checking.seen import KeptCall
from jitmagic.checking.subject import Subject
from jitmagic.evidence import Variable
from jitmagic.measure import (
    compare,
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
from jitmagic.rules.missing_donation import LARGE
from jitmagic.settings import Settings
from jitmagic.source.tree import uncollected
from jitmagic.state.definition import source_file
from jitmagic.state.held import held_arrays
from jitmagic.tracing import compat, stages, trees
from jitmagic.trial import quiet
from jitmagic.trial.budget import OutOfTime, within
from jitmagic.trial.whose_run import plainly


class PlainRun:
    """The run without jit of the user's first call, and the timing of both: made when the cell has ended, from where
    the call began. Where its arguments are given away and can't be copied, it is made at once."""

    def __init__(self, subject: Subject, staged: Any, args: Any, kwargs: Any) -> None:
        self.subject, self.staged = subject, staged
        self.eager = Eager(None, None, None)
        self.again_s = 0.0
        """Seconds of the time meant for timing that were needed to compare."""
        self.left_out = once_only(subject, staged, args, kwargs)
        self.inputs = None if self.left_out else inputs_of(subject, args, kwargs)
        self.began = plain_runs.Began(subject, args, kwargs)
        if self.inputs is None and not self.left_out:
            self.eager = self._run(subject.settings.compare_budget)

    def postpone(self, target: Any, inputs: list[object], out: Any) -> None:
        """The user's own call has given this."""
        subject, call = self.subject, self.subject.seen.calls[-1]
        if self.left_out:
            self._note(self.left_out)
            if subject.settings.time:
                subject.seen.timing = report.Timing(left_out=f"not timed: {self.left_out.what}")
            return
        if self.inputs is not None:  # containers of the user's, and what a later call gives away
            out = subject.lasting(out)

        def compare(seconds: float) -> None:
            given = inputs
            if self.inputs is not None:
                self.inputs.renew()
                self.began.given = (*self.inputs.receiver, *self.inputs.rest), self.inputs.kwargs
                given = subject.inputs(*self.began.given) if subject.options.donates else inputs
                self.eager = self._back(seconds)
            compare_results(subject, self.eager, out, self.staged.traced.jaxpr, given, call)

        if self.inputs is None:
            subject.guarded(compare, 0.0)
            return
        subject.postpone("comparing", compare)
        if subject.settings.time:
            timed = functools.partial(time_runs, subject, target, self.inputs, self)
            subject.postpone("timing", timed)

    def _back(self, seconds: float) -> Eager:
        """The run from where the call began."""
        try:
            with self.began.again():
                return self._run(seconds)
        except quiet.Refused as exc:
            return self._refused(exc)

    def _refused(self, refused: quiet.Refused) -> Eager:
        self._note(refused.obstacle)
        return Eager(None, None, quiet.Refused(refused.obstacle))

    def _note(self, why: quiet.Obstacle) -> None:
        """What can't be made once more is nothing that the compiled function goes on doing."""
        self.subject.tell_of(why, *self.began.given)
        once = "; compiled, it does that only while jax traces" if why.place or why.paths else ""
        self.subject.seen.note(f"{report.PLAIN_RUN}was left out: {why.what}{once}")

    def _run(self, seconds: float, again: bool = True) -> Eager:
        """One run of the plain function that leaves nothing behind. Where compiling its operations, each by itself,
        took the time, one more, in the time that was meant for timing both."""
        subject, (args, kwargs) = self.subject, self.began.given
        start, counts = time.perf_counter(), stages.Counts()
        waited = subject.settings.compare_budget == subject.settings.budget
        keys: object = None

        def look(before: object, out: object) -> None:
            nonlocal start, keys
            looked = time.perf_counter()
            keys = subject.guarded(compare.keys_of, out)
            subject.guarded(plain_runs.look_at_changes, subject, before, args, kwargs, out)
            start += time.perf_counter() - looked

        try:
            with within(seconds), stages.counted() as counts:
                value = quiet.rehearse(subject.fn, args, kwargs, subject.reach(args, kwargs), look)
        except OutOfTime:
            if again and counts.events:  # by now jax has most of its operations
                began = work.clock()
                eager = self._run(seconds if waited else min(seconds, Settings.timing_budget), again=False)
                self.again_s = 0.0 if waited else work.clock() - began
                return eager
            warm = "" if again else ", even with its operations compiled"
            longer = "" if waited else "; `--search` waits longer"
            return self._refused(
                quiet.Refused(f"it took more than {units.seconds(seconds, 2)}{warm}{longer}")
            )
        except Exception as exc:
            quiet.let_go(exc, subject.reach(args, kwargs))
            if (refused := quiet.refusal(exc)) is not None:
                return self._refused(refused)
            subject.seen.note(quiet.not_run(exc, "nothing was compared"))
            return Eager(None, None, exc)
        # Where operations were compiled, each by itself, its time says nothing of a later one.
        return Eager(value, None if counts.events else time.perf_counter() - start, None, keys)


def once_only(subject: Subject, staged: stages.Staged, args: Any, kwargs: Any) -> quiet.Obstacle | None:
    """What a further run of this call would do outside that cannot be undone; None where that is nothing."""
    if staged.before is not None and (lost := quiet.drains(staged.before)):
        return lost
    if staged.before is not None and (paths := quiet.changed(staged.before)):  # the user allows a further run
        subject.tell_of(quiet.Obstacle("", paths=paths), args, kwargs)
    why = plain_runs.only_compiled(subject, staged.traced.jaxpr)
    return quiet.Obstacle(why) if why else None


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
        size = sum(getattr(v, "nbytes", 0) for v in trees.leaves((args, kwargs)))
        if size > plain_runs.MOST_COPIED or not _names_parameters(subject):
            if subject.settings.time:
                subject.seen.timing = report.Timing(
                    left_out="not timed: a call gives its donated arguments away"
                )
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
    return jax.block_until_ready(trees.mapped(lambda v: v.copy() if isinstance(v, jax.Array) else v, tree))


def time_runs(subject: Subject, target: Any, inputs: Inputs, run: PlainRun, budget: float) -> None:
    """Time the plain and the compiled run in turn, and the lines of the compiled one; every variable is put back."""
    if subject.seen.is_wrong:
        return
    eager, budget = run.eager, max(LEAST_S, budget - run.again_s)
    inputs.renew()
    args, kwargs = (*inputs.receiver, *inputs.rest), inputs.kwargs
    rest, reach = inputs.rest, subject.reach(args, kwargs)
    fn, why = subject.fn, "the run without jit failed" if eager.error is not None else ""
    if subject.cell.before_fix is not None and not why:
        fn, why = _before_fix(subject, args, kwargs, budget)
        inputs.renew()

    def plain() -> object:
        with plainly():
            return fn(*inputs.receiver, *inputs.rest, **inputs.kwargs)

    def compiled() -> object:
        return target(*inputs.rest, **inputs.kwargs)

    def restore() -> None:
        before.renew()
        inputs.renew()

    stages, traced, device = subject.seen.stages, subject.shim.traced, machine.device_of(run.staged.compiled)
    with quiet.undone(reach) as before, quiet.held_back(apart=False):
        timed = timing.time_pair(
            None if why else plain,
            compiled if inputs.given_away else functools.partial(target, *rest, **kwargs),
            restore=restore,
            restore_each=inputs.given_away,
            loops=subject.settings.loops,
            repeats=subject.settings.repeats,
            budget_s=budget,
            device=device.platform,
            compile_s=stages.total_s,
            eager_once_s=eager.seconds if fn is subject.fn else None,
            limit=work.clock,
            more="; `-r 7` waits for all" if budget <= Settings.timing_budget else "",
        )
    if subject.shim.traced != traced:
        subject.forget_traces(traced)
        subject.seen.timing = report.Timing(
            left_out="not timed: what it reads had another form when the cell ended"
        )
        return
    if why and eager.error is None:
        timed = replace(timed, left_out="; ".join(filter(None, (f"no speed-up: {why}", timed.left_out))))
    timed = replace(timed, constant_folded=subject.seen.folded, digits=subject.settings.digits)
    subject.seen.timing = timed = replace(timed, before_fix=fn is not subject.fn)
    if inputs.given_away:
        note = "donated arguments were copied before each call, outside of the clock"
        subject.seen.timing = replace(timed, left_out="; ".join(filter(None, (note, timed.left_out))))
    elif timed.constant_folded:
        subject.guarded(_time_unfolded, subject, args, kwargs, budget / 2)
    else:
        subject.guarded(_doubt, subject, target, rest, kwargs, reach, budget / 3, device)
        subject.guarded(_time_lines, subject, functools.partial(target, *rest, **kwargs), run.staged, reach)


def _before_fix(
    subject: Subject, args: Any, kwargs: Any, seconds: float
) -> tuple[Callable[..., object], str]:
    """What the compiled call is timed against where the cell has a correction of ours: the code from before it, and
    why that can't be had; the function itself where it is none of what has changed."""
    cell = subject.cell
    try:
        fn = before_fix.function_before(subject.bound_as, cell.before_fix or "", cell.body, subject.namespace)
        if fn is None:
            return subject.fn, ""
        with within(seconds):
            quiet.rehearse(fn, args, kwargs, subject.reach(args, kwargs))
        return fn, ""
    except OutOfTime:
        return (
            subject.fn,
            f"a call of the code from before the fix takes more than {units.seconds(seconds, 2)}",
        )
    except Exception as exc:
        quiet.let_go(exc, subject.reach(args, kwargs))
        said = "" if isinstance(exc, before_fix.Unknown) else f" ({quiet.refusal(exc) or type(exc).__name__})"
        return subject.fn, f"the code from before the fix can't be run beside this one{said}"


LEAST_S = 0.1
"""What timing gets in any case."""
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
            text, file = hlo.read(hlo.text_of(staged.compiled)), source_file(subject.fn)
            sums = {
                o.line: None
                for o in program.walk(staged.traced.jaxpr, file)
                if o.name.startswith("cum") and o.line
            }
            seen.line_times = profile.line_times(call, text, file, call_s, asked, list(sums))
            works_s = sum(time.seconds for time in seen.line_times)
            if idle := lies.idle(seen.timing.jit, works_s, text, machine.device_of(staged.compiled)):
                seen.remark(idle)
            if subject.settings.trace_directory is not None:
                profile.keep_trace(call, subject.settings.trace_directory)
    except profile.NotProfiled as exc:
        seen.cost = replace(seen.cost, by_line=str(exc))


def _doubt(
    subject: Subject, target: Any, args: Any, kwargs: dict[str, object], reach: object, seconds: float,
    device: jax.Device,
) -> None:  # fmt: skip
    """What the compiled call's time is made of besides the function: dispatch, and copies to the device."""
    jit = subject.seen.timing.jit
    if jit is None:
        return
    with quiet.undone(reach) as before, quiet.held_back(apart=False):
        leaves = subject.seen.calls[0].leaves if subject.seen.calls else ()
        found = lies.host_copies(target, args, kwargs, leaves, before.renew, seconds)
        for remark in (found, lies.dispatch(jit, device)):
            if remark is not None:
                subject.seen.remark(remark)


def _time_unfolded(subject: Subject, args: Any, kwargs: Any, seconds: float) -> None:
    """The compiled call once more, with the constants that were folded as inputs."""
    with quiet.undone(subject.reach(args, kwargs)), quiet.held_back(apart=False):
        names = lies.foldable(subject.seen.variables.values())
        call = subject.with_inputs(names) if names else None
        sample = lies.unfolded(call, args, kwargs, seconds) if call is not None else None
    subject.seen.timing = replace(
        subject.seen.timing, unfolded=sample, unfolded_by=names if sample is not None else ()
    )


def price(subject: Subject, staged: stages.Staged, call: KeptCall) -> None:
    """What the traced program costs, in all and line by line; of one that did not fit, what takes the memory."""
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
    if seen.exhausted_by is not None:
        subject.guarded(exhausted.explain, subject, staged.traced, call.args, call.kwargs)
    else:
        subject.guarded(_price_donation, subject, jaxpr)
    if not subject.framework:  # whose programs return what is written, too
        for remark in lies.dead(jaxpr, file):
            seen.remark(remark)


def _price_donation(subject: Subject, jaxpr: object) -> None:
    """What the arguments that could be donated would save; nothing where the notebook still has the old ones."""
    silent = subject.seen.silent
    if silent is None or not (facts := silent.not_donated):
        return
    priced = []
    for fact in facts if not _still_held(subject) else ():
        if fact.bytes >= LARGE and stages.equation_count(jaxpr) <= exhausted.MOST_RECOMPILED:
            before, after = peak.donated_peaks(jaxpr, fact.inputs)
            fact = replace(fact, before=before, after=after, free=peak.free_bytes())
        priced.append(fact)
    subject.seen.silent = replace(silent, not_donated=tuple(priced))


def _still_held(subject: Subject) -> bool:
    """A name of the notebook leads to an array of the first call."""
    given = {id(array) for known in subject.first_given if (array := known()) is not None}
    return bool(given) and any(id(array) in given for _, array in held_arrays(subject.namespace))


def find_peak(subject: Subject, staged: stages.Staged, args: Any) -> None:
    """What is alive when the program holds most, and what the machine allows at best."""
    file = source_file(subject.fn)
    jaxpr, seen = staged.traced.jaxpr, subject.seen
    names = _constant_names(compat.constants_of(jaxpr), list(seen.variables.values()))
    seen.cost = replace(seen.cost, peak=peak.peak(jaxpr, file, names, subject.dynamic_paths(args)))
    if staged.compiled is None or not (subject.settings.time or machine.is_known()):
        return
    loops = any(op.times > 1 or op.unbounded for op in program.walk(jaxpr))
    moved = machine.moved_bytes(staged.compiled, seen.cost.bytes, loops)
    device = machine.device_of(staged.compiled)
    if seen.cost.flops and machine.has_room(device):
        bound = machine.bound(seen.cost.flops, moved, machine.machine(device))
        seen.cost = replace(seen.cost, bound=bound)


def _constant_names(constants: Sequence[object], variables: Sequence[Variable]) -> dict[int, str]:
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
