"""Whether a function needs to be read at all: most helpers use nothing but their arguments and libraries."""

from __future__ import annotations

import dis
import types

from jitmagic.source.tree import ByCode
from jitmagic.state.adapters import is_framework
from jitmagic.state.values import is_a, is_user_module

_READ_CLOSELY = frozenset(
    "globals locals exec eval getattr setattr delattr hasattr vars dir next __dict__".split()
)
"""Names with which a function may reach what it does not name, or use up what it names."""
_WRITES = ("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_SUBSCR", "STORE_SLICE", "DELETE_", "IMPORT_")
_OTHER = ("LOAD_SUPER", "LOAD_NAME", "LOAD_LOCALS", "LOAD_BUILD_CLASS", "LOAD_CLASSDEREF", "LOAD_FROM_DICT")
_CLOSELY = frozenset(
    code for name, code in dis.opmap.items() if name.startswith((*_WRITES, *_OTHER))
)  # fmt: skip
_straight: ByCode[bool] = ByCode()


def uses_libraries_alone(fn: types.FunctionType) -> bool:
    """Every name that the function looks up outside is a module of a library or one of Python's own, and it stores
    nothing but local variables; told from its bytecode, without its source. False where that cannot be told.

    What it asks of its arguments is among `fn.__code__.co_names`."""
    code = fn.__code__
    if not _is_straight(code):
        return False
    values = fn.__globals__
    return all(_is_library(values[name]) for name in code.co_names if name in values)


def _is_straight(code: types.CodeType) -> bool:
    known = _straight.get(code)
    if known is not None:
        return known
    nested = any(isinstance(c, types.CodeType) for c in code.co_consts)
    straight = (
        not (nested or code.co_freevars or code.co_cellvars)
        and _READ_CLOSELY.isdisjoint(code.co_names)
        and _CLOSELY.isdisjoint(code.co_code[::2])
    )
    return _straight.put(code, straight)


def _is_library(value: object) -> bool:
    return is_a(value, types.ModuleType) and not is_user_module(value) and not is_framework(value)
