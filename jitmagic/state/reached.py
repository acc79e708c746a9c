"""What a function can read without taking it as an argument: its roots, and the values below them."""

from __future__ import annotations

import collections
import functools
import random
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jitmagic.evidence import Where
from jitmagic.state import values
from jitmagic.state.adapters import INTERNAL, adapter_for
from jitmagic.state.iterators import is_iterator
from jitmagic.state.paths import LIMIT, PathError, Place, parse
from jitmagic.state.uses import Facts, Use, facts_of
from jitmagic.state.values import MISSING, Child, is_a, is_user_class

_PLAIN_DATA = 8
Function = types.FunctionType


@dataclass(frozen=True, eq=False)
class Root:
    """A name (or default, receiver, argument) from which values are read, and the chains from it."""

    path: str
    place: Place
    origin: str
    uses: tuple[Use, ...] = ()

    @property
    def value(self) -> Any:
        """What is bound there now, or MISSING."""
        return self.place.look()


@dataclass(frozen=True, eq=False)
class LeafValue:
    """A value at the end of a path: an array, scalar, string, function, random state or short plain list."""

    path: str
    value: Any
    place: Place
    origin: str
    root: Root

    @property
    def is_array(self) -> bool:
        """An array of jax or numpy, or a framework's variable that holds one."""
        return values.is_array(self.value) and not is_a(self.value, np.generic)

    @property
    def is_variable(self) -> bool:
        """A framework's variable, which is dynamic without being declared. jax follows a `Ref` by itself."""
        adapter = self.place.adapter
        return adapter is not None and adapter.is_state and adapter.name != "jax.Ref"

    @property
    def is_rng(self) -> bool:
        """A random state: of numpy, of the `random` module or of a framework."""
        adapter = self.place.adapter
        return is_random_state(self.value) or (adapter is not None and adapter.is_rng)


@dataclass(eq=False)
class Reach:
    """What a callable can read and run. Values are looked up when asked for, never kept."""

    roots: list[Root] = field(default_factory=list)
    called: object = None
    """The callable itself, whoever's it is."""
    functions: tuple[Function, ...] = ()
    """User functions reached, the callable itself first."""
    modules_used: list[tuple[str, Facts, list[Use], int]] = field(default_factory=list)
    """`np.random.normal` and the like, as written (from-imported names by their full name), with the uses and the
    number of their nodes."""
    namespaces: list[dict[str, object]] = field(default_factory=list)
    """Globals of functions that use `globals()`, `exec` or `eval`."""
    classes: tuple[type, ...] = ()
    """User classes whose objects or methods are reached."""
    caches: list[tuple[str, object]] = field(default_factory=list)
    """Functions under `functools.lru_cache`, with their names."""
    attributes: tuple[str, ...] = ()
    """Attribute names that the functions read, of whatever."""
    remade: tuple[str, ...] = ()
    """Attributes that the functions write which are more than data."""
    fields: frozenset[str] = frozenset()
    """Attributes that the functions store into, or into what they hold: some are fields of objects of Python's own."""
    any_attribute: bool = False
    offered: dict[str, tuple[Where, ...]] = field(default_factory=dict)
    """Random states that are there to be drawn from, whether the function does or not, and the reads of them."""
    unimported: list[tuple[str, Function]] = field(default_factory=list)
    """Packages that a function would be the first to import."""
    stateful: bool = False
    """A function compiled by `jitmagic.jit` with variables of its own is among what it calls."""

    def is_behind(self) -> bool:
        """The functions have imported a module since."""
        return any(module in sys.modules for module, _ in self.unimported)

    def leaves(self, limit: int = LIMIT, *, used_only: bool = True) -> list[LeafValue]:
        """The values below the roots, at most `limit`.

        `used_only` leaves out attributes and keys that no code names."""
        found: list[LeafValue] = []
        seen: set[int] = set()
        for root in self.roots:
            self._walk(root, root.place, _keys(root) if used_only else None, found, seen, limit, used_only, 0)
        return found

    def may_read(self, place: Place) -> bool:
        """A function may ask for this attribute, or item."""
        return place.kind != "attribute" or self.any_attribute or place.key in self.attributes

    @functools.cached_property
    def named(self) -> frozenset[str]:
        """The attributes that the user's code names."""
        return frozenset(
            n for fn in self.functions for f in [facts_of(fn)] for n in (*f.stored, *f.attributes)
        )

    def is_private(self, path: str) -> bool:
        """A private attribute that no code of the user's names is on the way."""
        private = re.findall(r"\.(_\w+)", path)
        return bool(private) and self.named.isdisjoint(private)

    def library_object(self, path: str) -> Place | None:
        """The first object of a library's on the way to a path: what lies deeper is its own affair."""
        try:
            wanted = parse(path)
        except PathError:
            return None
        found = next((r.place for r in self.roots if r.path == wanted.root), None)
        if found is None:
            return None
        for step in wanted.steps:
            if _is_of_library(found.look()):
                return found
            found = found.below(step.kind, step.key)
        return found if _is_of_library(found.look()) else None

    def values(self) -> Iterator[Root]:
        """The roots and everything below them, containers and objects included."""
        for root in self.roots:
            todo, seen = [root.place], set[int]()
            while todo and len(seen) < LIMIT:
                place = todo.pop()
                value = place.look()
                yield Root(place.path, place, _origin(place, root))
                if value is MISSING or values.is_leaf(value) or id(value) in seen or adapter_for(value):
                    continue
                seen.add(id(value))
                below = [place.below(kind, key) for kind, key, _ in values.children(value)]  # type: ignore[arg-type]
                todo += reversed(below)

    def _walk(
        self, root: Root, place: Place, keys: set[object] | None, found: list[LeafValue], seen: set[int],
        limit: int, used_only: bool, depth: int,
    ) -> None:  # fmt: skip
        value = place.look()
        if value is MISSING or len(found) >= limit or depth > 40 or is_a(value, types.ModuleType):
            return
        if _ends(value):
            found.append(LeafValue(place.path, value, place, _origin(place, root), root))
            return
        if id(value) in seen or is_a(value, type):
            self._walk_class(root, place, value, found) if is_a(value, type) else None
            return
        seen.add(id(value))
        adapter = adapter_for(value)
        if adapter is not None:
            inside = place.inside(adapter)
            found.append(LeafValue(place.path, inside.look(), inside, _origin(place, root), root))
            return
        whole = not used_only or self.any_attribute or bool(keys and None in keys)
        deeper: set[object] | None = {None} if whole and used_only else None
        for kind, key, _ in self._below(value, keys, whole):
            below = place.below(kind, key)  # type: ignore[arg-type]
            self._walk(root, below, deeper, found, seen, limit, used_only, depth + 1)

    def _below(self, value: object, keys: set[object] | None, whole: bool) -> Iterator[Child]:
        container = is_a(value, dict | list | tuple | collections.deque | functools.partial)
        for kind, key, child in values.children(value):
            if kind == "attribute" and str(key).startswith(INTERNAL):
                continue
            if container and keys is not None and None not in keys and key not in keys and kind == "item":
                continue
            if container or whole or key in self.attributes:
                yield kind, key, child
        if not container and is_user_class(type(value)):
            own = values.raw_attributes(value)
            yield from (c for c in self._class_values(type(value)) if c[1] not in own)

    def _class_values(self, cls: type) -> Iterator[Child]:
        for name in self.attributes:
            found = values.class_attribute(cls, name)
            if found and is_user_class(found[0]) and values.is_leaf(found[1]) and not name.startswith("__"):
                yield "attribute", name, found[1]

    def _walk_class(self, root: Root, place: Place, cls: type, found: list[LeafValue]) -> None:
        if is_user_class(cls):
            for kind, key, value in self._class_values(cls):
                below = place.below(kind, key)  # type: ignore[arg-type]
                found.append(LeafValue(below.path, value, below, below.origin, root))


def _origin(place: Place, root: Root) -> str:
    # A root found in a helper first may be read by the function itself too.
    return place.origin if place.origin in ("attribute", "default") else root.origin


def _ends(value: object) -> bool:
    if values.is_leaf(value) or is_a(value, values.FUNCTIONS) or is_random_state(value):
        return True
    if is_iterator(value):
        return True
    plain = type(value) in (list, tuple, set, frozenset, collections.deque) and len(value) > _PLAIN_DATA  # type: ignore[arg-type]
    return plain and all(type(v) in values.SCALARS for v in value)  # type: ignore[attr-defined]


def _is_of_library(value: object) -> bool:
    """An object, and no plain container or module, whose class is not the user's."""
    plain = value is MISSING or is_a(value, types.ModuleType) or values.module_of(type(value)) == "builtins"
    return not plain and not is_user_class(type(value))


def is_random_state(value: object) -> bool:
    """Is this a generator of numpy or of the `random` module?"""
    return is_a(value, random.Random | np.random.Generator | np.random.RandomState)


def _keys(root: Root) -> set[object] | None:
    """The literal items or attributes that all reads of the root name; None for a read of the whole."""
    reads = [u for u in root.uses if u.action == "read"]
    if any(u.whole_to and not u.steps for u in reads):
        return {None} if any(_leaves_user_code(u, root) for u in reads) else None
    if not reads or any(not u.steps or u.steps[0].kind != "item" for u in reads):
        return None
    return {u.steps[0].key for u in reads}


def _leaves_user_code(use: Use, root: Root) -> bool:
    # A user's function names the attributes it takes; a library may take any.
    return bool(use.whole_to) and not use.steps and "." in use.whole_to
