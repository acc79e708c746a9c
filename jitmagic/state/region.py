"""The part of the user's objects that is dynamic: as a tree of places, before, during and after a trace."""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jitmagic.state import values
from jitmagic.state.adapters import TRACE_STATES, adapter_for, framework_classes, is_ref
from jitmagic.state.below import variables_in
from jitmagic.state.contents import CONTENTS, INSIDE, Key
from jitmagic.state.entries import Binding, Entry, VariableEntry, parts
from jitmagic.state.paths import Place, Slot
from jitmagic.state.values import MISSING, is_a

_LIMIT = 20_000


@dataclass(eq=False)
class PathNode:
    """One step of the way to the variables. `whole`: everything below it is dynamic; `leaf`: its number; `log`: a list
    that is only added to."""

    place: Place
    whole: bool = False
    leaf: int | None = None
    log: bool = False
    children: dict[Key, PathNode] = field(default_factory=dict)


class Tree:
    """The ways to all dynamic variables, common beginnings shared."""

    def __init__(
        self, leaves: Sequence[Place], tops: Sequence[Place] = (), logs: Sequence[Place] = ()
    ) -> None:
        self.roots: dict[object, PathNode] = {}
        for i, place in enumerate(leaves):
            self._add(place).leaf = i
        for place in tops:
            self._add(place).whole = True
        for place in logs:
            self._add(place).log = True

    def _add(self, place: Place) -> PathNode:
        chain = [place]
        while (parent := chain[-1].parent) is not None:
            chain.append(parent)
        root = chain.pop()
        node = self.roots.setdefault(root_key(root), PathNode(root))
        for step in reversed(chain):
            node = node.children.setdefault(step.step, PathNode(step))
        return node


class WeakHolder:
    """Holds the object that a path begins with without keeping it alive."""

    def __init__(self, value: object) -> None:
        self.value = weakref.ref(value)

    def __getitem__(self, key: object) -> object:
        return self.value()


def weaken(found: Sequence[Place], receiver: object) -> list[Place]:
    """The same places, which no longer keep the receiver alive that they begin with."""
    for place in found:
        root = place
        while root.parent is not None:
            root = root.parent
        if type(root.root) is dict and root.root.get(root.key) is receiver and len(root.root) == 1:
            with contextlib.suppress(TypeError):  # slots without __weakref__
                root.root = WeakHolder(receiver)
    return list(found)


def root_key(place: Place) -> Slot:
    """What two places with the same root have in common. A holder made for one object stands for that."""
    holder = place.root
    if type(holder) is WeakHolder:
        return "object", id(holder.value())
    if type(holder) is dict and len(holder) == 1 and place.key in holder:
        return "object", id(holder[place.key])
    return place.kind, place.key, id(holder)


def slot_of(place: Place) -> Slot:
    """Where a value lies, whatever path leads there."""
    return root_key(place) if place.parent is None else (id(place.holder()), *place.step)


@dataclass(eq=False)
class Held:
    """A container or object of the region, and what it held before the trace and once the tracers were in."""

    place: Place
    value: Any
    whole: bool
    """All that is in it is held, and not only what lies on the way to variables."""
    known: bool
    """It lies below what is declared, so every change of it counts."""
    ways: dict[Key, Place] = field(default_factory=dict)
    """What lies on the way to variables: its changes count in any case."""
    original: Sequence[Entry] = ()
    seeded: Sequence[Entry] = ()

    def entries(self) -> list[Entry]:
        """What it holds at the moment."""
        if self.whole:
            return _entries(self.value, self.place.path)
        found = (
            Place(p.path, p.origin, p.kind, p.key, holder=self.value, adapter=p.adapter)
            for p in self.ways.values()
        )
        return [Binding(place, "attribute") for place in found]

    def is_wrong(self, key: Key, now: object) -> bool:
        """A trace does not leave this behind."""
        return key in self.ways or values.contains_tracer(now) or _is_frameworks_own(self.value, key)

    def place_at(self, key: Key) -> Place:
        """Where a part of it lies."""
        if key == CONTENTS:
            return self.place
        adapter = adapter_for(self.value) if key == INSIDE else None
        return self.place.inside(adapter) if adapter else self.place.below(key[0], key[1])  # type: ignore[arg-type]

    def slot(self, key: Key) -> tuple[object, ...]:
        """The same, whatever path leads there."""
        return id(self.value), *key

    def differences(self) -> Iterator[tuple[Key, object, object]]:
        """What is another one now than once the tracers were in, but for what a framework keeps for itself."""
        for entry in self.seeded:
            for key, old, new in entry.differences():
                if key[1] not in TRACE_STATES and not _is_memo(self.value, key, old, new):
                    yield key, old, new


def _entries(value: Any, path: str) -> list[Entry]:
    if adapter_for(value) is not None:
        return [VariableEntry(value, path)]
    return parts(value, path, attributes=values.is_walkable(value))


class RootBinding(Held):
    """What the root of a path is bound to."""

    def entries(self) -> list[Entry]:
        """The binding alone."""
        return [Binding(self.place, "global")]

    def place_at(self, key: Key) -> Place:
        """The root."""
        return self.place

    def slot(self, key: Key) -> Slot:
        """The name and where it is bound."""
        return root_key(self.place)


Change = tuple[Place, Slot, Any, Any]
"""Place, slot, the old and the new value (MISSING: none) of what changed."""


class Region:
    """Everything dynamic at the time of one trace, to see afterwards what changed and to put it back."""

    def __init__(self, tree: Tree, around: Sequence[Place] = (), *, appearing: bool = True) -> None:
        """`around` is looked at as well: with `appearing`, for variables that the trace puts there."""
        self.appearing = appearing
        self.appeared = False
        """The trace has put variables where there were none."""
        self.held: dict[int, Held] = {}
        self._roots: list[RootBinding] = []
        for node in tree.roots.values():
            self._root(node.place, True)
            self._walk(node.place, node.place.look(), node, node.whole, node.whole)
        for place in around:
            if root_key(place) not in tree.roots:
                self._root(place, False)
            self._walk(place, place.look(), None, True, False)
        self._all: list[Held] = [*self._roots, *self.held.values()]
        for held in self._all:
            held.original = held.entries()

    def _root(self, place: Place, known: bool) -> None:
        if place.origin != "argument":
            self._roots.append(RootBinding(place, None, False, known))

    def _walk(self, place: Place, value: Any, node: PathNode | None, whole: bool, known: bool) -> None:
        ways = {key: child.place for key, child in node.children.items()} if node else {}
        held = self.held.get(id(value))
        if len(self.held) > _LIMIT or not _is_container(value, node):
            return
        whole_here = whole and not is_a(value, types.ModuleType)
        if held is None:
            held = self.held[id(value)] = Held(place, value, whole_here, known)
        elif (held.whole or not whole_here) and ways.keys() <= held.ways.keys():
            return
        held.whole, held.known = held.whole or whole_here, held.known or known
        held.ways = ways | held.ways
        for step, child in self._below(held, place):
            below = node.children.get(step.step) if node else None
            own = below is not None and below.whole
            self._walk(step, child, below, whole or own, known or own)

    @staticmethod
    def _below(held: Held, place: Place) -> Iterator[tuple[Place, object]]:
        """What is in it, but for the value of a framework's variable."""
        if not held.whole:
            yield from ((p, p.look()) for p in held.ways.values() if p.adapter is None)
        elif adapter_for(held.value) is None:
            for kind, key, child in values.children(held.value):
                yield held.ways.get((kind, key)) or place.below(kind, key), child  # type: ignore[arg-type]

    def objects(self) -> Iterator[object]:
        """Everything held."""
        return (held.value for held in self.held.values())

    def seed(self) -> None:
        """Remember what is there now that the tracers are in."""
        for held in self._all:
            held.seeded = held.entries()

    def restore(self, *, leave_effects: bool = False) -> None:
        """Put everything back as it was before the trace. With `leave_effects`, what the trace did besides variables
        stays, as after a trace of `jax.jit`, except for traced values."""
        for held in self._all:
            for entry in held.original:
                entry.restore(held.is_wrong if leave_effects and not held.known else None)

    def changes(self) -> Iterator[Change]:
        """Everything that changed.

        Where variables appear, all that the trace changed belongs to it: `model.built = True`, say."""
        found = [
            (held.known or key in held.ways, (held.place_at(key), held.slot(key), old, new))
            for held in self._all
            for key, old, new in held.differences()
        ]
        self.appeared = self.appearing and any(not known and holds_state(new) for known, (*_, new) in found)
        yield from (change for known, change in found if known or self.appeared)


def _is_container(value: object, node: PathNode | None) -> bool:
    if value is MISSING or values.is_number(value) or values.is_leaf(value):
        return False
    if node is not None and node.children:
        return True
    if is_ref(value) or values.is_memory(value):  # jax follows the one, and its library the other
        return False
    atoms = (type, types.ModuleType, types.CodeType, types.MethodType, *values.FUNCTIONS)
    return not is_a(value, atoms)


def holds_state(value: object) -> bool:
    """A framework's variable lies in this value."""
    if value is MISSING or values.is_leaf(value) or is_a(value, values.FUNCTIONS):
        return False
    return any(p.adapter is not None and p.adapter.is_state for p in variables_in(value))


def _is_frameworks_own(value: object, key: Key) -> bool:
    """What a framework keeps for itself in a module: caches that it fills at the first use."""
    if key[0] != "attribute" or not framework_classes(type(value)):
        return False
    return str(key[1]).startswith("_") or not values.is_user_class(type(value))


def _is_memo(value: object, key: Key, old: object, new: object) -> bool:
    """A place where a framework keeps something later: nothing is lost while it is empty."""
    empty = is_a(new, dict | list | set) and not new and not values.contains_tracer(new)
    return old is None and empty and _is_frameworks_own(value, key)
