"""What other threads of the user's can reach while they run: what they write meanwhile is not ours to put back."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from jitmagic.state import values
from jitmagic.state.values import is_a

_LIMIT = 5000
_DECORATED = "<decorator-gen-"
"""The file of what the package `decorator` makes, as around the thread that saves the history of IPython 7."""


_home = [threading.main_thread().ident]
"""The thread that runs the cells."""


def cell_begins() -> None:
    """This thread runs a cell."""
    _home[0] = threading.get_ident()


def reached(functions: Iterable[types.FunctionType]) -> tuple[frozenset[int], frozenset[str]]:
    """Mutable objects, by `id`, that the code of the user's in other threads names, and the names that it has for
    global variables; empty where none runs. What another thread than the cells' calls, more may be about to call:
    then what these functions name is among it."""
    names: set[str] = set()
    todo = [v for thread in _others() for v in _begins(thread, names)]
    if threading.get_ident() != _home[0]:
        todo += functions
    found: dict[int, object] = {}
    while todo and len(found) < _LIMIT:
        value = todo.pop()
        atom = values.is_leaf(value) and not is_a(value, np.ndarray)
        if not atom and not is_a(value, types.ModuleType | type) and id(value) not in found:
            found[id(value)] = value
            todo += _next(value, names)
    return frozenset(found), frozenset(names)


def are_there() -> bool:
    """Threads run besides this one and those of the notebook: the user's, or a library's that work for the user."""
    return any(_works_for(thread) not in _HOSTS for thread in _others())


def is_guarded(value: object) -> bool:
    """An object with a lock that one thread fills for another: a queue, a future, an event."""
    if not any(values.module_of(cls).partition(".")[0] in _HANDING_OVER for cls in values.mro(type(value))):
        return False
    held = values.own_dict(value) or {}
    return any(is_a(v, (*_GUARDS, values.LOCK, values.REENTRANT)) for v in held.values())


def _works_for(thread: threading.Thread) -> str:
    """The package of what a thread does."""
    does = vars(thread).get("_target")
    does = does.__func__ if is_a(does, types.MethodType) else does
    if is_a(does, values.FUNCTIONS):
        return str(does.__module__).partition(".")[0]  # type: ignore[union-attr]
    return values.module_of(type(thread if does is None else does)).partition(".")[0]


_GUARDS = (threading.Condition, threading.Semaphore, threading.Event, threading.Barrier)
_HANDING_OVER = frozenset(("concurrent", "multiprocessing", "queue", "threading"))
"""Packages of Python's for that."""
_HOSTS = frozenset(
    "ipykernel IPython zmq tornado traitlets tqdm debugpy pydevd _pydevd_bundle asyncio marimo google jitmagic".split()
)
"""Packages whose threads serve the notebook, and touch nothing of the user's."""


def at_work(besides: Collection[int] = ()) -> str:
    """Name of a thread that runs code of the user's, besides these and this one; empty where there is none."""
    found = (t for t in _others() if t.ident not in besides and any(True for _ in _begins(t, set())))
    return next((thread.name for thread in found), "")


def _others() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t is not threading.current_thread()]


def _begins(thread: threading.Thread, names: set[str]) -> Iterator[object]:
    """What a thread will call, and what the functions of the user's that it is in know by a name."""
    yield from (
        v
        for v in vars(thread).copy().values()
        if values.is_users_function(v.__func__ if is_a(v, types.MethodType) else v)
    )
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        file = frame.f_code.co_filename
        if values.is_user_file(file) and not file.startswith(_DECORATED):
            yield from frame.f_locals.values()
            yield from _named(frame.f_code, frame.f_globals, names)
        frame = frame.f_back


def _named(code: types.CodeType, namespace: dict[str, object], names: set[str]) -> Iterator[object]:
    named = {n for c in values.codes_in(code) for n in c.co_names}
    names |= named
    yield from (namespace[n] for n in named if n in namespace)


def _next(value: Any, names: set[str]) -> Iterator[object]:
    if values.is_users_function(value):
        yield from values.cell_values(value)
        yield from _named(value.__code__, value.__globals__, names)
    elif is_a(value, types.MethodType | types.BuiltinFunctionType):
        yield from (value.__self__, getattr(value, "__func__", None))
    else:
        yield from (child for _, _, child in values.children(value))
