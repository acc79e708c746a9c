"""Instances of the notebook's classes as instances of the corrected classes, in copies."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Collection, Mapping
from typing import Any

Classes = Mapping[type, type]
_DEPTH = 4


def classes(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[type, type]:
    """Classes that the corrected cell defined anew, by the notebook's class of the same name."""
    return {
        kind: new[name] for name, kind in list(old.items())
        if isinstance(kind, type) and isinstance(new.get(name), type) and new[name] is not kind
    }  # fmt: skip


def namespace(names: dict[str, Any], known: Classes) -> None:
    """Put copies of the corrected classes where the namespace holds instances of the old ones."""
    if known:
        memo: dict[int, Any] = {}
        for name, value in list(names.items()):
            if not name.startswith("_"):
                names[name] = adopted(value, known, memo)


def adopted(value: Any, known: Classes, memo: dict[int, Any] | None = None, depth: int = 0) -> Any:
    """The value, or a copy in which every instance of an old class is one of the new class."""
    memo = {} if memo is None else memo
    if id(value) in memo or depth > _DEPTH:
        return memo.get(id(value), value)
    if type(value) in known:
        return _instance(value, known, memo, depth)
    if type(value) in (list, tuple, dict):
        return _container(value, known, memo, depth)
    return value


def method(function: Any, known: Classes) -> Any:
    """A bound method of an old class as that of the new class, on a copy of its object; others as they are."""
    if not isinstance(function, types.MethodType) or type(function.__self__) not in known:
        return function
    return getattr(adopted(function.__self__, known), function.__name__)


def _instance(value: Any, known: Classes, memo: dict[int, Any], depth: int) -> Any:
    try:
        new = copy.copy(value)
        object.__setattr__(new, "__class__", known[type(value)])
    except Exception:  # slots, or built otherwise: the old instance has the same attributes
        return value
    memo[id(value)] = new
    for name, item in list(getattr(new, "__dict__", {}).items()):
        other = adopted(item, known, memo, depth + 1)
        if other is not item:
            object.__setattr__(new, name, other)
    return new


def _container(value: Any, known: Classes, memo: dict[int, Any], depth: int) -> Any:
    if len(value) > 1000:
        return value
    items = value.items() if isinstance(value, dict) else enumerate(value)
    new = {k: adopted(v, known, memo, depth + 1) for k, v in items}
    if all(new[k] is v for k, v in (value.items() if isinstance(value, dict) else enumerate(value))):
        return value
    return new if isinstance(value, dict) else type(value)(new.values())


def fields(value: Any) -> dict[str, Any]:
    """Attributes of an object: fields of a dataclass, else what its `__dict__` or slots hold."""
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
    slots = [s for k in type(value).__mro__ for s in _slots(k)]
    return {**{s: getattr(value, s) for s in slots if hasattr(value, s)}, **getattr(value, "__dict__", {})}


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(s for s in slots if not s.startswith("__"))


def taken_apart(value: Any, kinds: Collection[str], depth: int = 0) -> Any:
    """Objects of these classes as dicts of their fields, named tuples as tuples, so that they can be compared."""
    if depth > _DEPTH:
        return value
    if type(value).__name__ in kinds and isinstance(value, tuple):
        return tuple(taken_apart(v, kinds, depth + 1) for v in value)
    if type(value).__name__ in kinds:
        return {k: taken_apart(v, kinds, depth + 1) for k, v in fields(value).items()}
    if type(value) in (list, tuple):
        return type(value)(taken_apart(v, kinds, depth + 1) for v in value)
    if type(value) is dict:
        return {k: taken_apart(v, kinds, depth + 1) for k, v in value.items()}
    return value
