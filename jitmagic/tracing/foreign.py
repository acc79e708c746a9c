"""Functions that a framework's own `jit` has compiled: what they wrap, and one trace of it to look at.

Equinox and Flax take objects that are part arrays, part settings: everything that is no array is static there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.stages import Traced

from jitmagic.tracing.leaves import is_array, named_leaves

LEAVES = "_leaves"
"""The only parameter of the traced function; messages of jax name `_leaves[3]`."""

TAKES_OBJECTS = frozenset(("equinox", "flax"))
"""Frameworks whose `jit` takes objects that are part arrays, part settings."""
STATIC_BUT_ARRAYS = frozenset(("equinox",))
"""Those for which everything that is no array is static."""
CARRIES_VARIABLES = frozenset(("flax",))
"""Those that carry the variables of their arguments back, and compile anew for each other setting."""
CARRIES_WRITES = frozenset(("brainstate",))
"""Those that carry back whatever is written to their objects."""

_BY_TYPE = {"_JitWrapper": "equinox", "JitWrapped": "flax", "JitFn": "flax"}


def framework_of(fn: object) -> str:
    """`equinox`, `flax` or `brainstate` for what its jit made; empty for any other function."""
    module = str(type(fn).__module__).partition(".")[0]
    name = _BY_TYPE.get(type(fn).__name__, "")
    if name and module == name:
        return name
    held = getattr(fn, "__dict__", None) if callable(fn) else None
    made = isinstance(held, dict) and {"jitted_fun", "origin_fun"} <= held.keys()
    return "brainstate" if made else ""


def inner_function(fn: Any) -> Callable[..., Any]:
    """The user's function or bound method inside a compiled one of a framework, past a wrapper that BrainPy adds."""
    inner: Any = getattr(fn, "__wrapped__", None)
    room = str(getattr(inner, "__globals__", {}).get("__name__", "")).partition(".")[0]
    if room == "brainpy" and hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    return user_method(inner) if callable(inner) else fn


def user_method(method: Any) -> Any:
    """The user's `update` of a system of BrainPy, which hands it out behind a method of its own that adds old forms
    of calls; what is no such method as it is."""
    if getattr(method, "__name__", "") != "_compatible_update":
        return method
    return object.__getattribute__(method.__self__, "update")


class Filtered:
    """Traces `fn` with the arrays of its arguments as inputs and all the rest as it is."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self.fn = fn

    def trace(self, *args: object, **kwargs: object) -> Traced:
        """The `Traced` of one call; its inputs are the array leaves in the order of the arguments."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        dynamic = [i for i, leaf in enumerate(leaves) if is_array(leaf)]

        @functools.wraps(self.fn)
        def call(_leaves: Sequence[object]) -> list[object]:
            mixed = list(leaves)
            for i, value in zip(dynamic, _leaves, strict=True):
                mixed[i] = value
            inner, named = jax.tree.unflatten(tree, mixed)
            return [v for v in jax.tree.leaves(self.fn(*inner, **named)) if is_array(v)]

        del call.__wrapped__  # type: ignore[attr-defined]  # jax would read the signature of the user's function
        return jax.jit(call).trace([leaves[i] for i in dynamic])


def leaf_names(fn: Callable[..., object], args: object, kwargs: object) -> dict[str, str]:
    """From `_leaves[3]` to the path of that leaf in the user's arguments."""
    paths = [path for path, leaf in named_leaves(fn, args, kwargs) if is_array(leaf)]
    return {f"{LEAVES}[{i}]": path for i, path in enumerate(paths)}
