"""The end of a run of ours: what its frames and names hold is let go, and what that sets going ends with it."""

from __future__ import annotations

import contextlib
import gc
import inspect
import sys
import types
from collections.abc import Mapping

from jitmagic.source.tree import looks_for_garbage

_CHAIN = 100
"""Exceptions looked at, each what another one comes from: one may be its own."""


def let_go(error: BaseException, own: types.FrameType | None = None) -> None:
    """Take the frames of this run out of an exception: each holds what its names stood for, and the frames around it,
    of which one holds the exception, until Python looks for such circles. `own`: the one that has caught it."""
    own = own or sys._getframe(1)
    found, seen = [error], set[int]()
    while found and len(seen) < _CHAIN:
        raised = found.pop()
        if id(raised) in seen:
            continue
        seen.add(id(raised))
        traceback = raised.__traceback__
        while traceback is not None and _runs_in(traceback.tb_frame, own):
            traceback = traceback.tb_next
        BaseException.with_traceback(raised, traceback)  # whatever its class does with attributes
        found += filter(None, (raised.__cause__, raised.__context__))


def _runs_in(frame: types.FrameType, outer: types.FrameType) -> bool:
    """Called from there. A generator that has ended does not know any more what went on with it."""
    while frame is not outer and frame.f_back is not None:
        frame = frame.f_back
    return frame is outer or bool(frame.f_code.co_flags & inspect.CO_GENERATOR)


def end_circles() -> None:
    """What has come of late and only holds itself goes now, unless Python was told not to look for such things."""
    if looks_for_garbage():
        gc.collect(1)


def forget_names(namespace: dict[str, object], known: Mapping[str, object]) -> None:
    """Let go of what a run of a cell has bound, the latest first, and end its generators that something else holds.
    The names that were `known` keep their order."""
    bound = [n for n, v in namespace.items() if n not in known or known[n] is not v]
    for name in reversed(bound):
        value = namespace[name]
        if type(value) is types.GeneratorType and value.gi_code.co_filename.startswith("<jitmagic "):
            with contextlib.suppress(Exception):
                value.close()
        del value
        if name in known:
            namespace[name] = known[name]
        else:
            del namespace[name]
