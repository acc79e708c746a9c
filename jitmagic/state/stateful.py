"""One function with its dynamic variables, compiled by `jax.jit` with the variables as inputs and outputs.

Each trace says what it writes (a `Plan`). Traces that write differently give results of different length, so
that a call knows which plan its result belongs to. The wrapper itself is generated: see `wrapper`.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from jitmagic.evidence import Write
from jitmagic.options import JitOptions
from jitmagic.state import adapters, codegen, guards, inside, paths, plan, region, snapshot, wrapper
from jitmagic.state.declared import Declared, Subject, unique
from jitmagic.state.errors import StateError, warn_stale
from jitmagic.state.inside import NeedsState, NotPrepared, active, tracing
from jitmagic.state.paths import Place

_ATTEMPTS = 50


class Stateful:
    """One function with its dynamic variables; `call` is what the user gets.

    With `receiver` (a weak reference) it is a method of that object, and `call` takes the object first."""

    def __init__(
        self,
        subject: Subject,
        dyn_vars: Any,
        options: JitOptions,
        *,
        warn: bool = False,
        receiver: Callable[[], Any] | None = None,
    ) -> None:
        self.fn, self.namespace, self.receiver_as = subject.fn, subject.namespace, subject.receiver_as
        self.options, self.receiver, self.name = options, receiver, subject.name
        self.declared = Declared(dyn_vars, subject)
        self.adopted: list[Place] = []
        self.warn = warn
        self.places: list[Place] = []
        self.plans: dict[int, plan.Plan] = {}
        self.written: list[int] | None = None
        self.nested: tuple[Callable[[], Any], Any] | None = None
        """The trace of a last call inside another program, and the `jax.jit` function for that trace."""
        self.parameters = codegen.parameters_of(self.bound())
        self.cells = codegen.cells_of(self.fn, self.parameters)
        self.guards: guards.Guards | None = None
        self.touched: dict[str, Write] = {}
        """What traces changed as a side effect, by path: no frozen values."""
        self.call = self._public()
        found = self._leaves()
        self._check_options(found)
        self._build(found)

    def bound(self) -> Callable[..., Any]:
        """The user's function without its receiver."""
        return self.fn if self.receiver is None else types.MethodType(self.fn, self._self())

    def subject(self) -> Subject:
        """The function as paths and reads are looked up for it."""
        if self.receiver is None:
            return Subject(self.fn, self.namespace)
        return Subject(self.fn, self.namespace, self._self(), self.receiver_as)

    def _self(self) -> Any:
        assert self.receiver is not None
        found = self.receiver()
        if found is None:
            raise StateError(f"the object whose method {self.name} is does not exist any more")
        return found

    # -- the variables

    def _leaves(self) -> list[Place]:

        found = self._weak(self.declared.leaves(self.subject()))
        return unique([*found, *(p for p in self.adopted if p.exists())]) if self.adopted else found

    def _weak(self, found: Sequence[Place]) -> list[Place]:
        """Places that do not keep the receiver alive."""
        return list(found) if self.receiver is None else region.weaken(found, self._self())

    def read(self) -> tuple[Any, ...]:
        """Current values of the dynamic variables, in order."""
        return tuple(p.get() for p in self.places)

    def current(self) -> tuple[Any, ...]:
        """The values now, after looking the variables up anew where their structure has changed."""
        found = self._leaves()
        if [p.path for p in found] != [p.path for p in self.places]:
            self._build(found)
        else:
            self.places = found
        return self.read()

    def knows(self, slot: tuple[Any, ...]) -> bool:
        """Is what lies there one of the variables?"""
        return any(region.slot_of(p) == slot for p in self.places)

    def names(self, reach: Any) -> dict[str, str]:
        """Path of each dynamic variable, by the paths that `reach` knows it by."""
        slots = {region.slot_of(p): p.path for p in self.places}
        found = ((leaf.path, slots.get(region.slot_of(leaf.place))) for leaf in reach.leaves(used_only=False))
        return {path: name for path, name in found if name is not None}

    # -- compiling

    def _build(self, places: list[Place]) -> None:
        """A new `jax.jit` function for these variables."""
        self.places, self.plans, self.written, self.nested = places, {}, None, None
        self.tree = region.Tree(places, self._tops())
        given = self.options.donate_argnames
        self.donated = [i for i, p in enumerate(places) if paths.at_or_below(p.path, given)]
        self.compiled = self.jitted()
        codegen.become(self.call, codegen.generic(self._call, self.name, self.cells))

    def _check_options(self, found: Sequence[Place]) -> None:
        """Names and numbers that the function does not have are an error now, as in `jax.jit`."""
        state = {p.path for p in (*found, *self._tops())}
        above = tuple(n for n in self.options.donate_argnames if not self._is_state(n, state))
        replace(self.options, donate_argnames=above).jit(self.bound())

    @staticmethod
    def _is_state(name: str, state: Collection[str]) -> bool:
        return any(paths.at_or_below(p, [name]) or paths.at_or_below(name, [p]) for p in state)

    def jitted(self) -> Any:
        """A fresh `jax.jit` function whose first inputs are the dynamic variables, in order."""
        count = len(self.places)
        traced = codegen.with_state(self.parameters, count, self._traced, self.name)
        return self.options.shifted(count, self.parameters, self.donated).jit(traced)

    def _tops(self) -> list[Place]:
        return self._weak([p for p in self.declared.tops(self.subject()) if p.adapter is None])

    def _traced(self, state: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What jax traces: `fn` with the traced state in place, then the state as it was."""
        from jitmagic.tracing import compat

        if active.prepared is not self:
            raise NotPrepared(self)
        with tracing, adapters.unheard(), active.expecting(None):
            subject = self.subject()
            reach = subject.reach()
            before = snapshot.take(reach)
            around = self._weak([r.place for r in reach.roots]) if adapters.any_installed() else []
            tree = region.Tree(self.places, self._tops())
            held = region.Region(tree, around, appearing=self.declared.everything)
            active.stack.append((self, compat.current_trace()))
            done = False
            try:
                for place, value in zip(self.places, state, strict=True):
                    place.put(value)
                held.seed()
                with adapters.entered(held.objects()):
                    out = self.bound()(*args, **kwargs)
                result = self._outcome(out, state, held)
                known = self.names(reach)
                variables = [p.holder() for p in self.places if p.adapter is not None]
                self.touched |= {w.path: w for w in before.changes(variables) if w.path not in known}
                done = True
                return result
            except Exception as exc:
                self._name_variables(exc)
                raise
            finally:
                active.stack.pop()

                def put_back() -> None:
                    leave = done and not held.appeared
                    held.restore(leave_effects=leave)
                    before.restore(only_tracers=done)
                    held.restore(leave_effects=leave)

                _surely(put_back)

    def _name_variables(self, exc: Exception) -> None:
        """Say which variable is meant where jax names an argument that is not the user's."""
        for number in sorted({int(n) for n in re.findall(r"\b_dyn(\d+)\b", str(exc))}):
            note = (
                f"_dyn{number} is {self.places[number].path}, a dynamic variable of {self.name}: what decides a "
                f"shape or a branch in Python has to be a constant or a static argument"
            )
            if note not in getattr(exc, "__notes__", ()):
                exc.add_note(note)

    def _outcome(self, out: Any, state: Sequence[Any], held: region.Region) -> tuple[Any, ...]:
        """The function's result and what it wrote, in the form that tells this trace's plan."""
        from jitmagic.tracing.compat import is_tracer

        planner = plan.Planner(is_tracer)
        slots = {region.slot_of(p): i for i, p in enumerate(self.places)}
        keep = [(self.places[i], state[i], i) for i in self.donated]
        try:
            ops = planner.plan(held, slots, keep)
        except plan.CannotFollow as exc:
            raise StateError(
                f"{self.name} writes {exc} as an object that hides its arrays, so their new values can't be put "
                f"back after a compiled call; keep them in attributes, dicts or lists"
            ) from None
        made = plan.Plan(ops, len(planner.outputs), self._structure_changed())
        size = self._register(made)
        return (out, *planner.outputs, *[None] * (size - 1 - made.outputs))

    def _structure_changed(self) -> bool:
        try:
            return [p.path for p in self._leaves()] != [p.path for p in self.places]
        except ValueError:
            return True

    def _register(self, made: plan.Plan) -> int:
        """The length that results of this plan have."""
        same = next((p for p in self.plans.values() if p.identity() == made.identity()), None)
        if same is not None:
            return same.size
        made.size = max([made.outputs + 1, *(n + 1 for n in self.plans)]) if self.plans else made.outputs + 1
        self.plans[made.size] = made
        leaves = {op.leaf for p in self.plans.values() for op in p.ops if op.leaf is not None}
        self.written = sorted(leaves)
        return made.size

    # -- calls that the generated wrapper does not handle

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """A call before the wrapper is known, inside a trace, or after the variables have changed in structure."""
        from jitmagic.tracing.compat import trace_state_clean

        args = self._without_receiver(args)
        if not trace_state_clean():
            return inside.call(self, args, kwargs)
        args, kwargs = codegen.spelled(self.parameters, args, kwargs)
        with tracing:
            for state in self._states():
                try:
                    with active.expecting(self):
                        result = self.compiled(*state, *args, **kwargs)
                except NeedsState as need:
                    self._adopt(need)
                    continue
                except BaseException as exc:
                    self._tell_what_is_gone(exc, state)
                    raise
                if self.donated or not self._raced(result, state):
                    return self._finish(result, state)

    def _states(self) -> Iterator[Sequence[Any]]:
        """What the variables hold, read anew for each attempt to run. Raises StateError where none gets through."""
        for _ in range(_ATTEMPTS):
            yield self.current()
        raise StateError(f"{self.name} needs other variables at every trace")

    def _raced(self, result: Sequence[Any], state: Sequence[Any]) -> bool:
        """Another thread has written, since they were read, variables that this result replaces."""
        leaves = (op.leaf for op in self.plans[len(result)].ops if op.leaf is not None)
        return any(self.places[i].same_object and self.places[i].look() is not state[i] for i in leaves)

    def _without_receiver(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args if self.receiver is None else args[1:]

    def _adopt(self, need: NeedsState) -> None:
        if need.owner is not self:
            raise need
        known = {p.path for p in self.adopted}
        self.adopted += [p for p in need.places if p.path not in known]

    def _finish(self, result: Sequence[Any], state: Sequence[Any]) -> Any:
        made = self.plans[len(result)]
        codegen.writes[0] += 1
        plan.apply(made.ops, result[1 : 1 + made.outputs])
        if made.structural:
            self._build(self._leaves())
        else:
            self._specialise()
        return result[0]

    def _specialise(self) -> None:
        """Generate the wrapper for what is known to be read and written now."""
        if self.warn and self.guards is None:
            tops = [p.path for p in (*self.places, *self._tops())]
            known = self.names(self.subject().reach())
            self.guards = guards.Guards(self.subject(), (*tops, *known, *self.touched))
            self._weak([g.place for g in self.guards.all])
        codegen.become(self.call, wrapper.specialised(self))

    def stale(self) -> None:
        """A guard of the wrapper failed: tell what changed, once, and go on without watching it."""
        if self.guards is not None:
            for path, before, after in self.guards.changed():
                warn_stale(path, before, after, self.name)
        self._specialise()

    def retry(self, exc: BaseException, state: Sequence[Any]) -> bool:
        """After an exception: was the state another thread's traced values, or did an inner function need more?"""
        from jitmagic.tracing.compat import is_tracer, trace_state_clean

        self._tell_what_is_gone(exc, state)
        if isinstance(exc, NeedsState) and exc.owner is self:
            self._adopt(exc)
            return True
        if isinstance(exc, NotPrepared) and exc.owner is self:
            return True
        return isinstance(exc, Exception) and trace_state_clean() and any(map(is_tracer, state))

    def _tell_what_is_gone(self, exc: BaseException, state: Sequence[Any]) -> None:
        """A donated value can't be put back after an interrupt: say so, in the exception itself."""
        held = [(self.places[i].path, state[i]) for i in self.donated if hasattr(state[i], "is_deleted")]
        gone = [path for path, value in held if value.is_deleted()]
        if gone:
            exc.add_note(
                f"{', '.join(gone)}: donated to a call of {self.name} that did not finish, so the old value is gone "
                f"and there is no new one. assign it anew before the next call"
            )

    # -- what the user sees

    def _public(self) -> Any:
        call = codegen.generic(self._call, self.name, self.cells)
        own = ("__dict__",) if isinstance(self.fn, types.FunctionType) else ()
        functools.update_wrapper(call, self.fn, updated=own)
        call.lower = self._staged("lower")  # type: ignore[attr-defined]
        call.trace = self._staged("trace")  # type: ignore[attr-defined]
        call.eval_shape = lambda *a, **k: self._staged("eval_shape")(*a, **k)[0]  # type: ignore[attr-defined]
        call.clear_cache = self.clear_cache  # type: ignore[attr-defined]
        call._cache_size = lambda: self.compiled._cache_size()  # type: ignore[attr-defined]
        call.__jitmagic__ = self  # type: ignore[attr-defined]
        return call

    def _staged(self, stage: str) -> Callable[..., Any]:
        def staged(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = codegen.spelled(self.parameters, args, kwargs)
            with tracing:
                for state in self._states():
                    try:
                        with active.expecting(self):
                            return getattr(self.compiled, stage)(*state, *args, **kwargs)
                    except NeedsState as need:
                        self._adopt(need)

        return staged

    def clear_cache(self) -> None:
        """As `jax.jit(fn).clear_cache`: the next call traces anew, with the frozen values of then."""
        self.guards = None
        self.compiled.clear_cache()
        self._build(self._leaves())


def _surely(undo: Callable[[], Any]) -> None:
    """Undo, whatever interrupts it meanwhile; the interrupt comes afterwards."""
    try:
        undo()
    except KeyboardInterrupt:
        undo()
        raise
