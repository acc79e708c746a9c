"""Every trace and compilation of the session, heard from `jax.monitoring`: by cell, with the reason and the seconds.

The events tell a name and a duration. What the function was called with is read while the event is sent,
because the trace that it reports is still on the stack; kept of it are names and types, never a value.
"""

from __future__ import annotations

import inspect
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jitmagic.evidence import Leaf
from jitmagic.report import Compilation, Origin, Reason, Session
from jitmagic.tracing import compat
from jitmagic.tracing.leaves import call_leaves
from jitmagic.tracing.locate import is_user_file, users_above
from jitmagic.tracing.stages import CACHE_HIT, COMPILE, LOWER, TRACE, listen, told

MOST = 5000
"""Compilations that are kept."""

SIGNATURES = 64
"""Kinds of call that are kept of one function, to compare the next one with."""

Leaves = tuple[Leaf, ...]


@dataclass(eq=False)
class _Entry:
    """A compilation under way; its stages arrive one by one."""

    function: str
    origin: Origin
    alias: str
    """The name that jax's events have."""
    cell: int | None
    line: int | None
    end_s: float
    trace_s: float | None = None
    lower_s: float | None = None
    compile_s: float | None = None
    reason: Reason = "first"
    change: tuple[str, str, str] = ("", "", "")
    cached: bool = False

    def frozen(self) -> Compilation:
        length = sum(s or 0.0 for s in (self.trace_s, self.lower_s, self.compile_s))
        return Compilation(
            self.function, self.origin, self.cell, self.line, max(0.0, self.end_s - length),
            self.trace_s, self.lower_s, self.compile_s, self.reason, *self.change, self.cached,
        )  # fmt: skip


@dataclass(eq=False)
class _Known:
    """The kinds of call that a function was traced for, and the function objects that had its name."""

    cell: int | None
    """Where it was traced last."""
    signatures: list[Leaves] = field(default_factory=list)
    objects: list[Callable[[], object]] = field(default_factory=list)


class Ledger:
    """Listens between `start` and `stop`. `cell` gives the number of the running cell, `is_ours` whether what
    runs now is a trial of ours."""

    def __init__(
        self,
        cell: Callable[[], int | None] = lambda: None,
        is_ours: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._cell, self._is_ours, self._clock = cell, is_ours, clock
        self._began = clock()
        self._entries: list[_Entry] = []
        self._known: dict[object, _Known] = {}
        self._hit = False
        self._left_out = 0
        self.since: int | None = None
        self.failed = 0
        """Events that could not be understood."""

    def start(self) -> None:
        """Begin to listen; harmless where it has begun."""
        if self._hear not in told:
            self.since = self._cell()
            listen()
            told.append(self._hear)

    def stop(self) -> None:
        """Hear no more."""
        if self._hear in told:
            told.remove(self._hear)

    def session(self) -> Session:
        """What was heard so far, as plain data."""
        return Session(tuple(e.frozen() for e in self._entries), self.since, self._left_out)

    def last(self, function: str, stage: str) -> float | None:
        """Seconds that a stage (`tracing`, `lowering`, `compiling`) of this function took when it last ran."""
        name = {"tracing": "trace_s", "lowering": "lower_s", "compiling": "compile_s"}.get(stage, "")
        found = (getattr(e, name, None) for e in reversed(self._entries) if e.function == function)
        return next((seconds for seconds in found if seconds is not None), None)

    # -- events

    def _hear(self, event: str, name: str, seconds: float) -> None:
        name = name[4:-1] if name.startswith("jit(") and name.endswith(")") else name
        try:
            if (
                event == TRACE and compat.trace_state_clean()
            ):  # not of an inner function, which older jax tells
                self.traced(name, seconds, inspect.currentframe())
            elif event == LOWER:
                self.lowered(name, seconds)
            elif event == COMPILE:
                self.compiled(name, seconds, inspect.currentframe())
            elif event == CACHE_HIT:
                self.hit()
        except Exception:  # the user's compilation must not fail because of its description
            self.failed += 1

    def hit(self) -> None:
        """The persistent cache had the program that is being compiled."""
        self._hit = True

    def traced(self, name: str, seconds: float, frame: types.FrameType | None) -> None:
        """A trace has ended."""
        call = compat.trace_call(frame)
        if call is None:
            self._add(name, "user", seconds, frame)
            return
        fun, options, args, kwargs = call
        inner = _plain(fun)
        origin = self._origin(inner)
        entry = self._add(_name(inner, name), origin, seconds, frame, alias=name)
        if entry is not None and origin in ("user", "library"):
            entry.reason, entry.change = self._why(fun, inner, options, args, kwargs)

    def lowered(self, name: str, seconds: float) -> None:
        """A program was lowered."""
        entry = self._open(name, "lower_s")
        if entry is not None:
            entry.lower_s, entry.end_s = seconds, self._now()

    def compiled(self, name: str, seconds: float, frame: types.FrameType | None) -> None:
        """A program was compiled, or read from the persistent cache."""
        hit, self._hit = self._hit, False
        entry = self._open(name, "compile_s")
        if entry is None:
            entry = self._again(name, frame)
        if entry is not None:
            entry.compile_s, entry.end_s, entry.cached = seconds, self._now(), hit

    def _now(self) -> float:
        return self._clock() - self._began

    def _add(
        self, name: str, origin: Origin, seconds: float | None, frame: types.FrameType | None, alias: str = ""
    ) -> _Entry | None:
        if len(self._entries) >= MOST:
            self._left_out += 1
            return None
        users = users_above(frame if origin != "check" else None)
        line = next((f.f_lineno for f in users), None)
        entry = _Entry(name, origin, alias or name, self._cell(), line, self._now(), seconds)
        self._entries.append(entry)
        return entry

    def _open(self, name: str, stage: str) -> _Entry | None:
        """The newest program of this name that has not come to `stage`; jax compiles soon after it traces."""
        for entry in reversed(self._entries[-50:]):
            if entry.alias == name and getattr(entry, stage) is None and entry.compile_s is None:
                return entry
        return None

    def _again(self, name: str, frame: types.FrameType | None) -> _Entry | None:
        """A compilation without a trace: jax knew the program, for another device or another layout."""
        old = next((e for e in reversed(self._entries) if e.alias == name), None)
        if old is None:
            return self._add(name, "check" if self._is_ours() else "operation", None, frame)
        entry = self._add(old.function, old.origin, None, frame, alias=name)
        if entry is not None:
            entry.reason = "device"
        return entry

    def _origin(self, fn: object) -> Origin:
        if self._is_ours():
            return "check"
        file = getattr(getattr(fn, "__code__", None), "co_filename", "")
        if file.startswith(compat.JAX_DIRECTORY) or not file:
            return "operation"
        return "user" if is_user_file(file) else "library"

    # -- reasons

    def _why(
        self, fun: Any, inner: object, options: object, args: object, kwargs: Mapping[str, object]
    ) -> tuple[Reason, tuple[str, str, str]]:
        leaves = call_leaves(
            fun, args, kwargs,
            static_argnums=getattr(options, "static_argnums", ()) or (),
            static_argnames=getattr(options, "static_argnames", ()) or (),
        )  # fmt: skip
        known = self._known.setdefault(_key(inner), _Known(self._cell()))
        # a weak reference: the ledger must not keep what a closure holds alive
        new = not any(ref() is inner for ref in known.objects)
        reason, change = _reason(known, leaves, new, known.cell == self._cell() or _is_local(inner))
        known.cell = self._cell()
        if new:
            known.objects = [*(r for r in known.objects if r() is not None), _reference(inner)]
        known.signatures = [*known.signatures[-SIGNATURES + 1 :], leaves]
        return reason, change


def _reason(known: _Known, leaves: Leaves, new: bool, made: bool) -> tuple[Reason, tuple[str, str, str]]:
    """Why a function is traced: it is new, or what differs from the nearest earlier call."""
    if not known.signatures:
        return "first", ("", "", "")
    if new:
        return ("new-function" if made else "redefined"), ("", "", "")
    nearest = min(reversed(known.signatures), key=lambda old: _distance(old, leaves))
    found = changes(nearest, leaves)
    if not found:
        return "again", ("", "", "")
    reason, path, before, after = found[0]
    return reason, (path, before, after)


def changes(old: Sequence[Leaf], new: Sequence[Leaf]) -> list[tuple[Reason, str, str, str]]:
    """(reason, path, before, after) of each argument leaf that jax sees differently in two calls."""
    before = {x.path: x for x in old}
    if before.keys() != {x.path for x in new}:
        gone = [p for p in before if p not in {x.path for x in new}]
        come = [x.path for x in new if x.path not in before]
        return [("structure", (come or gone)[0], f"{len(old)} leaves", f"{len(new)} leaves")]
    found: list[tuple[Reason, str, str, str]] = []
    for leaf in new:
        then = before[leaf.path]
        if leaf.static or then.static:
            if leaf.value != then.value:
                found.append(("static", leaf.path, then.value, leaf.value))
        elif leaf.shape != then.shape:
            found.append(("shape", leaf.path, str(then.shape), str(leaf.shape)))
        elif leaf.dtype != then.dtype:
            found.append(("dtype", leaf.path, then.dtype, leaf.dtype))
        elif leaf.weak_type != then.weak_type:
            found.append(("weak-type", leaf.path, _weak(then), _weak(leaf)))
    return found


def _distance(old: Sequence[Leaf], new: Sequence[Leaf]) -> tuple[int, int]:
    """How many leaves differ, and in how many respects."""
    found = changes(old, new)
    before = {x.path: x for x in old}
    pairs = [(before[x.path], x) for x in new if x.path in before]
    respects = sum(
        (a.shape != b.shape) + (a.dtype != b.dtype) + (a.weak_type != b.weak_type) for a, b in pairs
    )
    return len(found), respects


def _weak(leaf: Leaf) -> str:
    return f"{'weak' if leaf.weak_type else 'strong'} {leaf.dtype}"


def _plain(fun: object) -> object:
    """The user's function inside wrappers, partials and methods."""
    for _ in range(20):
        inner = (
            getattr(fun, "__wrapped__", None) or getattr(fun, "__func__", None) or getattr(fun, "func", None)
        )
        if inner is None or not callable(inner):
            return fun
        fun = inner
    return fun


def _name(fn: object, name: str) -> str:
    qualified = getattr(fn, "__qualname__", "")
    return qualified.rpartition("<locals>.")[2] if isinstance(qualified, str) and qualified else name


def _key(fn: object) -> object:
    """What stays the same when a function is made anew: its place in the source, or its name in the notebook."""
    code = getattr(fn, "__code__", None)
    name = getattr(fn, "__qualname__", type(fn).__name__)
    if code is None or not _is_local(fn):
        return getattr(fn, "__module__", ""), name
    return code.co_filename, code.co_firstlineno, name


def _is_local(fn: object) -> bool:
    name = str(getattr(fn, "__qualname__", ""))
    return "<locals>" in name or "<lambda>" in name


def _reference(fn: object) -> Callable[[], object]:
    try:
        return weakref.ref(fn)
    except TypeError:  # an object with slots
        return lambda: None


class _Own(threading.local):
    depth = 0


_own = _Own()


@contextmanager
def unasked() -> Iterator[None]:
    """While this holds, what compiles in this thread is a check of ours and not the user's."""
    _own.depth += 1
    try:
        yield
    finally:
        _own.depth -= 1


def is_unasked() -> bool:
    """A block of `unasked` is under way in this thread."""
    return _own.depth > 0
