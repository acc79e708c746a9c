"""Threads of ours: `threading` does not know them, so that the user counts none but the user's own."""

from __future__ import annotations

import _thread
import signal
import time
from collections.abc import Callable

_running: set[int] = set()


def start(work: Callable[[], object]) -> None:
    """Begin this work in a thread that nobody waits for; it ends with the process at the latest."""
    _thread.start_new_thread(_run, (work,))


def interrupt_soon() -> None:
    """Raise an interrupt that has come in the middle of work of ours in the user's code, just after. Raises it at once
    where the user's own handler is to decide."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        raise KeyboardInterrupt from None
    start(wait_and_interrupt)


def wait_and_interrupt() -> None:
    """Python raises it at once where it is: wait until that is the user's code again."""
    time.sleep(1e-3)
    _thread.interrupt_main()


def is_aside() -> bool:
    """Whether this is such a thread."""
    return _thread.get_ident() in _running


def _run(work: Callable[[], object]) -> None:
    _running.add(_thread.get_ident())
    try:
        work()
    finally:
        _running.discard(_thread.get_ident())
