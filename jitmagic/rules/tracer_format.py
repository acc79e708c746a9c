"""JM106 tracer-format: a traced value is formatted as a number, or written into a name."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits
from jitmagic.rules.classify import of_kind
from jitmagic.rules.words import expression, quoted, value_asked

LOOKED_UP = ("KeyError", "AttributeError", "FileNotFoundError", "OSError")
"""A key, an attribute or a file whose name was made of a placeholder."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each place that formats a traced value as a number."""
    for problem in of_kind(evidence, RULE.kind):
        names = culprits(evidence, problem)
        text = expression(problem)
        name = names[0] if names and names[0].isidentifier() else "x"
        question = f"{quoted(text) if text else 'the format'} writes a number as text and needs its value"
        if problem.exception in LOOKED_UP:
            question = f"{quoted(text)} looks for a name that is written with a number and needs its value"
            rewrite = "make it a static argument, or index an array of what is looked up"
            yield value_asked(RULE, evidence, problem, question, rewrite)
            continue
        rewrite = (
            f'print with `jax.debug.print("{{{name}}}", {name}={name})`, which shows the value at every '
            "call, or make the text after the call"
        )
        yield value_asked(RULE, evidence, problem, question, rewrite)


RULE = Rule("JM106", "tracer-format", "error", find)
