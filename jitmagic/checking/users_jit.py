"""What the user's own code has compiled: found among the notebook's names, and taken apart."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax

from jitmagic.checking.watched import checker_of
from jitmagic.options import JitOptions
from jitmagic.state.values import class_dict, is_a, module_of, own_dict
from jitmagic.tracing import foreign
from jitmagic.tracing.compat import jit_options
from jitmagic.tracing.locate import is_user_file

MEMO = type(functools.cache(int))
"""What `functools.cache` makes of a function."""


def is_object(value: object) -> bool:
    """What is called is an object with a class of its own, and no function of Python's or jax's."""
    of_jax = type(value).__module__.startswith("jax.") and hasattr(value, "__wrapped__")
    return not (inspect.isroutine(value) or isinstance(value, MEMO) or of_jax or compiled_already(value))


def compiled_already(value: Any) -> bool:
    """The user's own code has compiled it, with `jax.jit` or a framework's own."""
    framework = foreign.framework_of(value)
    if type(value).__name__ != "PjitFunction" and not framework:
        return False
    inner = foreign.inner_function(value) if framework else foreign.user_method(value.__wrapped__)
    code = getattr(inspect.unwrap(inner), "__code__", None)
    return code is not None and is_user_file(code.co_filename)


def compiled_parts(value: object) -> list[str]:
    """What the user's own code has compiled: `""` for the value itself, methods of a class, attributes of an object."""
    if compiled_already(value):
        return [""]
    return [name for name, part in list(held_by(value).items()) if compiled_already(part)]


def compiled_in_use(names: Mapping[str, object], tree: ast.AST) -> bool:
    """A cell reads something that the notebook has compiled."""
    used = (names.get(n.id) for n in ast.walk(tree) if isinstance(n, ast.Name))
    return any(map(compiled_parts, used))


def held_by(value: object) -> Mapping[str, object]:
    """What a class of the notebook's, or an object of a plain one, has under its names."""
    if is_a(value, type):
        return class_dict(value) if module_of(value) == "__main__" else {}
    return (own_dict(value) or {}) if _is_plain_object(value) else {}


def _is_plain_object(value: object) -> bool:
    """An object of the notebook's own classes alone, whose attributes jax does not look at."""
    kinds = type(value).__mro__[:-1]
    own = all(k.__module__ == "__main__" and k.__setattr__ is object.__setattr__ for k in kinds)
    return bool(kinds) and own and jax.tree_util.all_leaves([value])


def unwrap_jitted(fn: Any) -> tuple[Any, JitOptions | None]:
    """The user's function inside a `jax.jit` object, and the options it was made with where jax tells them."""
    if type(fn).__name__ != "PjitFunction":
        return fn, None
    options = JitOptions.of(**jit_options(fn))
    checker = checker_of(fn.__wrapped__)
    inner = checker.fn if checker is not None else foreign.user_method(fn.__wrapped__)
    return inner, _said_once(inner, options)


def of_custom_derivative(fn: object) -> JitOptions:
    """What a `custom_vjp` or `custom_jvp` declares as not differentiable is no array, so it is static under jit."""
    return JitOptions.of(static_argnums=getattr(fn, "nondiff_argnums", None) or None)


def _said_once(fn: Any, options: JitOptions) -> JitOptions:
    """Without the numbers that jax itself derives from names: with both, it derives nothing for further names."""
    try:
        order = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return options
    by_name = {i for i, p in enumerate(order) if p.kind is p.POSITIONAL_OR_KEYWORD}
    for kind in ("static", "donate"):
        numbers, names = getattr(options, f"{kind}_argnums"), getattr(options, f"{kind}_argnames")
        if numbers and all(n in by_name and order[n].name in names for n in numbers):
            without: dict[str, Any] = {f"{kind}_argnums": (), "given": options.given - {f"{kind}_argnums"}}
            options = replace(options, **without)
    return options
