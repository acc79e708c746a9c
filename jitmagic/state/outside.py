"""What a run changes besides Python's own containers: positions in files, locks, buffers, settings of the process.

Each has an entry of a snapshot, which puts it back where that can be done, or a reason why it can't.
"""

from __future__ import annotations

import array
import contextvars
import ctypes
import gc
import io
import itertools
import logging
import operator
import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, MutableMapping
from typing import Any

import numpy as np

from jitmagic.source.tree import looks_for_garbage
from jitmagic.state import adapters, iterators, tables
from jitmagic.state.entries import (
    LARGEST,
    Entry,
    Kept,
    Keyed,
    Only,
    Origin,
    Sequence,
    random_state,
)
from jitmagic.state.values import LOCK, MISSING, REENTRANT, is_a, is_user_file, module_of, mro, own_dict
from jitmagic.tracing import compat

_CDATA: Any = ctypes.c_int.__mro__[-2]
READING = frozenset("read readline readlines tell seek readable writable seekable fileno isatty".split())
"""Methods of files after which they can be put back."""
_LOST = {
    "threading.Thread": "a thread",
    "subprocess.Popen": "another process",
    "multiprocessing.connection._ConnectionBase": "a connection to another process",
    "multiprocessing.process.BaseProcess": "another process",
    "matplotlib.artist.Artist": "a figure",
    "IPython.core.interactiveshell.InteractiveShell": "the notebook",
    "socket.socket": "a connection",
    "mmap.mmap": "a file in memory",
    "sqlite3.Connection": "a database",
    "sqlite3.Cursor": "a database",
    "_queue.SimpleQueue": "a queue that can only be emptied",
    "_ctypes._Pointer": "what a pointer leads to",
    "_ctypes.CFuncPtr": "a function of a C library",
    "ctypes.CDLL": "a C library",
    "coroutine": "a coroutine",
    "async_generator": "a generator",
}
"""What only ever goes on, by the full names of classes."""


def lost(cls: type) -> str:
    """What objects of this class are in words, where a run of them can't be put back; '' for other classes."""
    for base in mro(cls):
        module = module_of(base)
        name = f"{module}.{base.__qualname__}" if module != "builtins" else base.__qualname__
        if name in _LOST:
            return _LOST[name]
    return ""


def is_locked(value: Any) -> bool:
    """A lock that somebody holds."""
    return is_a(value, LOCK) and bool(value.locked())


def _taken(lock: Any) -> int:
    """How often this thread has taken a lock that it may take again."""
    count = re.search(r"count=(\d+)", repr(lock)) if lock._is_owned() else None
    return int(count[1]) if count else 0


def _take(lock: Any, wanted: int) -> None:
    for _ in range(_taken(lock) - wanted):
        lock.release()
    for _ in range(wanted - _taken(lock)):
        lock.acquire(blocking=False)


def is_file(value: object) -> bool:
    """An open file, or a buffer in memory that is used as one."""
    return is_a(value, io.IOBase)


def is_in_memory(value: object) -> bool:
    """A buffer that is put back."""
    return is_a(value, io.StringIO | io.BytesIO)


def is_standard(stream: object) -> bool:
    """One of the streams that every program has, or what stands in for one."""
    named = [
        getattr(sys, name, None)
        for name in ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
    ]
    return stream is not None and any(
        stream is s or stream is (own_dict(s) or {}).get("stream") for s in named
    )


def file(value: object, path: str, origin: Origin) -> Kept:
    """The entry of a file on the disk: where it stands. What it holds is never touched."""
    return Kept(value, path, origin, _position, _go_back)


def _position(file: Any) -> int | None:
    try:
        # to ask one that is only written would write what it has not written yet
        return int(file.tell()) if file.seekable() and file.readable() else None
    except (OSError, ValueError):  # a file that is read line by line does not tell where it stands
        return None


def _go_back(file: Any, position: int | None) -> None:
    if position is not None and not file.closed:
        file.seek(position)


def context(variable: object, path: str, origin: Origin) -> Kept:
    """The entry of a context variable: its value. Runs of ours have a context of their own. One that was not set can't
    be unset, and is its default then, or None."""
    return Kept(
        variable,
        path,
        origin,
        lambda v: v.get(_UNSET),
        lambda v, old: v.set(contextvars.Context().run(_or_default, v) if old is _UNSET else old),
        operator.is_,
        by_value=True,
    )


_UNSET = type(MISSING)()


def _or_default(variable: contextvars.ContextVar[Any]) -> object:
    try:
        return variable.get()
    except LookupError:
        return None


class Local(Keyed):
    """What a `threading.local` has in this thread."""

    def _now(self) -> dict[str, Any]:
        return dict(self.holder.__dict__)

    def _put(self, key: str, old: Any) -> None:
        delattr(self.holder, key) if old is MISSING else setattr(self.holder, key, old)


def entry_of(value: Any, path: str, origin: Origin) -> Entry | None:
    """The entry of an object that can be asked how it is and told to be so again; None for others."""

    def kept(read: Any, write: Any, same: Any = lambda a, b: bool(a == b)) -> Kept:
        return Kept(value, path, origin, read, write, same)

    if iterators.random_state(value) is not None:
        return random_state(value, path)
    if is_in_memory(value):
        return None if value.closed else kept(lambda v: v.__getstate__(), lambda v, old: v.__setstate__(old))
    if is_a(value, threading.local):
        return Local(value, path, "attribute", "attribute")
    if is_a(value, LOCK):
        return kept(LOCK.locked, lambda v, old: v.acquire(blocking=False) if old else v.release())
    if is_a(value, REENTRANT):
        return Kept(value, "", origin, _taken, _take)  # libraries hold some, of which nothing is told
    if is_a(value, bytearray):
        return kept(bytes, lambda v, old: v.__setitem__(slice(None), old)) if len(value) <= LARGEST else None
    if is_a(value, array.array):
        return kept(lambda v: v[:], lambda v, old: v.__setitem__(slice(None), old), _same_bytes)
    if is_a(value, ctypes.py_object):
        return kept(_pointed_at, lambda v, old: setattr(v, "value", old), lambda a, b: a is b)
    if is_a(value, _CDATA) and not is_a(value, ctypes._Pointer):
        return kept(_bytes_of, _put_bytes)
    if is_a(value, weakref.WeakValueDictionary | weakref.WeakKeyDictionary):
        return kept(lambda v: list(v.items()), _put_pairs, _same_pairs)
    if is_a(value, weakref.WeakSet):
        return kept(set, _put_members)
    if (kind := tables.kind_of(value)) == "Index":
        return kept(lambda v: list(v.names), lambda v, old: setattr(v, "names", old))
    return tables.entry_of(value, path, origin) if kind else None


def _put_members(weak: weakref.WeakSet[Any], old: set[Any]) -> None:
    for member in set(weak) - old:  # `intersection_update` would keep references that nobody tells of an end
        weak.discard(member)
    weak.update(old - set(weak))


def held(value: Any) -> Iterable[object]:
    """What stands in such an object, where no path leads to it."""
    if is_a(value, weakref.WeakValueDictionary | weakref.WeakKeyDictionary):
        return [part for pair in value.items() for part in pair]
    if is_a(value, weakref.WeakSet):
        return list(value)
    if tables.kind_of(value) in ("DataFrame", "Series"):
        return tables.held(value)
    return [_pointed_at(value)] if is_a(value, ctypes.py_object) else ()


def _pointed_at(pointer: Any) -> object:
    try:
        return pointer.value
    except ValueError:  # to nothing
        return MISSING


_living: Any = operator.attrgetter("_objects")
"""What a C value keeps alive for its pointers."""


def _bytes_of(data: Any) -> tuple[bytes, object]:
    """What a C value holds, and what has to live for its pointers."""
    lives = _living(data)
    return bytes(data), dict(lives) if is_a(lives, dict) else lives


def _put_bytes(data: Any, old: tuple[bytes, Any]) -> None:
    if is_a(old[1], bytes):  # where a `c_char_p` points to
        data.value = old[1]
        return
    ctypes.memmove(ctypes.byref(data), old[0], len(old[0]))
    if is_a(lives := _living(data), dict):
        lives.clear()
        lives.update(old[1] or {})


def _same_bytes(a: Any, b: Any) -> bool:
    return bool(a.tobytes() == b.tobytes())


def _same_pairs(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(k is q and v is w for (k, v), (q, w) in zip(a, b, strict=True))


def _put_pairs(holder: MutableMapping[Any, Any], old: list[tuple[Any, Any]]) -> None:
    wanted = {id(k) for k, _ in old}
    for key in [k for k, _ in holder.items() if id(k) not in wanted]:
        del holder[key]
    for key, value in old:
        if holder.get(key, MISSING) is not value:
            holder[key] = value


def process() -> list[Entry]:
    """Settings of the whole process: the environment, the module path, the directory, how libraries warn and print."""

    def setting(path: str, read: Any, write: Any) -> Kept:
        return Kept(None, path, "global", lambda _: read(), lambda _, old: write(old))

    found: list[Entry] = [
        setting("os.environ", _environment, _put_environment),
        setting("os.getcwd()", _directory, lambda old: os.chdir(old) if old else None),
        setting("np.geterr()", np.geterr, lambda old: np.seterr(**old)),
        setting("np.get_printoptions()", np.get_printoptions, lambda old: np.set_printoptions(**old)),
        setting("sys.getrecursionlimit()", sys.getrecursionlimit, sys.setrecursionlimit),
        setting("gc.isenabled()", looks_for_garbage, lambda old: gc.enable() if old else gc.disable()),
        setting("threading._counter", _numbers_given, _number_from),
        Sequence(sys.path, "sys.path"),
        Sequence(warnings.filters, "warnings.filters"),  # type: ignore[arg-type]
        Loggers(),
        Imported(),
    ]
    jax = sys.modules.get("jax")
    if jax is not None:
        # those of the thread first: what holds for all is asked for, and told, as the thread sees it
        found.append(setting("jax.config", compat.settings_of_thread, compat.put_settings_of_thread))
        found.append(setting("jax.config", lambda: dict(jax.config.values), _configure))
        found.append(setting("with mesh", compat.meshes_entered, compat.put_meshes_entered))
    for path, shared in adapters.environments():
        found += [Keyed(items, path, "item", "global") for items in (shared.settings, shared.functions)]
        found.append(Kept(shared.contexts, path, "global", _stacks, _put_stacks, _same_stacks))
    special: Any = sys.modules.get("scipy.special")
    if hasattr(special, "seterr"):
        found.append(setting("scipy.special.geterr()", special.geterr, lambda old: special.seterr(**old)))
    return found


def _stacks(contexts: Any) -> dict[Any, list[object]]:
    return {name: list(stack) for name, stack in contexts.items() if stack}


def _put_stacks(contexts: Any, old: dict[Any, list[object]]) -> None:
    for name, stack in contexts.items():
        stack[:] = old.get(name, ())


def _same_stacks(now: dict[Any, list[object]], old: dict[Any, list[object]]) -> bool:
    # of arrays that are equal it is not known which is which
    return [(n, *map(id, s)) for n, s in now.items()] == [(n, *map(id, s)) for n, s in old.items()]


def _configure(old: dict[str, Any]) -> None:
    config: Any = sys.modules["jax"].config
    for name, value in old.items():
        if config.values[name] != value:
            config.update(name, value)


def _environment() -> dict[Any, Any]:
    """What is set, as `os.environ` keeps it (private): to read each name and value takes half a millisecond."""
    return dict(getattr(os.environ, "_data", os.environ))


def _put_environment(old: dict[Any, Any]) -> None:
    now, same = _environment(), {"decodekey": lambda k: k, "decodevalue": lambda v: v}
    key, value = (getattr(os.environ, name, plain) for name, plain in same.items())
    for name in now.keys() - old.keys():
        del os.environ[key(name)]
    for name in [n for n, v in old.items() if n not in now or now[n] != v]:
        os.environ[key(name)] = value(old[name])


def _numbered() -> list[Any]:
    """What numbers those that have no name: threads, and pools of them."""
    pools = sys.modules.get("concurrent.futures.thread")
    return [threading, *([pools.ThreadPoolExecutor] if pools is not None else [])]


def _numbers_given() -> list[str]:
    """`count(3)` where the next thread without a name becomes `Thread-3`."""
    return [repr(getattr(getattr(holder, "_counter", None), "__self__", "")) for holder in _numbered()]


def _number_from(old: list[str]) -> None:
    for holder, then, now in zip(_numbered(), old, _numbers_given(), strict=False):
        if then != now and (number := re.fullmatch(r"count\((\d+)\)", then)):
            holder._counter = itertools.count(int(number[1])).__next__


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


class Loggers(Entry):
    """What loggers let pass, and where to. Those that a run of ours has made go, but for those named after modules of
    libraries, which keep them."""

    path = "logging"

    def __init__(self) -> None:
        self.names: dict[str, Any] = dict(logging.root.manager.loggerDict)
        loggers = [v for v in (logging.root, *self.names.values()) if is_a(v, logging.Logger)]
        self.old = [(logger, _of_logger(logger)) for logger in loggers]

    def restore(self, only: Only) -> None:
        if only:
            return
        for logger, old in self.old:
            if _of_logger(logger) != old:
                logger.setLevel(old[0])  # and what was remembered of it goes
                logger.propagate, logger.disabled, logger.handlers[:], logger.filters[:] = old[1:]
        registry = logging.root.manager.loggerDict
        for name in registry.keys() - self.names.keys():
            if name.partition(".")[0] not in sys.modules.keys() - {"__main__"}:
                del registry[name]
        registry.update(self.names)


def _of_logger(logger: logging.Logger) -> tuple[Any, ...]:
    return logger.level, logger.propagate, logger.disabled, [*logger.handlers], [*logger.filters]


class Imported(Entry):
    """Modules of the user's that a run of ours has imported: they run when the user's own call imports them. Those that
    the user's call has imported stay."""

    path = "sys.modules"

    def __init__(self) -> None:
        self.old = sys.modules.copy()

    def restore(self, only: Only) -> None:
        if only:
            return
        now = sys.modules.copy()
        if [*now] == [*self.old] and all(map(operator.is_, now.values(), self.old.values())):
            return  # as nearly always, of thousands
        others = [name for name, module in now.items() if self.old.get(name) is not module]
        for name in [*others, *(self.old.keys() - now.keys())]:
            module = self.old[name] if name in self.old else now[name]
            file = getattr(module, "__file__", None)
            if file and is_user_file(file):
                parent, _, last = name.rpartition(".")
                above = own_dict(sys.modules.get(parent)) or {}
                if name in self.old:
                    sys.modules[name] = above[last] = module
                    continue
                del sys.modules[name]
                if above.get(last) is module:
                    del above[last]
