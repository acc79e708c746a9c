"""What one trace writes, as a recipe that every later call follows: which output goes where, and what is built
around it (a container that the function binds anew is a new one after each call, as without jit)."""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jitmagic.state import paths, region, values
from jitmagic.state.adapters import adapter_for, of_this_trace
from jitmagic.state.contents import CONTENTS, INSIDE, Key, refill
from jitmagic.state.paths import Location, Place, Slot
from jitmagic.state.region import Held
from jitmagic.state.values import MISSING, is_a


class CannotFollow(ValueError):
    """A traced value was put where no recipe can put the result of a call."""


@dataclass(eq=False)
class Recipe:
    """How to make one value from the outputs of a call.

    `kind`: "out" (output number `value`), "number" (the same as a Python number: class and output number), "const"
    (`value` itself), "held" (what was at the place `value` before the call), or with `parts` by key "dict", "list",
    "tuple", "set", "deque" (of length `value` at most), "named" (a NamedTuple of class `value`) or "object" (like
    `value`, an object that the trace made).
    """

    kind: str
    value: Any = None
    parts: list[tuple[Any, Recipe]] = field(default_factory=list)
    fresh: bool = True
    """An object that the trace made is used itself the first time, so that its identity holds."""
    shared: bool = False
    """A container that lies in several places, or in itself, is one container after each call."""

    def key(self, seen: dict[int, int] | None = None) -> Hashable:
        """Equal for recipes that do the same."""
        seen = {} if seen is None else seen
        if id(self) in seen:
            return seen[id(self)]
        seen[id(self)] = len(seen)
        value = self.value
        if self.kind == "held":
            value = value.path
        elif self.kind not in ("out", "number", "deque"):
            value = (type(value), value) if type(value) in values.SCALARS else id(value)
        return self.kind, value, tuple((k, p.key(seen)) for k, p in self.parts)

    def outputs(self) -> set[int]:
        """The outputs that go into it, not into objects."""
        found, left, seen = set(), [self], set()
        while left:
            one = left.pop()
            if one.kind == "out":
                found.add(one.value)
            if one.kind != "object" and id(one) not in seen:
                seen.add(id(one))
                left += [p for _, p in one.parts]
        return found

    def plain(self) -> bool:
        """An expression of Python's can spell it out."""
        if self.shared or self.kind in ("object", "set", "deque"):
            return False
        return all(p.plain() for _, p in self.parts)


@dataclass(eq=False)
class Op:
    """One write: `recipe` goes to `place` (None: it is taken away); `leaf` is the number of the variable.

    The items of a list, deque or set that lies there are all replaced (`how` is "refill"), or it is added to."""

    place: Place
    recipe: Recipe | None
    leaf: int | None = None
    how: Literal["put", "refill", "add"] = "put"

    def identity(self) -> Hashable:
        """Equal for ops that do the same."""
        return self.place.path, self.how, self.recipe.key() if self.recipe else None


@dataclass(eq=False)
class Plan:
    """The writes of one trace. `size` tells results of this trace from those of others: their length."""

    ops: list[Op]
    outputs: int
    structural: bool
    """After it, the variables are others than before."""
    returned: Mapping[Location, Place] = field(default_factory=dict)
    """Where in the function's result objects belong that jax does not hand through."""
    size: int = 0

    def identity(self) -> Hashable:
        """Equal for traces that write the same."""
        returned = tuple((at, place.path) for at, place in self.returned.items())
        return self.outputs, self.structural, returned, tuple(op.identity() for op in self.ops)


class Planner:
    """Turns the changes of one trace into a plan, and collects the values that have to come out."""

    def __init__(self, is_tracer: Callable[[object], bool], was_there: Callable[[object], bool]) -> None:
        self.outputs: list[object] = []
        self.counted: list[Place] = []
        """Numbers of Python's that are no variables, and were written."""
        self.grown: list[Place] = []
        """Lists and deques that were added to."""
        self._is_tracer, self._was_there = is_tracer, was_there
        self._index: dict[int, int] = {}
        self._made: dict[int, Recipe] = {}
        self._before: dict[int, Held] = {}

    def plan(
        self, found: region.Region, leaves: dict[Slot, int], keep: Sequence[tuple[Place, object, int]]
    ) -> list[Op]:
        """Ops for what changed in the region. `leaves` numbers the variables by slot; `keep` are donated ones,
        which have to come back even unchanged."""
        self._before = found.held
        ops: list[Op] = []
        refilled: set[object] = set()
        for place, slot, old, new in found.changes():
            if slot[1:] == CONTENTS:
                refilled.add(slot[0])
                was_list = not is_a(old, set) and len(new) > len(old)
                if was_list and all(a is b for a, b in zip(old, new, strict=False)):
                    self.grown.append(place)
                ops.append(Op(place, self.items(new, place.path), how="refill"))
                continue
            recipe = None if new is MISSING else self.recipe(new, place.path)
            ops.append(Op(place, recipe, leaves.get(slot)))
            if type(old) in (int, float, complex) and slot not in leaves:
                self.counted.append(place)
        done = {op.leaf for op in ops}
        kept = [k for k in keep if k[2] not in done and id(k[0].holder()) not in refilled]
        return [*ops, *(Op(p, self.recipe(v, p.path), i) for p, v, i in kept)]

    def items(self, new: Sequence[object], path: str) -> Recipe:
        """How a later call makes a list of these."""
        return Recipe("list", None, [(None, self.recipe(v, path)) for v in new])

    def recipe(self, value: Any, path: str, depth: int = 0) -> Recipe:
        """How a later call makes this value again."""
        if self._is_tracer(value) or values.is_jax_array(value):
            return Recipe("out", self._output(value))
        if id(value) in self._before:
            return Recipe("held", self._before[id(value)].place)
        if values.is_leaf(value) or (self._was_there(value) and not values.contains_tracer(value)):
            return Recipe("const", value)
        if depth > 40:
            if values.contains_tracer(value):
                raise CannotFollow(path)
            return Recipe("const", value)
        if id(value) in self._made:
            self._made[id(value)].shared = True
            return self._made[id(value)]
        if type(value) in (dict, list, tuple, set, collections.deque):
            made = Recipe(type(value).__name__, getattr(value, "maxlen", None))
            if type(value) is not tuple:
                self._made[id(value)] = made
            found = enumerate(value) if type(value) is set else ((k, v) for _, k, v in values.children(value))
            made.parts = [(k, self.recipe(v, path, depth + 1)) for k, v in found]
            return made
        if is_a(value, tuple) and values.fields_of(value):
            return Recipe("named", type(value), [(None, self.recipe(v, path, depth + 1)) for v in value])
        return self._object(value, path, depth)

    def _object(self, value: object, path: str, depth: int) -> Recipe:
        traced = values.contains_tracer(value)
        made_here = values.is_walkable(value) and values.raw_attributes(value)
        if not (traced or made_here or adapter_for(value) is not None):
            return Recipe("const", value)
        made = self._made[id(value)] = Recipe("object", value)
        below = _contents(value)
        if traced and not any(map(values.contains_tracer, below.values())):
            raise CannotFollow(path)
        made.parts = [(k, self.recipe(v, path, depth + 1)) for k, v in below.items()]
        return made

    def _output(self, value: object) -> int:
        found = self._index.get(id(value))
        if found is None:
            found = self._index[id(value)] = len(self.outputs)
            self.outputs.append(value)
        return found


def build(recipe: Recipe, outputs: Sequence[object], memo: dict[int, object]) -> Any:
    """The value that a recipe makes from the outputs of one call; shared objects stay shared through `memo`."""
    kind = recipe.kind
    if kind == "out":
        return outputs[recipe.value]
    if kind == "const":
        return recipe.value
    if kind == "number":
        return recipe.value[0](outputs[recipe.value[1]])
    if kind == "held":
        return recipe.value.get()
    if kind == "object":
        return _object(recipe, outputs, memo)
    if id(recipe) in memo:
        return memo[id(recipe)]
    parts = (build(p, outputs, memo) for _, p in recipe.parts)
    if kind in ("tuple", "named"):
        return tuple(parts) if kind == "tuple" else tuple.__new__(recipe.value, parts)
    made: Any = collections.deque((), recipe.value) if kind == "deque" else _EMPTY[kind]()
    memo[id(recipe)] = made  # before what is in it: it may lie in itself
    if kind == "dict":
        made.update(zip((k for k, _ in recipe.parts), parts, strict=True))
    else:
        (made.update if kind == "set" else made.extend)(parts)
    return made


_EMPTY: dict[str, Callable[[], Any]] = {"dict": dict, "list": list, "set": set}


def _object(recipe: Recipe, outputs: Sequence[object], memo: dict[int, object]) -> object:
    if id(recipe) in memo:
        return memo[id(recipe)]
    if recipe.fresh:
        made, recipe.fresh = recipe.value, False
        recipe.value = _copy(made)
    else:
        made = _copy(recipe.value)
    memo[id(recipe)] = made
    for key, part in recipe.parts:
        _put(made, key, build(part, outputs, memo))
    of_this_trace(made)
    return made


def _copy(value: object) -> object:
    """An object of the same class with the same attributes, made without running the class's own code."""
    cls: Any = type(value)
    if is_a(value, dict | list):
        made = cls.__new__(cls)
        for key, child in _contents(value).items():
            if key[0] == "item":
                _put(made, key, child)
    else:
        made = object.__new__(cls)
    for name, child in values.raw_attributes(value).items():
        object.__setattr__(made, name, child)
    return made


def _contents(value: object) -> dict[Key, object]:
    """Items and attributes of an object by kind and key; of a framework's variable what is inside."""
    adapter = adapter_for(value)
    if adapter is not None:
        return {INSIDE: adapter.read(value)}
    if is_a(value, set):
        return {CONTENTS: frozenset(value)}
    return {(kind, key): child for kind, key, child in values.children(value)}


def _put(holder: Any, key: Key, child: Any) -> None:
    adapter = adapter_for(holder) if key == INSIDE else None
    if key == CONTENTS:
        refill(holder, child)
    elif adapter is not None:
        adapter.write(holder, child)
    elif is_a(holder, list) and key[1] == len(holder):  # a list in the making
        list.append(holder, child)
    else:
        paths.store(holder, key[0], key[1], child)


def apply(ops: Sequence[Op], outputs: Sequence[object]) -> None:
    """Write the results of one call where the function would have put them."""
    memo: dict[int, object] = {}
    # before a write moves what holds them
    found = [(op, op.place.holder() if op.how == "put" else op.place.get()) for op in ops]
    made = [MISSING if op.recipe is None else build(op.recipe, outputs, memo) for op in ops]
    made = [[*held, *new] if op.how == "add" else new for (op, held), new in zip(found, made, strict=True)]
    try:
        for (op, held), value in zip(found, made, strict=True):
            _write(op, held, value)
    except KeyboardInterrupt:  # all is written or nothing
        for (op, held), value in zip(found, made, strict=True):
            if value is not MISSING or op.place.look() is not MISSING:
                _write(op, held, value)
        raise


def _write(op: Op, held: object, value: object) -> None:
    if op.how != "put":
        refill(held, value)  # type: ignore[arg-type]
    elif op.place.parent is None and value is MISSING:
        op.place.delete()
    else:
        op.place.put_in(held, value)
