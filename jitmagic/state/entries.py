"""What a snapshot is made of: a binding, a container, an array, an iterator, each as it was.

Every entry can tell what changed and put itself back."""

from __future__ import annotations

import collections
import functools
import gc
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from jitmagic import patches
from jitmagic.state import contents, iterators, paths, shut, values
from jitmagic.state.adapters import WRITTEN, adapter_for
from jitmagic.state.contents import CONTENTS, INSIDE, Key
from jitmagic.state.paths import Place
from jitmagic.state.values import MISSING, contains_tracer, is_a, on_host

MEGABYTE = 1 << 20
LARGEST = 64 * MEGABYTE
"""Bytes up to which something is copied that may be written."""
Function = types.FunctionType
Origin = Literal["global", "closure", "attribute", "item", "argument"]
Action = Literal["bound", "changed", "added", "removed"]
Change = tuple[str, Origin, Action, Any, Any]
"""Path, origin, action, value before, value now."""
Difference = tuple[Key, Any, Any]
"""Key in the holder, value before, value now."""
Only = Callable[[Key, Any], bool] | None
NOWHERE: Key = ("", None)
"""The key of what is no part of a holder."""


class Entry:
    """One thing remembered. `changes` compares, `restore` puts back; `only` restores what it is true of."""

    path: str

    def changes(self) -> Iterator[Change]:
        """What is different now."""
        return iter(())

    def differences(self) -> Iterator[Difference]:
        """The same by key, every other object included."""
        return iter(())

    def restore(self, only: Only) -> None:
        """Put back what differs."""

    def stand_in(self, memo: dict[int, object]) -> None:
        """Put something like it in its place, where a run would use it up; `memo` has those made so far, by `id`."""


class Binding(Entry):
    """One place: a global, a closure cell, an attribute or item by itself."""

    def __init__(self, place: Place, origin: Origin) -> None:
        self.place, self.origin, self.path, self.old = place, origin, place.path, place.look()

    def changes(self) -> Iterator[Change]:
        now = self.place.look()
        if not _same(now, self.old):
            yield self.path, self.origin, _action(self.old, now), self.old, now

    def restore(self, only: Only) -> None:
        for key, old, new in self.differences():
            if not only or only(key, new):
                self.place.delete() if old is MISSING else self.place.put(old)

    def differences(self) -> Iterator[Difference]:
        if (now := self.place.look()) is not self.old:
            yield self.place.step, self.old, now


class Keyed(Entry):
    """The items of a dict, the names of a namespace, or the attributes of an object, class or function."""

    def __init__(
        self, holder: Any, path: str, kind: Literal["item", "name", "attribute"], origin: Origin
    ) -> None:
        self.holder, self.path, self.kind, self.origin = holder, path, kind, origin
        self.old = self._now()

    def _now(self) -> dict[Any, Any]:
        if self.kind == "item":
            return contents.items_of(self.holder)
        if self.kind == "name":
            return {k: v for k, v in self.holder.copy().items() if not is_special(k)}
        if is_a(self.holder, type):
            return {k: v for k, v in values.class_dict(self.holder).items() if not is_special(k)}
        if is_a(self.holder, Function):
            return dict(self.holder.__dict__)
        if is_a(self.holder, types.ModuleType):
            return patches.without(self.holder, vars(self.holder).copy())
        return values.raw_attributes(self.holder)

    def differences(self) -> Iterator[Difference]:
        now = self._now()
        if contents.same_items(now, self.old):
            return
        for key in [*self.old, *(k for k in now if k not in self.old)]:
            old, new = self.old.get(key, MISSING), now.get(key, MISSING)
            if new is not old:
                yield (self.kind, key), old, new

    def _traced_keys(self) -> list[object]:
        """Traced values that became keys; one whose trace has ended can't even be hashed."""
        keys = values.whole(lambda: list(dict.keys(self.holder))) if self.kind == "item" else ()
        return [k for k in keys if values.is_traced_key(k)]

    def changes(self) -> Iterator[Change]:
        for key in self._traced_keys():
            yield self.path, self.origin, "added", MISSING, key
        for (_, key), old, new in self.differences():
            if not _same(old, new):
                action = _action(old, new)
                if self.kind == "item" and action == "bound":
                    action = "added"
                step = key if self.kind == "name" else values.step_text(self.kind, key)
                yield self.path + step, self.origin, action, old, new

    def restore(self, only: Only) -> None:
        if self._traced_keys():  # which can't be taken out one by one
            kept = self._now()
            contents.dict_type(self.holder).clear(self.holder)
            contents.put_items(self.holder, kept)
        if self.kind == "item" and not only:
            contents.put_items(self.holder, self.old)
            return
        found = self.differences()
        for key, old in [(k, old) for (_, k), old, new in found if not only or only((self.kind, k), new)]:
            self._put(key, old)
        own = values.own_dict(self.holder) if self.kind == "attribute" else None
        if own is not None and not only:
            contents.put_in_order(own, [k for k in self.old if k in own])

    def _put(self, key: Any, old: object) -> None:
        paths.store(self.holder, self.kind, key, old, self.path)


class Sequence(Entry):
    """The items of a list or deque."""

    def __init__(self, holder: Any, path: str) -> None:
        self.holder, self.path, self.old = holder, path, contents.sequence_of(holder)

    def changes(self) -> Iterator[Change]:
        old, now = self.old, contents.sequence_of(self.holder)
        for i in range(min(len(old), len(now))):
            if not _same(old[i], now[i]):
                yield f"{self.path}[{i}]", "item", "changed", old[i], now[i]
        for i in range(len(old), len(now)):
            yield f"{self.path}[{i}]", "item", "added", MISSING, now[i]
        for i in range(len(now), len(old)):
            yield f"{self.path}[{i}]", "item", "removed", old[i], MISSING

    def differences(self) -> Iterator[Difference]:
        now = contents.sequence_of(self.holder)
        if len(now) != len(self.old):
            yield CONTENTS, self.old, now
            return
        yield from (
            (("item", i), a, b) for i, (a, b) in enumerate(zip(self.old, now, strict=True)) if a is not b
        )

    def restore(self, only: Only) -> None:
        wanted = self.old
        if only:
            wanted = contents.without(contents.sequence_of(self.holder), self.old, only)
        contents.put_sequence(self.holder, wanted)


class Set(Entry):
    """The members of a set."""

    def __init__(self, holder: set[object], path: str) -> None:
        self.holder, self.path, self.old = holder, path, set(holder)

    def changes(self) -> Iterator[Change]:
        now = set(self.holder)  # asks no member for its hash
        traced = [v for v in now if values.is_traced_key(v)]
        yield from ((self.path, "item", "added", MISSING, v) for v in traced)
        if traced:
            contents.untraced(now)
        yield from ((self.path, "item", "added", MISSING, v) for v in now - self.old)
        yield from ((self.path, "item", "removed", v, MISSING) for v in self.old - now)

    def differences(self) -> Iterator[Difference]:
        if (
            len(now := set(self.holder)) != len(self.old)
            or any(map(values.is_traced_key, now))
            or now != self.old
        ):
            yield CONTENTS, self.old, list(now)

    def restore(self, only: Only) -> None:
        contents.untraced(self.holder)
        if not only or any(only(CONTENTS, v) for v in set(self.holder) - self.old):
            contents.put_members(self.holder, self.old)


class Numpy(Entry):
    """The contents of a numpy array: a copy of one of up to `limit` bytes; a sample of a larger one, into which a run
    of ours can't write."""

    def __init__(self, array: np.ndarray, path: str, limit: int = MEGABYTE) -> None:
        self.array, self.path, self.writeable = array, path, array.flags.writeable
        self.copy = np.array(array) if array.nbytes <= limit else None
        self.sample = None if self.copy is not None else sample(array)

    def _changed(self) -> bool:
        if self.copy is None:
            return sample(self.array) != self.sample
        if self.array.shape != self.copy.shape or self.array.dtype != self.copy.dtype:
            return True
        if self.array.dtype.hasobject:
            return any(a is not b for a, b in zip(_items(self.array), _items(self.copy), strict=True))
        now = np.ascontiguousarray(self.array)
        return not np.array_equal(now.reshape(-1).view(np.uint8), self.copy.reshape(-1).view(np.uint8))

    def changes(self) -> Iterator[Change]:
        if self._changed():
            yield self.path, "item", "changed", self.array, self.array

    def stand_in(self, memo: dict[int, object]) -> None:
        if self.copy is None and self.writeable:
            shut.shut(self.array, self.path, self)

    def restore(self, only: Only) -> None:
        if self.copy is None:
            shut.unshut(self.array, self)
            return
        if only and not only(NOWHERE, self.array):
            return
        if self._changed():
            self._put(self.copy)
        if self.array.flags.writeable != self.writeable:
            self.array.setflags(write=self.writeable)

    def _put(self, copy: np.ndarray) -> None:
        if not self.array.flags.writeable:
            self.array.setflags(write=True)
        with patches.unwarned(DeprecationWarning):
            if self.array.dtype != copy.dtype:
                self.array.dtype = copy.dtype  # type: ignore[misc]
            if self.array.size != copy.size:  # it was resized in place, and so it is again
                self.array.resize(copy.shape, refcheck=False)
            elif self.array.shape != copy.shape:
                self.array.shape = copy.shape
        self.array.view(np.ndarray)[...] = copy  # a masked array would take its mask off


def _items(array: np.ndarray) -> Iterator[object]:
    """The objects that an array of objects, or of records with some, refers to."""
    for item in array.reshape(-1).tolist():
        yield from item if array.dtype.names else (item,)


class Kept(Entry):
    """Something that can be asked how it is, and be told to be so again; without a path nothing is told of it.

    `by_value`: what it holds is told, and put back where that is a traced value."""

    def __init__(
        self, holder: Any, path: str, origin: Origin, read: Callable[[Any], Any],
        write: Callable[[Any, Any], object], same: Callable[[Any, Any], bool] = lambda a, b: bool(a == b),
        *, by_value: bool = False,
    ) -> None:  # fmt: skip
        self.holder, self.path, self.origin, self.by_value = holder, path, origin, by_value
        self.read, self.write, self.same, self.old = read, write, same, read(holder)

    def changes(self) -> Iterator[Change]:
        now = self.read(self.holder)
        if self.path and not self.same(now, self.old):
            then, now = (self.old, now) if self.by_value else (self.holder, self.holder)
            yield self.path, self.origin, "changed", then, now

    def restore(self, only: Only) -> None:
        now = self.read(self.holder)
        changed = self.by_value and only(INSIDE, now) if only else not self.same(now, self.old)
        if changed and self.old is not MISSING:
            self.write(self.holder, self.old)


def random_state(generator: object, path: str) -> Kept:
    """The entry of a random state."""
    return Kept(
        generator, path, "global", iterators.random_state, iterators.set_random_state, iterators.same_state
    )


class VariableEntry(Kept):
    """The value of a framework's variable."""

    def __init__(self, variable: object, path: str) -> None:
        adapter = adapter_for(variable)
        assert adapter is not None

        def read(holder: object) -> object:
            try:
                return adapter.read(holder)
            except Exception:
                return MISSING

        same = _same_in_ref if adapter.name == "jax.Ref" else _same
        super().__init__(variable, path, "attribute", read, adapter.write, same, by_value=True)
        self.written = values.raw_get(variable, WRITTEN)

    def restore(self, only: Only) -> None:
        super().restore(only)
        if not only and values.raw_get(self.holder, WRITTEN) is not self.written:
            object.__setattr__(self.holder, WRITTEN, self.written)

    def changes(self) -> Iterator[Change]:
        yield from (change for change in super().changes() if not same_arrays(change[-1], self.old))

    def differences(self) -> Iterator[Difference]:
        if (now := self.read(self.holder)) is not self.old:
            yield INSIDE, self.old, now


def _same_in_ref(now: object, old: object) -> bool:
    # the value of a Ref is a new array each time
    return now is old or np.array_equal(on_host(now), on_host(old))


def suspended(generator: types.GeneratorType[object, object, object], place: Place) -> Kept:
    """The entry of a generator: that it moved can be seen from its frame; it cannot be put back."""
    return Kept(generator, place.path, origin_of(place), _stands_at, lambda generator, old: None)


def _stands_at(generator: types.GeneratorType[object, object, object]) -> object:
    frame = generator.gi_frame
    return None if frame is None else (frame.f_lasti, [id(v) for v in frame.f_locals.values()])


class Iterator_(Entry):
    """Where an iterator stands. It is rewound, or replaced at its place by one that stands there."""

    def __init__(self, iterator: object, place: Place) -> None:
        self.original = self.iterator = iterator
        self.place, self.path = place, place.path
        self.index, self.copy = iterators.position(iterator), iterators.copied(iterator)

    def _moved(self) -> bool:
        if self.index is not None:
            return iterators.position(self.iterator) != self.index
        return self.copy is not None and _repr_of(self.iterator) != _repr_of(self.copy)

    def changes(self) -> Iterator[Change]:
        if self._moved():
            yield self.path, origin_of(self.place), "changed", self.iterator, self.iterator

    def restore(self, only: Only) -> None:
        if self.iterator is not self.original:
            if not only:
                self.iterator = self.original  # which is at its place again, and was not touched
        elif not only and self._moved():
            if self.index is None or not iterators.rewind(self.iterator, self.index):
                fresh = iterators.copied(self.copy)
                if fresh is not None:
                    self.place.put(fresh)
                    self.original = self.iterator = fresh

    def stand_in(self, memo: dict[int, object]) -> None:
        if self.place.exists():  # the notebook may have had nothing under this name when the cell began
            self.iterator = iterators.copied(self.original, memo)
            self.place.put(self.iterator)


class Cache(Entry):
    """The memory of `functools.lru_cache`: a run of ours gets one of its own, for what came in can't be taken out."""

    def __init__(self, cached: Any, place: Place) -> None:
        self.original = self.cached = cached
        self.place, self.path, self.old = place, place.path, cached.cache_info()

    def _held(self) -> list[object]:
        own = values.own_dict(self.cached)
        parts = [v for v in gc.get_referents(self.cached) if v is not own and not is_a(v, Function | type)]
        return [v for part in parts for v in (_linked(part) if type(part) is dict else [part])]

    def changes(self) -> Iterator[Change]:
        # A table remembered by plain numbers is what such a cache is for; a traced value in it is a leak.
        grown = self.cached.cache_info().misses != self.old.misses and self.cached.cache_info().currsize
        if grown and contains_tracer(held := self._held()):
            yield self.path, "global", "added", MISSING, held

    def restore(self, only: Only) -> None:
        if not only:
            self.cached, self.old = self.original, self.original.cache_info()
        elif self.cached.cache_info().misses != self.old.misses and only(NOWHERE, self._held()):
            self.cached.cache_clear()
            self.old = self.cached.cache_info()

    def stand_in(self, memo: dict[int, object]) -> None:
        if not self.place.exists():
            return
        original: Any = self.original
        fresh: Any = memo.get(id(original))
        if fresh is None:
            make = functools.lru_cache(**original.cache_parameters())
            fresh = memo[id(original)] = make(original.__wrapped__)
            fresh.__dict__.update(values.own_dict(self.original) or {})
        self.place.put(fresh)
        self.cached, self.old = fresh, fresh.cache_info()


def _linked(memory: dict[object, object]) -> list[object]:
    # With a maximum size the values are link objects, which refer to key and result.
    return [v for link in list(memory.values()) for v in (link, *gc.get_referents(link))]


def parts(value: object, path: str, *, attributes: bool) -> list[Entry]:
    """The entries of what is directly in a container, and of its attributes."""
    found: list[Entry] = []
    if is_a(value, dict):
        found.append(Keyed(value, path, "item", "item"))
    elif is_a(value, list | collections.deque):
        found.append(Sequence(value, path))
    elif is_a(value, set):
        found.append(Set(value, path))
    if attributes and not is_a(value, tuple | set | functools.partial):
        found.append(Keyed(value, path, "attribute", "attribute"))
    return found


def sample(array: np.ndarray) -> tuple[object, ...]:
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
    if is_a(a, functools._lru_cache_wrapper) and is_a(b, functools._lru_cache_wrapper):
        return a.__wrapped__ is b.__wrapped__  # a run of ours has a memory of its own
    return type(a) is type(b) and type(a) in values.SCALARS and (a == b or (a != a and b != b))


def same_arrays(a: Any, b: Any) -> bool:
    """Arrays of jax of one type with the same numbers: a cell that is run again makes new ones, and a framework's `jit`
    puts such into variables that nobody writes."""
    if not (values.is_jax_array(a) and values.is_jax_array(b)) or values.is_tracer(a) or values.is_tracer(b):
        return False
    if (a.shape, a.dtype) != (b.shape, b.dtype) or a.nbytes > MEGABYTE:
        return False
    try:
        return a.weak_type == b.weak_type and on_host(a).tobytes() == on_host(b).tobytes()
    except Exception:  # a key, or an array that was given away
        return False


def _action(old: object, new: object) -> Action:
    return "bound" if old is MISSING else "removed" if new is MISSING else "changed"


def origin_of(place: Place) -> Origin:
    """Where a place belongs, in the words of a `Write`."""
    if place.origin == "argument":
        return "argument"
    return place.kind if place.parent is None or place.kind != "global" else "global"


def is_special(name: object) -> bool:
    """A name of Python's own machinery, which is left alone."""
    return not isinstance(name, str) or name.startswith("__") or name in ("_abc_impl",)


def _repr_of(iterator: object) -> object:
    # Without a position, two iterators stand at the same place where they spell the same.
    return repr(iterator) if type(iterator).__name__ in ("count", "repeat") else _reduced(iterator)


def _reduced(iterator: object) -> object:
    try:
        reduced = iterators.reduced(iterator)
    except Exception:
        return None
    return _plain(reduced)


def _plain(value: Any) -> object:
    if is_a(value, tuple):
        return tuple(map(_plain, value))
    if iterators.is_iterator(value):
        return _reduced(value)
    if type(value) in (list, dict):
        return len(value)
    if type(value) is range:
        return repr(value)
    return value if type(value) in values.SCALARS else id(value)
