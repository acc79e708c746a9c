"""Runs of the user's code that the user did not ask for: their output is held back, their traces undone."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from jitmagic.state import snapshot
from jitmagic.watched import plainly

MEGABYTE = 1 << 20


class _Tee(io.TextIOBase):
    """Passes on what is written and keeps the first part of it."""

    def __init__(self, stream: Any, limit: int = 10_000) -> None:
        self.stream, self.kept, self.limit = stream, "", limit

    def write(self, text: str) -> int:
        if len(self.kept) < self.limit:
            self.kept += text[: self.limit - len(self.kept)]
        self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def overheard() -> Iterator[Callable[[], str]]:
    """Let standard output through, and tell afterwards what was printed."""
    before = sys.stdout
    tee = _Tee(before)
    sys.stdout = tee
    try:
        yield lambda: tee.kept
    finally:
        if sys.stdout is tee:
            sys.stdout = before


class _Sink(io.StringIO):
    """Standard output that keeps at most a megabyte."""

    def write(self, text: str) -> int:
        return super().write(text) if self.tell() < MEGABYTE else len(text)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold back what user code prints, displays or warns about."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(_Sink()))
        stack.enter_context(contextlib.redirect_stderr(_Sink()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_no_display())
        yield


def is_ours() -> bool:
    """What runs now is a run of ours: its output is held back, or it is marked as unasked for."""
    from jitmagic.tracing import ledger

    return isinstance(sys.stdout, _Sink) or ledger.is_unasked()


@contextlib.contextmanager
def _no_display() -> Iterator[None]:
    """Hold back rich output (`display(...)`, figures) of a running IPython, if there is one."""
    shell = _shell()
    publisher = getattr(shell, "display_pub", None)
    if publisher is None:
        yield
        return
    publish = publisher.publish
    publisher.publish = lambda *a, **k: None
    try:
        yield
    finally:
        del publisher.publish
        if publisher.publish != publish:  # it was replaced on the instance before us
            publisher.publish = publish


def _shell() -> Any:
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


@contextlib.contextmanager
def undone(reach: Any) -> Iterator[snapshot.Snapshot]:
    """Put every variable in reach back afterwards, whatever happens in between."""
    before = snapshot.take(reach)
    try:
        yield before
    finally:
        before.restore()


def rehearse(fn: Callable[..., Any], args: Any, kwargs: Any, reach: Any) -> Any:
    """The result of one run of the user's plain function that leaves nothing behind."""
    import jax
    import numpy as np

    with undone(reach), held_back(), plainly():
        out = jax.block_until_ready(fn(*args, **kwargs))
        # a result may be an argument that was written in place, which is about to be put back
        return jax.tree.map(lambda v: v.copy() if isinstance(v, np.ndarray) else v, out)
