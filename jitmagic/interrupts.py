"""Clean-up that an interrupt cannot cut short."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """An interrupt (SIGINT) that arrives in the block is raised at its end, where the user's own handler says so.

    Python runs signal handlers in the main thread alone, so in other threads there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # ignored, or handled outside of Python
        yield
        return
    noted: list[tuple[Any, Any]] = []
    try:
        signal.signal(signal.SIGINT, lambda number, frame: noted.append((number, frame)))
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if noted:
            before(*noted[-1])
