"""Arrays of NumPy that are too large to be copied: while a run of ours goes on nothing can be written into them."""

from __future__ import annotations

import mmap
import types
import weakref
from collections.abc import Iterator

import numpy as np

from jitmagic.state.values import is_a
from jitmagic.tracing import messages

_shut: dict[int, tuple[np.ndarray, str, set[int]]] = {}
"""By `id`: the array, its path, and by whom (`id`s)."""
_written: dict[int, weakref.ref[np.ndarray]] = {}
"""Arrays into which a run has tried to write, though the source does not tell: copied from then on."""


def can_be_shut(array: np.ndarray) -> bool:
    """It can be written into, and is writeable again when it was made so again."""
    *_, last = _chain(array)
    return array.flags.writeable and (last.base is None or is_a(last.base, mmap.mmap)) and _is_open(array)


def is_written(array: np.ndarray) -> bool:
    """A run of ours has tried to write into it."""
    for key, held in list(_written.items()):
        other = held()
        if other is None:
            del _written[key]
        elif np.may_share_memory(array, other):
            return True
    return False


def shut(array: np.ndarray, path: str, by: object) -> None:
    """Nothing can be written into it until `unshut`, by all who have shut it."""
    if can_be_shut(array) or id(array) in _shut:
        _shut.setdefault(id(array), (array, path, set()))[2].add(id(by))
        array.flags.writeable = False


def unshut(array: np.ndarray, by: object) -> None:
    """As it was, where nobody else has shut it."""
    found = _shut.get(id(array))
    if found is None:
        return
    found[2].discard(id(by))
    if not found[2]:
        del _shut[id(array)]
        _open(array)


def any_shut() -> bool:
    """An array is shut."""
    return bool(_shut)


def unshut_all() -> None:
    """Whatever an interrupt has left shut."""
    while _shut:
        _open(_shut.popitem()[1][0])


def note_written(exc: BaseException) -> list[str]:
    """Paths of the shut arrays that this exception tells was tried to write into: they count as written from now on."""
    if not _shut or not is_a(exc, (ValueError, TypeError, BufferError)) or not messages.is_of_writing(exc):
        return []
    near = list(_arrays_near(exc.__traceback__))
    meant = [s for s in _shut.values() if any(np.may_share_memory(s[0], a) for a in near)] or [
        *_shut.values()
    ]
    _written.update({id(array): weakref.ref(array) for array, _, _ in meant})
    return list(dict.fromkeys(path for _, path, _ in meant))


def _arrays_near(trace: types.TracebackType | None) -> Iterator[np.ndarray]:
    while trace is not None:
        frame = trace.tb_frame
        named = (frame.f_globals.get(name) for name in frame.f_code.co_names)
        yield from (v for v in (*frame.f_locals.values(), *named) if is_a(v, np.ndarray))
        trace = trace.tb_next


def _chain(array: np.ndarray) -> Iterator[np.ndarray]:
    """The array, and those whose memory it shows."""
    shown: object = array
    while is_a(shown, np.ndarray):
        yield shown  # type: ignore[misc]
        shown = shown.base  # type: ignore[attr-defined]


def _is_open(array: np.ndarray) -> bool:
    return all(a.flags.writeable or id(a) in _shut for a in _chain(array))


def _open(array: np.ndarray) -> None:
    shut_still = [a for a in _chain(array) if not a.flags.writeable and a is not array]
    for shown in (*reversed(shut_still), array):
        shown.flags.writeable = True
    for shown in shut_still:
        shown.flags.writeable = False
