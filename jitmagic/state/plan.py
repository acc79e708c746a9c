"""What one trace writes, as a recipe that every later call follows: which output goes where, and what is built
around it (a container that the function binds anew is a new one after each call, as without jit)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jitmagic.state import region, values
from jitmagic.state.adapters import adapter_for, of_this_trace
from jitmagic.state.paths import Place
from jitmagic.state.region import Held
from jitmagic.state.values import MISSING, is_a


class CannotFollow(ValueError):
    """A traced value was put where no recipe can put the result of a call."""


@dataclass(eq=False)
class Recipe:
    """How to make one value from the outputs of a call.

    `kind`: "out" (output number `value`), "const" (`value` itself), "dict", "list", "tuple", "named" (a NamedTuple
    of class `value`) or "object" (like `value`, an object that the trace made), with `parts` by key.
    """

    kind: str
    value: Any = None
    parts: list[tuple[Any, Recipe]] = field(default_factory=list)
    fresh: bool = True
    """An object that the trace made is used itself the first time, so that its identity holds."""

    def key(self) -> Any:
        """Equal for recipes that do the same."""
        value = self.value if self.kind == "out" else id(self.value)
        return self.kind, value, tuple((k, p.key()) for k, p in self.parts)

    def plain(self) -> bool:
        """An expression of Python's can spell it out."""
        return self.kind != "object" and all(p.plain() for _, p in self.parts)


@dataclass(eq=False)
class Op:
    """One write: `recipe` goes to `place` (None: it is taken away); `leaf` is the number of the variable."""

    place: Place
    recipe: Recipe | None
    leaf: int | None

    def identity(self) -> Any:
        """Equal for ops that do the same."""
        return self.place.path, self.recipe.key() if self.recipe else None


@dataclass(eq=False)
class Plan:
    """The writes of one trace. `size` tells results of this trace from those of others: their length."""

    ops: list[Op]
    outputs: int
    structural: bool
    size: int = 0

    def identity(self) -> Any:
        """Equal for traces that write the same."""
        return self.outputs, self.structural, tuple(op.identity() for op in self.ops)


class Planner:
    """Turns the changes of one trace into a plan, and collects the values that have to come out."""

    def __init__(self, is_tracer: Callable[[Any], bool]) -> None:
        self.outputs: list[Any] = []
        self._is_tracer = is_tracer
        self._index: dict[int, int] = {}
        self._made: dict[int, Recipe] = {}
        self._before: dict[int, Held] = {}

    def plan(
        self, found: region.Region, leaves: dict[Any, int], keep: Sequence[tuple[Place, Any, int]]
    ) -> list[Op]:
        """Ops for what changed in the region. `leaves` numbers the variables by slot; `keep` are donated ones,
        which have to come back even unchanged."""
        self._before = found.held
        ops: list[Op] = []
        for place, held, key, new in found.changes():
            slot = (id(held.value), *(key or ())) if held is not None else region.root_key(place)
            recipe = None if new is MISSING else self.recipe(new, place.path)
            ops.append(Op(place, recipe, leaves.get(slot)))
        done = {op.leaf for op in ops}
        ops += [Op(p, self.recipe(v, p.path), i) for p, v, i in keep if i not in done]
        return ops

    def recipe(self, value: Any, path: str, depth: int = 0) -> Recipe:
        """How a later call makes this value again."""
        if self._is_tracer(value) or values.is_jax_array(value):
            return Recipe("out", self._output(value))
        if id(value) in self._before or values.is_leaf(value) or depth > 40:
            return Recipe("const", value)
        if id(value) in self._made:
            return self._made[id(value)]
        if type(value) in (dict, list, tuple):
            below = [(k, self.recipe(v, path, depth + 1)) for _, k, v in values.children(value)]
            return Recipe(type(value).__name__, None, below)
        if is_a(value, tuple) and values.fields_of(value):
            return Recipe("named", type(value), [(None, self.recipe(v, path, depth + 1)) for v in value])
        return self._object(value, path, depth)

    def _object(self, value: Any, path: str, depth: int) -> Recipe:
        if not values.contains_tracer(value) and adapter_for(value) is None:
            return Recipe("const", value)
        made = self._made[id(value)] = Recipe("object", value)
        below = region.contents(value)
        if not any(map(values.contains_tracer, below.values())):
            raise CannotFollow(path)
        made.parts = [(k, self.recipe(v, path, depth + 1)) for k, v in below.items()]
        return made

    def _output(self, value: Any) -> int:
        found = self._index.get(id(value))
        if found is None:
            found = self._index[id(value)] = len(self.outputs)
            self.outputs.append(value)
        return found


def build(recipe: Recipe, outputs: Sequence[Any], memo: dict[int, Any]) -> Any:
    """The value that a recipe makes from the outputs of one call; shared objects stay shared through `memo`."""
    kind = recipe.kind
    if kind == "out":
        return outputs[recipe.value]
    if kind == "const":
        return recipe.value
    if kind == "object":
        return _object(recipe, outputs, memo)
    parts = [build(p, outputs, memo) for _, p in recipe.parts]
    if kind == "dict":
        return dict(zip((k for k, _ in recipe.parts), parts, strict=True))
    return (
        parts if kind == "list" else tuple(parts) if kind == "tuple" else tuple.__new__(recipe.value, parts)
    )


def _object(recipe: Recipe, outputs: Sequence[Any], memo: dict[int, Any]) -> Any:
    if id(recipe) in memo:
        return memo[id(recipe)]
    if recipe.fresh:
        made, recipe.fresh = recipe.value, False
        recipe.value = _copy(made)
    else:
        made = _copy(recipe.value)
    memo[id(recipe)] = made
    for key, part in recipe.parts:
        region.put(made, key, build(part, outputs, memo))
    of_this_trace(made)
    return made


def _copy(value: Any) -> Any:
    """An object of the same class with the same attributes, made without running the class's own code."""
    cls: Any = type(value)
    if is_a(value, dict | list):
        made = cls.__new__(cls)
        for (kind, key), child in region.contents(value).items():
            if kind == "item":
                region.put(made, (kind, key), child)
    else:
        made = object.__new__(cls)
    for name, child in values.raw_attributes(value).items():
        object.__setattr__(made, name, child)
    return made


def apply(ops: Sequence[Op], outputs: Sequence[Any]) -> None:
    """Write the results of one call where the function would have put them."""
    memo: dict[int, Any] = {}
    found = [(op.place.holder(), op) for op in ops]  # before a write moves what holds them
    made = [MISSING if op.recipe is None else build(op.recipe, outputs, memo) for op in ops]
    done = 0
    try:
        for done, (held, value) in enumerate(zip(found, made, strict=True)):  # noqa: B007
            _write(*held, value)
    except KeyboardInterrupt:  # all is written or nothing
        for (holder, op), value in list(zip(found, made, strict=True))[done:]:
            if value is not MISSING or op.place.look() is not MISSING:
                _write(holder, op, value)
        raise


def _write(holder: Any, op: Op, value: Any) -> None:
    if op.place.parent is None:
        op.place.delete() if value is MISSING else op.place.put(value)
    else:
        region.put(holder, region.step_key(op.place), value)
