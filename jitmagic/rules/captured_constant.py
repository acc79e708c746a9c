"""JM201 captured-constant: an array that is no argument is a constant of the program."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Variable
from jitmagic.report import Finding, Severity
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.captured import as_inputs, everything_is_constant, first_read, paths, quiet
from jitmagic.rules.words import agree, listed


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """At most a warning for those that change elsewhere, and a note for the others."""
    arrays = quiet(evidence, settings, "array", "object")
    alone = everything_is_constant(evidence) and any(v.type == "array" for v in arrays)
    harmful = arrays if alone else [v for v in arrays if v.rebound]
    if harmful:
        yield _finding(evidence, harmful, "warning", alone)
    if rest := [v for v in arrays if v not in harmful]:
        yield _finding(evidence, rest, "note", alone)


def _finding(evidence: Evidence, variables: list[Variable], severity: Severity, alone: bool) -> Finding:
    variables = sorted(variables, key=lambda v: -(v.bytes or 0))
    names, function = paths(variables), evidence.function.name
    once = f"read once, while jax traces `{function}`, and then constant"
    fixed = f"{listed(names)} {agree(names, 'is', 'are')} {once}"
    if severity == "note":
        message = f"{fixed} in the compiled program"
        help = f"`--dyn {names[0]}` makes an input of it"
    elif alone:
        message = f"{fixed}: the compiled `{function}` has no input and gives the same result for ever"
        help = as_inputs(names)
    else:
        message = f"{fixed}, but the notebook changes {agree(names, 'it', 'them')} elsewhere"
        help = as_inputs(names)
    return RULE.finding(
        evidence, message, where=first_read(variables), culprits=names, severity=severity, help=help
    )


RULE = Rule("JM201", "captured-constant", "note", find)
