"""JM206 lossy-pytree: a registered class loses a field when it is taken apart."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, LossyPytree
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.words import agree, listed


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each class whose objects lose a field that is read."""
    for fact in evidence.silent.lossy:
        if fact.fields:
            yield _told(evidence, fact)


def _told(evidence: Evidence, fact: LossyPytree) -> Finding:
    lost = fact.fields
    if fact.dropped:
        return _dropped(evidence, fact)
    return RULE.finding(
        evidence,
        f"{listed(lost)} of `{fact.type}` {agree(lost, 'is', 'are')} not the same after `tree_flatten` and "
        f"`tree_unflatten`: inside the compiled `{evidence.function.name}` "
        f"{agree(lost, 'it has another value', 'they have other values')}",
        where=fact.where,
        culprits=[fact.argument, fact.type, *lost],
        help=f"return {listed(lost)} too: among the children if "
        f"{agree(lost, 'it is an array', 'they are arrays')} or a number that changes, else in the auxiliary "
        "data; and put each back as it was in `tree_unflatten`",
    )


def _dropped(evidence: Evidence, fact: LossyPytree) -> Finding:
    lost = fact.fields
    return RULE.finding(
        evidence,
        f"`tree_flatten` of `{fact.type}` returns {listed(lost)}, and `tree_unflatten` does not put "
        f"{agree(lost, 'it', 'them')} back: each time jax rebuilds the object (a compiled call, each iteration of "
        f"`jax.lax.scan`) {agree(lost, 'it is', 'they are')} what `__init__` makes",
        where=fact.where,
        culprits=[*lost, fact.type, fact.argument],
        help=f"assign {listed(lost)} from `children` in `tree_unflatten`",
    )


RULE = Rule("JM206", "lossy-pytree", "warning", find)
