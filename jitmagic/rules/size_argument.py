"""JM406 size-argument: the length of an array argument is passed as a number."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Leaf
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, traced_calls
from jitmagic.rules.words import agree, listed, quoted

SMALLEST = 3
"""Numbers below are settings (a power, an axis) more often than sizes."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One note with all numbers that are sizes in the first call that was traced."""
    blamed = {x for p in evidence.problems for x in p.leaves} | set(evidence.static_verified or ())
    leaves = next(traced_calls(evidence), ())
    leaves = leaves or next((c.leaves for c in evidence.calls if c.outcome == "failed"), ())
    found = [(x, size) for x in leaves if x.path not in blamed and (size := _size_of(x, leaves))]
    if not found:
        return
    names = [x.path for x, _ in found]
    first, shape = found[0]
    yield RULE.finding(
        evidence,
        f"{listed(names)} {agree(names, 'is', 'are')} passed as {agree(names, 'a number', 'numbers')}, so jax makes "
        f"{agree(names, 'an array', 'arrays')} of {agree(names, 'it', 'them')}; {quoted(first.path)} is {first.value}, "
        f"which is {quoted(shape)} and known while jax traces",
        where=evidence.function.where,
        culprits=[*names, *(x.argument for x, _ in found)],
        help=f"take {agree(names, 'it', 'them')} from the arrays inside `{evidence.function.name}` (`{shape}`), or "
        f"make {agree(names, 'it', 'them')} static",
    )


def _size_of(leaf: Leaf, leaves: tuple[Leaf, ...]) -> str:
    """`Y.shape[0]` where the leaf is a whole number and the length of an array of the call, else ''."""
    if leaf.kind != "scalar" or leaf.python_type != "int" or leaf.static or not leaf.value.isdigit():
        return ""
    if "._" in leaf.path or ".shape[" in leaf.path:  # what a framework keeps for itself
        return ""
    number = int(leaf.value)
    if number < SMALLEST:
        return ""
    near = sorted(leaves, key=lambda x: x.argument != leaf.argument)
    return next((f"{x.path}.shape[{x.shape.index(number)}]" for x in near if number in x.shape), "")


RULE = Rule("JM406", "size-argument", "note", find)
