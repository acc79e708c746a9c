"""The part of the user's objects that is dynamic: as a tree of places, before, during and after a trace."""

from __future__ import annotations

import collections
import contextlib
import types
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jitmagic.state import paths, values
from jitmagic.state.adapters import TRACE_STATES, adapter_for, framework_classes, is_ref
from jitmagic.state.below import variables_in
from jitmagic.state.contents import put_item, put_items, put_members, put_sequence
from jitmagic.state.paths import Place
from jitmagic.state.values import MISSING, is_a

Key = tuple[str, Any]
CONTENTS: Key = ("contents", None)
"""The key of all that is in a list, deque or set, where items came or went."""
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
        self.roots: dict[Any, PathNode] = {}
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
            node = node.children.setdefault(step_key(step), PathNode(step))
        return node


class WeakHolder:
    """Holds the object that a path begins with without keeping it alive."""

    def __init__(self, value: object) -> None:
        self.value = weakref.ref(value)

    def __getitem__(self, key: object) -> Any:
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


def root_key(place: Place) -> Any:
    """What two places with the same root have in common. A holder made for one object stands for that."""
    holder = place.root
    if type(holder) is WeakHolder:
        return "object", id(holder.value())
    if type(holder) is dict and len(holder) == 1 and place.key in holder:
        return "object", id(holder[place.key])
    return place.kind, place.key, id(holder)


def step_key(place: Place) -> Key:
    """The key of a place within its holder; the value inside a framework's variable has one of its own."""
    return ("inside", None) if place.adapter else (place.kind, place.key)


def slot_of(place: Place) -> tuple[Any, ...]:
    """Where a value lies, whatever path leads there."""
    return root_key(place) if place.parent is None else (id(place.holder()), *step_key(place))


@dataclass(eq=False)
class Held:
    """A container or object of the region: what it held before the trace, and once the tracers were in."""

    place: Place
    value: Any
    keys: frozenset[Key] | None
    original: dict[Key, Any]
    known: bool
    """It lies below what is declared, so every change of it counts."""
    ways: frozenset[Key] = frozenset()
    """The keys that lie on the way to variables: their changes count in any case."""
    seeded: dict[Key, Any] = field(default_factory=dict)

    def now(self) -> dict[Key, Any]:
        """What it holds at the moment."""
        return contents(self.value, self.keys)


def contents(value: Any, keys: frozenset[Key] | None = None) -> dict[Key, Any]:
    """Items and attributes of a value by kind and key; of a framework's variable what is inside."""
    if keys is not None:
        found = {k: _child(value, k) for k in keys}
        return {k: v for k, v in found.items() if v is not MISSING}
    adapter = adapter_for(value)
    if adapter is not None:
        return {("inside", None): adapter.read(value)}
    if is_a(value, set):
        return {CONTENTS: frozenset(value)}
    return {(kind, key): child for kind, key, child in values.children(value)}


def _child(value: object, key: Key) -> object:
    if key[0] == "inside":
        adapter = adapter_for(value)
        return adapter.read(value) if adapter else MISSING
    try:
        return paths.stored(value, key[0], key[1])  # type: ignore[arg-type]
    except Exception:
        return MISSING


def put(value: Any, key: Key, child: Any) -> None:
    """Put a child into a container, object or framework's variable; MISSING takes it away."""
    kind, name = key
    if key == CONTENTS:
        refill(value, child)
    elif kind == "inside":
        adapter = adapter_for(value)
        assert adapter is not None
        adapter.write(value, child)
    elif kind == "attribute":
        if child is MISSING:
            paths.delete_attribute(value, name)
        else:
            paths.put_attribute(value, name, child)
    elif is_a(value, dict):
        put_item(value, name, child)
    elif child is MISSING:
        del value[name]
    else:
        paths.put_item(value, name, child)


def refill(value: Any, items: Any) -> None:
    """Let a list, deque or set hold these and nothing else."""
    if is_a(value, set):
        put_members(value, set(items))
    else:
        put_sequence(value, list(items))


Change = tuple[Place, Held | None, Key | None, Any, Any]


@dataclass(eq=False)
class RootBinding:
    """What the root of a path was bound to, before the trace and with the tracers in."""

    place: Place
    original: Any
    known: bool
    seeded: Any = MISSING


class Region:
    """Everything dynamic at the time of one trace, to see afterwards what changed and to put it back."""

    def __init__(self, tree: Tree, around: Sequence[Place] = (), *, appearing: bool = True) -> None:
        """`around` is looked at as well: with `appearing`, for variables that the trace puts there."""
        self.appearing = appearing
        self.appeared = False
        """The trace has put variables where there were none."""
        self.held: dict[int, Held] = {}
        self.bindings = [RootBinding(n.place, n.place.look(), True) for n in tree.roots.values()]
        for node in tree.roots.values():
            self._walk(node.place, node.place.look(), node, node.whole, node.whole)
        known = set(tree.roots)
        for place in around:
            if root_key(place) not in known:
                self.bindings.append(RootBinding(place, place.look(), False))
            self._walk(place, place.look(), None, True, False)

    def _walk(self, place: Place, value: object, node: PathNode | None, whole: bool, known: bool) -> None:
        old = self.held.get(id(value))
        if len(self.held) > _LIMIT or (old is not None and (old.keys is None or not whole)):
            return
        if not _is_container(value, node):
            return
        keys = (
            None if whole and not is_a(value, types.ModuleType) else frozenset(node.children if node else ())
        )
        if old is not None and keys is not None:
            keys |= old.keys or frozenset()
        ways = frozenset(node.children if node else ()) | (old.ways if old else frozenset())
        known = known or (old is not None and old.known)
        held = Held(place, value, keys, contents(value, keys), known, ways)
        self.held[id(value)] = held
        for key, child in held.original.items():
            below = node.children.get(key) if node else None
            if key[0] in ("inside", "contents"):
                continue
            step = below.place if below else place.below(key[0], key[1])  # type: ignore[arg-type]
            deeper = whole or (below is not None and below.whole)
            self._walk(step, child, below, deeper, known or (below is not None and below.whole))

    def objects(self) -> Iterator[Any]:
        """Everything held."""
        return (held.value for held in self.held.values())

    def seed(self) -> None:
        """Remember what is there now that the tracers are in."""
        for held in self.held.values():
            held.seeded = held.now()
        for binding in self.bindings:
            binding.seeded = binding.place.look()

    def restore(self, *, leave_effects: bool = False) -> None:
        """Put everything back as it was before the trace. With `leave_effects`, what the trace did besides variables
        stays, as after a trace of `jax.jit`, except for traced values."""
        for b in self.bindings:
            now = b.place.look()
            if now is b.original or b.place.origin == "argument":
                continue
            if not leave_effects or b.known or values.contains_tracer(now):
                b.place.delete() if b.original is MISSING else b.place.put(b.original)
        for held in self.held.values():
            now = held.now()
            changed = [
                k
                for k in {**held.original, **now}
                if now.get(k, MISSING) is not held.original.get(k, MISSING)
            ]
            if leave_effects and not held.known:
                changed = [
                    k for k in changed
                    if k in held.ways or values.contains_tracer(now.get(k)) or _is_frameworks_own(held.value, k)
                ]  # fmt: skip
            if changed:
                _put_back(held, changed if leave_effects and not held.known else None)

    def changes(self) -> Iterator[Change]:
        """Place, its holder, its key, the old and the new value (MISSING: none) of everything that changed.

        Where variables appear, all that the trace changed belongs to it: `model.built = True`, say."""
        found = list(self._changes())
        self.appeared = self.appearing and any(not known and holds_state(new) for known, (*_, new) in found)
        yield from (change for known, change in found if known or self.appeared)

    def _changes(self) -> Iterator[tuple[bool, Change]]:
        for b in self.bindings:
            now = b.place.look()
            if now is not b.seeded and b.place.origin != "argument":
                yield b.known, (b.place, None, None, b.seeded, now)
        for held in self.held.values():
            now = held.now()
            anew = _items_came_or_went(held, now)
            if anew:
                yield held.known, (held.place, held, CONTENTS, MISSING, list(held.value))
            for key in [*held.seeded, *(k for k in now if k not in held.seeded)]:
                old, new = held.seeded.get(key, MISSING), now.get(key, MISSING)
                if new is old or key == CONTENTS or (anew and key[0] == "item"):
                    continue
                if key[1] not in TRACE_STATES and not _is_memo(held.value, key, old, new):
                    yield held.known or key in held.ways, (self._place(held, key), held, key, old, new)

    @staticmethod
    def _place(held: Held, key: Key) -> Place:
        if key[0] == "inside":
            adapter = adapter_for(held.value)
            assert adapter is not None
            return held.place.inside(adapter)
        return held.place.below(key[0], key[1])  # type: ignore[arg-type]


def _items_came_or_went(held: Held, now: dict[Key, object]) -> bool:
    if is_a(held.value, set):
        return bool(now[CONTENTS] != held.seeded[CONTENTS])
    sequence = is_a(held.value, list | collections.deque) and held.keys is None
    return sequence and sum(k[0] == "item" for k in now) != sum(k[0] == "item" for k in held.seeded)


def _is_container(value: object, node: PathNode | None) -> bool:
    if value is MISSING or values.is_number(value) or values.is_leaf(value):
        return False
    if node is not None and node.children:
        return True
    if is_ref(value):  # which jax follows by itself
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


def _put_back(held: Held, keys: Sequence[Key] | None) -> None:
    """Contents as they were: all of them, in order, or those of some keys."""
    value, old = held.value, held.original
    sequence = is_a(value, list | collections.deque | set) and any(k[0] != "attribute" for k in keys or ())
    if keys is None or sequence:
        _put_back_items(held)
    if keys is None:
        now = held.now()
        keys = [*old, *(k for k in now if k not in old)]
    for key in keys:
        if not (sequence and key[0] != "attribute") and (wanted := old.get(key, MISSING)) is not _child(
            value, key
        ):
            put(value, key, wanted)


def _put_back_items(held: Held) -> None:
    value, old = held.value, held.original
    if held.keys is not None:
        return
    items = {k: v for (kind, k), v in old.items() if kind == "item"}
    if is_a(value, dict):
        put_items(value, items)
    elif is_a(value, list | collections.deque):
        refill(value, list(items.values()))
    elif is_a(value, set):
        refill(value, old[CONTENTS])
