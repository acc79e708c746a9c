"""Runs of the user's code that the user did not ask for: their output is held back, their traces undone."""

from __future__ import annotations

import abc
import atexit
import builtins
import contextlib
import contextvars
import copyreg
import ctypes
import functools
import getpass
import io
import itertools
import locale
import logging
import math
import os
import signal
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jitmagic import aside, listeners, patches
from jitmagic.interrupts import deferred, heeded
from jitmagic.source.tree import end_pauses
from jitmagic.state import bystanders, ends, shut, snapshot
from jitmagic.state.reached import Reach
from jitmagic.state.values import is_user_file, module_of
from jitmagic.tracing import compat, ledger, messages, stages, unwinding
from jitmagic.tracing.libraries import LIBRARIES
from jitmagic.tracing.locate import raised_by_users
from jitmagic.trial import budget, permission, widgets
from jitmagic.trial.whose_run import STATE, plainly
from jitmagic.work import clock


class _Streams:
    """Whose output is held back or listened to: one stand-in for each stream, shared by all threads.

    Two threads may begin and end in any order, and what other threads of the user's do goes on as it would.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.holders: dict[int, int] = {}
        """Threads with runs of ours under way, and how deep; threads that these runs have started."""
        self.started: list[tuple[int, threading.Thread, threading.Lock]] = []
        """Threads that runs of ours have started, each with the one that did, and what it holds while it runs: Python
        3.11 takes a thread for ended where an interrupt has ended a wait for it."""
        self.listeners: list[_Listener] = []
        self.users = 0
        self.stack = contextlib.ExitStack()
        self.stand_ins: dict[str, _Stream] = {}
        self.refused: dict[int, Obstacle] = {}
        """What each of these threads was refused first; no exception, for that holds all that its frames know."""

    def held(self) -> bool:
        """What this thread does comes from a run of ours: it makes one, or was started by one (callbacks too)."""
        if not self.holders:
            return False
        return stages.thread_served() in self.holders or self._is_callback()

    @staticmethod
    def _is_callback() -> bool:
        """XLA calls back from threads of its own, for a run of ours unless others of the user's are at work."""
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]  # asks without adding it
        known = thread is not None and not isinstance(thread, threading._DummyThread)
        return not known and not aside.is_aside() and not bystanders.at_work(_streams.holders)

    def enter(self, *, hold: bool, timed: bool = False) -> None:
        """Put the stand-ins in place, and begin to hold back what this thread does."""
        with self.lock:
            self.users += 1
            if hold:
                ident = threading.get_ident()
                if ident not in self.holders:
                    self.refused.pop(ident, None)
                self.holders[ident] = self.holders.get(ident, 0) + 1
                if len(self.holders) == 1 and self.holders[ident] == 1:
                    with deferred():
                        self._begin_hold(timed)
            for name in _STREAMS:
                stream = getattr(sys, name)
                if stream is not None and not isinstance(stream, _Stream):
                    self.stand_ins[name] = _Stream(stream, self)
                    setattr(sys, name, self.stand_ins[name])

    def leave(self, *, hold: bool) -> None:
        """Undo one `enter` of this thread."""
        with self.lock:
            self.users -= 1
            if hold:
                ident = threading.get_ident()
                left = self.holders.pop(ident, 1) - 1
                if left > 0:
                    self.holders[ident] = left
                if not self.holders:
                    with deferred():
                        self.stack.close()
                    for name, stand_in in self.stand_ins.items():  # a run of ours may have set another one
                        setattr(sys, name, stand_in)
            if self.users <= 0:
                self._take_out()

    def reset(self) -> None:
        """Nothing of ours runs: let everything through, whatever an interrupt has left behind."""
        with self.lock:
            self.users = 0
            self.holders.clear()
            self.refused.clear()
            self.started.clear()
            self.listeners.clear()
            self.stack.close()
            self._take_out()

    def _take_out(self) -> None:
        for name in _STREAMS:
            stream = getattr(sys, name)
            if isinstance(stream, _Stream):
                setattr(sys, name, stream.stream)
        self.stand_ins.clear()

    def _begin_hold(self, timed: bool) -> None:
        """All but plain text: warnings, log records, rich output; what can't be undone is refused."""
        _listen()
        self.stack.enter_context(listeners.paused())
        self.stack.enter_context(compat.failed_traces_let_go())
        streams = {id(s): s for n in _STREAMS if (s := _real(getattr(sys, n))) is not None}.values()
        writing = [getattr(type(s), "write", None) for s in streams]  # which others may have kept as it is
        doors = [w for w in writing if isinstance(w, types.FunctionType)]
        self.watch = permission.Watch(_refuse_call, _code_begins, doors, timed=timed)
        self.watch.start()
        self.stack.callback(self.watch.stop)
        self._hold_warnings()
        self._hold(logging.Logger, "handle")
        self._hold(sys, "breakpointhook")
        for stream in streams:
            with contextlib.suppress(AttributeError, TypeError):  # the user may have it under another name
                self._hold(stream, "write", len)
        for holder, name, what in (*_CHANGING, (compat.array_class(), "delete", "deletes an array")):
            if hasattr(holder, name):
                self._refuse(holder, name, what)
        filtering = compat.traceback_filtering()
        if filtering is not None:  # nobody sees it here, and it takes a sixth of the time of runs that fail
            self._replace(filtering, "_is_under_reraiser", lambda original, exc: True)
        self._replace(threading.Thread, "start", self._start)
        self._replace(threading.Condition, "wait", self._wait)
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        publisher = getattr(shell, "display_pub", None)
        for holder, name in (
            (publisher, "publish"), (publisher, "clear_output"), (shell, "showtraceback"), (shell, "showsyntaxerror"),
        ):  # fmt: skip
            if hasattr(holder, name):
                self._hold(holder, name)
        unsent = widgets.Unsent()
        self.stack.callback(unsent.forget)
        for holder, name in widgets.channels():
            self._replace(holder, name, unsent.keep)
        figures = getattr(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None)
        if figures is not None:  # what a run of ours draws is drawn on figures of its own
            self.stack.enter_context(patches.replaced(figures, figs=type(figures.figs)()))

    def _hold_warnings(self) -> None:
        """Drop what is warned of, unless the run itself records it; filters stay as they are, for a change of them
        makes Python show anew what it has shown."""
        show = getattr(warnings, "_showwarnmsg", None)
        if show is None:
            return
        shown_by = warnings.showwarning, getattr(warnings, "_showwarnmsg_impl", None)

        def unless_held(message: object) -> None:
            now = warnings.showwarning, getattr(warnings, "_showwarnmsg_impl", None)
            if self.held() and now == shown_by:
                _unmark(message, sys._getframe(1))
            else:
                show(message)

        self.stack.enter_context(patches.replaced(warnings, _showwarnmsg=unless_held))

    def _hold(
        self, holder: object, name: str, instead: Callable[..., object] = lambda *args, **kwargs: None
    ) -> None:
        self._replace(holder, name, lambda original, *args, **kwargs: instead(*args, **kwargs))

    def _refuse(self, holder: object, name: str, what: str) -> None:
        def refused(original: Callable[..., object], *args: object, **kwargs: object) -> object:
            _refuse_to_user(what, sys._getframe(2))
            return original(*args, **kwargs)

        self._replace(holder, name, refused)

    def _replace(self, holder: object, name: str, held: Callable[..., object]) -> None:
        """In runs of ours, `held` is called in place of a function, with that function in front."""
        original = getattr(holder, name)

        def chosen(*args: object, **kwargs: object) -> object:
            return held(original, *args, **kwargs) if self.held() else original(*args, **kwargs)

        chosen.__name__ = chosen.__qualname__ = name
        self.stack.enter_context(patches.replaced(holder, **{name: chosen}))

    def _start(self, start: Callable[[threading.Thread], None], thread: threading.Thread) -> None:
        """A thread that a run of ours starts is part of it."""
        if not _is_asked_by_user(sys._getframe(2)):
            return start(thread)
        # What a `Timer` calls, or a thread.
        called = getattr(thread, "function", None) or getattr(thread, "_target", None)
        if called is not None and (name := permission.obstacle(called)):
            _refuse_call(name)
        run, starter, running = thread.run, threading.get_ident(), threading.Lock()
        running.acquire()

        def held() -> None:
            self.holders[threading.get_ident()] = 1
            try:
                self.watch.join()
                run()
            except Refused as exc:
                self.refused.setdefault(starter, exc.obstacle)
            except BaseException:
                pass  # shown where the user's own run raises it
            finally:
                self.holders.pop(threading.get_ident(), None)
                running.release()

        thread.run = held  # type: ignore[method-assign]
        self.started.append((starter, thread, running))
        return start(thread)

    def _wait(self, wait: Callable[..., object], condition: object, timeout: float | None = None) -> object:
        """To wait for a thread of the user's may be to wait for ever."""
        if timeout is None and not self.started:
            _refuse_to_user("waits for another thread", sys._getframe(2))
        if not condition._is_owned():  # type: ignore[attr-defined]
            return wait(condition, timeout)  # raises
        end = time.monotonic() + (math.inf if timeout is None else timeout)
        # As `wait` does, but in slices: what another thread tells between two calls of `wait` would not be heard.
        waiter = threading.Lock()
        waiter.acquire()
        condition._waiters.append(waiter)  # type: ignore[attr-defined]
        saved, heard = condition._release_save(), False  # type: ignore[attr-defined]
        try:
            while not heard and (left := end - time.monotonic()) > 0:
                heard = waiter.acquire(timeout=min(_SLICE, left))
                if not heard:
                    clock.waited(_SLICE)
                    if self.started and left > _LONG and not any(t.is_alive() for _, t, _ in self.started):
                        _refuse_to_user("waits for a thread that has ended", sys._getframe(2))
        finally:
            condition._acquire_restore(saved)  # type: ignore[attr-defined]
            with contextlib.suppress(ValueError):
                condition._waiters.remove(waiter)  # type: ignore[attr-defined]
        return heard

    def end_started(self) -> None:
        """Wait for the threads that this run has started; what does not end by itself is told to."""
        ident = threading.get_ident()
        if not self.started or self.holders.get(ident, 1) > 1:
            return
        for thread, running in [(t, r) for starter, t, r in self.started if starter == ident]:
            if not running.acquire(timeout=_PATIENCE) and thread.ident is not None:
                budget.end(thread.ident, SystemExit)
                running.acquire(timeout=_PATIENCE)
                self.holders.pop(thread.ident, None)
        self.started[:] = [one for one in self.started if one[0] != ident]


def _real(stream: object) -> object:
    return stream.stream if isinstance(stream, _Stream) else stream


ALLOW = " (`--rerun` allows it)"
_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")
_LONG, _PATIENCE, _SLICE = 1.0, 0.5, 0.05
"""Seconds of which nobody waits for a thread that has ended, that one gets to end in, and after which one that waits
can be told to."""


@dataclass(frozen=True)
class Obstacle:
    """What stands in the way of a run that the user did not ask for."""

    what: str
    """In words."""
    place: tuple[types.CodeType, int] | None = None
    """The user's code, and the instruction in it."""
    paths: tuple[tuple[str, bool], ...] = ()
    """What it would have changed, each with whether to use it does something outside for sure."""
    sure: bool = True
    """What is at the place does something outside; else it may."""


class Refused(RuntimeError):
    """A run that the user did not ask for was about to do what cannot be undone."""

    def __init__(self, obstacle: Obstacle | str) -> None:
        self.obstacle = obstacle if isinstance(obstacle, Obstacle) else Obstacle(obstacle)
        super().__init__(self.obstacle.what)


class Wrote(Refused):
    """It was about to write into a large array that it was thought to read: a run that comes is undone there too."""


class Ended(Refused):
    """A run that the user did not ask for has raised what no handler of the user's may catch."""


def _unmark(message: Any, frame: types.FrameType | None) -> None:
    """Python shows this warning once for each place: let it be shown when the user's own run comes to it."""
    text = str(message.message)
    while frame is not None:
        registry = frame.f_globals.get("__warningregistry__")
        if registry:
            for line in (message.lineno, 0):
                registry.pop((text, message.category, line), None)
        frame = frame.f_back


_OF_OS = (
    "write writev pwrite pwritev sendfile read readv pread lseek close dup2 mkfifo mknod umask nice setsid"
)
_CHANGING = (
    (builtins, "input", "asks for input"),
    (getpass, "getpass", "asks for input"),
    *((os, name, f"calls os.{name}") for name in _OF_OS.split()),
    (atexit, "register", "registers what runs at the end"),
    (signal, "signal", "sets a signal's handler"),
    (locale, "setlocale", "sets the language"),
    (abc.ABCMeta, "register", "registers a class"),
    (copyreg, "pickle", "registers a class"),
)
"""What can't be undone, and Python tells no audit hook of."""

_OPENS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OUTSIDE = frozenset(
    "os socket subprocess sqlite3 fcntl pty syslog webbrowser resource winreg msvcrt signal ftplib".split()
)
_HARMLESS = frozenset(
    "os.listdir os.scandir os.walk os.fwalk os.getxattr os.listxattr os.chdir os.putenv os.unsetenv "
    "socket.__new__ socket.getaddrinfo socket.gethostbyname socket.gethostbyaddr socket.gethostname socket.getnameinfo "
    "socket.getservbyname socket.getservbyport sqlite3.connect/handle sqlite3.enable_load_extension".split()
)


def _audit(streams: _Streams, inside: set[str], event: str, args: tuple[object, ...]) -> None:
    """Python tells what a program does to the world outside; in runs of ours it is refused. Called at Python's very
    end too, when no global is left, and thousands of times a second (`id` is told of)."""
    if event in inside or not streams.holders:
        return
    if event != "open" and (event.partition(".")[0] not in _OUTSIDE or event in _HARMLESS):
        inside.add(event)
        return
    what = _done(event, args)
    if what and streams.held():
        _refuse_to_user(what, sys._getframe(1))


def _done(event: str, args: tuple[object, ...]) -> str:
    """What an event of Python's audit does outside, in words; '' where nothing."""
    if event == "open":
        _, mode, flags = args
        if str(args[0]) == os.devnull or not (isinstance(flags, int) and flags & _OPENS):
            return ""
        return "writes to a file"
    if event == "sqlite3.connect":
        return "" if args[0] in (":memory:", b":memory:") else "opens a database"
    return f"calls {event}"


@functools.cache
def _listen() -> None:
    """Hear of what Python audits: from the first run of ours on, for a hook can't be taken out."""
    sys.addaudithook(functools.partial(_audit, _streams, set()))


def _refuse_to_user(what: str, frame: types.FrameType | None) -> None:
    if not permission.is_allowed() and _is_asked_by_user(frame):
        _refuse(f"it {what}, which can't be undone")


def _refuse_call(name: str) -> None:
    if _streams.held():
        _refuse(_calls(name), sure=_is_of_python(name))


def _code_begins(frame: types.FrameType) -> bool:
    if not _streams.held():
        return True
    if frame.f_code.co_name == "__subclasshook__" and is_user_file(frame.f_code.co_filename):
        _refuse(f"calls `{frame.f_code.co_qualname}`, and Python keeps the answer", frame.f_back, sure=False)
    if is_user_file(frame.f_code.co_filename) and permission.changes_others(frame):
        _refuse(f"it imports `{frame.f_globals['__name__']}` for the first time", frame.f_back)
    late = snapshot.look_at_call(frame)
    if lost := next(filter(None, map(drains, late or ())), None):
        _refuse(lost.what, frame.f_back)
    return late is not None


def _refuse(what: str, within: types.FrameType | None = None, *, sure: bool = True) -> None:
    users = (f for f in snapshot.frames(within or sys._getframe(1)) if is_user_file(f.f_code.co_filename))
    place = next(((f.f_code, f.f_lasti) for f in users), None)
    obstacle = Obstacle(what.removesuffix(ALLOW) + ALLOW, place, sure=sure)
    _streams.refused.setdefault(threading.get_ident(), obstacle)
    raise Refused(obstacle)


def heed() -> None:
    """Raise what a run of ours was refused, where a handler of the user's has caught it."""
    if refused := _streams.refused.get(threading.get_ident()):
        raise Refused(refused)


def _is_asked_by_user(frame: types.FrameType | None) -> bool:
    """The call comes from the user's code, maybe through a library, and not from jax or from us."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] in ("jax", "jaxlib", "jitmagic", "importlib"):
            return False
        if permission.is_allowed(f"{name}.{frame.f_code.co_qualname}"):
            return False
        if is_user_file(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def refusal(exc: BaseException | None) -> Refused | None:
    """The refusal that an exception is, or comes from."""
    for _ in range(10):
        if exc is None or isinstance(exc, Refused):
            return exc
        exc = exc.__cause__ or exc.__context__
    return None


def obstacle(exc: Exception) -> Obstacle | None:
    """What stood in the way of the run that ended with this exception."""
    refused = refusal(exc)  # and no name is left for what holds the frames of the run
    return refused.obstacle if refused is not None else None


def not_run(exc: Exception, consequence: str) -> str:
    """What a report says of the run without jit that ended with this exception."""
    refused = refusal(exc)
    why = f"was left out: {refused}" if refused else f"failed ({type(exc).__name__}), so {consequence}"
    return f"the run without jit {why}"


@dataclass(eq=False)
class _Listener:
    """Keeps the first part of what one thread prints, and where the user's code has traced values printed."""

    thread: int
    kept: str = ""
    limit: int = 10_000
    of_tracers: list[tuple[types.CodeType, int]] = field(default_factory=list)
    """Code, and the instruction in it."""

    def hear(self, text: str) -> None:
        if len(self.kept) < self.limit:
            self.kept += text[: self.limit - len(self.kept)]
            if messages.shows_tracer(text):
                frames = snapshot.frames(sys._getframe(1))
                users = (f for f in frames if is_user_file(f.f_code.co_filename))
                self.of_tracers += [(f.f_code, f.f_lasti) for f in itertools.islice(users, 1)]


class _Stream(io.TextIOBase, patches.StandIn):
    """Stands in for a standard stream; what user code keeps of it goes on to write to the stream itself."""

    def __init__(self, stream: Any, streams: _Streams) -> None:
        self.stream, self.streams = stream, streams

    def write(self, text: str) -> int:
        for listener in tuple(self.streams.listeners):
            if listener.thread == threading.get_ident() and self is sys.stdout:
                listener.hear(text)
        if not self.streams.held():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        if not self.streams.held():
            self.stream.flush()

    @property
    def buffer(self) -> object:
        return io.BytesIO() if self.streams.held() else self.stream.buffer

    def isatty(self) -> bool:
        return bool(self.stream.isatty())

    def fileno(self) -> int:
        return int(self.stream.fileno())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(self.stream.encoding)

    @property
    def errors(self) -> object:  # type: ignore[override]
        return self.stream.errors

    def close(self) -> None:
        """A stream that a run of ours closes stays open for the user."""

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


_streams = _Streams()


@contextlib.contextmanager
def overheard() -> Iterator[_Listener]:
    """Let standard output through, and keep what is printed."""
    listener = _Listener(threading.get_ident())
    with deferred():
        _streams.enter(hold=False)
        _streams.listeners.append(listener)
    try:
        yield listener
    finally:
        with deferred():
            _streams.listeners[:] = [x for x in _streams.listeners if x is not listener]
            _streams.leave(hold=False)


@contextlib.contextmanager
def held_back(*, apart: bool = True) -> Iterator[None]:
    """Hold back what user code prints, displays, logs or warns about, callbacks on their way included; `apart`: what
    jax traces it does not remember for the user's own calls, and each call is looked at: without, runs are timed."""
    _callbacks_done()
    with deferred():
        _streams.enter(hold=True, timed=not apart)
    try:
        with contextlib.ExitStack() as stack:
            for context in (_Context, *(patches.around_runs if apart else ())):
                stack.enter_context(context())
            with heeded():
                try:
                    yield
                except (KeyboardInterrupt, budget.OutOfTime) as exc:
                    if isinstance(exc, budget.OutOfTime) or not raised_by_users(exc):
                        unwinding.end_frames(exc)  # it came between two steps of Python
                    raise
                finally:
                    _streams.watch.forget()
    except (Exception, KeyboardInterrupt, budget.OutOfTime):
        raise
    except BaseException as exc:  # `exit()`, say: what ends the user's own run ends no other
        raise Ended(f"it raises {type(exc).__name__}").with_traceback(exc.__traceback__) from exc
    finally:
        try:
            _callbacks_done()
            _streams.end_started()
        finally:
            with deferred():
                _streams.leave(hold=True)


class _Context:
    """Context variables that are set while this holds are as they were afterwards, those too that had no value."""

    def __enter__(self) -> None:
        with deferred():
            self.context = contextvars.copy_context()
            ctypes.pythonapi.PyContext_Enter(ctypes.py_object(self.context))
            decimal = sys.modules.get("decimal")
            if decimal is not None:  # whose context is an object that is changed in place
                decimal.setcontext(decimal.getcontext().copy())

    def __exit__(self, *exc: object) -> None:
        with deferred():
            ctypes.pythonapi.PyContext_Exit(ctypes.py_object(self.context))


def _callbacks_done() -> None:
    """Wait for `jax.debug.print` and the like: they print when they get there, not when they are called."""
    jax = sys.modules.get("jax")
    barrier = getattr(jax, "effects_barrier", None)
    if barrier is not None:
        with contextlib.suppress(Exception):  # it stays where it is, and is raised at the user's own wait
            barrier()


def is_ours() -> bool:
    """What runs now is a run of ours: its output is held back, or it is marked as unasked for."""
    return _streams.held() or ledger.is_unasked()


def is_held() -> bool:
    """What this thread prints is held back now."""
    return _streams.held()


def reset() -> None:
    """At the boundary of a cell: nothing of ours is in force any more, whatever an interrupt has cut short."""
    budget.cancel()
    end_pauses()
    unwinding.reset()
    if _streams.users or _streams.holders or STATE.plain or patches.any_left() or shut.any_shut():
        with deferred():
            _streams.reset()
            patches.put_back()
            shut.unshut_all()
            STATE.plain = 0


@contextlib.contextmanager
def undone(reach: Any, *, traced: bool = False) -> Iterator[snapshot.Snapshot]:
    """Put every variable in reach back afterwards, whatever happens in between; `traced`: no value is computed.

    Raises Refused where what a run takes could not be put back: from a generator, a reader, a pipe.
    """
    can_be_left = ends.can_be_left(reach.functions)
    with unwinding.kept_apart(can_be_left):
        before = snapshot.take(reach)
        if lost := _of_decorator(reach.called) or drains(before, traced=traced):
            raise Refused(lost)
        with snapshot.in_force(before):
            try:
                before.stand_in()
                yield before
            except Exception as exc:
                if wrote := writes_into_shut(exc):
                    raise wrote from exc
                raise
            finally:
                if can_be_left:  # what goes as its holder is put back is the last that the run does
                    with held_back(apart=False):
                        before.restore()
                        unwinding.end_circles()
                before.restore()


def let_go(error: Exception, reach: Any) -> None:
    """Take the frames of a run out of its exception; what goes with them (a generator, say) leaves nothing behind."""
    own = sys._getframe(1)
    with contextlib.suppress(Refused), undone(reach, traced=True), held_back():
        unwinding.let_go(error, own)
    unwinding.let_go(error, own)


@contextlib.contextmanager
def _unnoticed(classes: tuple[type, ...]) -> Iterator[None]:
    """Objects of these classes can be taken apart, and nothing of it is seen."""
    if _streams.held():
        yield
        return
    before = snapshot.take(Reach(classes=classes))
    with snapshot.in_force(before), held_back(apart=False):
        before.stand_in()
        try:
            yield
        finally:
            before.restore()


patches.around_looks.append(_unnoticed)


def writes_into_shut(exc: Exception) -> Wrote | None:
    """What a run of ours has ended with, where it tried to write into a large array that it was thought to read."""
    paths = ", ".join(f"`{path}`" for path in shut.note_written(exc)[:3])
    return (
        Wrote(f"it writes into {paths}, of which nothing was kept to put it back{ALLOW}") if paths else None
    )


@contextlib.contextmanager
def back_at(before: snapshot.Snapshot) -> Iterator[None]:
    """All that it holds is as it was then; afterwards as it is now."""
    now = before.again()
    try:
        before.restore()
        yield
    finally:
        now.restore()


def _of_decorator(called: object) -> Obstacle | None:
    name = permission.decorator(called)
    return Obstacle(_calls(name) + ALLOW, sure=_is_of_python(name)) if name else None


def _calls(name: str) -> str:
    return f"it calls `{name}`, which may leave something behind"


def drains(before: snapshot.Snapshot, *, traced: bool = False) -> Obstacle | None:
    """What a run would take and could not put back; None where there is nothing of the kind."""
    lost = before.drained if traced else before.drained | before.donating
    shown = [path for path, name in lost.items() if not permission.is_allowed(name)]
    if not shown:
        return None
    paths = ", ".join(f"`{path}`" for path in shown[:3])
    if all(before.unrestorable.get(path) == snapshot.TOO_MUCH for path in shown[:3]):
        return Obstacle(f"it may change what is in {paths}, which is too much to put back{ALLOW}")
    return Obstacle(f"it changes {paths}, which can't be put back{ALLOW}", paths=changed(before))


def changed(before: snapshot.Snapshot) -> tuple[tuple[str, bool], ...]:
    """The same as paths, of what does not compute and is no memory, by the library's object that it is part of; with
    `--rerun`, which allows all, too."""
    everything = permission.is_allowed()
    return tuple(
        dict.fromkeys(
            _whole(path, _is_of_python(name), before)
            for path, name in before.drained.items()
            if not before.is_memory(path)
            and name.partition(".")[0] not in _COMPUTING
            and (everything or not permission.is_allowed(name))
        )
    )


def _whole(path: str, of_python: bool, before: snapshot.Snapshot) -> tuple[str, bool]:
    """`logger` for `logger._core.levels`, where the user's code names no more; and whether Python's own library has its
    class."""
    whole = before.reach.library_object(path)
    return (
        (whole.path, _is_of_python(f"{module_of(type(whole.look()))}."))
        if whole is not None
        else (path, of_python)
    )


_COMPUTING = LIBRARIES | {"jax", "jaxlib"}
"""Whose objects compute in a trace, whatever else they keep."""


def _is_of_python(name: str) -> bool:
    """The full name is one of Python's own library, of which it is known what acts outside."""
    return name.partition(".")[0].lstrip("_") in sys.stdlib_module_names


def rehearse(
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    reach: Any,
    look: Callable[[snapshot.Snapshot, Any], None] | None = None,
) -> object:
    """The result of one run of the user's plain function that leaves nothing behind; `look` sees what it changed."""
    import jax
    import numpy as np

    with undone(reach) as before, held_back(), plainly():
        out = jax.block_until_ready(fn(*args, **kwargs))
        heed()
        if look is not None:
            look(before, out)
        # a result may be an argument that was written in place, which is about to be put back
        return jax.tree.map(lambda v: v.copy() if isinstance(v, np.ndarray) else v, out)
