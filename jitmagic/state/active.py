"""Which stateful function is being traced in this thread, and how a trace asks to be made again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

tracing = threading.RLock()
"""Held while a function is traced, and while variables are read or written outside the generated code: a trace puts
tracers into shared variables. Never held while jax is called, which has locks of its own."""


class TraceAgain(BaseException):
    """This trace can't be used: `owner` has learnt something about itself, or has to look where it is called."""

    def __init__(self, owner: object) -> None:
        super().__init__("internal: the call is made again")
        self.owner = owner


class _Active(threading.local):
    def __init__(self) -> None:
        self.stack: list[object] = []
        """The traces of jax's that stateful functions are in the middle of in this thread, outermost first."""
        self.prepared: object = None
        """The program whose next trace in this thread was asked for by a call or a stage."""

    @contextlib.contextmanager
    def expecting(self, program: object) -> Iterator[None]:
        """While this holds, `program` may be traced wherever it is called."""
        before, self.prepared = self.prepared, program
        try:
            yield
        finally:
            self.prepared = before


active = _Active()
