"""What lies below a variable: what can be dynamic, what else decides a trace, and the form of it all."""

from __future__ import annotations

import collections
import contextlib
import operator
import sys
import types
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jitmagic.raw import inside
from jitmagic.state import values
from jitmagic.state.adapters import (
    INTERNAL,
    OWN_NAME,
    Adapter,
    adapter_for,
    framework_classes,
    is_variable,
    keeps_numbers,
)  # fmt: skip
from jitmagic.state.contents import Key
from jitmagic.state.paths import LIMIT, Place
from jitmagic.state.values import MISSING, is_a

_DEPTH = 60
_FUNCTIONS_WITHIN = 8
"""Functions within functions that are compared by what they hold."""
_SETTINGS = 50


Watched = tuple[Any, tuple[object, ...]]
"""A container or object, with its keys that lead to what is dynamic."""


class Same:
    """Equal to itself alone: what is compared by identity in the form of a variable."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def leaves_below(place: Place, limit: int = LIMIT) -> list[Place]:
    """The places of all arrays and Python or numpy numbers in a variable, itself included, in order.

    Items of dicts and lists, attributes of objects and framework variables are looked into; a tuple of
    numbers, such as the state of an optimizer, counts as one value. Bools count only where the path names them itself.
    """
    found = Below(limit=limit)
    found.look(place)
    return found.leaves


def variables_in(value: object) -> list[Place]:
    """The places of what frameworks hold in a value: their variables, and wrappers around arrays."""
    place = Place("value", "global", "global", "value", holder={"value": value})
    return [p for p in leaves_below(place) if p.adapter is not None]


@dataclass(eq=False)
class Below:
    """One look at everything below some places.

    Python numbers in the objects of libraries are settings, but for those that the function writes: their attributes
    are among `stored`, or their paths among `counted`. Those with paths among `constant` are settings anyway. `is_log`
    tells the containers that are only added to."""

    numbers: bool = True
    stored: Collection[str] = ()
    counted: Collection[str] = ()
    constant: Collection[str] = ()
    is_log: Callable[[Place], bool] | None = None
    limit: int = LIMIT
    leaves: list[Place] = field(default_factory=list)
    settings: list[Place] = field(default_factory=list)
    """Strings, bools and the like in the user's own objects: a program holds for the values that they had."""
    logs: list[Place] = field(default_factory=list)
    nodes: list[Watched] = field(default_factory=list)
    """Containers and objects, each with its keys that lead to what is dynamic."""
    _met: dict[int, int] = field(default_factory=dict)

    def look(self, place: Place, numbers: bool | None = None) -> Hashable:
        """The form of what lies there: equal for variables that differ in the values of their leaves alone. `numbers`:
        another choice than for the rest."""
        value = place.look()
        if is_a(value, bool):
            self.leaves.append(place)
            return "leaf"
        if values.is_function(value):  # a program holds for the one that it was
            self.settings.append(place)
            return Same(value)
        return self._form(place, self.numbers if numbers is None else numbers, 0)

    def _form(self, place: Place, numbers: bool, depth: int) -> Hashable:
        value = place.look()
        if values.is_number(value) or values.is_leaf(value):
            return self._leaf(place, value, numbers)
        if is_a(value, values.FUNCTIONS):
            return _function(value, _FUNCTIONS_WITHIN)
        if id(value) in self._met:
            return "again", self._met[id(value)]
        if value is MISSING or len(self.leaves) >= self.limit or depth > _DEPTH:
            return Same(value)
        self._met[id(value)] = len(self._met)
        adapter = adapter_for(value)
        if adapter is not None:
            return self._variable(place, value, adapter)
        if is_a(value, tuple) and _holds_numbers(value, numbers) and _is_one_value(value):
            self.leaves.append(place)  # whole: nothing can be put into a tuple
            return "leaf"
        if is_a(value, set | frozenset):
            return self._set(place, value)
        if is_a(value, list | collections.deque) and self.is_log is not None and self.is_log(place):
            self.logs.append(place)
            return "log"
        return self._inside(place, value, numbers, depth)

    def _leaf(self, place: Place, value: Any, numbers: bool) -> Hashable:
        array = values.is_array(value)
        number = values.is_number(value) and not is_a(value, bool)
        written = place.path in self.counted or (place.kind == "attribute" and place.key in self.stored)
        if number and place.path not in self.constant and (array or numbers or written):
            self.leaves.append(place)
            return "leaf"
        array = array or is_a(value, values.np.ndarray)
        self._setting(place, numbers and not array)
        return Same(value) if array else (type(value), value)

    def _setting(self, place: Place, own: bool) -> None:
        if place.path in self.constant or (own and len(self.settings) < _SETTINGS):
            self.settings.append(place)

    def _variable(self, place: Place, value: object, adapter: Adapter) -> Hashable:
        inside = place.inside(adapter)
        held = inside.look()
        if held is not MISSING and (values.is_number(held) or _is_one_value(held)):
            self.leaves.append(inside)
            return type(value), "leaf"
        return type(value), Same(held)

    def _set(self, place: Place, value: Any) -> Hashable:
        if is_a(value, set) and self.is_log is not None and self.is_log(place):
            self.logs.append(place)
            return "log"
        self.nodes.append((value, ()))
        self._setting(place, True)
        return type(value), frozenset(value)

    def _inside(self, place: Place, value: Any, numbers: bool, depth: int) -> Hashable:
        if is_a(value, types.MethodType):
            below = place.below("attribute", "__self__")
            return (
                "method",
                self._form(below, numbers, depth + 1),
                _function(value.__func__, _FUNCTIONS_WITHIN),
            )
        container = is_a(value, dict | list | tuple | collections.deque)
        if not container and (not values.is_walkable(value) or values.is_memory(value)):
            return Same(value)
        own = numbers and (container or _is_users_own(value))
        fields = None if container or not own else _fields(value)
        parts, dynamic = list[tuple[str, object, Hashable]](), list[Key]()
        found = list(values.children(value))
        if framework_classes(type(value)):  # which bind attributes anew, in another order
            found.sort(key=lambda child: str(child[1]))
        for kind, key, child in found:
            if str(key).startswith(INTERNAL) or (key == OWN_NAME and framework_classes(type(value))):
                continue
            if is_a(value, tuple) and values.is_number(child):  # nothing can be put into a tuple
                parts.append((kind, key, Same(child) if values.is_array(child) else (type(child), child)))
                continue
            count = len(self.leaves)
            counts = own and (fields is None or key in fields)
            form = self._form(place.below(kind, key), counts, depth + 1)  # type: ignore[arg-type]
            parts.append((kind, key, form))
            if form == "leaf" and len(self.leaves) > count:
                dynamic.append((kind, key))
        self._node(value, tuple(dynamic))
        return type(value), tuple(parts)

    def _node(self, value: object, dynamic: tuple[Key, ...]) -> None:
        if is_a(value, dict | list | collections.deque):
            self.nodes.append((value, tuple(key for kind, key in dynamic if kind == "item")))
        if not is_a(value, tuple) and values.raw_attributes(value):
            held = values.own_dict(value)
            plain = held is not None and len(held) == len(values.raw_attributes(value))
            keys = tuple(key for kind, key in dynamic if kind == "attribute")
            self.nodes.append((held if plain else value, keys))


def _is_users_own(value: object) -> bool:
    cls = type(value)
    if keeps_numbers(cls):
        return False
    return values.is_user_class(cls) or not framework_classes(cls) and values.is_pytree_leaf(value)


def _unnoticed(value: object) -> contextlib.AbstractContextManager[None]:
    """While a tree is taken apart; where nothing is checked that would ask for more, the room is not there."""
    trees = sys.modules.get("jitmagic.tracing.trees")
    return trees.unnoticed(value) if trees is not None else contextlib.nullcontext()  # type: ignore[no-any-return]


def _fields(value: object) -> Collection[str] | None:
    """The attributes of a registered pytree that are among its children; None for other objects."""
    if values.is_pytree_leaf(value):
        return None
    jax: Any = sys.modules["jax"]
    try:
        with _unnoticed(value):
            children = jax.tree_util.tree_flatten_with_path(value, is_leaf=values.top_alone())[0]
    except RuntimeError:  # its class does what can't be undone
        return None
    named: set[str] = {getattr(path[0], "name", "") for path, _ in children}
    held = {id(child) for _, child in children} if "" in named else ()
    return named | {k for k, v in values.raw_attributes(value).items() if id(v) in held}


def _is_one_value(value: object) -> bool:
    return _all_numbers(value) or _is_pytree_of_numbers(value)


def _holds_numbers(value: tuple[object, ...], numbers: bool) -> bool:
    """An array, or where they count a number, lies in the tuple itself or in one in it: nothing can be put there."""
    return any(
        _holds_numbers(v, numbers)
        if is_a(v, tuple)
        else values.is_array(v) or (numbers and values.is_number(v))
        for v in inside(value)
    )


def _is_pytree_of_numbers(value: object) -> bool:
    # A quantity with a unit, or whatever else jax takes apart.
    tree = getattr(sys.modules.get("jax"), "tree", None)
    if tree is None or values.is_leaf(value) or values.is_endless(value):
        return False
    try:
        with _unnoticed(value):
            leaves = tree.leaves(value, is_leaf=is_variable)
    except RuntimeError:
        return False
    return bool(leaves) and all(v is not value and values.is_number(v) for v in leaves)


def _all_numbers(value: Any, depth: int = 0) -> bool:
    # The whole value must be a pytree with numbers at its leaves.
    if type(value) in (dict, list) or is_a(value, tuple):
        below = list(value.values()) if is_a(value, dict) else inside(value)
        return bool(below) and depth < 20 and all(v is None or _all_numbers(v, depth + 1) for v in below)
    return values.is_number(value) and not is_a(value, bool)


def _function(fn: object, depth: int) -> Hashable:
    """Code, defaults and what its closure holds: functions made twice by the same factory are the same."""
    if not is_a(fn, types.FunctionType) or not depth:
        return Same(fn)
    held = (*values.cell_values(fn), *(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())
    return fn.__code__, tuple(_constant(v, depth - 1) for v in held)


def _constant(value: object, depth: int) -> Hashable:
    if type(value) in values.SCALARS:
        return type(value), value
    if is_a(value, types.FunctionType):
        return _function(value, depth)
    if is_a(value, tuple) and depth:
        return type(value), tuple(_constant(v, depth - 1) for v in inside(value))
    return Same(value)


# What a call looks at to see that nothing but the leaves is different.


class AsBefore:
    """Some containers and objects as they were: `now == then` as long as only what is dynamic in them differs. To ask
    raises LookupError where something is gone."""

    def __init__(self, nodes: Sequence[Watched]) -> None:
        self.now = [
            held if not keys and type(held) in _PLAIN else _partly(held, keys) for held, keys in nodes
        ]
        self.then = [part.copy() for part in self.now]


_PLAIN = (dict, list, set, frozenset, collections.deque)


def _partly(held: Any, besides: Collection[object]) -> _Partly:
    if type(held) not in (dict, list, collections.deque):
        return _Partly(held, besides)
    rest = [k for k in (held if type(held) is dict else range(len(held))) if k not in besides]
    return _Rest(held, operator.itemgetter(*rest) if rest else len)


class _Partly:
    """A container without the items that are dynamic, or an object that has slots."""

    def __init__(self, held: Any, besides: Collection[object]) -> None:
        self.held, self.besides = held, besides

    def copy(self) -> object:
        """What is in it now."""
        held = self.held
        if is_a(held, list | collections.deque):
            pairs: Any = enumerate(held)
        else:
            pairs = dict.items(held) if is_a(held, dict) else values.raw_attributes(held).items()
        return {k: MISSING if k in self.besides else v for k, v in pairs}

    def __eq__(self, then: object) -> bool:
        return self.copy() == then

    __hash__ = None  # type: ignore[assignment]


class _Rest(_Partly):
    """A container of Python's own without the items that are dynamic; `rest` takes the others out."""

    def __init__(self, held: Any, rest: Callable[[Any], object]) -> None:
        self.held, self.rest = held, rest

    def copy(self) -> object:
        """What is in it now."""
        return len(self.held), self.rest(self.held)
