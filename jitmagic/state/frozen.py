"""What a compiled function goes on with: the values that were baked in, remembered, to see when they change."""

from __future__ import annotations

import array
import collections
import contextlib
import enum
import functools
import random
import time
import types
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from jitmagic import evidence
from jitmagic.evidence import Variable
from jitmagic.state import values
from jitmagic.state.adapters import adapter_for, is_of_framework, is_ref
from jitmagic.state.constants import is_input, size_of
from jitmagic.state.entries import same_arrays, sample
from jitmagic.state.iterators import is_iterator
from jitmagic.state.paths import Place, at_or_below
from jitmagic.state.reached import LeafValue, Reach, Root
from jitmagic.state.values import MISSING, contains_tracer, is_a, is_tracer, is_users_function, short
from jitmagic.state.wrappers import unwrap

_SMALL = 1 << 20
_ELEMENTS = 100_000
_LONG = 4096
METHOD = "method"
"""What a method is told as."""


def freeze(
    reach: Reach, variables: Iterable[Variable] | None = None, without: Collection[str] = ()
) -> Frozen:
    """Remember the values of a function's variables (of all that it reads, where none are given).

    Functions and arrays of more than 1 MB are kept by weak reference, scalars and strings by value, numpy
    arrays with a copy or sample of their contents, random states and inputs not at all.
    """
    wanted = None if variables is None else {v.path for v in variables}
    leaves = [leaf for leaf in reach.leaves() if not is_input(leaf)]
    if wanted is not None:
        known = {leaf.path for leaf in leaves}
        if not wanted <= known:
            leaves += [x for x in reach.leaves(used_only=False) if x.path in wanted - known]
        leaves = [leaf for leaf in leaves if leaf.path in wanted]
    # jax follows what a Ref holds by itself
    kept = [leaf for leaf in leaves if not (leaf.is_rng or _is_in_ref(leaf) or contains_tracer(leaf.value))]
    known = {leaf.path for leaf in kept}
    whole = _whole(reach, known, without)
    known |= {b.path for b in whole}
    every = [one for one in reach.values() if one.origin not in ("argument", "default")]
    others = [*_others(reach, every, known), *_methods(reach, every, known)]
    others = [b for b in others if not at_or_below(b.path, without)]
    return Frozen([*(Baked(leaf.path, leaf.place, leaf.value) for leaf in kept), *whole, *others])


def _whole(reach: Reach, known: Collection[str], without: Collection[str]) -> list[Baked]:
    """Containers that are gone through or measured, choices of an enum, and functions that are no Python functions."""
    found: list[Baked] = []
    for root in reach.roots:
        value = root.value
        if root.origin in ("argument", "default", "attribute") or root.path in known or value is MISSING:
            continue
        if any(at_or_below(path, (root.path,)) for path in without):
            continue
        if type(value) in (*_CONTAINERS, dict):
            if any(not u.steps for u in root.uses) and all(u.action == "read" for u in root.uses):
                found.append(_Measured(root.path, root.place, value))
        elif (function := _wrapped_function(value)) is not None:
            if all(u.action == "read" for u in root.uses):
                found.append(_Wrapped(root.path, root.place, value, function))
        elif is_a(value, enum.Enum) or _is_of_library(value):
            if all(u.action == "read" for u in root.uses):
                found.append(Baked(root.path, root.place, value))
        elif _holds_functions(value):  # `opt.update(...)` changes nothing in it
            told = any(at_or_below(path, (root.path,)) for path in known)
            if not told and all(u.action != "write" for u in root.uses):
                found.append(Baked(root.path, root.place, value))
    return found


def _others(reach: Reach, every: Iterable[Root], known: Collection[str]) -> list[Baked]:
    """What is not looked into (a table, a sparse matrix, a fraction), and the settings of modules that only the code
    of their framework reads (`deterministic` of a dropout)."""
    written = {root.path for root in reach.roots if any(u.action == "write" for u in root.uses)}
    found: list[Baked] = []
    for one in every:
        place, value = one.place, one.value
        if one.path in known or len(found) > _MOST_OTHERS:
            continue
        if _is_opaque(value):
            if one.path not in written and reach.may_read(place):
                found.append(_Opaque(one.path, place, value))
        elif is_of_framework(value) and adapter_for(value) is None and _settings(value):
            found.append(_Settings(one.path, place, value))
    return found


_MOST_OTHERS = 200


def _methods(reach: Reach, every: Iterable[Root], known: Collection[str]) -> list[Baked]:
    """The methods that run, of the first object of each class that a name leads to."""
    run = set(map(id, reach.functions))
    found: dict[str, Baked] = {}
    seen = set[tuple[str, int]]()
    for one in every:
        value, place = one.value, one.place
        cls = value if is_a(value, type) else type(value)
        at = evidence.root(one.path), id(cls)
        if at in seen or not values.is_user_class(cls):
            continue
        seen.add(at)
        names = [name for base in values.mro(cls) if values.is_user_class(base) for name in tuple(vars(base))]
        for name in dict.fromkeys(names):
            path = f"{one.path}.{name}"
            if path not in known and not run.isdisjoint(map(id, _functions(cls, name))):
                found[path] = _Method(path, place, name)
    return [*found.values()][:_MOST_OTHERS]


def _functions(cls: type, name: str) -> tuple[object, ...]:
    """The functions that a class of the user's, and those above it, have for an attribute: `super()` goes on."""
    bases = (vars(base) for base in values.mro(cls) if values.is_user_class(base))
    return tuple(_function_in(own[name]) for own in bases if name in own)


def _function_in(attribute: Any) -> types.FunctionType | None:
    """The function of what stands in a class."""
    if is_a(attribute, property):
        attribute = attribute.fget
    elif is_a(attribute, functools.cached_property | functools.partialmethod):
        attribute = attribute.func
    elif is_a(attribute, staticmethod | classmethod):
        attribute = attribute.__func__
    return unwrap(attribute)[1]


def _is_opaque(value: object) -> bool:
    """A value of a library's or of Python's that says nothing of what is in it."""
    if value is MISSING or values.is_leaf(value) or values.is_user_class(type(value)):
        return False
    if (
        callable(value) and values.module_of(type(value)).partition(".")[0] != "scipy"
    ):  # as `interp1d` makes them
        return False
    if is_a(value, _LOOKED_INTO) or adapter_for(value) is not None or is_iterator(value):
        return False
    return not is_of_framework(value)


def _settings(module: object) -> dict[str, object]:
    """Plain values among the attributes of a module."""
    return {k: v for k, v in (values.own_dict(module) or {}).items() if type(v) in values.SCALARS}


def _wrapped_function(value: object) -> types.FunctionType | None:
    """The user's function in one that is compiled: by `jax.jit`, or by the magic of its own cell."""
    if is_a(value, types.FunctionType | type | types.MethodType) or not callable(value):
        return None
    receiver, function = unwrap(value)
    return function if is_users_function(function) and receiver is None else None


def _is_of_library(value: object) -> bool:
    """`jnp.tanh`, `jax.nn.relu`, `np.sin` under a name of the notebook's."""
    if not callable(value) or is_a(value, type | types.ModuleType):
        return False
    module = getattr(value, "__module__", None) or type(value).__module__
    return isinstance(module, str) and module.partition(".")[0] in ("jax", "jaxlib", "numpy", "math")


def _holds_functions(value: Any) -> bool:
    """A named tuple of functions: what `optax.sgd` and its like make."""
    return (
        is_a(value, tuple) and hasattr(type(value), "_fields") and bool(value) and all(map(callable, value))
    )


def _is_in_ref(leaf: LeafValue) -> bool:
    return is_ref(leaf.value) or (leaf.place.adapter is not None and leaf.place.adapter.name == "jax.Ref")


_Check = tuple[Callable[[], object], object, str, bool]
"""How to look at a value, what it was, its path, and whether its contents may change."""


class Frozen:
    """The values that a compiled function goes on with."""

    def __init__(self, baked: list[Baked]) -> None:
        self._baked = {b.path: b for b in baked}
        self._checks = [(b.read, b.held, b.path, b.mutable) for b in baked if not b.costly]
        self._costly = [(b.read, b.held, b.path, b.mutable) for b in baked if b.costly]
        self._looks, self._next = 0, 0.0

    def changed(self) -> list[tuple[str, str, str]]:
        """Path, short text then and short text now of each value that is another one now. What takes long to look at
        is looked at in the first calls, and later on in a hundredth of the time."""
        found = self._changed(self._checks)
        if self._costly and (self._looks < _OFTEN or time.monotonic() > self._next):
            began = time.monotonic()
            found += self._changed(self._costly)
            now = time.monotonic()
            self._looks, self._next = self._looks + 1, now + 100 * (now - began)
        return found

    def _changed(self, checks: list[_Check]) -> list[tuple[str, str, str]]:
        found = []
        for read, held, path, mutable in checks:
            now = read()
            if (now is held or (type(held) is _Ref and now is held())) and not mutable:
                continue
            baked = self._baked[path]
            if not baked.same(now):
                found.append(baked.told(now))
        return found

    def forget(self, paths: Iterable[str]) -> None:
        """Do not look at these again."""
        gone = {path if path in self._baked else path.rpartition(".")[0] for path in paths}
        self._checks = [c for c in self._checks if c[2] not in gone]
        self._costly = [c for c in self._costly if c[2] not in gone]


_OFTEN = 20
_Ref = weakref.ref
_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
_LOOKED_INTO = (*_CONTAINERS, dict, functools.partial, types.ModuleType, types.CodeType, random.Random, np.ndarray,
    np.random.Generator, np.random.RandomState, BaseException, enum.Enum)  # fmt: skip
_DEPTH = 8
"""Functions within functions that are compared by what they hold."""


class Baked:
    """One value as it was, and how to look at it now."""

    costly = False
    """To look at it takes longer than a microsecond."""

    def __init__(self, path: str, place: Place, value: Any) -> None:
        self.path, self.text = path, short(value)
        self.read = _reader(place)
        self.held: Any = _reference(value)
        self.sample: object = _contents(value)
        self.mutable = is_a(value, np.ndarray) or type(value) in _CONTAINERS
        """Its contents may change while it stays the same object."""
        self.copy = value.copy() if is_a(value, np.ndarray) and value.nbytes <= _SMALL else None

    def same(self, now: object) -> bool:
        """Is this the value that was baked in, or one that makes no difference?"""
        old = self.held() if type(self.held) is _Ref else self.held
        if is_a(now, np.ndarray):
            return self._same_numpy(now)
        if now is old and old is not None:
            return self.sample is None or self.sample == _contents(now)
        if is_tracer(now):
            return True  # a trace is going on
        return _alike(old, now, self.sample)

    def _same_numpy(self, now: np.ndarray) -> bool:
        if self.copy is not None:
            same = (now.shape, now.dtype) == (self.copy.shape, self.copy.dtype)
            return same and now.tobytes() == self.copy.tobytes()
        return bool(sample(now) == self.sample)

    def told(self, now: object) -> tuple[str, str, str]:
        """Its path, and short texts of what it was and is."""
        return self.path, self.text, self.text_now(now)

    def text_now(self, now: object) -> str:
        """Short text of the value now; says so where only the contents differ."""
        text = short(now) or "gone"
        if text != self.text or _holds_functions(now):
            return text
        return f"another {text}" if is_a(now, types.FunctionType) else f"{text} with other values"


class _Method(Baked):
    """The code of a method of the object that is bound now: the cell of its class may have run again."""

    costly = True

    def __init__(self, path: str, place: Place, name: str) -> None:
        super().__init__(path, place, None)
        self.read = functools.partial(_code_of_method, place, name)
        self.text, self.held = METHOD, self.read()

    def same(self, now: object) -> bool:
        """Does it run the same code?"""
        return now is MISSING or now == self.held

    def text_now(self, now: object) -> str:
        """In words."""
        return f"another {METHOD}"


def _code_of_method(place: Place, name: str) -> object:
    value = place.look()
    if value is MISSING:
        return MISSING
    return _identity(_functions(value if is_a(value, type) else type(value), name), _DEPTH)


class _Opaque(Baked):
    """A value that is held against what is bound now: by identity, else by value where it is one, and by the arrays
    and bytes in it."""

    costly = True

    def __init__(self, path: str, place: Place, value: object) -> None:
        super().__init__(path, place, value)
        self.mutable = True
        self.arrays = [(weakref.ref(a), sample(a)) for a in _arrays_in(value)]
        self.sample = _bytes_of(value)
        with contextlib.suppress(TypeError):
            self.held = None if self.sample is not None else weakref.ref(value)

    def same(self, now: object) -> bool:
        """Is it the same object with the same contents, or an equal one?"""
        old = self.held() if type(self.held) is _Ref else self.held
        if is_tracer(now):
            return True
        if now is old and old is not None:
            kept = (a is not None and sample(a) == s for a, s in ((ref(), s) for ref, s in self.arrays))
            return self.sample == _bytes_of(now) and all(kept)
        if type(now).__name__ != self.text:
            return False
        if self.arrays or self.sample is not None:
            arrays = [s for _, s in self.arrays]
            return self.sample == _bytes_of(now) and arrays == [sample(a) for a in _arrays_in(now)]
        try:
            return type(now) is type(old) and _is_value(type(now)) and bool(now == old)
        except Exception:  # it cannot be compared
            return False


class _Settings(Baked):
    """The plain attributes of a framework's own module, which its code asks for while jax traces."""

    costly = True

    def __init__(self, path: str, place: Place, module: object) -> None:
        super().__init__(path, place, module)
        self.mutable, self.held, self.was = True, None, _settings(module)

    def same(self, now: object) -> bool:
        """Has a module of the same class the same settings?"""
        return is_tracer(now) or _settings(now) == self.was

    def told(self, now: object) -> tuple[str, str, str]:
        """The first setting that is another one."""
        is_now = _settings(now)
        name = next(k for k in (*self.was, *is_now) if self.was.get(k, MISSING) != is_now.get(k, MISSING))
        before, after = (short(s.get(name, MISSING)) or "gone" for s in (self.was, is_now))
        return f"{self.path}.{name}", before, after


def _is_value(cls: type) -> bool:
    """Objects of this class are equal by what they are: a fraction, a time, a path."""
    return cls.__hash__ not in (None, object.__hash__) and cls.__eq__ is not object.__eq__


def _bytes_of(value: object) -> object:
    """The length of an array of bytes or numbers, and a hash of them; of a long one, of some."""
    if not isinstance(value, bytearray | array.array):
        return None
    with memoryview(value).cast("B") as whole:
        return len(whole), hash(bytes(whole[:: max(1, len(whole) // _SMALL)]))


def _arrays_in(value: object) -> list[np.ndarray]:
    """The arrays of NumPy that an object of a library holds, as they were made: no views of them."""
    found: dict[int, np.ndarray] = {}
    todo, seen = [value], set[int]()
    while todo and len(seen) < _PARTS:
        one = todo.pop(0)
        if id(one) in seen or is_a(one, types.ModuleType | type | types.FunctionType):
            continue
        seen.add(id(one))
        if is_a(one, np.ndarray):
            while is_a(one.base, np.ndarray):
                one = one.base
            found[id(one)] = one
        elif type(one) not in values.SCALARS:
            todo += values.referents(one)
    return list(found.values())


_PARTS = 200
"""Parts of an object that are looked at for arrays."""


class _Measured(Baked):
    """A container of which only the number of items is held: what is in it is looked at by itself."""

    def __init__(self, path: str, place: Place, value: Collection[object]) -> None:
        super().__init__(path, place, value)
        self.items, self.mutable, self.text = len(value), True, self.text_now(value)
        self.held = self.sample = None

    def same(self, now: object) -> bool:
        """Are there as many items as before?"""
        return is_tracer(now) or (is_a(now, Collection) and len(now) == self.items)

    def text_now(self, now: object) -> str:
        """Short text of the container now; that of a few numbers as Python writes it."""
        few = type(now) in (*_CONTAINERS, dict) and len(now) < 10  # type: ignore[arg-type]
        return repr(now) if few and all(type(v) in values.SCALARS for v in now) else short(now) or "gone"  # type: ignore[attr-defined]


class _Wrapped(Baked):
    """A compiled function, held against the code that it was made of."""

    def __init__(self, path: str, place: Place, value: object, function: types.FunctionType) -> None:
        super().__init__(path, place, value)
        self.text, self.mutable = short(function), False
        self.sample = _identity(function, _DEPTH)

    def same(self, now: object) -> bool:
        """Is it made of the same code?"""
        function = now if is_a(now, types.FunctionType) else _wrapped_function(now)
        return is_tracer(now) or (function is not None and _identity(function, _DEPTH) == self.sample)

    def text_now(self, now: object) -> str:
        """Short text of the function now."""
        return f"another {self.text}" if callable(now) else short(now) or "gone"


def _reader(place: Place) -> Callable[[], object]:
    """A fast way to look at a place: follows names from the root, without a call per step where it can."""
    if place.adapter is not None and place.parent is not None:
        return functools.partial(_inside, place.parent)
    if place.parent is None and is_a(place.holder(), dict):
        return functools.partial(place.holder().get, place.key, MISSING)
    return place.look


def _inside(place: Place) -> object:
    """The value in a framework's array or variable; where a plain array was bound in its place, that."""
    value = place.look()
    adapter = adapter_for(value)
    return value if adapter is None else adapter.read(value)


def _reference(value: object) -> object:
    if is_a(value, np.ndarray):  # its contents are compared, and one that is referred to can't be resized
        return ...
    large = values.is_jax_array(value) and (size_of(value) or 0) > _SMALL
    if large or is_a(value, types.FunctionType) or values.is_user_class(type(value)):
        try:
            return weakref.ref(value)
        except TypeError:
            return value
    return value


def _contents(value: Any) -> object:
    if is_a(value, np.ndarray):
        return sample(value) if value.nbytes > _SMALL else None
    if type(value) in _CONTAINERS:
        return _items(value)
    if is_a(value, types.FunctionType) or _holds_functions(value):
        return _identity(value, _DEPTH)
    return None


def _items(value: Any) -> tuple[object, ...]:
    """The items of a plain container; of a long list or tuple a few thousand and its length."""
    if type(value) not in (list, tuple) or len(value) <= _LONG:
        return tuple(value)
    return (len(value), *value[:: len(value) // _LONG], value[-1])


def _alike(old: object, now: object, contents: object) -> bool:
    if is_a(now, types.FunctionType) or _holds_functions(now):
        return contents is not None and _identity(now, _DEPTH) == contents
    if type(now) in values.SCALARS or is_a(now, np.generic):
        return type(now) is type(old) and (bool(now == old) or (now != now and old != old))
    if type(now) in _CONTAINERS:
        return type(now) is type(old) and _items(now) == contents
    if values.is_jax_array(now) and values.is_jax_array(old):
        return same_arrays(old, now)
    return now is old


def _code_key(code: types.CodeType) -> object:
    consts = tuple(
        _code_key(c) if is_a(c, types.CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts
    )
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, consts


def _identity(value: Any, depth: int = 0) -> object:
    """What tells a value from others; functions by code, defaults and closure, wherever they stand, and tuples
    by their items, down to `depth`."""
    if type(value) in values.SCALARS:
        return type(value).__name__, value
    if depth and is_a(value, tuple):
        return type(value).__name__, tuple(_identity(v, depth - 1) for v in value)
    if depth and is_a(value, types.FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        around = [v for name, cell in cells if name != "__class__" for v in values.cell_contents(cell)]
        held = (*around, *(value.__defaults__ or ()))
        return _code_key(value.__code__), tuple(_identity(v, depth - 1) for v in held)
    return id(value)
