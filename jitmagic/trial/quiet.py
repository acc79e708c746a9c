"""Runs of the user's code that the user did not ask for: their output is held back, their traces undone."""

from __future__ import annotations

import builtins
import contextlib
import functools
import getpass
import io
import logging
import os
import socket
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jitmagic import patches
from jitmagic.checking.watched import _state, plainly
from jitmagic.interrupts import deferred
from jitmagic.state import snapshot


class _Streams:
    """Whose output is held back or listened to: one stand-in for each stream, shared by all threads.

    Two threads may begin and end in any order, and what other threads of the user's print goes on to be shown.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.holders: dict[int, int] = {}
        """Threads with runs of ours under way, and how deep."""
        self.bystanders: frozenset[int] = frozenset()
        """Threads that were there before the first of these runs: theirs is none of it."""
        self.listeners: list[_Listener] = []
        self.users = 0
        self.stack = contextlib.ExitStack()
        self.stand_ins: dict[str, _Stream] = {}

    def held(self) -> bool:
        """What this thread prints comes from a run of ours: it makes one, or was started in one (callbacks too)."""
        ident = threading.get_ident()
        return ident in self.holders or (bool(self.holders) and ident not in self.bystanders)

    def enter(self, *, hold: bool) -> None:
        """Put the stand-ins in place, and begin to hold back what this thread prints."""
        with self.lock:
            self.users += 1
            if hold:
                if not self.holders:
                    self.bystanders = _real_threads()
                    self._begin_hold()
                ident = threading.get_ident()
                self.holders[ident] = self.holders.get(ident, 0) + 1
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                if not isinstance(stream, _Stream):
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
            self.listeners.clear()
            self.stack.close()
            self._take_out()

    def _take_out(self) -> None:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, _Stream):
                setattr(sys, name, stream.stream)
        self.stand_ins.clear()

    def _begin_hold(self) -> None:
        """All but plain text: warnings, log records, rich output; questions to the user are refused."""
        self._hold_warnings()
        self._hold(logging.Logger, "callHandlers")
        self._hold(sys, "breakpointhook")
        for holder, name in _ASKING:
            self._refuse(holder, name, "asks for input")
        for holder, name in _CHANGING:
            if hasattr(holder, name):
                self._refuse(holder, name, f"calls {holder.__name__}.{name}")
        notebook: Any = sys.modules.get(
            "IPython.core.interactiveshell"
        )  # a notebook's own `open` keeps the real one
        for holder, name in ((builtins, "open"), (io, "open"), (notebook, "io_open")):
            if hasattr(holder, name):
                self._refuse(holder, name, "writes to a file", _writes)
        publisher = getattr(_shell(), "display_pub", None)
        for name in ("publish", "clear_output"):
            if publisher is not None and hasattr(publisher, name):
                self._hold(publisher, name)

    def _hold_warnings(self) -> None:
        """Drop what is warned of, unless the run itself records it; filters stay as they are, for a change of them
        makes Python show anew what it has shown."""
        show = getattr(warnings, "_showwarnmsg", None)
        if show is None:
            return
        shown_by = warnings.showwarning, getattr(warnings, "_showwarnmsg_impl", None)

        def unless_held(message: Any) -> None:
            now = warnings.showwarning, getattr(warnings, "_showwarnmsg_impl", None)
            if self.held() and now == shown_by:
                _unmark(message, sys._getframe(1))
            else:
                show(message)

        self.stack.enter_context(patches.replaced(warnings, _showwarnmsg=unless_held))

    def _hold(self, holder: Any, name: str) -> None:
        original = getattr(holder, name)

        def unless_held(*args: Any, **kwargs: Any) -> Any:
            return None if self.held() else original(*args, **kwargs)

        self.stack.enter_context(patches.replaced(holder, **{name: unless_held}))

    def _refuse(
        self, holder: Any, name: str, what: str, where: Callable[..., bool] = lambda *args, **kwargs: True
    ) -> None:
        original = getattr(holder, name)

        @functools.wraps(original)
        def refused(*args: Any, **kwargs: Any) -> Any:
            if self.held() and where(*args, **kwargs) and _is_asked_by_user(sys._getframe(1)):
                raise Refused(f"it {what}, which can't be undone")
            return original(*args, **kwargs)

        self.stack.enter_context(patches.replaced(holder, **{name: refused}))


class Refused(RuntimeError):
    """A run that the user did not ask for was about to do what cannot be undone."""


def _unmark(message: Any, frame: types.FrameType | None) -> None:
    """Python shows this warning once for each place: let it be shown when the user's own run comes to it."""
    text = str(message.message)
    while frame is not None:
        registry = frame.f_globals.get("__warningregistry__")
        if registry:
            for line in (message.lineno, 0):
                registry.pop((text, message.category, line), None)
        frame = frame.f_back


_ASKING = ((builtins, "input"), (getpass, "getpass"))
_CHANGING = (
    *((os, name) for name in ("remove", "unlink", "rename", "replace", "mkdir", "rmdir", "system", "kill", "fork")),
    (subprocess, "Popen"), (socket, "create_connection"),
)  # fmt: skip


def _writes(file: Any = None, mode: Any = "r", *args: Any, **kwargs: Any) -> bool:
    """`open` with these arguments is for more than reading."""
    return isinstance(mode, str) and any(c in mode for c in "wax+")


def _is_asked_by_user(frame: types.FrameType | None) -> bool:
    """The call comes from the user's code, maybe through a library, and not from jax or from us."""
    from jitmagic.state.values import is_user_file

    while frame is not None:
        room = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if room in ("jax", "jaxlib", "jitmagic"):
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


def not_run(exc: Exception, consequence: str) -> str:
    """What a report says of the run without jit that ended with this exception."""
    refused = refusal(exc)
    why = f"was left out: {refused}" if refused else f"failed ({type(exc).__name__}), so {consequence}"
    return f"the run without jit {why}"


def _real_threads() -> frozenset[int]:
    """Threads of Python's own; those that XLA makes for callbacks are dummies to it."""
    found = (t.ident for t in threading.enumerate() if not isinstance(t, threading._DummyThread))
    return frozenset(i for i in found if i is not None)


@dataclass(eq=False)
class _Listener:
    """Keeps the first part of what one thread prints."""

    thread: int
    kept: str = ""
    limit: int = 10_000

    def hear(self, text: str) -> None:
        if len(self.kept) < self.limit:
            self.kept += text[: self.limit - len(self.kept)]


class _Stream(io.TextIOBase):
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
    def buffer(self) -> Any:
        return io.BytesIO() if self.streams.held() else self.stream.buffer

    def isatty(self) -> bool:
        return bool(self.stream.isatty())

    def fileno(self) -> int:
        return int(self.stream.fileno())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(self.stream.encoding)

    @property
    def errors(self) -> Any:  # type: ignore[override]
        return self.stream.errors

    def close(self) -> None:
        """A stream that a run of ours closes stays open for the user."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_streams = _Streams()


@contextlib.contextmanager
def overheard() -> Iterator[Callable[[], str]]:
    """Let standard output through, and tell afterwards what was printed."""
    listener = _Listener(threading.get_ident())
    with deferred():
        _streams.enter(hold=False)
        _streams.listeners.append(listener)
    try:
        yield lambda: listener.kept
    finally:
        with deferred():
            _streams.listeners[:] = [x for x in _streams.listeners if x is not listener]
            _streams.leave(hold=False)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold back what user code prints, displays, logs or warns about, callbacks on their way included."""
    _callbacks_done()
    with deferred():
        _streams.enter(hold=True)
    try:
        yield
    finally:
        try:
            _callbacks_done()
        finally:
            with deferred():
                _streams.leave(hold=True)


def _callbacks_done() -> None:
    """Wait for `jax.debug.print` and the like: they print when they get there, not when they are called."""
    jax = sys.modules.get("jax")
    barrier = getattr(jax, "effects_barrier", None)
    if barrier is not None:
        with contextlib.suppress(Exception):  # it stays where it is, and is raised at the user's own wait
            barrier()


def is_ours() -> bool:
    """What runs now is a run of ours: its output is held back, or it is marked as unasked for."""
    from jitmagic.tracing import ledger

    return _streams.held() or ledger.is_unasked()


def is_held() -> bool:
    """What this thread prints is held back now."""
    return _streams.held()


def reset() -> None:
    """At the boundary of a cell: nothing of ours is in force any more, whatever an interrupt has cut short."""
    if _streams.users or _streams.holders or _state.plain or patches.any_left():
        with deferred():
            _streams.reset()
            patches.put_back()
            _state.plain = 0


def _shell() -> Any:
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


@contextlib.contextmanager
def undone(reach: Any) -> Iterator[snapshot.Snapshot]:
    """Put every variable in reach back afterwards, whatever happens in between.

    Raises Refused where what a run takes could not be put back: from a generator, a reader, a pipe.
    """
    before = snapshot.take(reach)
    if before.drained:
        raise Refused(drains(before))
    try:
        yield before
    finally:
        before.restore()


def drains(before: snapshot.Snapshot) -> str:
    """What a run would take and could not put back, in words; '' where there is nothing of the kind."""
    names = ", ".join(f"`{path}`" for path in before.drained[:3])
    return f"it changes {names}, which can't be put back" if names else ""


def rehearse(
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    reach: Any,
    look: Callable[[snapshot.Snapshot, Any], None] | None = None,
) -> Any:
    """The result of one run of the user's plain function that leaves nothing behind; `look` sees what it changed."""
    import jax
    import numpy as np

    with undone(reach) as before, held_back(), plainly():
        out = jax.block_until_ready(fn(*args, **kwargs))
        if look is not None:
            look(before, out)
        # a result may be an argument that was written in place, which is about to be put back
        return jax.tree.map(lambda v: v.copy() if isinstance(v, np.ndarray) else v, out)
