"""Whether calls in a thread are the user's, or those of a run of ours."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Container, Iterator


class CallMode(threading.local):
    """How calls of watched functions in a thread are taken."""

    plain = 0
    """Depth of our own runs, in which every watched function is the user's plain function."""
    made = False
    """The innermost of these is the user's own run: functions are as the user made them, compiled ones too."""
    recorded: Container[object] | None = None
    """In a run of ours of a whole cell: the checkers that it is about; others note nothing."""


STATE = CallMode()


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
