"""JM407 device-wait: the host waits for the device in each iteration of a loop, and the device then for the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jitmagic import units
from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.words import quoted, short

WAITED = 0.1
"""The part of the cell's time that is waited for, and"""
IDLE, IDLE_S = 0.05, 0.1
"""that which can be saved, with its seconds, from which on it is told."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """A note for each place where the wait is a relevant part of the cell."""
    for wait in evidence.waits:
        if wait.seconds < WAITED * wait.cell_s or wait.idle_s < max(IDLE * wait.cell_s, IDLE_S):
            continue
        waited, cell, saved = map(units.seconds, (wait.seconds, wait.cell_s, wait.idle_s))
        found = RULE.finding(
            evidence,
            f"{quoted(short(wait.where.text))} waits for the device in each iteration: {waited} of the {cell} of this "
            f"cell, measured in {wait.times} iterations; then the device waits for the host, and up to {saved} can be "
            "saved",
            where=wait.where,
            culprits=wait.names,
            help="keep the values on the device (`losses.append(loss)`), and fetch them once behind the loop, or every "
            "hundredth time",
        )
        yield replace(found, function="") if wait.where.function == "<module>" else found


RULE = Rule("JM407", "device-wait", "note", find)
