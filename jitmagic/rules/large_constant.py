"""JM204 large-constant: the program holds a large array as a constant."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.captured import as_inputs, constants, first_read, is_large, paths
from jitmagic.rules.words import agree, listed
from jitmagic.units import size


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for all large constants, the largest first."""
    large = [v for v in constants(evidence, "array") if is_large(v, settings) and not v.stale]
    large.sort(key=lambda v: -(v.bytes or 0))
    if not large:
        return
    names = paths(large)
    total = sum(v.bytes or 0 for v in large)
    yield RULE.finding(
        evidence,
        f"{listed(names)} ({size(total)}) {agree(names, 'is', 'are')} copied into the compiled program of "
        f"`{evidence.function.name}`, which makes compiling slow and takes memory for each version",
        where=first_read(large),
        culprits=names,
        help=as_inputs(names),
    )


RULE = Rule("JM204", "large-constant", "warning", find)
