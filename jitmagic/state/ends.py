"""Whose end the user notices, so that nothing of ours may keep it alive for longer."""

from __future__ import annotations

import ast
import collections
import dis
import inspect
import sys
import types
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from jitmagic.source.tree import nodes_of
from jitmagic.state import bystanders, values
from jitmagic.state.values import is_a

_ASKING = frozenset(
    """WeakKeyDictionary WeakMethod WeakSet WeakValueDictionary finalize get_objects get_referrers getrefcount
    getweakrefcount getweakrefs live_arrays live_buffers weakref""".split()
)
"""Names of what tells which objects are alive."""
WEAK = (
    weakref.ref,
    weakref.WeakKeyDictionary,
    weakref.WeakSet,
    weakref.WeakValueDictionary,
    weakref.finalize,
)
"""What tells its holder whether something is alive."""
_PLAIN = (list, dict, set, collections.deque)
_asked: list[str] = []


def cell_begins(tree: ast.Module) -> None:
    """Look for what the cell asks with, and in which thread it runs."""
    bystanders.cell_begins()
    used = (getattr(n, "id", None) or getattr(n, "attr", None) for n in nodes_of(tree))
    _asked[:] = sorted(_ASKING.intersection(filter(None, used)))[:1]


def asked() -> str:
    """What the running cell asks with which objects are alive; '' where it does not."""
    return _asked[0] if _asked else ""


def is_noticed(value: Any) -> bool:
    """Something of the user's tells when this goes: a `__del__`, a callback or a container of weak references, what a
    generator does that was left in its middle."""
    if is_a(value, types.GeneratorType):
        return _does_more(value)
    users = values.is_user_class(type(value))
    end = values.class_attribute(type(value), "__del__")
    if end is not None and values.is_users_function(end[1]):
        return True
    if not (users or is_a(value, (np.ndarray, set, frozenset)) or values.is_jax_array(value)):
        return False
    if not weakref.getweakrefcount(value):
        return False
    return any(_tells(r) and not _is_of_its_library(r, value) for r in weakref.getweakrefs(value))


def _does_more(generator: types.GeneratorType[Any, Any, Any]) -> bool:
    """It was left within a `try` or a `with` of the user's, or what it goes through was."""
    code, inner = generator.gi_code, generator.gi_yieldfrom
    if inspect.getgeneratorstate(generator) != inspect.GEN_SUSPENDED:
        return False
    handles = dis.opmap["PUSH_EXC_INFO"] in code.co_code[::2] and values.is_user_file(code.co_filename)
    return handles or is_a(inner, types.GeneratorType) and _does_more(inner)


def _tells(reference: weakref.ref[Any]) -> bool:
    called: object = reference.__callback__
    if type(called) is types.MethodType:
        called = called.__func__
    if type(called) is types.FunctionType:
        return _is_of_container(called) or values.is_users_function(called)
    of_list = type(called) is types.BuiltinMethodType and type(called.__self__) in _PLAIN  # `log.append`
    return of_list or type(called) is weakref.finalize or values.is_user_class(type(called))


def _is_of_container(called: types.FunctionType) -> bool:
    return called.__module__ in ("weakref", "_weakrefset")


def _is_of_its_library(reference: weakref.ref[Any], value: object) -> bool:
    """A weak container in which the library of its class lists its objects, as `logging` does its handlers."""
    called = reference.__callback__
    if not (type(called) is types.FunctionType and _is_of_container(called)):
        return False
    containers = [v() for v in called.__defaults__ or () if type(v) is weakref.ref]
    libraries = {values.module_of(c) for c in values.mro(type(value)) if not values.is_user_class(c)}
    listed = (v for name in libraries if name in sys.modules for v in vars(sys.modules[name]).values())
    return any(v is c for v in listed for c in containers)


def can_be_left(functions: Iterable[types.FunctionType]) -> bool:
    """Some of these may be left in their middle, and do more when they go: generators and coroutines."""
    codes = (c for fn in functions for c in values.codes_in(fn.__code__))
    return any(c.co_flags & _LEFT and c.co_name != "<genexpr>" for c in codes)


_LEFT = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def why(noticed: str) -> str:
    """Why something was left out, in words."""
    if noticed in _ASKING:
        return f"what it keeps would live on for it, and the cell asks (`{noticed}`)"
    return f"`{noticed}` would live on for it, and something tells when that goes"
