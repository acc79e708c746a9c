"""What a run changes: remember everything a function reaches, tell what is different now, and put it back.

Bindings and the structure of containers and objects are kept by reference, so a snapshot costs time in
proportion to the number of objects, never to the size of the arrays. Small numpy arrays are copied, of large
ones a sample is kept: those can be seen to change but not be put back.
"""

from __future__ import annotations

import collections
import contextvars
import functools
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np

from jitmagic.evidence import Where, Write
from jitmagic.interrupts import deferred
from jitmagic.state import iterators, outside, values
from jitmagic.state.adapters import adapter_for
from jitmagic.state.entries import (
    MEGABYTE,
    Action,
    Binding,
    Cache,
    Change,
    Entry,
    Generator,
    Iterator_,
    Keyed,
    Namespace,
    Numpy,
    Origin,
    Sequence,
    Set,
    Suspended,
    Variable,
    is_special,
    origin_of,
    sample,
)  # fmt: skip
from jitmagic.state.paths import PathError, Place
from jitmagic.state.reached import Function, Reach
from jitmagic.state.reads import reads_of, seen_from_cell, writes_of
from jitmagic.state.values import MISSING, contains_tracer, is_a, short

__all__ = ["Snapshot", "sample", "short", "take"]

LIMIT = 20_000
DEPTH = 24
LONGEST = 200_000
LARGEST = 64 * MEGABYTE
"""Bytes up to which a numpy array is copied that a function writes into."""
_WRITES = 200


def take(reach: Reach, known: Collection[int] = ()) -> Snapshot:
    """Remember everything that `reach` leads to, mutable arguments and random states included; not what is `known`
    by identity."""
    return Snapshot(reach, known)


class Snapshot:
    """Everything a function reaches, as it was. Keeps references, so drop it when the run is over."""

    def __init__(self, reach: Reach, known: Collection[int] = (), also: Iterable[Any] = ()) -> None:
        self._reach, self._known = reach, known
        self.functions = reach.functions
        self.unrestorable: list[str] = []
        """Paths of what cannot be put back: generators, large numpy arrays, containers that are too long."""
        self.drained: list[str] = []
        """Of these, paths of generators, readers and files: what a run takes from them is gone."""
        self._entries: list[Entry] = []
        self._seen: dict[int, Any] = {}
        self._todo: collections.deque[tuple[Place, Any, int]] = collections.deque()
        for root in reach.roots:
            self._root(root.place, root.origin)
        self._surroundings(reach)
        for value in also:
            self._todo.append((Place("<held>", "global", "global", "held", holder={"held": value}), value, 0))
        while self._todo and len(self._seen) < LIMIT:
            self._visit(*self._todo.popleft())

    def _root(self, place: Place, origin: str) -> None:
        if origin not in ("argument", "default"):
            self._entries.append(Binding(place, origin_of(place)))
        self._todo.append((place, place.look(), 0))

    def _surroundings(self, reach: Reach) -> None:
        for fn in reach.functions:
            self._entries.append(Keyed(fn, _display(fn), "attribute", "attribute"))
            held = Place(_display(fn), "global", "global", "fn", holder={"fn": fn})
            self._todo += [(held.below("attribute", k), v, 1) for k, v in fn.__dict__.items()]
        for cls in reach.classes:
            self._entries.append(Keyed(cls, cls.__name__, "attribute", "attribute"))
            held = Place(cls.__name__, "global", "global", "cls", holder={"cls": cls})
            own = [(k, v) for k, v in values.class_dict(cls).items() if not is_special(k) and _is_data(v)]
            self._todo += [(held.below("attribute", k), v, 1) for k, v in own]
        for namespace in reach.namespaces:
            self._entries.append(Namespace(namespace))
        self._entries += [Cache(cached, name) for name, cached in reach.caches if name]
        for name, generator in iterators.global_random_states():
            self._entries.append(Generator(generator, name))
        for name, module in _modules(reach.functions):
            self._entries.append(Keyed(module, name, "attribute", "attribute"))
        self._entries.append(outside.Process())

    def _visit(self, place: Place, value: Any, depth: int) -> None:
        if _is_atom(value) or id(value) in self._seen or id(value) in self._known:
            return
        self._seen[id(value)] = value
        if type(value) in (dict, list, tuple, set):
            if depth < DEPTH:
                self._structure(value, place, depth)
            return
        if is_a(value, np.ndarray):
            self._numpy(value, place)
            return
        if adapter_for(value) is not None:
            self._entries.append(Variable(value, place.path))
            return
        if iterators.random_state(value) is not None:
            self._entries.append(Generator(value, place.path))
            return
        if iterators.is_iterator(value):
            self._iterator(value, place)
            return
        if outside.is_file(value):
            file = outside.File(value, place.path, origin_of(place))
            self._entries.append(file)
            self._drains(place) if not file.restorable and not value.closed else None
            return
        if is_a(value, contextvars.ContextVar):
            self._entries.append(outside.Context(value, place.path, origin_of(place)))
            return
        if outside.is_drained(value):
            self._drains(place)
            return
        if depth < DEPTH:
            self._structure(value, place, depth)

    def _numpy(self, array: np.ndarray, place: Place) -> None:
        if array.dtype.hasobject:
            return
        if array.nbytes <= MEGABYTE or not array.flags.writeable or not self._is_written(place.path):
            self._entries.append(Numpy(array, place.path))
            return
        self._entries.append(Numpy(array, place.path, LARGEST))
        if array.nbytes > LARGEST:
            self._drains(place)

    def _is_written(self, path: str) -> bool:
        try:
            return bool(writes_of(path, self.functions))
        except Exception:
            return False

    def _iterator(self, value: Any, place: Place) -> None:
        if is_a(value, types.GeneratorType):
            self._entries.append(Suspended(value, place))
            self._drains(place)
            return
        entry = Iterator_(value, place)
        self._entries.append(entry)
        if not entry.restorable:
            self._drains(place)

    def _drains(self, place: Place) -> None:
        self.unrestorable.append(place.path)
        self.drained.append(place.path)

    def _structure(self, value: Any, place: Place, depth: int) -> None:
        sized = is_a(value, dict | list | set | collections.deque)
        if sized and len(value) > LONGEST:
            self.unrestorable.append(place.path)
            return
        if is_a(value, dict):
            self._entries.append(Keyed(value, place.path, "item", "item"))
        elif is_a(value, list | collections.deque):
            self._entries.append(Sequence(value, place.path))
        elif is_a(value, set):
            self._entries.append(Set(value, place.path))
        if not is_a(value, tuple | set) and values.is_walkable(value) and _has_attributes(value):
            self._entries.append(Keyed(value, place.path, "attribute", "attribute"))
        room = LIMIT - len(self._seen)
        for (kind, key, child), _ in zip(values.children(value), range(room), strict=False):
            if not _is_atom(child) and id(child) not in self._seen:
                self._todo.append((place.below(kind, key), child, depth + 1))  # type: ignore[arg-type]
        if is_a(value, types.MethodType):
            self._todo.append((place, value.__self__, depth + 1))

    @property
    def objects(self) -> list[Any]:
        """The mutable objects that are remembered."""
        return list(self._seen.values())

    def again(self) -> Snapshot:
        """The same things as they are now, and what has come to be reached since."""
        return Snapshot(self._reach, self._known, self.objects)

    def changes(self, besides: Iterable[object] = ()) -> list[Write]:
        """What is different now, at most a few hundred writes. A path that changed twice is told once, and the
        frameworks' variables in `besides` by no path."""
        found: dict[str, Write] = {}
        known = {id(v) for v in besides}
        for entry in self._entries:
            if isinstance(entry, Variable) and id(entry.variable) in known:
                continue
            for path, origin, action, old, new in _guarded(entry.changes):
                if path not in found and len(found) < _WRITES:
                    found[path] = self._write(path, origin, action, old, new)
        return list(found.values())

    def _write(self, path: str, origin: Origin, action: Action, old: Any, new: Any) -> Write:
        where = first_write(path, self.functions)
        return Write(path, origin, action, contains_tracer(new), where, short(old), short(new))

    def restore(self, *, only_tracers: bool = False) -> None:
        """Put everything back; with `only_tracers`, just the places that hold a tracer now."""
        with deferred():
            for entry in self._entries:
                try:
                    entry.restore(contains_tracer if only_tracers else None)
                except Exception:  # one thing that cannot be put back must not keep the others
                    if entry.path not in self.unrestorable:
                        self.unrestorable.append(entry.path)


def first_write(path: str, functions: Iterable[Function]) -> Where | None:
    """The statement that probably made a change: the best static write, else the first read; of a helper in
    another file, the place in the cell that leads there."""
    functions = tuple(functions)
    for places in (writes_of, reads_of):
        try:
            found = seen_from_cell(path, places(path, functions), functions)
        except Exception:
            continue
        if found:
            return found[0]
    return None


def _modules(functions: Iterable[Function]) -> Iterator[tuple[str, types.ModuleType]]:
    """The user's own modules that these functions name."""
    found: dict[int, tuple[str, types.ModuleType]] = {}
    for fn in functions:
        for name in fn.__code__.co_names:
            value = fn.__globals__.get(name)
            if isinstance(value, types.ModuleType) and values.is_user_module(value):
                found.setdefault(id(value), (name, value))
    yield from found.values()


def _is_data(value: Any) -> bool:
    return not callable(value) and not is_a(value, property | staticmethod | classmethod)


def _is_atom(value: Any) -> bool:
    if is_a(value, np.ndarray):
        return False
    atoms = (types.ModuleType, type, types.CodeType, *values.FUNCTIONS)
    return value is MISSING or values.is_leaf(value) or is_a(value, atoms)


def _has_attributes(value: Any) -> bool:
    return not is_a(value, functools.partial) and (
        values.own_dict(value) is not None or bool(values.raw_attributes(value))
    )


def _display(fn: Function) -> str:
    return fn.__name__


def _guarded(changes: Callable[[], Iterator[Change]]) -> list[Change]:
    try:
        return list(changes())
    except (Exception, PathError):
        return []
