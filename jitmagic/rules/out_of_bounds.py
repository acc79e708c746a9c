"""JM504 out-of-bounds: an index outside of its array, which jax moves to the border or drops."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, OutOfBounds
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.words import quoted


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each expression with such an index."""
    told = set()
    for fact in evidence.silent.out_of_bounds if evidence.silent else ():
        if fact.where not in told:
            told.add(fact.where)
            yield RULE.finding(
                evidence, _message(fact), where=fact.where, culprits=fact.names, help=_help(fact),
                detail=f"NumPy raises IndexError: index {fact.index} is out of bounds for axis {fact.axis} with size "
                f"{fact.size}" if fact.window == 1 else "",
            )  # fmt: skip


def _message(fact: OutOfBounds) -> str:
    deed = "writes to" if fact.writes else "reads"
    what = f"index {fact.index}" if fact.window == 1 else f"{fact.window} elements from index {fact.index} on"
    if fact.lands is None:
        then = "the write is dropped" if fact.writes else "jax fills in NaN, or the least whole number"
    else:
        then = f"jax takes index {fact.lands} for it" if fact.window == 1 else f"jax begins at {fact.lands}"
    head = f"{quoted(fact.where.text)} {deed} {what} of axis {fact.axis}, which has length {fact.size}"
    return f"{head}: {then}, without an error"


def _help(fact: OutOfBounds) -> str:
    bound = f"let the indices end at {fact.size - fact.window}"
    if fact.writes:
        return f'{bound}; where the write is to be dropped, say so: `.set(..., mode="drop")`'
    return (
        f'{bound}; for a value of your own outside, write `x.at[i].get(mode="fill", fill_value=...)`, or choose with '
        "`jnp.where(i < n, x[i], other)`"
    )


RULE = Rule("JM504", "out-of-bounds", "warning", find)
