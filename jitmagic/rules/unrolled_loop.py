"""JM405 unrolled-loop: a Python loop is in the program once for each turn."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Unrolled
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.words import quoted

TURNS = 16
"""Turns from which a loop takes long to compile."""
LARGE = 400
"""Operations from which a loop of fewer turns, such as one over the layers of a model, does too."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each loop that is written out in the traced program."""
    for fact in evidence.silent.unrolled:
        yield _told(evidence, fact)


def compiles_long(fact: Unrolled) -> bool:
    """There is enough of the loop for a compilation of seconds, or minutes."""
    return fact.turns >= TURNS or fact.equations >= LARGE


def _told(evidence: Evidence, fact: Unrolled) -> Finding:
    index = quoted(fact.names[0]) if fact.names and fact.names[0] != "_" else "the index"
    long = compiles_long(fact)
    total = evidence.equations or fact.equations
    body = f"the body of this loop is traced {fact.own_turns or fact.turns:,} times"
    if fact.own_turns != fact.turns:
        body += (
            f", and what loops in it trace {fact.turns:,} times"
            if fact.own_turns
            else ", with that of loops in it"
        )
    part = f"all {total:,}" if fact.equations == total else f"{fact.equations:,} of the {total:,}"
    return RULE.finding(
        evidence,
        f"{body}, which makes {part} operations of the program" + (": compiling takes long" if long else ""),
        severity="warning" if long else "note",
        where=fact.where,
        culprits=fact.names,
        help="write the loop as `jax.lax.fori_loop` (or `jax.lax.scan`, to collect a result of each iteration), with "
        f"what changes in the body as the carry; {index} is a traced value there",
    )


RULE = Rule("JM405", "unrolled-loop", "warning", find)
