"""What a snapshot is made of: a binding, a container, an array, an iterator, each as it was.

Every entry can tell what changed and put itself back."""

from __future__ import annotations

import gc
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from jitmagic.state import iterators, paths, values
from jitmagic.state.adapters import adapter_for
from jitmagic.state.paths import Place
from jitmagic.state.values import MISSING, contains_tracer, is_a

MEGABYTE = 1 << 20
Function = types.FunctionType
Origin = Literal["global", "closure", "attribute", "item", "argument"]
Action = Literal["bound", "changed", "added", "removed"]
Change = tuple[str, Origin, Action, Any, Any]
"""Path, origin, action, value before, value now."""


class Entry:
    """One thing remembered. `changes` compares, `restore` puts back; `only` restores what it is true of."""

    path: str

    def changes(self) -> Iterator[Change]:
        """What is different now."""
        return iter(())

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        """Put back what differs."""


class Binding(Entry):
    """A name: a global, a closure cell."""

    def __init__(self, place: Place, origin: Origin) -> None:
        self.place, self.origin, self.path, self.old = place, origin, place.path, place.look()

    def changes(self) -> Iterator[Change]:
        now = self.place.look()
        if not _same(now, self.old):
            yield self.path, self.origin, _action(self.old, now), self.old, now

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        now = self.place.look()
        if now is self.old or (only and not only(now)):
            return
        if self.old is MISSING:
            self.place.delete()
        else:
            self.place.put(self.old)


class Keyed(Entry):
    """The items of a dict, or the attributes of an object, class or function."""

    def __init__(self, holder: Any, path: str, kind: Literal["item", "attribute"], origin: Origin) -> None:
        self.holder, self.path, self.kind, self.origin = holder, path, kind, origin
        self.old = self._now()

    def _now(self) -> dict[Any, Any]:
        if self.kind == "item":
            return {k: v for k, v in dict.items(self.holder) if not values.is_tracer(k)}
        if is_a(self.holder, type):
            return {k: v for k, v in values.class_dict(self.holder).items() if not is_special(k)}
        if is_a(self.holder, Function):
            return dict(self.holder.__dict__)
        return values.raw_attributes(self.holder)

    def _differences(self) -> Iterator[tuple[Any, Any, Any]]:
        now = self._now()
        for key, old in self.old.items():
            if (new := now.get(key, MISSING)) is not old:
                yield key, old, new
        for key, new in now.items():
            if key not in self.old:
                yield key, MISSING, new

    def _traced_keys(self) -> list[Any]:
        """Traced values that became keys; one whose trace has ended can't even be hashed."""
        return [k for k in self.holder if values.is_tracer(k)] if self.kind == "item" else []

    def changes(self) -> Iterator[Change]:
        for key in self._traced_keys():
            yield self.path, self.origin, "added", MISSING, key
        for key, old, new in self._differences():
            if not _same(old, new):
                action = _action(old, new)
                if self.kind == "item" and action == "bound":
                    action = "added"
                yield self.path + values.step_text(self.kind, key), self.origin, action, old, new

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        if self._traced_keys():
            kept = self._now()
            dict.clear(self.holder)
            dict.update(self.holder, kept)
        wrong = [(k, old) for k, old, new in self._differences() if not only or only(new)]
        if not wrong:
            return
        if self.kind == "item" and not only and list(self.old) != list(self.holder):
            dict.clear(self.holder)  # to keep the order
            dict.update(self.holder, self.old)
            return
        for key, old in wrong:
            self._put(key, old)

    def _put(self, key: Any, old: Any) -> None:
        if self.kind == "item":
            dict.pop(self.holder, key, None) if old is MISSING else dict.__setitem__(self.holder, key, old)
        elif old is MISSING:
            paths.delete_attribute(self.holder, key)
        else:
            paths.put_attribute(self.holder, key, old, self.path)


class Sequence(Entry):
    """The items of a list or deque."""

    def __init__(self, holder: Any, path: str) -> None:
        self.holder, self.path, self.old = holder, path, list(holder)

    def changes(self) -> Iterator[Change]:
        old, now = self.old, list(self.holder)
        for i in range(min(len(old), len(now))):
            if not _same(old[i], now[i]):
                yield f"{self.path}[{i}]", "item", "changed", old[i], now[i]
        for i in range(len(old), len(now)):
            yield f"{self.path}[{i}]", "item", "added", MISSING, now[i]
        for i in range(len(now), len(old)):
            yield f"{self.path}[{i}]", "item", "removed", old[i], MISSING

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        now = list(self.holder)
        if len(now) == len(self.old) and all(a is b for a, b in zip(now, self.old, strict=True)):
            return
        good = self.old if not only else self._without(now, only)
        if is_a(self.holder, list):
            list.__setitem__(self.holder, slice(None), good)
        else:
            self.holder.clear()
            self.holder.extend(good)

    def _without(self, now: list[Any], only: Callable[[Any], bool]) -> list[Any]:
        wrong = {i for i, v in enumerate(now) if only(v) and not (i < len(self.old) and self.old[i] is v)}
        if any(i < len(self.old) for i in wrong):
            return self.old
        return [v for i, v in enumerate(now) if i not in wrong]


class Set(Entry):
    """The members of a set."""

    def __init__(self, holder: set[Any], path: str) -> None:
        self.holder, self.path, self.old = holder, path, set(holder)

    def changes(self) -> Iterator[Change]:
        now = set(self.holder)
        yield from ((self.path, "item", "added", MISSING, v) for v in now - self.old)
        yield from ((self.path, "item", "removed", v, MISSING) for v in self.old - now)

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        if self.holder != self.old and (not only or any(map(only, self.holder - self.old))):
            self.holder.clear()
            self.holder.update(self.old)


class Numpy(Entry):
    """The contents of a numpy array: a copy of one of up to `limit` bytes, a sample of a larger one."""

    def __init__(self, array: np.ndarray, path: str, limit: int = MEGABYTE) -> None:
        self.array, self.path = array, path
        self.copy = array.copy() if array.nbytes <= limit else None
        self.sample = None if self.copy is not None else sample(array)

    def _changed(self) -> bool:
        if self.copy is None:
            return sample(self.array) != self.sample
        return self.array.shape != self.copy.shape or self.array.tobytes() != self.copy.tobytes()

    def changes(self) -> Iterator[Change]:
        if self._changed():
            yield self.path, "item", "changed", self.array, self.array

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        if only or self.copy is None or not self._changed() or not self.array.flags.writeable:
            return
        self.array[...] = self.copy


class Generator(Entry):
    """A random state."""

    def __init__(self, generator: Any, path: str) -> None:
        self.generator, self.path, self.old = generator, path, iterators.random_state(generator)

    def changes(self) -> Iterator[Change]:
        if not iterators.same_state(iterators.random_state(self.generator), self.old):
            yield self.path, "global", "changed", self.generator, self.generator

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        if not only:
            iterators.set_random_state(self.generator, self.old)


class Variable(Entry):
    """The value of a framework's variable."""

    def __init__(self, variable: Any, path: str) -> None:
        found = adapter_for(variable)
        assert found is not None
        self.variable, self.path, self.adapter, self.old = variable, path, found, self._read(found, variable)

    @staticmethod
    def _read(adapter: Any, variable: Any) -> Any:
        try:
            return adapter.read(variable)
        except Exception:
            return MISSING

    def changes(self) -> Iterator[Change]:
        now = self._read(self.adapter, self.variable)
        if self._differs(now) and not _equal(now, self.old):
            yield self.path, "attribute", "changed", self.old, now

    def _differs(self, now: Any) -> bool:
        if now is self.old or self.adapter.name != "jax.Ref":
            return not _same(now, self.old)
        # the value of a Ref is a new array each time
        return not np.array_equal(np.asarray(now), np.asarray(self.old))

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        now = self._read(self.adapter, self.variable)
        if self.old is not MISSING and (only(now) if only else self._differs(now)):
            self.adapter.write(self.variable, self.old)


class Iterator_(Entry):
    """Where an iterator stands. It is rewound, or replaced at its place by one that stands there."""

    def __init__(self, iterator: Any, place: Place) -> None:
        self.iterator, self.place, self.path = iterator, place, place.path
        self.index, self.copy = iterators.position(iterator), iterators.copied(iterator)

    @property
    def restorable(self) -> bool:
        return self.copy is not None or self.index is not None

    def _moved(self) -> bool:
        if self.index is not None:
            return iterators.position(self.iterator) != self.index
        return self.copy is not None and _repr_of(self.iterator) != _repr_of(self.copy)

    def changes(self) -> Iterator[Change]:
        if self._moved():
            yield self.path, origin_of(self.place), "changed", self.iterator, self.iterator

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        if only or not self._moved():
            return
        if self.index is not None and iterators.rewind(self.iterator, self.index):
            return
        fresh = iterators.copied(self.copy)
        if fresh is not None:
            self.place.put(fresh)
            self.iterator = fresh


class Suspended(Entry):
    """A generator: that it moved can be seen from its frame; it cannot be put back."""

    def __init__(self, generator: types.GeneratorType[Any, Any, Any], place: Place) -> None:
        self.generator, self.place, self.path = generator, place, place.path
        self.old = self._now()

    def _now(self) -> Any:
        frame = self.generator.gi_frame
        if frame is None:
            return None
        return frame.f_lasti, [id(v) for v in frame.f_locals.values()]

    def changes(self) -> Iterator[Change]:
        if self._now() != self.old:
            yield self.path, origin_of(self.place), "changed", self.generator, self.generator


class Cache(Entry):
    """The memory of `functools.lru_cache`: what it gained cannot be told apart, so it is emptied."""

    def __init__(self, cached: Any, path: str) -> None:
        self.cached, self.path, self.old = cached, path, cached.cache_info()

    def _held(self) -> list[Any]:
        own = values.own_dict(self.cached)
        parts = [v for v in gc.get_referents(self.cached) if v is not own and not is_a(v, Function | type)]
        return [v for part in parts for v in (_linked(part) if type(part) is dict else [part])]

    def changes(self) -> Iterator[Change]:
        # A table remembered by plain numbers is what such a cache is for; a traced value in it is a leak.
        grown = self.cached.cache_info().misses != self.old.misses and self.cached.cache_info().currsize
        if grown and contains_tracer(held := self._held()):
            yield self.path, "global", "added", MISSING, held

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        if self.cached.cache_info().misses != self.old.misses and (not only or only(self._held())):
            self.cached.cache_clear()
            self.old = self.cached.cache_info()


def _linked(memory: dict[Any, Any]) -> list[Any]:
    # With a maximum size the values are link objects, which refer to key and result.
    return [v for link in list(memory.values()) for v in (link, *gc.get_referents(link))]


class Namespace(Keyed):
    """All names of a module, for code that uses `globals()`."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__(namespace, "", "item", "global")

    def changes(self) -> Iterator[Change]:
        for key, old, new in self._differences():
            if not _same(old, new) and is_a(key, str) and not is_special(key):
                yield key, "global", _action(old, new), old, new

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        for key, old, new in list(self._differences()):
            if not only or only(new):
                self._put(key, old)


def sample(array: np.ndarray) -> tuple[Any, ...]:
    """Shape, dtype and a hash of at most 4096 elements spread over the array; cheap for any size."""
    shape: tuple[int, ...] = array.shape
    part = array
    if array.size > 4096:
        step = max(1, array.size // 4096)
        indices = np.unravel_index(np.arange(0, array.size, step)[:4096], shape)
        part = array[indices]
    return shape, str(array.dtype), hash(part.tobytes())


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and type(a) in values.SCALARS and (a == b or (a != a and b != b))


def _equal(a: Any, b: Any) -> bool:
    """Arrays of the same numbers: a framework's `jit` puts new ones even into variables that nobody writes."""
    if not (values.is_jax_array(a) and values.is_jax_array(b)) or values.is_tracer(a) or values.is_tracer(b):
        return False
    if (a.shape, a.dtype) != (b.shape, b.dtype) or a.nbytes > MEGABYTE:
        return False
    try:
        return np.array_equal(np.asarray(a), np.asarray(b))
    except Exception:  # a key, or an array that was given away
        return False


def _action(old: Any, new: Any) -> Action:
    return "bound" if old is MISSING else "removed" if new is MISSING else "changed"


def origin_of(place: Place) -> Origin:
    """Where a place belongs, in the words of a `Write`."""
    if place.origin == "argument":
        return "argument"
    return place.kind if place.parent is None or place.kind != "global" else "global"


def is_special(name: Any) -> bool:
    """A name of Python's own machinery, which is left alone."""
    return not isinstance(name, str) or name.startswith("__") or name in ("_abc_impl",)


def _repr_of(iterator: Any) -> Any:
    # Without a position, two iterators stand at the same place where they spell the same.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return repr(iterator) if type(iterator).__name__ in ("count", "repeat") else _reduced(iterator)


def _reduced(iterator: Any) -> Any:
    try:
        reduced = iterator.__reduce__()
    except Exception:
        return None
    return _plain(reduced)


def _plain(value: Any) -> Any:
    if is_a(value, tuple):
        return tuple(map(_plain, value))
    if iterators.is_iterator(value):
        return _reduced(value)
    if type(value) in (list, dict):
        return len(value)
    if type(value) is range:
        return repr(value)
    return value if type(value) in values.SCALARS else id(value)
