"""Whether calls in a thread are the user's, or those of a run of ours."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Container, Iterator


class CallMode(threading.local):
    """How calls of watched functions in a thread are taken."""

    plain = 0
    """Depth of our own runs, in which every watched function is the user's plain function."""
    made = False
    """The innermost of these is the user's own run: functions are as the user made them, compiled ones too."""
    recorded: Container[object] | None = None
    """In a run of ours of a whole cell: the checkers that it is about; others note nothing."""


STATE = CallMode()
calls_diagnosed: dict[int, Callable[[types.FrameType], bool]] = {}
"""By the `id` of the code of functions whose calls are heard while a cell runs: whether the frame is of a call that is
looked at as a whole, inside of which all runs as the user has made it."""


def inside_diagnosed(frame: types.FrameType | None) -> bool:
    """The frame is one of such a call, or was called by one."""
    while frame is not None and frame.f_code.co_name != "<module>":
        told = calls_diagnosed.get(id(frame.f_code))
        if told is not None and told(frame):
            return True
        frame = frame.f_back
    return False


class plainly:  # noqa: N801  used as a function; a generator would touch the user's exception on its way out
    """While this holds, calls of watched functions in this thread run the user's own code; `made`: as the user has
    made it, with what is compiled."""

    def __init__(self, *, made: bool = False) -> None:
        self.made = made

    def __enter__(self) -> None:
        self.before = STATE.plain, STATE.made
        STATE.plain, STATE.made = STATE.plain + 1, self.made

    def __exit__(self, *exc: object) -> None:
        STATE.plain, STATE.made = self.before


@contextlib.contextmanager
def recording(checkers: Container[object]) -> Iterator[None]:
    """While this holds, only these (and those that come into the collection) note what is called in this thread."""
    before, STATE.recorded = STATE.recorded, checkers
    try:
        yield
    finally:
        STATE.recorded = before
