"""One `jax.jit` function of a stateful function: for these variables, with everything else as it was.

Each trace says what it writes (a `Plan`). Traces that write differently give results of different length, so
that a call knows which plan its result belongs to.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from jitmagic.evidence import Write, root
from jitmagic.options import JitOptions, Parameters, argument_names
from jitmagic.state import adapters, codegen, paths, plan, region, snapshot, taken_out, values
from jitmagic.state.active import TraceAgain, active, tracing
from jitmagic.state.below import AsBefore, Same, Watched
from jitmagic.state.declared import Inspected
from jitmagic.state.errors import StateError
from jitmagic.state.guards import Guards
from jitmagic.state.logs import Notes
from jitmagic.state.made import Made
from jitmagic.state.paths import Place
from jitmagic.state.reached import Reach
from jitmagic.tracing import compat, messages


@dataclass
class Survey:
    """What a stateful function depends on in a call with these objects among its arguments."""

    given: taken_out.Given
    places: list[Place]
    """The dynamic variables, those of the objects first."""
    tops: list[Place]
    settings: list[Place]
    logs: list[Place]
    nodes: list[Watched]
    form: tuple[tuple[paths.Location, Hashable], ...]
    lifted: int = 0
    """How many of the variables are those of the objects."""

    def key(self) -> Hashable:
        """Equal where one program serves."""
        held = tuple((p.path, *_kept(p.look())) for p in self.settings)
        return self.form, tuple(p.path for p in self.places), tuple(p.path for p in self.logs), held


def _kept(value: object) -> tuple[object, ...]:
    if values.is_array(value):
        return (Same(value),)
    return type(value), frozenset(value) if values.is_a(value, set) else value


class Owner(Protocol):
    """What a program, its calls and their wrapper need of the function that they belong to."""

    name: str
    options: JitOptions
    parameters: Parameters
    everything: bool
    arguments: frozenset[str]
    """Parameters that are declared dynamic."""
    touched: dict[str, Write]
    note: Made | None
    """Where it is noted what the program holds as constants."""
    cells: codegen.Cells
    guards: Guards | None
    known: dict[tuple[int, ...], Instance]
    receiver: Any
    plain: Any
    program: StateProgram

    def taken(self, args: Sequence[object], kwargs: Mapping[str, object]) -> taken_out.Taken: ...
    def bound(self) -> Callable[..., object]: ...
    def subject(self, objects: taken_out.Objects) -> Inspected: ...
    def weak(self, found: Sequence[Place]) -> list[Place]: ...
    def survey(self, objects: taken_out.Objects) -> Survey: ...
    def adopt(self, found: Sequence[Place]) -> None: ...
    def learn(self, culprits: Sequence[Place]) -> bool: ...
    def count(self, places: Sequence[Place]) -> bool: ...
    def fix(self, places: Sequence[Place]) -> bool: ...
    def note_growth(self, places: Sequence[Place]) -> bool: ...
    def of(self, args: Sequence[object], kwargs: dict[str, object]) -> Any: ...
    def receiver_object(self) -> object: ...
    def slow(self, *args: object, **kwargs: object) -> Any: ...
    def retry(self, program: StateProgram, exc: BaseException, state: Sequence[object]) -> bool: ...
    def retry_plain(self, exc: BaseException) -> bool: ...
    def other(
        self,
        program: StateProgram,
        result: Sequence[object],
        state: Sequence[object],
        objects: Sequence[object],
    ) -> object: ...
    def stale(self, program: StateProgram) -> None: ...


class Instance:
    """Objects that a program was called with, and what they were like then."""

    __slots__ = ("program", "now", "then", "references")

    def __init__(self, program: StateProgram, kept: AsBefore, references: Sequence[object]) -> None:
        self.program, self.now, self.then, self.references = program, kept.now, kept.then, references


class StateProgram:
    """The compiled function for what a survey has found. `run` is the generated wrapper of it."""

    def __init__(self, owner: Owner, found: Survey, objects: taken_out.Objects) -> None:
        self.owner, self.places, self.tops, self.key = owner, found.places, found.tops, found.key()
        self.locations = tuple(at for at, _ in found.form)
        self.given, self.logs = found.given, found.logs
        held = [(p, p.look()) for p in found.settings]
        self.settings = [(p, set(v) if values.is_a(v, set) else v) for p, v in held]
        self.plans: dict[int, plan.Plan] = {}
        self._first = [id(value) for value in objects.values()]
        self.written: list[int] | None = None
        self.inner: tuple[Callable[[], object], object] | None = None
        """The trace of a last call inside another program, and the `jax.jit` function for that trace."""
        self.tree = region.Tree(found.places, found.tops, found.logs)
        self.donated = [i for i, p in enumerate(self.places) if self._is_donated(p)]
        given = [(i, p) for i, p in enumerate(self.places) if self.is_given(p)]
        self.numbers = {i: type(p.look()) for i, p in given if root(p.path) not in owner.arguments}
        self.numbers = {i: cls for i, cls in self.numbers.items() if cls in (int, float, complex)}
        self.lost: list[str] = []
        """Paths of writes that are lost, to be told."""
        self.compiled = self.jitted()
        self.run: types.FunctionType | None = None
        self.spelled_plans = 0
        """How many plans there were when `run` was generated."""

    def is_of_others(self, objects: taken_out.Objects) -> bool:
        """It builds something in the objects that it was made for, and these are other ones."""
        builds = any(made.structural for made in self.plans.values())
        return builds and [id(value) for value in objects.values()] != self._first

    def found_again(self, found: Survey) -> None:
        """Follow the names that are bound elsewhere now."""
        self.places = [*self.places[: found.lifted], *found.places[found.lifted :]]

    def is_given(self, place: Place) -> bool:
        """It leads into an object among the arguments."""
        while place.parent is not None:
            place = place.parent
        return place.holder() is self.given

    def _is_donated(self, place: Place) -> bool:
        options = self.owner.options
        if paths.at_or_below(place.path, options.donate_argnames):
            return True
        names = argument_names(self.owner.parameters, max(options.donate_argnums, default=-1) + 1)
        return self.is_given(place) and paths.at_or_below(
            place.path, [names[n] for n in options.donate_argnums]
        )

    def read(self) -> tuple[object, ...]:
        """Current values of the dynamic variables, in order."""
        return tuple(p.get() for p in self.places)

    def knows(self, slot: tuple[object, ...]) -> bool:
        """Is what lies there one of the variables?"""
        return any(region.slot_of(p) == slot for p in self.places)

    def names(self, reach: Reach) -> dict[str, str]:
        """Path of each dynamic variable, by the paths that `reach` knows it by."""
        slots = {region.slot_of(p): p.path for p in self.places}
        leaves = [*reach.leaves(used_only=False), *reach.leaves()]  # each walk has one name for a variable
        found = ((leaf.path, slots.get(region.slot_of(leaf.place))) for leaf in leaves)
        return {path: name for path, name in found if name is not None}

    # -- compiling

    def jitted(self) -> Any:
        """A fresh `jax.jit` function whose first inputs are the dynamic variables, in order."""
        count, parameters = len(self.places), self.owner.parameters
        traced = codegen.with_state(parameters, count, self.traced, self.owner.name)
        return self.owner.options.shifted(count, parameters, self.donated).jit(traced)

    def traced(
        self, state: tuple[object, ...], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """What jax traces: the function with the traced state in place, then the state as it was."""
        if active.prepared is not self:
            self._look_around()
        owner, objects = self.owner, self.given.objects()
        if owner.taken(args, kwargs)[0]:
            raise TraceAgain(owner)  # where there was none in the calls before
        args, kwargs = taken_out.filled(owner.parameters, args, kwargs, objects)
        with tracing, adapters.unheard(), active.expecting(None):
            reach = owner.subject(objects).reach()
            with jax.ensure_compile_time_eval():  # a `jax.Ref` is read by an operation
                before = snapshot.take(reach)
                snapshot.about_to_trace(self.places)
            around = owner.weak([r.place for r in reach.roots]) if adapters.any_installed() else []
            held = region.Region(self.tree, around, appearing=owner.everything)
            notes = Notes(owner, self.logs)
            active.stack.append(compat.current_trace())
            done = False
            try:
                for place, value in zip(self.places, state, strict=True):
                    place.put(value)
                held.seed()
                with adapters.entered(held.objects()), notes.taken():
                    out = owner.bound()(*args, **kwargs)
                result, ops = self._outcome(out, state, held, notes, before)
                with jax.ensure_compile_time_eval():
                    self._note_effects(before, reach, ops)
                done = True
                return result
            except Exception as exc:
                self._explain(exc)
                raise
            finally:
                active.stack.pop()

                def put_back() -> None:
                    leave = done and not held.appeared
                    held.restore(leave_effects=leave)
                    with jax.ensure_compile_time_eval():
                        before.restore(only_tracers=done)
                    held.restore(leave_effects=leave)

                _surely(put_back)
                if done and owner.note is not None:
                    owner.note.note([*(p.path for p in (*self.places, *self.tops)), *owner.touched])

    def _look_around(self) -> None:
        """jax traces on a call of the generated wrapper, which has not looked where it is called, nor told with
        which objects."""
        if not compat.is_outermost(compat.current_trace()):
            raise TraceAgain(self.owner)
        if not self.locations:
            return
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and (self.run is None or frame.f_code is not self.run.__code__):
            frame = frame.f_back
        if frame is None:
            raise TraceAgain(self.owner)
        args, kwargs = codegen.given_in(frame, self.owner.parameters)
        objects, _, _ = self.owner.taken(args, kwargs)
        self.given.bind(objects)

    def _explain(self, exc: Exception) -> None:
        """Say which variable is meant where jax names an argument that is not the user's. A number that nobody has
        declared by itself is a constant from now on."""
        culprits = [self.places[n] for n in messages.numbers_after("_dyn", exc) if n < len(self.places)]
        if messages.needs_a_value(exc) and self.owner.learn(culprits or self.places):
            raise TraceAgain(self.owner) from None
        for place in culprits:
            number = self.places.index(place)
            note = (
                f"_dyn{number} is {place.path}, a dynamic variable of {self.owner.name}: what decides a "
                f"shape or a branch in Python has to be a constant or a static argument"
            )
            if note not in getattr(exc, "__notes__", ()):
                exc.add_note(note)

    def _outcome(
        self,
        out: object,
        state: Sequence[object],
        held: region.Region,
        notes: Notes,
        before: snapshot.Snapshot,
    ) -> tuple[tuple[object, ...], list[plan.Op]]:
        """The function's result and what it wrote, in the form that tells this trace's plan."""
        planner = plan.Planner(compat.is_tracer, before.has)
        slots = {region.slot_of(p): i for i, p in enumerate(self.places)}
        keep = [(self.places[i], state[i], i) for i in self.donated]
        returned: dict[paths.Location, object] = {}
        given = set(map(id, self.given.objects().values()))

        def is_kept(value: object) -> bool:
            return id(value) in held.held and (id(value) in given or taken_out.is_object(value))

        out = taken_out.replaced(out, ("out",), is_kept, returned)
        try:
            ops = planner.plan(held, slots, keep)
            ops += [
                plan.Op(place, planner.items(list(new), place.path), how="add")
                for place, new in notes.added()
            ]
        except plan.CannotFollow as exc:
            raise StateError(
                f"{self.owner.name} writes {exc} as an object that hides its arrays, so their new values can't be put "
                f"back after a compiled call; keep them in attributes, dicts or lists"
            ) from None
        numbers = [
            op for op in ops if op.leaf in self.numbers and op.recipe is not None and op.recipe.kind == "out"
        ]
        lost = [op.place for op in numbers if self._is_of_inner_trace(planner.outputs[op.recipe.value])]  # type: ignore[union-attr]
        grown = self.owner.note_growth(planner.grown)
        if self.owner.count(planner.counted) or self.owner.fix(lost) or grown:
            raise TraceAgain(self.owner)
        for op in numbers:
            op.recipe = plan.Recipe("number", (self.numbers[op.leaf], op.recipe.value))  # type: ignore[index, union-attr]
        places = {at: held.held[id(value)].place for at, value in returned.items()}
        made = plan.Plan(ops, len(planner.outputs), self._is_another(), places)
        size = self._register(made)
        return (out, *planner.outputs, *[None] * (size - 1 - made.outputs)), ops

    @staticmethod
    def _is_of_inner_trace(value: object) -> bool:
        return compat.is_tracer(value) and compat.trace_of(value) is not compat.current_trace()

    def _is_another(self) -> bool:
        """After this trace another program serves the same call."""
        try:
            return self.owner.survey(self.given.objects()).key() != self.key
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

    def _note_effects(self, before: snapshot.Snapshot, reach: Reach, ops: Sequence[plan.Op]) -> None:
        known = {*self.names(reach), *(p.path for p in self.places), *self._names_of_tuples(reach)}
        variables = [p.holder() for p in self.places if p.adapter is not None]
        put = [op.place.path for op in ops]
        found = [
            w for w in before.changes(variables) if w.path not in known and not paths.at_or_below(w.path, put)
        ]
        told = (w.path for w in found if w.tracer and not reach.is_private(w.path))
        self.lost += [path for path in told if path not in self.owner.touched]
        self.owner.touched.update({w.path: w for w in found})

    def _names_of_tuples(self, reach: Reach) -> Iterator[str]:
        """The paths by which `reach` knows the variables that are tuples as a whole."""
        slots = {region.slot_of(p) for p in self.places if values.is_a(p.look(), tuple)}
        for leaf in reach.leaves(used_only=False) if slots else ():
            place = leaf.place.parent
            while place is not None:
                if region.slot_of(place) in slots:
                    yield place.path
                place = place.parent

    # -- after a call

    def raced(self, result: Sequence[object], state: Sequence[object]) -> bool:
        """Another thread has written, since they were read, variables that this result replaces."""
        leaves = (op.leaf for op in self.plans[len(result)].ops if op.leaf is not None)
        return any(self.places[i].same_object and self.places[i].look() is not state[i] for i in leaves)

    def finish(self, result: Sequence[object]) -> object:
        """Write what a call has given, and hand over the function's own result."""
        made = self.plans[len(result)]
        codegen.writes[0] += 1
        plan.apply(made.ops, result[1 : 1 + made.outputs])
        return returned(result[0], made)


def returned(out: object, made: plan.Plan) -> object:
    """The function's result, with the objects in it that jax does not hand through."""
    return taken_out.put_in(out, ("out",), {at: place.get() for at, place in made.returned.items()})


def _surely(undo: Callable[[], object]) -> None:
    """Undo, whatever interrupts it meanwhile; the interrupt comes afterwards."""
    try:
        undo()
    except KeyboardInterrupt:
        undo()
        raise
