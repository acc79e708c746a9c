"""Where the host waits for the device: arrays that were not ready when Python asked for their values, by line.

Python tells of the code of jax's that fetches a value, and of calls of NumPy's functions (`sys.monitoring`, from Python
3.12 on). The wait that the user's code is about to make is made there, with a clock beside it; nothing else changes.
"""

from __future__ import annotations

import ast
import os
import sys
import threading
import types
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import numpy as np

from jitmagic import interrupts, listeners
from jitmagic.evidence import Wait
from jitmagic.source.tree import Source, walk
from jitmagic.tracing import compat
from jitmagic.tracing.locate import is_user_file
from jitmagic.tracing.sites import Site, site_of
from jitmagic.trial import quiet

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_READERS = frozenset(map(id, (
    np.asarray, np.array, np.asanyarray, np.ascontiguousarray, np.mean, np.sum, np.isnan, np.isfinite,
    np.float32, np.float64, np.int32, np.int64,
)))  # fmt: skip
"""What takes an array of jax's in C; by their `id`, as other callables may compare in any way."""
_MOST_PLACES = 1000
_TOOL = 5
"""A number of its own: what another listener has heard enough of stays unheard under its number."""


@dataclass
class WaitingPlace:
    """One instruction of the user's that waited."""

    site: Site | None
    in_loop: bool
    times: int = 0
    seconds: float = 0.0
    idle_s: float = 0.0


class Waits:
    """Listens from `start` to `stop`, in the thread that starts it; `unasked`: in a run of ours too."""

    def __init__(self, *, unasked: bool = False) -> None:
        self.unasked = unasked
        self.places: dict[tuple[types.CodeType, int], WaitingPlace] = {}
        self.seconds = 0.0
        self._tool: int | None = None
        self._files: dict[str, bool | None] = {}
        self._codes: tuple[types.CodeType, ...] = ()
        self._thread = 0
        self._began = self._free_since = 0.0

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to listen, where Python can tell."""
        self._began = self._free_since = perf_counter()
        if sys.version_info >= (3, 12) and (tool := listeners.free_tool(_TOOL)) is not None:
            self._tool, self._thread, events = tool, threading.get_ident(), sys.monitoring.events
            self._codes = compat.code_that_fetches()
            sys.monitoring.register_callback(tool, events.PY_START, self._fetched)
            sys.monitoring.register_callback(tool, events.CALL, self._called)
            for code in self._codes:
                sys.monitoring.set_local_events(tool, code, events.PY_START)
            sys.monitoring.set_events(tool, events.CALL)

    def stop(self) -> None:
        """Listen no more."""
        if sys.version_info >= (3, 12) and self._tool is not None:
            self.seconds, events = perf_counter() - self._began, sys.monitoring.events
            sys.monitoring.set_events(self._tool, 0)
            for code in self._codes:
                sys.monitoring.set_local_events(self._tool, code, 0)
            for event in (events.PY_START, events.CALL):
                sys.monitoring.register_callback(self._tool, event, None)
            sys.monitoring.free_tool_id(self._tool)
            self._tool = None

    def facts(self) -> tuple[Wait, ...]:
        """The places in loops at which the host waited more than once, the longest first."""
        found = [
            Wait(p.site.where, _names(p.site), p.times, p.seconds, p.idle_s, self.seconds)
            for p in self.places.values()
            if p.in_loop and p.site is not None and p.times > 1
        ]
        return tuple(sorted(found, key=lambda wait: -wait.seconds))

    # -- what Python tells

    def _called(self, code: types.CodeType, offset: int, called: object, first: object) -> object:
        try:
            if sys.version_info >= (3, 12) and id(called) not in _READERS:
                return sys.monitoring.DISABLE
            if isinstance(first, jax.Array) and not compat.is_tracer(first):
                self._await(first, sys._getframe(1))
        except KeyboardInterrupt:
            interrupts.raise_soon()
        return None

    def _fetched(self, code: types.CodeType, offset: int) -> None:
        try:
            frame = sys._getframe(1)
            self._await(frame.f_locals.get(code.co_varnames[0]), frame)
        except KeyboardInterrupt:
            interrupts.raise_soon()

    def _await(self, array: Any, frame: types.FrameType) -> None:
        if threading.get_ident() != self._thread:
            return
        try:
            if array.is_ready():
                return
            start = perf_counter()
            array.block_until_ready()
        except Exception:  # deleted, or what failed on the device: the user's code is about to be told
            return
        end = perf_counter()
        self._note(frame, start, end)
        self._free_since = end

    def _note(self, frame: types.FrameType, start: float, end: float) -> None:
        users = self._users_frame(frame)
        if users is None or not self.unasked and quiet.is_ours():
            return
        key = users.f_code, users.f_lasti
        place = self.places.get(key)
        if place is None:
            if len(self.places) >= _MOST_PLACES:
                return
            place = self.places[key] = WaitingPlace(*_looped(users))
        place.times += 1
        place.seconds += end - start
        if place.times > 1:  # the first iteration holds what is done once: traces, compilations
            place.idle_s += min(end - start, start - self._free_since)

    def _users_frame(self, frame: types.FrameType | None) -> types.FrameType | None:
        """The frame of the user's own code from which this one was called; None where that was code of ours."""
        while frame is not None:
            file = frame.f_code.co_filename
            if file not in self._files:
                self._files[file] = None if file.startswith(_OURS) else is_user_file(file)
            users = self._files[file]
            if users or users is None:
                return frame if users else None
            frame = frame.f_back
        return None


def _looped(frame: types.FrameType) -> tuple[Site | None, bool]:
    """The place in a frame, and whether that, or a call that led to it, is made in each iteration of a loop."""
    found = site_of(frame.f_code, frame.f_lasti)
    outer: types.FrameType | None = frame
    while outer is not None:
        site = site_of(outer.f_code, outer.f_lasti) if is_user_file(outer.f_code.co_filename) else None
        told = (
            _in_each_iteration(site.source, site.node) if site is not None and site.node is not None else None
        )
        if told is not None or outer.f_code.co_name == "<module>":
            return found, bool(told)
        outer = outer.f_back
    return found, False


def _in_each_iteration(source: Source, node: ast.AST) -> bool | None:
    """A node in a loop of its own function: in each iteration, or only in some; None outside of loops."""
    some, inner = False, node
    for outer in source.ancestors(node):
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            return None
        if isinstance(outer, ast.If | ast.IfExp) and inner is not outer.test:
            some = some or not isinstance(
                outer.test, ast.Name | ast.Attribute
            )  # a flag is no choice of iterations
        repeated = (
            inner is outer.elt if isinstance(outer, ast.ListComp) else isinstance(outer, ast.For | ast.While)
        )
        if repeated and inner is not getattr(outer, "iter", None):
            return not some
        inner = outer
    return None


def _names(site: Site) -> tuple[str, ...]:
    """What is read there, by name."""
    called = (
        {id(n.func) for n in walk(site.node) if isinstance(n, ast.Call)} if site.node is not None else set()
    )
    names = (n for n in walk(site.node) if isinstance(n, ast.Name)) if site.node is not None else ()
    return tuple(dict.fromkeys(n.id for n in names if id(n) not in called))
