"""Objects among the arguments of a call that are state: those of frameworks, and others where their argument is
declared dynamic. jax gets None in their places."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jitmagic.evidence import root
from jitmagic.options import Parameters, argument_names
from jitmagic.state import adapters, values
from jitmagic.state.adapters import adapter_for
from jitmagic.state.paths import Location
from jitmagic.state.region import holds_state

Objects = Mapping[Location, Any]
Taken = tuple[dict[Location, Any], tuple[Any, ...], dict[str, Any]]
"""The objects among some arguments, and the arguments with None in their places."""


def path_of(location: Location) -> str:
    """How the location is written: `state['model']`."""
    return str(location[0]) + "".join(values.step_text("item", key) for _, key in location[1:])


def taken(
    parameters: Parameters,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    static: Collection[str] = (),
    declared: Collection[str] = (),
) -> Taken:
    """Take the objects out of the arguments; static ones are left. In `declared` arguments every object counts."""
    if not declared and not adapters.any_installed():
        return {}, tuple(args), dict(kwargs)
    found: dict[Location, object] = {}

    def without(name: str, value: object) -> object:
        if name in static:
            return value
        return replaced(value, (name,), is_object if root(name) not in declared else has_attributes, found)

    names = argument_names(parameters, len(args))
    rest = tuple(without(name, value) for name, value in zip(names, args, strict=True))
    return found, rest, {name: without(name, value) for name, value in kwargs.items()}


def replaced(
    value: Any, at: Location, is_one: Callable[[object], bool], found: dict[Location, object]
) -> object:
    """A value with None for the objects in it, which are put into `found`; containers are copied where need be."""
    if type(value) in (tuple, list, dict):
        keys = list(value) if type(value) is dict else range(len(value))
        parts = {key: replaced(value[key], (*at, (type(value), key)), is_one, found) for key in keys}
        if all(parts[key] is value[key] for key in keys):
            return value
        return parts if type(value) is dict else type(value)(parts.values())
    if not is_one(value):
        return value
    found[at] = value
    return None


def filled(
    parameters: Parameters, args: Sequence[object], kwargs: Mapping[str, object], objects: Objects
) -> tuple[tuple[object, ...], dict[str, object]]:
    """The arguments with the objects in their places again."""
    if not objects:
        return tuple(args), dict(kwargs)
    names = argument_names(parameters, len(args))
    full = tuple(put_in(value, (name,), objects) for name, value in zip(names, args, strict=True))
    return full, {name: put_in(value, (name,), objects) for name, value in kwargs.items()}


def put_in(value: Any, at: Location, objects: Objects) -> object:
    """A value with the objects in their places again."""
    if at in objects:
        return objects[at]
    if not any(where[: len(at)] == at for where in objects):
        return value
    if type(value) is dict:
        return {key: put_in(v, (*at, (dict, key)), objects) for key, v in value.items()}
    return type(value)(put_in(v, (*at, (type(value), i)), objects) for i, v in enumerate(value))


_ATOMS = (type, values.types.ModuleType, values.types.MethodType, *values.FUNCTIONS)


def has_attributes(value: object) -> bool:
    """Is this an object of any class that can be state, but for tuples with names?"""
    if is_object(value) or values.is_leaf(value) or values.is_a(value, (tuple, *_ATOMS)):
        return is_object(value)
    return values.is_walkable(value) and bool(values.raw_attributes(value))


def is_object(value: object) -> bool:
    """Is this an object of a framework that is state: a module, an optimizer, a metric, a variable?

    Registered pytrees are none: jax takes their leaves. Those of flax.nnx are, for jax would take copies of them."""
    if values.is_leaf(value) or values.is_a(value, _ATOMS):
        return False
    adapter = adapter_for(value)
    if adapter is not None:
        return adapter.is_state and not adapters.is_ref(value)
    if any(True for _ in adapters.trace_holders(value)):
        return True
    return values.is_pytree_leaf(value) and (adapters.is_stateful_class(type(value)) or holds_state(value))


class Given(threading.local):
    """The objects that a program is called with, in each thread its own: the roots of the paths to their variables."""

    def __init__(self) -> None:
        self._held: dict[Location, Callable[[], object]] = {}
        self._names: dict[str, Location] = {}

    def bind(self, objects: Objects) -> None:
        """From now on these, without keeping them alive."""
        self._held = {at: values.reference(value) for at, value in objects.items()}
        self._names = {path_of(at): at for at in objects}

    def objects(self) -> dict[Location, object]:
        """The objects by their location."""
        return {at: held() for at, held in self._held.items()}

    def __getitem__(self, path: str) -> object:
        found = self._held[self._names[path]]()
        if found is None:
            raise KeyError(path)
        return found
