"""The closed-over values that went into a traced program, by name; and whether they are still the same."""

from __future__ import annotations

import types
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from jitmagic.evidence import Variable, Where
from jitmagic.state import values
from jitmagic.state.paths import Place, at_or_below
from jitmagic.state.reached import LeafValue, Reach, Root
from jitmagic.state.reads import reads_of, seen_from_cell
from jitmagic.state.values import is_a, is_array, is_tracer, on_host, short

_Type = Literal["array", "scalar", "object", "rng", "function"]
_ELEMENTS = 100_000


def variables(
    reach: Reach, jaxpr_constants: Sequence[object], *, dyn: Collection[str] = ()
) -> tuple[Variable, ...]:
    """What the function reads without taking it as an argument.

    Arrays among `jaxpr_constants` are named by identity, shared memory, or equal value once converted; those
    that no name leads to (they were computed from others) are left out. An array that is read but is no
    constant has `in_jaxpr=False`. Scalars, strings and functions are those that the code names. `dyn` are the paths
    with that role.
    """
    leaves = [leaf for leaf in reach.leaves() if at_or_below(leaf.path, dyn) or not is_input(leaf)]
    baked = match(jaxpr_constants, leaves)
    if len(baked) < len({id(c) for c in jaxpr_constants}):
        extra = [leaf for leaf in reach.leaves(used_only=False) if leaf.path not in baked]
        taken = set(baked.values())
        rest = [c for c in jaxpr_constants if id(c) not in taken]
        more = match(rest, extra)
        baked |= more
        known = {leaf.path for leaf in leaves}
        leaves += [leaf for leaf in extra if leaf.path in more and leaf.path not in known]
    found: dict[str, Variable] = {}
    for leaf in leaves:
        if leaf.path not in found and _counts(leaf, leaf.path in baked):
            found[leaf.path] = _variable(leaf, reach, leaf.path in baked, dyn)
    return tuple(found.values())


def is_input(leaf: LeafValue) -> bool:
    """Does it come in as an argument? What is in objects that are no pytree does not."""
    if leaf.root.origin != "argument":
        return False
    return leaf.origin != "attribute" or not _is_plain_object(leaf.root.value)


def _counts(leaf: LeafValue, baked: bool) -> bool:
    if leaf.root.origin == "argument" and not baked and not leaf.is_variable:
        return _is_plain_object(leaf.root.value)
    if is_a(leaf.value, types.FunctionType):
        return values.is_user_file(leaf.value.__code__.co_filename) and leaf.origin != "attribute"
    return not is_a(leaf.value, values.FUNCTIONS)


def _is_plain_object(value: object) -> bool:
    # Fields of a NamedTuple or of a registered pytree are traced like any argument.
    if is_a(value, dict | list | tuple):
        return False
    try:
        import jax

        return bool(jax.tree_util.all_leaves([value]))
    except Exception:
        return True


def _variable(leaf: LeafValue, reach: Reach, baked: bool, dyn: Collection[str]) -> Variable:
    value = leaf.value
    kind = _type(leaf)
    whole = kind == "array" and is_array(value)
    declared = at_or_below(leaf.path, dyn)
    return Variable(
        path=leaf.path,
        origin=leaf.origin,  # type: ignore[arg-type]
        type=kind,
        role="dynamic" if declared else "constant",
        declared=declared,
        shape=tuple(value.shape) if whole else None,
        dtype=str(value.dtype) if whole else type(value).__name__ if kind == "scalar" else None,
        bytes=size_of(value) if whole else None,
        value=short(value) if kind in ("scalar", "object", "function") else None,
        reads=seen_from_cell(leaf.path, reads_of(leaf.path, reach.functions), reach.functions)
        or _reads_of_alias(leaf, reach),
        in_jaxpr=baked or kind != "array" or (whole and value.ndim == 0 and not declared),
    )


def of_place(place: Place) -> Variable | None:
    """A dynamic variable that no code of the user names: a library's own, read in its modules."""
    value, origin = place.look(), "attribute" if "." in place.path else "global"
    if not is_array(value):
        return None
    leaf = LeafValue(place.path, value, place, origin, Root(place.path, place, origin))
    found = _variable(leaf, Reach(), True, (place.path,))
    return replace(found, declared=False)


def _reads_of_alias(leaf: LeafValue, reach: Reach) -> tuple[Where, ...]:
    return reach.offered.get(leaf.path) or reads_of(leaf.root.path, reach.functions)


def _type(leaf: LeafValue) -> _Type:
    value = leaf.value
    if leaf.is_rng:
        return "rng"
    if is_a(value, types.FunctionType):
        return "function"
    if is_a(value, np.generic) or type(value) in (bool, int, float, complex, str, bytes):
        return "scalar"
    return "array" if is_array(value) else "object"


def size_of(value: Any) -> int | None:
    """Bytes of an array; None of what has no size, or refuses to tell."""
    try:
        return int(value.nbytes)
    except Exception:
        return None


def match(constants: Sequence[object], leaves: Sequence[LeafValue]) -> dict[str, int]:
    """For each path whose value is one of the constants, the `id` of that constant."""
    by_id: dict[int, LeafValue] = {}
    for leaf in leaves:
        by_id.setdefault(id(leaf.value), leaf)
    found: dict[str, int] = {}
    for constant in constants:
        named = by_id.get(id(constant)) or _by_content(constant, leaves)
        if named is not None:
            found.setdefault(named.path, id(constant))
    return found


def _by_content(constant: object, leaves: Sequence[LeafValue]) -> LeafValue | None:
    if is_tracer(constant):
        return None
    try:
        array = on_host(constant)
    except Exception:  # random keys have no numpy form
        return None
    held = [leaf for leaf in leaves if is_a(leaf.value, np.ndarray | np.generic | list | tuple)]
    arrays = [leaf for leaf in held if is_a(leaf.value, np.ndarray)]
    for leaf in arrays:
        if array.size and np.may_share_memory(array, leaf.value) and _shares_memory(array, leaf.value):
            return leaf
    same = next((leaf for leaf in held if _equal(leaf.value, array)), None)
    if same is not None or array.ndim == 0 or array.size < 2:
        return same
    # `jnp.asarray(w)` of a jax array with another dtype, or a copy of it
    jax_arrays = (leaf for leaf in leaves if values.is_jax_array(leaf.value) and not is_tracer(leaf.value))
    return next((leaf for leaf in jax_arrays if _equal(leaf.value, array)), None)


def _shares_memory(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=1000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _equal(value: Any, array: np.ndarray) -> bool:
    """Is the constant this value, converted to the constant's dtype?"""
    if is_a(value, list | tuple):
        if not array.ndim or len(value) != array.shape[0] or array.size > _ELEMENTS:
            return False
    elif tuple(value.shape) != array.shape or value.dtype.kind not in "biufc":
        return False
    try:
        given = on_host(value)
        if given.shape != array.shape or given.dtype.kind not in "biufc":
            return False
        if given.size > _ELEMENTS:
            indices = np.unravel_index(np.linspace(0, given.size - 1, 4096).astype(int), given.shape)
            given, array = given[indices], array[indices]
        with np.errstate(all="ignore"):
            return bool(np.array_equal(given.astype(array.dtype), array, equal_nan=array.dtype.kind in "fc"))
    except Exception:
        return False
