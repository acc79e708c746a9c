"""Clean-up that an interrupt cannot cut short."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

deferring: dict[int, int] = {}
"""Threads in which clean-up is under way, and how deep."""


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """An interrupt (SIGINT) that arrives in the block is raised at its end, where the user's own handler says so, and
    a run whose time is over ends there at the earliest.

    Python runs signal handlers in the main thread alone, so in other threads there is nothing to do.
    """
    ident, noted = threading.get_ident(), list[tuple[Any, Any]]()
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if main else None  # not callable: ignored, or handled elsewhere
    try:
        deferring[ident] = deferring.get(ident, 0) + 1
        if callable(before):
            signal.signal(signal.SIGINT, lambda number, frame: noted.append((number, frame)))
        yield
    finally:
        if callable(before):
            signal.signal(signal.SIGINT, before)
        deferring[ident] = deferring.get(ident, 1) - 1
        if noted and callable(before):
            before(*noted[-1])
