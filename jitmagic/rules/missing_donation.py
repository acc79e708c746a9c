"""JM602 missing-donation: a loop binds an argument anew to a result that could take its memory."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.words import agree, listed, short
from jitmagic.units import size

LARGE, SAVED = 1_000_000, 0.1
"""Bytes of the arguments, and the part of the peak that has to be saved."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One note for a function; a warning where its calls take more than half of the memory that is free."""
    for fact in evidence.silent.not_donated[:1]:
        saves = fact.before is None or fact.after is None or fact.after <= (1 - SAVED) * fact.before
        if fact.bytes < LARGE or not saves:
            continue
        names = listed(fact.names)
        new = agree(fact.names, "its new value", "their new values")
        if fact.before is not None and fact.after is not None:
            peak = f"A call holds {size(fact.before)} at most, and {size(fact.after)} with {names} donated"
            is_short = fact.free is not None and fact.before > fact.free / 2
        else:
            peak = "Old and new are held at once; the compiler was not asked for its peak"
            is_short = False
        yield RULE.finding(
            evidence,
            f"{names} ({size(fact.bytes)}) could be donated: `{short(fact.call)}` binds {new}. {peak}",
            where=evidence.function.where,
            culprits=fact.names,
            severity="warning" if is_short else None,
            help=f"donate {names} (`--donate {','.join(fact.names)}`, or `donate_argnames` of `jax.jit`); what was "
            "passed can't be used any more then",
        )


RULE = Rule("JM602", "missing-donation", "note", find)
