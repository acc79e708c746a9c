"""Interrupts: clean-up that none can cut short, runs of the user's code that none gets lost in, and the user's alarms,
which wait for work of ours."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from jitmagic import aside

deferring: dict[int, int] = {}
"""Threads in which clean-up is under way, and how deep."""


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """An interrupt (SIGINT) that arrives in the block is raised at its end, where the user's own handler says so, and
    a run whose time is over ends there at the earliest.

    Python runs signal handlers in the main thread alone, so in other threads there is nothing to do.
    """
    ident, noted = threading.get_ident(), _Noted()
    main = threading.current_thread() is threading.main_thread()
    before = _signal.getsignal(signal.SIGINT) if main else None  # not callable: ignored, or handled elsewhere
    notes = callable(before) and not isinstance(before, _Noted)  # else a block around this one notes it
    try:
        deferring[ident] = deferring.get(ident, 0) + 1
        if notes:
            _signal.signal(signal.SIGINT, noted)
        yield
    finally:
        if notes:
            _signal.signal(signal.SIGINT, before)
        deferring[ident] = deferring.get(ident, 1) - 1
        if noted and callable(before):
            before(*noted[-1])


class _Noted(list[tuple[Any, Any]]):
    """A handler that keeps the interrupts that have come. It is set by the function below `signal.signal`, which makes
    an enumeration of each number and is refused to runs of ours."""

    def __call__(self, number: int, frame: Any) -> None:
        self.append((number, frame))


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """An interrupt that is lost in the block (in a callback of jax's, behind `except:`) is raised at its end."""
    main = threading.current_thread() is threading.main_thread()
    before, noted = signal.getsignal(signal.SIGINT) if main else None, list[int]()
    if not callable(before):
        yield
        return

    def note(number: int, frame: Any) -> Any:
        noted.append(number)
        return before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception:
        if noted:
            raise KeyboardInterrupt from None
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
    if noted:
        raise KeyboardInterrupt


def raise_soon() -> None:
    """Raise an interrupt that has come in the middle of work of ours in the user's code, just after. Raises it at once
    where the user's own handler is to decide."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        raise KeyboardInterrupt from None
    aside.start(_wait_and_raise)


def _wait_and_raise() -> None:
    """Python raises it at once where it is: wait until that is the user's code again."""
    time.sleep(1e-3)
    _thread.interrupt_main()


@contextlib.contextmanager
def alarms_held() -> Iterator[None]:
    """While this holds, the user's alarm (`signal.alarm`, `signal.setitimer`) stands still: it times their own work."""
    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return
    left, every = signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, left, every)


class Ending:
    """Steps of ours that an interrupt ends: `with ending:` goes on behind the block, and knows of it."""

    heard = False

    def __enter__(self) -> None:
        """A step begins."""

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.heard |= interrupted
        return interrupted


ending = Ending()
"""Whether the user has interrupted what comes at the end of the cell."""
