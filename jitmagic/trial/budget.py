"""A time limit for the user's code where it runs unasked."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import inspect
import sys
import threading
import weakref
from types import FrameType, TracebackType

from jitmagic import aside
from jitmagic.interrupts import deferred, deferring
from jitmagic.raw import is_a
from jitmagic.work import clock

_TICK = 0.02
_AGAIN = 1.0
"""Seconds after which a run that has caught its end is ended once more."""
_NOT_NOW = "<not now>"
_PUTS_BACK = {"jitmagic.state.snapshot", "jitmagic.patches", "jitmagic.interrupts", __name__, _NOT_NOW}
"""Modules whose work is not left half done."""
_START = threading.Thread.start.__code__


class OutOfTime(BaseException):
    """A run that the user did not ask for has taken too long; no handler of the user's may catch it."""


class within:  # noqa: N801  used as a function; what a generator holds would be let go too late
    """While this holds: raise OutOfTime in this thread after so many seconds of work, between two steps of Python as
    an interrupt would be."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.thread = threading.get_ident()
        self.end: type[OutOfTime] = type("OutOfTime", (OutOfTime,), {"__module__": __name__})
        """What this one raises, and no other."""
        self.over = self.fired = False
        self.bell = threading.Lock()
        """Free when it is over. (An event has steps in Python, in which it could be broken off for good.)"""
        self.block: FrameType | None = None
        """The function that holds it."""

    def __enter__(self) -> None:
        with deferred():
            self.block = _block(sys._getframe(1))
            self.bell.acquire()
            _running.append(self)
            aside.start(self._watch)

    def __exit__(self, kind: type[BaseException] | None, exc: object, trace: TracebackType | None) -> None:
        try:
            with deferred(), _lock:
                self.close()
        finally:
            self.close()
        if self.fired and kind is not self.end:
            # It may have been caught in there, or not have come yet. To take it back would leave Python 3.11 and 3.12
            # waiting for it: a profiler or debugger then hangs. One that comes for sure settles both.
            try:
                with deferred():
                    end(self.thread, self.end)
                    while True:
                        pass
            except self.end:
                pass

    def close(self) -> None:
        """Nothing is raised any more."""
        self.over, self.block = True, None
        with contextlib.suppress(ValueError):  # where it was closed before
            _running.remove(self)
        with contextlib.suppress(RuntimeError):
            self.bell.release()

    def _watch(self) -> None:
        end = clock() + self.seconds
        left = self.seconds
        while not self.bell.acquire(timeout=left) and not self.over:
            left = max(_TICK, end - clock())
            if clock() > end:
                with _lock:
                    left = _AGAIN if self._raise() else _TICK

    def _raise(self) -> bool:
        names = self._under_way()
        if not names:
            self.close()
        if not names or deferring.get(self.thread) or _PUTS_BACK.intersection(names):
            return False
        for inner in _running[_running.index(self) + 1 :]:
            if inner.thread == self.thread:
                inner.close()
        self.fired = True
        end(self.thread, self.end)
        return True

    def _under_way(self) -> list[str]:
        """Modules whose functions the thread is in, from the block on; none where an interrupt has left the block
        without a word: what runs in this thread then is the user's."""
        names, frame = [], None if self.over else sys._current_frames().get(self.thread)
        while frame is not None and frame is not self.block:
            names.append(_NOT_NOW if _drops(frame) else str(frame.f_globals.get("__name__")))
            frame = frame.f_back
        return [*names, ""] if frame is not None else []


_running: list[within] = []
"""Those under way, in all threads, in the order in which they began."""
_lock = threading.RLock()


def _drops(frame: FrameType) -> bool:
    """What is raised in there ends nothing: Python prints it and goes on. (And a thread has its starter's number until
    it runs, and would be taken for it.)"""
    code = frame.f_code
    callbacks = (getattr(c, "__code__", None) for c in gc.callbacks)
    return code is _START or code.co_name == "__del__" or any(code is c for c in callbacks) or _is_told(frame)


def _is_told(frame: FrameType) -> bool:
    """It runs because an object has gone: what it is given is the weak reference to that."""
    code = frame.f_code
    several = bool(code.co_flags & inspect.CO_VARARGS)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + several]
    given = [frame.f_locals.get(name) for name in names]
    given += given[-1] if several and type(given[-1]) is tuple else ()
    references = (v for v in given if is_a(v, weakref.ref))
    return any(weakref.ref.__call__(v) is None for v in references)


def _block(frame: FrameType | None) -> FrameType | None:
    """The function whose `with` statement it is; generators that are context managers only stand for it."""
    generators = inspect.CO_GENERATOR
    while frame and (frame.f_code.co_flags & generators or frame.f_globals.get("__name__") == "contextlib"):
        frame = frame.f_back
    return frame


def end(thread: int, by: type[BaseException]) -> None:
    """Raise an exception in a thread, between two steps of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(by))


def cancel() -> None:
    """At the border of a cell: no run of ours is under way, whatever an interrupt has cut short."""
    deferring.clear()
    with _lock:
        for running in tuple(_running):
            running.close()
