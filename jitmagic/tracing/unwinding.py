"""The end of a run of ours: what its frames and names hold is let go, and what that sets going ends with it."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Mapping

_CHAIN = 100
"""Exceptions looked at, each the cause of the one before: one may be its own."""


def let_go(error: BaseException, own: types.FrameType | None = None) -> None:
    """Take the frames of this run out of an exception: each holds what its names stood for, and the frames around it,
    of which one holds the exception, until Python looks for such circles. `own`: the one that has caught it."""
    raised: BaseException | None = error
    own = own or sys._getframe(1)
    for _ in range(_CHAIN):
        if raised is None:
            return
        traceback = raised.__traceback__
        while traceback is not None and _runs_in(traceback.tb_frame, own):
            traceback = traceback.tb_next
        BaseException.with_traceback(raised, traceback)  # whatever its class does with attributes
        raised = raised.__cause__ or raised.__context__


def _runs_in(frame: types.FrameType | None, outer: types.FrameType) -> bool:
    while frame is not None and frame is not outer:
        frame = frame.f_back
    return frame is outer


def forget_names(namespace: dict[str, object], known: Mapping[str, object]) -> None:
    """Let go of what a run of a cell has bound, the latest first, and end its generators that something else holds."""
    bound = [n for n, v in namespace.items() if n not in known or known[n] is not v]
    for name in reversed(bound):
        value = namespace[name]
        if type(value) is types.GeneratorType and value.gi_code.co_filename.startswith("<jitmagic "):
            with contextlib.suppress(Exception):
                value.close()
        del value, namespace[name]
