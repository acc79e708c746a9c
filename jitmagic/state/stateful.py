"""One function with its dynamic variables, compiled by `jax.jit` with the variables as inputs and outputs.

For each way in which its variables and their settings come together there is a `StateProgram`. The wrapper of the one
that served last is generated, and runs without a look at anything else: see `wrapper`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jitmagic.evidence import Write
from jitmagic.options import JitOptions, parameters_of
from jitmagic.state import (
    adapters,
    codegen,
    guards,
    inside,
    made,
    paths,
    reads,
    region,
    taken_out,
    values,
    wrapper,
)  # fmt: skip
from jitmagic.state.active import TraceAgain, active, tracing
from jitmagic.state.below import AsBefore, Below, Watched
from jitmagic.state.declared import Declared, Inspected, unique
from jitmagic.state.errors import StateError, warn_lost, warn_stale
from jitmagic.state.logs import can_be_noted
from jitmagic.state.paths import Place
from jitmagic.state.state_program import Instance, StateProgram, Survey
from jitmagic.state.uses import facts_of
from jitmagic.tracing import compat, messages

_ATTEMPTS = 50
_MOST = 8
"""Programs, and objects that were given, of which each function remembers the last."""


class Stateful:
    """One function with its dynamic variables; `call` is what the user gets.

    With `receiver` (a weak reference) it is a method of that object, and `call` takes the object first. A `plain`
    function has variables only where it is called with objects of a framework: without any, jax alone serves. With
    `lifts` False it takes these as jax does."""

    def __init__(
        self,
        subject: Inspected,
        dyn_vars: object,
        options: JitOptions,
        *,
        warn: bool = False,
        receiver: Callable[[], object] | None = None,
        plain: bool = False,
        lifts: bool = True,
    ) -> None:
        self.fn, self.namespace, self.receiver_as = subject.fn, subject.namespace, subject.receiver_as
        self.options, self.receiver, self.name = options, receiver, subject.name
        self.declared = Declared(dyn_vars, subject)
        self.everything, self.arguments = self.declared.everything, self.declared.arguments
        self.adopted: list[Place] = []
        self.counted: set[str] = set()
        """Paths of numbers in objects of libraries that the function writes."""
        self.constant: set[str] = set()
        """Paths of what decides shapes or branches, and was not declared by itself."""
        self.undecided: set[str] = set()
        """Paths of what decides and is written: neither constant nor dynamic."""
        self.fixed: set[str] = set()
        """Paths of numbers that are written, each value of which needs a program of its own."""
        self.read_logs: set[str] = set()
        """Paths of lists that the function does more with than add to them."""
        self.grown: set[str] = set()
        """Paths of lists that traces have added to."""
        self.grew: set[str] = set()
        """Paths of those that one trace has added to."""
        self.warn = warn
        self.programs: dict[Hashable, StateProgram] = {}
        self.known: dict[tuple[int, ...], Instance] = {}
        self.parameters = parameters_of(self.bound())
        self.cells = codegen.cells_of(self.fn, self.parameters)
        self.static: Collection[str] = options.static_parameters(self.bound())
        self.lifts = lifts
        self.guards: guards.Guards | None = None
        self.touched: dict[str, Write] = {}
        """What traces changed as a side effect, by path: no frozen values."""
        self.call = self._public()
        self.note = made.Made(subject) if warn and receiver is None and made.is_asked_for() else None
        if self.note is not None:
            made.remember(self.call, self.note)
        found = self.survey({})
        self._check_options(found)
        self.program = self._program(found, {})
        self.plain: Any = options.jit(self._watched()) if plain else None
        if plain:
            codegen.become(self.call, wrapper.plain(self))

    def _watched(self) -> Callable[..., object]:
        """The user's function, which tells where jax traces it with objects of a framework."""

        @functools.wraps(self.fn)
        def watched(*args: object, **kwargs: object) -> object:
            __tracebackhide__ = True
            if self.taken(args, kwargs)[0]:
                raise TraceAgain(self)
            out = self.fn(*args, **kwargs)
            if self.note is not None:
                self.note.note()
            return out

        return watched

    def taken(self, args: Sequence[object], kwargs: Mapping[str, object]) -> taken_out.Taken:
        """The objects among the arguments, and what jax gets."""
        if not self.lifts:
            return {}, tuple(args), dict(kwargs)
        return taken_out.taken(self.parameters, args, kwargs, self.static, self.arguments)

    def bound(self) -> Callable[..., object]:
        """The user's function without its receiver."""
        return self.fn if self.receiver is None else types.MethodType(self.fn, self.receiver_object())

    def subject(self, objects: taken_out.Objects) -> Inspected:
        """The function as paths and reads are looked up for it, called with these objects."""
        given = {taken_out.path_of(at): value for at, value in objects.items()}
        if self.receiver is None:
            return Inspected(self.fn, self.namespace, given=given)
        return Inspected(self.fn, self.namespace, self.receiver_object(), self.receiver_as, given)

    def receiver_object(self) -> Any:
        """The object whose method this is; StateError where it is gone."""
        assert self.receiver is not None
        found = self.receiver()
        if found is None:
            raise StateError(f"the object whose method {self.name} is does not exist any more")
        return found

    # -- the variables

    def weak(self, found: Sequence[Place]) -> list[Place]:
        """Places that do not keep the receiver alive."""
        return list(found) if self.receiver is None else region.weaken(found, self.receiver_object())

    def survey(self, objects: taken_out.Objects) -> Survey:
        """What the function depends on in a call with these objects among its arguments."""
        subject, given, seen = self.subject(objects), taken_out.Given(), list[Below]()
        given.bind(objects)
        reach = subject.reach()
        is_log = self._log_finder(reach.functions)
        stored = {name for fn in reach.functions for name in facts_of(fn).stored}

        def look(numbers: bool = True) -> Below:
            seen.append(Below(numbers, stored, self.counted, self.constant, is_log))
            return seen[-1]

        lifted = look(numbers=False)
        tops = [Place(p, "argument", "global", p, holder=given) for p in map(taken_out.path_of, objects)]
        numbers = [str(at[0]) in self.arguments for at in objects]
        form = tuple((at, lifted.look(top, n)) for at, top, n in zip(objects, tops, numbers, strict=True))
        found = [*self.weak(self.declared.leaves(subject, look)), *(p for p in self.adopted if p.exists())]
        tops += self.weak([p for p in self.declared.tops(subject) if p.adapter is None])
        settings = [p for below in seen if below is not lifted for p in below.settings if reach.may_read(p)]
        logs = unique([p for below in seen for p in below.logs])
        places = unique([*lifted.leaves, *found])
        return Survey(given, places, tops, settings, logs, lifted.nodes, form, len(lifted.leaves))

    def _log_finder(self, functions: Sequence[types.FunctionType]) -> Callable[[Place], bool] | None:
        """What tells the lists that the function only adds to, as far as its source says."""
        added = reads.only_added_to(functions)

        def is_log(place: Place) -> bool:
            adds = place.key in added or place.path in self.grown
            return adds and place.path not in self.read_logs and can_be_noted(place.look())

        return is_log if added or self.grown else None

    def note_growth(self, places: Sequence[Place]) -> bool:
        """Lists and deques that a trace has added to, under whatever name; whether one does so the second time, so
        that it is not a model which builds itself."""
        paths_ = {p.path for p in places} - self.grown - self.read_logs
        again = paths_ & self.grew
        self.grown |= again
        self.grew |= paths_
        return bool(again)

    def count(self, places: Sequence[Place]) -> bool:
        """Numbers that the function writes are dynamic from now on; whether any of them was not."""
        written = {p.path for p in places} - self.counted - self.fixed
        decided = written & self.constant
        self.constant -= decided
        self.undecided |= decided
        self.counted |= written
        return bool(written)

    def fix(self, places: Sequence[Place]) -> bool:
        """Numbers that are written inside an inner transformation, whose values don't come out: a program holds for one
        of them. Whether that is new."""
        new = {p.path for p in places} - self.fixed
        self.fixed |= new
        self.constant |= new
        self.counted -= new
        return bool(new)

    def learn(self, culprits: Sequence[Place]) -> bool:
        """What decides a shape or a branch is constant from now on, where it was not declared by itself."""
        own = {p.path for p in self.declared.tops(self.subject({}))}
        new = {p.path for p in culprits if p.adapter is None} - own - self.undecided - self.constant
        self.constant |= new
        return bool(new)

    # -- compiling

    def _program(self, found: Survey, objects: taken_out.Objects) -> StateProgram:
        """The program for what was found: one of before, or a new one."""
        key = found.key()
        known = self.programs.pop(key, None)
        if known is None or known.is_of_others(objects):
            known = StateProgram(self, found, objects)
            codegen.become(self.call, codegen.generic(self.slow, self.name, self.cells))
        else:
            known.found_again(found)
        self.programs[key] = self.program = known
        while len(self.programs) > _MOST:
            del self.programs[next(iter(self.programs))]
        known.given.bind(objects)
        return known

    def of(self, args: Sequence[object], kwargs: Mapping[str, object]) -> MadeCall:
        """A call as it is made: the program for it, and what jax gets."""
        args, kwargs = codegen.spelled(self.parameters, tuple(args), dict(kwargs))
        objects, args, kwargs = self.taken(args, kwargs)
        found = self.survey(objects)
        return MadeCall(self._program(found, objects), objects, found.nodes, args, kwargs)

    def serves_plainly(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """No variable has a part in such a call."""
        return self.plain is not None and not self.taken(args, kwargs)[0]

    def program_of(self, args: Sequence[object], kwargs: Mapping[str, object]) -> StateProgram:
        """The program that serves such a call, or served the last one."""
        objects, _, _ = self.taken(args, kwargs)
        return self._program(self.survey(objects), objects) if objects else self.program

    def _check_options(self, found: Survey) -> None:
        """Names and numbers that the function does not have are an error now, as in `jax.jit`."""
        state = {p.path for p in (*found.places, *found.tops)}
        above = tuple(n for n in self.options.donate_argnames if not self._is_state(n, state))
        replace(self.options, donate_argnames=above).jit(self.bound())

    @staticmethod
    def _is_state(name: str, state: Collection[str]) -> bool:
        return any(paths.at_or_below(p, [name]) or paths.at_or_below(name, [p]) for p in state)

    # -- calls that the generated wrapper does not handle

    def slow(self, *args: object, **kwargs: object) -> Any:
        """A call before the wrapper is known, inside a trace, or after the variables have changed in structure."""
        args = self._without_receiver(args)
        if self.serves_plainly(args, kwargs) or tracing.is_had_by_a_waiting_thread():
            return self.plain(*args, **kwargs)
        if not compat.trace_state_clean():
            return inside.call(self, args, kwargs)
        for call, state, result in self._attempts("__call__", args, kwargs):
            with tracing:
                if call.program.donated or not call.program.raced(result, state):
                    return self._finish(call, result)

    def _attempts(
        self, stage: str, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Iterator[tuple[MadeCall, tuple[object, ...], Any]]:
        """The call, what its variables hold and what jax gives, looked up anew for each attempt. StateError where none
        gets through."""
        for _ in range(_ATTEMPTS):
            with tracing:
                call = self.of(args, kwargs)
                state = call.program.read()
            try:
                with active.expecting(call.program):
                    result = getattr(call.program.compiled, stage)(*state, *call.args, **call.kwargs)
            except TraceAgain as again:
                if again.owner is not self:
                    raise
                continue
            except BaseException as exc:
                self._tell_what_is_gone(call.program, exc, state)
                raise
            yield call, state, result
        raise StateError(f"{self.name} needs other variables at every trace")

    def _without_receiver(self, args: tuple[object, ...]) -> tuple[object, ...]:
        return args if self.receiver is None else args[1:]

    def adopt(self, found: Sequence[Place]) -> None:
        """Variables of an inner function are this one's too."""
        known = {p.path for p in self.adopted}
        self.adopted += [p for p in found if p.path not in known]

    def _finish(self, call: MadeCall, result: Sequence[object]) -> object:
        program = call.program
        out = program.finish(result)
        if program.plans[len(result)].structural:
            codegen.become(self.call, codegen.generic(self.slow, self.name, self.cells))
        else:
            self._specialise(program)
            self._remember(call)
        for path in program.lost if self.warn else ():
            warn_lost(path, self.name)
        program.lost.clear()
        return out

    def _specialise(self, program: StateProgram) -> None:
        """Generate the wrapper for what is known to be read and written now."""
        if self.warn and self.guards is None:
            known = program.names(self.subject({}).reach())
            tops = [p.path for p in (*program.places, *program.tops)]
            self.guards = guards.Guards(self.subject({}), (*tops, *known, *self.touched))
            self.weak([g.place for g in self.guards.all])
        if program.run is None or program.spelled_plans != len(program.plans):
            program.run = wrapper.specialised(self, program)
            program.spelled_plans = len(program.plans)
        codegen.become(self.call, program.run)

    def _remember(self, call: MadeCall) -> None:
        """Objects that were given are looked at no more than for being the same."""
        if not call.objects:
            return
        ids = tuple(map(id, call.objects.values()))
        gone = functools.partial(self.known.pop, ids)
        references = [values.reference(v, gone) for v in call.objects.values()]
        self.known.pop(ids, None)
        self.known[ids] = Instance(call.program, AsBefore(call.nodes), references)
        while len(self.known) > _MOST:
            self.known.pop(next(iter(self.known)), None)

    # -- what the generated wrapper calls

    def other(
        self,
        program: StateProgram,
        result: Sequence[object],
        state: Sequence[object],
        objects: Sequence[object],
    ) -> tuple[object] | None:
        """After a call that jax has traced anew: its result, or None where it has to be made again."""
        with tracing:
            if objects:
                program.given.bind(dict(zip(program.locations, objects, strict=True)))
            if program.raced(result, state) and not program.donated:
                return None
            structural = program.plans[len(result)].structural
            if structural and objects:
                self.known.pop(tuple(map(id, objects)), None)
            return (self._finish(MadeCall(program), result),)

    def stale(self, program: StateProgram) -> None:
        """A guard of the wrapper failed: tell what changed, once, and go on without watching it."""
        if self.guards is not None:
            for path, before, after in self.guards.changed():
                warn_stale(path, before, after, self.name)
        program.spelled_plans = 0
        self._specialise(program)

    def retry_plain(self, exc: BaseException) -> bool:
        """After an exception of `plain`: was it called with objects of a framework?"""
        return isinstance(exc, TraceAgain) and exc.owner is self or messages.op_of(exc) == "invalid-type"

    def retry(self, program: StateProgram, exc: BaseException, state: Sequence[object]) -> bool:
        """After an exception: was the state another thread's traced values, or is the call to be made again?"""
        self._tell_what_is_gone(program, exc, state)
        if isinstance(exc, TraceAgain):
            return exc.owner is self
        if messages.op_of(exc) == "invalid-type" and adapters.any_installed():
            return True  # an object of a framework, say, where there was none before
        return isinstance(exc, Exception) and compat.trace_state_clean() and any(map(compat.is_tracer, state))

    def _tell_what_is_gone(self, program: StateProgram, exc: BaseException, state: Sequence[Any]) -> None:
        """A donated value can't be put back after an interrupt: say so, in the exception itself."""
        held = [
            (program.places[i].path, state[i]) for i in program.donated if hasattr(state[i], "is_deleted")
        ]
        gone = [path for path, value in held if value.is_deleted()]
        if gone:
            exc.add_note(
                f"{', '.join(gone)}: donated to a call of {self.name} that did not finish, so the old value is gone "
                f"and there is no new one. assign it again before the next call"
            )

    # -- what the user sees

    @property
    def compiled(self) -> Any:
        """The `jax.jit` function that served last."""
        return self.program.compiled if self.plain is None or self.program.locations else self.plain

    def _public(self) -> Any:
        call = codegen.generic(self.slow, self.name, self.cells)
        own = ("__dict__",) if isinstance(self.fn, types.FunctionType) else ()
        functools.update_wrapper(call, self.fn, updated=own)
        call.lower = self._staged("lower")  # type: ignore[attr-defined]
        call.trace = self._staged("trace")  # type: ignore[attr-defined]
        call.eval_shape = self._eval_shape  # type: ignore[attr-defined]
        call.clear_cache = self.clear_cache  # type: ignore[attr-defined]
        call._cache_size = lambda: self.compiled._cache_size()  # type: ignore[attr-defined]
        call.__jitmagic__ = self  # type: ignore[attr-defined]
        return call

    def _staged(self, stage: str) -> Callable[..., Any]:
        def staged(*args: object, **kwargs: object) -> object:
            if self.serves_plainly(args, kwargs):
                args, kwargs = codegen.spelled(self.parameters, args, kwargs)
                return getattr(self.plain, stage)(*args, **kwargs)
            _, _, result = next(self._attempts(stage, args, kwargs))
            return result

        return staged

    def _eval_shape(self, *args: object, **kwargs: object) -> Any:
        out = self._staged("eval_shape")(*args, **kwargs)
        return out if self.serves_plainly(args, kwargs) else out[0]

    def clear_cache(self) -> None:
        """As `jax.jit(fn).clear_cache`: the next call traces anew, with the frozen values of then."""
        self.guards = None
        if self.plain is not None:
            self.plain.clear_cache()
            codegen.become(self.call, wrapper.plain(self))
        for program in self.programs.values():
            program.compiled.clear_cache()
        self.programs.clear()
        self.known.clear()
        self.program = self._program(self.survey({}), {})


@dataclass
class MadeCall:
    """A call that is made: its program, the objects in it and what jax gets."""

    program: StateProgram
    objects: taken_out.Objects = field(default_factory=dict)
    nodes: Sequence[Watched] = ()
    args: tuple[object, ...] = ()
    kwargs: dict[str, object] = field(default_factory=dict)
