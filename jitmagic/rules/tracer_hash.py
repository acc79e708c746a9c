"""JM105 tracer-hash: a traced value is used as a key."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.classify import of_kind
from jitmagic.rules.words import expression, quoted, value_asked


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each place that uses a traced value as a key."""
    for problem in of_kind(evidence, RULE.kind):
        text = expression(problem)
        if problem.construct in ("subscript", "in"):
            head = f"{quoted(text)} looks up a key and needs its value"
            rewrite = "write the table as an array and index that, or choose with `jax.lax.switch`"
        elif problem.callee or problem.construct == "call":
            head = f"{quoted(problem.callee or text)} keeps results by the values of its arguments"
            head += " and needs them"
            rewrite = "leave the cache out: what is compiled is traced once and needs none"
        else:
            head = f"{quoted(text) if text else 'this'} uses a value as a key and needs it"
            rewrite = "use shapes or static values as keys"
        yield value_asked(RULE, evidence, problem, head, rewrite)


RULE = Rule("JM105", "tracer-hash", "error", find)
