"""A line that tells what takes so long; nothing at all for what takes under a second."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jitmagic import aside

AFTER_S = 1.0
EVERY_S = 0.5


@contextmanager
def shown(
    what: str, quiet: Callable[[], bool], board: Callable[[str | None], None], after: str = ""
) -> Iterator[Callable[[str], None]]:
    """Show `what` with the seconds gone by while the block takes longer than a second; removed at its end.

    `after` stands behind the seconds; what the block is given says what is done just now. In a kernel `board` takes the
    line (None: take it away).

    The line is written by a thread of its own, so it lives while XLA compiles without the interpreter lock.
    """
    if quiet():
        yield lambda now: None
        return
    line = _Line(what, board, after)
    _ticker.show(line)
    try:
        yield line.say
    finally:
        _ticker.hide(line)


class _Ticker:
    """The thread that writes the lines: one for the process, because starting one takes as long as a small trace."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.line: _Line | None = None
        self.process: int | None = None
        """Where the thread runs; a fork leaves it behind."""

    def show(self, line: _Line) -> None:
        """Write this line from its second second on; the one before it stays away."""
        with self.changed:
            self.line = line
            if self.process != os.getpid():
                aside.start(self._run)
                self.process = os.getpid()
            self.changed.notify_all()

    def hide(self, line: _Line) -> None:
        """Take the line away; nothing is written of it from now on."""
        with self.changed:
            if self.line is line:
                self.line = None
            self.changed.notify_all()
            line.remove()

    def _run(self) -> None:
        with self.changed:
            while True:
                self.changed.wait_for(lambda: self.line is not None)
                self._follow(self.line)

    def _follow(self, line: _Line | None) -> None:
        """Write one line, again and again, until another one or none is to be shown."""
        wait = AFTER_S
        while line is not None and not self.changed.wait_for(lambda: self.line is not line, wait):
            line.update()
            wait = EVERY_S


_ticker = _Ticker()


class _Line:
    """One line of output that is written over: a display in a notebook, a carriage return in a terminal."""

    def __init__(self, what: str, board: Callable[[str | None], None], after: str) -> None:
        self.what, self.board, self.after, self.start = what, board, after, time.monotonic()
        self.written, self.now = False, ""

    def say(self, now: str) -> None:
        """What is done just now."""
        self.now = now

    def update(self) -> None:
        what = f"{self.what} ({self.now})" if self.now else self.what
        so_long = f", {time.monotonic() - self.start:.0f} s{self.after}"
        try:
            if _in_kernel():
                self.board(what + so_long)
                self.written = True
            elif sys.stderr.isatty():
                room = shutil.get_terminal_size().columns - len(so_long) - 1  # no more can be written over
                text = what if len(what) <= room else f"{what[: room - 1]}…"
                sys.stderr.write(f"\r\x1b[2K{text}{so_long}")
                sys.stderr.flush()
                self.written = True
        except Exception:  # a front end that went away is no reason to fail
            pass

    def remove(self) -> None:
        """Take the line away again."""
        if self.written and _in_kernel():
            self.board(None)
        elif self.written:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def _in_kernel() -> bool:
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None
