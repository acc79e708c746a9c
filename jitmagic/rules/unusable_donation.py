"""JM601 unusable-donation: an argument is donated, and no result can take its memory."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic import units
from jitmagic.evidence import Evidence, root
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.words import quoted


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each donated argument that has such an array."""
    told = set()
    for fact in evidence.silent.donations if evidence.silent else ():
        name, memory = root(fact.path), f"{fact.type}, {units.size(fact.bytes)}"
        if name in told:
            continue
        told.add(name)
        yield RULE.finding(
            evidence,
            f"{quoted(fact.path)} is donated, and its memory ({memory}) is not used: {fact.why}",
            where=evidence.function.where,
            culprits=[name, fact.path],
            help=f"do not donate {quoted(name)}, or return what replaces it in its shape and dtype",
        )


RULE = Rule("JM601", "unusable-donation", "warning", find)
