"""A line that tells what takes so long; nothing at all for what takes under a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

AFTER_S = 1.0
EVERY_S = 0.5


@contextmanager
def shown(
    what: str, quiet: Callable[[], bool] = lambda: False, board: Callable[[str | None], None] | None = None
) -> Iterator[None]:
    """Show `what` with the seconds gone by while the block takes longer than a second; removed at its end.

    In a kernel `board` takes the line (None: take it away); without one it is a display of its own.

    The line is written by a thread of its own, so it lives while XLA compiles without the interpreter lock.
    """
    done = threading.Event()
    line = _Line(what, board)
    thread = threading.Thread(target=_run, args=(done, line), daemon=True)
    if not quiet():
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.ident is not None:
            thread.join()
            line.remove()


def _run(done: threading.Event, line: _Line) -> None:
    if done.wait(AFTER_S):
        return
    while True:
        line.update()
        if done.wait(EVERY_S):
            return


class _Line:
    """One line of output that is written over: a display in a notebook, a carriage return in a terminal."""

    def __init__(self, what: str, board: Callable[[str | None], None] | None = None) -> None:
        self.what, self.start, self.board = what, time.monotonic(), board
        self.handle: Any = None
        self.written = False

    def update(self) -> None:
        text = f"{self.what}, {time.monotonic() - self.start:.0f} s"
        try:
            if _in_kernel():
                self._display(text)
            elif sys.stderr.isatty():
                sys.stderr.write(f"\r{text}")
                sys.stderr.flush()
                self.written = True
        except Exception:  # a front end that went away is no reason to fail
            pass

    def _display(self, text: str) -> None:
        if self.board is not None:
            self.board(text)
            self.written = True
            return
        from IPython.display import display

        bundle = {"text/plain": text}
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)

    def remove(self) -> None:
        """Take the line away again."""
        if self.board is not None and self.written and _in_kernel():
            self.board(None)
        elif self.handle is not None:
            self.handle.update({"text/plain": "", "text/html": ""}, raw=True)
        elif self.written:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def _in_kernel() -> bool:
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None
