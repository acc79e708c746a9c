"""One function under observation: how it is compiled, what it can reach, what was seen of it."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import types
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import jax
import numpy as np

from jitmagic import evidence as ev
from jitmagic import listeners, report
from jitmagic.checking import tracebacks
from jitmagic.checking.seen import KeptCall, Seen, Variants
from jitmagic.checking.shim import Shim
from jitmagic.checking.users_jit import of_custom_derivative, unwrap_jitted
from jitmagic.checking.watched import checker_of
from jitmagic.interrupts import alarms_held
from jitmagic.measure.reference import CannotEvaluate
from jitmagic.options import JitOptions, parameters_of
from jitmagic.patches import none_awaited
from jitmagic.rules.unrolled_loop import compiles_long
from jitmagic.settings import CellSource, Settings, Stage
from jitmagic.silent import donations, finite, unrepeated
from jitmagic.silent.collect import CallInView, before_calls, collect, indices_outside, not_finite
from jitmagic.source.tree import uncollected
from jitmagic.state import iterators, roots, snapshot
from jitmagic.state.compiled import StatefulMethod, compile_function, holds_variables, objects_taken
from jitmagic.state.definition import has_parameters
from jitmagic.state.reached import Reach
from jitmagic.state.reads import writes_of
from jitmagic.state.state_program import StateProgram
from jitmagic.state.taken_out import Taken
from jitmagic.state.values import contains_tracer, is_array, is_endless, module_of
from jitmagic.state.wrappers import unwrap
from jitmagic.tracing import foreign, ledger, stages, trees
from jitmagic.tracing.foreign import CARRIES_VARIABLES, STATIC_BUT_ARRAYS, TAKES_OBJECTS
from jitmagic.tracing.leaves import bound_arguments, call_leaves, signature_key
from jitmagic.tracing.libraries import HARMLESS
from jitmagic.tracing.messages import is_out_of_memory, is_too_deep
from jitmagic.trial import quiet
from jitmagic.trial.permission import allowing
from jitmagic.trial.verify import Verifier

MAX_SAMPLES = 8
MAX_SAMPLE_BYTES = 64_000_000
T = TypeVar("T")
RAISE = False
"""Tests set it: a failure of ours is then raised, not noted."""


def _watched_by(value: object) -> object:
    checker = checker_of(value)
    return checker.fn if checker is not None else None


WhatIfs = Callable[["Subject", Sequence[object], dict[str, object]], tuple[report.WhatIf, ...]]


class Subject:
    """A function with its options, its compiled form and the calls seen so far. Decides nothing."""

    def __init__(
        self,
        fn: Callable[..., object],
        name: str | None = None,
        *,
        options: JitOptions | None = None,
        dyn: str | None = None,
        namespace: dict[str, object] | None = None,
        settings: Settings | None = None,
        cell: CellSource | None = None,
    ) -> None:
        self.framework = foreign.framework_of(fn)
        """Whose `jit` has compiled the function already, apart from jax's: it stays as it is."""
        inner, own = (foreign.inner_function(fn), None) if self.framework else unwrap_jitted(fn)
        self.original = fn if self.framework or own is not None else inner
        """What the user's calls would run without us."""
        self.fn = inner
        self.jitted_by_user = own is not None
        self.name = name or str(getattr(inner, "__qualname__", type(inner).__name__))
        self.bound_as = self.name
        """The notebook's name for what was made of the function: `step` for the `inner` of a factory."""
        self.is_named = False
        """The magic line names it."""
        chosen = options if options is not None and options != JitOptions() else None
        self.options = chosen or own or of_custom_derivative(inner)
        self._short = getattr(inner, "__name__", type(inner).__name__)
        self._compiled_before = 0
        self._spent_before: report.Stages | None = None
        """What had been spent on compilations when the trace began that is under way."""
        self.dyn, self.settings = dyn, settings or Settings()
        self.namespace = namespace if namespace is not None else getattr(inner, "__globals__", {})
        self.cell = cell or CellSource()
        self.seen = Seen()
        self.looked: Callable[[], Any] | None = None
        """Gives the trace of the last diagnosis, until the result of that call is there."""
        self.shim = Shim(inner, self._trace_begins)
        self.first_given: list[weakref.ref[object]] = []
        """Arrays of the first call that a donation would take away."""
        self.before_traces: list[snapshot.Snapshot] | None = None
        """What the traces of the user's call that is under way have found; None where none is."""
        self._first = threading.Lock()
        self._first_in = 0
        """Held by the thread that makes the first call, and which one that is."""
        self.on_news: Callable[[Any], object] = lambda subject: None
        self.progress: Callable[[str], Any] | None = None
        self.reported: Callable[[], bool] = lambda: False
        """What goes wrong is shown in a report, beside the error itself."""
        self.call_source: Callable[[], tuple[str, str | None]] = lambda: ("", None)
        self.verifier: Callable[[float], Verifier | None] = lambda deadline: None
        """Proves corrections on the whole cell until a deadline (by `budget.clock`), where that can be run again."""
        self.verifier_on_calls: Callable[[float], Verifier | None] = lambda deadline: None
        """Tests them on the calls that were kept."""
        self.postpone: Callable[[Stage, Callable[[float], object]], object] = self._at_once
        """Takes a step that is given its seconds: done when the cell has ended, and at once where there is none."""
        self.what_if: Callable[[Subject, Sequence[object], dict[str, object]], tuple[report.WhatIf, ...]] = (
            lambda *call: ()
        )
        """Answers what the settings ask about the function vmapped, differentiated or shared, for one call."""
        self.compiled: Any = None
        self._run: Any = None
        self.variants = Variants()
        self._telling = False
        """A failure of our own is being told."""
        self.concluded: tuple[tuple[object, ...], tuple[report.Finding, ...]] | None = None

    def _trace_begins(self, args: Sequence[object], kwargs: dict[str, object]) -> None:
        if self._spent_before is None:
            self._spent_before = stages.spent_so_far(self._short)
        if self.before_traces is not None and not self._first.locked():
            args, kwargs = tuple(map(_users, args)), {k: _users(v) for k, v in kwargs.items()}
            self.guarded(
                lambda taken: taken.append(snapshot.take(self.reach(args, kwargs))), self.before_traces
            )

    def _at_once(self, stage: Stage, step: Callable[[float], object]) -> None:
        self.guarded(step, self.settings.seconds(stage))

    def forget_traces(self, traced: int) -> None:
        """What a measurement of ours made jax trace and compile is not counted: the count was `traced` before."""
        self.shim.traced, self._spent_before = traced, None
        self._compiled_before = stages.compiled_so_far(self._short) - self.seen.compiles

    # -- the compiled form

    @property
    def is_plain(self) -> bool:
        """The user has not compiled it."""
        return self.original is self.fn and not self.framework

    @property
    def compiles(self) -> bool:
        """The user's calls run what we have compiled."""
        return self.settings.compile and not self.framework

    def compiled_for(self, args: Sequence[object]) -> Any:
        """The compiled function for a call with these arguments."""
        __tracebackhide__ = True
        if self.framework in TAKES_OBJECTS:
            return foreign.Filtered(self.shim.function())
        if self.compiled is None:
            fn = self.shim.function()
            as_in_jax = self.dyn is None and not holds_variables(args[:1])
            self.compiled = compile_function(
                fn, self.dyn, self.options, self.namespace, as_in_jax=as_in_jax, lifts=not self.jitted_by_user
            )
        if isinstance(self.compiled, StatefulMethod) and args:
            return self.compiled.of(args[0])
        return self.compiled

    def with_inputs(self, paths: Sequence[str]) -> object:
        """The function compiled with these variables as inputs besides; None where it is no plain function."""
        fn = self.fn
        if not isinstance(fn, types.FunctionType) or "." in self.name:
            return None
        # under a name of its own, so that counts of the user's function stay exact
        copy = types.FunctionType(fn.__code__, fn.__globals__, "unfolded", fn.__defaults__, fn.__closure__)
        copy.__kwdefaults__ = fn.__kwdefaults__
        dyn = ",".join([*(self.dyn.split(",") if self.dyn else ()), *paths])
        return compile_function(copy, dyn, self.options, self.namespace)

    def lifted(self, args: Sequence[object], kwargs: dict[str, object]) -> Taken:
        """The objects among the arguments that are state, and the arguments without them, as jax gets them. Under a jit
        of the user's own there are none."""
        if self.framework or self.jitted_by_user:
            return {}, tuple(args), kwargs
        return objects_taken(self.fn, self.dyn, self.options, args, kwargs)

    def rest(self, args: Sequence[object]) -> Sequence[object]:
        """The arguments without the receiver, where that is not an argument of the compiled function."""
        return args[1:] if isinstance(self.compiled, StatefulMethod) else args

    def receiver(self, args: Sequence[object]) -> object:
        """The object that `self.x` paths start from, or None."""
        free = not isinstance(self.fn, types.MethodType)
        is_method = free and "." in self.name and args and has_parameters(self.fn)
        return args[0] if is_method else None

    def clear_cache(self) -> None:
        """The next call traces and compiles anew."""
        self.compiled = self._run = None
        self.variants = Variants()

    def start_over(self) -> None:
        """As `clear_cache`, for new settings: what calls with the old ones have shown is no longer true."""
        self.clear_cache()
        self.seen = Seen(kept=self.seen.kept)
        self.forget_traces(0)

    def reach(self, args: Sequence[object] = (), kwargs: dict[str, object] | None = None) -> Reach:
        """Everything the function can read without taking it as an argument."""
        return roots.reach(
            self.fn, receiver=self.receiver(args), args=args, kwargs=kwargs or {}, receiver_as=self._owner()
        )

    def from_outside(self, path: str) -> str:
        """`self.w` of a bound method, or of a callable object, by the object's name in the notebook."""
        _, plain = unwrap(self.fn)
        first = plain.__code__.co_varnames[:1] if plain is not None else ("self",)
        owner, rest = self._owner(), path.partition(".")[2]
        return f"{owner}.{rest}" if owner and rest and (path.partition(".")[0],) == first else path

    def _owner(self) -> str:
        """Name in the notebook of the object that a bound method, or a callable object, belongs to, or nothing."""
        held = self.fn.__self__ if isinstance(self.fn, types.MethodType) else self.fn
        if isinstance(held, types.FunctionType | type):
            return ""
        same = (n for n, v in self.namespace.items() if v is held or _watched_by(v) is held)
        return next((n for n in same if not n.startswith("_")), "")

    def stateful(self, args: Sequence[object]) -> StateProgram | None:
        """What knows the dynamic variables of the compiled function, or None where it has none."""
        made = getattr(self.compiled_for(args), "__jitmagic__", None)
        if made is None:
            return None
        program = made.program_of(self.rest(args), {})
        return program if made.plain is None or program.locations else None

    def dynamic_paths(self, args: Sequence[object]) -> tuple[str, ...]:
        """Paths of the dynamic variables, in the order in which they are passed."""
        stateful = self.stateful(args)
        return tuple(p.path for p in stateful.places) if stateful is not None else ()

    def frameworks(self, args: Sequence[object]) -> dict[str, str]:
        """Name of the framework for each dynamic variable that is one's."""
        stateful = self.stateful(args)
        places = stateful.places if stateful is not None else ()
        return {p.path: p.adapter.name for p in places if p.adapter is not None}

    def written_paths(self, args: Sequence[object]) -> set[str]:
        """Paths of the dynamic variables that the function writes."""
        stateful = self.stateful(args)
        return {stateful.places[i].path for i in stateful.written or ()} if stateful is not None else set()

    def side_effects(self, args: Sequence[object], reach: Reach) -> list[ev.Write]:
        """What traces wrote besides the dynamic variables; variables of frameworks have been put back.

        What a library notes in its own objects, or keeps in private ones, is its own affair."""
        stateful = self.stateful(args)
        kept = {leaf.path for leaf in reach.leaves(used_only=False) if leaf.is_variable}
        found = []
        own = (
            [replace(w, path=self.from_outside(w.path)) for w in stateful.owner.touched.values()]
            if stateful
            else []
        )
        for w in own:
            where = next(iter(reach.offered.get(w.path, ())), w.where)
            if w.path in kept:
                found.append(replace(w, where=where, tracer=False, after=""))
            elif writes_of(w.path, reach.functions) or (w.tracer and "._" not in w.path):
                found += self.users_own([w], reach)
        return found

    def users_own(self, writes: Sequence[ev.Write], reach: Reach) -> list[ev.Write]:
        """The writes without those to private attributes that no code of the user's names: memos of libraries. Of
        objects of Python's own, those are told as changes of the object."""
        found = []
        for write in writes:
            if write.tracer or not reach.is_private(write.path):
                found.append(write)
            elif (whole := reach.library_object(write.path)) is not None and _acts(whole.look()):
                found.append(replace(write, path=whole.path, action="changed", before="", after=""))
        return found

    def inputs(self, args: Sequence[object], kwargs: dict[str, object]) -> list[object]:
        """Leaves that the traced program takes for this call, dynamic variables first."""
        stateful = self.stateful(args)
        state = stateful.read() if stateful is not None else ()
        static = self.options.static_parameters(self.fn)
        names = list(inspect.signature(self.fn).parameters) if static else []
        skipped = len(args) - len(self.rest(args))
        _, args, kwargs = self.lifted(args, kwargs)
        given = [
            v for i, v in enumerate(args) if i >= skipped and not (i < len(names) and names[i] in static)
        ]
        named = {k: v for k, v in kwargs.items() if k not in static}
        return [*state, *trees.leaves((given, named))]

    # -- what goes wrong without an error

    def observe(
        self, traced: object, args: Sequence[object], kwargs: dict[str, object], reach: Reach
    ) -> None:
        """Add the silent facts of a traced call (`traced` None: of one that failed) to what was seen."""
        objects, plain, named = self.lifted(args, kwargs)
        rebound = self._rebound() if traced is not None else {}
        if rebound and not self.first_given:
            given = bound_arguments(self.fn, args, kwargs)
            arrays = (v for name, _, value in given if name in rebound for v in trees.leaves(value))
            self.first_given = [weakref.ref(v) for v in arrays if isinstance(v, jax.Array)]
        call = CallInView(
            self.fn, args, kwargs, reach, (plain, named), tuple(str(at[0]) for at in objects),
            self.framework in CARRIES_VARIABLES, self.options.static_parameters(self.fn),
            self.options.donated_parameters(self.fn), rebound, self.taken_as_static(),
            traced, self.dynamic_paths(args) if traced is not None else (), tuple(self.seen.tracers_printed),
            tuple(self.seen.answered),
        )  # fmt: skip
        with uncollected():
            self.seen.add(collect(call))

    def tell_of(self, obstacle: quiet.Obstacle, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Add what stopped a run of ours to what was seen: a compiled function leaves that out."""
        if not (self.settings.compile or self.jitted_by_user or self.framework):
            return
        found = self.guarded(lambda: (*unrepeated.effects(obstacle, self.reach(args, kwargs).functions),))
        self.seen.add(ev.Silent(effects=found or ()))

    def _rebound(self) -> dict[str, str]:
        """What a loop of the cell could donate, as its text tells."""
        compiled = self.settings.compile or self.jitted_by_user
        if not compiled or self.framework or self.options.donates or "." in self.bound_as:
            return {}
        names = [p.name for p in parameters_of(self.fn) or ()]
        return donations.rebound(self.call_source()[0] or self.cell.text, self.bound_as, names)

    def silent(self) -> ev.Silent:
        """The silent facts of the calls seen; before the first, those that the source tells."""
        return self.seen.silent or self.guarded(self._from_source) or ev.Silent()

    @property
    def compiles_long(self) -> bool:
        """A loop that is written out in the program makes its compilation take seconds, or minutes."""
        return self.seen.silent is not None and any(map(compiles_long, self.seen.silent.unrolled))

    def _from_source(self) -> ev.Silent:
        return before_calls(self.fn, self.reach().functions, self.options.static_parameters(self.fn))

    def observe_result(self, traced: object, inputs: Sequence[object], value: object) -> None:
        """Add where a result stopped being finite, and indices outside of arrays, to what was seen."""
        self.seen.add(indices_outside(traced, inputs))
        try:
            self.seen.add(not_finite(traced, inputs, value))
        except CannotEvaluate as exc:
            self.seen.note(
                f"the result is not finite, and where it stopped being so was not looked for: {exc}"
            )
            given = [v for v in inputs if not getattr(v, "is_deleted", bool)()]
            if finite.has_nan(value) and len(given) == len(inputs) and finite.is_finite(given):
                self.seen.add(ev.Silent(not_finite=(ev.NotFinite("", None),)))

    def observe_later(
        self, traced: object, inputs: list[object], value: object, *, held: bool = False
    ) -> None:
        """The same when the cell has ended, for to read a result is to wait for it; `held`: its arrays are kept in any
        case. The inputs are lasting ones."""
        leaves = trees.leaves(value)
        kept = [v for v in (*inputs, *leaves) if not held or self._passes(v)]
        leaves = self.lasting(leaves)
        self.later("looking closer", lambda seconds: self.observe_result(traced, inputs, leaves), kept)

    def later(self, stage: Stage, step: Callable[[float], object], kept: object) -> None:
        """Take this step when the cell has ended and tell what is new; at once where what it keeps is large."""

        def tell(seconds: float) -> None:
            known = self.seen.known
            step(seconds)
            if self.seen.known != known:
                self.on_news(self)

        is_large = _size(leaves_of(kept)) > MAX_SAMPLE_BYTES
        (self._at_once if is_large else self.postpone)(stage, tell)

    def lasting(self, tree: T) -> T:
        """Arrays as they are now, unless they are large, in containers of their own."""
        copied = _size([v for v in trees.leaves(tree) if self._passes(v)]) <= MAX_SAMPLE_BYTES
        return trees.mapped(lambda v: v.copy() if copied and self._passes(v) else v, tree)

    def _passes(self, value: object) -> bool:
        """An array that the cell may write into, or that a later call may be given to use up."""
        given_away = self.options.donates and isinstance(value, jax.Array) and not value.is_deleted()
        return given_away or isinstance(value, np.ndarray)

    # -- calls on record

    def taken_as_static(self) -> dict[str, Any]:
        """What of a call's arguments is static, as keywords of `call_leaves` and `signature_key`."""
        return dict(
            static_argnums=self.options.static_argnums, static_argnames=self.options.static_argnames,
            filtering=self.framework in STATIC_BUT_ARRAYS,
        )  # fmt: skip

    def kind_of_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[int, Hashable]:
        """The same for calls that jax compiles once; unhashable or strange arguments count as one kind. A method
        has a program for each object, whose identity comes first."""
        instance = id(args[0]) if isinstance(self.compiled, StatefulMethod) and args else 0
        with contextlib.suppress(Exception):
            _, args, kwargs = self.lifted(args, kwargs)
            key = signature_key(self.fn, args, kwargs, **self.taken_as_static())
            hash(key)
            return instance, key
        return instance, None

    def remember(
        self,
        args: Sequence[object],
        kwargs: dict[str, object],
        *,
        traced: bool,
        outcome: Literal["ok", "failed"] = "ok",
    ) -> None:
        """Put a call on record, as plain data."""
        source, cell = self.call_source()
        _, args, kwargs = self.lifted(args, kwargs)
        leaves: tuple[ev.Leaf, ...] = ()
        with contextlib.suppress(ValueError):  # a dict with keys that jax cannot sort
            leaves = call_leaves(self.fn, args, kwargs, **self.taken_as_static())
        self.seen.calls.append(ev.Call(leaves, outcome, traced, source, cell))

    def keep(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Keep a call to try fixes on, unless it is too large, can be made only once, or there are many already."""
        if iterators.among((args, kwargs)):
            return
        try:
            size = _size(trees.leaves((args, kwargs)))
        except ValueError:  # a dict with keys that jax cannot sort
            return
        if len(self.seen.kept) < MAX_SAMPLES and size <= MAX_SAMPLE_BYTES:
            self.seen.kept.append(KeptCall(args, dict(kwargs)))
        elif size > MAX_SAMPLE_BYTES:
            self.seen.note("fixes were not tried on calls with more than 64 MB of arguments")

    # -- failures of our own

    def guarded(self, step: Callable[..., T], *args: object) -> T | None:
        """The result of a step of ours; where it fails, the user gets one line and goes on."""
        try:
            with (
                ledger.unasked(),
                allowing(self.settings.rerun),
                alarms_held(),
                none_awaited(),
                listeners.paused(),
            ):
                return step(*args)
        except KeyboardInterrupt as exc:
            tracebacks.shorten(exc, tuple)
            raise
        except Exception as exc:
            self.failed_inside("the diagnosis", exc)
            return None

    def failed_inside(self, what: str, exc: Exception) -> None:
        """Note a failure of our own in one line."""
        if is_out_of_memory(exc):
            self.seen.exhausted_by = exc
            return
        refused = quiet.refusal(exc)
        if refused is not None:
            self.seen.note(f"{what} was left out: {refused}")
            return
        if is_too_deep(exc):
            self.seen.note(
                f"{what} went no further where values or calls are nested deeper than Python's limit"
            )
            return
        if RAISE:
            raise exc
        text = " ".join(str(exc).split())[:200]
        line = f"{what} itself failed ({type(exc).__name__}: {text})"
        self.seen.note(line)
        if not self._telling:  # the note stands in the report, where that can be made
            self._telling = True
            try:
                self.on_news(self)
            except Exception:
                print(f"jitmagic: {line}", file=sys.stderr)
            finally:
                self._telling = False


def _acts(value: object) -> bool:
    """It is of a class of Python's library that may be used in runs of ours, and keeps no memo: there for what it
    changes."""
    library = module_of(type(value)).partition(".")[0].lstrip("_")
    return library in HARMLESS and library in sys.stdlib_module_names and library not in _REMEMBERING


_REMEMBERING = frozenset("enum fractions functools inspect logging pathlib re string typing".split())
"""Parts of Python's library whose objects remember what they have computed."""


def leaves_of(tree: object) -> list[Any]:
    """None of a tree with a dict whose keys jax cannot sort, or that holds itself."""
    try:
        return [] if is_endless(tree) else trees.leaves(tree)
    except ValueError:
        return []


def _size(leaves: Sequence[object]) -> int:
    return sum(v.nbytes for v in leaves if is_array(v))


def _users(value: object) -> object:
    """An argument as a trace has it, where it is the user's own object: containers are made by jax."""
    return None if isinstance(value, (dict, list, tuple)) or contains_tracer(value) else value
