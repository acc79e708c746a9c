"""Calls of functions that stay as they are: heard while a cell runs, with nothing put in the function's place.

Python tells when the code of a function begins (`sys.monitoring`; `sys.setprofile` on Python 3.11). A call that may
show something new is looked at there, before its first line; the others are counted, and then left alone. Of what the
user has compiled with `jax.jit`, the calls are heard that jax has no program for.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import operator
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from jitmagic import interrupts, listeners
from jitmagic.checking.checker import Checker
from jitmagic.checking.passed import arguments, by_place, given, of_failed
from jitmagic.checking.plain_runs import OwnRun
from jitmagic.checking.users_jit import MEMO, held_by
from jitmagic.state.frozen import Frozen
from jitmagic.state.values import cell_contents, is_array
from jitmagic.tracing.compat import begins_with, trace_state_clean
from jitmagic.tracing.locate import frames_of, raised_by_users
from jitmagic.trial.whose_run import STATE, calls_diagnosed, inside_diagnosed

P = ParamSpec("P")

LOOKED_AT = 64
"""Calls in turn that show nothing new, after which only the shapes of their arguments are looked at."""
SHAPES = 1000
"""Calls in turn that show nothing new, after which a cell's own calls are counted, and those of later cells unheard."""
MOST_INSIDE = 5000
"""Calls of a function inside of others that are looked at, after which none is heard until that call has ended, or
the cell's statement."""
MOST_EVENTS, MOST_LATER = 500_000, 100_000
"""Calls of whatever Python 3.11 tells in the cell that asks, and in a later one, before nothing more is heard in it."""
Changed = Sequence[tuple[str, str, str]]
"""Path, short text then and short text now."""
_NOTHING = object()
_PAUSING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _unfelt(listen: Callable[P, object]) -> Callable[P, object]:
    """What Python calls in the middle of the user's code: an interrupt that comes in it is raised in that code, just
    after, where the user's calls are nested nearly too deep it does nothing, and where it fails they go on."""

    @functools.wraps(listen)
    def listening(*args: P.args, **kwargs: P.kwargs) -> object:
        try:
            return listen(*args, **kwargs)
        except RecursionError:
            return None
        except KeyboardInterrupt as exc:
            if raised_by_users(exc):  # in a run of ours: the user's own call does so itself
                return None
            interrupts.raise_soon()
            return None
        except Exception as exc:
            hearing: Any = args[0]
            hearing.give_up(exc)
            return None

    return listening


@dataclass
class Heard:
    """One function whose calls are heard."""

    checker: Checker
    function: types.FunctionType
    """Whose code runs: the function itself, that of a method, the `__call__` of an object."""
    bound: tuple[object, ...] = ()
    """Arguments in front of the user's: the object that a call is of, those of a partial function."""
    is_later: bool = False
    """The cell that asked for it has ended."""
    asleep: bool = False
    same: int = 0
    """Calls in turn that showed nothing new."""
    shapes: set[object] = field(default_factory=set)
    under_way: tuple[types.FrameType, OwnRun] | None = None
    """The call whose result is still to be looked at."""
    was_traced: bool = False
    """The trace of other code has called it in this cell."""
    calls: int = 0
    """Those in this cell of what jax runs by itself."""
    inside: int = 0
    """Those inside of calls that are looked at."""
    counted: bool = False
    """The call that is about to begin is counted already."""
    stale: tuple[Frozen, Changed] | None = None
    """What had changed when the call began: told unless jax traces it."""
    is_read: bool = False
    """The running cell reads its name."""
    timed: list[tuple[tuple[object, ...], dict[str, object]]] = field(default_factory=list)
    """Calls that the user times, which are looked at when the cell has ended."""

    @property
    def code(self) -> types.CodeType:
        """What runs in a call."""
        return self.function.__code__

    @property
    def is_jitted(self) -> bool:
        """Of a call that jax has a program for, Python tells nothing."""
        return begins_with(self.checker.original) is self.function

    def runs_in(self, frame: types.FrameType) -> bool:
        """The frame runs this very function, and not the same code around other variables."""
        if not self.bound and not self.code.co_freevars:
            return frame.f_globals is self.function.__globals__
        closure = zip(self.code.co_freevars, self.function.__closure__ or (), strict=True)
        same = (frame.f_locals.get(name) is next(iter(cell_contents(cell)), None) for name, cell in closure)
        if frame.f_globals is not self.function.__globals__ or not all(same):
            return False
        given = by_place(frame)[: len(self.bound)] if self.bound else ()
        return len(given) == len(self.bound) and all(map(operator.is_, given, self.bound))

    def is_had(self, names: Mapping[str, object]) -> bool:
        """The notebook still has it under its name."""
        head, _, method = self.checker.bound_as.partition(".")
        held = names.get(head)
        return (held_by(held).get(method) if method else held) is self.checker.original

    def may_show_more(self, frame: types.FrameType) -> bool:
        """The call is worth a look: one of the first, or of other shapes than were seen."""
        self.same += 1
        if self.same > SHAPES:
            self.asleep = self.is_later
            return False
        values = given(frame)
        shapes = tuple((type(v), getattr(v, "shape", None) if is_array(v) else None) for v in values)
        known = shapes in self.shapes
        self.shapes.add(shapes)
        return not known or self.same <= LOOKED_AT


def _entry(fn: object) -> tuple[types.FunctionType, tuple[object, ...]] | None:
    """The Python function that a call of this begins with, and what it is given in front of the user's arguments."""
    found: object = fn
    bound: tuple[object, ...] = ()
    if (compiled := begins_with(fn)) is not None:  # of its other calls Python 3.11 tells nothing
        return (compiled, ()) if sys.version_info >= (3, 12) else None
    if isinstance(fn, types.MethodType):
        found, bound = fn.__func__, (fn.__self__,)
    elif isinstance(fn, functools.partial):
        found, bound = fn.func, fn.args
    elif isinstance(fn, MEMO):
        found = fn.__wrapped__
    elif not isinstance(fn, types.FunctionType):
        found, bound = inspect.getattr_static(type(fn), "__call__", None), (fn,)
    if isinstance(found, types.FunctionType) and not found.__code__.co_flags & _PAUSING:
        return found, bound
    return None


def _given(one: Heard, frame: types.FrameType) -> tuple[tuple[object, ...], dict[str, object]]:
    """The user's arguments of a call that begins."""
    args, kwargs = arguments(frame, one.function, one.checker.original, one.checker.cell.calls)
    kept = getattr(one.checker.original, "keywords", {}) if one.bound else {}
    kwargs = {name: value for name, value in kwargs.items() if kept.get(name, _NOTHING) is not value}
    return args[len(one.bound) :], kwargs


def _clock(frame: types.FrameType | None) -> str:
    """The file of what times this code, `%time` or `%timeit`; '' where nothing does."""
    for _ in range(_MOST_FRAMES):
        if frame is None or frame.f_code.co_filename in _CLOCKS:
            break
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None and frame.f_code.co_filename in _CLOCKS else ""


_LOOPS = ("<magic-timeit>", "<timeit-src>")
_CLOCKS = (*_LOOPS, "<timed exec>", "<timed eval>")
_MOST_TIMED, _MOST_FRAMES = 8, 60


class Hearing:
    """Hears the calls of a notebook's functions, while a cell runs."""

    def __init__(self) -> None:
        self.heard: dict[int, list[Heard]] = {}
        """By the `id` of their code."""
        self.awake: set[int] = set()
        """Of these, the code that Python tells of now."""
        self.tool: int | None = None
        self.left = 0
        """How much Python 3.11 may still tell in this cell."""
        self.listens = False
        self.jitted: dict[int, Heard] = {}
        """By the `id` of the function: what jax runs by itself, and the cell that asks calls."""

    def add(self, checker: Checker) -> bool:
        """Hear the calls of this function from now on; False where Python can't tell of them."""
        if (found := _entry(checker.original)) is None:
            return False
        same_code = self.heard.setdefault(id(found[0].__code__), [])
        same_code[:] = [h for h in same_code if h.checker.original is not checker.original]
        same_code.append(Heard(checker, *found))
        self._begin()
        return True

    # -- the shell's events

    def cell_begins(self, names: Mapping[str, object]) -> None:
        """Hear what the notebook still has."""
        kept = [h for h in self._all() if h.is_had(names)]
        self.heard = {}
        for one in kept:
            one.is_later, one.asleep, one.same = True, False, min(one.same, LOOKED_AT)
            one.is_read, one.calls, one.inside = False, 0, 0
            self.heard.setdefault(id(one.code), []).append(one)
        if kept:
            self._begin()

    def cell_reads(self, names: Collection[str]) -> None:
        """The cell that is about to run reads these names."""
        for one in self._all():
            one.is_read = one.checker.bound_as.partition(".")[0] in names
        self._count_calls()

    def wake(self) -> None:
        """Hear again of what was called so often inside of a call that is over now."""
        for one in self._all():
            if one.inside > MOST_INSIDE and not one.asleep:
                self._tell_of(one.code)
            one.inside = 0

    def cell_ends(self, error: BaseException | None) -> None:
        """Hear nothing until the next cell. What has failed in the trace of other code is told now."""
        self.close()
        failed = error if isinstance(error, Exception) else None
        ran = {frame.f_code for frame, _ in frames_of(failed)} if failed is not None else set()
        for one in self._all():
            if one.calls >= SHAPES:  # the last ones were not looked at
                one.stale = one.checker.gone_stale()
            self._tell_stale(one)
            traced, one.was_traced, one.under_way = one.was_traced, False, None
            if failed is not None and traced and one.code in ran:
                one.checker.failed_in_trace(failed)
            timed, one.timed = one.timed, []
            for args, kwargs in timed if error is None else ():
                one.checker.guarded(one.checker.was_timed, args, kwargs)
        jitted = [one for one in self._all() if one.is_jitted]
        call = of_failed(failed) if failed is not None and jitted else None
        for one in jitted:
            if failed is not None and call is not None and one.checker.original is call.function:
                one.checker.failed_apart(failed, call.args, call.kwargs)

    def forget(self, names: Collection[str]) -> None:
        """The notebook hands these functions to others than its own calls."""
        for code, same_code in list(self.heard.items()):
            self.heard[code] = [h for h in same_code if h.checker.bound_as not in names]

    def _all(self) -> list[Heard]:
        return [one for same_code in self.heard.values() for one in same_code]

    def _is_diagnosed(self, frame: types.FrameType) -> bool:
        same_code = self.heard.get(id(frame.f_code), ())
        return any(h.checker.settings.diagnose and h.runs_in(frame) for h in same_code)

    def _begin(self) -> None:
        """Have Python tell of calls."""
        self.listens = True
        self.left = MOST_LATER if all(h.is_later for h in self._all()) else MOST_EVENTS
        calls_diagnosed.update(dict.fromkeys(self.heard, self._is_diagnosed))
        if sys.version_info >= (3, 12) and self.tool is None and (tool := listeners.free_tool()) is not None:
            self.tool, events = tool, sys.monitoring.events
            sys.monitoring.register_callback(tool, events.PY_START, self._started)
            sys.monitoring.register_callback(tool, events.PY_RETURN, self._returned)
            sys.monitoring.register_callback(tool, events.CALL, self._called)
            sys.monitoring.register_callback(tool, events.PY_UNWIND, self._unwound)
        for one in self._all():
            self._tell_of(one.code)
        self._count_calls()
        if self.tool is None and sys.getprofile() is None:
            sys.setprofile(self._profile)

    def close(self) -> None:
        """Have Python tell of none."""
        self.listens, self.jitted = False, {}
        calls_diagnosed.clear()
        if sys.version_info >= (3, 12) and self.tool is not None:
            for one in self._all():
                self._tell_of(one.code, starts=False)
            events = sys.monitoring.events
            sys.monitoring.set_events(self.tool, events.NO_EVENTS)
            for event in (events.PY_START, events.PY_RETURN, events.CALL, events.PY_UNWIND):
                sys.monitoring.register_callback(self.tool, event, None)
            sys.monitoring.free_tool_id(self.tool)
            self.tool = None
        elif sys.getprofile() == self._profile:
            sys.setprofile(None)

    # -- what Python tells

    def _count_calls(self) -> None:
        """Have Python tell where something that the user has compiled is called: in the cell that asks, and in later
        ones that read its name."""
        told = (h for h in self._all() if h.is_jitted and (not h.is_later or h.is_read))
        jitted = {id(h.checker.original): h for h in told}
        if sys.version_info >= (3, 12) and self.tool is not None and jitted.keys() != self.jitted.keys():
            if not self.jitted:
                sys.monitoring.restart_events()
            self.jitted = jitted
            self._tell_everywhere()

    def _tell_everywhere(self, *, errors: bool = False) -> None:
        if sys.version_info >= (3, 12) and self.tool is not None:
            events = sys.monitoring.events
            wanted = events.CALL * bool(self.jitted) | events.PY_UNWIND * errors
            sys.monitoring.set_events(self.tool, wanted)

    def _called(self, code: types.CodeType, offset: int, called: object, first: object) -> object:
        one = self.jitted.get(id(getattr(called, "__func__", called)))
        if one is not None and one.calls < SHAPES:
            self._look_at_call(one, first if called is one.checker.original else _NOTHING)
        elif one is not None and not one.is_later:
            if self.listens and not STATE.plain:
                one.checker.seen.count, one.counted = one.checker.seen.count + 1, True
        elif sys.version_info >= (3, 12):
            return sys.monitoring.DISABLE  # this place is not asked about again in this cell
        return None

    @_unfelt
    def _look_at_call(self, one: Heard, first: object) -> None:
        """A call of what jax may have a program for; of its arguments at most the first is known."""
        if not self.listens or STATE.plain or STATE.recorded is not None or not trace_state_clean():
            return
        if not inside_diagnosed(sys._getframe(3)):
            one.calls += 1
            one.checker.seen.count += 1
            one.counted = True
            self._tell_stale(one)
            one.stale = one.checker.gone_stale(*(() if first is _NOTHING else (first,)))

    def _tell_of(self, code: types.CodeType, *, starts: bool = True, returns: bool = False) -> None:
        (self.awake.add if starts or returns else self.awake.discard)(id(code))
        if sys.version_info >= (3, 12) and self.tool is not None:
            events = sys.monitoring.events
            wanted = events.PY_START * starts | events.PY_RETURN * returns
            sys.monitoring.set_local_events(self.tool, code, wanted)

    def _started(self, code: types.CodeType, offset: int) -> None:
        try:
            if self.listens:
                self._begins(sys._getframe(1))
        except RecursionError:  # not even a call of ours has room
            pass

    def _returned(self, code: types.CodeType, offset: int, value: object) -> None:
        try:
            self._ends(sys._getframe(1), value)
        except RecursionError:
            pass

    def give_up(self, exc: Exception) -> None:
        """A failure of our own: nothing more is heard in this cell, and one line says so."""
        self.listens = False
        for one in itertools.islice(self._all(), 1):
            with self._unheard():
                one.checker.failed_inside("listening to its calls", exc)

    def _tell_stale(self, one: Heard) -> None:
        stale, one.stale = one.stale, None
        if stale is not None:
            with self._unheard():
                one.checker.guarded(one.checker.tell_stale, *stale)

    def _unwound(self, code: types.CodeType, offset: int, error: BaseException) -> None:
        for one in self.heard.get(id(code), ()):
            if one.under_way is not None and one.under_way[0] is sys._getframe(1):
                run, one.under_way = one.under_way[1], None
                self._tell_everywhere()
                if isinstance(error, Exception):
                    with self._unheard():
                        sys.call_tracing(one.checker.failed_apart, (error, run.args, run.kwargs))

    def _profile(self, frame: types.FrameType, event: str, value: object) -> None:
        try:
            self.left -= 1
            if event in ("call", "return") and id(frame.f_code) in self.awake:
                if event == "call":
                    self._begins(frame)
                else:
                    self._ends(frame, value)
            elif self.left < 0 or not self.awake:
                if not any(h.under_way for h in self._all()):
                    sys.setprofile(None)
                self.left = MOST_LATER
        except RecursionError:  # not even a call of ours has room
            pass

    @_unfelt
    def _begins(self, frame: types.FrameType) -> None:
        """A call begins: the user's own, or one of ours, or one inside of another that is looked at as a whole."""
        if not self.listens or STATE.plain or STATE.recorded is not None:
            return
        same_code = self.heard.get(id(frame.f_code), ())
        for one in same_code:
            if one.runs_in(frame):
                break
        else:
            return
        if one.inside > MOST_INSIDE:
            return
        if inside_diagnosed(frame.f_back):
            one.inside += 1
            if one.inside > MOST_INSIDE:
                self._tell_of(one.code, starts=False, returns=one.under_way is not None)
            return
        one.checker.seen.count, one.counted, one.stale = one.checker.seen.count - one.counted, False, None
        if one.may_show_more(frame):
            clock = _clock(frame.f_back) if trace_state_clean() else ""
            one.asleep |= clock in _LOOPS and not one.is_jitted
            look = self._look if not clock else self._look_later
            with self._unheard():
                sys.call_tracing(one.checker.guarded, (look, one, frame))
        else:
            one.checker.seen.count += 1
        if one.asleep and all(h.asleep for h in same_code):
            self._tell_of(one.code, starts=False)

    def _look_later(self, one: Heard, frame: types.FrameType) -> None:
        one.checker.seen.count += 1
        if len(one.timed) < _MOST_TIMED:
            one.timed.append(_given(one, frame))

    def _look(self, one: Heard, frame: types.FrameType) -> None:
        run = one.checker.begins_plain(*_given(one, frame))
        one.was_traced = one.was_traced or not trace_state_clean()
        if run is not None:
            one.same, one.under_way = 0, (frame, run)
            self._tell_of(frame.f_code, returns=True)
            if one.is_jitted:
                self._tell_everywhere(errors=True)

    @_unfelt
    def _ends(self, frame: types.FrameType, value: object) -> None:
        for one in self.heard.get(id(frame.f_code), ()):
            if one.under_way is not None and one.under_way[0] is frame:
                run, one.under_way = one.under_way[1], None
                self._tell_of(one.code)
                if one.is_jitted:
                    self._tell_everywhere()
                    value = value[0] if isinstance(value, tuple) else None
                with self._unheard():
                    sys.call_tracing(one.checker.guarded, (run.look_at, value))
                self.wake()

    @contextlib.contextmanager
    def _unheard(self) -> Iterator[None]:
        """While a call is looked at, nothing is heard of what is called for that."""
        listened, profiling = self.listens, sys.getprofile()
        self.listens = False
        if profiling == self._profile:
            sys.setprofile(None)
        try:
            with listeners.paused():
                yield
        finally:
            self.listens = listened
            if profiling == self._profile:
                sys.setprofile(profiling)
