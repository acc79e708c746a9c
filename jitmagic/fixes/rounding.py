"""Whether rounding alone explains that a compiled result differs from the plain one of the same function.

A loop of many steps carries the rounding of the first into the last; ordinary tolerances are for one step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitmagic.checking.subject import Subject

SHARE = 0.25
"""Of the budget, for each evaluation of the program operation by operation."""


def explains(
    subject: Subject,
    jitted: Any,
    call: tuple[Sequence[Any], Mapping[str, Any]],
    results: tuple[Any, Any],
    static: Collection[str] = (),
) -> bool:
    """`results` (plain, compiled) of `jitted` at this call differ no more than its program, evaluated operation
    by operation, does when every value moves by one unit in the last place. `static` are static besides the
    subject's own. False where that cannot be told."""
    import jax

    from jitmagic.measure import compare, reference

    plain, got = results
    args, kwargs = call
    if {d.reason for d in compare.compare(plain, got)} - {"values"}:
        return False
    try:
        jaxpr = jitted.trace(*args, **kwargs).jaxpr
        inputs = subject.inputs(args, kwargs, static)
    except Exception:  # not a function of jax's, or one that does not trace
        return False
    program = reference.Program(jaxpr, inputs, subject.budget * SHARE)
    leading = reference.Leading(program, len(jax.tree.leaves(got)))
    terms = reference.largest_reduction(jaxpr)
    return not compare.compare(plain, got, reference=leading, terms=terms)
