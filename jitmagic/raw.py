"""Values as they are, whatever their own classes say: a user's class may count, print or lie when it is asked."""

from __future__ import annotations

import collections
import sys
import types
import weakref
from collections.abc import Mapping
from typing import Any, TypeGuard, TypeVar, overload

T = TypeVar("T")
_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_module_name = type.__dict__["__module__"].__get__
_qualified_name = type.__dict__["__qualname__"].__get__


@overload
def is_a(value: object, cls: type[T]) -> TypeGuard[T]: ...
@overload
def is_a(value: object, cls: types.UnionType | tuple[type, ...]) -> bool: ...
def is_a(value: object, cls: Any) -> bool:
    """`isinstance` by the object's true type: it may lie about, or fail at, its `__class__`."""
    return issubclass(type(value), cls)


def mro(cls: type) -> tuple[type, ...]:
    """The classes that `cls` inherits from, itself first, whatever its metaclass says."""
    return _mro(cls)


def class_dict(cls: type) -> Mapping[str, Any]:
    """What the class body bound (a read-only mapping)."""
    return _class_dict(cls)


def module_of(cls: type) -> str:
    """Name of the module that defines `cls`, or an empty string."""
    name = _module_name(cls)
    if not is_a(name, str):
        return ""
    return "__main__" if type(cls) is not type and _is_made_by_call(cls, name) else name


def _is_made_by_call(cls: type, module: str) -> bool:
    """Python takes `Meta("A", (), {})` for a class of the module in which `Meta` makes it, where no `A` is."""
    name = _qualified_name(cls)
    if "<locals>" in name or all(module != _module_name(meta) for meta in mro(type(cls))):
        return False
    made_in = sys.modules.get(module)
    return made_in is not None and name.partition(".")[0] not in made_in.__dict__


def own_dict(value: object) -> dict[str, object] | None:
    """The object's `__dict__` itself, or None."""
    for cls in mro(type(value)):
        found: Any = class_dict(cls).get("__dict__")
        if is_a(found, types.GetSetDescriptorType | types.MemberDescriptorType):
            held = found.__get__(value)
            return held if is_a(held, dict) else None
    return None


def raw_attributes(value: object) -> dict[str, Any]:
    """The object's own attributes, from its `__dict__` and its slots; empty where it has none."""
    found = dict(own_dict(value) or {})
    for name, slot in slots(type(value)):
        try:
            found[name] = slot.__get__(value)
        except AttributeError:
            continue
    return found


_slot_table: weakref.WeakKeyDictionary[type, tuple[tuple[str, weakref.ref[type]], ...]] = (
    weakref.WeakKeyDictionary()
)
"""The slots of a class by name, with the class that has each: what stands for a slot keeps its class alive."""


def slots(cls: type) -> tuple[tuple[str, Any], ...]:
    """The slots of its objects, filled or not."""
    found = _slot_table.get(cls)
    if found is None:
        members = {
            name: weakref.ref(base)
            for base in reversed(mro(cls))
            if "__slots__" in class_dict(base)
            for name, member in class_dict(base).items()
            if is_a(member, types.MemberDescriptorType)
        }
        found = _slot_table[cls] = tuple(members.items())
    known = ((name, class_dict(base).get(name)) for name, held in found if (base := held()) is not None)
    return tuple((name, member) for name, member in known if is_a(member, types.MemberDescriptorType))


CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)


def inside(container: Any) -> list[Any]:
    """What is in one of Python's containers, or one of a class made of it: of a dict its keys and its values."""
    kind = _kind(container)
    if kind is dict:
        return [*dict.keys(container), *dict.values(container)]
    return list(kind.__iter__(container))


def length(container: Any) -> int:
    """How many things are in such a container."""
    return int(_kind(container).__len__(container))


def _kind(container: object) -> Any:
    cls = type(container)
    return cls if cls in CONTAINERS else next(kind for kind in CONTAINERS if issubclass(cls, kind))
