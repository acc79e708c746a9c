"""What is inside wrappers: jitted functions, partials, methods, properties; and what belongs to a library."""

from __future__ import annotations

import functools
import random
import types
from typing import Any

import numpy as np

from jitmagic.state import values
from jitmagic.state.values import is_a, is_user_class, is_user_file, is_users_function

Function = types.FunctionType


def parts(member: Any) -> tuple[object, ...]:
    """The functions inside a property, a static or class method, or what `functools` makes of one."""
    if is_a(member, property):
        return (member.fget, member.fset, member.fdel)
    if is_a(member, staticmethod | classmethod):
        return (member.__func__,)
    if values.module_of(type(member)) == "functools" and not callable(member):
        return tuple(values.raw_attributes(member).values())
    return (member,)


def inner(value: Any) -> object:
    """What a wrapper wraps, or None."""
    if is_a(value, functools.partial):
        return value.func
    if is_a(value, types.MethodType):
        return value.__func__
    held = values.own_dict(value) or {}
    if "__wrapped__" in held:
        return held["__wrapped__"]
    module = values.module_of(type(value)).split(".")[0]
    if module in ("jax", "jaxlib", "functools"):
        return getattr(value, "__wrapped__", None) or getattr(value, "fun", None)
    return None


def unwrap(fn: object) -> tuple[object | None, Function | None]:
    """The receiver that a callable is bound to, and the user's function in it; None where there is none."""
    receiver = None
    for _ in range(20):
        if is_a(fn, types.MethodType):
            receiver = fn.__self__
        if is_users_function(fn):
            return receiver, fn
        inside = inner(fn)
        if inside is None:
            break
        fn = inside
    found = values.class_attribute(type(fn), "__call__")
    in_jax = values.module_of(type(fn)).partition(".")[0] in ("jax", "jaxlib")
    if found and is_a(found[1], Function) and not in_jax:
        return fn, found[1]
    return receiver, fn if is_a(fn, Function) else None


def is_library(value: Any) -> bool:
    """A class, function or module of a library."""
    if is_a(value, type):
        return not is_user_class(value) and value.__module__ != "builtins"
    if is_a(value, Function):
        return not is_user_file(value.__code__.co_filename) and not hasattr(value, "__wrapped__")
    return is_a(value, types.BuiltinFunctionType | types.MethodType | np.ufunc) and not is_user_class(
        type(getattr(value, "__self__", None))
    )


def full_name(value: Any) -> str:
    """Module and qualified name: `numpy.random.normal`."""
    owner: Any = getattr(value, "__self__", None)
    name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
    module = getattr(value, "__module__", None)
    if is_a(owner, types.ModuleType):
        module = owner.__name__
    elif is_a(owner, np.random.RandomState):
        module, name = "numpy.random", value.__name__
    elif is_a(owner, random.Random):
        module, name = "random", value.__name__
    return f"{module}.{name}" if is_a(module, str) and name else name
