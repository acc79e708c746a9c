"""JM202 captured-scalar: a Python value that is no argument is written into the program."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Variable
from jitmagic.report import Finding, Severity
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.captured import as_inputs, first_read, paths, quiet
from jitmagic.rules.words import agree


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """At most a warning for those that change elsewhere, and a note for the others."""
    scalars = quiet(evidence, settings, "scalar")
    if harmful := [v for v in scalars if v.rebound]:
        yield _finding(evidence, harmful, "warning")
    if rest := [v for v in scalars if not v.rebound]:
        yield _finding(evidence, rest, "note")


def _finding(evidence: Evidence, variables: list[Variable], severity: Severity) -> Finding:
    names = paths(variables)
    values = ", ".join(f"`{v.path} = {v.value}`" if v.value else f"`{v.path}`" for v in variables[:6])
    message = f"the value of {values} is written into the compiled `{evidence.function.name}`"
    help = "nothing to do while it is a setting that stays what it is"
    if severity == "warning":
        message += f", but the notebook changes {agree(names, 'it', 'them')} elsewhere"
        help = as_inputs(names)
    return RULE.finding(
        evidence, message, where=first_read(variables), culprits=names, severity=severity, help=help
    )


RULE = Rule("JM202", "captured-scalar", "note", find)
