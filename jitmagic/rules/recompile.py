"""What changed between the calls that made jax trace anew (JM401 to JM404)."""

from __future__ import annotations

import re

from jitmagic.evidence import Evidence, Leaf
from jitmagic.rules.base import traced_calls

FUNCTION_TYPES = frozenset(
    "function partial method builtin_function_or_method PjitFunction CompiledFunction jit "
    "wrapped_function".split()
)


def histories(evidence: Evidence) -> dict[str, list[Leaf]]:
    """For each leaf, its forms over the calls that were traced, in order."""
    found: dict[str, list[Leaf]] = {}
    for leaves in traced_calls(evidence):
        for x in leaves:
            found.setdefault(x.path, []).append(x)
    return found


def is_function(value: Leaf) -> bool:
    """Whether the static leaf is a function, lambda, method or partial, or a tuple of such."""
    return value.python_type.rsplit(".", 1)[-1] in FUNCTION_TYPES or "<function" in value.value


def without_address(value: str) -> str:
    """The `repr` of an object without its place in memory, the same for each new lambda of one text."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", value)


def signature(leaves: tuple[Leaf, ...], but: str) -> tuple[object, ...]:
    """What jax compares of a call, the leaf `but` left out and functions by their text."""
    return tuple(
        (x.path, x.static, x.shape, x.dtype, x.weak_type, without_address(x.value) if x.static else "")
        for x in leaves
        if x.path != but
    )
