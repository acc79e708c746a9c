"""JM603 out-of-memory: a call did not fit into the memory of its device."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, HeldArray
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.words import quoted, short
from jitmagic.units import listed, size


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for a function: the arrays, whose they are, and what would take less."""
    fact = evidence.exhausted
    if fact is None:
        return
    asked = f"{size(fact.asked)} could not be had" if fact.asked else "there was no memory left"
    free = (
        f"{size(fact.free)} are free"
        if fact.free is not None
        else "the device does not tell how much is free"
    )
    where = f"line {fact.line} holds most" if fact.line else "at most it holds"
    held = f". As written, {where}: {listed([_array(a) for a in fact.held])}" if fact.held else ""
    whole = evidence.function.where
    what = f"{quoted(evidence.function.name)} does not fit into memory"
    if not fact.held and whole is not None:
        what = f"there is not enough memory for {quoted(short(whole.source))}, or for what it reads"
    others = (
        f"; the notebook holds {listed([f'{quoted(a.name)} ({size(a.bytes)})' for a in fact.others])} besides"
    )
    ways = [f"{r.words}: {size(r.bytes)} at most{_fits(r.bytes, fact.free)}" for r in fact.remedies]
    yield RULE.finding(
        evidence,
        f"{what}: {asked}, {free}{held}{others if fact.others else ''}",
        where=whole,
        culprits=[a.name for a in fact.held if a.line is None],
        help=f"what takes less, by the compiler's report: {'; '.join(ways)}"
        if ways
        else "compute in parts (`jax.lax.map` with `batch_size`), in a narrower dtype, or without the largest array",
    )


def _array(array: HeldArray) -> str:
    name = quoted(array.name) if array.line is None else f"a value of line {array.line}"
    return f"{name} ({array.type}, {size(array.bytes)})"


def _fits(needed: int, free: int | None) -> str:
    return "" if free is None else ", which fits" if needed < free else ", which does not fit either"


RULE = Rule("JM603", "out-of-memory", "error", find)
