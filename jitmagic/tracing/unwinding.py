"""The end of a run of ours: what its frames and names hold is let go, and what that sets going ends with it."""

from __future__ import annotations

import contextlib
import gc
import inspect
import sys
import types
from collections.abc import Iterator, Mapping

from jitmagic.source.tree import looks_for_garbage

_CHAIN = 100
"""Exceptions looked at, each what another one comes from: one may be its own."""


def let_go(error: BaseException, own: types.FrameType | None = None) -> None:
    """Take the frames of this run out of an exception: each holds what its names stood for, and the frames around it,
    of which one holds the exception, until Python looks for such circles. `own`: the one that has caught it."""
    own = own or sys._getframe(1)
    for raised in _chain(error):
        frames = raised.__traceback__
        while frames is not None and _runs_in(frames.tb_frame, own):
            frames = frames.tb_next
        BaseException.with_traceback(raised, frames)  # whatever its class does with attributes


def end_frames(error: BaseException) -> None:
    """Let go of the frames of a run that was broken off, and with them of what they hold: a generator, say, that was
    just about to end. Those that go on stay: whoever called the run has hold of them."""
    for raised in _chain(error):
        last = None
        for step in tuple(_steps(raised.__traceback__)):
            if _ends(step.tb_frame):
                if last is None:
                    raised.__traceback__ = None
                else:
                    last.tb_next = None
                break
            last = step


def _steps(step: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while step is not None:
        yield step
        step = step.tb_next


def _ends(frame: types.FrameType) -> bool:
    """Nothing runs in it any more; what it holds goes, but for what its function does."""
    try:
        frame.clear()
    except RuntimeError:
        return False
    return True


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those that it comes from."""
    found, seen = [error], set[int]()
    while found and len(seen) < _CHAIN:
        raised = found.pop()
        if id(raised) not in seen:
            seen.add(id(raised))
            yield raised
            found += filter(None, (raised.__cause__, raised.__context__))


def _runs_in(frame: types.FrameType, outer: types.FrameType) -> bool:
    """Called from there. A generator that has ended does not know any more what went on with it."""
    while frame is not outer and frame.f_back is not None:
        frame = frame.f_back
    return frame is outer or bool(frame.f_code.co_flags & inspect.CO_GENERATOR)


_apart = False
"""What was there before the run that goes on is out of sight of the search for garbage."""


@contextlib.contextmanager
def kept_apart(needed: bool) -> Iterator[None]:
    """A run is looked through for circles alone, all of it: what it has made may look old by its end, and what the user
    has left ends when Python finds it, not in here. Not where the user keeps things out of sight (`gc.freeze`)."""
    global _apart
    if not needed or _apart or gc.get_freeze_count():
        yield
        return
    end_circles()  # those of the user's do then what they do
    try:
        _apart = True
        gc.freeze()
        yield
    finally:
        reset()


def reset() -> None:
    """No run of ours goes on any more."""
    global _apart
    if _apart:
        _apart = False
        gc.unfreeze()


def end_circles(*, of_all: bool = False) -> None:
    """What has come of late, or ever, and only holds itself goes now, unless Python was told not to look for such
    things."""
    if not looks_for_garbage():
        return
    if not (_apart or of_all):
        gc.collect(1)
        return
    in_a_row = 0
    for _ in range(_SEARCHES):
        in_a_row = 0 if gc.collect() else in_a_row + 1
        if in_a_row == _IN_VAIN:
            break


_SEARCHES, _IN_VAIN = 6, 2
"""What a compiled function holds goes only after it, and XLA lets go as the next search ends."""
_HELD_BY_NAMES = (types.FunctionType, types.ModuleType, type)


def forget_names(namespace: dict[str, object], known: Mapping[str, object]) -> None:
    """Let go of what a run of a cell has bound, the latest first, and end its generators that something else holds.
    The names that were `known` keep their order."""
    bound = [n for n, v in namespace.items() if n not in known or known[n] is not v]
    for name in reversed(bound):
        value = namespace[name]
        if type(value) is types.GeneratorType and value.gi_code.co_filename.startswith("<jitmagic "):
            with contextlib.suppress(Exception):
                value.close()
        in_circles = _apart and gc.is_tracked(value) and not isinstance(value, _HELD_BY_NAMES)
        del value
        if name in known:
            namespace[name] = known[name]
        else:
            del namespace[name]
        if in_circles:  # while what their ends use has its name still
            end_circles()
