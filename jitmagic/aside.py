"""Threads of ours: `threading` does not know them, so that the user counts none but the user's own."""

from __future__ import annotations

import _thread
from collections.abc import Callable

_running: set[int] = set()


def start(work: Callable[[], object]) -> None:
    """Begin this work in a thread that nobody waits for; it ends with the process at the latest."""
    _thread.start_new_thread(_run, (work,))


def is_aside() -> bool:
    """Whether this is such a thread."""
    return _thread.get_ident() in _running


def _run(work: Callable[[], object]) -> None:
    _running.add(_thread.get_ident())
    try:
        work()
    finally:
        _running.discard(_thread.get_ident())
