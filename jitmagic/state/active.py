"""Which stateful function is being traced in this thread, and how a trace asks to be made again."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


def acquired(lock: Any, holder: Callable[[], int], longest: float = math.inf) -> bool:
    """Wait for a lock; False after `longest` seconds, and where the thread that holds it waits for others: the one that
    asks for it may be what it waits for. `holder` gives the `ident` of that thread."""
    before, times, slices = None, 0, 0
    while not lock.acquire(timeout=_SLICE):
        slices += 1
        frame = sys._current_frames().get(holder())
        while frame is not None and _package(frame) == "jitmagic":  # in a run of ours waiting is done by us
            frame = frame.f_back
        if slices * _SLICE >= longest:
            return False
        if frame is None:
            continue
        now = id(frame), frame.f_lasti
        times, before = times + 1 if now == before else 0, now
        if times >= _LONG or times and _package(frame) in _WAITING:
            if not _package(frame).startswith("jax"):  # which may compile for minutes
                return False
    return True


class _Turn:
    """A lock that is held in a `with` block, as an RLock is; but what cannot be `acquired` is gone on without."""

    def __init__(self, longest: float = math.inf) -> None:
        self._lock, self._longest = threading.RLock(), longest
        self._holder = 0
        self._without: dict[int, int] = {}
        """Threads that went on without it, and in how many blocks each is."""

    def __enter__(self) -> None:
        ident, owned = threading.get_ident(), self._lock._is_owned()  # type: ignore[attr-defined]
        try:
            if ident in self._without or not acquired(self._lock, lambda: self._holder, self._longest):
                self._without[ident] = self._without.get(ident, 0) + 1
            else:
                self._holder = ident
        except BaseException:  # an interrupt
            if not owned and self._lock._is_owned():  # type: ignore[attr-defined]
                self._lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        ident = threading.get_ident()
        if ident not in self._without:
            self._lock.release()
        elif self._without[ident] > 1:
            self._without[ident] -= 1
        else:
            del self._without[ident]

    def is_had_by_a_waiting_thread(self) -> bool:
        """It cannot be had, for the thread that holds it waits for others."""
        with self:
            return threading.get_ident() in self._without


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


_SLICE = 0.2
"""Seconds after which is looked at what the holder does; twice at the same instruction of what waits, it is waiting."""
_LONG = 10
"""How often it is seen at the same instruction of other code before it is taken to wait there."""
_WAITING = frozenset("threading queue concurrent multiprocessing asyncio selectors".split())
"""Modules whose functions wait for other threads."""
tracing = _Turn()
"""Held while a function is traced, and while variables are read or written outside the generated code: a trace puts
tracers into shared variables. Never held while jax is called, which has locks of its own."""

first_traces = _Turn(longest=10.0)
"""Held while a first call is traced that no trace makes, from before its state is remembered until that is compared:
what another trace puts there meanwhile would be taken for this one's."""


class TraceAgain(BaseException):
    """This trace can't be used: `owner` has learnt something about itself, or has to look where it is called."""

    def __init__(self, owner: object) -> None:
        super().__init__("internal: the call is made again")
        self.owner = owner


class _Active(threading.local):
    def __init__(self) -> None:
        self.stack: list[object] = []
        """The traces of jax's that stateful functions are in the middle of in this thread, outermost first."""
        self.prepared: object = None
        """The program whose next trace in this thread was asked for by a call or a stage."""

    @contextlib.contextmanager
    def expecting(self, program: object) -> Iterator[None]:
        """While this holds, `program` may be traced wherever it is called."""
        before, self.prepared = self.prepared, program
        try:
            yield
        finally:
            self.prepared = before


active = _Active()
