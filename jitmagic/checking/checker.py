"""The pipeline, on one page: from a call to evidence, from evidence to a report.

a call that jax has not compiled for
  -> snapshot, one real trace, tracers put back      (state, tracing)
  -> constants named, lowered, compiled              (state, tracing)
  -> when the cell has ended: one run without jit, compared; timing  (measure)
  -> or, where the trace failed: where and why       (tracing)
  => Evidence => rules => fixes => Report
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jitmagic import evidence as ev
from jitmagic import report
from jitmagic.checking import exhausted, failures, plain_runs, results, tracebacks
from jitmagic.checking.conclusions import told_of
from jitmagic.checking.seen import KeptCall
from jitmagic.checking.subject import MAX_SAMPLES, Subject, leaves_of
from jitmagic.options import parameters_of
from jitmagic.state import constants, ends, frozen, snapshot
from jitmagic.state.active import acquired, first_traces
from jitmagic.state.compiled import StatefulMethod
from jitmagic.state.frozen import METHOD, Frozen
from jitmagic.state.held import names_of_variables
from jitmagic.state.paths import at_or_below
from jitmagic.state.reached import Reach
from jitmagic.state.reads import named_by_holder, reads_of, seen_from_cell
from jitmagic.state.snapshot import written_at
from jitmagic.state.state_program import StateProgram
from jitmagic.state.values import is_endless, is_jax_array
from jitmagic.tracing import compat, probing, stages, trees
from jitmagic.tracing.compat import jit_is_off, trace_state_clean
from jitmagic.tracing.messages import is_interrupt, is_out_of_memory
from jitmagic.trial import quiet
from jitmagic.trial.whose_run import plainly

LOOKED_AT = 3
"""How many of the first results are looked at for values that are not finite."""
_FIRST_S = 2.0
"""Seconds that a call waits for the first one, which another thread makes."""


class Checker(Subject):
    """Everything about one function: how it is compiled, what was seen, what follows from it."""

    # -- the user's calls

    def unrecorded(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """A call in a run of ours that is about other functions: as the user's, and nothing is noted of it."""
        __tracebackhide__ = True
        if not self.compiles:
            return self.original(*args, **kwargs)
        return self.compiled_for(args)(*self.rest(args), **kwargs)

    def interrupted(self, exc: KeyboardInterrupt) -> None:
        """A call of the user's was interrupted: what is shown are the user's own frames."""
        tracebacks.shorten(exc, tuple)
        self.tell_interrupted()

    def tell_interrupted(self) -> None:
        """No diagnosis of a call that was broken off."""
        if not self.seen.count:
            self.seen.interrupted = True
            self.on_news(self)

    def retire(self) -> None:
        """Nobody looks at the calls any more: they are made as they would be, and nothing is told."""
        self.call = self.unrecorded  # type: ignore[method-assign]
        self.on_news, self.reported, self.progress = lambda subject: None, lambda: False, None

    def call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """One call of the user's: its result or its own exception, whatever our diagnosis does."""
        __tracebackhide__ = True
        if not self.compiles:
            return self._call_plain(args, kwargs)
        traced, (frozen, stale) = self.shim.traced, self._frozen(args, kwargs)
        outermost = self.before_traces is None
        if outermost:
            self.before_traces = []
        try:
            try:
                if self._run is not None:
                    out = self._run(*args, **kwargs)
                else:
                    out = self._slow_call(args, kwargs)
            finally:
                if outermost:
                    self._take_out_tracers()
        except Exception as exc:
            if is_interrupt(exc):
                self.tell_interrupted()
                raise
            self.guarded(tracebacks.end_where_called, exc, self.shim.code)
            self.seen.count += 1
            if stale:
                self.guarded(self._stale, frozen, stale)
            if trace_state_clean():
                self.guarded(self._failed, exc, args, kwargs)
            else:
                self.guarded(self._failed_inside, exc)
            raise
        self.seen.count += 1
        if stale and self.shim.traced == traced:  # a call that is traced anew uses the values of now
            self.guarded(self._stale, frozen, stale)
        if 1 < self.seen.count <= LOOKED_AT and trace_state_clean():
            self.guarded(self._look_at_result, args, kwargs, out)
        # the trace of a first call may be that of one that was interrupted while it compiled
        if stale or self.shim.traced != traced or self.seen.count == 1:
            after = self._after if trace_state_clean() else self._seen_inside
            self.guarded(after, args, kwargs, self.shim.traced - traced)
        return out

    def _frozen(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Frozen | None, Sequence[tuple[str, str, str]]]:
        """What the program of such a call has as constants, and which of that have changed since."""
        try:
            frozen = self.variants.of(lambda: self.kind_of_call(args, kwargs))
            return frozen, frozen.changed() if frozen is not None else ()
        except Exception as exc:
            self.failed_inside("the diagnosis", exc)
            return None, ()

    def _take_out_tracers(self) -> None:
        """After a call of the user's: what its traces have left behind is as it was before them. From inside a trace
        that is not ours, what they have written is told."""
        taken, self.before_traces = self.before_traces, None
        for before in reversed(taken or ()):
            if trace_state_clean():
                self.guarded(lambda: self._wrote([w for w in before.changes() if w.tracer]))  # noqa: B023
                self.guarded(lambda: before.restore(only_tracers=True))  # noqa: B023
            else:
                self.guarded(lambda: self._wrote(self.users_own(before.changes(), before.reach)))  # noqa: B023

    def _slow_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """A call before the compiled function is known, or of a method, which has one for each object."""
        __tracebackhide__ = True
        if jit_is_off():
            with plainly():
                return self.fn(*args, **kwargs)
        if self.seen.count == 0 and trace_state_clean() and self._first.acquire(blocking=False):
            self._first_in = threading.get_ident()
            try:
                out = self._first_call(args, kwargs)
            except Exception as exc:
                if not tracebacks.is_ours(exc):
                    raise
                out = self._without_us(args, kwargs)
                self.failed_inside("the diagnosis", exc)
            finally:
                self._first.release()
        else:
            if self._first.locked() and self._first_in != threading.get_ident() and trace_state_clean():
                self._await_the_first()
            with quiet.overheard() if self.seen.count == 0 else contextlib.nullcontext() as printed:
                out = self._without_us(args, kwargs)
            if printed is not None:
                self.seen.heard(printed.kept, printed.of_tracers)
        if not isinstance(self.compiled, StatefulMethod):
            self._run = self.compiled
        return out

    def _await_the_first(self) -> None:
        """Where another thread makes the first call: traces of both at once would take each other's traced values for
        the user's. It may wait for this one, so it is not waited for without end."""
        if acquired(self._first, lambda: self._first_in, _FIRST_S):
            self._first.release()

    def _without_us(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """The user's call where a step of ours fails: compiled if that can be done."""
        __tracebackhide__ = True
        try:
            target = self.compiled_for(args)
        except Exception as exc:
            if not tracebacks.is_ours(exc):
                raise
            self.failed_inside("compiling", exc)
            with plainly():
                return self.fn(*args, **kwargs)
        try:
            return target(*self.rest(args), **kwargs)
        except Exception as exc:  # from compiled code, the last frame would be this one
            tracebacks.shorten(exc, tuple)
            raise

    def _after(self, args: tuple[object, ...], kwargs: dict[str, object], traces: int) -> None:
        """A call after which there is something new to tell."""
        if traces and self.seen.count > 1:
            self._traced_again(args, kwargs)
        self.on_news(self)

    def _call_plain(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Under `%%jitcheck`: diagnose a call that is new, then run what the user's own call would run."""
        __tracebackhide__ = True
        run = self.begins_plain(args, kwargs)
        if self.original is not self.fn:
            self._refuse_long()
        try:
            # what is compiled inside of a function that is not for jit itself is watched there
            with plainly(made=True) if self.settings.diagnose else contextlib.nullcontext():
                out = self.original(*args, **kwargs)
            if run is not None:
                self.guarded(run.look_at, out)
            return out
        except Exception as exc:
            # what the trace alone does not show: a donated array, a tracer left by an earlier call
            if self.original is not self.fn or not trace_state_clean():
                self.failed_apart(exc, args, kwargs)
            raise

    def begins_plain(self, args: tuple[object, ...], kwargs: dict[str, object]) -> plain_runs.OwnRun | None:
        """The user's own call begins; what looks at its result, where that is a new kind of call."""
        self.seen.count += 1
        return self.guarded(self._before_plain, args, kwargs)

    def was_timed(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """A call that the user has timed: what is looked at in front of others would have been on the clock."""
        given = leaves_of((args, kwargs))
        if self._is_new(args, kwargs) and not any(is_jax_array(v) and v.is_deleted() for v in given):
            self.check(args, kwargs)
            self.on_news(self)

    def gone_stale(self, *first: object) -> tuple[Frozen, Sequence[tuple[str, str, str]]] | None:
        """What has changed of the values that the program of a call goes on with, of which at most the first argument
        is known."""
        with contextlib.suppress(Exception):
            known = self.variants
            frozen = known.begun_with(self.kind_of_call(first, {})) if known.differ else known.newest
            if frozen is not None and (changed := frozen.changed()):
                return frozen, changed
        return None

    def tell_stale(self, frozen: Frozen, changed: Sequence[tuple[str, str, str]]) -> None:
        """Tell what a call has gone on with though it has changed."""
        self._stale(frozen, changed)
        self.on_news(self)

    def failed_apart(self, exc: Exception, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """A call of the user's own compiled function has failed, maybe with what its trace has shown already."""
        if not trace_state_clean():
            self.guarded(self._failed_inside, exc)
        elif not (self.seen.calls and self.seen.calls[-1].outcome == "failed"):
            self.guarded(self._failed, exc, args, kwargs)
        elif self.original is not self.fn:
            tracebacks.shorten(exc, lambda: told_of(self), self.reported)

    def failed_in_trace(self, exc: Exception) -> None:
        """A call of the user's from inside a trace that is not ours has failed."""
        self.guarded(self._failed_inside, exc)

    def _before_plain(self, args: tuple[object, ...], kwargs: dict[str, object]) -> plain_runs.OwnRun | None:
        """What is looked at before the user's own call; what looks at its result, where that is a new kind of call."""
        if not trace_state_clean():
            if self.seen.count == 1 and not self._seen_with_values(args, kwargs):
                self._seen_inside(args, kwargs)
        elif is_endless((args, kwargs)):
            self.seen.note(
                "calls were not traced: an argument holds itself, or lies hundreds of containers deep"
            )
            if self.seen.count == 1:
                self.on_news(self)
        elif self._is_new(args, kwargs):
            run = plain_runs.OwnRun(self, args, kwargs)
            self.guarded(self.diagnose if self.settings.diagnose else self.keep, args, kwargs)
            noticed = run.before.noticed if run.before is not None else ends.asked()
            if noticed:
                self._let_go(noticed)
            self.guarded(self.on_news, self)
            return None if noticed else run
        elif self.original is not self.fn:
            frozen, stale = self._frozen(args, kwargs)
            if frozen is not None and stale:
                self._stale(frozen, stale)
                self.on_news(self)
        return None

    def _let_go(self, noticed: str) -> None:
        """While the user's own call runs, nothing that it reaches lives on for ours."""
        self.looked = None
        self.seen.loosen()
        self.seen.note(f"the result of the call was not looked at: {ends.why(noticed)}")

    def _is_new(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
        """jax would trace this call anew; said of the first `MAX_SAMPLES` such calls."""
        known = self.seen.kinds
        if len(known) >= MAX_SAMPLES:
            return False
        key = self.kind_of_call(args, kwargs)
        new = key not in known
        known.add(key)
        return new

    def _seen_inside(self, args: tuple[object, ...], kwargs: dict[str, object], traces: int = 0) -> None:
        """A call from inside a trace that is not ours (a library's loop, `jax.grad`): what its own trace tells, and
        the source where it has none."""
        if traces:
            self.seen.note(
                "called inside the trace of other code (a transformation or a loop), so it was looked at there, and "
                "neither compared nor timed by itself"
            )
            self.remember(args, kwargs, traced=True)
            self.seen.traces = self.shim.traced
            staged = self.compiled_for(args).trace(*self.rest(args), **kwargs)
            self._look_at(staged, args, kwargs)
        elif self.seen.count == 1:
            self.seen.note(
                "called inside the trace of other code, so it was looked at there and not by itself"
            )
            self.observe(None, args, kwargs, self.reach(args, kwargs))
        self.on_news(self)

    def _seen_with_values(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
        """Where the first call comes from inside of `jax.grad`, `jax.vmap` and the like alone, it is looked at as one
        with the values behind what it is given."""
        if compat.builds_program(compat.current_trace()) or ends.asked():
            return False
        with compat.outside_of_traces():
            traced = [v for v in trees.leaves((args, kwargs)) if compat.is_tracer(v)]
            with quiet.held_back():  # jax may compile for it, and say so
                behind = {id(v): compat.value_behind(v) for v in traced}
            if None in behind.values() or not trace_state_clean():
                return False
            given = trees.mapped(lambda v: behind.get(id(v), v), (args, kwargs)) if behind else (args, kwargs)
            if any(compat.is_tracer(leaf.value) for leaf in self.reach(*given).leaves()):
                return False
            self.seen.note(
                "what a transformation (`jax.grad`, `jax.vmap`) makes of it: the function was looked at by itself, "
                "with the values that it was called with"
            )
            self._before_plain(*given)
            self.looked = None
        return True

    def _failed_inside(self, exc: Exception) -> None:
        """A call from inside a trace that is not ours has failed: what can be told without running anything."""
        if failures.located(self, exc):
            self.seen.calls.append(ev.Call((), "failed", False, *self.call_source()))
            self.on_news(self)

    def _first_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Trace, lower and compile in stages, and run; what is compared and measured waits for the end of the cell."""
        target = self.compiled_for(args)
        staged = self._trace(target, args, kwargs)
        if self.settings.trace_only:
            self.remember(args, kwargs, traced=True)
            out = staged.traced.out_info
            return out if self.stateful(args) is None else out[0]
        if not self.settings.measure:
            return self._unmeasured(target, staged, args, kwargs)
        if staged.before.noticed:
            return self._unheld(target, staged, args, kwargs)
        try:
            plain = self.guarded(results.PlainRun, self, staged, args, kwargs)
        except BaseException:  # an interrupt before the user's own call was made: as if it had never begun
            staged.before.restore()
            raise
        inputs = self.guarded(lambda: self.lasting(self.inputs(args, kwargs)))
        self.guarded(self.keep, args, kwargs)
        out = target(*self.rest(args), **kwargs)
        self.guarded(functools.partial(self.remember, args, kwargs, traced=True))
        look = functools.partial(self.observe_later, held=plain is not None)
        if inputs is not None:
            self.guarded(look, staged.traced, inputs, out)
        if inputs is not None and plain is not None:
            self.guarded(plain.postpone, target, inputs, out)
        self.postpone("timing", lambda seconds: results.find_peak(self, staged, args))
        self.guarded(results.read_own_clocks, self)
        return out

    def _unheld(
        self, target: Any, staged: stages.Staged, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Any:
        """A first call of which nothing lives on but its program: it is neither compared nor timed."""
        if (lost := quiet.drains(staged.before)) is not None:
            self.tell_of(lost, args, kwargs)
        why, staged.before = ends.why(staged.before.noticed), None
        self.seen.loosen()
        self.seen.note(f"{report.PLAIN_RUN}was left out: {why}")
        if self.settings.time:
            self.seen.timing = report.Timing(left_out=f"not timed: {why}")
        out = target(*self.rest(args), **kwargs)
        self.guarded(functools.partial(self.remember, args, kwargs, traced=True))
        return out

    def _unmeasured(
        self, target: Any, staged: stages.Staged, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Any:
        """A first call in a run of ours, whose results are compared as a whole."""
        inputs = self.inputs(args, kwargs)
        out = target(*self.rest(args), **kwargs)
        self.guarded(functools.partial(self.remember, args, kwargs, traced=True))
        self.guarded(self.observe_result, staged.traced, inputs, out)
        return out

    def _traced_again(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """A later call made jax trace: look at that trace, which jax has cached."""
        self.seen.traces = self.shim.traced
        self.seen.compiles = stages.compiled_so_far(self._short) - self._compiled_before
        if self._spent_before is not None:
            spent = stages.spent_so_far(self._short).plus(self._spent_before, -1)
            self.seen.all_stages = (self.seen.all_stages or self.seen.stages).plus(spent)
            self._spent_before = None
        self.keep(args, kwargs)
        self.remember(args, kwargs, traced=True)
        staged = self.compiled_for(args).trace(*self.rest(args), **kwargs)
        self._look_at(staged, args, kwargs)

    # -- the trace

    def _trace(self, target: object, args: tuple[object, ...], kwargs: dict[str, object]) -> stages.Staged:
        stages.listen()
        self._compiled_before = stages.compiled_so_far(self._short) - self.seen.compiles
        with contextlib.ExitStack() as alone:
            alone.enter_context(first_traces)
            return self._trace_alone(target, args, kwargs, alone.close)

    def _trace_alone(
        self, target: object, args: tuple[object, ...], kwargs: dict[str, object], is_over: Callable[[], None]
    ) -> stages.Staged:
        reach = self.reach(args, kwargs)
        before = snapshot.take(reach)

        def wrote() -> None:
            self._wrote(self.users_own(before.changes(), reach))

        def heard() -> None:
            self.seen.heard(printed.kept, printed.of_tracers)
            printed.limit = 0  # what is said from here on is not the user's

        def look(traced: Any) -> None:
            heard()
            self.seen.answered += self.guarded(lambda: [*probing.gone_on(refused)]) or []
            self.guarded(wrote)
            self.guarded(functools.partial(before.restore, only_tracers=True))
            is_over()
            self.guarded(self._look_at, traced, args, kwargs, reach)
            self.seen.traces = self.shim.traced
            if not self.settings.trace_only:
                self._refuse_long()
                if not self.settings.measure and stages.never_ends(traced.jaxpr):
                    raise quiet.Ended("a loop in the program never ends")
                if self.compiles_long and self.settings.measure:
                    self.on_news(self)

        try:
            with quiet.overheard() as printed, probing.refusals() as refused:
                staged = stages.run_stages(
                    target,
                    self.rest(args),
                    kwargs,
                    compile=not self.settings.trace_only,
                    progress=self.progress,
                    look=look,
                )
        except BaseException as exc:
            self.guarded(wrote)
            if self.settings.trace_only or isinstance(exc, quiet.Ended):
                before.restore()
            raise  # of the user's own call stays what it wrote, as with `jax.jit`
        finally:
            heard()
            self.guarded(functools.partial(before.restore, only_tracers=True))
        self.seen.traces = self.shim.traced
        self.seen.compiles = stages.compiled_so_far(self._short) - self._compiled_before
        self.seen.stages, self._spent_before = staged.stages, None
        if self.settings.measure:
            self.seen.priced.add(call := KeptCall(args, kwargs))
            self.postpone("counting costs", lambda seconds: results.price(self, staged, call))
        self._what_if(args, kwargs)
        if not self.settings.trace_only:
            staged.before = before
        return staged

    def _refuse_long(self) -> None:
        """A loop is written out in what is to be compiled now, which may take XLA minutes: not in a run of ours that
        has made it so."""
        if self.compiles_long and not self.settings.long_programs:
            raise quiet.Ended("the program has a loop written out")

    def _what_if(self, args: Sequence[object], kwargs: dict[str, object]) -> None:
        def ask(seconds: float) -> None:
            self.seen.what_if = self.what_if(self, args, kwargs)

        if self.settings.what_if:
            self.postpone("asking what if", ask)

    def _look_at(
        self, traced: Any, args: tuple[object, ...], kwargs: dict[str, object], reach: Reach | None = None
    ) -> None:
        """Name what the traced program has as constants, and remember it to see changes."""
        reach = self.reach(args, kwargs) if reach is None or reach.is_behind() else reach
        jaxpr = traced.jaxpr
        stateful = self.stateful(args)
        names = stateful.names(reach) if stateful is not None else {}
        dyn = (*self.dynamic_paths(args), *names)
        logs = [p.path for p in stateful.logs] if stateful is not None else []
        written = self.written_paths(args)
        declared = self.dyn is not None and self.dyn != "auto"
        frameworks = self.frameworks(args)
        effects = self.side_effects(args, reach)
        self._wrote(effects)
        moved, shown = {*written, *(w.path for w in effects)}, set()
        for v in constants.variables(reach, compat.constants_of(jaxpr), dyn=dyn):
            name = names.get(v.path, v.path)
            shown.add(name)
            if v.path in reach.offered and name not in moved or at_or_below(v.path, logs):
                continue
            path = name if declared and not name.startswith("<") else v.path
            old, changing = self.seen.variables.get(path), v.written or name in moved
            self.seen.variables[path] = replace(
                v,
                path=path,
                stale=bool(old and old.stale),
                written=changing,
                declared=v.role == "dynamic" and declared,
                framework=frameworks.get(name, ""),
                written_at=written_at(path, reach.functions) if changing else None,
            )
        self._look_at_unnamed(jaxpr, stateful, moved, shown, reach)
        self.seen.equations = stages.equation_count(jaxpr)
        self.seen.dynamic_inputs = len(compat.jaxpr_of(jaxpr).invars)
        if self.settings.compile or self.original is not self.fn:  # there is a program that goes on with them
            baked = [v for v in self.seen.variables.values() if v.role == "constant"]
            kind, first = self.kind_of_call(args, kwargs), self.kind_of_call(tuple(args[:1]), {})
            self.variants.add(kind, frozen.freeze(reach, baked, (*dyn, *logs)), first)
        self.guarded(self.observe, traced, args, kwargs, reach)

    def _look_at_unnamed(
        self, jaxpr: object, stateful: StateProgram | None, written: set[str], shown: set[str], reach: Reach
    ) -> None:
        """Variables of frameworks that only the code of libraries names: those that the program uses."""
        places = stateful.places if stateful is not None else ()
        passed = zip(places, stages.used_inputs(jaxpr), strict=False)
        found = [p for p, used in passed if p.adapter is not None and (used or p.path in written)]
        found = [p for p in found if p.path not in shown]
        known = names_of_variables(self.namespace) if found else {}
        parameters = {p.name for p in parameters_of(self.fn) or ()}
        for place in found:
            path = known.get(id(place.holder())) or self.from_outside(place.path)
            variable = constants.of_place(place)
            if variable is not None and place.adapter is not None and not path.startswith("<"):
                changing, handed = place.path in written, ev.root(place.path) in parameters
                self.seen.variables[path] = replace(
                    variable, path=path, written=changing, framework=place.adapter.name,
                    origin="argument" if handed else variable.origin,
                    reads=named_by_holder(path, place.holder() if changing else None, reach.functions),
                    declared=self.dyn is not None and self.dyn != "auto",
                    written_at=written_at(path, reach.functions) if changing else None,
                )  # fmt: skip

    def _look_at_result(self, args: tuple[object, ...], kwargs: dict[str, object], out: object) -> None:
        """A NaN that only a later call shows."""
        if not jit_is_off():
            with trees.unnoticed((args, kwargs)):
                traced = self.compiled_for(args).trace(*self.rest(args), **kwargs)
            self.observe_later(traced, self.lasting(self.inputs(args, kwargs)), out)

    def _wrote(self, writes: Sequence[ev.Write]) -> None:
        for write in writes:
            self.seen.writes.setdefault(write.path, write)

    def _container(self, path: str) -> ev.Variable | None:
        """A list or tuple whose items are told one by one, a compiled function, or what is not looked into, as a
        variable of its own."""
        reach = self.reach()
        root = next((r for r in reach.roots if at_or_below(path, (r.path,))), None)
        if root is None:
            return None
        read = path if reads_of(path, reach.functions) else root.path
        reads = seen_from_cell(read, reads_of(read, reach.functions), reach.functions)
        kind = "function" if root.path == path and callable(root.value) else "object"
        return ev.Variable(path, root.origin, kind, reads=reads)  # type: ignore[arg-type]

    def _stale(self, frozen: Frozen, changed: Sequence[tuple[str, str, str]]) -> None:
        for path, before, after in changed:
            old = self.seen.variables.get(path) or self._container(path)
            if old is not None:
                kind = "function" if before == METHOD else old.type
                self.seen.variables[path] = replace(old, type=kind, stale=True, before=before, after=after)
        frozen.forget([path for path, *_ in changed])

    # -- a call that failed

    def _failed(self, exc: Exception, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        tracebacks.shorten(exc, lambda: told_of(self), self.reported)
        self.remember(args, kwargs, traced=False, outcome="failed")
        if not self.settings.measure:
            return
        if is_out_of_memory(exc):
            self.seen.exhausted_by = exc
            self._explain_later(args, kwargs)
            self.on_news(self)
            return
        self.keep(args, kwargs)
        self._look_into(exc, args, kwargs)
        self.seen.traces = self.shim.traced
        self.on_news(self)

    def _explain_later(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Where a call of another form than the first did not fit, that form is looked at."""

        def explain(seconds: float) -> None:
            if self.seen.exhausted is None:
                traced = self.compiled_for(args).trace(*self.rest(args), **kwargs)
                exhausted.explain(self, traced, args, kwargs)

        self.postpone("counting costs", explain)

    def _look_into(
        self, exc: Exception, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> plain_runs.Began | None:
        """Where the cell goes on, the most of it when it has ended: from what is returned then."""
        goes_on = self.is_plain and not self.settings.compile or tracebacks.may_be_caught()
        began = self.guarded(plain_runs.Began, self, args, kwargs) if goes_on else None
        if began is not None and began.before.noticed:
            began = None
        failures.diagnose_failure(self, exc, args, kwargs, began)
        self.guarded(self.observe, None, args, kwargs, self.reach(args, kwargs))
        self._what_if(args, kwargs)
        return began

    def diagnose(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Trace one call without running anything on real values but our own rehearsals."""
        self.keep(args, kwargs)
        settings, self.settings = self.settings, replace(self.settings, trace_only=True)
        traced = self.shim.traced
        try:
            try:
                staged = self._trace_beforehand(args, kwargs)
            except quiet.Wrote:  # now it can be put back
                self.forget_traces(traced)
                staged = self._trace_beforehand(args, kwargs)
            self.remember(args, kwargs, traced=True)
            seen = plain_runs.Look(staged.traced, self.lasting(self.inputs(args, kwargs)))
            self.looked = lambda: seen
        except Exception as exc:
            if tracebacks.is_ours(exc):
                raise
            if obstacle := quiet.obstacle(exc):
                self.seen.note(f"the call was not traced beforehand: {obstacle.what}")
                self.guarded(self.observe, None, args, kwargs, self.reach(args, kwargs))
                self.tell_of(obstacle, args, kwargs)
                return quiet.let_go(exc, self.reach(args, kwargs))
            self.remember(args, kwargs, traced=False, outcome="failed")
            began = self._look_into(exc, args, kwargs)
            quiet.let_go(exc, self.reach(args, kwargs))
            self.looked = look = functools.cache(lambda: plain_runs.look(self, args, kwargs, began))
            self.later("looking closer", lambda seconds: look(), (args, kwargs)) if began else look()
        finally:
            self.settings = settings

    def _trace_beforehand(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        with quiet.undone(self.reach(args, kwargs), traced=True), quiet.held_back():
            staged = self._trace(self.compiled_for(args), args, kwargs)
            quiet.heed()
        return staged

    def check(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Diagnose one call that nobody makes: its plain run is rehearsed too."""
        new = compat.never_called(root.value for root in self.reach(args, kwargs).roots)
        self.diagnose(args, kwargs)
        if self.settings.rehearse and (self.looked is not None or not self.settings.diagnose):
            began = plain_runs.Began(self, args, kwargs)
            seen = self.looked() if self.looked is not None else None
            self.guarded(plain_runs.rehearse, self, began, seen, None, self.settings.budget)
        self.looked = None
        for jitted in new:  # the user's own first call traces it
            jitted.clear_cache()
